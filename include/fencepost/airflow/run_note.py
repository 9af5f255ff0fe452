"""Writes a run's note in Airflow's UI. The note says that the run is active, and later has the last step's message. The
note also has the parameters of the run.

This is a listener, because a task cannot write the note. Airflow calls it when the run's state changes, usually in the
scheduler, and commits its change. A repeated run keeps its run_id and its old note, so the note is renewed when a run
starts. A note that a person wrote is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from fencepost.airflow.run_request import ASKED
from fencepost.airflow.timetable import IntervalTimetable

if TYPE_CHECKING:
    from airflow.models import DagRun

OURS = "Fencepost: "
STEPS = ("plan", "write", "validate", "decide", "write_again", "validate_again", "advance")


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Writes the note of a run that starts. Airflow requires the function's name."""
    if _may_write(dag_run):
        dag_run.note = OURS + running_note(dag_run.conf or {})


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Writes the note of a run that succeeded. Airflow requires the function's name."""
    write_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Writes the note of a run that failed. Airflow requires the function's name."""
    write_note(dag_run)


def write_note(dag_run: DagRun) -> None:
    """Sets the note of an ended run of a pipeline."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None or not _may_write(dag_run):
        return
    # A task that did not run this time still has its earlier result: only a successful one has a new result.
    tasks = select(TaskInstance.task_id, TaskInstance.state).where(
        TaskInstance.dag_id == dag_run.dag_id, TaskInstance.run_id == dag_run.run_id
    )
    states = {task_id: str(state) for task_id, state in session.execute(tasks)}
    query = XComModel.get_many(run_id=dag_run.run_id, dag_ids=dag_run.dag_id, task_ids=STEPS, key="return_value")
    found: Iterable[Any] = session.scalars(query)
    results = {x.task_id: XComModel.deserialize_value(x) for x in found}
    dag_run.note = OURS + final_note(results, states, dag_run.conf or {})


def running_note(conf: Mapping[str, Any]) -> str:
    """Returns the note's text while a run is active."""
    return f"running. {_params(conf)}"


def final_note(results: Mapping[str, Any], states: Mapping[str, str], conf: Mapping[str, Any]) -> str:
    """Returns the note's text at the end. Results have ids and small numbers only, so the note shows no record's
    values.

    If an XCom backend keeps a result elsewhere, the result is not fetched. This function runs in the scheduler, which
    must not wait for it.
    """
    well = [step for step in STEPS if states.get(step) == "success" and not _is_other(results.get(step))]
    failed = [step for step in STEPS if states.get(step) == "failed"]
    last = _message(well[-1], results.get(well[-1])) if well else ""
    # If a person decided about a failed validate, later steps have succeeded.
    if failed and (not well or STEPS.index(failed[-1]) > STEPS.index(well[-1])):
        last = f"{', '.join(failed)} failed." + (f" Before, {last}" if last else "")
    return f"{last or 'nothing was done.'} {_params(conf)}"


def _params(conf: Mapping[str, Any]) -> str:
    reprocess, *others = ASKED
    set_too = "".join(f", {name}=true" for name in others if conf.get(name))
    return f"Params the run saw: {reprocess}={str(bool(conf.get(reprocess))).lower()}{set_too}."


def _may_write(dag_run: DagRun) -> bool:
    """Returns whether the run is a pipeline's, and has no note of a person."""
    dag = getattr(dag_run, "dag", None)
    ours = dag is not None and isinstance(dag.timetable, IntervalTimetable)
    return ours and (not dag_run.note or str(dag_run.note).startswith(OURS))


def _message(step: str, result: Any) -> str:
    return f"{step}: {result['message']}." if _is_result(result) else f"{step} succeeded."


def _is_result(result: Any) -> bool:
    return isinstance(result, dict) and {"step", "batch", "message"} <= result.keys()


def _is_other(result: Any) -> bool:
    """Returns whether the result comes from a task that ran no step."""
    return isinstance(result, dict) and not _is_result(result)
