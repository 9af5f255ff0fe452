"""Which intervals of a schedule have no batch though a later one has, and what a person is told of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.config.intervals import left_out
from fencepost.config.sections import Schedule
from fencepost.doctor.ledger import check_intervals_left_out
from fencepost.findings import Level
from fencepost.model import Interval, State
from fencepost.protocol.unplanned_intervals import MOST, UnplannedIntervals
from fencepost.protocol.view import View
from makers import a_batch

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int, days: int = 1) -> Interval:
    start = FIRST + timedelta(days=number - 1)
    return Interval(start=start, end=start + timedelta(days=days))


def schedule(**changes: Any) -> Schedule:
    return Schedule(**{"cron": "0 0 * * *", "start": FIRST, **changes})


def days(found: Any) -> list[int]:
    return [(one.start - FIRST).days + 1 for one in found]


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ([], []),
        ([1, 2, 3], []),
        ([5, 6], [1, 2, 3, 4]),
        ([6, 5], [1, 2, 3, 4]),
        ([1, 2, 6, 7], [3, 4, 5]),
        ([3, 6], [1, 2, 4, 5]),
        ([-3, 1], []),
        ([-3, 3], [1, 2]),
    ],
    ids=str,
)
def test_what_lies_before_a_known_interval_and_is_none_is_left_out(known: list[int], missing: list[int]) -> None:
    """As when days 5 and 6 were backfilled while the DAG was paused: its catch-up begins with day 7."""
    assert days(left_out(schedule(), [day(number) for number in known])) == missing


def test_an_interval_of_another_length_covers_those_that_it_overlaps() -> None:
    """The cron was changed, or a person has run several days as one."""
    assert days(left_out(schedule(), [day(2, days=3), day(7)])) == [1, 5, 6]
    half = Interval(start=FIRST + timedelta(hours=36), end=FIRST + timedelta(days=3))
    assert days(left_out(schedule(), [half, day(5)])) == [1, 4]


def test_the_schedule_bounds_what_is_left_out() -> None:
    noon = FIRST + timedelta(hours=12)
    assert days(left_out(schedule(start=noon), [day(4)])) == [2, 3]
    assert days(left_out(schedule(end=FIRST + timedelta(days=2)), [day(9)])) == [1, 2]
    assert days(left_out(schedule(end=FIRST + timedelta(days=2)), [day(1), day(9), day(12)])) == [2]


def test_a_start_in_a_year_that_no_cron_knows_leaves_nothing_out() -> None:
    assert days(left_out(schedule(start=datetime(1, 1, 1, tzinfo=UTC)), [day(5)])) == []


def test_without_catchup_intervals_are_left_out_on_purpose() -> None:
    assert days(left_out(schedule(catchup=False), [day(5)])) == []


def test_intervals_in_a_zone_that_changes_its_clocks_are_those_of_the_schedule() -> None:
    start = datetime.fromisoformat("2026-03-28T00:00:00+01:00")
    late = Interval.of(datetime(2026, 3, 30, 22, tzinfo=UTC), datetime(2026, 3, 31, 22, tzinfo=UTC))
    found = [*left_out(schedule(start=start, timezone="Europe/Berlin"), [late])]
    assert [(one.end - one.start) / timedelta(hours=1) for one in found] == [24, 23, 24]


def test_a_person_is_told_how_many_where_and_how_to_have_them_processed() -> None:
    found = UnplannedIntervals.of(left_out(schedule(), [day(1), day(4), day(7)]))
    assert found.description.startswith(
        "4 intervals of the schedule have no batch, although a later interval has one: 2026-01-02 00:00 to 2026-01-04 00:00 UTC; "
        "2026-01-05 00:00 to 2026-01-07 00:00 UTC. Airflow makes runs only for intervals after its latest run"
    )
    assert "backfill from 2026-01-02T00:00:00+00:00 to 2026-01-06T00:00:00+00:00" in found.advice
    assert found.command("p") == (
        "airflow backfill create --dag-id p --from-date 2026-01-02T00:00:00+00:00 --to-date 2026-01-06T00:00:00+00:00"
    )


def test_those_that_have_a_run_are_not_told_of() -> None:
    found = UnplannedIntervals.of(left_out(schedule(), [day(4)])).without({day(1), day(2)})
    assert found.description.startswith("1 interval of the schedule has no batch")
    assert UnplannedIntervals.of(left_out(schedule(), [day(2)])).without({day(1)}).description == ""


def test_many_are_counted_as_far_as_a_limit() -> None:
    found = UnplannedIntervals.of(left_out(schedule(cron="* * * * *"), [day(900)]))
    assert len(found.intervals) == MOST
    assert found.description.startswith("More than 100 intervals of the schedule have no batch")


@pytest.mark.parametrize(("planned", "level"), [([5, 6], Level.WARNING), ([1, 2], Level.OK), ([], Level.OK)])
def test_the_doctor_knows_them_by_the_ledger(planned: list[int], level: Level) -> None:
    batches = [a_batch(State.PUBLISHED, interval=day(number), lease=number) for number in planned]
    pipeline = SimpleNamespace(name="p", schedule=schedule())
    look: Any = SimpleNamespace(pipeline=pipeline, view=View.of(batches))
    found = check_intervals_left_out(look)
    assert found.level is level
    if level is Level.WARNING:
        assert found.command.startswith("airflow backfill create --dag-id p --from-date 2026-01-01T00:00:00+00:00")


def test_an_interval_that_a_person_took_out_of_the_order_is_known() -> None:
    withdrawn = a_batch(State.WITHDRAWN, interval=day(1))
    look: Any = SimpleNamespace(
        pipeline=SimpleNamespace(name="p", schedule=schedule()),
        view=View.of([withdrawn, a_batch(State.PUBLISHED, interval=day(2), lease=1)]),
    )
    assert check_intervals_left_out(look).level is Level.OK
