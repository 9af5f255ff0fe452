"""Every page asks who is there, escapes what came from data, and takes no path from a request."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
import yaml
from fastapi.routing import APIRoute

from fencepost.config.pipeline import Pipeline
from fencepost.errors import KafkaUnavailable, LedgerUnreadable
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas, State, UnreadRange, utc_now
from fencepost.pages import app as app_module
from fencepost.pages import comparisons as comparisons_module
from fencepost.pages.app import app
from fencepost.pages.comparisons import Comparison, Comparisons
from fencepost.pages.pipelines import Pipelines
from makers import a_table, a_topic, counted, of_source, planned
from waiting import await_true

from .conftest import SETTINGS, FakeComparisons, FakeLedgers, Get
from .ledgers import EVIL, batch, hour, ledger, quarantining, replaying

VALUES = {
    "{dag_id}": "orders",
    "{interval}": str(hour(100)),
    "{revision}": "1",
    "{run_id:path}": "any",
    "{name}": "x.css",
}
ROUTES = [route.path for route in app.routes if isinstance(route, APIRoute)]
REPORT = "<!DOCTYPE html><style>@media (prefers-color-scheme: dark) { }</style>@media (prefers-color-scheme: dark)"


def path_of(route: str, **values: str) -> str:
    for name, value in {**VALUES, **{f"{{{k}}}": v for k, v in values.items()}}.items():
        route = route.replace(name, value)
    return route


def write_report(reports: Path, number: int = 100) -> Path:
    file = reports / "orders" / str(hour(number)) / "revision-1-validation-1.html"
    file.parent.mkdir(parents=True)
    file.write_text(REPORT)
    file.with_suffix(".json").write_text("{}")
    return file


@pytest.mark.parametrize("route", [r for r in ROUTES if r != "/static/{name}"])
def test_every_page_is_closed_to_the_anonymous(get: Get, route: str) -> None:
    answer = get(path_of(route), anonymous=True)
    assert answer.status_code == 401
    assert "orders" not in answer.text


@pytest.mark.parametrize("route", [r for r in ROUTES if "{dag_id}" in r])
def test_every_page_of_a_dag_is_closed_to_those_who_may_not_read_it(get: Get, route: str) -> None:
    assert get(path_of(route, dag_id="secret")).status_code == 403


def test_the_overview_shows_no_pipeline_whose_dag_one_may_not_read(get: Get) -> None:
    text = get("/").text
    assert "orders" in text
    assert "secret" not in text


def test_style_and_script_are_open_and_nothing_beside_them_is(get: Get) -> None:
    assert get("/static/pages.css", anonymous=True).headers["content-type"].startswith("text/css")
    for name in ("app.py", "..%2Fapp.py", "%2e%2e/app.py", "pages.css/../../app.py", ""):
        assert get(f"/static/{name}").status_code in {401, 404}, name


@pytest.mark.parametrize(
    "path", ["/", "/pipelines/orders", f"/pipelines/orders/{hour(3)}", f"/pipelines/orders/{hour(3)}/1"]
)
def test_data_are_escaped_and_nothing_foreign_may_load(get: Get, ledgers: FakeLedgers, path: str) -> None:
    evil = batch(3, State.REJECTED)
    assert evil.verdict is not None
    verdict = evil.verdict.model_copy(update={"reason": EVIL, "failed_critical": (EVIL,)})
    events = tuple(e.model_copy(update={"note": EVIL}) for e in evil.history)
    decision = batch(3, State.SKIPPED).decision
    assert decision is not None
    evil = evil.model_copy(
        update={
            "verdict": verdict,
            "history": events,
            "decision": decision.model_copy(update={"reason": EVIL, "by": EVIL}),
        }
    )
    ledgers.content["orders"] = [*ledger(3), evil]
    answer = get(path)
    assert answer.status_code == 200
    assert EVIL not in answer.text
    assert "&lt;script&gt;alert" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r'(src|href)="(https?:)?//', answer.text)
    assert not re.search(r"\son\w+=|style=|<script>", answer.text)


def test_a_reflected_query_is_escaped_or_dropped(get: Get) -> None:
    answer = get("/pipelines/orders?state=%22%3E%3Cscript%3E&sort=%3Cscript%3E&order=%3Cb%3E")
    assert (answer.status_code, answer.text.count("<script")) == (200, 1)
    assert get("/pipelines/%3Cscript%3Ealert(1)").text.count("<script") == 1


def test_the_hole_stands_out_and_only_it(get: Get) -> None:
    text = get("/pipelines/orders").text
    assert re.findall(r'<tr class="hole" data-interval="(.+?)">', text) == [str(hour(100))]
    assert "holds the frontier back" in text
    assert text.count("waits behind the frontier") == 19


def test_what_the_output_lacks_is_shown_with_its_commands_and_escaped(get: Get, comparisons: FakeComparisons) -> None:
    assert "lacks" not in get("/pipelines/orders").text
    lacks = "table <b>t</b> lacks 1 intervals. These bring them back: `fencepost run orders --reprocess`"
    comparisons.comparison = Comparison(lacks, utc_now() - timedelta(seconds=30))
    text = get("/pipelines/orders").text
    assert "Table &lt;b&gt;t&lt;/b&gt; lacks 1 intervals" in text
    assert "<code>fencepost run orders --reprocess</code>" in text
    ago = re.search(r"Compared (\d+) s ago\.", text)
    assert ago, "since when is not said"
    assert int(ago[1]) >= 30, "it takes a while on a busy machine"


def test_a_table_that_does_not_answer_is_shown_with_why_since_when_and_its_last_answer(
    get: Get, comparisons: FakeComparisons
) -> None:
    now = utc_now()
    comparisons.comparison = Comparison(
        "", now - timedelta(minutes=2), datetime(2026, 1, 31, 5, 6, 7, tzinfo=UTC), "<i>away</i>. Run `x`."
    )
    text = get("/pipelines/orders").text
    assert "has not been compared with the ledger since 2026-01-31 05:06:07 UTC" in text
    assert "&lt;i&gt;away&lt;/i&gt;. Run <code>x</code>." in text
    assert re.search(r"The last result is 2 m( \d+ s)? old: nothing was missing\.", text)
    comparisons.comparison = replace(comparisons.comparison, failure="")
    assert "another session may hold a lock on the table" in get("/pipelines/orders").text
    comparisons.comparison = replace(comparisons.comparison, asked_at=utc_now())
    assert 'id="not-compared"' not in get("/pipelines/orders").text, "an answer is not late at once"


def test_a_page_comes_while_its_table_does_not_answer(get: Get, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes of the question, no request waits for it, and so no thread of the server."""
    text = (folders / "orders" / "pipeline.yaml").read_text()
    table = "output: {kind: postgres, table: t}\npostgres: {host: h, dbname: d, user: u}"
    (folders / "orders" / "pipeline.yaml").write_text(text.replace("output: {topic: orders-out, format: bytes}", table))
    asked, answers = list[str](), Event()

    def compare(pipeline: Pipeline) -> str:
        asked.append(pipeline.name)
        assert answers.wait(60)
        return ""

    monkeypatch.setattr(app_module, "comparisons", Comparisons(compare))
    monkeypatch.setattr(comparisons_module, "PROMPT", 600.0)
    for _ in range(3):
        assert "The output is being compared with the ledger." in get("/pipelines/orders").text
    assert asked == ["orders"]
    answers.set()
    await_true(lambda: 'id="compared"' in get("/pipelines/orders").text, "the answer to be shown")


