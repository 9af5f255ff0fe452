"""Backfills as an operator starts them, in Airflow's form; and ranges and moments of every kind."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fencepost import read_validated
from fencepost.errors import Superseded
from fencepost.model import State
from fencepost_stack.airflow_api import await_value
from kafka_tools import create_topic, group_offsets, read_all

from .conftest import Running, day, open_page

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

NAME = "refilled"
TRANSFORM = """
def transform(frame):
    return frame.selectExpr("_key", "cast(concat('{word} ', cast(value AS string)) AS binary) AS value")
"""
UNION = "SELECT _key, value FROM north UNION ALL SELECT _key, value FROM south"
RECORDS = {1: [b"1a"], 2: [b"2a", b"2b"], 3: [b"3a"]}


def fill(page: Page, running: Running, dag: str, first: int, last: int) -> Locator:
    """The form for these days of January; what is still to be chosen is left as Airflow has it."""
    page.goto(f"{running.api.url}/dags/{dag}")
    page.get_by_test_id("trigger-dag-button").click()
    form = page.get_by_role("dialog")
    form.get_by_text("Backfill", exact=True).click()
    for field, number in zip(form.get_by_test_id("datetime-input").all(), (first, last), strict=True):
        field.click()
        for placeholder, value in (("YYYY/MM/DD", f"2026/01/{number:02}"), ("HH:mm", "00:00")):
            page.get_by_placeholder(placeholder).fill(value)
            page.get_by_placeholder(placeholder).press("Enter")
        page.keyboard.press("Escape")
        expect(page.get_by_placeholder("YYYY/MM/DD")).to_have_count(0)
    return form


def run(page: Page, form: Locator) -> None:
    """Press the button, and see Airflow take it."""
    form.get_by_role("button", name="Run Backfill").click()
    expect(page.get_by_text("Backfill generated").first).to_be_visible()


def state_of(running: Running, name: str = NAME) -> dict[str, Any]:
    """All that a backfill could touch: ledger, output, offsets of both groups."""
    return {
        "ledger": running.ledger(name),
        "output": [(r.offset, r.value) for r in read_all(running.bootstrap, f"{name}-out")],
        "frontier": group_offsets(running.bootstrap, name, f"{name}-in", [0]),
        "validated": group_offsets(running.bootstrap, f"{name}.validated", f"{name}-out", [0]),
    }


def validated(running: Running) -> list[bytes | None]:
    """Output that is published now, told apart by its header."""
    published = {str(b.id) for b in running.ledger(NAME) if b.state is State.PUBLISHED}
    records = read_all(running.bootstrap, f"{NAME}-out")
    return sorted(r.value or b"" for r in records if r.batch in published)


def transformed(word: str, *days: int) -> list[bytes]:
    """The truth: what the transform makes of these days' records."""
    return sorted(word.encode() + b" " + value for number in days for value in RECORDS[number])


def run_of(running: Running, number: int, name: str = NAME) -> dict[str, Any]:
    """The run of a day."""
    found = {datetime.fromisoformat(r["data_interval_start"]): r for r in running.api.dag_runs(name)}
    return found[day(number)]


@pytest.fixture(scope="module")
def filled(running: Running, browser: Browser) -> None:
    """Days 2 and 3, through the form."""
    running.add(NAME, TRANSFORM.format(word="first"))
    for number, values in RECORDS.items():
        running.produce(NAME, number, values)
    running.api.await_dag(NAME)
    running.api.unpause(NAME)
    with open_page(browser, running) as page:
        form = fill(page, running, NAME, 2, 3)
        expect(form.get_by_text("2 runs will be triggered")).to_be_visible()
        run(page, form)
    running.end_backfill(NAME)


def test_days_never_run_are_in_the_output_record_for_record(running: Running, filled: None) -> None:
    assert [r["state"] for r in running.api.dag_runs(NAME)] == ["success"] * 2
    assert validated(running) == transformed("first", 2, 3)


