"""The executor's JVM or the driver dies, or one of them stalls, at every step of a write; then the ordinary retry.

Each attempt is a process of its own with its own Spark: some twelve seconds a case, so most of them run in `make fault`.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from conftest import day
from fencepost.steps.plan import plan_batch
from steps import plan_and_write, run
from waiting import await_true

from .checker import Attacked
from .conftest import finished
from .strikes import await_strike_and_retry
from .test_worker_faults import POINTS

Start = Callable[..., subprocess.Popen[str]]
RETRIABLE = 3


def worker_cases() -> Iterator[Any]:
    for place in POINTS:
        name, at, nth = place.partition("@")
        marks = pytest.mark.deep if place == "write.receipt" else pytest.mark.fault
        yield pytest.param(f"{name}#1{at}{nth}", id=place, marks=marks)


@pytest.mark.parametrize("place", list(worker_cases()))
def test_each_record_once_after_the_executors_jvm_was_killed(
    spark: Any, attacked: Callable[..., Attacked], start_step: Start, place: str
) -> None:
    case = attacked()
    plan_batch(case.pipeline, day(1))
    code, said = finished(start_step(case, "write", f"{place}=kill-parent"))
    assert case.has_struck(f"{place}=kill-parent")
    assert code == RETRIABLE, said
    run(spark, case.pipeline, day(1))
    assert case.differences() == []


@pytest.mark.deep
@pytest.mark.parametrize("place", list(worker_cases()))
def test_each_record_once_after_the_driver_was_killed_and_its_worker_went_on(
    spark: Any, attacked: Callable[..., Attacked], start_step: Start, place: str
) -> None:
    """A worker stands still, its driver is killed, the JVM ends with the driver; the retry finishes; the worker goes on."""
    case = attacked()
    plan_batch(case.pipeline, day(1))
    driver = start_step(case, "write", f"{place}=stop")
    worker = psutil.Process(case.await_struck(f"{place}=stop", lambda: driver.poll() is None))
    family = [p for p in psutil.Process(driver.pid).children(recursive=True) if p != worker]
    machines = [p for p in family if p.name() == "java"]
    driver.kill()
    driver.communicate()
    await_true(lambda: not any(alive(p) for p in machines), "the driver's JVM to end", 60)
    run(spark, case.pipeline, day(1))
    with suppress(psutil.NoSuchProcess):  # Spark's daemon may have taken it along
        worker.send_signal(signal.SIGCONT)
    await_true(lambda: not any(alive(p) for p in [worker, *family]), "the worker and its family to end", 60)
    assert case.differences() == []


COORDINATOR = [
    f"coordinator.{at}" for at in ("init", "initialised", "begun", "offsets-sent", "committing", "committed")
]
JUDGED = ["validate.reported", "validate.recorded"]
# The job of a write judges what it wrote: its second transaction in the ledger is the verdict.
JUDGED_BY_WRITE = [*JUDGED, *(f"{place}@2" for place in COORDINATOR)]
IN_SHORT = {
    "write-write.answered=kill": [],
    "write-coordinator.committing=stop": [pytest.mark.deep],
}


def driver_cases(step: str, places: list[str]) -> Iterator[Any]:
    for place in places:
        for action in ("kill", "raise", "stop"):
            name = f"{step}-{place}={action}"
            marks = IN_SHORT.get(name, [pytest.mark.fault])
            yield pytest.param(step, f"{place}={action}", marks=marks, id=name)


@pytest.mark.parametrize(
    ("step", "failpoint"),
    [
        *driver_cases("write", ["write.answered", "write.recorded", *COORDINATOR, *JUDGED_BY_WRITE]),
        *driver_cases("validate", [*JUDGED, *COORDINATOR]),
    ],
)
def test_each_record_once_after_the_driver_was_struck(
    spark: Any, attacked: Callable[..., Attacked], start_step: Start, step: str, failpoint: str
) -> None:
    case = attacked()
    if step == "write":
        plan_batch(case.pipeline, day(1))
    else:
        plan_and_write(spark, case.pipeline, day(1))
    process = start_step(case, step, failpoint)
    place, _, action = failpoint.partition("=")
    unharmed = step == "write" and place in JUDGED_BY_WRITE and action == "raise"  # it has written: validate judges
    await_strike_and_retry(spark, case, process, failpoint, unharmed=unharmed)
    assert case.differences() == []


def alive(process: psutil.Process) -> bool:
    """Whether it still runs (a dead child that nobody waited for does not)."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
