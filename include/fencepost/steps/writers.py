"""Builds the jobs of a batch's writers: a job for the transform's rows, and a job for records that bypass the
transform.

The task-partitions of both jobs use transactional ids of the batch's lane. Each job has its own group for its marks.
"""

from __future__ import annotations

import secrets

from fencepost.config.pipeline import QUARANTINE
from fencepost.kafka.writers import Writers
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Layout, TaskKind
from fencepost.rows.quarantine_headers import Quarantining
from fencepost.rows.writer import WriteJob

Named = tuple[tuple[str, str], ...]  # name and reason of each quarantine rule


def rows_job(deployment: Deployment, batch: Batch, rules: Named = ()) -> WriteJob:
    """Returns the job that writes the rows of the transform's result, to the output and to quarantine."""
    plan, by_source = batch.plan, batch.plan.layout is Layout.SOURCE
    return WriteJob(
        writers=_writers(deployment, batch, TaskKind.ROWS),
        topic=plan.write_topic.topic,
        to_own_partition=not by_source,
        staging_timestamp=plan.staging_timestamp,
        compares=not by_source,
        nonce=secrets.token_hex(16),
        quarantine=plan.quarantine.topic if plan.quarantine and QUARANTINE in plan.digests else None,
        quarantining=_quarantining(batch, rules),
    )


def malformed_job(deployment: Deployment, batch: Batch) -> WriteJob:
    """Returns the job that writes malformed records to quarantine. Malformed records are not staged, and keep their
    timestamps.
    """
    return WriteJob(
        writers=_writers(deployment, batch, TaskKind.MALFORMED),
        topic=batch.require_quarantine.topic,
        to_own_partition=False,  # their keys choose the partition
        batch_header=False,  # the rows already have it
        nonce=secrets.token_hex(16),
        quarantining=_quarantining(batch),
    )


def replayed_job(deployment: Deployment, batch: Batch, rules: Named) -> WriteJob:
    """Returns the job that writes the malformed records and the result rows of a replay, to the output and to
    quarantine.
    """
    return WriteJob(
        writers=_writers(deployment, batch, TaskKind.MALFORMED),
        topic=batch.plan.write_topic.topic,
        to_own_partition=False,  # their keys choose the partition
        staging_timestamp=batch.plan.staging_timestamp,
        nonce=secrets.token_hex(16),
        quarantine=batch.require_quarantine.topic,
        quarantining=_quarantining(batch, rules),
    )


def _writers(deployment: Deployment, batch: Batch, kind: TaskKind) -> Writers:
    """Returns the writers of the batch's task-partitions of one kind, under its plan's lease.

    Under layout `source` the writers of malformed records have the transactional ids of the writers of rows, which have
    committed before. A late attempt of a writer of rows may fence a writer of malformed records. The late attempt then
    finds its own mark and stops.

    A mark's offset is the end of the range that its task-partition reads. A task-partition for a partition of the
    written topic reads no range, so its mark is at 0.

    Raises:
        KeyError: a task-partition reads a range, and the plan has no range for it.
    """
    pipeline, plan, tasks = deployment.pipeline, batch.plan, batch.plan.tasks_of(kind)
    marked = {part.partition_id: part.end for part in plan.ranges}
    if kind is TaskKind.ROWS and plan.layout is Layout.OUTPUT:
        marked = dict.fromkeys((task.partition_id for task in tasks), 0)
    return Writers(
        settings=deployment.cluster.settings,
        batch=str(batch.id),
        ledger=plan.ledger_topic_id,
        lease=batch.require_lease,
        group=pipeline.lane_group(plan.lane) if kind is TaskKind.ROWS else pipeline.malformed_group(plan.lane),
        transactional_ids=tuple(pipeline.writer_id(plan.lane, *task.partition_id) for task in tasks),
        marks=tuple((*task.partition_id, marked[task.partition_id]) for task in tasks),
        first=tasks[0].number,
    )


def _quarantining(batch: Batch, rules: Named = ()) -> Quarantining:
    return Quarantining(str(batch.id), rules, batch.plan.attempt)
