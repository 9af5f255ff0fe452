"""A pipeline with its source filled and a follower reading along, and steps in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from arming import environment as arming_environment
from fencepost.config.pipeline import Pipeline
from fencepost_stack.broker import Broker

from .checker import Attacked

TESTS = Path(__file__).parent.parent


@pytest.fixture
def attacked(
    broker: Broker, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> Iterator[Callable[..., Attacked]]:
    """Make an attacked pipeline; its source is filled."""
    with ExitStack() as stack:

        def make(days: tuple[int, ...] = (1,), bad: int = 0, **changes: object) -> Attacked:
            # Three Arrow batches a task-partition, so that there is a first, a middle and a last one.
            changes.setdefault("spark", {"spark.sql.execution.arrow.maxRecordsPerBatch": 20})
            pipeline = make_pipeline(**changes)
            return stack.enter_context(Attacked(broker.bootstrap, pipeline, tmp_path / "struck", days, bad))

        yield make


@pytest.fixture
def start_step() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start one step in a process of its own, with a failpoint armed; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(case: Attacked, step: str, failpoint: str = "", number: int = 1) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            **arming_environment(failpoint, case.struck),
            "FENCEPOST_PIPELINES": str(case.pipeline.folder.parent),
            "FENCEPOST_SPARK_MASTER": os.environ.get("FENCEPOST_SPARK_MASTER", "local[2]"),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        }
        process = subprocess.Popen(
            [sys.executable, str(TESTS / "step_process.py"), step, case.pipeline.name, str(number)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            for member in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def finished(process: subprocess.Popen[str], limit: float = 120) -> tuple[int, str]:
    """Wait for a step's end: its exit code and what it said."""
    said, _ = process.communicate(timeout=limit)
    return process.returncode, said
