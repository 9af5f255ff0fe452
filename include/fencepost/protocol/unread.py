"""Offsets of the source before the first range of all: no batch reads their records, unless an earlier interval is planned.

A first range begins at the first record that is stamped at or after its interval's start, and not ahead of the clock. So whatever
lies before it is stamped earlier, has no timestamp, or is dated ahead of the clock. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fencepost.counts import count_of
from fencepost.model import Batch, Interval, OffsetRange, UnreadRange, time_of, told_time
from fencepost.protocol.view import View

# No record of Kafka's is older than Kafka: an earlier timestamp is in another unit, most often seconds.
FIRST_CREDIBLE = datetime(2005, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
LISTED = 5  # partitions in a text


@dataclass(frozen=True)
class Unread:
    """Offsets of a topic before the range of the interval that begins at `start`, of the partitions that have such offsets."""

    topic: str = ""
    start: datetime = EPOCH
    planned_at: datetime = EPOCH
    ranges: tuple[UnreadRange, ...] = ()

    @property
    def offsets(self) -> int:
        """How many; some of them may have no record."""
        return sum(part.length for part in self.ranges)

    @property
    def by_partition(self) -> dict[str, tuple[int, int]]:
        """For programs: the first of them and their end, by partition."""
        return {str(part.partition): (part.start, part.end) for part in self.ranges}

    def still_in(self, earliest: Sequence[int]) -> Unread:
        """Those that a topic still has that begins there: records that were deleted are not unread."""
        begins = dict(enumerate(earliest))
        cut = [p.model_copy(update={"start": max(p.start, begins.get(p.partition, p.end))}) for p in self.ranges]
        return replace(self, ranges=tuple(part for part in cut if part.end > part.start))

    @property
    def reason(self) -> str:
        """Why they are before the range, in a sentence; with the last record's timestamp, as far as it is known."""
        why = (
            f"Records there are stamped before {self.start:%Y-%m-%d %H:%M} UTC, where the first interval begins, have no "
            "timestamp, or are dated ahead of the clock"
        )
        listed = [f"partition {p.partition}: {p.length:,}{self._stamp(p)}" for p in self.ranges[:LISTED]]
        more = len(self.ranges) - len(listed)
        return f"{why} ({'; '.join(listed)}{f'; and {more:,} more partitions' if more else ''})"

    @property
    def description(self) -> str:
        """How many there are, and why; empty if there are none."""
        if not self.ranges:
            return ""
        lie = count_of(self.offsets, f"offset of topic {self.topic} lies", f"offsets of topic {self.topic} lie")
        return f"{lie} before the first range, and no batch reads them. {self.reason}"

    def advice(self, pipeline: str) -> str:
        """How to have them read."""
        whole = Interval(start=EPOCH, end=self.start).command("run", pipeline)
        return f"{whole} reads them as a batch of its own (in Airflow: a backfill of the intervals before)"

    def _stamp(self, part: UnreadRange) -> str:
        if part.last_timestamp is None:
            return ""
        if part.last_timestamp < 0:
            return ", the last one without a timestamp"
        at = time_of(part.last_timestamp)
        unit = ""
        if at < FIRST_CREDIBLE:
            unit = ": seconds taken for milliseconds?"
        elif at > self.planned_at + 10 * YEAR:
            unit = ": microseconds taken for milliseconds?"
        return f", the last one with {told_time(part.last_timestamp)}{unit}"


def unread_at_plan(batch: Batch) -> Unread:
    """What lay before a batch's range when it was planned as the first of all; nothing of any other batch."""
    source, plan = batch.plan.source, batch.plan
    return Unread(source.topic, batch.interval.start, plan.planned_at, source.unread)


def unread(view: View) -> Unread:
    """What lies before the range of the first interval that stands, as far as the ledger knows where the topic began.

    It becomes less when an earlier interval is planned, and more when the first one is withdrawn.
    """
    return view.once(_unread)


def _unread(view: View) -> Unread:
    if not view.standing or (first := view.holder(view.standing[0])) is None:
        return Unread()
    source = first.plan.source
    known = [b.plan.source for b in view.all() if b.adds_to is None and b.plan.source.topic_id == source.topic_id]
    begins: dict[int, int] = {}
    timestamps: dict[tuple[int, int], int | None] = {}
    for one in known:
        for part in (*one.ranges, *one.lost, *one.unread):
            begins[part.partition] = min(part.start, begins.get(part.partition, part.start))
        timestamps |= {(part.partition, part.end): part.last_timestamp for part in one.unread}
    starts = _starts(first)
    ranges = tuple(
        UnreadRange(partition=p, start=begins[p], end=end, last_timestamp=timestamps.get((p, end)))
        for p, end in sorted(starts.items())
        if begins[p] < end
    )
    return Unread(source.topic, first.interval.start, first.plan.planned_at, ranges)


def _starts(batch: Batch) -> dict[int, int]:
    """Where its ranges begin, with what expired of them."""
    found: dict[int, int] = {}
    for part in (*batch.plan.source.ranges, *batch.plan.source.lost):
        found[part.partition] = min(part.start, found.get(part.partition, part.start))
    return found


def before_ranges(
    ranges: Sequence[OffsetRange], earliest: Sequence[int], timestamps: Mapping[int, int]
) -> tuple[UnreadRange, ...]:
    """What a topic that begins there has before these ranges; `timestamps` are of the last record before each of them."""
    return tuple(
        UnreadRange(
            partition=part.partition,
            start=earliest[part.partition],
            end=part.start,
            last_timestamp=timestamps.get(part.partition),
        )
        for part in ranges
        if earliest[part.partition] < part.start
    )