@pytest.mark.parametrize("choice", ["Missing Runs", "Missing and Errored Runs"])
def test_what_is_published_is_not_touched_by(running: Running, page: Page, filled: None, choice: str) -> None:
    before, runs = state_of(running), running.api.dag_runs(NAME)
    form = fill(page, running, NAME, 2, 3)
    form.get_by_text(choice, exact=True).click()
    expect(form.get_by_text("No runs matching selected criteria.")).to_be_visible()
    expect(form.get_by_role("button", name="Run Backfill")).to_be_disabled()
    assert state_of(running) == before
    assert running.api.dag_runs(NAME) == runs


def test_all_runs_is_a_green_no_op_that_says_so_in_log_note_and_ledger(
    running: Running, page: Page, filled: None
) -> None:
    """The form drops `reprocess`, too, unless its box is ticked."""
    before = state_of(running)
    form = fill(page, running, NAME, 3, 3)
    form.get_by_text("All Runs", exact=True).click()
    switch_reprocess_on(form)
    run(page, form)
    running.end_backfill(NAME)
    again = run_of(running, 3)
    assert again["state"] == "success"
    assert "already published, revision 1" in running.last_log(again, "plan")
    assert "'reprocess': False" in running.last_log(again, "plan")
    assert "already published, revision 1" in again["note"]
    assert "reprocess=false" in again["note"]
    assert state_of(running) == before
    page.goto(f"{running.api.url}/dags/{NAME}/runs/{again['dag_run_id']}")
    expect(page.get_by_text("already published, revision 1").first).to_be_visible()


def switch_reprocess_on(form: Locator) -> None:
    """The param has a title and a text that helps."""
    expect(form.get_by_text("otherwise existing runs do not get this parameter")).to_be_visible()
    switch_on(form, "reprocess")


def switch_on(form: Locator, param: str) -> None:
    form.locator("label").filter(has=form.page.locator(f"input[name=element_{param}]")).click()


def test_a_range_published_in_part_that_begins_before_the_first_interval_fills_what_is_missing(
    running: Running, page: Page, filled: None
) -> None:
    before = state_of(running)
    form = fill(page, running, NAME, 1, 4)
    expect(form.get_by_text("2 runs will be triggered")).to_be_visible()
    run(page, form)
    running.end_backfill(NAME)
    assert [run_of(running, n)["state"] for n in (1, 4)] == ["success"] * 2
    after = state_of(running)
    assert [b for b in after["ledger"] if b.interval.start in (day(2), day(3))] == before["ledger"]
    assert [b.state for b in after["ledger"] if b.interval.start in (day(1), day(4))] == [State.PUBLISHED] * 2
    assert validated(running) == transformed("first", 1, 2, 3)
    assert after["frontier"] == before["frontier"], "day 1 lies before it, and day 4 is empty"


def test_reprocess_makes_a_second_revision_of_the_same_input_that_replaces_the_first(
    running: Running, page: Page, filled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(running)
    running.produce(NAME, 2, [b"too late for this day"])
    transform = running.pipelines / NAME / "transform.py"
    transform.write_text(TRANSFORM.format(word="second"))
    form = fill(page, running, NAME, 2, 2)
    form.get_by_text("All Runs", exact=True).click()
    switch_reprocess_on(form)
    form.get_by_text("Override parameters on existing runs", exact=True).click()
    run(page, form)
    running.end_backfill(NAME)
    assert "reprocess=true" in run_of(running, 2)["note"]
    first, second = (b for b in running.ledger(NAME) if b.interval.start == day(2))
    assert (first.state, second.state, second.revision) == (State.SUPERSEDED, State.PUBLISHED, 2)
    assert second.plan.inputs == first.plan.inputs
    untouched = [n for n in (1, 3) if transformed("first", n)[0] in validated(running)]
    assert validated(running) == sorted(transformed("second", 2) + transformed("first", *untouched))
    after = state_of(running)
    assert after["output"][: len(before["output"])] == before["output"]
    for group in ("frontier", "validated"):
        assert all(after[group][p] >= offset for p, offset in before[group].items())
    found = running.api.call("GET", "/assets/events", source_dag_id=NAME, order_by="timestamp")["asset_events"]
    events = {event["extra"]["batch"]: event["extra"] for event in found}
    assert list(events)[-1] == str(second.id)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", running.bootstrap)
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(running.pipelines))
    with pytest.raises(Superseded, match="superseded"):
        read_validated(None, events[str(first.id)])  # type: ignore[arg-type]  # it does not come to reading


