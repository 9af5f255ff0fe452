"""Chooses the interval that a draft begins with, and warns about the sample's timestamps. Timestamps decide which
interval a record falls into.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.config.cron import Cron
from fencepost.counts import count_of
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.sample import Sample, Sampled, take_newest
from fencepost.model import Interval, time_of
from fencepost.protocol.ranges import CLOCKS
from fencepost.protocol.unread import EPOCH, FIRST_CREDIBLE


@dataclass(frozen=True)
class ChosenInterval:
    """The first interval to run.

    `ended` says whether the interval has ended, and `records` is the number of its offsets now. `unread` is the number
    of offsets before the interval. No run from the interval on reads these offsets. `whole` is the latest start of an
    interval from which runs read everything in the topic.
    """

    interval: Interval
    ended: bool
    records: int
    unread: int
    whole: datetime


def choose_interval(
    cluster: Cluster, samples: Sequence[Sample], group: str, cron: Cron, now: datetime
) -> ChosenInterval:
    """Returns the newest interval that has ended and has records of one of the sampled topics. Otherwise it returns the
    interval of the newest record. For empty topics it returns the newest interval that has ended.
    """
    topics = [_SampledTopic(cluster, sample, group, now) for sample in samples]
    current = cron.interval_at(now)
    if stamped := [at for one in topics if (at := one.newest_before(current.start)) is not None]:
        interval = cron.interval_at(time_of(max(stamped)))
    elif newest := [at for one in topics if (at := one.newest()) is not None]:
        interval = cron.interval_at(time_of(max(newest)))
    else:
        interval = Interval(start=cron.before(current.start), end=current.start)
    return ChosenInterval(
        interval,
        ended=interval.end <= now,
        records=sum(one.records(interval) for one in topics),
        unread=sum(one.unread(interval.start) for one in topics),
        whole=min(one.whole(interval.start, cron) for one in topics),
    )


@dataclass(frozen=True)
class _SampledTopic:
    """A topic with its sample, and the offsets at which intervals would begin."""

    cluster: Cluster
    sample: Sample
    group: str
    now: datetime

    @property
    def _limit(self) -> int:
        return _milliseconds(self.now + CLOCKS)

    def _first_at(self, moment: datetime) -> list[int]:
        """Returns where a plan's first range would begin, in each partition."""
        sample = self.sample
        if moment <= EPOCH:
            return list(sample.earliest)
        earliest = list(sample.earliest)
        found = self.cluster.first_at_or_after(sample.topic, _milliseconds(moment), self.group, earliest, self._limit)
        return [end if offset is None else offset for offset, end in zip(found, sample.ends, strict=True)]

    def newest_before(self, moment: datetime) -> int | None:
        """Returns the newest timestamp before this moment, in milliseconds, or None if there is none."""
        topic, ends = self.sample.topic, self._first_at(moment)
        found = take_newest(self.cluster, topic, self.group, topic.partitions, ends=ends).records
        stamped = [at for one in found if (at := one.timestamp) is not None and at < _milliseconds(moment)]
        return max(stamped, default=None)

    def newest(self) -> int | None:
        """Returns the newest timestamp in the sample that is not ahead of the clock, or None if there is none."""
        records = self.sample.records
        return max((at for one in records if (at := one.timestamp) is not None and at <= self._limit), default=None)

    def records(self, interval: Interval) -> int:
        """Returns the number of the interval's offsets."""
        return _between(self._first_at(interval.start), self._first_at(interval.end))

    def unread(self, start: datetime) -> int:
        """Returns the number of offsets before an interval that begins at this moment."""
        return _between(self.sample.earliest, self._first_at(start))

    def whole(self, start: datetime, cron: Cron) -> datetime:
        """Returns the latest start of an interval from which runs read everything, not after this moment."""
        if not self.unread(start):
            return start
        earliest = dict(enumerate(self.sample.earliest))
        firsts = self.cluster.record_times(self.sample.topic, earliest, self.group).values()
        whole = cron.at_or_before(min(firsts, default=EPOCH))
        # Earlier offsets are of aborted records, or of records with timestamps ahead of the clock.
        return cron.at_or_before(EPOCH) if self.unread(whole) else whole


def _between(starts: Sequence[int], ends: Sequence[int]) -> int:
    return sum(max(0, end - start) for start, end in zip(starts, ends, strict=True))


