"""One reader of crons: the intervals of `fencepost run --each` are those that Fencepost's DAGs get, and they are Airflow's own
wherever these do not overlap."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st
from pendulum import instance

from fencepost.airflow.timetable import IntervalTimetable
from fencepost.config.cron import Cron
from fencepost.config.intervals import clock_changes, intervals_between
from fencepost.config.sections import Schedule
from fencepost.model import Interval

DAILY = "0 0 * * *"
CRONS = (
    *(DAILY, "@daily", "30 2 * * *", "0 2 * * *", "0 3 * * 1", "0 6 * * 1-5", "0 0,12 * * *", "0 */2 * * *"),
    *("0 * * * *", "@hourly", "*/15 * * * *", "*/25 * * * *", "30 * * * *", "30 1,2,3 * * *", "0 9-17 * * *"),
    *("15 0 1 * *", "0 * 1 * *", "0 0 L * *", "0 0 29 2 *", "0 0 1 * 1", "15,45 * * * *", "7 * * * *"),
)
# Some hours before clocks go forward, go back, or skip a day; some are no boundary of any cron.
CHANGES = (
    ("Europe/Vienna", datetime(2026, 3, 28, 20, tzinfo=UTC)),
    ("Europe/Vienna", datetime(2026, 10, 24, 20, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2023, 11, 5, 1, tzinfo=UTC)),
    ("America/Havana", datetime(2024, 3, 10, tzinfo=UTC)),  # at midnight
    ("Antarctica/Troll", datetime(2024, 10, 26, 19, tzinfo=UTC)),  # by two hours
    ("Pacific/Apia", datetime(2011, 12, 29, 20, 59, 59, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 3, 28, 20, tzinfo=UTC)),  # never
)
# By half an hour and the like: here Airflow's own intervals overlap, for crons that come by every hour.
ODD_CHANGES = (
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 9, 30, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 9, 30, tzinfo=UTC)),
    ("Africa/Monrovia", datetime(1972, 1, 6, 20, tzinfo=UTC)),  # by 44 minutes and 30 seconds
    ("Asia/Pyongyang", datetime(2018, 5, 4, 5, tzinfo=UTC)),
    ("America/Caracas", datetime(2007, 12, 9, 1, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(1985, 12, 31, 9, tzinfo=UTC)),  # by a quarter of an hour
)
# Airflow's own intervals leave time out where a zone skipped a day.
LEFT_OUT = {(cron, "Pacific/Apia") for cron in ("0 0,12 * * *", "0 */2 * * *", "0 9-17 * * *")}
COMPARED = 25
BY_THE_HOUR = {cron for cron in CRONS if cron == "@hourly" or cron.split()[1:2] == ["*"]}


def of_timetable(timetable: CronDataIntervalTimetable, start: datetime, end: datetime) -> Iterator[Interval]:
    """As a backfill between these times asks the DAG's timetable."""
    between = TimeRestriction(instance(start), instance(end), catchup=True)
    last = None
    while (info := timetable.next_dagrun_info(last_automated_data_interval=last, restriction=between)) is not None:
        last = info.data_interval
        if last.end > end:
            return
        yield Interval(start=last.start, end=last.end)


def touching(intervals: list[Interval]) -> bool:
    """Whether each begins where the one before ends."""
    return all(one.end == other.start for one, other in pairwise(intervals))


@pytest.mark.parametrize("cron", CRONS)
def test_the_intervals_of_command_and_dag_are_airflows(cron: str) -> None:
    odd = () if cron in BY_THE_HOUR else ODD_CHANGES
    for zone, start in (*CHANGES, *odd):
        schedule, end = Schedule(cron=cron, timezone=zone, start=start), start + timedelta(days=400)
        ours = list(islice(intervals_between(schedule, start, end), COMPARED))
        theirs = list(islice(of_timetable(CronDataIntervalTimetable(cron, zone), start, end), COMPARED))
        assert ours == list(islice(of_timetable(IntervalTimetable(cron, zone), start, end), COMPARED)), zone
        assert touching(ours), zone
        assert all(start <= i.start and i.end <= end for i in ours)
        left_out = (cron, zone) in LEFT_OUT
        assert touching(theirs) != left_out, zone
        assert {i for i in theirs if i.end <= ours[-1].end} < set(ours) if left_out else theirs == ours, zone
        assert clock_changes(schedule, start) == ""


