"""Airflow's deadline alert for a scheduled interval that is not published in time: `schedule.deadline_minutes`.

The scheduler computes the deadline when it creates the run, so the plugin registers `IntervalEnd`. A run that succeeds in time
removes its deadline. A run that fails, waits or is rejected misses it.

The callback runs in the triggerer, whatever the executor is. Airflow gives any other kind to the executor, and one that takes no
callbacks raises in the scheduler's loop, which ends the scheduler for all DAGs, again after each restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import BaseDeadlineReference, DeadlineAlert

from fencepost.config.loading import find_pipeline
from fencepost.config.pipeline import Pipeline, Schedule
from fencepost.config.public import pipeline_of_public
from fencepost.errors import FencepostError
from fencepost.model import utc_now

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from fencepost.airflow.happening import Facts
    from fencepost.model import Batch, Interval

log = logging.getLogger("fencepost.deadline")


@dataclass(eq=False)  # the base compares and hashes what is serialized
class IntervalEnd(BaseDeadlineReference):
    """The end of a scheduled run's data interval.

    A run has no deadline that is over when the run is made: it was made to catch up. Neither has a backfill.
    """

    minutes: float = 0  # from the interval's end to the deadline
    required_kwargs: ClassVar[set[str]] = {"dag_id", "run_id"}

    def serialize_reference(self) -> dict[str, Any]:
        """Airflow's form."""
        return {**super().serialize_reference(), "minutes": self.minutes}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> Self:
        """What was serialized."""
        return cls(reference_data.get("minutes", 0))  # an error here would end the scheduler

    def _evaluate_with(self, *, session: Session, dag_id: str, run_id: str) -> datetime | None:
        from airflow.models import DagRun
        from sqlalchemy import select

        of_run = select(DagRun.data_interval_end).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        end = session.scalar(of_run.where(DagRun.run_type == "scheduled"))
        return end if end is not None and end + timedelta(minutes=self.minutes) > utc_now() else None


def alert_of(schedule: Schedule, public: Mapping[str, Any] | None = None) -> DeadlineAlert | None:
    """The pipeline's alert; None if it has no deadline. `public` are its settings, where the DAG carries them."""
    minutes = schedule.deadline_minutes
    if minutes is None:
        return None
    callback = AsyncCallback(f"{__name__}.{say_so.__name__}", {"public": public} if public is not None else None)
    name = f"published {minutes:g} minutes after the interval's end"
    return DeadlineAlert(IntervalEnd(minutes), timedelta(minutes=minutes), callback, name=name)


async def say_so(context: dict[str, Any], public: Mapping[str, Any] | None = None) -> None:
    """Log that a deadline was missed, with the state of the batch, and send the event `late`. `context` is Airflow's, for
    callbacks.

    A ledger that does not exist yet, or cannot be read, stops neither. Airflow calls this once for each missed deadline; another
    thread does the work, so that the triggerer's other triggers go on.
    """
    await asyncio.to_thread(_say_so, context, public)


def _say_so(context: dict[str, Any], public: Mapping[str, Any] | None) -> None:
    from fencepost.airflow.happening import Happening, Run
    from fencepost.airflow.notifying import notes_outside_of_tasks, tell, tell_recovered
    from fencepost.model import Interval
    from fencepost.protocol.view import PASSED

    run = context["dag_run"]
    interval = Interval.of(*(datetime.fromisoformat(run[f"data_interval_{side}"]) for side in ("start", "end")))
    pipeline, batch, standing = _standing(run["dag_id"], interval, public)
    log.error(
        "pipeline %s, interval %s to %s: not published by %s. Its batch is %s; see run %s.",
        run["dag_id"],
        interval.start.isoformat(),
        interval.end.isoformat(),
        context["deadline"]["deadline_time"],
        standing,
        run["dag_run_id"],
    )
    if pipeline is None or not pipeline.notify:
        return
    until = interval.end + timedelta(minutes=pipeline.schedule.deadline_minutes or 0)
    if batch is not None and batch.state in PASSED and batch.changed_at <= until:
        return  # by a command: Airflow knows only that this run did not succeed
    notes = notes_outside_of_tasks(pipeline)
    happened = Happening("late", pipeline.name, interval, Run.of(context), _facts(batch), until=until)
    tell(context, pipeline, happened, notes)
    # The run may have published the batch before it could know that this was sent.
    _, batch, _ = _standing(run["dag_id"], interval, public)
    if batch is not None and batch.state in PASSED:
        recovered = Happening("recovered", pipeline.name, interval, Run.of(context), _facts(batch))
        tell_recovered(context, pipeline, recovered, notes)


def _facts(batch: Batch | None) -> Facts:
    from fencepost.airflow.happening import Facts

    return Facts.of_batch(batch) if batch else Facts()


def _standing(
    name: str, interval: Interval, public: Mapping[str, Any] | None
) -> tuple[Pipeline | None, Batch | None, str]:
    """The pipeline and its batch, as far as they can be read, and the batch's state in words."""
    from fencepost.airflow.connections import with_connections
    from fencepost.ledger.ledger import Ledger

    pipeline = None
    try:
        pipeline = find_pipeline(name) if public is None else pipeline_of_public(public, name)
        batch = Ledger(with_connections(pipeline)).read().last(interval)
    except FencepostError as error:
        return pipeline, None, f"unknown ({error})"
    return pipeline, batch, f"{batch.state}, revision {batch.revision}" if batch else "not planned"
