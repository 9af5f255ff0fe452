"""A side table changes while a driver dies, stands still, or has a twin; then the ordinary retry.

The published batch was made with one content of the table, which is the recorded one. An oracle in plain Python reads the rows.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from arming import armed, at_failpoint
from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, Retriable
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from steps import latest, run
from waiting import await_true

from .looked_up import KINDS, TRANSFORM, LookedUp
from .strikes import (
    Attempt,
    Crash,
    alone,
    await_strike_and_retry,
    crash,
    strike_worker_and_retry,
)

SLOW = pytest.mark.fault
DEEP = pytest.mark.deep
READING, READ, RECORDED = (f"write.tables-{at}" for at in ("reading", "read", "recorded"))
HALF = "write.begun#1"  # task-partition 0 commits, and 1 does not
numbers = count(1)
Make = Callable[..., LookedUp]

# The kind of the side table, how the output is published, and the layout.
WAYS = [
    (kind, publish, layout) for kind in KINDS for publish in ("direct", "staged") for layout in ("source", "output")
]
FIRST = ("file", "direct", "source")
SHORT = {("topic", "staged", "source"), ("query", "direct", "output")}


def ways(*first: str) -> Iterator[Any]:
    """Each of these places in each way. The first way is marked by what `first` says of the place."""
    for place in first:
        name, _, in_test = place.partition(" ")
        for way in WAYS:
            marks = [] if way == FIRST and in_test else [DEEP] if way == FIRST or way in SHORT else [SLOW]
            yield pytest.param(name, way, marks=marks, id="-".join((name, *way)))


@pytest.fixture
def make(
    request: pytest.FixtureRequest, spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> Iterator[Make]:
    """Make an attacked pipeline; its source is filled, and its side table has content 0."""
    with ExitStack() as stack:

        def made(kind: str, publish: str, layout: str, transform: str = TRANSFORM, **changes: Any) -> LookedUp:
            table, store = dict(KINDS[kind]), {}
            name = f"labelled{next(numbers)}"
            if kind == "query":
                store = request.getfixturevalue("postgres").database()
                table["postgres"] = store
            if kind == "topic":
                table["topic"] = f"{name}-labels"
            pipeline = make_pipeline(
                transform,
                name=name,
                tables={"labels": table},
                output={"publish": publish, "layout": layout},
                spark={"spark.sql.execution.arrow.maxRecordsPerBatch": 20},
                **changes,
            )
            case = LookedUp(broker.bootstrap, pipeline, tmp_path / "struck", table=kind, store=store)
            stack.enter_context(case)
            case.learn(spark, 0)
            plan_batch(pipeline, day(1))
            return case

        yield made


def change(spark: Any, case: LookedUp) -> None:
    case.change(1)
    case.learn(spark, 1)


def change_and_retry(spark: Any, case: Any) -> None:
    change(spark, case)
    run(spark, case.pipeline, day(1))


def write(spark: Any, case: LookedUp) -> partial[Any]:
    return partial(write_batch, spark, case.pipeline, day(1))


def write_half(spark: Any, case: LookedUp) -> None:
    """An attempt of which task-partition 0 commits; then it dies."""
    attempt = Attempt(write(spark, case))
    with armed(spark, f"{HALF}=stop", case.struck):
        attempt.start()
        pid = case.await_struck(f"{HALF}=stop", attempt.is_alive)
        await_true(lambda: alone(spark), "task-partition 0 to commit")
        os.kill(pid, signal.SIGKILL)
        attempt.join(120)
    assert isinstance(attempt.error, Retriable)
    (case.struck / f"{HALF}=stop").unlink()


# Behind the record there is another revision; unless all has been committed, and nothing compares the rows.
ENDS = {READING: 1, READ: 1, RECORDED: 2, "write.answered": 1}


@pytest.mark.parametrize(("place", "way"), list(ways(READING, READ, RECORDED, "write.answered in-test")))
def test_a_table_that_changes_after_a_driver_died_is_read_again_unless_all_is_committed(
    spark: Any, make: Make, place: str, way: tuple[str, str, str]
) -> None:
    case = make(*way)
    with at_failpoint(place, crash), pytest.raises(Crash):
        write(spark, case)()
    change_and_retry(spark, case)
    compares = way[2] == "output"
    finished = place == "write.answered" and not compares
    revision = 2 if place == "write.answered" and compares else ENDS[place]
    assert case.differences_of_contents(0 if finished else 1, revision) == []


@pytest.mark.parametrize(("place", "way"), list(ways(f"{HALF}=stop in-test", f"{HALF}=kill")))
def test_half_a_batch_with_an_old_content_is_superseded_by_a_whole_one_with_the_new(
    spark: Any, make: Make, place: str, way: tuple[str, str, str]
) -> None:
    """A stopped worker goes on as a zombie, with the old content."""
    case = make(*way)
    if place.endswith("stop"):
        strike_worker_and_retry(spark, case, place, write(spark, case), change_and_retry)
    else:
        write_half(spark, case)
        change_and_retry(spark, case)
    assert case.differences_of_contents(1, 2) == []
    old, new = Ledger(case.pipeline).read().known(day(1)).all
    assert (old.state, old.history[-1].note) == (State.SUPERSEDED, "by revision 2")
    assert new.history[0].note == "side table changed since an earlier attempt read it: labels"


@pytest.mark.parametrize(("place", "way"), list(ways(READ, RECORDED)))
def test_a_table_that_changes_between_the_drivers_read_and_its_job_changes_nothing(
    spark: Any, make: Make, place: str, way: tuple[str, str, str]
) -> None:
    case = make(*way)
    with at_failpoint(place, partial(change, spark, case)):
        run(spark, case.pipeline, day(1))
    assert case.differences_of_contents(0, 1) == []


@pytest.mark.parametrize(("place", "way"), list(ways(f"{READ} in-test", RECORDED)))
@pytest.mark.parametrize("twin", ["half", pytest.param("whole", marks=DEEP)])
def test_of_two_drivers_with_two_contents_the_one_that_comes_late_mixes_nothing(
    spark: Any, make: Make, twin: str, place: str, way: tuple[str, str, str]
) -> None:
    """One has read content 0 and stands still, before or after its record. The other reads content 1, and writes all or half."""
    case = make(*way)
    stalled, go_on = Event(), Event()

    def stall() -> None:
        stalled.set()
        assert go_on.wait(300)

    late = Attempt(write(spark, case))
    with at_failpoint(place, stall):
        late.start()
        assert stalled.wait(120)
        change(spark, case)
        if twin == "half":
            write_half(spark, case)
        else:
            run(spark, case.pipeline, day(1))
        go_on.set()
        late.join(120)
    assert not late.is_alive()
    assert late.error is None or isinstance(late.error, FencepostError), late.error
    run(spark, case.pipeline, day(1))
    if place == RECORDED:  # it is superseded, whatever the other one has written of revision 2
        assert case.differences_of_contents(1, 2) == []
    elif twin == "whole":
        assert case.differences_of_contents(1, 1) == []
    else:  # it finds content 1 recorded, and revises
        assert late.error is None
        assert case.differences_of_contents(0, 2) == []


INNER = TRANSFORM.replace(', "left")', ")")
RULES = """
expectations:
  - type: expect_column_values_to_not_be_null
    severity: quarantine
    kwargs: {column: label}
