"""The one reader of crons: the intervals that a schedule cuts time into, for Airflow's timetable and for commands alike.

They are those of Airflow's `CronDataIntervalTimetable`, with one exception. Where clocks change, a cron that comes by every hour
goes by elapsed time, and any other by the clock on the wall. Where clocks change by half an hour, Airflow's own intervals would
overlap, or it would find no next one; where a zone skipped a day, they would leave time out. Here each interval begins where the
one before ends, and ends at the next boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

from fencepost.config.pipeline import Schedule
from fencepost.model import Interval

# A boundary that a change of clocks moved lies no farther from the cron's time: clocks have changed by a day at most.
FARTHEST = timedelta(hours=26)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
INSTEAD = "If each interval has to end at the cron's times, take a cron of every half-hour or of days, or timezone UTC."
AHEAD = timedelta(days=2 * 366)  # so far ahead a schedule is searched for unusual intervals


class Cron:
    """Where a cron in a time zone cuts time. All moments are UTC.

    A boundary depends on cron and time zone alone, never on where a search for it begins.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        self._expression, self._zone = expression, ZoneInfo(timezone)
        # Whether it comes by every hour, the one that comes twice too, as Airflow tells.
        self._is_hourly: bool = croniter(expression).expanded[1] == ["*"]

    @classmethod
    def of(cls, schedule: Schedule) -> Cron:
        """That of a schedule."""
        return cls(schedule.cron, schedule.timezone)

    def after(self, moment: datetime) -> datetime:
        """The first boundary after this moment."""
        return next(boundary for boundary in self._around(moment) if boundary > moment)

    def at_or_after(self, moment: datetime) -> datetime:
        """The moment itself if it is a boundary, otherwise the first one after it."""
        return next(boundary for boundary in self._around(moment) if boundary >= moment)

    def at_or_before(self, moment: datetime) -> datetime:
        """The moment itself if it is a boundary, otherwise the last one before it."""
        return next(begin for begin, end in pairwise(self._around(moment)) if end > moment)

    def before(self, moment: datetime) -> datetime:
        """The last boundary before this moment."""
        return self.at_or_before(moment - timedelta(microseconds=1))

    def interval_at(self, moment: datetime) -> Interval:
        """The interval that a moment is in."""
        return Interval(start=self.at_or_before(moment), end=self.after(moment))

    def intervals_from(self, moment: datetime) -> Iterator[Interval]:
        """The intervals that begin at this moment or after it, in order, without an end. Each begins where the last one ends."""
        for begin, end in pairwise(self._from(self.at_or_after(moment))):
            yield Interval(start=begin, end=end)

    def unusual_between(self, start: datetime, end: datetime) -> Iterator[Interval]:
        """The intervals that end at another time than the cron's, where clocks change by other than whole hours.

        Airflow's own intervals overlap there, or it finds no next one.
        """
        while self._is_hourly and start < end:
            if (self._offset(start + DAY) - self._offset(start)) % HOUR:
                for interval in self.intervals_from(self.at_or_before(start)):
                    if interval.start > start + DAY:
                        break
                    if not croniter.match(self._expression, self._on_the_wall(interval.end)):
                        yield interval
            start += DAY

    def _around(self, moment: datetime) -> Iterator[datetime]:
        """Boundaries from one that lies at this moment or before it.

        A cron's time is a boundary unless a step across a change of clocks passed it by. So one is taken before which clocks
        have not changed since the step that led there.
        """
        boundary = self._last_time(moment)
        while self._offset(earlier := self._last_time(boundary - FARTHEST)) != self._offset(boundary):
            boundary = earlier
        return self._from(boundary)

    def _last_time(self, moment: datetime) -> datetime:
        """The last of the cron's times that is not after this moment."""
        times = croniter(self._expression, self._on_the_wall(moment) + timedelta(microseconds=1))
        while (found := self._at(times.get_prev(datetime))) > moment:
            pass  # the clock shows it twice, and the second time is still to come
        return found

    def _from(self, boundary: datetime) -> Iterator[datetime]:
        """A boundary and all that follow."""
        shown = self._on_the_wall(boundary)
        times = croniter(self._expression, shown)
        while True:
            yield boundary
            following: datetime = times.get_next(datetime)
            boundary = boundary + (following - shown) if self._is_hourly else self._at(following)
            shown = self._on_the_wall(boundary)
            if shown != following:  # clocks have changed
                times = croniter(self._expression, shown)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()

    def _on_the_wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None)

    def _at(self, naive: datetime) -> datetime:
        """The moment at which the clock on the wall shows this.

        A time that it shows twice is the second; one that it leaves out is as long after the change as it would be.
        """
        first, second = (naive.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        skipped = (second.utcoffset() or timedelta()) > (first.utcoffset() or timedelta())
        return (first if skipped else second).astimezone(UTC)


def intervals_between(schedule: Schedule, start: datetime, end: datetime) -> Iterator[Interval]:
    """The schedule's intervals that lie wholly between the two times, in order. `schedule.start` and `.end` do not bound them,
    as they do not bound a backfill."""
    for interval in Cron.of(schedule).intervals_from(start):
        if interval.end > end:
            return
        yield interval


def newest_ended(schedule: Schedule, now: datetime) -> Iterator[Interval]:
    """The schedule's intervals that have ended, the newest first: those that Airflow makes runs for. `schedule.end` bounds an
    interval's start, so the last one may end after it."""
    cron = Cron.of(schedule)
    end = cron.at_or_before(now)
    if schedule.end is not None:
        end = min(end, cron.after(cron.before(schedule.end)))
    while (begin := cron.before(end)) >= schedule.start:
        yield Interval(start=begin, end=end)
        end = begin


def parts_left_out(schedule: Schedule, within: Interval, chosen: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Where `chosen`, the intervals that lie wholly within a time, leave out part of it at its ends: each part, and the interval
    that it is of."""
    cron, parts = Cron.of(schedule), list[tuple[Interval, Interval]]()
    if within.start < chosen[0].start:
        parts.append((Interval(start=within.start, end=chosen[0].start), cron.interval_at(within.start)))
    if chosen[-1].end < within.end:
        parts.append((Interval(start=chosen[-1].end, end=within.end), cron.interval_at(chosen[-1].end)))
    return parts


def in_zone(moment: datetime, timezone: str) -> str:
    """A moment as `pipeline.yaml` and a command have it: with the offset of the schedule's zone."""
    local = moment.astimezone(ZoneInfo(timezone))
    return local.isoformat(timespec="auto" if local.second or local.microsecond else "minutes")


@dataclass(frozen=True)
class ScheduleWarning:
    """What a person should know of a schedule, and what to do about it."""

    text: str
    advice: str


def schedule_warnings(schedule: Schedule, now: datetime) -> list[ScheduleWarning]:
    """A start that is no moment of the cron, and intervals that end at other times than the cron's."""
    found = list(_start_warnings(schedule))
    if text := clock_changes(schedule, now):
        found.append(ScheduleWarning(text, INSTEAD))
    return found


def _start_warnings(schedule: Schedule) -> Iterator[ScheduleWarning]:
    try:
        whole = Cron.of(schedule).interval_at(schedule.start)
    except (OverflowError, CroniterBadDateError):
        return  # no cron knows the year
    if whole.start == schedule.start:
        return
    start, before, after = (in_zone(at, schedule.timezone) for at in (schedule.start, whole.start, whole.end))
    yield ScheduleWarning(
        f"schedule.start, {start}, is no moment of cron {schedule.cron!r} in {schedule.timezone}. The first scheduled interval "
        f"begins at the next one, {after}: no scheduled run reads records that are stamped before.",
        f"Set schedule.start to {before} to have the interval before it too, or to {after}.",
    )


def left_out(schedule: Schedule, known: Sequence[Interval]) -> Iterator[Interval]:
    """The schedule's intervals, from its start on, that lie before one that is `known` and overlap none of these, in order.

    Under `catchup` Airflow makes a run for each interval behind its latest run, and a backfill's run counts for that too. So it
    makes none for these. Without `catchup` intervals are left out on purpose.
    """
    if schedule.catchup:
        with suppress(OverflowError, CroniterBadDateError):  # no cron knows the year
            yield from _between(schedule, known)


def _between(schedule: Schedule, known: Sequence[Interval]) -> Iterator[Interval]:
    cron, begin = Cron.of(schedule), schedule.start
    for one in sorted(known, key=lambda interval: interval.start):
        if begin < one.start:  # only in a gap the cron is asked, which takes time
            for interval in cron.intervals_from(begin):
                if interval.end > one.start or (schedule.end is not None and interval.start >= schedule.end):
                    break
                yield interval
        begin = max(begin, one.end)


def clock_changes(schedule: Schedule, now: datetime) -> str:
    """What the schedule does where clocks change by other than whole hours, for a person; empty where it keeps its times."""
    unusual = list(Cron.of(schedule).unusual_between(min(schedule.start, now), now + AHEAD))
    if not unusual:
        return ""
    named = next((interval for interval in unusual if interval.end > now), unusual[-1])
    return (
        f"Clocks in {schedule.timezone} change by other than whole hours, and intervals of cron {schedule.cron!r} would overlap "
        f"there. So the interval {named.told} ends at another time than the cron's, and the next one begins there: none "
        "overlaps, and no time is left out."
    )
