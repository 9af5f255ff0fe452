"""The intervals of `fencepost run --each` are those of the timetable that Fencepost's DAGs have, wherever clocks change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from airflow.timetables.base import TimeRestriction
from pendulum import instance

from fencepost.airflow.timetable import IntervalTimetable
from fencepost.config.intervals import intervals_between
from fencepost.config.pipeline import Schedule
from fencepost.errors import SettingsError
from fencepost.model import Interval

DAILY = "0 0 * * *"
CRONS = (
    *(DAILY, "@daily", "30 2 * * *", "0 2 * * *", "0 3 * * 1", "0 6 * * 1-5", "0 0,12 * * *", "0 */2 * * *"),
    *("0 * * * *", "@hourly", "*/15 * * * *", "*/25 * * * *", "30 * * * *", "30 1,2,3 * * *", "0 9-17 * * *"),
    *("15 0 1 * *", "0 * 1 * *", "0 0 L * *", "0 0 29 2 *", "0 0 1 * 1"),
)
# Some hours before clocks go forward, go back, or skip a day; some are no boundary of any cron.
CHANGES = (
    ("Europe/Vienna", datetime(2026, 3, 28, 20, tzinfo=UTC)),
    ("Europe/Vienna", datetime(2026, 10, 24, 20, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2023, 11, 5, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 9, 30, tzinfo=UTC)),  # by half an hour
    ("America/Havana", datetime(2024, 3, 10, tzinfo=UTC)),  # at midnight
    ("Antarctica/Troll", datetime(2024, 10, 26, 19, tzinfo=UTC)),  # by two hours
    ("Pacific/Apia", datetime(2011, 12, 29, 20, 59, 59, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 3, 28, 20, tzinfo=UTC)),  # never
)
COMPARED = 40
STUCK = "no interval after this one"


def of_airflow(cron: str, zone: str, start: datetime, end: datetime) -> Iterator[Interval]:
    """As a backfill between these times asks the DAG's timetable."""
    timetable = IntervalTimetable(cron, timezone=zone)
    between = TimeRestriction(instance(start), instance(end), catchup=True)
    last = None
    while (info := timetable.next_dagrun_info(last_automated_data_interval=last, restriction=between)) is not None:
        last = info.data_interval
        if last.end > end:
            return
        yield Interval(start=last.start, end=last.end)


def taken(intervals: Iterator[Interval]) -> list[Any]:
    """The first of them, and whether there is no way on."""
    found: list[Any] = []
    try:
        for interval in islice(intervals, COMPARED):
            found.append(interval)
    except (SettingsError, ValueError):
        found.append(STUCK)
    return found


@pytest.mark.parametrize("cron", CRONS)
def test_the_intervals_are_airflows(cron: str) -> None:
    for zone, start in CHANGES:
        schedule, end = Schedule(cron=cron, timezone=zone, start=start), start + timedelta(days=400)
        ours = taken(intervals_between(schedule, start, end))
        assert ours == taken(of_airflow(cron, zone, start, end)), zone
        assert all(start <= i.start and i.end <= end for i in ours if i is not STUCK)


def test_a_day_has_23_or_25_hours_where_clocks_change() -> None:
    schedule = Schedule(cron=DAILY, timezone="Europe/Vienna", start=CHANGES[0][1])
    year = intervals_between(schedule, datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2027, 12, 31, 23, tzinfo=UTC))
    hours = [(i.end - i.start) / timedelta(hours=1) for i in year]
    assert (len(hours), hours.count(23), hours.count(25)) == (730, 2, 2)
