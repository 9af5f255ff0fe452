"""Computes how far the source is processed. The frontier is the end of the unbroken run of batches."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fencepost.model import Batch, PartitionId, State
from fencepost.protocol.view import PASSED, View


def of_topic(ends: Mapping[PartitionId, int], topic: str) -> dict[int, int]:
    """Returns the ends in one topic, by partition."""
    return {partition: end for (name, partition), end in sorted(ends.items()) if name == topic}


def by_topic(ends: Mapping[PartitionId, int]) -> dict[str, dict[str, int]]:
    """Returns the ends as JSON objects, by topic and then by partition."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), end in sorted(ends.items()):
        found.setdefault(topic, {})[str(partition)] = end
    return found


def frontier(view: View) -> Mapping[PartitionId, int]:
    """Returns the end of the longest unbroken run of published or skipped batches, by source partition.

    The run begins at the interval that was planned first (`View.anchor`), so planning an earlier interval moves nothing.
    Withdrawing a former anchor moves nothing either. An empty range in a partition does not break that partition's run.
    """
    return view.once(_frontier)


def _frontier(view: View) -> Mapping[PartitionId, int]:
    ends: dict[PartitionId, int] = {}
    broken: set[PartitionId] = set()
    for batch in view.run:
        for part in batch.plan.ranges:
            partition = part.partition_id
            if partition in broken:
                continue
            if batch.state in PASSED:
                ends[partition] = part.end
            elif part.length:
                broken.add(partition)
                ends.setdefault(partition, part.start)
    for batch in _former_anchors(view):
        for part in batch.plan.ranges:
            if part.partition_id in ends:
                ends[part.partition_id] = max(part.start, ends[part.partition_id])
    return MappingProxyType(ends)


def accounted_for(view: View) -> dict[PartitionId, int]:
    """Returns the furthest committed offset that the ledger can explain, by source partition.

    Usually the furthest offset is the frontier. In a partition that only withdrawn batches have, it is the furthest
    offset that the frontier may have reached before the withdrawal.
    """
    ends: dict[PartitionId, int] = {}
    for batch in view.all():
        if batch.state is State.WITHDRAWN:
            for part in batch.plan.ranges:
                ends[part.partition_id] = max(part.start, ends.get(part.partition_id, 0))
    return {**ends, **frontier(view)}


def _former_anchors(view: View) -> list[Batch]:
    """Returns the withdrawn batches that were planned before the anchor. The frontier may have started at such a batch."""
    anchor = view.anchor
    if anchor is None:
        return []
    return [b for b in view.all() if b.state is State.WITHDRAWN and view.order(b) < view.planned_first(anchor)]


def holding_back(view: View) -> Batch | None:
    """Returns the batch that holds the frontier back. This is the first batch of the run that has offsets and is not
    published or skipped.

    A batch that is not rejected holds the frontier back only if a published or skipped batch follows. Otherwise the
    result is None.
    """
    run = view.run
    for position, batch in enumerate(run):
        if batch.state not in PASSED and not batch.plan.is_empty:
            return (
                batch if any(b.state in PASSED for b in run[position + 1 :]) or batch.state is State.REJECTED else None
            )
    return None
