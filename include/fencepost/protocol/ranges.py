"""Decides the offsets that a batch reads. Pure. Lists have one offset for each partition of a source topic.

Ranges of neighbouring intervals touch and never overlap, so no record is lost or read twice. A late record falls in the batch
that is open when it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from fencepost.model import Batch, Interval, OffsetRange, PartitionId

# How far clocks may differ: those of producers, the scheduler and this machine.
CLOCKS = timedelta(minutes=5)


def credible_until(interval: Interval, now: datetime) -> datetime | None:
    """Returns the latest timestamp that a record may have to end an interval's range, or None if there is no limit.

    A record that is dated ahead of the clock does not show that its partition has reached that time. If it ended this
    range, it would also end the range of every later interval until the clock reaches its timestamp. An interval whose
    end is ahead of the clock has no limit, because its records are expected to be in the future.
    """
    return None if interval.end > now + CLOCKS else now + CLOCKS


def range_starts(
    topic: str,
    before: Batch | None,
    after: Batch | None,
    stable: Sequence[int],
    by_start: Sequence[int | None] | None,
) -> list[int]:
    """Returns the start of the range in each partition of a source topic. `before` is the nearest earlier planned interval
    that reads the topic.

    A range starts at the end of the preceding one. If there is none, `by_start` is given for the topic's first range. Then
    the range starts at the first record at or after that time, or at the last stable offset if there is no such record
    yet. If `by_start` is not given either, the topic came with the following interval: the range starts where that one's
    does, and is empty. If the plan of the following interval does not know a partition, the newest interval reads that
    partition from its beginning. This interval's range in it then starts at 0 and is empty.
    """
    if before is not None or by_start is None:
        known = _bounds(before, topic, "end") if before is not None else _bounds(after, topic, "start")
        return [known.get(p, 0) for p in range(len(stable))]  # a younger partition starts at its beginning
    limit = _bounds(after, topic, "start")
    found = [stable[p] if offset is None else offset for p, offset in enumerate(by_start)]
    return [min(offset, limit.get(p, offset if after is None else 0)) for p, offset in enumerate(found)]


def frozen_ranges(
    interval: Interval,
    topic: str,
    starts: Sequence[int],
    after: Batch | None,
    stable: Sequence[int],
    by_end: Sequence[int | None],
) -> tuple[OffsetRange, ...]:
    """Returns the offset range of every partition of a source topic.

    A range ends at its first record that is at or after the interval's end and not dated ahead of the clock. Without
    such a record, the range ends at the last stable offset. It never passes the start of the following planned
    interval. Between the ranges of intervals that touch there is no offset.
    """
    limit = _bounds(after, topic, "start")
    touches = after is not None and after.interval.start == interval.end
    ranges = []
    for partition, start in enumerate(starts):
        by_time = by_end[partition]
        end = max(start, stable[partition] if by_time is None else by_time)
        if partition in limit:
            end = limit[partition] if touches else min(end, limit[partition])
        elif after is not None:
            end = start  # the partition is younger than the following interval's plan: the newest interval reads it
        ranges.append(OffsetRange(topic=topic, partition=partition, start=start, end=max(start, end)))
    return tuple(ranges)


def _bounds(batch: Batch | None, topic: str, side: str) -> dict[int, int]:
    """Returns the `start` or `end` of a batch's ranges of the topic, by partition."""
    if batch is None:
        return {}
    bounds = {r.partition_id: getattr(r, side) for r in batch.plan.ranges}
    if side == "start":  # offsets that expired belong to the batch too, at each of its revisions
        for part in batch.plan.lost:
            bounds[part.partition_id] = min(part.start, bounds[part.partition_id])
    return {partition: offset for (name, partition), offset in bounds.items() if name == topic}


def without_expired(
    ranges: Sequence[OffsetRange], earliest: Mapping[PartitionId, int]
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """Returns the ranges without their expired parts, and the expired parts. An expired part has the offsets before the
    earliest offset in the topic.
    """
    left, lost = [], []
    for part in ranges:
        first = min(max(part.start, earliest[part.partition_id]), part.end)
        if first > part.start:
            lost.append(part.model_copy(update={"end": first}))
        left.append(part.model_copy(update={"start": first}))
    return tuple(left), tuple(lost)
