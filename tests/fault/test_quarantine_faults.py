"""A process is struck while a batch writes to two topics, or between its two jobs; then the ordinary retry.

Good records are in the output and bad ones in quarantine, each once; readers along saw nothing else, in either topic.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from conftest import KEEPS_RECORDS, RULES, day
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from steps import latest

from .checker import PARTITIONS, Attacked
from .strikes import await_strike_and_retry, strike_worker_and_retry
from .test_worker_faults import POINTS

SETTINGS: dict[str, Any] = {
    "transform": KEEPS_RECORDS,
    "expectations": RULES,
    "source": {"on_malformed": "quarantine"},
    "quality": {"quarantine_limit": "none"},
}
BAD = 3
MALFORMED = PARTITIONS  # the first of the task-partitions that write malformed records
# Half of a transaction on two topics; and in the second job a commit whose answer is lost.
IN_SHORT = {("kill", 0, "write.rows@2"), ("kill", MALFORMED, "write.committed")}
STAGED_IN_SHORT = ("kill", 0, "write.rows@2")


@pytest.fixture
def spark(spark: Any) -> Iterator[Any]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    yield spark
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def cases() -> Iterator[Any]:
    for action in ("kill", "raise", "stop"):
        for task in (0, MALFORMED):
            for place in POINTS:
                name, at, nth = place.partition("@")
                nth = "2" if nth and task == 0 else nth
                if nth and task == MALFORMED:
                    continue  # it writes one Arrow batch
                where = f"{name}{at}{nth}"
                short = (action, task, where) in IN_SHORT
                for publish in ("direct", "staged") if short else ("direct",):
                    now = short and (publish == "direct") == ((action, task, where) != STAGED_IN_SHORT)
                    marks = [pytest.mark.deep] if now else [pytest.mark.fault]
                    failpoint = f"{name}#{task}{at}{nth}={action}"
                    yield pytest.param(failpoint, publish, id=f"{where}#{task}={action}-{publish}", marks=marks)


@pytest.mark.parametrize(("failpoint", "publish"), list(cases()))
def test_each_record_once_in_its_topic_after_a_strike_and_a_retry(
    spark: Any, attacked: Callable[..., Attacked], failpoint: str, publish: str
) -> None:
    case = attacked(bad=BAD, **SETTINGS, output={"publish": publish})
    plan_batch(case.pipeline, day(1))
    strike_worker_and_retry(spark, case, failpoint, partial(write_batch, spark, case.pipeline, day(1)))
    assert_all_is_accounted_for(case)


@pytest.mark.deep
@pytest.mark.parametrize(
    "failpoint",
    [
        "write.results-answered=kill",
        pytest.param("write.results-answered=stop", marks=pytest.mark.fault),
        pytest.param("write.answered=kill", marks=pytest.mark.fault),
        pytest.param(f"write.committed#{MALFORMED}=kill-parent", marks=pytest.mark.fault),
    ],
)
def test_each_record_once_in_its_topic_after_the_driver_ended_between_the_two_jobs(
    spark: Any,
    attacked: Callable[..., Attacked],
    start_step: Callable[..., subprocess.Popen[str]],
    failpoint: str,
) -> None:
    """The retry finds the rows committed and no count of them: it counts, and so knows that malformed ones are missing."""
    case = attacked(bad=BAD, **SETTINGS)
    plan_batch(case.pipeline, day(1))
    process = start_step(case, "write", failpoint)
    await_strike_and_retry(spark, case, process, failpoint)
    assert_all_is_accounted_for(case)


def assert_all_is_accounted_for(case: Attacked) -> None:
    assert case.differences() == []
    batch = latest(case.pipeline, day(1))
    assert batch.written is not None
    assert batch.written.quarantined == {
        "malformed": BAD * PARTITIONS,
        "expect_column_values_to_be_between(n)": BAD * PARTITIONS,
    }
