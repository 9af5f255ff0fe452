"""The trend says how far the frontier was behind when each batch was settled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fencepost.config.sections import Schedule
from fencepost.model import HistoryEntry, State
from fencepost.pages.trend import Lag, lag_now, newest_due, trend

from .ledgers import batch, hour, ledger, taken


def test_a_trend_is_the_last_batches_in_order_of_time() -> None:
    points = trend(taken(ledger(100)), 30)
    assert [p.row.key for p in points] == [str(hour(n)) for n in range(70, 100)]


def test_a_healthy_pipeline_is_behind_by_nothing_once_a_batch_is_published() -> None:
    points = trend(taken(ledger(10)), 30)
    assert {p.lag for p in points} == {Lag(0, 0.0)}


def test_behind_a_hole_the_lag_grows_with_every_batch() -> None:
    points = trend(taken(ledger(6, {2: State.REJECTED})), 30)
    assert [p.lag for p in points] == [Lag(0, 0), Lag(0, 0), *(Lag(400 * n, 3600 * n) for n in (1, 2, 3, 4))]


def test_a_hole_that_was_closed_later_shows_the_lag_of_its_time() -> None:
    late = batch(2)
    closed = hour(4).end + timedelta(minutes=50)
    late = late.model_copy(update={"history": (*late.history[:-1], HistoryEntry(state=State.PUBLISHED, at=closed))})
    points = trend(taken([*ledger(2), late, *ledger(6)[3:]]), 30)
    assert [p.lag.records for p in points if p.lag] == [0, 0, 0, 800, 1200, 0]


def test_writing_an_interval_again_later_changes_nothing_of_the_lag_it_had() -> None:
    again = batch(0, State.WRITTEN, revision=2)
    late = tuple(e.model_copy(update={"at": hour(9).end}) for e in again.history)
    points = trend(taken([*ledger(6, {2: State.REJECTED}), again.model_copy(update={"history": late})]), 30)
    assert points[0].lag == Lag(0, 0)


def test_an_interval_before_the_first_one_planned_has_no_lag() -> None:
    early = batch(0).model_copy(update={"lease": 99})
    points = trend(taken([early, *ledger(3)[1:]]), 30)
    assert [p.lag is None for p in points] == [True, False, False]


def test_the_newest_interval_due_ended_at_the_last_boundary_of_the_schedule_in_its_own_zone() -> None:
    schedule = Schedule(cron="0 0 * * *", timezone="America/New_York", start=datetime(2026, 1, 1, 5, tzinfo=UTC))
    assert newest_due(schedule, datetime(2026, 3, 9, 3, 59, tzinfo=UTC)) == datetime(2026, 3, 8, 5, tzinfo=UTC)
    assert newest_due(schedule, datetime(2026, 3, 9, 4, 0, tzinfo=UTC)) == datetime(2026, 3, 9, 4, tzinfo=UTC)
    assert newest_due(schedule, datetime(2026, 1, 2, 4, 59, tzinfo=UTC)) is None


def test_the_last_interval_of_a_schedule_with_an_end_is_the_one_that_begins_before_it() -> None:
    schedule = Schedule(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 3, 23, 59, tzinfo=UTC))
    assert newest_due(schedule, datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 4, tzinfo=UTC)
    exact = Schedule(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 4, tzinfo=UTC))
    assert newest_due(exact, datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 4, tzinfo=UTC)


def test_the_lag_now_is_to_the_sources_end_and_to_the_newest_interval_due() -> None:
    snapshot = taken(ledger(6, {2: State.REJECTED}))
    schedule = Schedule(cron="0 * * * *", start=hour(0).start)
    ends = {("orders-in", p): 1000 for p in range(4)}
    assert lag_now(snapshot, schedule, ends, hour(9).end) == Lag(4000 - 800, 8 * 3600)
    assert lag_now(taken([]), schedule, {("orders-in", 0): 10}, hour(9).end) == Lag(10, 10 * 3600)
