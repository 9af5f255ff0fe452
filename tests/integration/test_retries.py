"""A write step whose driver died when all had committed, and before the ledger said so; then the ordinary retry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from conftest import at, day
from fencepost.config import pipeline as pipeline_module
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError, TransformFailed
from fencepost.kafka.transaction import Transaction
from fencepost.ledger.deployment import Deployment
from fencepost.model import Receipt, State, WriteSummary
from fencepost.protocol.marks import mark_metadata
from fencepost.rows.writer import write_partition
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost.steps.writers import rows_job
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all, stable_ends
from steps import answered_and_not_recorded, latest, run

Make = Callable[..., Pipeline]

FRESH = "expectations:\n  - {type: expect_batch_freshness_like_history}\n"


@pytest.fixture
def jobs_of(spark: Any) -> Callable[[Callable[[], Any]], int]:
    def count(work: Callable[[], Any]) -> int:
        """How many jobs Spark runs for the work."""
        spark.sparkContext.setJobGroup("counted", "of a test")
        try:
            before = set(spark.sparkContext.statusTracker().getJobIdsForGroup("counted"))
            work()
            return len(set(spark.sparkContext.statusTracker().getJobIdsForGroup("counted")) - before)
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    return count


def fill(broker: Broker, pipeline: Pipeline, *more: bytes) -> int:
    """Records in both partitions; how many they are."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(f"k{n}".encode(), {"n": n, "name": "a"}, n % 2, at(1) + n) for n in range(20)]
    produce(broker.bootstrap, pipeline.source.topic, [*records, *((b"k", value, 1, at(1) + 50) for value in more)])
    return len(records) + len(more)


def written(pipeline: Pipeline) -> WriteSummary:
    found = latest(pipeline, day(1)).written
    assert found is not None
    return found


