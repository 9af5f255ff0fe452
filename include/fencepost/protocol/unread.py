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
class UnreadOf:
    """The unread offsets of one source topic, by partition. `start` is the time from which the pipeline reads the topic. The
    first interval that reads it was planned at `planned_at`. `is_new` says that the pipeline has earlier intervals, which were
    planned without the topic. `looks_back` says that the pipeline looks back, so that no interval is planned before that one.
    """

    start: datetime
    planned_at: datetime
    ranges: tuple[UnreadRange, ...]
    is_new: bool = False
    looks_back: bool = False

    @property
    def topic(self) -> str:
        """Returns the source topic."""
        return self.ranges[0].topic

    @property
    def offsets(self) -> int:
        """Returns the number of offsets. Some of these offsets may have no record."""
        return sum(part.length for part in self.ranges)

    @property
    def reason(self) -> str:
        """Returns why the offsets are before the range, with the timestamp of each partition's last record before it if
        that is known.
        """
        why = (
            f"Each of their records is older than {self.start:%Y-%m-%d %H:%M} UTC, from when on the pipeline reads the topic, "
            "has no timestamp, or is dated ahead of the clock"
        )
        listed = [f"partition {p.partition}: {p.length:,}{self._stamp(p)}" for p in self.ranges[:LISTED]]
        more = len(self.ranges) - len(listed)
        return f"{why} ({'; '.join(listed)}{f'; and {more:,} more partitions' if more else ''})"

    @property
    def description(self) -> str:
        """Returns how many offsets no batch reads, and why."""
        lie = count_of(self.offsets, f"offset of topic {self.topic} lies", f"offsets of topic {self.topic} lie")
        return f"{lie} before the first range, and no batch reads them. {self.reason}"

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


@dataclass(frozen=True)
class Unread:
    """The unread offsets of all source topics that have some."""

    topics: tuple[UnreadOf, ...] = ()

    @property
    def offsets(self) -> int:
        """Returns the number of offsets."""
        return sum(one.offsets for one in self.topics)

    @property
    def ranges(self) -> tuple[UnreadRange, ...]:
        """Returns the ranges of all topics."""
        return tuple(part for one in self.topics for part in one.ranges)

    @property
    def by_topic(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns the ranges as JSON values: `[start, end)` by topic and partition."""
        return {one.topic: {str(p.partition): (p.start, p.end) for p in one.ranges} for one in self.topics}

    def still_in(self, earliest: Mapping[PartitionId, int]) -> Unread:
        """Returns the unread offsets without the offsets before `earliest`, the first offset of each partition. Deleted
        records are not unread. Neither are those of a topic whose first offsets are not given.
        """
        found = []
        for one in self.topics:
            cut = [
                p.model_copy(update={"start": max(p.start, earliest.get(p.partition_id, p.end))}) for p in one.ranges
            ]
            if left := tuple(part for part in cut if part.end > part.start):
                found.append(replace(one, ranges=left))
        return Unread(tuple(found))

    @property
    def reason(self) -> str:
        """Returns why the offsets are before the ranges."""
        return ". ".join(one.reason for one in self.topics)

    @property
    def description(self) -> str:
        """Returns how many offsets no batch reads, and why. The text is empty if there are none."""
        return ". ".join(one.description for one in self.topics)

    def advice(self, pipeline: str) -> str:
        """Returns the command that makes a batch of the offsets, and which of them no batch of this pipeline can read."""
        found = []
        if older := [one for one in self.topics if not one.is_new and not one.looks_back]:
            whole = Interval(start=EPOCH, end=older[0].start).command("run", pipeline)
            them = "them" if len(older) == len(self.topics) else f"those of {describe_topics([older[0].topic])}"
            found.append(
                f"{whole} reads {them} as one batch (in Airflow: a backfill of the intervals before the first)"
            )
        if behind := [one.topic for one in self.topics if one.looks_back and not one.is_new]:
            found.append(
                f"No batch of this pipeline can read those of {describe_topics(behind)}: it looks back, and the first interval "
                "was planned without them. A pipeline of another name can, if its first interval is an earlier one"
            )
        if new := [one.topic for one in self.topics if one.is_new]:
            found.append(
                f"No batch of this pipeline can read those of {describe_topics(new)}: the earlier intervals were planned "
                "without it. A pipeline of another name can"
            )
        return ". ".join(found)


def unread_at_plan(batch: Batch) -> Unread:
    """Returns the unread offsets that a plan recorded because its interval was the first that reads a topic. There are none
    for any other batch.
    """
    start = (batch.plan.also_covers or batch.interval).start
    return Unread(tuple(UnreadOf(start, batch.plan.planned_at, i.unread) for i in batch.plan.inputs if i.unread))


def unread(view: View) -> Unread:
    """Returns the offsets before the range of the first interval that reads a topic, as far as plans have recorded these
    offsets. Withdrawn intervals do not count.

    The unread offsets become fewer when an earlier interval is planned, and more when the first interval is withdrawn.
    """
    return view.once(_unread)


def _unread(view: View) -> Unread:
    firsts: dict[str, tuple[Batch, Batch | None]] = {}  # the first batch that reads a topic, and the batch before it
    before: Batch | None = None
    looks_back = False
    for interval in view.kept_intervals:
        batch = view.range_owner(interval)
        assert batch is not None
        looks_back = looks_back or bool(batch.plan.looked_back)
        for topic in batch.plan.source_topics:
            firsts.setdefault(topic, (batch, before))
        before = batch
    topic_ids = {
        one.topic_id for batch, _ in firsts.values() for one in batch.plan.inputs if firsts[one.topic][0] is batch
    }
    begins: dict[PartitionId, int] = {}
    timestamps: dict[tuple[PartitionId, int], int | None] = {}
    for source in (s for b in view.all() if b.adds_to is None for s in b.plan.inputs if s.topic_id in topic_ids):
        for part in (*source.ranges, *source.lost, *source.unread):
            begins[part.partition_id] = min(part.start, begins.get(part.partition_id, part.start))
        timestamps |= {(part.partition_id, part.end): part.last_timestamp for part in source.unread}
    found = []
    for topic, (first, preceding) in firsts.items():
        starts = {place: start for place, start in _starts(first).items() if place[0] == topic}
        ranges = tuple(
            UnreadRange(
                topic=topic,
                partition=place[1],
                start=begins[place],
                end=end,
                last_timestamp=timestamps.get((place, end)),
            )
            for place, end in sorted(starts.items())
            if begins[place] < end
        )
        if ranges:
            start = (first.interval if preceding is None else first.plan.also_covers or first.interval).start
            found.append(
                UnreadOf(
                    start,
                    first.plan.planned_at,
                    ranges,
                    is_new=preceding is not None,
                    looks_back=looks_back,
                )
            )
    return Unread(tuple(found))


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
