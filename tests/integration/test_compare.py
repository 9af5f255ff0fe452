"""`fencepost diff` and `fencepost trace` on a day with three revisions and an addition, against what a plain consumer reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

import steps
from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, NeedsOperator, SettingsError
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import Layout
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, Record, create_topic, produce, read_all

NUMBERS = range(10)
FIRST = "SELECT _key, _record, n, n * 2 AS doubled, name FROM {source}"
SECOND = "SELECT _key, _record, n, n * 2 + int(n % 3 = 0) AS doubled, name FROM {source} WHERE n <> 5"
THIRD = "SELECT _key, _record, n, string(n * 2) AS doubled, name AS NAME, 1 AS extra FROM {source}"
SUITE = """
expectations:
  - type: expect_column_values_to_be_between
    severity: quarantine
    description: larger numbers are mistakes
    kwargs: {column: n, max_value: %d}
  - {type: expect_table_row_count_to_be_between, kwargs: {max_value: %d}}
"""
SETTINGS: dict[str, Any] = {
    "source": {"topic": "compare-in", "schema": {"n": "int", "name": "string"}, "on_malformed": "quarantine"},
    "output": {"topic": "compare-out", "key": "_key", "partitions": 2},
    "schedule": {"start": "2026-01-01"},
    "quality": {"open_transaction_wait_seconds": 20, "quarantine_limit": "none"},
}
SPAN = ("--start", "2026-01-01", "--end", "2026-01-02")


def doubled(number: int, revision: int) -> int:
    return number * 2 + (number % 3 == 0 if revision == 2 else 0)


@pytest.fixture(scope="module")
def pipeline(spark: Any, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Revision 1, with 8 and 9 in quarantine; 2, with 8 as an addition; 3, which is rejected. The second's files stay."""
    folder = tmp_path_factory.mktemp("pipelines") / "compared"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(
        yaml.safe_dump({**SETTINGS, "kafka": {"bootstrap.servers": broker.bootstrap}})
    )

    def written(transform: str, largest: int, rows: int = 100) -> Pipeline:
        (folder / "transform.sql").write_text(transform)
        (folder / "expectations.yaml").write_text(SUITE % (largest, rows))
        return load_pipeline(folder)

    made = written(FIRST, 7)
    create_topic(broker.bootstrap, made.source.topic, 1)
    rows = [(b"k%d" % n, {"n": n, "name": "<i>"}, 0, at(1)) for n in NUMBERS]
    produce(broker.bootstrap, made.source.topic, [*rows, (b"bad", b"{", 0, at(1)), (b"late", {"n": 1}, 0, at(2))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FENCEPOST_REPORTS", str(tmp_path_factory.mktemp("reports")))
        steps.run(spark, made, day(1))
        steps.run(spark, written(SECOND, 7), day(1), reprocess=True)
        steps.replay(spark, written(SECOND, 8), day(1))
        with pytest.raises(BatchRejected):
            steps.run(spark, written(THIRD, 7, rows=1), day(1), reprocess=True)
    return written(SECOND, 8)


@pytest.fixture
def run(spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A command about the pipeline, in this process and on its session; its answer in JSON, unless it is asked for text."""

    steps.on_session(monkeypatch, spark, pipeline)

    def command(name: str, *options: str, text: bool = False) -> Any:
        as_json = () if text else ("--json",)
        done = CliRunner().invoke(app, [name, pipeline.name, *options, *as_json], catch_exceptions=False)
        return done.stdout if text else json.loads(done.stdout)

    return command


Run = Callable[..., Any]


def batch_of(pipeline: Pipeline, revision: int) -> str:
    (found,) = (b for b in Ledger(pipeline).read().known(day(1)).all if b.revision == revision)
    return str(found.id)


def of_output(broker: Broker, pipeline: Pipeline) -> dict[tuple[int, str], Record]:
    """What a plain consumer sees, by number and batch."""
    return {(r.json["n"], r.batch): r for r in read_all(broker.bootstrap, pipeline.output.topic)}


@pytest.mark.deep
def test_by_key_it_tells_what_changed_what_went_and_what_came(run: Run) -> None:
    found = run("diff", *SPAN, "--revisions", "1", "2", "--key", "n")
    before, after = {n: doubled(n, 1) for n in range(8)}, {n: doubled(n, 2) for n in (*range(8), 8) if n != 5}
    changed = [n for n in before if n in after and before[n] != after[n]]
    assert (found["rows"], found["revisions"]) == ([len(before), len(after)], ["1", "2 +3"])
    assert (found["changed"], found["removed"], found["added"]) == (len(changed), 1, 1)
    assert found["same"] == len(before) - len(changed) - 1
    assert found["columns"] == {"doubled": len(changed)}
    sample = [(row["before"] and row["before"]["n"], row["after"] and row["after"]["n"]) for row in found["sample"]]
    assert sorted(sample, key=str) == sorted([*((n, n) for n in changed), (5, None), (None, 8)], key=str)
    assert run("diff", *SPAN, "--revisions", "1", "2", "--key", "_key") | {"key": ["n"], "sample": []} == found | {
        "sample": []
    }


@pytest.mark.deep
def test_by_whole_rows_a_change_is_one_row_less_and_one_more(run: Run) -> None:
    found = run("diff", *SPAN, "--revisions", "1", "2")
    changed = sum(doubled(n, 1) != doubled(n, 2) for n in range(8))
    assert (found["same"], found["removed"], found["added"]) == (7 - changed, changed + 1, changed + 1)
    shown = run("diff", *SPAN, "--revisions", "1", "2", text=True)
    assert '- {"n":5,"doubled":10,"name":"<i>","_key":"k5"}'.replace(",", ", ").replace(":", ": ") in shown
    assert max(len(line) for line in shown.splitlines() if line[:1] in "┃│") <= 80


@pytest.mark.deep
def test_an_unpublished_revision_is_compared_with_its_other_columns(run: Run) -> None:
    found = run("diff", *SPAN, "--revisions", "2", "4", "--key", "n")
    assert (found["only_before"], found["only_after"]) == (["name"], ["NAME", "extra"]), "names that are one to Spark"
    assert (found["retyped"], found["revisions"]) == (["doubled"], ["2 +3", "4"])
    assert (found["removed"], found["added"]) == (1, 1), "8 is in quarantine again, and 5 is back"


@pytest.mark.deep
def test_a_suite_judges_a_revision_with_its_addition_and_a_rejected_one_apart(run: Run, tmp_path: Path) -> None:
    """Of the rule that the suite lacks, what it took is told. Malformed records count as they did."""
    suite = tmp_path / "changed.yaml"
    suite.write_text(
        "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {min_value: 8, max_value: 8}}]"
    )
    answer = run("judge", "--suite", str(suite))
    ((published,), (rejected,)) = answer["published"], answer["rejected"]
    assert (published["revision"], published["rows"], published["now"], published["bypassed"]) == (
        "2 +3",
        8,
        "passed",
        1,
    )
    assert "2 rows in quarantine were not judged, because this suite does not have their rule" in published["why"]
    assert (rejected["revision"], rejected["rows"], rejected["then"], rejected["now"]) == ("4", 8, "rejected", "passed")


@pytest.mark.deep
def test_what_cannot_be_compared_is_named(run: Run) -> None:
    for options, words in (
        (("--revisions", "1", "7"), "no revision 7; there are 1, 2, 4; an addition is part of its revision"),
        (("--revisions", "1", "3"), "no revision 3"),
        (("--revisions", "1", "2", "--key", "id"), "not a column of both revisions. Those are n, doubled, name, _key"),
        (("--revisions", "1", "2", "--key", "name"), "in revision 1 1 keys have several rows"),
    ):
        with pytest.raises(SettingsError) as refused:
            run("diff", *SPAN, *options)
        assert words in str(refused.value)


@pytest.mark.deep
def test_an_output_record_leads_to_its_batch(run: Run, broker: Broker, pipeline: Pipeline) -> None:
    records = of_output(broker, pipeline)
    for number, revision in ((1, 1), (1, 2), (8, 3)):
        record = records[number, batch_of(pipeline, revision)]
        found = run("trace", "--output", f"{pipeline.output.topic}:{record.partition}:{record.offset}")
        (batch,) = found["batches"]
        assert (batch["batch"], batch["verdict"]) == (batch_of(pipeline, revision), "passed")
    assert batch["sources"][0]["topic"] == pipeline.quarantine_topic, "an addition comes out of quarantine"
    staged = {r.timestamp: r for r in read_all(broker.bootstrap, pipeline.staging_topic)}
    for one in Ledger(pipeline).read().all():
        record = staged[one.require_staging_timestamp]
        found = run("trace", "--output", f"{pipeline.staging_topic}:{record.partition}:{record.offset}")
        assert [batch["batch"] for batch in found["batches"]] == [str(one.id)]


@pytest.mark.deep
def test_a_source_record_leads_to_its_rows_and_to_quarantine(run: Run, broker: Broker, pipeline: Pipeline) -> None:
    records = of_output(broker, pipeline)

    def traced(number: int) -> Any:
        return run("trace", "--source", f"{pipeline.source.topic}:0:{number}")

    for number, revision in ((1, 2), (8, 3)):
        record = records[number, batch_of(pipeline, revision)]
        found = traced(number)
        assert found["rows"] == [f"{pipeline.output.topic}:{record.partition}:{record.offset}"]
        assert "Which rows it became is not recorded" in found["found"][0]
    assert [batch["batch"] for batch in found["batches"]] == [batch_of(pipeline, n) for n in (1, 4, 2, 3)]
    assert [one["batch"] for one in found["quarantine"]] == [batch_of(pipeline, 2)]
    assert traced(5)["found"] == ["Today's transform makes no row from it."]
    twice = [one["rule"].split("(")[0] for one in traced(9)["quarantine"]]
    assert twice == ["expect_column_values_to_be_between"] * 2, "it failed again in the replay"
    assert [one["rule"] for one in traced(10)["quarantine"]] == ["malformed"] * 2
    assert traced(11)["found"] == [
        "No batch has read it yet: the last planned range ends at offset 11 of its partition."
    ]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--source", "compare-in:0:12"), "no such record yet: the last committed one is offset 11"),
        (("--source", "compare-in:7:0"), "the topic has 1 partition, 0 to 0"),
        (("--source", "compare-out:0:0"), "pipeline compared reads compare-in, and not compare-out"),
        (("--output", "compare-out:1:5000"), r"no such record yet: the last committed one is offset \d+\."),
        (("--output", "compare-out:2:0"), "the topic has 2 partitions, 0 to 1"),
        (
            ("--output", "compare-in:0:0"),
            "writes to compare-out, fencepost.compared.staging, fencepost.compared.quarantine, and not compare-in",
        ),
        (("--output", "never-made:0:0"), "and not never-made. Name one of these topics"),
        ((), "Give one of --output and --source"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_place_that_no_record_of_the_pipeline_has_is_refused_with_what_there_is(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.delattr("fencepost.cli.steps.spark_session")  # it needs no Spark
    with pytest.raises(SettingsError, match=words):
        run("trace", *options)


@pytest.mark.deep
def test_quarantine_lists_records_with_the_rule_s_description_and_the_reason_and_no_data(
    run: Run, pipeline: Pipeline
) -> None:
    rule = "expect_column_values_to_be_between(n)"
    text = run("quarantine", "--all", "--show", "3", text=True)
    assert f"{rule}: larger numbers are mistakes" in " ".join(text.split())
    shown = [line for line in text.splitlines() if line.startswith(f"{pipeline.quarantine_topic}:")]
    assert len(shown) == 3
    found = run("quarantine", "--show", "100")
    assert found["descriptions"] == {rule: "larger numbers are mistakes"}
    places = {(one["source"], one["rule"], one["reason"]) for one in found["records"]}
    assert places == {
        ("compare-in:0:9", rule, "larger numbers are mistakes"),
        ("compare-in:0:10", "malformed", "not JSON: EOF while parsing an object at line 1 column 1"),
    }
    assert "<i>" not in text + json.dumps(found)


@pytest.mark.deep
def test_under_layout_output_it_says_that_rows_are_not_recorded(run: Run, pipeline: Pipeline, spark: Any) -> None:
    """The plan says so, whatever the settings are by now."""
    from fencepost.preview.trace import location_of, trace_source

    deployment = Deployment.of(pipeline)
    view = deployment.ledger.read()
    of_output = [b.model_copy(update={"plan": b.plan.model_copy(update={"layout": Layout.OUTPUT})}) for b in view.all()]
    traced = trace_source(
        spark, deployment, type(view).of(of_output), location_of("--source", f"{pipeline.source.topic}:0:1")
    )
    assert traced.rows == ()
    assert "under output.layout: output a row may be made of many records" in traced.found[0]


@pytest.mark.deep
def test_a_revision_that_is_gone_is_named(run: Run, broker: Broker, pipeline: Pipeline) -> None:
    """The last test of the module: it deletes the first revision's records from the output."""
    (first,) = (b for b in Ledger(pipeline).read().known(day(1)).all if b.revision == 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    ends = [TopicPartition(pipeline.output.topic, r.partition, r.end) for r in first.published_ranges]
    for future in admin.delete_records(ends).values():
        future.result(20)
    with pytest.raises(NeedsOperator, match=rf"batch {first.id} cannot be compared: .* no longer has partition 0"):
        run("diff", *SPAN, "--revisions", "1", "2")
