"""Finds the source offsets before the range of the first interval. No batch reads them unless an earlier interval is
planned. Pure.

The range begins at the first record whose timestamp is at or after the interval's start and not ahead of the clock. So
each record before the range has an earlier timestamp, no timestamp, or a timestamp ahead of the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fencepost.counts import count_of
from fencepost.model import (
    Batch,
    Interval,
    OffsetRange,
    PartitionId,
    UnreadRange,
    describe_timestamp,
    describe_topics,
    time_of,
)
from fencepost.protocol.view import View

# No Kafka record is older than Kafka, so an earlier timestamp is in another unit, most often seconds.
FIRST_CREDIBLE = datetime(2005, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
LISTED = 5  # partitions in a text


@dataclass(frozen=True)
class Unread:
    """The unread offsets, by partition. `start` is the start of the first interval, which was planned at `planned_at`."""

    start: datetime = EPOCH
    planned_at: datetime = EPOCH
    ranges: tuple[UnreadRange, ...] = ()

    @property
    def offsets(self) -> int:
        """Returns the number of offsets. Some of these offsets may have no record."""
        return sum(part.length for part in self.ranges)

    @property
    def by_topic(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns the ranges as JSON values: `[start, end)` by topic and partition."""
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for part in self.ranges:
            found.setdefault(part.topic, {})[str(part.partition)] = (part.start, part.end)
        return found

    def still_in(self, earliest: Mapping[PartitionId, int]) -> Unread:
        """Returns the unread offsets without the offsets before `earliest`, the first offset of each partition. Deleted
        records are not unread.
        """
        cut = [p.model_copy(update={"start": max(p.start, earliest.get(p.partition_id, p.end))}) for p in self.ranges]
        return replace(self, ranges=tuple(part for part in cut if part.end > part.start))

    @property
    def reason(self) -> str:
        """Returns why the offsets are before the range, with the timestamp of each partition's last record before it if
        that is known.
        """
        why = (
            f"Each of their records is older than {self.start:%Y-%m-%d %H:%M} UTC, the start of the first interval, has no "
            "timestamp, or is dated ahead of the clock"
        )
        listed = [f"partition {p.partition}: {p.length:,}{self._stamp(p)}" for p in self.ranges[:LISTED]]
        more = len(self.ranges) - len(listed)
        return f"{why} ({'; '.join(listed)}{f'; and {more:,} more partitions' if more else ''})"

    @property
    def description(self) -> str:
        """Returns how many offsets no batch reads, and why. The text is empty if there are none."""
        if not self.ranges:
            return ""
        topic = describe_topics(self.ranges)
        lie = count_of(self.offsets, f"offset of {topic} lies", f"offsets of {topic} lie")
        return f"{lie} before the first range, and no batch reads them. {self.reason}"

    def advice(self, pipeline: str) -> str:
        """Returns the command that makes a batch of the offsets."""
        whole = Interval(start=EPOCH, end=self.start).command("run", pipeline)
        return f"{whole} reads them as one batch (in Airflow: a backfill of the intervals before the first)"

    def _stamp(self, part: UnreadRange) -> str:
        if part.last_timestamp is None:
            return ""
        if part.last_timestamp < 0:
            return ", the last record without a timestamp"
        at = time_of(part.last_timestamp)
        unit = ""
        if at < FIRST_CREDIBLE:
            unit = ": seconds taken for milliseconds?"
        elif at > self.planned_at + 10 * YEAR:
            unit = ": microseconds taken for milliseconds?"
        return f", the last record with {describe_timestamp(part.last_timestamp)}{unit}"


def unread_at_plan(batch: Batch) -> Unread:
    """Returns the unread offsets that a plan recorded because its interval was the first. There are none for any other
    batch.
    """
    return Unread(batch.interval.start, batch.plan.planned_at, batch.plan.unread)


def unread(view: View) -> Unread:
    """Returns the offsets before the range of the first interval that is not withdrawn, as far as plans have recorded
    these offsets.

    The unread offsets become fewer when an earlier interval is planned, and more when the first interval is withdrawn.
    """
    return view.once(_unread)


def _unread(view: View) -> Unread:
    if not view.kept_intervals or (first := view.range_owner(view.kept_intervals[0])) is None:
        return Unread()
    topic_ids = {source.topic_id for source in first.plan.inputs}
    begins: dict[PartitionId, int] = {}
    timestamps: dict[tuple[PartitionId, int], int | None] = {}
    for source in (s for b in view.all() if b.adds_to is None for s in b.plan.inputs if s.topic_id in topic_ids):
        for part in (*source.ranges, *source.lost, *source.unread):
            begins[part.partition_id] = min(part.start, begins.get(part.partition_id, part.start))
        timestamps |= {(part.partition_id, part.end): part.last_timestamp for part in source.unread}
    ranges = tuple(
        UnreadRange(
            topic=place[0],
            partition=place[1],
            start=begins[place],
            end=end,
            last_timestamp=timestamps.get((place, end)),
        )
        for place, end in sorted(_starts(first).items())
        if begins[place] < end
    )
    return Unread(first.interval.start, first.plan.planned_at, ranges)


def _starts(batch: Batch) -> dict[PartitionId, int]:
    """Returns the start of the batch's range in each partition. Expired offsets count."""
    found: dict[PartitionId, int] = {}
    for part in (*batch.plan.ranges, *batch.plan.lost):
        found[part.partition_id] = min(part.start, found.get(part.partition_id, part.start))
    return found


def before_ranges(
    ranges: Sequence[OffsetRange], earliest: Mapping[PartitionId, int], timestamps: Mapping[PartitionId, int]
) -> tuple[UnreadRange, ...]:
    """Returns the offsets from `earliest` up to these ranges. `timestamps` has the timestamp of the last record before
    each range.
    """
    return tuple(
        UnreadRange(
            topic=part.topic,
            partition=part.partition,
            start=earliest[part.partition_id],
            end=part.start,
            last_timestamp=timestamps.get(part.partition_id),
        )
        for part in ranges
        if earliest[part.partition_id] < part.start
    )
