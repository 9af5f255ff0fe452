"""A plan waits for the plans of earlier intervals, or its batch would take their records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from fencepost.airflow.operators import PlanOperator
from fencepost.airflow.plan_order import LONG, waits_for
from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval
from fencepost.protocol.planning import Neighbours
from makers import a_batch

ContextOf = Callable[..., Any]
DAY = timedelta(days=1)
Run = tuple[str, str | None, str, str]

CANCELLED: Run = ("cancelled", None, "failed", "backfill")
FAILED: Run = ("broken", "failed", "failed", "scheduled")
BUSY: Run = ("busy", "running", "running", "scheduled")
DONE: Run = ("planned", "success", "success", "scheduled")
# A cleared run of a backfill that was cancelled: its backfill is over, so Airflow never starts it.
STUCK: Run = ("stuck", None, "queued", "backfill")
BY_HAND: tuple[Run, ...] = tuple(("x", plan, run, "manual") for plan, run in
    ((None, "queued"), ("running", "running"), ("failed", "failed"), ("skipped", "failed"), ("success", "success")))  # fmt: skip


@pytest.fixture
def planned(interval: Interval) -> Callable[..., Neighbours]:
    """What the ledger has: the interval itself, or the one that begins so many days before it."""

    def make(days_before: int | None = None, *, own: bool = False) -> Neighbours:
        if own:
            return Neighbours(own=a_batch(interval=interval))
        if days_before is None:
            return Neighbours()
        start = interval.start - days_before * DAY
        return Neighbours(before=a_batch(interval=Interval.of(start, start + DAY)))

    return make


Planned = Callable[..., Neighbours]


def turn(context: Any, near: Neighbours | None = None) -> str | None:
    return waits_for(context, lambda: near or Neighbours())


def test_the_first_run_ever_waits_for_nothing_and_asks_no_ledger(context_of: ContextOf) -> None:
    def ask() -> Neighbours:
        raise AssertionError

    assert waits_for(context_of(), ask) is None


def test_a_run_goes_on_when_the_one_before_has_planned(context_of: ContextOf, planned: Planned) -> None:
    assert turn(context_of(DONE, FAILED), planned(1)) is None
    assert turn(context_of(DONE, FAILED)) is None, "a ledger that was created again has nothing of it"


@pytest.mark.parametrize("state", ["running", "queued", "up_for_retry", "up_for_reschedule", None])
def test_a_run_waits_while_the_one_before_is_about_to_plan(
    context_of: ContextOf, planned: Planned, state: str | None
) -> None:
    for near in (planned(), planned(2)):
        reason = turn(context_of(("before", state, "running", "scheduled")), near)
        assert reason == "the earlier run before is running and has not planned yet"


def test_a_run_waits_for_an_earlier_backfill_that_is_queued(context_of: ContextOf) -> None:
    context = context_of(("before", None, "queued", "backfill"), waits=3)
    assert turn(context) == "the earlier run before is queued and has not planned yet"


@pytest.mark.parametrize("held", [STUCK, FAILED, BUSY, ("skipped", "skipped", "failed", "scheduled")])
def test_a_run_of_an_interval_that_the_ledger_has_holds_nothing_whatever_its_state(
    context_of: ContextOf, planned: Planned, held: Run
) -> None:
    assert turn(context_of(held, waits=3), planned(1)) is None
    assert turn(context_of(DONE, held, waits=3), planned(1)) is None
    assert turn(context_of(held, held, waits=3), planned(own=True)) is None, "this interval is planned itself"


@pytest.mark.parametrize("by_hand", BY_HAND)
def test_a_manual_run_holds_nothing_since_it_never_plans(context_of: ContextOf, planned: Planned, by_hand: Run) -> None:
    assert turn(context_of(by_hand, waits=3), planned(2)) is None
    assert turn(context_of(by_hand, BUSY), planned(3)) == "the earlier run busy is running and has not planned yet"


def test_a_failed_plan_stops_later_ones_with_a_way_out(context_of: ContextOf) -> None:
    with pytest.raises(
        AirflowFailException, match=r"earlier run broken failed.*Clear that plan with the option Future"
    ):
        turn(context_of(FAILED))


@pytest.mark.parametrize("kind", ["scheduled", "backfill"])
def test_a_plan_that_was_skipped_has_not_planned(context_of: ContextOf, planned: Planned, kind: str) -> None:
    """Airflow skips a plan that has not begun when its run is marked as failed, or exceeds dagrun_timeout."""
    again = {"scheduled": "Clear that plan with the option Future", "backfill": "Start a backfill of its interval"}
    for near in (planned(), planned(2)):
        with pytest.raises(AirflowFailException, match=rf"run before was skipped \(its run was marked.*{again[kind]}"):
            turn(context_of(("before", "skipped", "failed", kind)), near)


@pytest.mark.parametrize(("plan", "run"), [("success", "failed"), ("success", "success"), ("skipped", "success")])
def test_what_a_person_marked_as_success_leaves_its_records_and_hides_no_earlier_one(
    context_of: ContextOf, planned: Planned, plan: str, run: str
) -> None:
    """If a run is marked, Airflow marks a plan that waits too, and skips one that has not begun."""
    by_hand = ("marked", plan, run, "scheduled")
    assert turn(context_of(by_hand, DONE), planned(2)) is None
    with pytest.raises(AirflowFailException, match="earlier run broken failed"):
        turn(context_of(by_hand, FAILED, DONE), planned(3))
    assert turn(context_of(by_hand, BUSY, DONE), planned(3)) is not None


def test_a_run_that_was_cancelled_before_it_planned_is_passed_over(context_of: ContextOf, planned: Planned) -> None:
    assert turn(context_of(CANCELLED, CANCELLED, DONE), planned(3)) is None
    assert turn(context_of(CANCELLED, BUSY), planned(3)) is not None


def test_a_backfill_that_runs_backwards_is_refused_once_that_is_sure(context_of: ContextOf) -> None:
    earlier = ("before", None, "queued", "backfill")
    assert turn(context_of(earlier, run_type="backfill", waits=0)) is not None
    with pytest.raises(AirflowFailException, match="cannot run backwards"):
        turn(context_of(earlier, run_type="backfill", waits=1))


@pytest.mark.parametrize(
    ("earlier", "way_out"),
    [
        (STUCK, "mark that run as failed, and start a backfill of its interval"),
        (BUSY, "The log of its task plan says what the task waits for"),
    ],
)
def test_what_goes_on_holding_a_plan_is_named_within_minutes_with_the_way_out(
    context_of: ContextOf, pipeline: Pipeline, logged: list[tuple[int, str]], earlier: Run, way_out: str
) -> None:
    assert timedelta(seconds=30) * LONG <= timedelta(minutes=5)
    plan = PlanOperator(task_id="plan", pipeline=pipeline)
    for looks, level in ((LONG - 1, logging.INFO), (LONG, logging.WARNING), (LONG + 1, logging.WARNING)):
        plan.poke(context_of(earlier, waits=looks))
        at, said = logged[-1]
        assert at == level
        assert f"not yet: the earlier run {earlier[0]} is" in said
        assert (way_out in said) is (level == logging.WARNING)
        assert ("mark its task plan as success" in said) is (level == logging.WARNING)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What the plan's task logs."""
    said: list[tuple[int, str]] = []

    class Log:
        def log(self, level: int, text: str, *values: object) -> None:
            said.append((level, text % values))

        def info(self, text: str, *values: object) -> None:
            self.log(logging.INFO, text, *values)

    monkeypatch.setattr(PlanOperator, "log", Log())
    return said
