"""A write that is killed at its worst moments, then simply run again: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fencepost.local.broker import Broker
from fencepost.settings import Pipeline

from waiting import await_true

from .faults import Fault, alive, finish

pytestmark = pytest.mark.fault


@pytest.fixture
def fault(broker: Broker, make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> Fault:
    fault = Fault(broker, make_pipeline(), tmp_path)
    fault.fill()
    return fault


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("write.receipt#1=kill", id="worker, after its commit and before Spark hears of it"),
        pytest.param("write.receipt#1=kill-parent", id="executor JVM, after one partition's commit"),
        pytest.param("write.offsets-sent#0=kill", id="worker, with everything sent and nothing committed"),
    ],
)
def test_a_retry_after_a_kill_gives_each_record_once(fault: Fault, failpoint: str) -> None:
    code, _ = fault.run(failpoint)
    assert code == 3, "the attempt fails, and says that it is worth running again"
    fault.struck(failpoint)
    assert fault.run() == (0, "")
    assert fault.differences() == []


def test_a_driver_killed_with_one_partition_committed_takes_its_jvm_along(fault: Fault) -> None:
    failpoint = "write.receipt#1=stop"
    process = fault.start(failpoint)
    worker = fault.struck(failpoint)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    os.kill(worker, signal.SIGKILL)  # it is stopped, so it cannot see that its JVM is gone
    await_true(lambda: not any(alive(p.pid) for p in family), "the driver's processes to end", 60)
    assert fault.run() == (0, "")
    assert fault.differences() == []


def test_a_finished_run_killed_at_its_end_is_found_done(fault: Fault) -> None:
    process = fault.start("advance.answered=kill")
    finish(process)
    assert process.returncode == -signal.SIGKILL
    assert fault.run() == (0, "")
    assert fault.differences() == []
