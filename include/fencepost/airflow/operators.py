"""The steps that run in the Airflow worker, and what all operators share: interval, errors, report.

Pipeline and interval name a batch. The run_id and the try number never do. So a cleared task, a retry and a backfill of
the same interval all mean the same batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from pydantic import JsonValue

from fencepost.airflow.assets import is_published_since, last_cluster
from fencepost.airflow.connections import with_connections
from fencepost.airflow.plan_order import LONG, waits_for
from fencepost.airflow.run_request import Request
from fencepost.config.connections import is_worth_a_retry, message_with_connections
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, NoFreeLane, Retriable
from fencepost.model import Interval, StepResult
from fencepost.protocol.planning import Neighbours

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger

# How long a plan waits for its turn. Then it fails, so that its run does not hold its place for ever.
PATIENCE = timedelta(days=1)
# Runs that start together plan one after the other within seconds. So a plan first polls for this long in its slot, ...
AT_ONCE = timedelta(seconds=10)
LOOK_AGAIN = 1.5  # seconds
# ... and then returns its slot, and each later poke checks once. A shorter time would fail: the scheduler may learn
# that the last poke has ended only after it has queued the next one, and then fails it (seen with 5 seconds, Airflow
# 3.3.2, LocalExecutor).
COME_AGAIN = timedelta(seconds=30)


def interval_of(context: Context) -> Interval:
    """Returns the data interval of the DAG run.

    Raises:
        AirflowFailException: the run is a manual run that bypassed the timetable, and has no data interval.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None or context["dag_run"].run_type == "manual":
        raise AirflowFailException(
            "this run was triggered by hand and has no data interval of its own; use a scheduled run or a backfill"
        )
    return Interval.of(start, end)


@contextmanager
def airflow_errors(pipeline: Pipeline) -> Iterator[None]:
    """Turns errors of Fencepost into Airflow's. An error that is worth a retry becomes AirflowException, and any other
    becomes AirflowFailException.

    Errors that are not Fencepost's do not change, and Airflow retries them too.
    """
    try:
        yield
    except FencepostError as error:
        kind = AirflowException if is_worth_a_retry(error, pipeline) else AirflowFailException
        raise kind(f"{type(error).__name__}: {message_with_connections(error, pipeline)}") from error


def report(log: Logger, result: StepResult) -> dict[str, JsonValue]:
    """Logs what a step did, and returns its result for XCom. The announcement is left out, because it has every column
    of the output. The asset event has the announcement.
    """
    level = logging.WARNING if "starved_by" in result.details else logging.INFO
    log.log(level, "batch %s: %s", result.batch, result.message)
    return result.model_dump(mode="json", exclude={"details": {"announcement"}})


def planned_beside(pipeline: Pipeline, interval: Interval) -> Callable[[], Neighbours]:
    """Returns a function that returns the interval's planned neighbours in the ledger. Each call reads only the records
    since the last call.

    The function raises a FencepostError if Kafka does not answer or the ledger cannot be read.
    """
    from fencepost.ledger.ledger import Ledger
    from fencepost.protocol.view import View

    @cache
    def ledger() -> Ledger:
        return Ledger(with_connections(pipeline))

    return lambda: Neighbours.of(ledger().read() if ledger().exists() else View(), interval)


class PlanOperator(BaseSensorOperator):
    """Freezes the interval's batch once every earlier interval that has a run is planned (`plan_order.py`).

    `depends_on_past` would keep the order too, but then Airflow refuses a backfill of "Missing Runs"
    (`_validate_backfill_params` in airflow/models/backfill.py). So the plan is a sensor in reschedule mode. While it
    waits in Airflow, it uses neither a slot nor a retry. The plan waits for a free lane in the same way. Airflow needs
    no triggerer for that.
    """

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=COME_AGAIN, timeout=PATIENCE, **kwargs)
        self.pipeline = pipeline

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Plans, or logs what the plan waits for."""
        interval, request = interval_of(context), Request.of(context)
        self.log.info("interval %s, params %s", interval, dict(context["params"]))
        if request.reprocess and request.replay:
            raise AirflowFailException(
                "this run has both parameters, reprocess and replay. Choose one: reprocess writes the interval again, "
                "with its quarantine; replay sends the records that are now in quarantine through the transform."
            )
        answer = self._await_turn(context, interval) or self._plan(interval, request)
        if isinstance(answer, str):
            level = logging.WARNING if context["task_reschedule_count"] >= LONG else logging.INFO
            self.log.log(level, "not yet: %s", answer)
            return False
        return PokeReturnValue(is_done=True, xcom_value=report(self.log, answer))

    def _await_turn(self, context: Context, interval: Interval) -> str | None:
        """Returns what the plan still waits for after this poke. Returns None if the plan may begin."""
        give_back = time.monotonic() + (0 if context["task_reschedule_count"] else AT_ONCE.total_seconds())
        neighbours = planned_beside(self.pipeline, interval)
        with airflow_errors(self.pipeline):
            try:
                while (reason := waits_for(context, neighbours)) is not None and time.monotonic() < give_back:
                    time.sleep(LOOK_AGAIN)
            except Retriable as error:  # waiting uses no retry
                return f"the ledger does not say which earlier intervals are planned: {error}"
        return reason

    def _plan(self, interval: Interval, request: Request) -> StepResult | str:
        from fencepost.steps.plan import plan_batch
        from fencepost.steps.replay import plan_replay

        with airflow_errors(self.pipeline):
            pipeline = with_connections(self.pipeline)
            try:
                if request.replay:
                    return plan_replay(pipeline, interval, request=request.name)
                return plan_batch(
                    pipeline,
                    interval,
                    reprocess=request.reprocess,
                    another_cluster=request.another_cluster and not self._has_moved_since(pipeline, request),
                    sources_changed=request.sources_changed,
                    # A wrong address in a file can be seen, and a change of it can be reviewed.
                    known_cluster=last_cluster(pipeline) if "kafka" in pipeline.connections else None,
                    request=request.name if request.is_any else None,
                )
            except NoFreeLane as error:
                return str(error)

    def _has_moved_since(self, pipeline: Pipeline, request: Request) -> bool:
        """Returns whether a batch was published since the request. If so, the last publication says which cluster the
        request meant.

        The ledger cannot say it, because a later mistake may lead to a third cluster, which has another ledger.
        """
        return request.moment is not None and is_published_since(pipeline, request.moment)
