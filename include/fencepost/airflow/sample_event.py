"""Makes a test event for `fencepost notify --test`. The event has invented figures, and says that it is a test."""

from __future__ import annotations

import os
from datetime import timedelta

from fencepost.airflow.notifications import NotifierResult, send
from fencepost.airflow.notified_event import BatchFacts, Check, NotifiedEvent, Run
from fencepost.config.notify import Event
from fencepost.config.pipeline import Pipeline
from fencepost.model import BatchId, Interval, Outcome, State, utc_now


def send_test(pipeline: Pipeline, event: Event) -> list[NotifierResult]:
    """Sends the event through every entry of `notify` that names it, and returns the result for each."""
    # Connections come from where Airflow has them: its secrets backend, the environment, and its database if this
    # machine's settings name it.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    entries = [entry for entry in pipeline.notify if event in entry.on]
    return send({}, entries, example_of(pipeline, event))


def example_of(pipeline: Pipeline, event: Event) -> NotifiedEvent:
    """Returns an example of the event for the hour that has just ended."""
    end = utc_now().replace(minute=0, second=0)
    interval = Interval(start=end - timedelta(hours=1), end=end)
    is_good = event in {"recovered", "quarantined"}
    facts = BatchFacts(
        batch=str(BatchId(pipeline=pipeline.name, interval=interval, revision=1)),
        revision=1,
        number=0 if event in {"failed", "late"} else 1,
        state=str(State.PUBLISHED if is_good else State.REJECTED),
        verdict=None if event in {"failed", "late"} else str(Outcome.PASSED if is_good else Outcome.REJECTED),
        reason="A made-up reason",
        rows=100,
        quarantined={"malformed": 2},
        checks=()
        if is_good
        else (Check("expect_column_values_to_not_be_null(made_up)", "critical", "failed", 3, 100),),
    )
    run = Run(pipeline.name, "test", "scheduled")
    return NotifiedEvent(event, pipeline.name, interval, run, facts, step="write", until=end, is_test=True)