"""


@DEEP
def test_the_result_of_a_committed_batch_is_counted_with_its_tables(spark: Any, make: Make) -> None:
    """Of quarantine rules the rows of the whole result are counted again, and without rows in the table it would have none."""
    case = make(*FIRST, transform=INNER, expectations=RULES)
    with at_failpoint("write.answered", crash), pytest.raises(Crash):
        write(spark, case)()
    run(spark, case.pipeline, day(1))
    written = latest(case.pipeline, day(1)).written
    assert written is not None
    assert written.results == written.rows == len(case.source())
    assert case.differences_of_contents(0, 1) == []


@pytest.mark.parametrize(
    ("place", "way"),
    [pytest.param(place, way, marks=SLOW, id="-".join((place, *way))) for place in ENDS for way in (FIRST, *SHORT)],
)
def test_a_driver_that_is_killed_leaves_nothing_that_the_retry_mixes(
    spark: Any, make: Make, start_step: Callable[..., subprocess.Popen[str]], place: str, way: tuple[str, str, str]
) -> None:
    case = make(*way)
    failpoint = f"{place}=kill"
    process = start_step(case, "write", failpoint)
    await_strike_and_retry(spark, case, process, failpoint, change_and_retry)
    finished = place == "write.answered" and way[2] == "source"
    revision = 2 if place == "write.answered" and not finished else ENDS[place]
    assert case.differences_of_contents(0 if finished else 1, revision) == []
