"""`fencepost suggest` and `fencepost judge`: what they say of published batches is what the records themselves say."""

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
from fencepost.config.pipeline import Pipeline, load_suite
from fencepost.errors import BatchRejected, NeedsOperator, SettingsError
from fencepost.ledger.deployment import Deployment
from fencepost.preview.diff import difference
from fencepost.preview.judge import judge_past
from fencepost.preview.past import PastRevision
from fencepost.preview.suggest import suggest as suggested_of
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, produce

DAYS, UNMARKED, REJECTED = 8, 8, 9  # the last published day has records without headers; the one after it is rejected
SUITE = "expectations: [{type: expect_column_max_to_be_between, kwargs: {column: n, max_value: 100}}]"
SETTINGS: dict[str, Any] = {
    "source": {
        "topic": "review-in",
        "schema": {"id": "bigint", "n": "int", "name": "string", "note": "string", "x": "double"},
    },
    "output": {"topic": "review-out", "key": "_key", "partitions": 2},
    "schedule": {"start": "2026-01-01"},
    "quality": {"open_transaction_wait_seconds": 20},
}


def rows_of(number: int) -> list[dict[str, Any]]:
    """A day's rows: ids that grow, numbers and shares that vary, two names, and a day that is rejected for one number."""
    odd = 1000 if number == REJECTED else 10
    return [
        {
            "id": 100 * number + n,
            "n": odd if n == 0 else n,
            "name": ("<b>a</b>", "b")[n % 2],
            "note": None if n % 5 == 0 else f"note {number}-{n}",
            "x": number / 8 + n / 2,
        }
        for n in range(9 + number % 3)
    ]


@pytest.fixture(scope="module")
def pipeline(spark: Any, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Eight published days and a rejected one."""
    folder = tmp_path_factory.mktemp("pipelines") / "reviewed"
    folder.mkdir()

    def settled(**output: Any) -> Pipeline:
        settings = {**SETTINGS, "output": SETTINGS["output"] | output, "kafka": {"bootstrap.servers": broker.bootstrap}}
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        return load_pipeline(folder)

    (folder / "transform.sql").write_text("SELECT _key, id, n, name, note, x FROM {source}")
    (folder / "expectations.yaml").write_text(SUITE)
    made = settled()
    create_topic(broker.bootstrap, made.source.topic, 1)
    for number in range(1, REJECTED + 1):
        rows = [(b"k%d" % row["id"], row, 0, at(number)) for row in rows_of(number)]
        produce(broker.bootstrap, made.source.topic, rows)
    produce(broker.bootstrap, made.source.topic, [(b"late", {}, 0, at(REJECTED + 1))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FENCEPOST_REPORTS", str(tmp_path_factory.mktemp("reports")))
        for number in range(1, DAYS + 1):
            steps.run(spark, settled(batch_header=number != UNMARKED), day(number))
        with pytest.raises(BatchRejected):
            steps.run(spark, settled(), day(REJECTED))
    return made


Run = Callable[..., Any]


@pytest.fixture
def run(spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command about the pipeline, in this process and on its session; its answer in JSON."""

    steps.on_session(monkeypatch, spark, pipeline)

    def command(name: str, *options: str) -> Any:
        done = CliRunner().invoke(app, [name, pipeline.name, *options, "--json"], catch_exceptions=False)
        return json.loads(done.stdout)

    return command


def changed(tmp_path: Path, *expectations: dict[str, Any]) -> str:
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump({"expectations": list(expectations)}))
    return str(file)


@pytest.mark.deep
def test_every_suggestion_holds_for_the_batches_that_it_was_drawn_from(run: Run, tmp_path: Path) -> None:
    answer = run("suggest")
    assert answer["batches"] == 7
    assert [one["why"] for one in answer["not_read"]] == [
        "its records have no header that names their batch (output.batch_header: false)"
    ]
    suggested = {(one["type"], one["kwargs"].get("column")): one["kwargs"] for one in answer["suggestions"]}
    assert suggested["expect_column_values_to_be_in_set", "name"]["value_set"] == ["<b>a</b>", "b"]
    assert suggested["expect_column_values_to_be_between", "n"]["min_value"] == 1
    assert suggested["expect_column_values_to_not_be_null", "note"]["mostly"] < 0.8
    rows = suggested["expect_table_row_count_to_be_between", None]
    assert rows["min_value"] <= 9
    assert rows["max_value"] >= 11
    assert not {one for one in suggested if one[1] == "id" and "null" not in one[0]}, "ids only grow"
    assert not {one for one in suggested if one[1] == "note" and "in_set" in one[0]}, "of more than twenty texts no set"
    page = Path(answer["page"]).read_text()
    assert "<b>a</b>" not in page
    assert "\\u003cb\\u003ea" in page or "&lt;b&gt;a" in page

    file = changed(
        tmp_path, *({"type": o["type"], "kwargs": o["kwargs"], "severity": "critical"} for o in answer["suggestions"])
    )
    judged = run("judge", "--suite", file)
    assert [one["now"] for one in judged["published"]] == ["passed"] * 7 + [None]
    assert [one["now"] for one in judged["rejected"]] == ["rejected"], "1,000 is not usual"


