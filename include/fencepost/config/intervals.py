"""The intervals that a schedule cuts time into.

They are those of Airflow's `CronDataIntervalTimetable`, which `tests/dag/test_intervals.py` compares, without its import and its
database. Where clocks change, a cron that comes by every hour goes by elapsed time, and any other by the clock on the wall.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter

from fencepost.config.pipeline import Schedule
from fencepost.errors import SettingsError
from fencepost.model import Interval


def intervals_between(schedule: Schedule, start: datetime, end: datetime) -> Iterator[Interval]:
    """The schedule's intervals that lie wholly between the two times, in order. `schedule.start` and `.end` do not bound them,
    as they do not bound a backfill.

    Raises:
        SettingsError: Airflow's timetable does not get past an interval either.
    """
    cron = _Cron(schedule.cron, ZoneInfo(schedule.timezone))
    first = begin = cron.aligned_after(start)
    while (until := cron.after(begin)) <= end:
        yield Interval(start=begin, end=until)
        last, begin = begin, max(cron.aligned_before(until), first)
        if begin <= last and (begin := cron.after(begin)) <= last:  # an hourly cron where clocks change by half an hour
            raise SettingsError(
                f"cron {schedule.cron!r} in {schedule.timezone}: Airflow finds no interval after the one that begins at "
                f"{last:%Y-%m-%d %H:%M} UTC, where clocks change. Begin after it."
            )


class _Cron:
    """A cron in a time zone; all moments are UTC."""

    def __init__(self, cron: str, zone: ZoneInfo) -> None:
        self._cron, self._zone = cron, zone

    def after(self, moment: datetime) -> datetime:
        """The first boundary after this moment."""
        naive = self._on_the_wall(moment)
        moments = croniter(self._cron, naive)
        return self._found(moments, moment, naive, moments.get_next(datetime))

    def before(self, moment: datetime) -> datetime:
        """The last boundary before this moment."""
        naive = self._on_the_wall(moment)
        moments = croniter(self._cron, naive)
        return self._found(moments, moment, naive, moments.get_prev(datetime))

    def aligned_after(self, moment: datetime) -> datetime:
        """The moment itself if it is a boundary, otherwise the first one after it."""
        later = self.after(moment)
        return moment if self.before(later) == moment else later

    def aligned_before(self, moment: datetime) -> datetime:
        """The moment itself if it is a boundary, otherwise the last one before it."""
        earlier = self.before(moment)
        return moment if self.after(earlier) == moment else earlier

    def _on_the_wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None)

    def _found(self, moments: croniter, moment: datetime, naive: datetime, boundary: datetime) -> datetime:
        """The boundary as a moment, from what the clock on the wall shows then."""
        if moments.expanded[1] == ["*"]:  # every hour, the one that comes twice too
            return moment + (boundary - naive)
        first, second = (boundary.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        # A time that the clock shows twice is the second; one that it leaves out is as long after the change as it would be.
        skipped = (second.utcoffset() or timedelta()) > (first.utcoffset() or timedelta())
        return (first if skipped else second).astimezone(UTC)