@pytest.mark.parametrize("layout", [pytest.param("source", marks=pytest.mark.deep), "output"])
def test_a_retry_that_finds_all_committed_writes_nothing_and_the_batch_is_published(
    spark: Any, broker: Broker, make_pipeline: Make, jobs_of: Any, layout: str
) -> None:
    """Marks are enough where no row can have moved; behind a shuffle a job compares them with the rows."""
    pipeline = make_pipeline(output={"layout": layout})
    rows = fill(broker, pipeline)
    answered_and_not_recorded(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PLANNED

    before = stable_ends(broker.bootstrap, pipeline.staging_topic, 3)

    shuffles = layout == "output"
    assert (jobs_of(lambda: write_batch(spark, pipeline, day(1))) > 0) is shuffles
    assert stable_ends(broker.bootstrap, pipeline.staging_topic, 3) == before, "nothing was written, markers neither"
    assert (written(pipeline).rows_in, written(pipeline).rows) == (rows if shuffles else None, rows)
    validate_batch(spark, pipeline, day(1))
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    seen = read_all(broker.bootstrap, pipeline.output.topic)
    assert Counter(r.key for r in seen) == {f"k{n}".encode(): 1 for n in range(rows)}
    assert written(pipeline).bytes == sum(len(r.key or b"") + len(r.value or b"") for r in seen)


def test_dropped_records_are_counted_again(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(source={"on_malformed": "drop"})
    rows = fill(broker, pipeline, b"{", b"[]")
    answered_and_not_recorded(spark, pipeline, day(1))
    write_batch(spark, pipeline, day(1))
    assert (written(pipeline).rows_in, written(pipeline).malformed) == (rows, 2)
    assert written(pipeline).malformed_at == tuple((pipeline.source.topic, 1, offset) for offset in (10, 11))


def test_the_newest_record_is_looked_for_again_where_the_suite_judges_it(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline()
    rows = fill(broker, pipeline)
    answered_and_not_recorded(spark, pipeline, day(1))
    write_batch(spark, make_pipeline(name=pipeline.name, expectations=FRESH), day(1))
    newest = written(pipeline).newest
    assert newest is not None
    assert (written(pipeline).rows_in, newest.timestamp() * 1000) == (rows, at(1) + 19)


def test_a_run_reads_the_suite_once_and_a_wrong_one_stops_it_before_anything_is_written(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()
    load = pipeline_module.load_suite
    monkeypatch.setattr(pipeline_module, "load_suite", lambda file: (read.append(file), load(file))[1])
    pipeline = make_pipeline()
    rows = fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    wrong = make_pipeline(name=pipeline.name, expectations="expectations:\n  - {type: expect_column_to_exist}\n")
    with pytest.raises(SettingsError, match=r"expectations.yaml: expectations\.0 .*column: required but missing"):
        write_batch(spark, wrong, day(1))
    assert latest(pipeline, day(1)).state is State.PLANNED
    fixed = make_pipeline(name=pipeline.name)
    read.clear()
    assert run(spark, fixed, day(1)).details["rows"] == rows
    assert read == [fixed.expectations_file]


def test_the_marks_of_all_task_partitions_stand_for_the_job_and_of_this_lease_alone(
    broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    job = rows_job(Deployment.of(pipeline), latest(pipeline, day(1)))
    writers = job.writers
    assert writers.committed_receipts() is None
    first, _ = write_partition(job, 0, iter([]))
    assert writers.committed_receipts() is None
    second, _ = write_partition(job, 1, iter([]))
    assert writers.committed_receipts() == [first, second]
    assert replace(writers, lease=writers.lease + 1).committed_receipts() is None
    assert replace(writers, lease=writers.lease - 1).committed_receipts() is None


def test_a_dead_attempts_open_transaction_is_not_waited_for(broker: Broker, make_pipeline: Make) -> None:
    """Its mark is in it: who asks for settled marks waits until it times out, and the retry's job is what ends it."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    job = rows_job(Deployment.of(pipeline), latest(pipeline, day(1)))
    writers = job.writers
    dead = Transaction(writers.settings, writers.transactional_ids[0], "write", 0)
    dead.init()
    dead.__enter__()
    topic, partition, offset = writers.marks[0]
    metadata = mark_metadata(Receipt(task=0, ledger=writers.ledger, lease=writers.lease, topics={}))
    dead._send_offsets([TopicPartition(topic, partition, offset, metadata=metadata)], writers.group)
    assert writers.committed_receipts() is None
    receipts = [write_partition(job, task, iter([]))[0] for task in (0, 1)]
    assert writers.committed_receipts() == receipts


def test_a_narrower_batch_ends_what_a_wider_one_left_open(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """Under an id that it does not use itself, in the topic that it writes to: readers would not see its records."""
    wide = make_pipeline(output={"layout": "output"})
    fill(broker, wide)
    plan_batch(wide, day(1))
    writers = rows_job(Deployment.of(wide), latest(wide, day(1))).writers
    left = Transaction(writers.settings, writers.transactional_ids[2], "write", 2)
    left.init()
    left.__enter__()
    left.produce(wide.output.topic, b"{}", partition=2)
    left._deliver()
    cluster = Deployment.of(wide).cluster
    topic = cluster.describe(wide.output.topic)
    assert cluster.last_stable(topic)[2] < cluster.high_watermarks(topic)[2]

    narrow = make_pipeline(name=wide.name, output={"layout": "source"})
    write_batch(spark, narrow, day(1))
    batch = latest(narrow, day(1))
    assert (batch.revision, batch.plan.row_task_count, batch.plan.unfinished_ids) == (2, 2, {wide.staging_topic: 3})
    assert cluster.last_stable(topic) == cluster.high_watermarks(topic)
    plan_batch(narrow, day(2))
    assert latest(narrow, day(2)).plan.unfinished_ids == {}, "a written batch leaves nothing open"


CAST = """
def transform(frame):
    return frame.selectExpr("_key", "n", "CAST(name AS int) AS code")
"""


@pytest.mark.deep
def test_a_spark_setting_changed_between_attempts_is_a_new_revision(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Casts were strict when three task-partitions of four committed, and are not when the fourth is written."""
    strict = make_pipeline(CAST, spark={"spark.sql.ansi.enabled": "true"})
    create_topic(broker.bootstrap, strict.source.topic, 4)
    names = [(n, "x" if n == 3 else str(n)) for n in range(4)]
    produce(broker.bootstrap, strict.source.topic, [(b"k%d" % n, {"n": n, "name": t}, n, at(1)) for n, t in names])
    plan_batch(strict, day(1))
    spark.conf.set("spark.sql.ansi.enabled", "true")
    with pytest.raises(TransformFailed, match="CAST_INVALID_INPUT"):
        write_batch(spark, strict, day(1))
    assert read_all(broker.bootstrap, strict.staging_topic), "some task-partitions committed"

    lenient = make_pipeline(CAST, name=strict.name, spark={"spark.sql.ansi.enabled": "false"})
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        write_batch(spark, lenient, day(1))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    batch = latest(lenient, day(1))
    assert batch.revision == 2
    assert batch.history[0].note == "these parts changed since it was planned: Spark settings"
    staged = read_all(broker.bootstrap, lenient.staging_topic)
    own = [r.json for r in staged if r.timestamp == batch.plan.staging_timestamp]
    assert sorted((r["n"], r["code"]) for r in own if r["n"] < 3) == [(0, 0), (1, 1), (2, 2)]
    assert [r["code"] for r in own if r["n"] == 3] == [None]


def test_what_other_software_wrote_in_part_is_a_new_revision(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    with monkeypatch.context() as before:
        before.setattr("fencepost.steps.plan.software", lambda: "fencepost 0.0.1")
        plan_batch(pipeline, day(1))
    write_batch(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).revision == 2
    assert "planned with fencepost 0.0.1" in latest(pipeline, day(1)).history[0].note
    write_batch(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).revision == 2, "written in full, it has one meaning"