def test_a_day_that_a_zone_skipped_leaves_no_time_out() -> None:
    """Apia had no 30 December 2011. Airflow's own timetable has no interval that begins at the midnight after it."""
    start = datetime(2011, 12, 29, 10, tzinfo=UTC)
    schedule = Schedule(cron="0 0,12 * * *", timezone="Pacific/Apia", start=start)
    hours = [i.start.hour for i in intervals_between(schedule, start, start + timedelta(days=2))]
    assert hours == [10, 22, 10, 22]


@pytest.mark.parametrize("cron", sorted(BY_THE_HOUR))
def test_where_airflows_overlap_ours_touch_and_are_airflows_again_a_day_later(cron: str) -> None:
    """Airflow's are asked again from two days later on: in the middle it may find none."""
    for zone, start in ODD_CHANGES:
        schedule, end = Schedule(cron=cron, timezone=zone, start=start), start + timedelta(days=60)
        ours = list(islice(intervals_between(schedule, start, end), 60))
        assert ours == list(islice(of_timetable(IntervalTimetable(cron, zone), start, end), 60)), zone
        assert touching(ours)
        later = start + timedelta(days=2)
        ours = list(islice(intervals_between(schedule, later, end), COMPARED))
        theirs = list(islice(of_timetable(CronDataIntervalTimetable(cron, zone), later, end), COMPARED))
        assert ours == theirs or cron == "0 * 1 * *", zone  # whose next hour is a month later


def times(*shown: str) -> list[datetime]:
    """Moments of one day and those after midnight, as `04-04 14:30` of 2026."""
    return [datetime.fromisoformat(f"2026-{one}+00:00") for one in shown]


@pytest.mark.parametrize(
    ("cron", "boundaries"),
    [
        ("30 * * * *", times("04-04 13:30", "04-04 14:30", "04-04 15:30", "04-04 16:00", "04-04 17:00", "04-04 18:00")),
        ("30 * * * *", times("10-03 14:00", "10-03 15:00", "10-03 16:00", "10-03 16:30", "10-03 17:30", "10-03 18:30")),
        ("0 * * * *", times("04-04 14:00", "04-04 15:00", "04-04 15:30", "04-04 16:30", "04-04 17:30")),
        ("0 * * * *", times("10-03 14:30", "10-03 15:30", "10-03 16:00", "10-03 17:00", "10-03 18:00")),
        ("15,45 * * * *", times("04-04 14:15", "04-04 14:45", "04-04 15:15", "04-04 15:45")),
        ("0 0 * * *", times("04-03 13:00", "04-04 13:00", "04-05 13:30", "04-06 13:30")),
    ],
)
def test_the_intervals_of_lord_howe(cron: str, boundaries: list[datetime]) -> None:
    """Clocks go back from 02:00 (+11:00) to 01:30 (+10:30) at 15:00 UTC on 4 April, and forward at 15:30 UTC on 3 October.

    Wherever one begins to ask, be it inside of an interval or at a boundary, they are the same.
    """
    expected = [Interval(start=begin, end=end) for begin, end in pairwise(boundaries)]
    zone = "Australia/Lord_Howe"
    for asked, interval in enumerate(expected):
        for start in (interval.start, interval.start - timedelta(minutes=1)):
            schedule = Schedule(cron=cron, timezone=zone, start=start)
            assert list(intervals_between(schedule, start, boundaries[-1])) == expected[asked:]
            assert list(of_timetable(IntervalTimetable(cron, zone), start, boundaries[-1])) == expected[asked:]
        for part in (0, 0.01, 0.5, 0.99):
            assert Cron(cron, zone).interval_at(interval.start + (interval.end - interval.start) * part) == interval


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANY = st.tuples(
    st.sampled_from(sorted(zone for zone in available_timezones() if "localtime" not in zone)),
    st.integers(30, 24_400).map(lambda number: EPOCH + timedelta(days=number)),
)
ODD = st.sampled_from(ODD_CHANGES).map(lambda one: (one[0], one[1].replace(hour=0, minute=0) - timedelta(days=2)))