@pytest.mark.deep
def test_a_changed_suite_says_of_each_batch_what_its_records_say(run: Run, tmp_path: Path) -> None:
    limit = 4.9
    file = changed(tmp_path, {"type": "expect_column_max_to_be_between", "kwargs": {"column": "x", "max_value": limit}})
    answer = run("judge", "--suite", file)
    greatest = {number: max(row["x"] for row in rows_of(number)) for number in range(1, DAYS)}
    assert {number > limit for number in greatest.values()} == {True, False}, "the days differ"
    expected = ["rejected" if greatest[number] > limit else "passed" for number in range(1, DAYS)]
    assert [one["now"] for one in answer["published"]] == [*expected, None]
    assert [one["then"] for one in answer["published"]] == ["passed"] * DAYS
    assert [(one["then"], one["rows"]) for one in answer["rejected"]] == [("rejected", len(rows_of(REJECTED)))]


@pytest.mark.deep
def test_rows_that_a_rule_would_have_taken_are_not_judged_and_count_against_the_limit(run: Run, tmp_path: Path) -> None:
    """At most a row in a hundred may go to quarantine; without the rule's rows the critical check holds."""
    rule = {
        "type": "expect_column_values_to_be_between",
        "severity": "quarantine",
        "kwargs": {"column": "id", "max_value": 307},
    }
    whole = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "id", "max_value": 307}}
    answer = run("judge", "--suite", changed(tmp_path, rule, whole))
    taken = {number: sum(row["id"] > 307 for row in rows_of(number)) for number in range(1, DAYS)}
    assert [sum(one["taken"].values()) for one in answer["published"][:-1]] == list(taken.values())
    assert [one["now"] for one in answer["published"][:-1]] == ["rejected" if n else "passed" for n in taken.values()]
    assert "above quality.quarantine_limit of 1.00%" in answer["published"][2]["why"]


CHECK = "{type: expect_column_values_to_not_be_null, kwargs: {column: n}}"
RULE = "{type: expect_column_values_to_not_be_null, severity: quarantine, kwargs: {column: n}}"
OF_SCHEMA = "{type: expect_column_to_exist, kwargs: {column: n}}"


@pytest.mark.deep
@pytest.mark.parametrize("check", [CHECK, RULE, OF_SCHEMA])
def test_what_differs_from_its_receipts_is_not_judged(
    spark: Any, pipeline: Pipeline, tmp_path: Path, check: str
) -> None:
    """Receipts of another row: as if somebody had changed the topic. A check of the schema alone reads no record, and is told."""
    deployment, file = Deployment.of(pipeline), tmp_path / "suite.yaml"
    file.write_text(f"expectations: [{check}]")
    view, batch = deployment.ledger.read(), steps.latest(pipeline, day(2))
    topics = {name: one.model_copy(update={"fingerprint": 1}) for name, one in batch.require_written.topics.items()}
    written = batch.require_written.model_copy(update={"topics": topics})
    past = PastRevision(batch.model_copy(update={"written": written}))
    (judged,) = judge_past(spark, deployment, view, [past], load_suite(file), file)
    assert judged.now is None
    assert "its records no longer match the receipts" in judged.why
    why: dict[Any, str] = {}
    with pytest.raises(SettingsError, match="there are 0"):
        suggested_of(spark, deployment, [past], lambda past, said: why.update({past.interval: said}))
    assert "its records no longer match the receipts" in why[day(2)]
    with pytest.raises(NeedsOperator, match="its records no longer match the receipts"):
        difference(spark, deployment, PastRevision(batch), past, [])


@pytest.mark.deep
def test_a_suite_that_old_batches_do_not_fit_is_undecided_on_them(run: Run, tmp_path: Path) -> None:
    for severity in ("critical", "quarantine"):
        unknown = {"type": "expect_column_values_to_not_be_null", "severity": severity, "kwargs": {"column": "new_one"}}
        answer = run("judge", "--suite", changed(tmp_path, unknown), "--over", "2")
        assert [one["now"] for one in answer["published"]] == ["undetermined", None]
        assert "no column new_one" in answer["published"][0]["why"]


@pytest.mark.deep
def test_after_a_change_of_the_outputs_format_old_batches_stay_readable(
    run: Run, pipeline: Pipeline, tmp_path: Path
) -> None:
    file = pipeline.folder / "pipeline.yaml"
    before = file.read_text()
    settings = yaml.safe_load(before)
    suite = changed(tmp_path, {"type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "max_value": 10}})
    as_json = run("judge", "--suite", suite, "--over", "3")["published"]
    assert [one["now"] for one in as_json] == ["passed", "passed", None]
    try:
        for changes in (
            {"output": {**settings["output"], "format": "bytes"}},
            {"output": {**settings["output"], "format": "avro"}, "schema_registry": {"url": "http://127.0.0.1:1"}},
        ):
            file.write_text(yaml.safe_dump(settings | changes))
            assert run("judge", "--suite", suite, "--over", "3")["published"] == as_json
    finally:
        file.write_text(before)


@pytest.mark.deep
def test_what_is_gone_is_named_and_counts_for_nothing(
    run: Run, spark: Any, pipeline: Pipeline, broker: Broker, tmp_path: Path
) -> None:
    """The last test of the module: it deletes the first day's records from the output."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    first = steps.latest(pipeline, day(1))
    ends = [TopicPartition(pipeline.output.topic, r.partition, r.end) for r in first.published_ranges]
    for future in admin.delete_records(ends).values():
        future.result(20)
    suite = changed(tmp_path, {"type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "max_value": 10}})
    published = run("judge", "--suite", suite)["published"]
    assert [one["now"] for one in published] == [None, *["passed"] * 6, None]
    assert "no longer has partition 0: offsets 0 to" in published[0]["why"]
    with pytest.raises(
        SettingsError, match="bounds need 7 published batches whose records can be read, and there are 6"
    ):
        run("suggest")
