"""Pipelines to build DAGs from, in an AIRFLOW_HOME of their own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pendulum
import pytest

if "AIRFLOW_HOME" not in os.environ:  # Airflow makes it when it is first imported; never in the user's home
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="fencepost-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

from airflow.sdk.api.datamodels._generated import DagRunState, DagRunType

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval, State, StepResult
from fencepost.protocol.planning import Neighbours

PIPELINE_YAML = """
description: What came in, counted.
source: {topic: in, format: bytes}
output: {topic: out, format: bytes}
schedule: {cron: "0 0 * * *", timezone: America/New_York, start: 2013-03-01T00:00:00-05:00, retries: 2}
kafka: {bootstrap.servers: "127.0.0.1:1", sasl.password: hunter2}
"""


@pytest.fixture(autouse=True)
def _has_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's settings say where its UI is, as where it was set up with care."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/team/")


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty FENCEPOST_PIPELINES."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(folder))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / "state"))
    return folder


@pytest.fixture
def make_pipeline(pipelines: Path) -> Callable[..., Pipeline]:
    """A pipeline's folder, and the pipeline in it."""

    def make(name: str = "counted", settings: str = PIPELINE_YAML) -> Pipeline:
        folder = pipelines / name
        folder.mkdir()
        (folder / "pipeline.yaml").write_text(settings)
        (folder / "transform.sql").write_text("SELECT key AS _key, value FROM {source}")
        (folder / "expectations.yaml").write_text("expectations: []\n")
        return load_pipeline(folder)

    return make


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """One good pipeline."""
    return make_pipeline()


@pytest.fixture
def interval() -> Interval:
    """A New York day."""
    zone = ZoneInfo("America/New_York")
    return Interval.of(datetime(2013, 3, 1, tzinfo=zone), datetime(2013, 3, 2, tzinfo=zone))


@pytest.fixture
def result(interval: Interval) -> StepResult:
    """What a step that did its work says."""
    return StepResult(
        step="write", batch=f"counted/{interval}/1", revision=1, state=State.WRITTEN, changed=True, message="did it"
    )


class FakeTaskInstance:
    """The plans of earlier runs, newest first, a day apart: (run_id, plan's state, run's state, run's type)."""

    dag_id = "counted"
    try_number = 1
    returned: ClassVar[dict[str, Any]] = {}

    def __init__(self, earlier: Sequence[tuple[str, str | None, str, str]]) -> None:
        day = datetime(2013, 3, 1, tzinfo=UTC)
        self.earlier = [
            SimpleNamespace(
                run_id=run_id, state=plan, run_state=run, run_type=kind, logical_date=day - timedelta(days=number)
            )
            for number, (run_id, plan, run, kind) in enumerate(earlier, start=1)
        ]

    def get_previous_ti(self, *, logical_date: datetime) -> Any:
        return next((ti for ti in self.earlier if ti.logical_date < logical_date), None)

    def run_of(self, dag_id: str, run_id: str) -> Any:
        """What Airflow's API answers a task that asks for a run."""
        return next(
            SimpleNamespace(run_type=DagRunType(ti.run_type), state=DagRunState(ti.run_state))
            for ti in self.earlier
            if ti.run_id == run_id
        )

    def xcom_pull(self, *, task_ids: str) -> Any:
        return self.returned.get(task_ids)

    def get_first_reschedule_date(self, context: Any) -> None:
        return None


ContextOf = Callable[..., dict[str, Any]]


def context_in(
    interval: Interval,
    *earlier: tuple[str, str | None, str, str],
    waits: int = 0,
    run_type: str = "scheduled",
    reprocess: bool = False,
    replay: bool = False,
) -> dict[str, Any]:
    """What Airflow gives a task of the interval's run, as far as our operators look at it."""
    return {
        "data_interval_start": pendulum.instance(interval.start),
        "data_interval_end": pendulum.instance(interval.end),
        "params": {"reprocess": reprocess, "replay": replay},
        "task_reschedule_count": waits,
        "dag_run": SimpleNamespace(dag_id="counted", run_id="run 1", logical_date=interval.start, run_type=run_type),
        "ti": FakeTaskInstance(earlier),
    }


@pytest.fixture
def context_of(interval: Interval, monkeypatch: pytest.MonkeyPatch) -> ContextOf:
    """`context_in` that interval, with a ledger that has nothing."""

    def make(*earlier: tuple[str, str | None, str, str], **options: Any) -> dict[str, Any]:
        context = context_in(interval, *earlier, **options)
        monkeypatch.setattr("fencepost.airflow.plan_order.run_of", context["ti"].run_of)
        return context

    monkeypatch.setattr("fencepost.airflow.operators.planned_beside", lambda *_: Neighbours)
    return make
