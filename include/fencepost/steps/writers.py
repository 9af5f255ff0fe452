"""What the writers of a batch need: of the transform's rows, and of those that never reach it.

Each job's task-partitions have transactional ids of the batch's lane, and marks in a group of their own.
"""

from __future__ import annotations

import secrets

from fencepost.config.pipeline import QUARANTINE
from fencepost.kafka.writers import Writers
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Layout
from fencepost.spark.quarantine_headers import Quarantining
from fencepost.spark.writer import WriteJob

Marks = tuple[tuple[str, int, int], ...]  # topic, partition and offset of each task-partition's mark
Named = tuple[tuple[str, str], ...]  # name and reason of each quarantine rule


def rows_job(ledger: Ledger, batch: Batch, rules: Named = ()) -> WriteJob:
    """The job that writes the rows of the transform's result, to the output and to quarantine."""
    plan, by_source = batch.plan, batch.plan.layout is Layout.SOURCE
    marks = _source_marks(batch) if by_source else tuple((plan.written_to.topic, t, 0) for t in range(plan.writers))
    return WriteJob(
        writers=_planned_writers(ledger, batch, ledger.pipeline.lane_group(plan.lane), plan.writers, marks),
        topic=plan.written_to.topic,
        to_own_partition=not by_source,
        staged_at=plan.staged_at,
        compares=not by_source,
        nonce=secrets.token_hex(16),
        quarantine=plan.quarantine.topic if plan.quarantine and QUARANTINE in plan.digests else None,
        quarantining=_quarantining(batch, rules),
    )


def malformed_job(ledger: Ledger, batch: Batch) -> WriteJob:
    """The job that writes malformed records to quarantine. They are not staged, and keep their timestamps."""
    return WriteJob(
        writers=_writers_aside(ledger, batch),
        topic=batch.known_quarantine.topic,
        to_own_partition=False,  # their keys choose the partition
        batch_header=False,  # it is among those that the rows bring
        nonce=secrets.token_hex(16),
        quarantining=_quarantining(batch),
    )


def replayed_job(ledger: Ledger, batch: Batch, rules: Named) -> WriteJob:
    """The job that writes malformed records and the results that a replay takes up, to the output and to quarantine."""
    return WriteJob(
        writers=_writers_aside(ledger, batch),
        topic=batch.plan.written_to.topic,
        to_own_partition=False,  # their keys choose the partition
        staged_at=batch.plan.staged_at,
        nonce=secrets.token_hex(16),
        quarantine=batch.known_quarantine.topic,
        quarantining=_quarantining(batch, rules),
    )


def _writers_aside(ledger: Ledger, batch: Batch) -> Writers:
    """The writers of records that are not for the transform, one for each source partition, behind the batch's others.

    Task-partition `writers + p` has the id of task-partition p, if there is one. That one has committed: a late attempt at it
    may fence this one, finds its mark, and stops.
    """
    plan, group = batch.plan, ledger.pipeline.malformed_group(batch.plan.lane)
    return _planned_writers(ledger, batch, group, plan.malformed_writers, _source_marks(batch), first=plan.writers)


def _planned_writers(ledger: Ledger, batch: Batch, group: str, ids: int, marks: Marks, first: int = 0) -> Writers:
    """Writers with the lowest ids of the batch's lane, under its plan's lease."""
    return Writers(
        settings=ledger.settings,
        batch=str(batch.id),
        ledger=batch.plan.ledger_topic_id,
        lease=batch.known_lease,
        group=group,
        transactional_ids=tuple(ledger.pipeline.writer_id(batch.plan.lane, t) for t in range(ids)),
        marks=marks,
        first=first,
    )


def _source_marks(batch: Batch) -> Marks:
    return tuple((*part.partition_id, part.end) for part in batch.plan.ranges)


def _quarantining(batch: Batch, rules: Named = ()) -> Quarantining:
    return Quarantining(str(batch.id), rules, batch.plan.attempt)
