"""Failpoints for the Python workers of a Spark session that lives on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil


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
