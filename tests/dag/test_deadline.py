"""The deadline of a scheduled run, and what it says when it is missed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.definitions.callback import SyncCallback

from fencepost.airflow import build_dag, deadline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, NeedsOperator, SettingsError
from fencepost.model import Interval

from .conftest import PIPELINE_YAML

MakePipeline = Callable[..., Pipeline]


def settings(more: str) -> str:
    return PIPELINE_YAML.replace("retries: 2}", f"retries: 2, {more}}}")


def test_no_deadline_unless_asked_for(pipeline: Pipeline) -> None:
    assert not build_dag(pipeline).deadline


def test_the_alert_is_reckoned_from_the_intervals_end(make_pipeline: MakePipeline) -> None:
    (alert,) = build_dag(make_pipeline(settings=settings("deadline_minutes: 90"))).deadline
    assert isinstance(alert.reference, deadline.IntervalEnd)
    assert alert.interval == timedelta(minutes=90)
    assert alert.callback == SyncCallback("fencepost.airflow.deadline.say_so")
    assert alert.name == "published 90 minutes after the interval's end"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("deadline_minutes: 0", "schedule.deadline_minutes"),
        ("deadline_minutes: soon", "schedule.deadline_minutes"),
    ],
)
def test_what_makes_no_sense_is_refused(make_pipeline: MakePipeline, more: str, says: str) -> None:
    with pytest.raises(SettingsError, match=r"pipeline\.yaml") as refused:
        make_pipeline(settings=settings(more))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("failure", "stands"),
    [(None, "not planned"), (NeedsOperator("no topic fencepost.counted.ledger."), "unknown (no topic fencepost.")],
)
def test_a_missed_deadline_is_told_with_where_the_batch_stands_as_far_as_that_is_known(
    make_pipeline: MakePipeline,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: FencepostError | None,
    stands: str,
) -> None:
    """A pipeline that never ran is late too, and has no ledger."""
    make_pipeline()
    asked: list[Interval] = []

    class FakeLedger:
        def __init__(self, pipeline: Pipeline) -> None: ...

        def read(self) -> FakeLedger:
            if failure:
                raise failure
            return self

        def last(self, interval: Interval) -> None:
            asked.append(interval)

    monkeypatch.setattr("fencepost.ledger.ledger.Ledger", FakeLedger)
    run: dict[str, Any] = {
        "dag_id": "counted",
        "dag_run_id": "scheduled__2",
        "run_type": "scheduled",
        "data_interval_start": "2013-03-01T05:00:00Z",
        "data_interval_end": "2013-03-02T05:00:00Z",
    }
    with caplog.at_level(logging.ERROR):
        deadline.say_so({"dag_run": run, "deadline": {"id": "1", "deadline_time": "2013-03-02T06:30:00Z"}})
    interval = Interval.of(datetime(2013, 3, 1, 5, tzinfo=UTC), datetime(2013, 3, 2, 5, tzinfo=UTC))
    assert asked == ([] if failure else [interval])
    (entry,) = caplog.messages
    assert f"not published by 2013-03-02T06:30:00Z. Its batch is {stands}" in entry
    assert entry.endswith("; see run scheduled__2.")
