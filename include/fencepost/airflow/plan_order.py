"""Keeps the order of plans. Intervals are planned in their order, whichever runs they have.

A plan that overtakes an earlier interval takes that interval's records into its own batch. The ledger says which
intervals are planned. For the other intervals, Airflow says which have a run that can still plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetDagRun

from fencepost.protocol.planning import Neighbours

if TYPE_CHECKING:
    from airflow.sdk import Context

OURS = {"scheduled", "backfill"}  # types of runs that can plan; a manual run fails in its plan
# States of a plan that ended and froze nothing. Airflow skips tasks that have not started if a run is marked as failed,
# or exceeds dagrun_timeout.
ENDED_WITHOUT = {"failed", "upstream_failed", "skipped"}
LONG = 10  # number of pokes, each half a minute after the last; from then on the reason includes the way out


def run_of(dag_id: str, run_id: str) -> Any:
    """Returns a run of a DAG, as Airflow's API gives it to a task: `run_type`, `state`, ..."""
    return cast("Any", task_runner).SUPERVISOR_COMMS.send(GetDagRun(dag_id=dag_id, run_id=run_id))


def waits_for(context: Context, neighbours: Callable[[], Neighbours]) -> str | None:
    """Returns what the plan of this run has to wait for, or None if it may begin. `neighbours` are the planned
    intervals next to its own, in the ledger.

    1. An interval that is planned keeps its ranges, and waits for nothing.
    2. Runs before the last planned interval before this interval do not matter. Their records are in a batch, or never
       will be.
    3. Each run in between has to plan first, the nearest first. A run that was cancelled before its plan started does
       not count: it is finished and has no state of that task. A run or a plan that a person marked as success does not
       count either.

    Airflow sorts by logical date, which is the start of the data interval.

    Raises:
        AirflowFailException: an earlier plan ended without a batch, or it cannot start before this run gives up its place.
    """
    ti, run = context["ti"], context["dag_run"]
    earlier: Any = ti.get_previous_ti(logical_date=run.logical_date)
    near = neighbours() if earlier is not None else Neighbours()
    if near.own is not None:  # 1
        return None
    after = near.before.interval.start if near.before is not None else None
    while earlier is not None and (after is None or earlier.logical_date > after):  # 2
        if after is None and earlier.state == "success":
            return None  # a ledger that was created again has nothing that earlier plans froze
        reason = _reason(context, earlier)  # 3
        if reason is not None:
            return reason
        earlier = ti.get_previous_ti(logical_date=earlier.logical_date)
    return None


def _reason(context: Context, earlier: Any) -> str | None:
    """Returns why a plan has to wait for the plan of the earlier run, or None. The earlier run's interval is not in the
    ledger.
    """
    found = run_of(context["ti"].dag_id, earlier.run_id)
    kind, state = found.run_type.value, DagRunState(found.state.value)
    if kind not in OURS or earlier.state == "success" or (earlier.state, state) == ("skipped", DagRunState.SUCCESS):
        return None
    if earlier.state in ENDED_WITHOUT:
        again = (
            "Start a backfill of its interval with the reprocess behaviour failed, and then clear this task"
            if kind == "backfill"
            else "Clear that plan with the option Future, which includes this run"
        )
        raise AirflowFailException(
            f"the plan of the earlier run {earlier.run_id} {_ended(earlier.state)}, and its records must not fall into this "
            f"batch. {again}. Or, if its records should fall into this batch, mark that plan as success and clear this task."
        )
    if state not in {DagRunState.QUEUED, DagRunState.RUNNING}:
        return None
    looks = context["task_reschedule_count"]
    if state is DagRunState.QUEUED and looks:  # it is not only about to start
        _refuse_if_it_keeps_back(context, earlier.run_id, kind)
    reason = f"the earlier run {earlier.run_id} is {state.value} and has not planned yet"
    return f"{reason}. {_way_out(kind, state)}" if looks >= LONG else reason


def _ended(state: str) -> str:
    return "failed" if state != "skipped" else "was skipped (its run was marked as failed, or exceeded dagrun_timeout)"


def _way_out(kind: str, state: DagRunState) -> str:
    """Returns what to do if an earlier run does not plan."""
    give = "Or, if its records should fall into this batch, mark its task plan as success."
    if state is DagRunState.RUNNING:
        return f"The log of its task plan says what the task waits for. {give}"
    if kind == "backfill":
        return (
            "If its backfill is over, was cancelled or is paused, Airflow does not start it: mark that run as failed, and start "
            f"a backfill of its interval with the reprocess behaviour failed. {give}"
        )
    return f"Airflow starts it when the DAG is switched on and has fewer active runs than lanes. {give}"


def _refuse_if_it_keeps_back(context: Context, earlier: str, kind: str) -> None:
    """Raises an error if this run and an earlier run wait for each other.

    A backfill's runs share its `max_active_runs`, and all other runs share the DAG's. An earlier run of the same kind
    that stays queued waits for a place that later runs hold. A backfill that runs backwards causes this, and so does a
    cleared run.
    """
    if (kind == "backfill") == (context["dag_run"].run_type == "backfill"):
        raise AirflowFailException(
            f"the earlier run {earlier} is queued and waits for the place of this run, so neither run could continue. "
            "A backfill cannot run backwards; start it without the option to run backwards. Otherwise clear this task "
            f"once the earlier run has planned. If it stays queued: {_way_out(kind, DagRunState.QUEUED)}"
        )
