"""Spark loses a shuffle's files when a task-partition has committed, as with their executor, and makes them again by itself.

In a process of its own: Spark takes its only executor for lost then, and the session does not live on for long.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import TRANSFORM, day
from fencepost.errors import TransformNotDeterministic
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from steps import latest, run

from .checker import Attacked
from .conftest import finished

pytestmark = pytest.mark.deep

PLACE = "write.init#1=stop"
# Another key for each row on each run.
UUID = 'def transform(frame):\n    return frame.selectExpr("cast(uuid() as binary) AS _key", "n", "name")\n'


@pytest.fixture
def written_without_its_shuffle(
    attacked: Callable[..., Attacked],
    start_step: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[[str], tuple[Attacked, int, str]]:
    def write(transform: str) -> tuple[Attacked, int, str]:
        """The case, the write step's exit code and what it said. One task runs at a time: the first has committed."""
        monkeypatch.setenv("FENCEPOST_SPARK_MASTER", "local[1]")
        local = {"spark.local.dir": str(tmp_path / "spark")}
        case = attacked(transform=transform, output={"layout": "output"}, spark=local)
        plan_batch(case.pipeline, day(1))
        process = start_step(case, "write", PLACE)
        worker = case.await_struck(PLACE, lambda: process.poll() is None)
        files = list((tmp_path / "spark").rglob("shuffle_*"))
        assert files
        for file in files:
            file.unlink()
        os.kill(worker, signal.SIGCONT)
        return case, *finished(process)

    return write


def test_the_same_rows_are_there_once(
    spark: Any, written_without_its_shuffle: Callable[[str], tuple[Attacked, int, str]]
) -> None:
    case, code, said = written_without_its_shuffle(TRANSFORM)
    assert code == 0, said
    assert run(spark, case.pipeline, day(1)).revision == 1
    assert case.differences() == []


def test_other_rows_are_found(written_without_its_shuffle: Callable[[str], tuple[Attacked, int, str]]) -> None:
    case, code, said = written_without_its_shuffle(UUID)
    assert (code, said.partition(":")[0]) == (TransformNotDeterministic.exit_code, "TransformNotDeterministic"), said
    assert latest(case.pipeline, day(1)).state is State.PLANNED
