"""Step two, write, runs the transform on Spark. Each task-partition is written in its own Kafka transaction."""

from __future__ import annotations

import logging
import time

from pydantic import JsonValue
from pyspark.sql import SparkSession

from fencepost import errors
from fencepost.config.pipeline import Pipeline
from fencepost.config.software import software
from fencepost.counts import count_of
from fencepost.doctor.folder import check_pipeline
from fencepost.doctor.observed_state import observed_state
from fencepost.doctor.rights import denials_named
from fencepost.failpoints import reached
from fencepost.formats.framing import describe_excluded
from fencepost.kafka.writers import fence_unused
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change
from fencepost.model import (
    Batch,
    Interval,
    Plan,
    Receipt,
    SideTableState,
    SourceSummary,
    State,
    StepResult,
    TaskKind,
    WriteSummary,
    utc_now,
)
from fencepost.outputs.output import destination_of, written_to
from fencepost.outputs.quarantine import QuarantineTopic
from fencepost.protocol.advice import plan_first
from fencepost.protocol.decisions import record_written
from fencepost.protocol.revision import CurrentInputs, may_be_revised, revision_reason
from fencepost.protocol.table_states import changes_since, describe_changes
from fencepost.spark.diagnosis import jvm_watched
from fencepost.steps.obstacle import check_can_go_on, give_up
from fencepost.steps.plan import revise
from fencepost.steps.side_tables import SideTables, may_have_changed
from fencepost.steps.source_counts import SourceCounts
from fencepost.steps.write_job import WriteResult, run_write_job

log = logging.getLogger("fencepost.steps.write")


def write_without_spark(
    pipeline: Pipeline, interval: Interval, *, deployment: Deployment | None = None
) -> StepResult | None:
    """Returns the step's result if Spark has nothing to do, or None.

    A batch that is written already does not change, unless it was rejected and its side tables may have changed. A batch
    without offsets is recorded as written, with no rows, and its transform does not run.
    """
    deployment = deployment or Deployment.of(pipeline)
    batch = _to_write(deployment, interval)
    if may_have_changed(batch):
        return None
    if batch.state is not State.PLANNED:
        return _result(batch, changed=False)
    if not batch.plan.is_empty:
        return None
    plan, lease = batch.plan, batch.require_lease
    tasks = [task.number for task in plan.tasks_of(TaskKind.ROWS)]
    receipts = [Receipt(task=task, ledger=plan.ledger_topic_id, lease=lease, topics={}) for task in tasks]
    sources = {topic: SourceCounts(SourceSummary(rows_in=0)) for topic in plan.source_topics}
    return _record(deployment, batch, WriteResult(receipts, sources), time.monotonic())


def write_batch(
    spark: SparkSession, pipeline: Pipeline, interval: Interval, *, deployment: Deployment | None = None
) -> StepResult:
    """Writes the interval's batch exactly once and records it in the ledger.

    1. read the ledger, and revise the batch if what decides its output has changed since it was planned;
    2. check that its source and output are still the topics that it was planned with, and have all their records;
    3. fence the ids of the lane that this batch does not use, because earlier batches may have left open transactions
       under them;
    4. read the side tables, and record their states. If an earlier attempt has recorded other states, begin again at 1,
       which revises the batch. A rejected batch is revised too, because the cure may be in a side table;
    5. run the job: read, transform, write. Each task-partition returns its receipt. A retry that finds all of them
       committed takes the receipts from the marks instead;
    6. record `written`: all receipts, and where the output ends now.
    """
    began = time.monotonic()
    deployment = deployment or Deployment.of(pipeline)
    tables = SideTables(spark, deployment)
    while True:
        batch = _to_write(deployment, interval, tables.states)  # 1
        if may_have_changed(batch) and not tables.states:
            tables.read()
            continue
        if batch.state is not State.PLANNED:
            return _result(batch, changed=False)
        check_can_go_on(deployment, batch)  # 2
        _fence(deployment, batch.plan)  # 3
        with denials_named(pipeline, deployment.cluster.settings), jvm_watched(f"batch {batch.id}, write"):
            batch, settled = tables.settle(batch)  # 4
            if settled is None:
                continue
            wrote = run_write_job(spark, deployment, batch, settled)  # 5
        reached("write.answered")
        return _record(deployment, batch, wrote, began)  # 6


def _fence(deployment: Deployment, plan: Plan) -> None:
    """Ends the transactions that earlier batches of the lane may have left open under ids that this batch does not use."""
    used = {task.partition_id for task in plan.tasks_of(TaskKind.ROWS)}
    open_ones = [(topic, p) for topic, partitions in plan.unfinished_ids.items() for p in range(partitions)]
    ids = [deployment.pipeline.writer_id(plan.lane, *place) for place in open_ones if place not in used]
    fence_unused(deployment.cluster.settings, ids)