def test_a_single_run_by_hand_is_refused_with_what_to_do_instead(running: Running, page: Page, filled: None) -> None:
    runs = running.api.dag_runs(NAME)
    page.goto(f"{running.api.url}/dags/{NAME}")
    page.get_by_test_id("trigger-dag-button").click()
    page.get_by_role("dialog").get_by_role("button", name="Trigger", exact=True).click()
    expect(page.get_by_text("take no manual runs").first).to_be_visible()
    assert running.api.dag_runs(NAME) == runs


def test_a_cancelled_backfill_ends_the_run_that_is_on_and_can_be_gone_on_with(running: Running) -> None:
    name = "stopped"
    running.add(name)
    running.produce(name, 1, [b"one"])
    running.produce(name, 2, [b"two"])
    backfill = running.backfill(name, 1, 3, max_active_runs=1)
    begun = await_value(
        lambda: next((r for r in running.api.dag_runs(name) if r["state"] == "running"), None), "a run", 120
    )
    running.api.await_task(name, begun["dag_run_id"], "write", ["running", "success"])
    running.api.call("PUT", f"/backfills/{backfill}/cancel")
    (done,) = running.api.await_intervals(name, [day(1)])
    assert done["state"] == "success"
    assert [r["state"] for r in running.api.dag_runs(name)] == ["success", "failed", "failed"]
    assert [b.state for b in running.ledger(name)] == [State.PUBLISHED]
    assert group_offsets(running.bootstrap, name, f"{name}-in", [0]) == {0: 1}
    running.backfill(name, 1, 3, reprocess_behavior="failed")
    running.end_backfill(name)
    assert [r["state"] for r in running.api.dag_runs(name)] == ["success"] * 3
    assert [r.value for r in read_all(running.bootstrap, f"{name}-out")] == [b"one", b"two"]
    assert group_offsets(running.bootstrap, name, f"{name}-in", [0]) == {0: 2}


def test_a_source_more_is_refused_until_the_form_says_that_the_sources_have_changed(
    running: Running, page: Page
) -> None:
    """Day 3 is planned behind the day that the parameter was given for, and needs it no more."""
    name = "regions"
    running.add(name)
    running.produce(name, 1, [b"1"])
    running.backfill(name, 1, 1)
    running.end_backfill(name)
    for number in (2, 3):
        running.produce(name, number, [b"%d" % number])
    create_topic(running.bootstrap, f"{name}-south-in", 1)
    for number in (1, 2, 3):
        running.produce(f"{name}-south", number, [b"south %d" % number])
    settings = running.pipelines / name / "pipeline.yaml"
    south = f"{{topic: {name}-south-in, format: bytes}}"
    read = f"sources:\n  north: {{topic: {name}-in, format: bytes}}\n  south: {south}\n"
    settings.write_text(settings.read_text().replace(f"source: {{topic: {name}-in, format: bytes}}\n", read))
    (running.pipelines / name / "transform.py").unlink()
    (running.pipelines / name / "transform.sql").write_text(UNION)

    running.backfill(name, 2, 2)
    running.end_backfill(name)
    assert run_of(running, 2, name)["state"] == "failed"
    said = running.last_log(run_of(running, 2, name), "plan")
    assert f"{name}-south" in said
    assert "or the parameter sources_changed of a backfill in Airflow" in said

    form = fill(page, running, name, 2, 3)
    form.get_by_text("Missing and Errored Runs", exact=True).click()
    expect(form.get_by_text("2 runs will be triggered")).to_be_visible()
    switch_on(form, "sources_changed")
    form.get_by_text("Override parameters on existing runs", exact=True).click()
    run(page, form)
    running.end_backfill(name)
    assert [run_of(running, number, name)["state"] for number in (2, 3)] == ["success"] * 2
    assert "sources_changed=true" in run_of(running, 2, name)["note"]
    published = [r.value for r in read_all(running.bootstrap, f"{name}-out")]
    assert sorted(published, key=str) == [b"1", b"2", b"3", b"south 2", b"south 3"], "south begins where day 1 ends"
    page.goto(f"{running.api.url}/dags/{name}/runs/{run_of(running, 2, name)['dag_run_id']}")
    expect(page.get_by_text("sources_changed=true").first).to_be_visible()
