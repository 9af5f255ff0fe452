"""A step is struck, and the ordinary retry or another follows: in the tests' own Spark, or in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from threading import Thread
from typing import Any

from arming import armed
from conftest import day
from fencepost.errors import FencepostError, Retriable
from steps import run
from waiting import await_true

from .checker import Attacked
from .conftest import finished

Retry = Callable[[Any, Attacked], object]


class Attempt(Thread):
    """A step in a thread of its own; `error` is what it ended with."""

    def __init__(self, step: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._step = step
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._step()
        except Exception as error:
            self.error = error


class Crash(Exception):
    """The driver's death."""


def crash() -> None:
    raise Crash


def run_again(spark: Any, case: Attacked) -> None:
    run(spark, case.pipeline, day(1))


def strike_worker_and_retry(
    spark: Any, case: Attacked, failpoint: str, step: Callable[[], object], retry: Retry = run_again
) -> None:
    """Killed and failed attempts end with a retriable error. A stopped one stands still while the retry finishes, and then
    goes on as a zombie: it is refused, or finds its work done."""
    attempt = Attempt(step)
    with armed(spark, failpoint, case.struck):
        attempt.start()
        pid = case.await_struck(failpoint, attempt.is_alive)
        if failpoint.endswith("stop"):
            await_true(lambda: alone(spark), f"the other tasks than {failpoint}'s to end")
        else:
            attempt.join(60)
            assert isinstance(attempt.error, Retriable)
    retry(spark, case)
    if failpoint.endswith("stop"):
        os.kill(pid, signal.SIGCONT)
        attempt.join(120)
        assert attempt.error is None or isinstance(attempt.error, FencepostError)
    assert not attempt.is_alive()


def alone(spark: Any) -> bool:
    """Whether one task is all that still runs. While others do, a retry would fence these: their job would fail, and Spark would
    kill the stopped worker with it."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numTasks - stage.numCompletedTasks for stage in stages if stage is not None) == 1


def await_strike_and_retry(
    spark: Any,
    case: Attacked,
    process: subprocess.Popen[str],
    failpoint: str,
    retry: Retry = run_again,
    *,
    unharmed: bool = False,
) -> None:
    """The same of a step in a process of its own: a stopped one goes on behind the retry, one that is unharmed ends well."""
    pid = case.await_struck(failpoint, lambda: process.poll() is None)
    if failpoint.endswith("stop"):
        retry(spark, case)
        os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert (code == 0) is unharmed or failpoint.endswith("stop"), said
    if not failpoint.endswith("stop"):
        retry(spark, case)
