"""What became of a run, as its note in Airflow's UI: the last step's message, and which params the run saw.

A listener, since a task cannot write the note: Airflow calls it where the run's state changes, in the scheduler as a rule,
and commits what it changed. A note that somebody wrote is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow.models import DagRun

OURS = "Fencepost: "
STEPS = ("plan", "write", "validate", "decide", "write_again", "validate_again", "advance")


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Airflow's name for it."""
    write_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Airflow's name for it."""
    write_note(dag_run)


def write_note(dag_run: DagRun) -> None:
    """Set the note of a run of ours; runs of other DAGs have no result of a plan."""
    from airflow.models.xcom import XComModel
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None or (dag_run.note and not dag_run.note.startswith(OURS)):
        return
    query = XComModel.get_many(run_id=dag_run.run_id, dag_ids=dag_run.dag_id, task_ids=STEPS, key="return_value")
    found: Iterable[Any] = session.scalars(query)
    results = {x.task_id: XComModel.deserialize_value(x) for x in found}
    if _is_result(results.get("plan")):
        dag_run.note = OURS + told(results, dag_run.conf or {})


def told(results: dict[str, Any], conf: dict[str, Any]) -> str:
    """The note's text. Results hold ids and small numbers only, so no record's values come in here."""
    last = [step for step in STEPS if _is_result(results.get(step))][-1]
    seen = str(bool(conf.get("reprocess", False))).lower()
    return f"{last}: {results[last]['message']}. Params the run saw: reprocess={seen}."


def _is_result(result: Any) -> bool:
    return isinstance(result, dict) and {"step", "batch", "message"} <= result.keys()