def _milliseconds(moment: datetime) -> int:
    return max(0, round(moment.timestamp() * 1000))


def doubts(sample: Sample, cron: Cron, now: datetime) -> Iterator[str]:
    """Yields what a person should know about the sample's timestamps, because intervals depend on them."""
    records = sample.records
    stamped = [one for one in records if one.timestamp is not None and one.timestamp > 0]
    if len(stamped) < len(records):
        missing = len(records) - len(stamped)
        yield (
            f"{missing:,} of {count_of(len(records), 'sampled record')} have no timestamp. A plan searches by "
            "timestamp, so each of them falls into the interval that is open at its offset. Records before the first "
            "record of the first interval fall into no interval."
        )
    times = [one.timestamp or 0 for one in stamped]
    early = sum(time_of(at) < FIRST_CREDIBLE for at in times)
    if early:
        yield (
            f"{early:,} of {len(records):,} sampled records have timestamps before {FIRST_CREDIBLE.year}, the first "
            f"in {time_of(min(times)).year}. Their producer may have written seconds instead of milliseconds. A "
            "plan uses the timestamps as they are."
        )
    ahead = sum(at > _milliseconds(now + CLOCKS) for at in times)
    if ahead:
        yield (
            f"{ahead:,} of {len(records):,} sampled records have timestamps in the future. A plan skips them when "
            "it searches for the end of an interval. Check the producers' clocks and units."
        )
    credible = [one for one in stamped if (one.timestamp or 0) <= _milliseconds(now + CLOCKS)]
    back, moved = _disorder(credible, cron)
    if back:
        places = count_of(back, "place")
        of = f"of {count_of(len(records), 'sampled record')}"
        extent = f"About {_percent(moved, len(records))} ({moved:,} {of})" if moved else f"None {of}"
        yield (
            f"In {places} of the sample an older timestamp follows a newer one. An interval ends at the first "
            "record with a timestamp at or after its end, so older records after that record fall into a later "
            f"interval. {extent} would be in another interval than the interval of their timestamp."
        )
    if len(times) > 1 and len(set(times)) == 1:
        yield "All sampled records have the same timestamp, so all fall into one interval, whatever their contents."
    elif len(times) > 1 and cron.interval_at(time_of(min(times))) == cron.interval_at(time_of(max(times))):
        by = " (the broker set them when the records were loaded)" if all(one.at_load for one in stamped) else ""
        yield (
            f"All sampled records have timestamps within {_describe_time(max(times) - min(times))}{by}, so they fall into one "
            "interval, whatever their contents. If they were loaded at once, produce them with the timestamps of their "
            "events."
        )


def _disorder(records: Sequence[Sampled], cron: Cron) -> tuple[int, int]:
    """Returns how often an older timestamp follows a newer timestamp in a partition, and how many records fall into
    another interval than the interval of their timestamp.

    A record falls into the interval of the newest timestamp so far. `records` are in the order of partitions and offsets, and
    have timestamps that a plan uses.
    """
    back = moved = 0
    ends = _Ends(cron)
    newest: dict[int, int] = {}
    last: dict[int, int] = {}
    for one in records:
        at = one.timestamp or 0
        back += at < last.get(one.partition, at)
        last[one.partition] = at
        newest[one.partition] = max(at, newest.get(one.partition, at))
        moved += at < newest[one.partition] and newest[one.partition] >= ends.of(at)
    return back, moved


class _Ends:
    """The end of the interval of a timestamp, in milliseconds. The cron is evaluated once for each interval."""

    def __init__(self, cron: Cron) -> None:
        self._cron = cron
        self._known: list[tuple[int, int]] = []

    def of(self, at: int) -> int:
        place = bisect_right(self._known, at, key=lambda known: known[0])
        if place == 0 or self._known[place - 1][1] <= at:
            interval = self._cron.interval_at(time_of(at))
            self._known.insert(place, (_milliseconds(interval.start), _milliseconds(interval.end)))
            place += 1
        return self._known[place - 1][1]


def _percent(part: int, whole: int) -> str:
    share = f"{100 * part / whole:.1f}".removesuffix(".0")
    return "less than 0.1 %" if share == "0" else f"{share} %"


def _describe_time(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    return str(timedelta(seconds=round(milliseconds / 1000)))
