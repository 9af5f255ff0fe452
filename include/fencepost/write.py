"""Step two, write: the transform on Spark, every task-partition in a Kafka transaction of its own."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from fencepost import errors
from fencepost.decisive import software
from fencepost.errors import (
    FencepostError,
    MalformedRecords,
    SettingsError,
    SourceDataExpired,
    TransformFailed,
    WriteFailed,
)
from fencepost.failpoints import reached
from fencepost.failures import HOW_TO_SEE, carried_in, how_the_jvm_ended, is_the_transforms, jvm_watched, told
from fencepost.kafka import Topic
from fencepost.ledger import Change, Ledger
from fencepost.model import Batch, Interval, Layout, Plan, Receipt, State, StepResult, Written, utc_now
from fencepost.placing import place_by_key
from fencepost.plan import check_same_topic, expired_error, marks_kept_for, revise, same_topics, without_expired
from fencepost.preflight import check_pipeline
from fencepost.quality.suite import FRESHNESS, load_suite
from fencepost.records import read_source, to_records
from fencepost.settings import Pipeline
from fencepost.spark import analysed, read_ranges, task_ranges, transform, value_schema
from fencepost.transaction import Transaction
from fencepost.transitions import Circumstances, View, check_receipts, may_be_revised, revising, written
from fencepost.writer import ANSWER_SCHEMA, TASKS, WriterTask, committed_receipts, writer_of

log = logging.getLogger("fencepost.write")

SHOWN = 20  # malformed records named by their coordinates


def write_without_spark(pipeline: Pipeline, interval: Interval, *, ledger: Ledger | None = None) -> StepResult | None:
    """The step's result when there is nothing for Spark to do, or None.

    A batch that is written already stays as it is; one without offsets to read is recorded as written, with no rows:
    its transform is not run.
    """
    ledger = ledger or Ledger(pipeline)
    batch = _to_write(ledger, interval)
    if batch.state is not State.PLANNED:
        return _result(batch, changed=False)
    if not batch.plan.is_empty:
        return None
    plan, lease = batch.plan, batch.known_lease
    receipts = [
        Receipt(task=t, ledger=plan.ledger_topic_id, lease=lease, rows=0, fingerprint=0) for t in range(plan.writers)
    ]
    return _record(ledger, batch, receipts, _Input(), "", time.monotonic())


def write_batch(
    spark: SparkSession, pipeline: Pipeline, interval: Interval, *, ledger: Ledger | None = None
) -> StepResult:
    """Write the interval's batch exactly once and record it in the ledger.

    1. read the ledger; revise the batch when what decides its output has changed since it was planned;
    2. check that its source and output are still the topics it was planned on, with all their records;
    3. fence ids of the lane that wider, earlier batches had and this one has not;
    4. run the job: read, transform, write; every task-partition answers with its receipt. A retry that finds all of them
       committed takes the receipts from the marks instead;
    5. record `written`: all receipts, and where the output ends now.
    """
    began = time.monotonic()
    ledger = ledger or Ledger(pipeline)
    batch = _to_write(ledger, interval)  # 1
    if batch.state is not State.PLANNED:
        return _result(batch, changed=False)
    check_topics(ledger, batch)  # 2
    for task in range(batch.plan.writers, batch.plan.fence_up_to):  # 3
        Transaction(ledger.settings, pipeline.writer_id(batch.plan.lane, task), "fence", task).init()
    with jvm_watched(f"batch {batch.id}, write"):
        receipts, source, schema = _run(spark, ledger, batch)  # 4
    reached("write.answered")
    return _record(ledger, batch, receipts, source, schema, began)  # 5


def _to_write(ledger: Ledger, interval: Interval) -> Batch:
    """The interval's newest revision, or a new one when that may no longer be written as it was planned."""
    batch = ledger.read().latest(interval)
    if batch is None:
        raise errors.TransitionRefused(
            f"pipeline {ledger.pipeline.name}, interval {interval}: never planned. "
            f"{interval.command('run', ledger.pipeline.name)} begins with that (in Airflow: the task plan)."
        )

    def reason(batch: Batch) -> str | None:
        return revising(batch, _circumstances(ledger, batch)) if may_be_revised(batch) else None

    why = reason(batch)
    if why is None:
        return batch
    check_pipeline(ledger.pipeline)
    log.info("batch %s is written anew: %s", batch.id, why)
    return revise(ledger, batch, reason)