@settings(max_examples=100)
@given(
    st.one_of(ANY, ODD),
    st.sampled_from([*CRONS, "*/7 * * * *", "*/10 * * * *", "59 23 * * *", "*/20 1-3 * * *", "0 12 15 * *"]),
    st.integers(-3, 3),
)
def test_in_any_zone_and_for_any_cron_intervals_touch_wherever_one_begins_to_ask(
    place_and_start: tuple[str, datetime], cron: str, beside: int
) -> None:
    """Around a change of clocks, where the zone has one within the year. Moments are asked of in another way for each claim."""
    zone, start = place_and_start
    place = ZoneInfo(zone)
    day = timedelta(days=1)
    changes = (start + day * n for n in range(366))
    start = next(
        (d for d in changes if d.astimezone(place).utcoffset() != (d + day).astimezone(place).utcoffset()), start
    )
    whole = list(islice(Cron(cron, zone).intervals_from(start - day), 90 if cron[0] != "*" else 400))
    assert touching(whole)
    assert all(one.start < one.end for one in whole)
    offsets = [one.end.astimezone(place).utcoffset() for one in whole]
    number = next((n for n, (one, two) in enumerate(pairwise(offsets)) if n > 2 and one != two), 5)
    number = min(number + beside, len(whole) - 1)
    asked, following = whole[number], whole[number : number + 29]
    again = Cron(cron, zone)
    assert list(islice(again.intervals_from(asked.start), len(following))) == following
    assert again.interval_at(asked.start + (asked.end - asked.start) / 3) == asked
    assert again.after(asked.start) == asked.end
    assert again.before(asked.end) == asked.start
    expression, shift = croniter(cron), asked.end.astimezone(place).utcoffset() or timedelta()
    unusual = list(again.unusual_between(start - day, start + 2 * day))
    for interval in whole:
        shown = interval.end.astimezone(place).replace(tzinfo=None)
        if interval.end > start + day or not shift or croniter.match(cron, shown) or expression.expanded[1] != ["*"]:
            continue
        odd = ((start + day).astimezone(place).utcoffset() - start.astimezone(place).utcoffset()) % timedelta(hours=1)  # type: ignore[operator]
        assert (interval in unusual) == bool(odd)


@pytest.mark.parametrize(
    ("zone", "cron", "named"),
    [
        ("Australia/Lord_Howe", "30 * * * *", "2026-10-03 15:00 to 2026-10-03 16:00 UTC"),
        ("Australia/Lord_Howe", "0 * * * *", "2026-10-03 14:30 to 2026-10-03 15:30 UTC"),
        ("Australia/Lord_Howe", "15,45 * * * *", ""),
        ("Australia/Lord_Howe", "0 3 * * *", ""),
        ("Asia/Pyongyang", "@hourly", "2018-05-04 14:30 to 2018-05-04 15:30 UTC"),  # backfills meet what is past
        ("Europe/Vienna", "30 * * * *", ""),
        ("UTC", "*/10 * * * *", ""),
    ],
)
def test_a_schedule_that_would_overlap_is_named_with_an_interval_of_it(zone: str, cron: str, named: str) -> None:
    schedule = Schedule(cron=cron, timezone=zone, start=datetime(2018, 1, 1, tzinfo=UTC))
    told = clock_changes(schedule, datetime(2026, 7, 1, tzinfo=UTC))
    assert f"To prevent this, interval {named} does not end at a time of the cron" in told if named else told == ""


@pytest.mark.parametrize(
    ("cron", "next_one"),
    [
        ("0 12 * * *", ("01-03 12", "01-04 12")),  # Airflow's own begins at 01-02 12, inside of the last one
        ("0 */6 * * *", ("01-03 00", "01-03 06")),
        ("0 0 * * 1", ("01-05 00", "01-12 00")),
    ],
)
def test_after_a_change_of_the_cron_the_next_interval_does_not_overlap_the_last(
    cron: str, next_one: tuple[str, str]
) -> None:
    last = DataInterval(*(instance(datetime(2026, 1, day, tzinfo=UTC)) for day in (2, 3)))
    restriction = TimeRestriction(instance(datetime(2026, 1, 1, tzinfo=UTC)), None, catchup=True)
    info = IntervalTimetable(cron, "UTC").next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
    assert info is not None
    assert tuple(f"{moment:%m-%d %H}" for moment in info.data_interval) == next_one


def test_a_day_has_23_or_25_hours_where_clocks_change() -> None:
    schedule = Schedule(cron=DAILY, timezone="Europe/Vienna", start=CHANGES[0][1])
    year = intervals_between(schedule, datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2027, 12, 31, 23, tzinfo=UTC))
    hours = [(i.end - i.start) / timedelta(hours=1) for i in year]
    assert (len(hours), hours.count(23), hours.count(25)) == (730, 2, 2)