def _to_write(deployment: Deployment, interval: Interval, tables: tuple[SideTableState, ...] = ()) -> Batch:
    """Returns the interval's newest revision. If it can no longer be written as it was planned, it returns a new
    revision. `tables` are the states of the side tables that this attempt has read.
    """
    batch = deployment.ledger.read().last(interval)
    if batch is None:
        raise errors.TransitionRefused(
            f"pipeline {deployment.pipeline.name}, interval {interval}: never planned. "
            f"{plan_first(interval.command('run', deployment.pipeline.name))}."
        )

    if not may_be_revised(batch):
        return batch
    found = _current_inputs(deployment, batch, tables)
    why = revision_reason(batch, found)
    if why is None:
        return batch
    check_pipeline(deployment.pipeline)
    given_up = None
    if batch.state is State.PUBLISHING and (given_up := give_up(deployment, batch, found)) is None:
        return batch
    log.info("batch %s gets a new revision: %s", batch.id, why)
    return revise(deployment, batch, lambda found: _current_inputs(deployment, found, tables), given_up)


def _current_inputs(deployment: Deployment, batch: Batch, tables: tuple[SideTableState, ...]) -> CurrentInputs:
    """Returns the present state, from settings and cluster. It creates deleted topics again, until the batch is being
    published.
    """
    pipeline, digests = deployment.pipeline, deployment.pipeline.write_digests()
    quarantine = pipeline.quarantines or batch.plan.replays is not None
    if batch.state is not State.PUBLISHING:
        destination_of(deployment).prepare()
        if quarantine:
            QuarantineTopic(deployment).prepare()
    return CurrentInputs(
        **vars(observed_state(deployment, batch)),
        digests=digests,
        software=software(),
        now=utc_now(),
        marks_kept_for=deployment.cluster.marks_kept_for(),
        tables=tables,
        quarantine_topic=pipeline.quarantine_topic if quarantine else "",
    )


def _record(deployment: Deployment, batch: Batch, wrote: WriteResult, began: float) -> StepResult:
    """Records `written`. The topics' ends are read after every commit, so the whole batch lies before them."""
    result = WriteSummary.of(
        wrote.receipts,
        wrote.rules,
        output=written_to(deployment, batch).now(),
        quarantine=QuarantineTopic(deployment, batch).now() if batch.plan.quarantine else None,
        results=wrote.results,
        sources={topic: counts.summary for topic, counts in wrote.sources.items()},
        result_rows=wrote.result_rows,
        unreadable_results=wrote.unreadable_results,
        rows_of_earlier=wrote.rows_of_earlier,
        value_schema=wrote.schema,
        seconds=round(time.monotonic() - began, 3),
        written_at=utc_now(),
    )
    # Again: a topic created again while executors started has other records there. From now on it needs its source no more.
    check_can_go_on(deployment, batch.model_copy(update={"state": State.WRITTEN, "written": result}))
    recorded = deployment.ledger.transact(
        lambda view: Change(record_written(view, batch.interval, batch.revision, result, wrote.receipts))
    )
    reached("write.recorded")
    last, revisions = recorded.last(batch.interval), recorded.view.known(batch.interval)
    return _result(last, changed=bool(recorded.changed), tables=describe_changes(changes_since(revisions, last)))


def _result(batch: Batch, *, changed: bool, tables: str = "") -> StepResult:
    """Returns the step's result. `tables` says which side tables have changed since an earlier revision."""
    written = batch.written
    rows, rows_in = (written.rows, written.rows_in) if written else (0, 0)
    quarantined = written.quarantined if written else {}
    tombstones, excluded = (written.tombstones, written.excluded) if written else (0, {})
    looked_up: dict[str, JsonValue] = {state.name: state.rows for state in batch.plan.tables}
    message = f"already {batch.state}, revision {batch.revision}"
    if changed:
        told_in = "records not counted again" if rows_in is None else f"{count_of(rows_in, 'record')} in"
        if batch.adds_to is not None:
            told_in = f"{count_of(rows_in or 0, 'record')} from quarantine"
        message = f"wrote revision {batch.revision}: {told_in}, {rows:,} out"
        if quarantined:
            message += f", {sum(quarantined.values()):,} to quarantine"
        if tombstones:
            message += f", {count_of(tombstones, 'tombstone')} dropped"
        if excluded:
            message += f", {describe_excluded(excluded)} excluded"
        if tables:
            message += f"; {tables}"
    return StepResult.of(
        "write",
        batch,
        message,
        changed=changed,
        rows_in=rows_in,
        sources=dict(batch.rows_read),
        rows=rows,
        malformed=written.malformed if written else 0,
        tombstones=tombstones,
        excluded=dict(excluded),
        quarantined=dict(quarantined),
        adds_to=batch.adds_to,
        **({"tables": looked_up} if looked_up else {}),
    )
