"""Finds the intervals of a schedule between two times, the intervals that have ended, and what a person should know
about the schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from fencepost.config.cron import NO_SUCH_YEAR
from fencepost.config.sections import Schedule
from fencepost.model import Interval

INSTEAD = (
    "If each interval has to end at a time of the cron, use a cron of every half-hour or of days, or timezone UTC."
)
AHEAD = timedelta(days=2 * 366)  # how far ahead a schedule is searched for unusual intervals


def intervals_between(schedule: Schedule, start: datetime, end: datetime) -> Iterator[Interval]:
    """Yields the schedule's intervals that lie wholly between the two times, in order. It ignores `schedule.start` and
    `schedule.end`, as a backfill does.
    """
    for interval in schedule.boundaries.intervals_from(start):
        if interval.end > end:
            return
        yield interval


def newest_ended(schedule: Schedule, now: datetime) -> Iterator[Interval]:
    """Yields the schedule's intervals that have ended, the newest first. Airflow makes runs for them. `schedule.end`
    limits the start of an interval, so the last interval may end after it.
    """
    cron = schedule.boundaries
    end = cron.at_or_before(now)
    if schedule.end is not None:
        end = min(end, cron.after(cron.before(schedule.end)))
    while (begin := cron.before(end)) >= schedule.start:
        yield Interval(start=begin, end=end)
        end = begin


def parts_left_out(schedule: Schedule, within: Interval, chosen: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Returns the parts of the time `within` that the intervals in `chosen` do not cover. `chosen` has the intervals
    that lie wholly within that time. So there may be a part at each end, and each comes with the interval that it
    belongs to.
    """
    cron, parts = schedule.boundaries, list[tuple[Interval, Interval]]()
    if within.start < chosen[0].start:
        parts.append((Interval(start=within.start, end=chosen[0].start), cron.interval_at(within.start)))
    if chosen[-1].end < within.end:
        parts.append((Interval(start=chosen[-1].end, end=within.end), cron.interval_at(chosen[-1].end)))
    return parts


def in_zone(moment: datetime, timezone: str) -> str:
    """Returns a time as in `pipeline.yaml` and on the command line, with the offset of the schedule's zone."""
    local = moment.astimezone(ZoneInfo(timezone))
    return local.isoformat(timespec="auto" if local.second or local.microsecond else "minutes")


@dataclass(frozen=True)
class ScheduleWarning:
    """A property of a schedule that a person should know, and advice."""

    text: str
    advice: str


def schedule_warnings(schedule: Schedule, now: datetime) -> list[ScheduleWarning]:
    """Returns warnings about a start that is not a time of the cron, and about intervals that do not end at times of
    the cron.
    """
    found = list(_start_warnings(schedule))
    if text := clock_changes(schedule, now):
        found.append(ScheduleWarning(text, INSTEAD))
    return found


def _start_warnings(schedule: Schedule) -> Iterator[ScheduleWarning]:
    try:
        whole = schedule.boundaries.interval_at(schedule.start)
    except NO_SUCH_YEAR:
        return
    if whole.start == schedule.start:
        return
    start, before, after = (in_zone(at, schedule.timezone) for at in (schedule.start, whole.start, whole.end))
    yield ScheduleWarning(
        f"schedule.start, {start}, is not a time of cron {schedule.cron!r} in {schedule.timezone}. The first "
        f"scheduled interval begins at the next one, {after}, so no scheduled run reads records with earlier "
        "timestamps.",
        f"Set schedule.start to {before} to include the interval before it, or to {after}.",
    )


def left_out(schedule: Schedule, known: Sequence[Interval]) -> Iterator[Interval]:
    """Yields the schedule's intervals that lie before a `known` interval and overlap no known interval. The intervals
    are in order, from the schedule's start on.

    Under `catchup` Airflow makes runs only for intervals after its latest run, and a backfill's run counts as the
    latest too. So Airflow makes no runs for these intervals. Without `catchup` intervals are left out on purpose.
    """
    if schedule.catchup:
        with suppress(*NO_SUCH_YEAR):
            yield from _between(schedule, known)


def _between(schedule: Schedule, known: Sequence[Interval]) -> Iterator[Interval]:
    cron, begin = schedule.boundaries, schedule.start
    for one in sorted(known, key=lambda interval: interval.start):
        if begin < one.start:  # the cron is evaluated only within a gap, because that takes time
            for interval in cron.intervals_from(begin):
                if interval.end > one.start or (schedule.end is not None and interval.start >= schedule.end):
                    break
                yield interval
        begin = max(begin, one.end)


def clock_changes(schedule: Schedule, now: datetime) -> str:
    """Describes what the schedule does when clocks change by other than whole hours. The text is empty if all intervals
    end at times of the cron.
    """
    unusual = list(schedule.boundaries.unusual_between(min(schedule.start, now), now + AHEAD))
    if not unusual:
        return ""
    named = next((interval for interval in unusual if interval.end > now), unusual[-1])
    return (
        f"Clocks in {schedule.timezone} do not change by whole hours, so intervals of cron {schedule.cron!r} would "
        f"overlap. To prevent this, interval {named.description} does not end at a time of the cron, and the next interval "
        "begins where it ends. No intervals overlap, and no time is left out."
    )
