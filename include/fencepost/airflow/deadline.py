"""Airflow's deadline alert for a scheduled interval that is not published in time: `schedule.deadline_minutes`.

The scheduler computes the deadline when it creates the run, so the plugin registers `IntervalEnd`. A run that succeeds in time
removes its deadline. A run that fails, waits or is rejected misses it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import BaseDeadlineReference, DeadlineAlert

from fencepost.config.loading import find_pipeline
from fencepost.config.pipeline import Pipeline, Schedule
from fencepost.config.public import pipeline_of_public
from fencepost.errors import FencepostError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from fencepost.model import Batch, Interval

log = logging.getLogger("fencepost.deadline")


class IntervalEnd(BaseDeadlineReference):
    """The end of a scheduled run's data interval. A backfill has no deadline: it is late on purpose."""

    required_kwargs: ClassVar[set[str]] = {"dag_id", "run_id"}

    def _evaluate_with(self, *, session: Session, dag_id: str, run_id: str) -> datetime | None:
        from airflow.models import DagRun
        from sqlalchemy import select

        of_run = select(DagRun.data_interval_end).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        return session.scalar(of_run.where(DagRun.run_type == "scheduled"))


def alert_of(schedule: Schedule, public: Mapping[str, Any] | None = None) -> DeadlineAlert | None:
    """The pipeline's alert; None if it has no deadline. `public` are its settings, where the DAG carries them."""
    if schedule.deadline_minutes is None:
        return None
    name = f"published {schedule.deadline_minutes:g} minutes after the interval's end"
    after = timedelta(minutes=schedule.deadline_minutes)
    own = {"public": public} if public is not None else None
    return DeadlineAlert(IntervalEnd(), after, SyncCallback(f"{__name__}.{say_so.__name__}", own), name=name)


def say_so(context: dict[str, Any], public: Mapping[str, Any] | None = None) -> None:
    """Log that a deadline was missed, with the state of the batch, and send the event `late`. `context` is Airflow's, for
    callbacks.

    A ledger that does not exist yet, or cannot be read, stops neither. Airflow calls this once for each missed deadline, and
    gives it no state store for notes.
    """
    from fencepost.airflow.happening import Facts, Happening, Run
    from fencepost.airflow.notifying import NoNotes, tell
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
    if pipeline is None:
        return
    until = interval.end + timedelta(minutes=pipeline.schedule.deadline_minutes or 0)
    if batch is not None and batch.state in PASSED and batch.changed_at <= until:
        return  # by a command: Airflow knows only that this run did not succeed
    facts = Facts.of_batch(batch) if batch else Facts()
    tell(context, pipeline, Happening("late", pipeline.name, interval, Run.of(context), facts, until=until), NoNotes())


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
