"""`fencepost try` says what a run then does, and leaves the cluster as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from typer.testing import CliRunner

from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, RecordRefused, SettingsError, TableRefused
from fencepost.ledger.deployment import Deployment
from fencepost.model import Outcome
from fencepost.preview.trial import Trial, try_pipeline
from fencepost.preview.trial_input import TrialInput, newest, of_interval
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from kafka_tools import QUIET_LOG, create_topic, produce
from steps import latest, run
from tables import ask, fill, store_of
from waiting import await_true

Make = Callable[..., Pipeline]

RULES = """
expectations:
  - type: expect_column_values_to_be_between
    severity: quarantine
    description: n is below 90
    kwargs: {column: n, max_value: 90}
  - type: expect_table_row_count_to_be_between
    kwargs: {min_value: 10}
  - type: expect_column_values_to_not_be_null
    severity: warning
    kwargs: {column: name}
"""
KEEPING = 'def transform(frame):\n    return frame.selectExpr("_key", "_record", "n", "name")\n'
CATALOGUE = "select relname, relnatts from pg_class where relkind in ('r', 'p') order by 1"
LOOSE = {"quality": {"quarantine_limit": "none"}, "source": {"on_malformed": "quarantine", "tombstones": "drop"}}


def state_of(bootstrap: str) -> dict[str, Any]:
    """Every topic with where its partitions end, and every group with its offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET_LOG)
    topics = admin.list_topics(timeout=20).topics
    asked = {TopicPartition(name, p): OffsetSpec.latest() for name, one in topics.items() for p in one.partitions}
    ends = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    found: dict[str, Any] = {f"{tp.topic}:{tp.partition}": future.result().offset for tp, future in ends.items()}
    found["groups"] = sorted(group.group_id for group in admin.list_consumer_groups().result().valid)
    return found


def somebody_has_read(bootstrap: str, topic: str) -> None:
    """Kafka's own topic of offsets is there: any cluster that is in use has it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "somebody"}, logger=QUIET_LOG)
    await_true(lambda: bool(consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)), "a commit")
    consumer.close()


def fill_hundred(broker: Broker, pipeline: Pipeline, days: tuple[int, ...] = (1,)) -> None:
    """A hundred records a day: one without a name, nine above the rule, two malformed, one tombstone."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records: list[tuple[Any, Any, int, int]] = []
    for number in days:
        records += [(b"k%d" % n, {"n": n, "name": None if n == 7 else "x"}, n % 2, at(number)) for n in range(100)]
        records += [
            (b"bad", b"{", 0, at(number)),
            (b"bad", {"n": "text"}, 1, at(number)),
            (b"gone", None, 0, at(number)),
        ]
    produce(broker.bootstrap, pipeline.source.topic, records)


def load_pipeline_with(pipeline: Pipeline, **output: Any) -> Pipeline:
    """The pipeline with these settings of its output, which stay in its folder."""
    file = pipeline.folder / "pipeline.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["output"] |= output
    file.write_text(yaml.safe_dump(settings))
    return load_pipeline(pipeline.folder)


def test_a_trial_counts_tombstones_that_would_be_written_and_shows_rows_with_values(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    passing = 'def transform(frame):\n    return frame.select("_key", "_tombstone", "n")\n'
    expectations = "expectations: [{type: expect_column_values_to_be_between, kwargs: {column: n, max_value: 9}}]"
    pipeline = make_pipeline(passing, expectations, source={"tombstones": "pass"})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"a", None, 0, at(1)), (b"b", {"n": 5}, 0, at(1))])
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, of_interval(deployment, day(1)))
    assert (trial.written, trial.tombstones, trial.rows) == (2, 1, ({"n": "5"},))


