"""Adds Airflow's deadline alert for a scheduled interval that is not published in time (`schedule.deadline_minutes`).

The scheduler computes the deadline when it creates the run, so the plugin registers `IntervalEnd`. A run that succeeds in time
removes its deadline. A run that fails, waits or is rejected misses it.

The callback runs in the triggerer, whatever the executor is. Airflow would give any other kind of callback to the
executor. An executor without support for callbacks raises an error in the scheduler's loop. The error ends the
scheduler for all DAGs, again after each restart.
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
from fencepost.config.notify import Notify
from fencepost.config.pipeline import Pipeline
from fencepost.config.public_settings import pipeline_of_public
from fencepost.errors import FencepostError
from fencepost.model import utc_now
from fencepost.spark.diagnosis import describe

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from fencepost.airflow.notifications import Recipients
    from fencepost.airflow.notified_event import BatchFacts
    from fencepost.model import Batch, Interval

log = logging.getLogger("fencepost.deadline")


@dataclass(eq=False)  # the base class compares and hashes the serialized form
class IntervalEnd(BaseDeadlineReference):
    """The end of a scheduled run's data interval.

    A run whose deadline has passed when it is created gets no deadline, because it was created to catch up. A
    backfill's run gets none either.
    """

    minutes: float = 0  # from the interval's end to the deadline
    required_kwargs: ClassVar[set[str]] = {"dag_id", "run_id"}

    def serialize_reference(self) -> dict[str, Any]:
        """Returns Airflow's serialized form."""
        return {**super().serialize_reference(), "minutes": self.minutes}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> Self:
        """Returns the object of a serialized form."""
        return cls(reference_data.get("minutes", 0))  # an error here would end the scheduler

    def _evaluate_with(self, *, session: Session, dag_id: str, run_id: str) -> datetime | None:
        from airflow.models import DagRun
        from sqlalchemy import select

        of_run = select(DagRun.data_interval_end).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        end = session.scalar(of_run.where(DagRun.run_type == "scheduled"))
        return end if end is not None and end + timedelta(minutes=self.minutes) > utc_now() else None


def alert_of(pipeline: Pipeline, public: Mapping[str, Any] | None = None) -> DeadlineAlert | None:
    """Returns the pipeline's alert, or None if it has no deadline. `public` has the pipeline's settings if the DAG
    carries them.

    The alert itself always has the recipients. The interval may be late because the pipeline cannot be read.
    """
    minutes = pipeline.schedule.deadline_minutes
    if minutes is None:
        return None
    if any("late" in entry.on for entry in pipeline.notify):
        # None of it is a secret, or from the environment.
        recipients = [entry.model_dump(mode="json") for entry in pipeline.notify]
        public = {**(public or {}), "notify": recipients, "output": pipeline.output.name}
    callback = AsyncCallback(f"{__name__}.{say_so.__name__}", {"public": public} if public is not None else None)
    name = f"published {minutes:g} minutes after the interval's end"
    return DeadlineAlert(IntervalEnd(minutes), timedelta(minutes=minutes), callback, name=name)


async def say_so(context: dict[str, Any], public: Mapping[str, Any] | None = None) -> None:
    """Logs that a deadline was missed, with the state of the batch, and sends the event `late`. `context` is the
    context of Airflow's callbacks.

    It does both even if the ledger does not exist or cannot be read, and even if the pipeline cannot be read. Airflow
    calls it once for each missed deadline. Another thread does the work, so the triggerer's other triggers continue.
    """
    await asyncio.to_thread(_say_so, context, public)


def _say_so(context: dict[str, Any], public: Mapping[str, Any] | None) -> None:
    from fencepost.airflow.notifications import Recipients, notes_outside_of_tasks, tell, tell_recovered
    from fencepost.airflow.notified_event import NotifiedEvent, Run
    from fencepost.model import Interval
    from fencepost.protocol.view import PASSED

    run = context["dag_run"]
    interval = Interval.of(*(datetime.fromisoformat(run[f"data_interval_{side}"]) for side in ("start", "end")))
    until: datetime = context["deadline"]["deadline_time"]
    pipeline, batch, standing = _standing(run["dag_id"], interval, public)
    log.error(
        "pipeline %s, interval %s to %s: not published by %s. Its batch is %s; see run %s.",
        run["dag_id"],
        interval.start.isoformat(),
        interval.end.isoformat(),
        until.isoformat(),
        standing,
        run["dag_run_id"],
    )
    recipients = _carried(run["dag_id"], public) if pipeline is None else Recipients.of(pipeline)
    if recipients is None or not recipients.notify:
        return
    if batch is not None and batch.state in PASSED and batch.changed_at <= until:
        return  # a command settled it: Airflow knows only that this run did not succeed
    notes = notes_outside_of_tasks(recipients)
    happened = NotifiedEvent("late", recipients.name, interval, Run.of(context), _facts(batch), until=until)
    tell(context, recipients, happened, notes)
    # The run may have published the batch before this event was noted as sent.
    _, batch, _ = _standing(run["dag_id"], interval, public)
    if batch is not None and batch.state in PASSED:
        recovered = NotifiedEvent("recovered", recipients.name, interval, Run.of(context), _facts(batch))
        tell_recovered(context, recipients, recovered, notes)


def _carried(name: str, public: Mapping[str, Any] | None) -> Recipients | None:
    """Returns the recipients that the alert itself has, or None if it has none."""
    from fencepost.airflow.notifications import Recipients

    if public is None or "notify" not in public:
        return None
    return Recipients(name, public["output"], tuple(map(Notify.model_validate, public["notify"])))


def _facts(batch: Batch | None) -> BatchFacts:
    from fencepost.airflow.notified_event import BatchFacts

    return BatchFacts.of_batch(batch) if batch else BatchFacts()


def _standing(
    name: str, interval: Interval, public: Mapping[str, Any] | None
) -> tuple[Pipeline | None, Batch | None, str]:
    """Returns the pipeline and its batch, or None for each that cannot be read, and the batch's state in words."""
    from fencepost.airflow.connections import with_connections
    from fencepost.ledger.ledger import Ledger

    pipeline, has_settings = None, public is not None and "settings" in public
    try:
        pipeline = pipeline_of_public(public, name) if public and has_settings else find_pipeline(name)
        batch = Ledger(with_connections(pipeline)).read().last(interval)
    except FencepostError as error:
        return pipeline, None, f"unknown ({error})"
    except Exception as error:  # the error's text may quote what it read
        return pipeline, None, f"unknown ({describe(error)})"
    return pipeline, batch, f"{batch.state}, revision {batch.revision}" if batch else "not planned"
