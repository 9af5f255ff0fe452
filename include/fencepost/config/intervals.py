"""The intervals of a schedule: those between two moments, those that have ended, and what a person should know of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from fencepost.config.cron import NO_SUCH_YEAR
from fencepost.config.sections import Schedule
from fencepost.model import Interval

INSTEAD = "If each interval has to end at the cron's times, take a cron of every half-hour or of days, or timezone UTC."
AHEAD = timedelta(days=2 * 366)  # so far ahead a schedule is searched for unusual intervals


def intervals_between(schedule: Schedule, start: datetime, end: datetime) -> Iterator[Interval]:
    """The schedule's intervals that lie wholly between the two times, in order. `schedule.start` and `.end` do not bound them,
    as they do not bound a backfill."""
    for interval in schedule.boundaries.intervals_from(start):
        if interval.end > end:
            return
        yield interval


def newest_ended(schedule: Schedule, now: datetime) -> Iterator[Interval]:
    """The schedule's intervals that have ended, the newest first: those that Airflow makes runs for. `schedule.end` bounds an
    interval's start, so the last one may end after it."""
    cron = schedule.boundaries
    end = cron.at_or_before(now)
    if schedule.end is not None:
        end = min(end, cron.after(cron.before(schedule.end)))
    while (begin := cron.before(end)) >= schedule.start:
        yield Interval(start=begin, end=end)
        end = begin


def parts_left_out(schedule: Schedule, within: Interval, chosen: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Where `chosen`, the intervals that lie wholly within a time, leave out part of it at its ends: each part, and the interval
    that it is of."""
    cron, parts = schedule.boundaries, list[tuple[Interval, Interval]]()
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
        whole = schedule.boundaries.interval_at(schedule.start)
    except NO_SUCH_YEAR:
        return
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
        with suppress(*NO_SUCH_YEAR):
            yield from _between(schedule, known)


def _between(schedule: Schedule, known: Sequence[Interval]) -> Iterator[Interval]:
    cron, begin = schedule.boundaries, schedule.start
    for one in sorted(known, key=lambda interval: interval.start):
        if begin < one.start:  # only in a gap the cron is asked, which takes time
            for interval in cron.intervals_from(begin):
                if interval.end > one.start or (schedule.end is not None and interval.start >= schedule.end):
                    break
                yield interval
        begin = max(begin, one.end)


def clock_changes(schedule: Schedule, now: datetime) -> str:
    """What the schedule does where clocks change by other than whole hours, for a person; empty where it keeps its times."""
    unusual = list(schedule.boundaries.unusual_between(min(schedule.start, now), now + AHEAD))
    if not unusual:
        return ""
    named = next((interval for interval in unusual if interval.end > now), unusual[-1])
    return (
        f"Clocks in {schedule.timezone} change by other than whole hours, and intervals of cron {schedule.cron!r} would overlap "
        f"there. So the interval {named.told} ends at another time than the cron's, and the next one begins there: none "
        "overlaps, and no time is left out."
    )
