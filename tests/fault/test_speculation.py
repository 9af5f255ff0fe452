"""Spark's speculation on: a task that stands still gets a twin on the other host, and the twin's records are the only ones."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arming import environment
from conftest import day
from fencepost.steps.plan import plan_batch
from rigs.spark_cluster import spark_cluster
from steps import run

from .checker import Attacked
from .conftest import finished

SPECULATION = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": 20,
    "spark.executor.memory": "512m",
    "spark.executor.cores": 1,
    "spark.cores.max": 2,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    # Longer than a task takes on a busy machine. Otherwise a slow first attempt gets a twin, and the twin is then stopped.
    "spark.speculation.minTaskRuntime": "20s",
}

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]


@pytest.mark.parametrize("place", ["write.begun#0", "write.rows#0", "write.committing#0", "write.committed#0"])
def test_a_twin_takes_over_and_the_records_are_there_once(
    spark: Any,
    attacked: Callable[..., Attacked],
    start_step: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    place: str,
) -> None:
    """One attempt of one job: nobody runs the step again. The twin fences the task that stands still, or finds its mark."""
    armed = environment(f"{place}=stop", tmp_path / "struck")  # executors are not children of the driver here
    case = attacked(spark=SPECULATION | {f"spark.executorEnv.{name}": value for name, value in armed.items()})
    plan_batch(case.pipeline, day(1))
    with spark_cluster(tmp_path):
        process = start_step(case, "write")
        pid = case.await_struck(f"{place}=stop", lambda: process.poll() is None)
        assert finished(process) == (0, "")
        assert {folder.parents[2].name for folder in tmp_path.glob("*/work/app-*/*")} == {"worker-1", "worker-2"}
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    run(spark, case.pipeline, day(1))
    assert case.differences() == []
