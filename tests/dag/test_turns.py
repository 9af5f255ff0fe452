"""A plan waits for the plans of earlier intervals, or its batch would take their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from fencepost.airflow.operators import waits_for

ContextOf = Callable[..., Any]


def test_the_first_run_ever_waits_for_nothing(context_of: ContextOf) -> None:
    assert waits_for(context_of()) is None


@pytest.mark.parametrize("state", ["success", "skipped"])
def test_a_run_goes_on_when_the_one_before_has_planned(context_of: ContextOf, state: str) -> None:
    assert (
        waits_for(context_of(("before", state, "failed", "scheduled"), ("older", "failed", "failed", "scheduled")))
        is None
    )


@pytest.mark.parametrize("state", ["running", "queued", "up_for_retry", "up_for_reschedule", None])
def test_a_run_waits_while_the_one_before_is_about_to_plan(context_of: ContextOf, state: str | None) -> None:
    reason = waits_for(context_of(("before", state, "running", "scheduled")))
    assert reason == "the earlier run before is running and has not planned yet"


def test_a_run_waits_for_an_earlier_backfill_that_is_queued(context_of: ContextOf) -> None:
    context = context_of(("before", None, "queued", "backfill"), waits=100)
    assert waits_for(context) == "the earlier run before is queued and has not planned yet"


def test_a_failed_plan_stops_later_ones_with_a_way_out(context_of: ContextOf) -> None:
    with pytest.raises(
        AirflowFailException, match=r"earlier run before failed.*Clear that plan with the option Future"
    ):
        waits_for(context_of(("before", "failed", "failed", "scheduled")))


def test_a_run_that_was_cancelled_before_it_planned_is_passed_over(context_of: ContextOf) -> None:
    cancelled = ("cancelled", None, "failed", "backfill")
    assert waits_for(context_of(cancelled, cancelled, ("planned", "success", "success", "scheduled"))) is None
    assert waits_for(context_of(cancelled, ("busy", "running", "running", "scheduled"))) is not None


def test_a_backfill_that_runs_backwards_is_refused_once_that_is_sure(context_of: ContextOf) -> None:
    earlier = ("before", None, "queued", "backfill")
    assert waits_for(context_of(earlier, run_type="backfill", waits=0)) is not None
    with pytest.raises(AirflowFailException, match="cannot run backwards"):
        waits_for(context_of(earlier, run_type="backfill", waits=1))
