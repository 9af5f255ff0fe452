"""Executors in JVMs of their own, and Spark's speculation on: a task that stands still gets a twin, and the twin wins."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from conftest import day
from fencepost.plan import plan_batch
from steps import run

from .checker import Attacked
from .conftest import finished

SPECULATION = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": 20,
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
}


@pytest.mark.parametrize("place", ["write.rows#0", pytest.param("write.committed#0", marks=pytest.mark.fault)])
def test_a_twin_takes_over_and_the_records_are_there_once(
    spark: Any,
    attacked: Callable[..., Attacked],
    start_step: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    """One attempt of one job: nobody runs the step again. The twin fences the task that stands still, or finds its mark."""
    monkeypatch.setenv("FENCEPOST_SPARK_MASTER", "local-cluster[2,1,512]")
    case = attacked(spark=SPECULATION)
    plan_batch(case.pipeline, day(1))
    process = start_step(case, "write", f"{place}=stop")
    pid = case.await_struck(f"{place}=stop", lambda: process.poll() is None)
    assert finished(process) == (0, "")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    run(spark, case.pipeline, day(1))
    assert case.differences() == []
