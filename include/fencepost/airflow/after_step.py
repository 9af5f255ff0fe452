"""Sends metrics, lineage and notifications after a step in Airflow.

This module never fails a task. An error in it is logged, and the step's own result or error does not change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.airflow import lineage, metrics
from fencepost.airflow.assets import output_asset
from fencepost.airflow.notifications import NoNotes, notes_of, tell, tell_recovered
from fencepost.airflow.notified_event import BatchFacts, NotifiedEvent, Run
from fencepost.config.pipeline import Pipeline
from fencepost.errors import printable
from fencepost.model import Batch, Interval, State, StepResult
from fencepost.protocol.view import PASSED
from fencepost.spark.diagnosis import describe

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import DAG, Context

log = logging.getLogger("fencepost.airflow")


@dataclass(frozen=True)
class StepNotes:
    """An operator's notes about its step until the task ends. `told` says that the step's failure was already sent."""

    lineage: OperatorLineage[Any, Any] | None = None
    notified: bool = False


class Operator(Protocol):
    """A task that runs a step."""

    task_id: str
    step: Any
    step_notes: StepNotes


def after_step(
    operator: Operator,
    pipeline: Pipeline,
    context: Context,
    interval: Interval,
    result: StepResult,
    seconds: float,
    *,
    judged: bool,
) -> None:
    """Sends what follows a step that succeeded. `judged` says that this run has judged the batch."""
    operator.step_notes = StepNotes()
    if metrics.is_on():
        with _guarded(f"{operator.task_id} ended well"):
            metrics.emit(pipeline.name, metrics.of_step(pipeline, result, seconds, judged=judged))
    if lineage.is_on():
        with _guarded(f"{operator.task_id} ended well"):
            finished = _finished_here(context, result)
            read_and_wrote = lineage.of_step(pipeline, interval, result, judged=judged, finished=finished)
            operator.step_notes = StepNotes(lineage=read_and_wrote)
    if not pipeline.notify:
        return
    with _guarded(f"{operator.task_id} ended well"):
        facts, run = BatchFacts.of_result(result), Run.of(context)
        if operator.step == "validate" and result.state is State.WRITTEN:
            happened = NotifiedEvent("quarantined", pipeline.name, interval, run, facts)
            tell(context, pipeline, happened, notes_of(context, pipeline))
        if operator.step == "advance" and result.state in PASSED:
            happened = NotifiedEvent("recovered", pipeline.name, interval, run, facts)
            tell_recovered(context, pipeline, happened, notes_of(context, pipeline))


def after_verdict(operator: Operator, pipeline: Pipeline, context: Context, interval: Interval, seconds: float) -> None:
    """Sends what follows a step that ended with a verdict, or with a refusal by the table. The verdict and the refusal
    are in the ledger.
    """
    if not (pipeline.notify or metrics.is_on() or lineage.is_on()):
        return
    with _guarded(f"{operator.task_id} ended with a verdict"):
        from fencepost.ledger.ledger import Ledger

        batch = Ledger(pipeline).read().last(interval)
        if batch is None:
            return
        operator.step_notes = StepNotes(notified=True)
        if pipeline.notify:
            happened = NotifiedEvent(
                "rejected" if batch.state is State.REJECTED else "failed",
                pipeline.name,
                interval,
                Run.of(context),
                BatchFacts.of_batch(batch),
                step=operator.task_id,
            )
            notes = notes_of(context, pipeline)
            tell(context, pipeline, happened, notes)
            tell(context, pipeline, happened.about("quarantined"), notes)
        if metrics.is_on():
            metrics.emit(pipeline.name, metrics.of_verdict(batch, operator.step, seconds))
        if lineage.is_on():
            operator.step_notes = StepNotes(lineage=lineage.of_verdict(pipeline, batch), notified=True)


def after_question(context: Context, pipeline: Pipeline, batch: Batch, until: datetime) -> None:
    """Sends what follows when a question about a rejected batch is opened."""
    if not pipeline.notify:
        return
    with _guarded("a question was opened"):
        happened = NotifiedEvent(
            "awaiting", pipeline.name, batch.interval, Run.of(context), BatchFacts.of_batch(batch), until=until
        )
        tell(context, pipeline, happened, notes_of(context, pipeline))


def watch(dag: DAG, pipeline: Pipeline) -> DAG:
    """Makes the DAG's tasks send the notifications in `notify`.

    The output's asset becomes an inlet, because its state store has the notes. The callback for `failed` runs before
    the callbacks of the team.
    """
    if pipeline.notify:
        for task in dag.tasks:
            task.inlets = [*task.inlets, output_asset(pipeline.name, pipeline.output.name)]
            callbacks: Any = task.on_failure_callback
            task.on_failure_callback = [partial(_failed, pipeline), *callbacks]
    return dag


def _failed(pipeline: Pipeline, context: Context) -> None:
    """Sends the event `failed`. Airflow calls this function when a task has failed and is not retried. It runs in the
    task's process, or in the DAG processor if that process was killed.

    The function does not contact Kafka, because Kafka may be why the task failed. Airflow ends the process 20 seconds
    after the task's end.
    """
    task: Any = context["task"]
    if getattr(task, "step_notes", StepNotes()).notified:
        return
    with _guarded(f"{task.task_id} failed"):
        start, end = context["data_interval_start"], context["data_interval_end"]
        if start is None or end is None:
            return
        error = context.get("exception")
        in_task = isinstance(error, BaseException)
        happened = NotifiedEvent(
            "failed",
            pipeline.name,
            Interval.of(start, end),
            Run.of(context),
            replace(_last_known(context["ti"]), reason=_reason(error)),
            step=task.task_id,
        )
        # Only a task's own process may read the state store; the DAG processor cannot.
        tell(context, pipeline, happened, notes_of(context, pipeline) if in_task else NoNotes())


def _last_known(ti: Any) -> BatchFacts:
    """Returns the newest revision of the run, by the results of its tasks."""
    known = [BatchFacts()]
    for task_id in ("plan", "write", "validate", "decide", "write_again", "validate_again"):
        found = ti.xcom_pull(task_ids=task_id)
        if isinstance(found, Mapping) and "batch" in found:
            fields = {name: found[name] for name in StepResult.model_fields}
            known.append(BatchFacts.of_result(StepResult.model_validate(fields)))
    return max(known, key=lambda facts: (facts.revision or 0, facts.number))


def _reason(error: object) -> str:
    """Returns an error's first line if Fencepost wrote the line, because then it quotes no record. Otherwise it returns
    the error's type and place.

    If a job ended without an outcome, the following lines are the job's own output.
    """
    from airflow.sdk.exceptions import AirflowException

    if isinstance(error, AirflowException):
        return printable(str(error).partition("\n")[0])
    return describe(error) if isinstance(error, BaseException) else "its process was killed"


def _finished_here(context: Context, result: StepResult) -> bool:
    """Returns whether this run has published or skipped the batch. An attempt of this run may have died after its
    commit.
    """
    if result.changed or result.state not in PASSED:
        return result.changed
    planned: Any = context["ti"].xcom_pull(task_ids="plan") or {}
    return planned.get("state") not in {*PASSED, None}


@contextmanager
def _guarded(when: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        log.warning("after %s: metrics, lineage or notifications are incomplete: %s", when, describe(error))
