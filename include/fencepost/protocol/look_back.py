"""Decides which records of earlier intervals a batch's transform gets again, and finds out who looked back at what. Pure.

Plans decide it, not timestamps, and not what became of a batch: skipped and rejected records count too. So a new revision of an
earlier interval changes nothing in a later plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from fencepost.counts import count_of
from fencepost.model import Batch, Interval, OffsetRange, PartitionId
from fencepost.protocol.view import View

LISTED = 3  # intervals in a text


def ranges_before(
    view: View, covered: Interval, topic: str, lookback: timedelta, partitions: int
) -> tuple[OffsetRange, ...]:
    """Returns the ranges of a source topic that earlier intervals consumed, for a batch that covers this time. An interval
    counts as a whole, if it ends less than `lookback` before the batch begins.

    Offsets that expired since they were consumed are included. There is one range for each partition, because the ranges of
    intervals touch. Where they do not, the offsets between them were never consumed, and nothing before them is looked back at.
    """
    found: dict[int, tuple[int, int]] = {}
    ended = set[int]()
    for interval in reversed(view.kept_intervals):
        if interval.end > covered.start or covered.start - interval.end >= lookback:
            continue
        for part in view.known(interval).froze.plan.ranges:
            if part.topic != topic or not part.length or part.partition in ended:
                continue
            start, end = found.get(part.partition, (part.end, part.end))
            if part.end == start:
                found[part.partition] = part.start, end
            else:
                ended.add(part.partition)
    every = {partition: found.get(partition, (0, 0)) for partition in range(partitions)}
    return tuple(OffsetRange(topic=topic, partition=p, start=start, end=end) for p, (start, end) in every.items())


def looked_back_at(view: View, place: PartitionId, offset: int) -> tuple[Batch, ...]:
    """Returns the batches that count and that looked back at this record, in order of time."""
    batches = [view.known(interval).in_force for interval in view.kept_intervals]
    return tuple(batch for batch in batches if any(part.holds(place, offset) for part in batch.plan.looked_back_ranges))


@dataclass(frozen=True)
class MadeWithout:
    """Intervals that looked back at records which could not be decoded then. A new revision of `consumed`, the interval that
    consumed the records, could decode them.
    """

    consumed: Interval
    topic: str
    later: tuple[Interval, ...]

    @property
    def description(self) -> str:
        """Returns which intervals were made without the records."""
        listed = ", ".join(one.description for one in self.later[:LISTED])
        more = f" and {len(self.later) - LISTED:,} more" if len(self.later) > LISTED else ""
        were = count_of(len(self.later), "later interval was", "later intervals were")
        return (
            f"{were} made without records of topic {self.topic} that a new revision of {self.consumed.description} made "
            f"readable: {listed}{more}"
        )

    def advice(self, pipeline: str) -> str:
        """Returns how to make them again."""
        return f"{self.later[0].command('run', pipeline, '--reprocess')} makes the first of them again"


def made_without(view: View) -> tuple[MadeWithout, ...]:
    """Returns the later intervals that were made without records that a reprocess has made readable since."""
    return tuple(_made_without(view))


def _made_without(view: View) -> Iterator[MadeWithout]:
    batches = [view.known(interval).in_force for interval in view.kept_intervals]
    looking = [batch for batch in batches if batch.written is not None and batch.plan.looked_back]
    for batch in batches if looking else ():
        for topic in _made_readable(view.known(batch.interval).batches, batch):
            later = tuple(one.interval for one in looking if _made_before(one, batch, topic))
            if later:
                yield MadeWithout(batch.interval, topic, later)


def _made_readable(revisions: Sequence[Batch], now: Batch) -> Iterator[str]:
    """Yields the topics of which the present batch has fewer malformed records than an earlier revision had."""
    if now.written is None:
        return
    for topic, found in now.written.sources.items():
        before = [one.written.sources.get(topic) for one in revisions if one.written and one.revision < now.revision]
        if any(one is not None and one.malformed > found.malformed for one in before):
            yield topic


def _made_before(later: Batch, consumed: Batch, topic: str) -> bool:
    """Returns whether a batch looked back at malformed records among those that another batch consumed, before that batch was
    written again.
    """
    written, again = later.require_written, consumed.require_written
    found = written.sources.get(topic)
    if found is None or not found.looked_back_malformed or written.written_at > again.written_at:
        return False
    own = {part.partition_id: part for part in consumed.plan.ranges if part.topic == topic and part.length}
    return any(
        part.partition_id in own and part.start < own[part.partition_id].end and own[part.partition_id].start < part.end
        for part in later.plan.looked_back_ranges
    )
