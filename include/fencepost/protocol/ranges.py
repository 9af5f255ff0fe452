"""Which offsets a batch reads. Pure: lists hold one offset per source partition.

Ranges of neighbouring intervals touch and never overlap, so a record that arrives late falls in the batch that is open when it
arrives, and none is lost or read twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.model import (
    Batch,
    Interval,
    OffsetRange,
)


def range_starts(
    before: Batch | None, after: Batch | None, stable: Sequence[int], by_start: Sequence[int | None] | None
) -> list[int]:
    """Where each source partition's range starts. Pure: the lists hold one offset per partition.

    The end of the preceding planned interval; before the first one (`by_start` is given then), the first record of the
    interval's time, or the last stable offset where there is none yet.
    """
    if before is not None or by_start is None:
        known = _bounds(before, "end")
        return [known.get(p, 0) for p in range(len(stable))]  # a younger partition starts at its beginning
    limit = _bounds(after, "start")
    found = [stable[p] if offset is None else offset for p, offset in enumerate(by_start)]
    return [min(offset, limit.get(p, offset)) for p, offset in enumerate(found)]


def frozen_ranges(
    interval: Interval, starts: Sequence[int], after: Batch | None, stable: Sequence[int], by_end: Sequence[int | None]
) -> tuple[OffsetRange, ...]:
    """The offset range of every source partition. Pure, as above.

    It ends at the first record (from its start on) at or after the interval's end, or at the last stable offset where
    there is none yet, and never beyond the start of the interval planned after it. Intervals that touch leave no offset
    between them.
    """
    limit = _bounds(after, "start")
    touches = after is not None and after.interval.start == interval.end
    ranges = []
    for partition, start in enumerate(starts):
        by_time = by_end[partition]
        end = max(start, stable[partition] if by_time is None else by_time)
        if partition in limit:
            end = limit[partition] if touches else min(end, limit[partition])
        elif after is not None:
            end = start  # a partition younger than the batch planned after this one: left to the newest interval
        ranges.append(OffsetRange(partition=partition, start=start, end=max(start, end)))
    return tuple(ranges)


def _bounds(batch: Batch | None, side: str) -> dict[int, int]:
    if batch is None:
        return {}
    bounds = {r.partition: getattr(r, side) for r in batch.plan.source.ranges}
    if side == "start":  # what expired was the batch's too, at each of its revisions
        for part in batch.plan.source.lost:
            bounds[part.partition] = min(part.start, bounds[part.partition])
    return bounds


def without_expired(
    ranges: Sequence[OffsetRange], earliest: Sequence[int]
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """What is left of the ranges, and the parts of them that lie before the earliest offset still in the topic."""
    left, lost = [], []
    for part in ranges:
        first = min(max(part.start, earliest[part.partition]), part.end)
        if first > part.start:
            lost.append(OffsetRange(partition=part.partition, start=part.start, end=first))
        left.append(OffsetRange(partition=part.partition, start=first, end=part.end))
    return tuple(left), tuple(lost)