def test_a_trial_says_what_the_run_then_does_and_leaves_nothing_behind(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Rows, what goes to quarantine and why, and the verdict; before and after the interval is planned and published."""
    pipeline = make_pipeline(KEEPING, RULES, **LOOSE)
    fill_hundred(broker, pipeline, (1, 2))
    somebody_has_read(broker.bootstrap, pipeline.source.topic)
    before = state_of(broker.bootstrap)
    deployment = Deployment.of(pipeline)
    looked = of_interval(deployment, day(1))
    assert (looked.whole, looked.frozen) == (True, False)
    trial = try_pipeline(spark, deployment, looked)
    assert state_of(broker.bootstrap) == before
    assert (trial.read, trial.malformed, trial.results, trial.written) == (103, 2, 100, 91)
    assert {(one.name, one.rows) for one in trial.unpublished} == {
        ("malformed (quarantine)", 1),
        ("expect_column_values_to_be_between(n)", 9),
        ("tombstones (drop)", 1),
    }
    assert sum(one.rows for one in trial.unpublished) == 12
    reasons = {one.reason for one in trial.unpublished}
    assert "n is below 90" in reasons
    assert "n: not an integer of 32 bits" in reasons
    assert trial.passes
    assert trial.columns == (("n", "int"), ("name", "string"))
    assert trial.rows[0] == {"n": "0", "name": "x"}
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.written is not None
    assert batch.verdict is not None
    assert (batch.written.rows_in, batch.written.rows, batch.written.tombstones) == (trial.read, trial.written, 1)
    assert sum(batch.written.quarantined.values()) == 11
    assert batch.verdict.reason.startswith(trial.evaluation.reason)
    frozen = of_interval(Deployment.of(pipeline), day(1))
    assert frozen.frozen
    published = state_of(broker.bootstrap)
    assert try_pipeline(spark, Deployment.of(pipeline), frozen).written == trial.written
    assert state_of(broker.bootstrap) == published


@pytest.mark.deep
def test_of_a_sample_checks_about_a_whole_batch_are_not_judged(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(KEEPING, RULES, **LOOSE)
    fill_hundred(broker, pipeline)
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, newest(deployment, 20))
    assert trial.read == 20
    told = {check.type: check.not_judged for check in trial.evaluation.checks}
    assert told["expect_table_row_count_to_be_between"] == "it is about a whole batch, and this is a sample"
    assert told["expect_column_values_to_not_be_null"] == ""
    assert trial.evaluation.reason.endswith("Not judged for a sample: 1 expectation about a whole batch.")


@pytest.mark.deep
def test_a_trial_reads_what_is_frozen_whatever_has_arrived_since(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(None, {"n": n}, 0, at(1)) for n in range(5)])
    plan_batch(pipeline, day(1))
    produce(broker.bootstrap, pipeline.source.topic, [(None, {"n": 9}, 0, at(1))])
    deployment = Deployment.of(pipeline)
    assert try_pipeline(spark, deployment, of_interval(deployment, day(1))).read == 5
    next_day = try_pipeline(spark, deployment, of_interval(deployment, day(2)))  # begins where its plan would
    assert next_day.read == 1


@pytest.mark.deep
def test_what_would_stop_a_run_is_told(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """Malformed records under `fail`, too many of them, rows that do not fit, and a transform that shuffles."""
    strict = make_pipeline(KEEPING, RULES, quality={"quarantine_limit": "none"})
    fill_hundred(broker, strict)
    deployment = Deployment.of(strict)
    trial = try_pipeline(spark, deployment, newest(deployment, 1000))
    assert trial.verdict == "would fail"
    assert "2 records are malformed, and source.on_malformed is fail" in trial.stops[0]
    assert trial.stops[1] == "1 record is a tombstone, and source.tombstones is fail (first at 0:51)"
    source = {"topic": strict.source.topic, **LOOSE["source"]}
    limited = make_pipeline(KEEPING, RULES, source=source)
    deployment = Deployment.of(limited)
    trial = try_pipeline(spark, deployment, newest(deployment, 1000))
    assert trial.evaluation.outcome is Outcome.REJECTED
    assert "of 103 records read are malformed" in trial.evaluation.reason
    nan = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "double(\'NaN\') AS name")\n'
    unfit = make_pipeline(nan, source=source, quality=LOOSE["quality"])
    deployment = Deployment.of(unfit)
    trial = try_pipeline(spark, deployment, newest(deployment, 1000))
    assert trial.stops == ("100 rows do not fit the output's format or schema: name: JSON has no NaN and no Infinity",)
    summed = 'def transform(frame):\n    return frame.groupBy("name").count().selectExpr("name AS n", "count")\n'
    shuffling = make_pipeline(summed, source=source, output={"key": None})
    deployment = Deployment.of(shuffling)
    with pytest.raises(SettingsError, match="works row by row"):
        try_pipeline(spark, deployment, newest(deployment, 1000))
    partial = make_pipeline(summed, source=source, output={"key": None, "layout": "output"}, quality=LOOSE["quality"])
    deployment = Deployment.of(partial)
    assert "Aggregates are partial" in try_pipeline(spark, deployment, newest(deployment, 50)).remarks[-1]


@pytest.mark.deep
def test_a_record_beyond_what_producers_send_is_told(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    large = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "repeat(name, 2000000) AS name")\n'
    pipeline = make_pipeline(large, quality=LOOSE["quality"])
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, newest(deployment, 10))
    assert trial.verdict == "would fail"
    (stop,) = trial.stops
    assert "The largest record has 2,000,0" in stop
    assert "producers send 1,000,000 at most: set kafka.message.max.bytes" in stop
    with pytest.raises(RecordRefused):
        run(spark, pipeline, day(1))


@pytest.mark.deep
def test_a_record_that_is_too_large_for_quarantine_is_told(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """Of malformed records, and of those that a rule takes; the transform sees no size."""
    sees = KEEPING.replace("    return", '    assert "_size" not in frame.columns\n    return')
    pipeline = make_pipeline(sees, RULES, **LOOSE)
    create_topic(broker.bootstrap, pipeline.source.topic, 1, **{"max.message.bytes": "5000000"})
    create_topic(broker.bootstrap, pipeline.quarantine_topic, 1, **{"max.message.bytes": "5000"})
    good = (b"k", {"n": 1, "name": "x"}, 0, at(1))
    for odd in (b"{" * 6000, {"n": 99, "name": "y" * 6000}):
        produce(broker.bootstrap, pipeline.source.topic, [good, (b"k", odd, 0, at(1))])
        deployment = Deployment.of(pipeline)
        (remark,) = try_pipeline(spark, deployment, newest(deployment, 2)).remarks
        assert "The largest record that goes to quarantine has 6,0" in remark
        assert f"topic {pipeline.quarantine_topic} accepts 5,000" in remark


@pytest.mark.deep
def test_rows_are_shown_as_a_person_reads_them(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """Bytes as their text, or in hex; each digit of a decimal; every field of a struct."""
    made = """
def transform(frame):
    return frame.selectExpr("_key", "n", "_key AS text", "X'FF00' AS raw", "CAST('1234567890123456789.50' AS decimal(38,2)) AS d",
                            "named_struct('a', n, 'b', CAST(NULL AS string)) AS s", "named_struct('x', 0.5D) AS x")
"""
    pipeline = make_pipeline(made)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [("ü;1".encode(), {"n": 1}, 0, at(1))])
    deployment = Deployment.of(pipeline)
    (row,) = try_pipeline(spark, deployment, newest(deployment, 10)).rows
    assert row == {
        "n": "1",
        "text": "ü;1",
        "raw": "FF00",
        "d": "1234567890123456789.50",
        "s": '{"a": 1, "b": null}',
        "x": '{"x": 0.5}',
    }


OWN = "fencepost_interval timestamptz not null, fencepost_revision int not null"


@pytest.mark.deep
def test_a_table_is_compared_as_a_run_compares_it_and_nothing_is_made(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    """Columns that are missing, of another type or not filled, with the words of the run that is then refused."""
    pipeline = make_table()
    fill(broker, pipeline)

    def tried(looked: TrialInput | None = None, of: Pipeline = pipeline) -> Trial:
        before, deployment = ask(of, CATALOGUE), Deployment.of(of)
        trial = try_pipeline(spark, deployment, looked or newest(deployment, 100))
        assert ask(of, CATALOGUE) == before
        return trial

    new = tried()
    assert new.passes
    assert new.remarks == (
        "Table public.numbers does not exist yet: the first run with rows creates it with these columns.",
    )
    ask(pipeline, f"create table numbers (n smallint, name text, must text not null, {OWN})")
    differs = tried()
    assert differs.verdict == "would fail"
    (stop,) = differs.stops
    for words in (
        'no column doubled: ALTER TABLE "public"."numbers" ADD COLUMN "doubled" integer',
        "column n is smallint, and the transform gives int",
        "column must may not be null and has no default",
    ):
        assert words in stop
    with pytest.raises(TableRefused) as refused:
        run(spark, pipeline, day(1))
    assert str(refused.value).rstrip(".") == stop
    ask(pipeline, f"drop table numbers; create table numbers (n int, doubled int, {OWN})")
    adding = load_pipeline_with(pipeline, add_columns=True)
    assert tried(of=adding).remarks == ("Table public.numbers gets new columns: name.",)
    assert run(spark, adding, day(1)).changed
    assert tried().stops == tried().remarks == (), "it has the columns now"


@pytest.mark.deep
def test_a_table_that_is_not_the_pipelines_or_cannot_be_reached_would_stop_a_run(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table()
    fill(broker, pipeline)
    deployment = Deployment.of(pipeline)

    def stop(looked: TrialInput, **changes: Any) -> str:
        before = ask(pipeline, CATALOGUE)
        of = load_pipeline_with(pipeline, **changes) if changes else pipeline
        trial = try_pipeline(spark, Deployment.of(of), looked)
        assert ask(pipeline, CATALOGUE) == before
        return " ".join(trial.stops)

    few = newest(deployment, 10)
    assert "there is no schema nowhere: CREATE SCHEMA" in stop(few, table="nowhere.numbers")
    ask(pipeline, "create table taken (n int)")
    ask(pipeline, "insert into taken values (1)")
    assert "has rows that the pipeline did not publish there" in stop(few, table="taken")
    ask(pipeline, f"create table parts (n int, doubled int, name text, {OWN}) partition by range (fencepost_interval)")
    ask(pipeline, "create table later partition of parts for values from ('2026-02-01') to (maxvalue)")
    assert stop(few, table="parts") == "", "a sample is of no interval"
    assert "no partition for fencepost_interval 2026-01-01 00:00 UTC" in stop(
        of_interval(deployment, day(1)), table="parts"
    )
    run(spark, pipeline, day(1))
    other = make_table(source={"topic": pipeline.source.topic}, postgres=store_of(pipeline))
    (told,) = try_pipeline(spark, Deployment.of(other), few).stops
    assert f"table public.numbers belongs to pipeline {pipeline.name}" in told
    away = make_table(
        source={"topic": pipeline.source.topic}, postgres=store_of(pipeline) | {"port": str(any_free_port())}
    )
    trial = try_pipeline(spark, Deployment.of(away), few)
    assert "PostgreSQL at" in trial.stops[0]
    assert trial.written == 6, "the rest is shown all the same"


SEVERAL = """
def transform(frame):
    return frame.selectExpr("_key", "_record", "explode(array(n, n + 50)) AS n", "name")
"""
TWO_RULES = """
expectations:
  - {type: expect_column_values_to_be_between, severity: quarantine, description: below 90, kwargs: {column: n, max_value: 89}}
  - {type: expect_column_values_to_not_be_null, severity: quarantine, description: named, kwargs: {column: name}}
  - {type: expect_column_values_to_not_be_in_set, kwargs: {column: n, value_set: [45]}}
"""


@pytest.mark.deep
def test_a_record_of_several_rows_is_set_aside_whole_as_a_run_does(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Each record by the first rule that one of its rows fails, and its other rows withheld."""
    pipeline = make_pipeline(SEVERAL, TWO_RULES, **LOOSE)
    fill_hundred(broker, pipeline)
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, of_interval(deployment, day(1)))
    run(spark, pipeline, day(1))
    written = latest(pipeline, day(1)).written
    assert written is not None
    rules = {one.name: one.rows for one in trial.unpublished if not one.name.startswith(("malformed", "tombstones"))}
    assert rules == {name: rows for name, rows in written.rules.items() if rows}
    assert len(rules) == 2
    assert (trial.written, trial.withheld) == (written.rows, written.withheld)
    assert trial.withheld == 61, "40 to 99, and 7"
    assert {one.reason for one in trial.unpublished if one.name in rules} == {"below 90", "named"}
    assert trial.passes, "45 is withheld, and not judged"


