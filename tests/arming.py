"""Failpoints for the driver of a test, and for the Python workers of a Spark session that lives on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

# Modules of the driver's steps whose failpoints `at_failpoint` knows.
STRUCK = [
    *("steps.plan", "schemas.resolve", "steps.side_tables", "steps.write_job", "steps.write", "steps.validate"),
    "steps.advance",
]


@contextmanager
def at_failpoint(name: str, do: Callable[[], object]) -> Iterator[None]:
    """`do` once, where the driver's steps come by this failpoint, `place` or `place@nth`."""
    wanted, _, nth = name.partition("@")
    visits: Counter[str] = Counter()

    def reached(place: str, task: int | None = None) -> None:
        visits[place] += 1
        if place == wanted and visits[place] == int(nth or 1):
            do()

    with ExitStack() as stack:
        for module in STRUCK:
            stack.enter_context(patch(f"fencepost.{module}.reached", reached))
        yield
    assert visits[wanted] >= int(nth or 1), f"{name} did not strike"


def environment(failpoint: str, strikes: Path) -> dict[str, str]:
    """What arms a failpoint in a process; a file in `strikes` names the process it struck."""
    return {"FENCEPOST_FAILPOINTS": failpoint, "FENCEPOST_FAILPOINT_DIR": str(strikes)}


@contextmanager
def armed(spark: Any, failpoint: str, strikes: Path) -> Iterator[None]:
    """Workers of jobs that are made in this block have the failpoint."""
    end_idle_daemons(spark)
    shared = spark.sparkContext.environment
    before = dict(shared)
    shared.update(environment(failpoint, strikes))
    try:
        yield
    finally:
        shared.clear()
        shared.update(before)


def end_idle_daemons(spark: Any) -> None:
    """End what armed workers were forked from, once these have ended: Spark keeps such a process for each environment."""
    for daemon in psutil.Process(spark.sparkContext._gateway.proc.pid).children():
        with suppress(psutil.NoSuchProcess):
            if "FENCEPOST_FAILPOINTS" in daemon.environ() and not daemon.children():
                daemon.terminate()