def _circumstances(ledger: Ledger, batch: Batch) -> Circumstances:
    """What `revising` asks for, from the cluster. An output topic that was deleted is made again."""
    pipeline, cluster = ledger.pipeline, ledger.cluster
    source = cluster.describe(pipeline.source.topic)
    check_same_topic(batch, source)
    return Circumstances(
        digests=pipeline.write_digests(),
        software=software(),
        now=utc_now(),
        marks_kept_for=marks_kept_for(cluster),
        output_topic_id=cluster.ensure_topic(pipeline.output.topic, pipeline.output.partitions).id,
        ledger_topic_id=ledger.topic_id,
        expired=without_expired(batch.plan.ranges, cluster.earliest(source))[1],
        accept_loss=pipeline.source.on_expired == "skip",
    )


def check_topics(ledger: Ledger, batch: Batch) -> Topic:
    """The batch's topics are those it was planned on, and its range is still whole. Returns the output topic."""
    source, output = same_topics(ledger, batch)
    _, expired = without_expired(batch.plan.ranges, ledger.cluster.earliest(source))
    if expired and batch.state is State.PLANNED:
        raise expired_error(ledger.pipeline, batch.interval, expired)
    return output


@dataclass(frozen=True)
class _Input:
    """What was read: records, malformed ones among them, where the first of those are, and the latest timestamp.

    `rows` is None where nobody counted, which is only where malformed records would have failed the batch.
    """

    rows: int | None = 0
    malformed: int = 0
    at: tuple[tuple[int, int], ...] = ()
    newest: datetime | None = None

    @classmethod
    def of(cls, counts: Mapping[str, Any], at: tuple[tuple[int, int], ...] = ()) -> _Input:
        """From what `_counts` gave."""
        millis = counts["newest"]
        known = millis is not None and millis >= 0  # Kafka's -1 is no timestamp
        newest = datetime.fromtimestamp(millis / 1000, UTC) if known else None
        return cls(rows=counts["rows"], malformed=counts["malformed"], at=at, newest=newest)


def _run(spark: SparkSession, ledger: Ledger, batch: Batch) -> tuple[list[Receipt], _Input, str]:
    """The receipts of all task-partitions, from the job or, where a retry finds them all committed, without one."""
    pipeline, plan = ledger.pipeline, batch.plan
    task = _writer_task(ledger, batch)
    set_shuffle_partitions(spark, pipeline, plan)
    with ThreadPoolExecutor(1) as aside:  # while Spark analyses
        asked = aside.submit(committed_receipts, task)
        raw = read_ranges(spark, ledger.settings, plan.source_topic, plan.ranges, headers=pipeline.source.headers)
        frame, malformed = read_source(raw, pipeline.source)
        seen = Observation()
        counted = frame.observe(seen, *_counts(malformed))
        if pipeline.source.on_malformed == "fail":
            # Raised inside the task, so that no task-partition with a malformed record commits.
            stop = F.raise_error(F.lit(MALFORMED)).cast("boolean")
            good = counted.where(F.when(malformed, stop).otherwise(F.lit(True)))
        else:
            good = counted.where(~malformed)
        result = transform(pipeline, good.drop("_malformed"))
        schema = value_schema(pipeline, result).json()
        committed = asked.result()
    if committed is not None:
        log.info("batch %s: an earlier attempt has committed all of it", batch.id)
        return committed, _counted_again(raw, pipeline), schema
    with analysed(pipeline):
        records = to_records(result, pipeline)
        if plan.layout is Layout.OUTPUT:
            placed = place_by_key(records, plan.writers, total=pipeline.output.commit_every is not None)
        else:
            placed = records.drop("_partition", "_offset")
    answered = placed.mapInArrow(writer_of(task), ANSWER_SCHEMA)
    spark.sparkContext.setLocalProperty(TASKS, json.dumps(_task_partitions(answered, batch, pipeline)))
    try:
        answers = answered.collect()
    except Exception as error:
        raise _cause(error, ledger, batch, raw, task.nonce) from error
    finally:
        with suppress(Exception):  # a JVM that died has none
            spark.sparkContext.setLocalProperty(TASKS, None)  # type: ignore[arg-type]  # which removes it
    receipts = [Receipt.model_validate_json(a["receipt"]) for a in answers]
    return receipts, _source_counts(answers, seen, raw, batch, pipeline), schema


SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
SPARKS_DEFAULT = 200
ROWS_A_PARTITION = 50_000  # of a shuffle's; a partition costs some ten milliseconds however few it holds


def set_shuffle_partitions(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> None:
    """As many partitions for the transform's own shuffles as the batch has rows for, unless somebody has set a number.

    The number follows from the frozen plan, so a retry has the same: sums of doubles depend on it.
    """
    if SHUFFLE_PARTITIONS in pipeline.spark or spark.sparkContext.getConf().contains(SHUFFLE_PARTITIONS):
        return
    filled = sum(r.length for r in plan.ranges) // ROWS_A_PARTITION
    spark.conf.set(SHUFFLE_PARTITIONS, str(min(SPARKS_DEFAULT, max(filled, plan.writers, len(plan.ranges)))))


def _task_partitions(job: DataFrame, batch: Batch, pipeline: Pipeline) -> list[int]:
    """Which task-partition each Spark partition writes, read from the job itself before it starts.

    Raises:
        SettingsError: the transform shuffles (or reads something else than its source) under layout `source`.
    """
    plan = batch.plan
    if plan.layout is Layout.OUTPUT:
        return list(range(plan.writers))
    position = {r: i for i, r in enumerate(plan.ranges)}
    found = task_ranges(job)
    if found is None or sorted(found, key=lambda r: r.partition) != list(plan.ranges):
        raise SettingsError(
            f"{pipeline.transform_file}: under output.layout: source a transform works row by row, so that each "
            "task-partition is one source partition; this one shuffles, or unites or splits partitions (aggregates, sorts, "
            "distinct, repartition, joins that are not broadcast). Set output.layout: output, or take that out."
        )
    return [position[r] for r in found]


def _writer_task(ledger: Ledger, batch: Batch) -> WriterTask:
    pipeline, plan = ledger.pipeline, batch.plan
    if plan.layout is Layout.SOURCE:
        marks = tuple((plan.source_topic, r.partition, r.end) for r in plan.ranges)
    else:
        marks = tuple((plan.output_topic, t, 0) for t in range(plan.writers))
    return WriterTask(
        settings=ledger.settings,
        batch=str(batch.id),
        ledger=plan.ledger_topic_id,
        lease=batch.known_lease,
        topic=plan.output_topic,
        group=pipeline.lane_group(plan.lane),
        transactional_ids=tuple(pipeline.writer_id(plan.lane, t) for t in range(plan.writers)),
        marks=marks,
        to_own_partition=plan.layout is Layout.OUTPUT,
        commit_every=pipeline.output.commit_every,
        nonce=secrets.token_hex(16),
    )


def _source_counts(
    answers: Sequence[Row], seen: Observation, raw: DataFrame, batch: Batch, pipeline: Pipeline
) -> _Input:
    """Records read and malformed ones: as Spark observed them where that is sure to be all, or else read once more.

    Under `source` every task that was not skipped has read its range to the end. Before a shuffle a task may run again,
    or stop early (a limit): there, as many rows as the ranges have offsets are all of them.
    """
    if any(a["skipped"] for a in answers):
        return _counted_again(raw, pipeline)
    counts = seen.get
    sure = batch.plan.layout is Layout.SOURCE or counts["rows"] == sum(r.length for r in batch.plan.ranges)
    if sure and counts["malformed"] == 0:
        return _Input.of(counts)
    return _count_source(raw, pipeline)


def _counted_again(raw: DataFrame, pipeline: Pipeline) -> _Input:
    """The counts where an earlier attempt's are lost: read once more if anything asks for them.

    Dropped records must be told of, and freshness is judged by the newest record. A suite that cannot be read may ask.
    """
    try:
        asks = any(e.type == FRESHNESS for e in load_suite(pipeline.expectations_file).expectations)
    except SettingsError:
        asks = True
    if asks or pipeline.source.on_malformed == "drop":
        return _count_source(raw, pipeline)
    return _Input(rows=None)


def _counts(malformed: Column) -> list[Column]:
    return [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(malformed).alias("malformed"),
        F.unix_millis(F.max("_timestamp")).alias("newest"),
    ]


def _count_source(raw: DataFrame, pipeline: Pipeline) -> _Input:
    """The same counted from the frozen ranges, and where the first malformed records are."""
    frame, malformed = read_source(raw, pipeline.source)
    total = frame.agg(*_counts(malformed)).head()
    assert total is not None
    at: tuple[tuple[int, int], ...] = ()
    if total["malformed"]:
        first = frame.where(malformed).select("_partition", "_offset").orderBy("_partition", "_offset").limit(SHOWN)
        at = tuple((r["_partition"], r["_offset"]) for r in first.collect())
    return _Input.of(total.asDict(), at)


MALFORMED = "fencepost: malformed source record"


def _cause(error: Exception, ledger: Ledger, batch: Batch, raw: DataFrame, nonce: str) -> FencepostError:
    """What really failed: Spark wraps a task's error in its own, text only.

    What failed in the transform itself ends the step for good: Spark has tried it as often as `spark.task.maxFailures` says,
    and a transform gives the same for the same records.
    """
    pipeline, text = ledger.pipeline, str(error)
    if how_the_jvm_ended(error):
        return WriteFailed(f"batch {batch.id}: the driver died.")  # `jvm_watched` says it
    if MALFORMED in text and (found := _count_source(raw, pipeline)).malformed:
        where = ", ".join(f"{p}:{o}" for p, o in found.at)
        return MalformedRecords(
            f"batch {batch.id}: {found.malformed} of {found.rows} records of topic {pipeline.source.topic} do not fit the "
            f"declared schema; partition:offset of the first: {where}. No offset moved. Mend the schema, or set "
            "source.on_malformed: drop in pipeline.yaml to leave them out (counted in the report)."
        )
    ours = carried_in(text, nonce)
    if ours is not None:
        return ours if str(batch.id) in str(ours) else type(ours)(f"batch {batch.id}: {ours}")
    try:
        check_topics(ledger, batch)  # records may have expired, or a topic gone, while the job read them
    except SourceDataExpired as expired:
        if pipeline.source.on_expired == "fail":
            return expired
        return WriteFailed(
            f"batch {batch.id}: records expired while they were read. Run again: what is left is written."
        )
    except FencepostError as found_error:
        return found_error
    if is_the_transforms(error, pipeline.folder):
        return TransformFailed(
            f"batch {batch.id}: {pipeline.transform_file} failed on a record: {told(error, pipeline.folder)}. No offset moved. "
            "The same record fails again: mend the transform, then run again, which writes a new revision. "
            f"{HOW_TO_SEE}."
        )
    return WriteFailed(
        f"batch {batch.id}: the Spark job failed: {told(error, pipeline.folder)}. What had not committed is aborted, and no "
        f"offset moved; run again. {HOW_TO_SEE}."
    )


def _record(
    ledger: Ledger, batch: Batch, receipts: Sequence[Receipt], source: _Input, schema: str, began: float
) -> StepResult:
    """Record `written`. The output's ends are asked after every commit, so all of the batch lies below them."""
    output = ledger.cluster.describe(batch.plan.output_topic)
    result = Written(
        receipts=tuple(sorted(receipts, key=lambda r: r.task)),
        output_ends=tuple(ledger.cluster.high_watermarks(output)),
        rows_in=source.rows,
        malformed=source.malformed,
        malformed_at=source.at,
        newest=source.newest,
        value_schema=schema,
        seconds=round(time.monotonic() - began, 3),
        written_at=utc_now(),
    )
    check_receipts(batch, result)

    changed = False

    def decide(view: View) -> Change:
        nonlocal changed
        same_topics(ledger, batch)  # again: one made anew while executors started had other records under these offsets
        batches = written(view, batch.interval, batch.revision, result)
        changed = bool(batches)
        return Change(batches)

    after = ledger.transact(decide).latest(batch.interval)
    assert after is not None
    reached("write.recorded")
    return _result(after, changed=changed)


def _result(batch: Batch, *, changed: bool) -> StepResult:
    written = batch.written
    rows, rows_in = (written.rows, written.rows_in) if written else (0, 0)
    message = f"already {batch.state}, revision {batch.revision}"
    if changed:
        told_in = "records not counted again" if rows_in is None else f"{rows_in} records in"
        message = f"wrote revision {batch.revision}: {told_in}, {rows} out"
    return StepResult.of(
        "write",
        batch,
        message,
        changed=changed,
        rows_in=rows_in,
        rows=rows,
        malformed=written.malformed if written else 0,
    )
