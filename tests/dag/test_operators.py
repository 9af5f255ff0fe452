"""Plan and advance in the Airflow worker: which errors are retried, what is reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.bases.sensor import PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRescheduleException

from fencepost.airflow import AdvanceOperator, PlanOperator
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, KafkaUnavailable, NoFreeLane, TransitionRefused
from fencepost.model import Interval, StepResult

ContextOf = Callable[..., Any]


class FakeStep:
    """A step that answers or raises, and remembers what it was asked."""

    def __init__(self, answer: StepResult | Exception) -> None:
        self.answer = answer
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> StepResult:
        self.calls.append((args, kwargs))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, result: StepResult) -> FakeStep:
    """Both steps, faked."""
    monkeypatch.setattr("fencepost.airflow.operators.AT_ONCE", timedelta(seconds=0.2))
    monkeypatch.setattr("fencepost.airflow.operators.LOOK_AGAIN", 0.1)
    step = FakeStep(result)
    monkeypatch.setattr("fencepost.steps.plan.plan_batch", step)
    monkeypatch.setattr("fencepost.steps.advance.advance_without_spark", step)
    return step


def test_plan_freezes_the_runs_own_interval(
    steps: FakeStep, pipeline: Pipeline, interval: Interval, context_of: ContextOf, result: StepResult
) -> None:
    done = PlanOperator(task_id="plan", pipeline=pipeline).execute(context_of(reprocess=True))
    asked = {
        "reprocess": True,
        "another_cluster": False,
        "sources_changed": False,
        "known_cluster": None,
        "request": "run run 1",
    }
    assert steps.calls == [((pipeline, interval), asked)]
    assert done == result.model_dump(mode="json")


def test_plan_of_a_run_that_replays_plans_an_addition(
    pipeline: Pipeline,
    interval: Interval,
    context_of: ContextOf,
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay, plan = FakeStep(result), PlanOperator(task_id="plan", pipeline=pipeline)
    monkeypatch.setattr("fencepost.steps.replay.plan_replay", replay)
    assert plan.execute(context_of(replay=True)) == result.model_dump(mode="json")
    assert replay.calls == [((pipeline, interval), {"request": "run run 1"})]
    with pytest.raises(AirflowFailException, match="both parameters, reprocess and replay"):
        plan.execute(context_of(replay=True, reprocess=True))
    assert len(replay.calls) == 1


def test_plan_says_which_params_the_run_saw(
    steps: FakeStep, pipeline: Pipeline, context_of: ContextOf, capsys: pytest.CaptureFixture[str]
) -> None:
    PlanOperator(task_id="plan", pipeline=pipeline).poke(context_of(reprocess=True))
    assert "'reprocess': True" in capsys.readouterr().out


def test_plan_does_nothing_while_it_waits(steps: FakeStep, pipeline: Pipeline, context_of: ContextOf) -> None:
    waiting = context_of(("before", "running", "running", "scheduled"))
    assert PlanOperator(task_id="plan", pipeline=pipeline).poke(waiting) is False
    assert steps.calls == []


def test_plan_goes_on_at_once_when_its_turn_comes(
    steps: FakeStep, pipeline: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = iter(["the earlier run is running", None])
    monkeypatch.setattr("fencepost.airflow.operators.waits_for", lambda *_: next(reasons))
    assert PlanOperator(task_id="plan", pipeline=pipeline).poke(context_of())
    assert len(steps.calls) == 1


BUSY = ("before", "running", "running", "scheduled")


@pytest.mark.parametrize(
    ("earlier", "waits", "lane"), [([BUSY], 1, True), ([BUSY], 7, True), ([], 0, False), ([], 3, False)]
)
def test_a_plan_that_waits_gives_its_slot_back_at_once_and_uses_up_no_retry(
    steps: FakeStep,
    pipeline: Pipeline,
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    earlier: list[Any],
    waits: int,
    lane: bool,
) -> None:
    """Whether for its turn or for a lane, which a write holds for minutes."""
    if not lane:
        steps.answer = NoFreeLane("all 4 lanes are taken")
    slept: list[float] = []
    monkeypatch.setattr("fencepost.airflow.operators.time.sleep", slept.append)
    plan = PlanOperator(task_id="plan", pipeline=pipeline)
    before = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as raised:
        plan.execute(context_of(*earlier, waits=waits))
    assert timedelta(seconds=25) < raised.value.reschedule_date - before < timedelta(seconds=60)
    assert (slept, len(steps.calls)) == ([], 0 if lane else 1)


def test_a_plan_that_waits_while_kafka_is_away_uses_up_no_retry(
    steps: FakeStep, pipeline: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = context_of(BUSY)
    monkeypatch.setattr("fencepost.airflow.operators.planned_beside", lambda *_: FakeStep(KafkaUnavailable("away")))
    assert PlanOperator(task_id="plan", pipeline=pipeline).poke(waiting) is False
    monkeypatch.setattr("fencepost.airflow.operators.planned_beside", lambda *_: FakeStep(AccessDenied("no")))
    with pytest.raises(AirflowFailException, match="AccessDenied: no"):
        PlanOperator(task_id="plan", pipeline=pipeline).poke(waiting)
    assert steps.calls == []


@pytest.mark.parametrize(
    ("error", "final"), [(KafkaUnavailable("away"), False), (TransitionRefused("no"), True), (AccessDenied("no"), True)]
)
def test_only_terminal_errors_forgo_retries(
    steps: FakeStep, pipeline: Pipeline, context_of: ContextOf, error: Exception, final: bool
) -> None:
    steps.answer = error
    plan, advance = (
        PlanOperator(task_id="plan", pipeline=pipeline),
        AdvanceOperator(task_id="advance", pipeline=pipeline),
    )
    for run in (plan.poke, advance.execute):
        with pytest.raises(AirflowException, match=f"{type(error).__name__}: {error}") as raised:
            run(context_of())
        assert isinstance(raised.value, AirflowFailException) is final


def test_an_unforeseen_error_is_left_to_airflow_which_retries_it(
    steps: FakeStep, pipeline: Pipeline, context_of: ContextOf
) -> None:
    steps.answer = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        AdvanceOperator(task_id="advance", pipeline=pipeline).execute(context_of())


def test_a_run_without_interval_is_refused(pipeline: Pipeline, steps: FakeStep) -> None:
    with pytest.raises(AirflowFailException, match="no data interval"):
        AdvanceOperator(task_id="advance", pipeline=pipeline).execute({})  # type: ignore[typeddict-item]


def test_only_a_plan_that_is_done_hands_on_a_value(steps: FakeStep, pipeline: Pipeline, context_of: ContextOf) -> None:
    assert isinstance(PlanOperator(task_id="plan", pipeline=pipeline).poke(context_of()), PokeReturnValue)
