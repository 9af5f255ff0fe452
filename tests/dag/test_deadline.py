"""The deadline of a scheduled run, and what it says when it is missed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.executors.base_executor import BaseExecutor
from airflow.models.callback import Callback, CallbackType, TriggererCallback
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.serialization.decoders import decode_deadline_alert
from airflow.serialization.encoders import encode_deadline_alert
from airflow.triggers.callback import CallbackTrigger
from airflow.utils.state import CallbackState

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
    assert alert.callback == AsyncCallback("fencepost.airflow.deadline.say_so")
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
        asyncio.run(
            deadline.say_so(
                {"dag_run": run, "deadline": {"id": "1", "deadline_time": datetime(2013, 3, 2, 6, 30, tzinfo=UTC)}}
            )
        )
    interval = Interval.of(datetime(2013, 3, 1, 5, tzinfo=UTC), datetime(2013, 3, 2, 5, tzinfo=UTC))
    assert asked == ([] if failure else [interval])
    (entry,) = caplog.messages
    assert f"not published by 2013-03-02T06:30:00+00:00. Its batch is {stands}" in entry
    assert entry.endswith("; see run scheduled__2.")


def serialized(pipeline: Pipeline) -> Any:
    """The alert as the scheduler has it."""
    (alert,) = build_dag(pipeline).deadline
    return decode_deadline_alert(encode_deadline_alert(alert))


class Runs:
    """A session that knows the end of one run's interval, if the run is scheduled."""

    def __init__(self, end: datetime | None) -> None:
        self.end = end

    def scalar(self, statement: Any) -> datetime | None:
        return self.end


def test_no_executor_gets_the_callback_whether_it_takes_callbacks_or_not(
    make_pipeline: MakePipeline, registered: None
) -> None:
    """The scheduler would give one of its own kind to an executor, and most end the scheduler by refusing it."""
    made = Callback.create_from_sdk_def(serialized(make_pipeline(settings=settings("deadline_minutes: 90"))).callback)
    assert isinstance(made, TriggererCallback)
    assert made.type == CallbackType.TRIGGERER
    assert not BaseExecutor.supports_callbacks, "as of KubernetesExecutor, and of any executor that says nothing"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin's reference is known, as in the scheduler."""
    known = {f"{deadline.__name__}.IntervalEnd": deadline.IntervalEnd}
    monkeypatch.setattr("airflow.plugins_manager.get_deadline_references_plugins", lambda: known)


@pytest.mark.parametrize(
    ("ended", "made"),
    [
        (timedelta(minutes=89), True),
        (timedelta(0), True),
        (timedelta(minutes=90), False),
        (timedelta(minutes=91), False),
        (timedelta(days=400), False),
        (None, False),
    ],
    ids=["a minute before", "at once", "as it passes", "a minute after", "catching up", "a backfill"],
)
def test_a_run_that_is_made_after_its_deadline_has_none(
    make_pipeline: MakePipeline,
    registered: None,
    monkeypatch: pytest.MonkeyPatch,
    ended: timedelta | None,
    made: bool,
) -> None:
    now = datetime(2013, 3, 2, 6, 30, tzinfo=UTC)
    monkeypatch.setattr(deadline, "utc_now", lambda: now)
    alert = serialized(make_pipeline(settings=settings("deadline_minutes: 90")))
    end = now - ended if ended is not None else None
    session: Any = Runs(end)
    at = alert.reference.evaluate_with(session=session, interval=alert.interval, dag_id="counted", run_id="run")
    assert at == (end + timedelta(minutes=90) if made and end is not None else None)


def test_airflows_trigger_runs_the_callback_beside_its_other_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def run() -> list[Any]:
        gone_on = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work(context: Any, public: Any) -> None:
            seen.append((context, public))
            asyncio.run_coroutine_threadsafe(_set(gone_on), loop).result(20)  # it would block if this were the loop's

        monkeypatch.setattr(deadline, "_say_so", work)
        kwargs = {"context": {"dag_run": {}}, "public": {"settings": {}}}
        trigger = CallbackTrigger("fencepost.airflow.deadline.say_so", kwargs)
        return [event.payload["state"] async for event in trigger.run()]

    async def _set(event: asyncio.Event) -> None:
        event.set()

    assert asyncio.run(run()) == [CallbackState.RUNNING, CallbackState.SUCCESS]
    assert seen == [({"dag_run": {}}, {"settings": {}})]
