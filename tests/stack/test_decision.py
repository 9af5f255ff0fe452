"""A rejected batch and a person's answer, through Airflow's own API."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fencepost.config.loading import load_pipeline
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, State
from fencepost_stack.airflow_api import await_value

from .conftest import EVIL, ONLY_GOOD, PLAIN, Running, day, interval
from .test_pages import inside

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

# An empty batch is rejected without Spark, which is what takes the time elsewhere.
REJECTS = "quality: {ask_operator_minutes: 30, empty: reject}\n"


AGAIN = "reprocessed"
LINKS = "[a](https://evil.example) ![b](https://evil.example/x.png) https://evil.example"


def rejected(running: Running, *names: str) -> dict[str, dict[str, Any]]:
    """A rejected run of each pipeline, waiting for an answer."""
    for name in names:
        running.add(name, PLAIN, more=REJECTS)
    for name in names:
        running.api.await_dag(name)
    waiting: dict[str, dict[str, Any]] = {}
    for name in names:
        running.backfill(name, 1, 1)
    for name in names:
        run = _run_of(running, name)
        running.api.await_task(name, run["dag_run_id"], "decide", ["awaiting_input", "failed", "success"], 400)
        waiting[name] = run
    return waiting


@pytest.fixture(scope="module")
def to_publish(running: Running) -> dict[str, Any]:
    """The run that is to be published."""
    return rejected(running, "decided_publish")["decided_publish"]


@pytest.fixture(scope="module")
def asked(running: Running) -> dict[str, dict[str, Any]]:
    """One run for each other answer, by pipeline. A day of `reprocessed` goes on beside them."""
    _publish_first(running)
    return rejected(running, "decided_again", "decided_skip")


def _publish_first(running: Running) -> None:
    """Begin with a day of `reprocessed`, whose records are good as far as its first suite says."""
    running.add(AGAIN, PLAIN, more="quality: {ask_operator_minutes: 30}\n")
    running.produce(AGAIN, 1, [b"good", EVIL.encode(), LINKS.encode()])
    running.backfill(AGAIN, 1, 1)


@pytest.fixture(scope="module")
def reprocessed(running: Running, asked: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The run of a day that was published, then written again under a suite that fails: it waits for an answer."""
    (run,) = running.api.await_intervals(AGAIN, [day(1)])
    assert run["state"] == "success"
    assert "published revision 1" in run["note"]
    running.end_backfill(AGAIN)
    (running.pipelines / AGAIN / "expectations.yaml").write_text(ONLY_GOOD)
    running.backfill(AGAIN, 1, 1, reprocess_behavior="completed", dag_run_conf={"reprocess": True})
    running.api.await_task(AGAIN, run["dag_run_id"], "decide", ["awaiting_input", "failed"], 400)
    return _run_of(running, AGAIN)


def _run_of(running: Running, name: str) -> dict[str, Any]:
    return await_value(lambda: next(iter(running.api.dag_runs(name)), None), f"a run of {name}", 60)


def answer(running: Running, run: dict[str, Any], choice: str) -> dict[str, str]:
    """Answer, wait for the run's end, and give the states of its tasks.

    Nobody answers so fast in the UI: an answer within a second of the question overtakes what the scheduler hears of the
    try that asked, and Airflow 3.3.2 then counts that try as failed. So this waits until the scheduler has heard.
    """
    dag, run_id = run["dag_id"], run["dag_run_id"]
    path = f"/dags/{dag}/dagRuns/{run_id}/taskInstances/decide"
    number = running.api.call("GET", path)["try_number"]
    asked = f"TaskInstanceKey(dag_id='{dag}', task_id='decide', run_id='{run_id}', try_number={number},"
    heard = f"Received executor event with state success for task instance {asked}"
    await_value(lambda: running.said("scheduler", heard), heard, 60)
    said = {"chosen_options": [choice], "params_input": {"reason": "I looked at it"}}
    running.api.call("PATCH", f"{path}/-1/hitlDetails", said)
    assert running.api.await_run(dag, run_id)["state"] == "success"
    return {t["task_id"]: t["state"] for t in running.api.task_instances(dag, run_id)}


