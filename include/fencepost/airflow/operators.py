"""The steps that run in the Airflow worker, and what all operators share: interval, errors, report.

Pipeline and interval name a batch, never run_id or try number. So a cleared task, a retry and a backfill of the same interval
all mean the same batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, DagRunState, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from pydantic import JsonValue

from fencepost.airflow.assets import last_cluster
from fencepost.airflow.connections import with_connections
from fencepost.config.connections import is_worth_a_retry, told_with_connections
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, NoFreeLane
from fencepost.model import Interval, StepResult

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger

# How long a plan waits for its turn. Then it fails, so that its run does not keep its place for ever.
PATIENCE = timedelta(days=1)
# Runs that start together plan one after the other within seconds. So a plan that is not yet waiting looks again for so long, ...
AT_ONCE = timedelta(seconds=10)
LOOK_AGAIN = 1.5  # seconds
# ... then it returns its slot, and each later look is one question. Not sooner: the scheduler may learn that the last look has
# ended only after it has queued the next one, and then fails it (seen with 5 seconds, Airflow 3.3.2, LocalExecutor).
COME_AGAIN = timedelta(seconds=30)

PLANNED = {"success", "skipped"}
NOT_PLANNED = {"failed", "upstream_failed"}


def interval_of(context: Context) -> Interval:
    """The data interval of the DAG run.

    Raises:
        AirflowFailException: it is a manual run that bypassed the timetable, and has no interval of its own.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None or context["dag_run"].run_type == "manual":
        raise AirflowFailException(
            "this run was triggered by hand and has no data interval of its own; use a scheduled run or a backfill"
        )
    return Interval.of(start, end)


@contextmanager
def airflow_errors(pipeline: Pipeline) -> Iterator[None]:
    """Let Airflow retry what is worth a retry as AirflowException. Any other error of ours becomes AirflowFailException.

    What is none of ours passes unchanged; Airflow retries it too.
    """
    try:
        yield
    except FencepostError as error:
        kind = AirflowException if is_worth_a_retry(error, pipeline) else AirflowFailException
        raise kind(f"{type(error).__name__}: {told_with_connections(error, pipeline)}") from error


def report(log: Logger, result: StepResult) -> dict[str, JsonValue]:
    """Log what a step did, and return it in its form for XCom: without the announcement, which has every column of the output.

    The asset event has it.
    """
    level = logging.WARNING if "starved_by" in result.details else logging.INFO
    log.log(level, "batch %s: %s", result.batch, result.message)
    return result.model_dump(mode="json", exclude={"details": {"announcement"}})


class PlanOperator(BaseSensorOperator):
    """Freeze the interval's batch, once every earlier run of the DAG has frozen its own.

    A plan that overtakes an earlier one would take that interval's records into its own batch. `depends_on_past` would
    keep the order too, but then Airflow refuses a backfill of "Missing Runs" (`_validate_backfill_params` in
    airflow/models/backfill.py). So the plan is a sensor in reschedule mode: it waits in Airflow, where it uses neither a slot
    nor a retry. The plan waits for a free lane in the same way. Airflow needs no triggerer for that.
    """

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=COME_AGAIN, timeout=PATIENCE, **kwargs)
        self.pipeline = pipeline

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Plan, or log what the plan waits for."""
        interval, params = interval_of(context), dict(context["params"])
        self.log.info("interval %s, params %s", interval, params)
        reprocess, replay = bool(params["reprocess"]), bool(params.get("replay"))
        if reprocess and replay:
            raise AirflowFailException(
                "this run was asked for reprocess and for replay. Choose one: reprocess writes the interval again, with its "
                "quarantine; replay sends what is in quarantine now through the transform."
            )
        answer = _await_turn(context) or self._plan(interval, reprocess, replay, bool(params.get("another_cluster")))
        if isinstance(answer, str):
            self.log.info("not yet: %s", answer)
            return False
        return PokeReturnValue(is_done=True, xcom_value=report(self.log, answer))

    def _plan(self, interval: Interval, reprocess: bool, replay: bool, another_cluster: bool) -> StepResult | str:
        from fencepost.steps.plan import plan_batch
        from fencepost.steps.replay import plan_replay

        with airflow_errors(self.pipeline):
            pipeline = with_connections(self.pipeline)
            try:
                if replay:
                    return plan_replay(pipeline, interval)
                return plan_batch(
                    pipeline,
                    interval,
                    reprocess=reprocess,
                    another_cluster=another_cluster,
                    # In a file a wrong address can be seen, and its change reviewed.
                    known_cluster=last_cluster(pipeline) if "kafka" in pipeline.connections else None,
                )
            except NoFreeLane as error:
                return str(error)


def _await_turn(context: Context) -> str | None:
    """What this look waits for in vain; None if it is the plan's turn."""
    give_back = time.monotonic() + (0 if context["task_reschedule_count"] else AT_ONCE.total_seconds())
    while (reason := waits_for(context)) is not None and time.monotonic() < give_back:
        time.sleep(LOOK_AGAIN)
    return reason


def waits_for(context: Context) -> str | None:
    """What the plan of this run has to wait for, or None if it is its turn.

    It is its turn once the nearest earlier run that was not cancelled has planned. Airflow sorts by logical date, which is
    the start of the data interval. If a backfill was cancelled before its plan began, that plan has no state in a finished
    run, and does not count.

    Raises:
        AirflowFailException: the earlier plan failed, or it cannot start before this run gives up its place.
    """
    ti, run = context["ti"], context["dag_run"]
    before: datetime | None = run.logical_date
    while (earlier := ti.get_previous_ti(logical_date=before)) is not None:
        if earlier.state in PLANNED:
            return None
        if earlier.state in NOT_PLANNED:
            raise AirflowFailException(
                f"the plan of the earlier run {earlier.run_id} failed, and its records must not fall into "
                "this batch. Clear that plan with the option Future, which includes this run. Or, if its records "
                "should fall into this batch, mark it as success and clear this task."
            )
        state = DagRunState(ti.get_dagrun_state(ti.dag_id, earlier.run_id))
        if state in {DagRunState.QUEUED, DagRunState.RUNNING}:
            if state is DagRunState.QUEUED and context["task_reschedule_count"]:  # it is not only about to start
                _refuse_if_it_keeps_back(context, earlier.run_id)
            return f"the earlier run {earlier.run_id} is {state.value} and has not planned yet"
        before = earlier.logical_date
    return None


def _refuse_if_it_keeps_back(context: Context, earlier: str) -> None:
    """Fail if this run and an earlier one wait for each other.

    A backfill's runs share its `max_active_runs`; all other runs share the DAG's. An earlier run of the same kind
    that stays queued waits for a place that later runs hold: the backfill runs backwards, or the run was cleared.
    """
    queued = context["ti"].get_previous_dagrun(state="queued")
    if queued is None or queued.run_id != earlier:
        return
    if (queued.run_type == "backfill") == (context["dag_run"].run_type == "backfill"):
        raise AirflowFailException(
            f"the earlier run {earlier} is queued while this one holds its place, so neither could continue. A "
            "backfill cannot run backwards; start it without that option. Otherwise clear this task once the "
            "earlier run has planned."
        )
