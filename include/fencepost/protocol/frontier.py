"""Computes how far the source is processed. The frontier is the end of the unbroken run of batches."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fencepost.model import Batch, OffsetRange, PartitionId, State
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


def offsets_behind(reached: Mapping[PartitionId, int], ends: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    """Returns the number of offsets from the frontier `reached` to these ends, by partition. A partition that the frontier
    does not have is new, and counts from offset 0.

    A topic that the frontier does not have, although it has others, was added as a source. It is left out until a batch has
    read it, because that batch does not read it from offset 0.
    """
    read = {topic for topic, _ in reached}
    counted = {place: end for place, end in ends.items() if not read or place[0] in read}
    return {place: max(end - reached.get(place, 0), 0) for place, end in counted.items()}


def total_of_topic(offsets: Mapping[PartitionId, int]) -> dict[str, int]:
    """Returns the sum of the offsets of each topic."""
    return {topic: sum(of_topic(offsets, topic).values()) for topic in dict.fromkeys(name for name, _ in offsets)}


def frontier(view: View) -> Mapping[PartitionId, int]:
    """Returns the end of the longest unbroken run of published or skipped batches, by source partition.

    The run of a topic begins at the interval that was planned first of those that read it (`View.anchors`), so planning an
    earlier interval moves nothing. Withdrawing a former anchor moves nothing either. An empty range in a partition does
    not break that partition's run.
    """
    return view.once(_frontier)


def _frontier(view: View) -> Mapping[PartitionId, int]:
    ends: dict[PartitionId, int] = {}
    broken: set[PartitionId] = set()
    begins = {topic: anchor.start for topic, anchor in view.anchors.items()}
    for interval in view.kept_intervals:
        batch = view.known(interval).in_force
        for part in batch.plan.ranges:
            partition = part.partition_id
            if partition in broken or interval.start < begins[part.topic]:
                continue
            if batch.state in PASSED:
                ends[partition] = part.end
            elif part.length:
                broken.add(partition)
                ends.setdefault(partition, part.start)
    for part in _former_starts(view):
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


def _former_starts(view: View) -> list[OffsetRange]:
    """Returns the ranges of withdrawn batches that were planned before the anchor of their topic. The frontier of the topic
    may have started at such a range.
    """
    first = {topic: view.planned_first(anchor) for topic, anchor in view.anchors.items()}
    withdrawn = [batch for batch in view.all() if batch.state is State.WITHDRAWN]
    return [
        part
        for batch in withdrawn
        for part in batch.plan.ranges
        if part.topic in first and view.order(batch) < first[part.topic]
    ]


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
