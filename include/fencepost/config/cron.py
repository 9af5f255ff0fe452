"""Reads crons, for Airflow's timetable and for commands. A cron has boundaries, which divide time into intervals. No
other module reads crons.

The boundaries are those of Airflow's `CronDataIntervalTimetable`, except around some clock changes. Where clocks
change, a cron for every hour follows elapsed time, and any other cron follows the clock on the wall. If clocks change
by half an hour, Airflow's own intervals overlap, or Airflow finds no next interval. If a zone skips a day, Airflow's
intervals leave out time. In this module each interval begins where the previous interval ends, and ends at the next
boundary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

from fencepost.model import Interval

NO_SUCH_YEAR = (OverflowError, CroniterBadDateError)  # errors for a year that the cron library cannot compute
FIELDS = 6  # minute, hour, day, month, day of the week, second; croniter takes years as the seventh
# No boundary that a change of clocks moved is farther from the cron's time, because clocks have changed by a day at
# most.
FARTHEST = timedelta(hours=26)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def check_cron(expression: str) -> None:
    """Checks that an expression divides time, and always in the same way.

    Raises:
        ValueError: the expression does not. The text says why.
    """
    if not croniter.is_valid(expression):
        raise ValueError("not a cron expression; '0 0 * * *', for example, is every midnight")
    if "r" in re.split(r"[\s,(]", expression.lower()):
        raise ValueError("R means a random time, which changes at each reading, so intervals would overlap")
    if len(expression.split()) > FIELDS:
        raise ValueError(
            "it names years, and the schedule would have no interval in other years; remove the years, and set schedule.end"
        )
    try:
        croniter(expression, datetime.now(UTC)).get_next()
    except CroniterBadDateError:
        raise ValueError("it never occurs") from None


class Cron:
    """The boundaries at which a cron in a time zone divides time. All times are UTC.

    A boundary depends on cron and time zone only. The start of a search has no influence on a boundary.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        self._expression, self._zone = expression, ZoneInfo(timezone)
        # Whether the cron is for every hour, including one that clocks show twice. Airflow decides it in the same way.
        self._is_hourly: bool = croniter(expression).expanded[1] == ["*"]

    def after(self, moment: datetime) -> datetime:
        """Returns the first boundary after this time."""
        return next(boundary for boundary in self._around(moment) if boundary > moment)

    def at_or_after(self, moment: datetime) -> datetime:
        """Returns this time if it is a boundary, and otherwise the first boundary after it."""
        return next(boundary for boundary in self._around(moment) if boundary >= moment)

    def at_or_before(self, moment: datetime) -> datetime:
        """Returns this time if it is a boundary, and otherwise the last boundary before it."""
        return next(begin for begin, end in pairwise(self._around(moment)) if end > moment)

    def before(self, moment: datetime) -> datetime:
        """Returns the last boundary before this time."""
        return self.at_or_before(moment - timedelta(microseconds=1))

    def interval_at(self, moment: datetime) -> Interval:
        """Returns the interval that contains this time."""
        return Interval(start=self.at_or_before(moment), end=self.after(moment))

    def intervals_from(self, moment: datetime) -> Iterator[Interval]:
        """Yields the intervals that begin at this time or later, in order, without an end."""
        for begin, end in pairwise(self._from(self.at_or_after(moment))):
            yield Interval(start=begin, end=end)

    def unusual_between(self, start: datetime, end: datetime) -> Iterator[Interval]:
        """Yields the intervals that do not end at a time of the cron, because clocks change by other than whole hours.

        At these intervals, Airflow's own intervals overlap, or Airflow finds no next interval.
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
        """Yields boundaries in order. The first boundary is at this time or before it.

        A time of the cron is a boundary unless a step across a change of clocks skipped it. So the first boundary comes
        from a stretch without a change of clocks between it and the step that leads to it.
        """
        boundary = self._last_time(moment)
        while self._offset(earlier := self._last_time(boundary - FARTHEST)) != self._offset(boundary):
            boundary = earlier
        return self._from(boundary)

    def _last_time(self, moment: datetime) -> datetime:
        """Returns the last time of the cron that is not after this time."""
        times = croniter(self._expression, self._on_the_wall(moment) + timedelta(microseconds=1))
        while (found := self._at(times.get_prev(datetime))) > moment:
            pass  # the clock shows this time twice, and the second occurrence is later than `moment`
        return found

    def _from(self, boundary: datetime) -> Iterator[datetime]:
        """Yields a boundary and all boundaries after it."""
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
        """Returns the time at which the clock on the wall shows `naive`.

        If the clock shows it twice, the result is the second time. If the clock skips it, the result is as long after
        the change as it would have been without the change.
        """
        first, second = (naive.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        skipped = (second.utcoffset() or timedelta()) > (first.utcoffset() or timedelta())
        return (first if skipped else second).astimezone(UTC)