def ledger_of(running: Running, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", running.bootstrap)
    return Ledger(load_pipeline(running.pipelines / name)).read().all()


def test_publish_anyway_publishes_the_rejected_batch_in_ones_name(
    running: Running, to_publish: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = answer(running, to_publish, "publish anyway")
    assert (states["validate"], states["decide"], states["advance"]) == ("failed", "success", "success")
    assert (states["write_again"], states["validate_again"]) == ("skipped", "skipped")
    (batch,) = ledger_of(running, "decided_publish", monkeypatch)
    assert batch.state is State.PUBLISHED
    assert batch.decision is not None
    assert (batch.decision.action, batch.decision.by, batch.decision.reason) == (
        "publish anyway",
        "admin",
        "I looked at it",
    )
    events = running.api.call("GET", "/assets/events", source_dag_id="decided_publish")["asset_events"]
    assert [event["extra"]["batch"] for event in events] == [str(batch.id)], (
        "what a person published is told like any other batch"
    )


@pytest.mark.deep
def test_write_again_makes_a_new_revision_that_is_judged_and_published(
    running: Running, asked: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = running.pipelines / "decided_again" / "pipeline.yaml"
    settings.write_text(settings.read_text().replace("empty: reject", "empty: pass"))
    states = answer(running, asked["decided_again"], "write again")
    assert (states["write_again"], states["validate_again"], states["advance"]) == ("success",) * 3
    first, second = ledger_of(running, "decided_again", monkeypatch)
    assert (first.state, second.state, second.revision) == (State.SUPERSEDED, State.PUBLISHED, 2)
    assert second.decision is not None
    assert second.decision.reason == "I looked at it"


@pytest.mark.deep
def test_skip_lets_the_frontier_pass_and_emits_no_event(
    running: Running, asked: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = answer(running, asked["decided_skip"], "skip this interval")
    assert states["advance"] == "success"
    (batch,) = ledger_of(running, "decided_skip", monkeypatch)
    assert batch.state is State.SKIPPED
    assert running.api.call("GET", "/assets/events", source_dag_id="decided_skip")["asset_events"] == []


@pytest.mark.deep
@pytest.mark.parametrize(
    "where", ["plugin/run-report", "tasks/decide/plugin/task-report", "tasks/validate/plugin/task-report"]
)
def test_a_rejected_reprocess_is_red_on_each_tab_of_its_run(
    running: Running, page: Page, reprocessed: dict[str, Any], where: str
) -> None:
    page.goto(f"{running.api.url}/dags/{AGAIN}/runs/{reprocessed['dag_run_id']}/{where}")
    frame = inside(page, "Report")
    expect(frame.get_by_role("heading", name="Revision 2 rejected")).to_be_visible()
    expect(frame.locator("#awaiting")).to_contain_text("revision 1 stays published until revision 2 is published")
    shown = frame.frame_locator('iframe[title="Report"]')
    expect(shown.get_by_role("heading", name="Rejected")).to_be_visible()


@pytest.mark.deep
def test_a_rejected_reprocess_stands_first_on_data_quality_and_batches(
    running: Running, page: Page, reprocessed: dict[str, Any]
) -> None:
    page.goto(f"{running.api.url}/plugin/data-quality")
    frame = inside(page, "Data quality")
    says = "revision 2 was rejected; revision 1 stays published until revision 2 is published"
    expect(frame.locator("#awaiting")).to_contain_text(says)
    expect(frame.locator("#awaiting + section")).to_contain_text("awaiting a person")
    expect(frame.locator(f"#{AGAIN}")).to_contain_text("0 of 1")
    page.goto(f"{running.api.url}/dags/{AGAIN}/plugin/batches")
    frame = inside(page, "Batches")
    expect(frame.locator("#awaiting")).to_contain_text(says)
    row = frame.locator(f'tr[data-interval="{interval(1)}"]')
    expect(row).to_have_class("awaits")
    expect(row.locator(".badge.rejected").first).to_be_visible()


@pytest.mark.deep
def test_the_note_is_that_of_the_run_that_goes_on(running: Running, reprocessed: dict[str, Any]) -> None:
    assert reprocessed["state"] == "running"
    assert reprocessed["note"] == "Fencepost: running. Params the run saw: reprocess=true."


@pytest.mark.deep
def test_the_question_shows_checks_counts_and_records_and_interprets_nothing(
    running: Running, page: Page, reprocessed: dict[str, Any]
) -> None:
    page.goto(f"{running.api.url}/dags/{AGAIN}/runs/{reprocessed['dag_run_id']}/tasks/decide/required_actions")
    check = page.locator("li", has_text="expect_column_values_to_be_in_set(value)")
    expect(check).to_contain_text("2 of 3 records are unexpected (66.67 %)")
    expect(check.locator("code", has_text=LINKS)).to_be_visible()
    expect(check.locator("code", has_text=EVIL[:60]).first).to_be_visible()
    assert page.locator("img[onerror], img[src*=evil], a[href*=evil]").count() == 0
    assert page.title() != "run"


@pytest.mark.deep
def test_publish_anyway_puts_it_in_the_place_of_the_published_one(
    running: Running, page: Page, reprocessed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(running, reprocessed, "publish anyway")
    first, second = ledger_of(running, AGAIN, monkeypatch)
    assert (first.state, second.state) == (State.SUPERSEDED, State.PUBLISHED)
    run = _run_of(running, AGAIN)
    told = "advance: published revision 2, in one transaction. Params the run saw: reprocess=true."
    assert run["note"] == f"Fencepost: {told}"
    page.goto(f"{running.api.url}/dags/{AGAIN}/plugin/batches")
    expect(inside(page, "Batches").locator("tr[data-interval]")).to_have_count(1)
    expect(inside(page, "Batches").locator("#awaiting")).to_have_count(0)
