"""The plan and the advance step are struck, then run again: offsets and ledger move together, once.

`make test-all` strikes where the outcomes differ: a commit under way, and one whose answer is lost. `make fault`
strikes anywhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conftest import day
from fencepost.ledger.ledger import Ledger
from fencepost.model import OffsetRange, State
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from kafka_tools import group_offsets
from steps import latest, plan_and_write

from .checker import PER_PARTITION, Attacked
from .conftest import finished
from .test_process_faults import COORDINATOR

pytestmark = pytest.mark.deep

Start = Callable[..., subprocess.Popen[str]]
IN_SHORT = ["coordinator.committing", "coordinator.committed"]
PLAN = ["plan.frozen", *COORDINATOR]
ADVANCE = ["advance.deciding", "advance.answered", *COORDINATOR]


def cases(places: list[str], in_short: str) -> Iterator[Any]:
    """`in_short`: the action that `make test-all` has, at few places."""
    yield pytest.param(in_short, IN_SHORT, id=f"{in_short} in short")
    for action in ("kill", "raise", "stop"):
        yield pytest.param(action, places, marks=pytest.mark.fault, id=action)


def strike(
    case: Attacked, start_step: Start, step: str, failpoint: str, again: Callable[[], object], number: int
) -> None:
    """Start the step, wait for its failpoint; run the step again; a stopped one then goes on as a zombie."""
    process = start_step(case, step, failpoint, number)
    pid = case.await_struck(failpoint, lambda: process.poll() is None)
    if failpoint.endswith("stop"):
        again()
        os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code != 0 or failpoint.endswith("stop"), said
    if not failpoint.endswith("stop"):
        again()


@pytest.mark.parametrize(("action", "places"), list(cases(PLAN, "stop")))
def test_a_plan_struck_anywhere_is_frozen_once(
    attacked: Callable[..., Attacked], start_step: Start, action: str, places: list[str]
) -> None:
    """One day for each place: every plan is there once, and their ranges follow one another without a hole."""
    days = tuple(range(1, len(places) + 1))
    case = attacked(days, spark={}, lanes=len(days))
    for number, place in zip(days, places, strict=True):
        strike(
            case, start_step, "plan", f"{place}={action}", lambda n=number: plan_batch(case.pipeline, day(n)), number
        )
    batches = Ledger(case.pipeline).read().all()
    assert [(b.interval, b.revision, b.state) for b in batches] == [(day(n), 1, State.PLANNED) for n in days]
    for partition in range(2):
        ranges = [next(r for r in b.plan.ranges if r.partition == partition) for b in batches]
        expected = [
            OffsetRange(
                topic=case.pipeline.source.topic,
                partition=partition,
                start=i * PER_PARTITION,
                end=(i + 1) * PER_PARTITION,
            )
            for i in range(len(days))
        ]
        assert ranges == expected


@pytest.mark.parametrize(("action", "places"), list(cases(ADVANCE, "kill")))
def test_an_advance_struck_anywhere_publishes_once(
    spark: Any, attacked: Callable[..., Attacked], start_step: Start, action: str, places: list[str]
) -> None:
    """One day for each place; after each one, the ledger and both groups agree."""
    days = tuple(range(1, len(places) + 1))
    case = attacked(days)
    for number, place in zip(days, places, strict=True):
        plan_and_write(spark, case.pipeline, day(number))
        validate_batch(spark, case.pipeline, day(number))
        strike(
            case,
            start_step,
            "advance",
            f"{place}={action}",
            lambda n=number: advance_batch(case.pipeline, day(n)),
            number,
        )
        assert latest(case.pipeline, day(number)).state is State.PUBLISHED
        group = group_offsets(case.bootstrap, case.pipeline.group, case.pipeline.source.topic, [0, 1])
        assert group == dict.fromkeys([0, 1], number * PER_PARTITION)
    assert case.differences() == []
