"""A request is named by the backfill that made it, and the name stays with the run's parameters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.airflow import build_dag
from fencepost.airflow.operators import PlanOperator
from fencepost.airflow.run_request import Request, on_dag_run_running
from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval, StepResult

MADE = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
NAME = "backfill 7 of 2026-01-05T09:30:00+00:00"
ASKED = {"reprocess": True}


def a_run(pipeline: Pipeline, conf: Any, backfill: int | None = 7, given: Any = ASKED) -> Any:
    made = None if backfill is None else SimpleNamespace(id=backfill, created_at=MADE, dag_run_conf=given)
    return SimpleNamespace(dag=build_dag(pipeline), conf=conf, backfill=made)


@pytest.mark.parametrize("asked", ["reprocess", "replay", "another_cluster", "sources_changed"])
def test_what_a_backfill_asks_for_has_its_name(pipeline: Pipeline, asked: str) -> None:
    run = a_run(pipeline, {asked: True})
    on_dag_run_running(run, "started")
    assert run.conf == {asked: True, "request": NAME}
    on_dag_run_running(run, "started")
    assert run.conf == {asked: True, "request": NAME}, "a run that is cleared asks for the same"


def test_a_later_backfill_that_asks_again_is_another_request(pipeline: Pipeline) -> None:
    """Airflow has replaced the conf; a name that somebody gives does not count."""
    for conf in (ASKED, {**ASKED, "request": NAME}):
        run = a_run(pipeline, conf, backfill=8)
        on_dag_run_running(run, "started")
        assert run.conf == {**ASKED, "request": "backfill 8 of 2026-01-05T09:30:00+00:00"}


@pytest.mark.parametrize("given", [None, {}])
def test_a_later_backfill_without_parameters_leaves_the_run_its_request(pipeline: Pipeline, given: Any) -> None:
    run = a_run(pipeline, {**ASKED, "request": NAME}, backfill=8, given=given)
    on_dag_run_running(run, "started")
    assert run.conf == {**ASKED, "request": NAME}


@pytest.mark.parametrize(("conf", "backfill"), [({"reprocess": False}, 7), ({}, 7), (None, 7), (ASKED, None)])
def test_a_run_that_asks_for_nothing_or_is_no_backfills_gets_no_name(
    pipeline: Pipeline, conf: Any, backfill: int | None
) -> None:
    run = a_run(pipeline, conf, backfill)
    on_dag_run_running(run, "started")
    assert run.conf == conf


def test_the_run_of_another_dag_keeps_its_conf() -> None:
    run: Any = SimpleNamespace(dag=SimpleNamespace(timetable=object()), conf=ASKED)
    on_dag_run_running(run, "started")
    assert run.conf == ASKED


@pytest.mark.parametrize(
    ("params", "name", "moment"),
    [
        ({**ASKED, "request": NAME}, NAME, MADE),
        (ASKED, "run run 1", None),
        ({**ASKED, "request": "x of 2026-01-05"}, "x of 2026-01-05", None),
    ],
)
def test_a_tasks_parameters_say_which_request_it_is(
    context_of: Callable[..., Any], params: dict[str, Any], name: str, moment: datetime | None
) -> None:
    found = Request.of({**context_of(), "params": params})  # type: ignore[typeddict-item]
    assert (found.name, found.moment, found.reprocess, found.is_any) == (name, moment, True, True)


@pytest.mark.parametrize(("published", "moved"), [(False, True), (True, False)])
def test_that_a_pipeline_has_moved_counts_until_the_next_publication(
    pipeline: Pipeline,
    interval: Interval,
    context_of: Callable[..., Any],
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
    published: bool,
    moved: bool,
) -> None:
    """From then on Airflow's event says which cluster was meant: a third one has no ledger that would."""
    asked = list[dict[str, Any]]()
    monkeypatch.setattr(
        "fencepost.airflow.operators.is_published_since", lambda _, moment: published and moment == MADE
    )
    monkeypatch.setattr("fencepost.steps.plan.plan_batch", lambda *_, **kwargs: asked.append(kwargs) or result)
    context = {**context_of(), "params": {"reprocess": False, "another_cluster": True, "request": NAME}}
    PlanOperator(task_id="plan", pipeline=pipeline).execute(context)
    assert [(one["another_cluster"], one["request"]) for one in asked] == [(moved, NAME)]


@pytest.mark.parametrize(
    ("params", "confirmed", "request_name"),
    [
        ({"sources_changed": True, "request": NAME}, True, NAME),
        ({"sources_changed": True}, True, "run run 1"),
        ({"sources_changed": False, "request": NAME}, False, None),
        ({}, False, None),
    ],
)
def test_that_the_sources_have_changed_is_passed_to_the_plan_with_the_name_of_its_request(
    pipeline: Pipeline,
    context_of: Callable[..., Any],
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
    params: dict[str, Any],
    confirmed: bool,
    request_name: str | None,
) -> None:
    """The plan needs the name: a request that was answered with other sources confirms no further change."""
    asked = list[dict[str, Any]]()
    monkeypatch.setattr("fencepost.steps.plan.plan_batch", lambda *_, **kwargs: asked.append(kwargs) or result)
    PlanOperator(task_id="plan", pipeline=pipeline).execute({**context_of(), "params": params})
    (one,) = asked
    assert (one["sources_changed"], one["request"]) == (confirmed, request_name)
    assert (one["reprocess"], one["another_cluster"]) == (False, False)