def test_the_page_says_what_lies_before_the_first_range_as_far_as_the_topic_still_has_it(
    get: Get, ledgers: FakeLedgers
) -> None:
    """The first batch begins at offset 100 in each of four partitions; of the first partition 50 were deleted since."""
    first = batch(1)
    (source,) = first.plan.inputs
    before = tuple(
        UnreadRange(topic=r.topic, partition=r.partition, start=0, end=r.start, last_timestamp=1_767_225_600)
        for r in source.ranges
    )
    plan = first.plan.model_copy(update={"inputs": (source.model_copy(update={"unread": before}),)})
    ledgers.content["orders"] = [first.model_copy(update={"plan": plan}), batch(2)]
    text = get("/pipelines/orders").text
    assert "<b>Never read.</b> 350 offsets of topic orders-in lie before the first range" in text
    assert "partition 0: 50, the last record with timestamp 1767225600, 1970-01-21 10:53 UTC: seconds taken" in text
    assert (
        "<code>fencepost run orders --start 1970-01-01T00:00:00Z --end 2026-01-01T01:00:00Z</code> reads them" in text
    )
    ledgers.content["orders"] = ledger(2)
    assert "Never read" not in get("/pipelines/orders").text


def test_the_page_names_the_intervals_of_the_schedule_that_have_no_run(
    get: Get, ledgers: FakeLedgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those before the first batch one has a run, which waits."""
    ledgers.content["orders"] = [batch(6), batch(7)]
    first = hour(3)
    monkeypatch.setattr(
        app_module, "runs_of", lambda _, intervals: {i.start: "waits" for i in intervals if i.start == first.start}
    )
    text = get("/pipelines/orders").text
    assert '<p class="note" id="left-out"><b>No run.</b> 5 intervals of the schedule have no batch' in text
    assert "2026-01-01 00:00 to 2026-01-01 03:00 UTC; 2026-01-01 04:00 to 2026-01-01 06:00 UTC." in text
    ledgers.content["orders"] = ledger(3)
    assert "left-out" not in get("/pipelines/orders").text


def test_records_nobody_counted_are_said_not_to_be(get: Get, ledgers: FakeLedgers) -> None:
    retried = batch(3)
    assert retried.written is not None
    retried = retried.model_copy(update={"written": counted(retried.written, rows_in=None)})
    ledgers.content["orders"] = [*ledger(3), retried]
    for path in ("/pipelines/orders?sort=rows_in", f"/pipelines/orders/{hour(3)}"):
        text = get(path).text
        assert text.count(">not counted<") == 1, path
        assert "None" not in text, path


def test_excluded_records_are_shown_by_kind(get: Get, ledgers: FakeLedgers) -> None:
    made = batch(1)
    assert made.written is not None
    path = f"/pipelines/orders/{hour(1)}"
    ledgers.content["orders"] = [made]
    assert "Excluded" not in get(path).text
    written = counted(made.written, excluded={"other_types": 1_050, "messages": 2})
    ledgers.content["orders"] = [made.model_copy(update={"written": written})]
    assert "<dt>Excluded</dt><dd>1,050 records of other types, 2 logical messages</dd>" in get(path).text


def test_a_filter_shows_that_state_only_on_every_page(get: Get) -> None:
    text = get("/pipelines/orders?state=rejected").text
    assert re.findall(r'data-interval="(.+?)"', text) == [str(hour(100))]
    assert 'class="here">rejected' in text


def test_the_report_is_the_file_the_ledger_names_shut_in_by_its_headers(get: Get) -> None:
    write_report(Path(os.environ["FENCEPOST_REPORTS"]))
    page = get(f"/pipelines/orders/{hour(100)}/1")
    assert f'data-src="/fencepost/pipelines/orders/{hour(100)}/1/report.html"' in page.text
    answer = get(f"/pipelines/orders/{hour(100)}/1/report.html")
    assert answer.text == REPORT
    policy = answer.headers["content-security-policy"]
    assert {"sandbox", "default-src 'none'", "style-src 'unsafe-inline'"} <= set(policy.split("; "))
    assert get(f"/pipelines/orders/{hour(100)}/1/report.json").json() == {}


def test_the_theme_of_the_ui_takes_the_place_of_the_systems_in_the_report_and_of_nothing_else(get: Get) -> None:
    write_report(Path(os.environ["FENCEPOST_REPORTS"]))
    dark = get(f"/pipelines/orders/{hour(100)}/1/report.html?theme=dark").text
    assert dark == REPORT.replace("@media (prefers-color-scheme: dark)", "@media all", 1)
    assert get(f"/pipelines/orders/{hour(100)}/1/report.html?theme=%3Cscript%3E").text == REPORT


def test_a_report_outside_of_the_reports_folder_is_not_opened_whatever_the_ledger_says(
    get: Get, ledgers: FakeLedgers, tmp_path: Path
) -> None:
    reports, outside = Path(os.environ["FENCEPOST_REPORTS"]), tmp_path / "outside.html"
    outside.write_text("private")
    target = write_report(reports)
    target.unlink()
    target.symlink_to(outside)
    bad = batch(100, State.REJECTED)
    assert bad.verdict is not None
    for named in (outside, reports / ".." / "outside.html", target):
        verdict = bad.verdict.model_copy(update={"report": str(named)})
        ledgers.content["orders"] = [bad.model_copy(update={"verdict": verdict})]
        answer = get(f"/pipelines/orders/{hour(100)}/1/report.html")
        assert answer.status_code == 404, named
        assert "private" not in answer.text


def test_the_report_of_another_pipeline_is_not_opened_under_a_dags_own_permission(
    get: Get, ledgers: FakeLedgers, folders: Path
) -> None:
    """Whoever may write to a ledger names any file in it, and may place links where its own reports lie."""
    reports = Path(os.environ["FENCEPOST_REPORTS"])
    (folders / "secret").rename(folders / "evil")
    target, theirs = write_report(reports), reports / "evil" / str(hour(100))
    theirs.mkdir(parents=True)
    (theirs / "link.html").symlink_to(target)
    (reports / "linked").symlink_to(reports / "orders")
    good = batch(100, State.REJECTED)
    assert good.verdict is not None
    for named in (target, theirs / ".." / ".." / target.relative_to(reports), theirs / "link.html"):
        verdict = good.verdict.model_copy(update={"report": str(named)})
        for pipeline in ("evil", "orders"):
            ledgers.content["evil"] = [good.model_copy(update={"verdict": verdict, "pipeline": pipeline})]
            for end in ("/report.html", "/report.json"):
                assert get(f"/pipelines/evil/{hour(100)}/1{end}").status_code == 404, named
    (reports / "evil").rename(reports / "another")
    (reports / "evil").symlink_to(reports / "orders")
    verdict = good.verdict.model_copy(update={"report": str(target)})
    ledgers.content["evil"] = [good.model_copy(update={"verdict": verdict, "pipeline": "evil"})]
    assert get(f"/pipelines/evil/{hour(100)}/1/report.html").status_code == 404


def test_a_page_says_what_is_wrong_with_the_settings_that_its_dag_carries(
    get: Get, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    settings = yaml.safe_load(SETTINGS.format(description="x"))
    settings["kafka"] = {"bootstrap.servers": "evil:1", "sasl.password": "${KAFKA_PASSWORD}"}
    settings["schedule"]["start"] = "2026-01-01"
    public = {"settings": settings, "left_out": []}
    (folders / "orders").rename(folders / ".orders")
    monkeypatch.setattr(app_module, "pipelines", Pipelines(lambda: {"orders": ("hash", public)}))
    answer = get("/pipelines/orders")
    assert "KAFKA_PASSWORD} is not read here, because FENCEPOST_PAGES_ENVIRONMENT does not list it" in answer.text
    assert "hunter2" not in answer.text
    assert '<a href="/fencepost/pipelines/orders">orders</a>' in get("/").text


@pytest.mark.parametrize("interval", ["..%2f..%2foutside", "%2e%2e", "20260105T040000Z", "x" * 3000])
def test_an_interval_that_is_no_batchs_is_not_found(get: Get, interval: str) -> None:
    for end in ("", "/1", "/1/report.html", "/2/report.json"):
        assert get(f"/pipelines/orders/{interval}{end}").status_code == 404


def test_while_kafka_is_away_pages_say_so_with_503_and_what_to_do(get: Get, ledgers: FakeLedgers) -> None:
    ledgers.content["orders"] = KafkaUnavailable(
        "describing topic x: no answer from Kafka at 127.0.0.1:1. Is the broker up?"
    )
    for path in ("/pipelines/orders", f"/pipelines/orders/{hour(3)}/1", "/"):
        answer = get(path)
        assert answer.status_code == 503
        assert "127.0.0.1:1. Is the broker up?" in answer.text
    assert get("/pipelines/orders").headers["retry-after"] == "5"


def test_a_ledger_that_cannot_be_read_leaves_the_other_pipelines_on_the_overview(
    get: Get, ledgers: FakeLedgers
) -> None:
    ledgers.content["orders"] = LedgerUnreadable("ledger x, offset 3: not a Fencepost record.")
    answer = get("/")
    assert answer.status_code == 200
    assert "offset 3: not a Fencepost record" in answer.text


def test_an_editors_lock_and_a_broken_pipeline_leave_the_pages_of_the_others(get: Get, folders: Path) -> None:
    (folders / "orders" / ".#pipeline.yaml").symlink_to("ann@host.1")
    (folders / "fresh").symlink_to("nowhere")
    for path in ("/", "/pipelines/orders"):
        assert get(path).status_code == 200, path
    assert "1 pipeline cannot be read" in get("/").text


def test_a_page_of_ten_thousand_batches_holds_fifty(get: Get, ledgers: FakeLedgers) -> None:
    ledgers.content["orders"] = ledger(10_000)
    text = get("/pipelines/orders?page=200").text
    assert text.count("data-interval=") == 50
    assert "10,000 of 10,000 intervals" in text


def test_links_keep_below_where_airflow_is_mounted(get: Get) -> None:
    text = get("/pipelines/orders").text
    assert all(link.startswith(("/fencepost/", "/dags/orders", "?")) for link in re.findall(r'href="(.*?)"', text))
    assert f"/dags/orders/runs/run%20{hour(119)}" in text


def test_what_went_to_quarantine_is_counted_in_the_list_the_trend_and_by_rule(get: Get, ledgers: FakeLedgers) -> None:
    hours = [batch(0), quarantining(batch(1), 1200, f"bad{EVIL}", **{f"rule{EVIL}": 34}), batch(2)]
    ledgers.content["orders"] = hours
    listed, one, overview = (get(path).text for path in ("/pipelines/orders", f"/pipelines/orders/{hour(1)}", "/"))
    assert "1,234 quarantined" in listed
    assert "4 / 8" in listed, "receipts of the task-partitions for malformed records are asked for"
    assert "Quarantined rows" in overview
    assert "1,200" in one
    assert "rule&lt;script&gt;" in one
    assert EVIL not in listed + one + overview
    ledgers.content["orders"] = [batch(0)]
    assert "uarantine" not in get("/").text + get("/pipelines/orders").text + get(f"/pipelines/orders/{hour(0)}").text


def test_the_schemas_of_a_batch_are_named_with_subject_version_and_ids(get: Get, ledgers: FakeLedgers) -> None:
    made = batch(1)
    one, two = (RegisteredSchema(subject=f"in{EVIL}", id=5 + n, version=1 + n, text="{}") for n in range(2))
    schemas = Schemas(sources=of_source(ReadSchemas(reader=two, writers=(one, two))), output_key=one)
    ledgers.content["orders"] = [made.model_copy(update={"plan": made.plan.model_copy(update={"schemas": schemas})})]
    text = get(f"/pipelines/orders/{hour(1)}").text
    assert "(version 2, id 6); records of ids 5, 6" in text
    assert "Schema, output key" in text
    assert EVIL not in text


def test_the_side_tables_of_each_revision_are_shown_with_what_changed(get: Get, ledgers: FakeLedgers) -> None:
    old = a_table(rows=16, bytes=1312)
    new = a_table(fingerprint="0123456789abcdef" * 2, rows=17)
    topic = a_table("customers", offsets=a_topic(120, 98, topic=f"c{EVIL}"))
    ledgers.content["orders"] = [
        planned(batch(1), tables=(old, topic)),
        planned(batch(1, revision=2), tables=(new, topic)),
    ]
    text = get(f"/pipelines/orders/{hour(1)}").text
    newer, _, older = text.partition("Revision 1 <")
    assert "Side table airlines has changed since revision 1 (16 rows, now 17)." in newer
    assert '<code title="0123456789abcdef0123456789abcdef">0123456789ab</code>' in newer
    assert "0:120 1:98" in newer
    assert "1,312 bytes" in older
    assert "has changed since" not in older
    assert EVIL not in text
    ledgers.content["orders"] = [batch(1)]
    assert "side table" not in get(f"/pipelines/orders/{hour(1)}").text.lower()


def test_a_replay_is_shown_under_its_interval(get: Get, ledgers: FakeLedgers) -> None:
    """Published additions are counted beside their batch; one that is under way is named."""
    base = quarantining(batch(1), 1200, bad=34)
    first = replaying(base, 2, rows=1000, left=234)
    ledgers.content["orders"] = [batch(0), base, first]
    listed, one, overview = (get(path).text for path in ("/pipelines/orders", f"/pipelines/orders/{hour(1)}", "/"))
    assert "+ 1,000 by replay" in listed
    assert "1,234 records replayed in 1 addition" in listed
    assert "234 quarantined" in listed
    assert "1,234 quarantined" not in listed, "what is left is shown"
    assert "Replayed: added / left" in overview
    assert "adds to revision 1" in one
    assert f"A replay of the 1,234 records that <code>{base.id}</code> had quarantined: 1,000 rows passed" in one
    assert "234 records are in quarantine again, after attempt 2" in one

    ledgers.content["orders"] = [base, first, replaying(first, 3, rows=4, left=230, state=State.REJECTED)]
    listed, one = get("/pipelines/orders").text, get(f"/pipelines/orders/{hour(1)}").text
    assert '<span class="soft">addition</span>' in listed
    assert "Revision 3 was rejected; revision 1, which it adds to, stays published." in one
    assert "234 quarantined" in listed, "a rejected addition takes nothing"
