"""A Python worker is struck at every step of the writer's protocol; then the ordinary retry. Nothing lost, nothing doubled.

The attempt runs in the tests' own Spark, so the JVM lives on; `test_process_faults.py` kills that and the driver.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from arming import armed
from conftest import TRANSFORM, day
from fencepost.config.pipeline import Pipeline
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from kafka_tools import read_all
from steps import latest, run

from .checker import PARTITIONS, PER_PARTITION, Attacked
from .strikes import Attempt, strike_worker_and_retry

POINTS = [
    "write.init",
    "write.initialised",
    "write.mark-read",
    "write.begun",
    "write.rows",
    "write.rows@3",
    "write.offsets-sent",
    "write.committing",
    "write.committed",
    "write.receipt",
]
# Where the outcomes differ: rows sent and not committed, a commit under way with a zombie behind it, and a commit whose answer,
# or whose receipt, is lost. `make test` strikes at FIRST, `make test-all` at the others. The rest is `make fault`.
IN_SHORT = {"kill": {"write.rows@3", "write.committed", "write.receipt"}, "raise": set(), "stop": {"write.committing"}}
FIRST = ("stop", "write.committing")


def cases() -> Iterator[Any]:
    for action in ("kill", "raise", "stop"):
        for place in POINTS:
            name, at, nth = place.partition("@")
            marks = [pytest.mark.deep] if place in IN_SHORT[action] else [pytest.mark.fault]
            marks = [] if (action, place) == FIRST else marks
            yield pytest.param(f"{name}#0{at}{nth}={action}", id=f"{place}={action}", marks=marks)


@pytest.fixture
def spark(spark: Any) -> Iterator[Any]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    yield spark
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.parametrize("failpoint", list(cases()))
def test_each_record_once_after_a_strike_and_a_retry(
    spark: Any, attacked: Callable[..., Attacked], failpoint: str
) -> None:
    case = attacked()
    plan_batch(case.pipeline, day(1))
    strike_worker_and_retry(spark, case, failpoint, partial(write_batch, spark, case.pipeline, day(1)))
    assert case.differences() == []


@pytest.mark.deep
def test_a_zombie_of_an_older_lease_stops_at_the_mark_of_the_newer_one(
    spark: Any, attacked: Callable[..., Attacked], make_pipeline: Callable[..., Pipeline]
) -> None:
    """It starts late, fences the valid attempt's id, and learns from the mark's lease that it is late: it writes nothing."""
    case = attacked()
    plan_batch(case.pipeline, day(1))
    attempt = Attempt(partial(write_batch, spark, case.pipeline, day(1)))
    failpoint = "write.init#0=stop"
    with armed(spark, failpoint, case.struck):
        attempt.start()
        pid = case.await_struck(failpoint, attempt.is_alive)
    fixed = make_pipeline(TRANSFORM + "# fixed\n", name=case.pipeline.name)
    run(spark, fixed, day(1))
    os.kill(pid, signal.SIGCONT)
    attempt.join(120)
    assert type(attempt.error).__name__ == "Superseded"
    batch = latest(fixed, day(1))
    assert batch.revision == 2
    counted = [r for r in read_all(case.bootstrap, fixed.output.topic) if r.batch == str(batch.id)]
    assert len(counted) == len({(r.key, r.json["n"]) for r in counted}) == PARTITIONS * PER_PARTITION