@pytest.mark.deep
def test_of_more_than_the_most_records_or_fewer_than_were_planned_it_is_a_sample(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a batch that is too large, and what is left of a batch of which records are gone."""
    pipeline = make_pipeline(KEEPING, RULES, **LOOSE)
    fill_hundred(broker, pipeline)
    deployment = Deployment.of(pipeline)
    monkeypatch.setattr("fencepost.preview.trial_input.MOST_RECORDS", 50)
    part = of_interval(deployment, day(1))
    assert (sum(one.length for one in part.ranges), part.whole) == (50, False)
    trial = try_pipeline(spark, deployment, part)
    assert trial.read == 50
    assert any(check.not_judged for check in trial.evaluation.checks)
    monkeypatch.undo()
    plan_batch(pipeline, day(1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    place = TopicPartition(pipeline.source.topic, 0, 10)
    admin.delete_records([place])[place].result(20)
    left = of_interval(Deployment.of(pipeline), day(1))
    assert (left.whole, left.frozen) == (False, True)
    assert try_pipeline(spark, deployment, left).read == 93


LIKE_BEFORE = """
expectations:
  - {type: expect_batch_volume_like_history, kwargs: {at_least: 2}}
"""


@pytest.mark.deep
def test_a_whole_batch_is_compared_with_those_before_it(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(expectations=LIKE_BEFORE)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    for number, rows in ((1, 5), (2, 5), (3, 50), (4, 1)):
        records = [(b"k", {"n": n, "name": "x"}, 0, at(number)) for n in range(rows)]
        produce(broker.bootstrap, pipeline.source.topic, records)
    for number in (1, 2):
        run(spark, pipeline, day(number))
    deployment = Deployment.of(pipeline)
    assert try_pipeline(spark, deployment, of_interval(deployment, day(3))).verdict == "would be rejected"
    assert try_pipeline(spark, deployment, newest(deployment, 51)).verdict == "would pass", "a sample is not compared"
    with pytest.raises(BatchRejected):
        run(spark, pipeline, day(3))


@pytest.mark.deep
def test_a_record_beyond_what_a_topic_takes_is_told(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    large = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "repeat(name, 6000) AS name")\n'
    pipeline = make_pipeline(large)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    create_topic(broker.bootstrap, pipeline.output.topic, 3, **{"max.message.bytes": "5000"})
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    deployment = Deployment.of(pipeline)
    (remark,) = try_pipeline(spark, deployment, newest(deployment, 10)).remarks
    assert f"topic {pipeline.output.topic} accepts 5,000 (max.message.bytes): raise max.message.bytes" in remark


@pytest.mark.deep
def test_the_command_says_all_of_it_in_json_and_by_its_exit_code(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(KEEPING, RULES, **LOOSE)
    fill_hundred(broker, pipeline)
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    shared = SimpleNamespace(newSession=spark.newSession, stop=lambda: None)
    monkeypatch.setattr("fencepost.spark.session.build_session", lambda *_: shared)

    def tried(*options: str) -> Any:
        return CliRunner().invoke(app, ["try", pipeline.name, *options], catch_exceptions=False)

    span = ("--start", "2026-01-01", "--end", "2026-01-02")
    done = tried(*span, "--json")
    plain = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (plain["passes"], plain["verdict"], plain["whole"], plain["frozen"]) == (True, "would pass", True, False)
    assert (plain["read"], plain["malformed"], plain["results"], plain["written"]) == (103, 2, 100, 91)
    assert {one["name"]: one["rows"] for one in plain["unpublished"]}["expect_column_values_to_be_between(n)"] == 9
    assert plain["columns"] == {"n": "int", "name": "string"}
    assert sum(one["end"] - one["start"] for one in plain["ranges"]) == 103
    (pipeline.folder / "expectations.yaml").write_text(RULES.replace("min_value: 10", "min_value: 1000"))
    rejected = tried(*span)
    assert rejected.exit_code == 1
    assert "103 records of topic" in rejected.stdout
    assert "would be rejected: " in rejected.stdout
    assert "Not judged for a sample: 1 expectation" in " ".join(tried("--last", "20").stdout.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--start", "2026-01-01"], "--start and --end belong together"),
        (["--start", "2026-01-01", "--end", "2026-01-02", "--last", "5"], "give one of them"),
        (["--last", "0"], "allowed are 1 to 100,000"),
        (["--watch", "--json"], "give it without --json"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: list[str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        CliRunner().invoke(app, ["try", "orders", *options], catch_exceptions=False)


HELPER = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import helper
from pyspark.sql import functions as F


def transform(frame):
    @F.udf("string")
    def word(_, folder=str(Path(__file__).parent)):
        sys.path.insert(0, folder)
        import helper
        return helper.WORD

    return frame.select("_key", "n", word("n").alias("name"), F.lit(helper.WORD).alias("here"))
"""


@pytest.mark.deep
def test_watching_tries_again_with_the_new_text_of_every_file(
    broker: Broker, make_pipeline: Make, tmp_path: Path
) -> None:
    """In seconds, with what a changed module says in the driver and in the workers; an error does not end it."""
    pipeline = make_pipeline(HELPER, source={"on_malformed": "quarantine"})
    helper = pipeline.folder / "helper.py"
    helper.write_text('WORD = "first"\n')
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    output = tmp_path / "shown"
    environment = {
        **os.environ,
        "FENCEPOST_PIPELINES": str(pipeline.folder.parent),
        "FENCEPOST_SPARK_MASTER": "local[2]",
    }
    with output.open("wb") as shown:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("fencepost")), "try", pipeline.name, "--watch"],
            stdout=shown,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        await_true(lambda: output.read_text().count("Waiting for a change") == 1, "the first trial", 120)
        assert output.read_text().count("first") == 2
        helper.write_text('WORD = "other"\n')
        await_true(lambda: output.read_text().count("Waiting for a change") == 2, "the second trial", 60)
        assert output.read_text().count("other") == 2
        pipeline.transform_file.write_text("def nothing(): pass\n")
        await_true(lambda: "expected a function transform" in output.read_text(), "the error", 60)
        await_true(lambda: output.read_text().count("Waiting for a change") == 3, "it to wait for the next change", 20)
    finally:
        process.terminate()
        process.wait(30)
