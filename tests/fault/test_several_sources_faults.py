"""A union and a join of two sources are struck at each of their steps; then the ordinary retry. Each row is there once.

`test_several_sources_schedules.py` has records that come late, and sources that come and go, by chance.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from arming import armed
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, Retriable, TopicRecreated
from fencepost.ledger.ledger import Ledger
from fencepost.model import Decision, OffsetRange, State, utc_now
from fencepost.steps.advance import advance_batch, skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.replay import plan_replay
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, delete_topic, group_offsets, produce, read_all, widen_topic
from steps import latest, plan_and_write, run
from waiting import await_true

from .checker import PER_PARTITION, Sent
from .conftest import finished
from .several_sources import (
    CASES,
    LOWEST,
    ROWS,
    RULES,
    SECOND,
    SHAPES,
    SIZES,
    TwoSources,
    differences_in_quarantine,
    settings_of,
)
from .strikes import Attempt, alone, await_strike_and_retry, strike_worker_and_retry
from .test_plan_and_advance_faults import ADVANCE, PLAN, strike
from .test_process_faults import COORDINATOR, JUDGED, JUDGED_BY_WRITE
from .test_replay_faults import finish
from .test_staged_faults import PLACES
from .test_worker_faults import POINTS

SLOW, DEEP = pytest.mark.fault, pytest.mark.deep
BAD = 3
numbers = count(1)
Attack = Callable[..., TwoSources]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def spark(spark: Any) -> Iterator[Any]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    yield spark
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.fixture
def attack(broker: Broker, make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> Iterator[Attack]:
    """Make an attacked pipeline of that shape; its sources are filled."""
    with ExitStack() as stack:

        def make(shape: str, publish: str = "staged", days: tuple[int, ...] = (1,), bad: int = BAD) -> TwoSources:
            pipeline = make_pipeline(**settings_of(f"several{next(numbers)}", shape, publish))
            return stack.enter_context(CASES[shape](broker.bootstrap, pipeline, tmp_path / "struck", days, bad))

        yield make


# Of a union, of which the second source's rows are written beside the first one's; and of the malformed records of a join, which
# have marks by their topic where its rows have none. The rest is `make fault`.
FIRST = ("union", "stop", f"write.committing#{SECOND}")
IN_SHORT = {
    ("union", "kill", f"write.committed#{ROWS['source'] + SECOND}"),
    ("join", "kill", "write.committed#0"),
    ("join", "stop", f"write.committing#{ROWS['output'] + SECOND}"),
}


def worker_cases() -> Iterator[Any]:
    for shape, (_, layout, _) in SHAPES.items():
        tasks = {0, ROWS[layout], ROWS[layout] + SECOND} | ({SECOND} if shape == "union" else set())
        for action in ("kill", "raise", "stop"):
            for task in sorted(tasks):
                for place in POINTS:
                    name, at_, nth = place.partition("@")
                    if nth and task >= ROWS[layout]:
                        continue  # few records are malformed
                    case = (shape, action, f"{name}#{task}{at_}{nth}")
                    marks = [] if case == FIRST else [DEEP] if case in IN_SHORT else [SLOW]
                    yield pytest.param(shape, f"{case[2]}={action}", marks=marks, id=f"{shape}-{case[2]}={action}")


@pytest.mark.parametrize(("shape", "failpoint"), list(worker_cases()))
def test_each_row_once_after_a_worker_was_struck(spark: Any, attack: Attack, shape: str, failpoint: str) -> None:
    """Rows are published directly, so a reader along would see what is there twice."""
    case = attack(shape, "direct")
    plan_batch(case.pipeline, day(1))
    strike_worker_and_retry(spark, case, failpoint, partial(write_batch, spark, case.pipeline, day(1)))
    assert case.differences() == []
    counts = latest(case.pipeline, day(1)).require_written.sources
    malformed = {topic: one.malformed for topic, one in counts.items()}
    assert malformed == {topic: BAD * size for topic, size in zip(case.topics, SIZES, strict=True)}


WRITE = ["write.results-answered", "write.answered", "write.recorded", *COORDINATOR, *JUDGED_BY_WRITE]
DRIVER_IN_SHORT = {("join", "write.results-answered=kill")}


def driver_cases() -> Iterator[Any]:
    for shape in SHAPES:
        for step, places in {"write": WRITE, "validate": [*JUDGED, *COORDINATOR]}.items():
            for place in places:
                for action in ("kill", "raise", "stop"):
                    short = step == "write" and (shape, f"{place}={action}") in DRIVER_IN_SHORT
                    yield pytest.param(
                        shape,
                        step,
                        f"{place}={action}",
                        marks=[DEEP] if short else [SLOW],
                        id=f"{shape}-{step}-{place}={action}",
                    )


@pytest.mark.parametrize(("shape", "step", "failpoint"), list(driver_cases()))
def test_each_row_once_after_a_driver_was_struck(
    spark: Any, attack: Attack, start_step: Start, shape: str, step: str, failpoint: str
) -> None:
    case = attack(shape, "direct")
    (plan_batch if step == "write" else partial(plan_and_write, spark))(case.pipeline, day(1))
    place, _, action = failpoint.partition("=")
    unharmed = step == "write" and place in JUDGED_BY_WRITE and action == "raise"
    await_strike_and_retry(spark, case, start_step(case, step, failpoint), failpoint, unharmed=unharmed)
    assert case.differences() == []


@pytest.mark.parametrize(
    ("action", "places"),
    [
        pytest.param("stop", ["coordinator.committing"], marks=DEEP, id="stop in short"),
        *(pytest.param(action, PLAN, marks=SLOW, id=action) for action in ("kill", "raise", "stop")),
    ],
)
def test_a_plan_of_two_sources_struck_anywhere_is_frozen_once(
    attack: Attack, start_step: Start, make_pipeline: Callable[..., Pipeline], action: str, places: list[str]
) -> None:
    """One day for each place: the ranges of both topics follow one another without a hole."""
    days = tuple(range(1, len(places) + 1))
    case = attack("union", days=days, bad=0)
    settings = settings_of(case.pipeline.name, "union", "staged") | {"lanes": len(days), "spark": {}}
    case.pipeline = make_pipeline(**settings)
    for number, place in zip(days, places, strict=True):
        again = partial(plan_batch, case.pipeline, day(number))
        strike(case, start_step, "plan", f"{place}={action}", again, number)
    batches = Ledger(case.pipeline).read().all()
    assert [(b.interval, b.revision, b.state) for b in batches] == [(day(n), 1, State.PLANNED) for n in days]
    for number, batch in enumerate(batches):
        assert batch.plan.ranges == tuple(
            OffsetRange(topic=t, partition=p, start=number * PER_PARTITION, end=(number + 1) * PER_PARTITION)
            for t, size in zip(case.topics, SIZES, strict=True)
            for p in range(size)
        )


def advance_cases() -> Iterator[Any]:
    yield pytest.param("join", "staged", "stop", ["publish.committing"], marks=DEEP, id="join-staged-stop in short")
    for shape in SHAPES:
        for publish, places in (("direct", ADVANCE), ("staged", PLACES)):
            for action in ("kill", "raise", "stop"):
                yield pytest.param(shape, publish, action, places, marks=SLOW, id=f"{shape}-{publish}-{action}")


@pytest.mark.parametrize(("shape", "publish", "action", "places"), list(advance_cases()))
def test_an_advance_struck_anywhere_moves_the_offsets_of_both_topics_once(
    spark: Any, attack: Attack, start_step: Start, shape: str, publish: str, action: str, places: list[str]
) -> None:
    """One day for each place."""
    days = tuple(range(1, len(places) + 1))
    case = attack(shape, publish, days)
    for number, place in zip(days, places, strict=True):
        plan_and_write(spark, case.pipeline, day(number))
        validate_batch(spark, case.pipeline, day(number))
        again = partial(advance_batch, case.pipeline, day(number))
        strike(case, start_step, "advance", f"{place}={action}", again, number)
        assert latest(case.pipeline, day(number)).state is State.PUBLISHED
        assert case.differences_of_frontier(number) == []
    assert case.differences() == []


MENDED = RULES.replace(LOWEST, "{min_value: -5, column: n}")
REPLAY_IN_SHORT = {("union", "kill", "write.committed#0")}


def replay_cases() -> Iterator[Any]:
    for shape in SHAPES:
        for action in ("kill", "raise", "stop"):
            for task in (0, 3):  # behind the task-partitions of the output are those of what bypasses the transform
                for place in (point for point in POINTS if not point.startswith("write.rows")):
                    case = (shape, action, f"{place}#{task}")
                    marks = [DEEP] if case in REPLAY_IN_SHORT else [SLOW]
                    yield pytest.param(shape, f"{case[2]}={action}", marks=marks, id=f"{shape}-{case[2]}={action}")


@pytest.mark.parametrize(("shape", "failpoint"), list(replay_cases()))
def test_what_passes_in_a_replay_passes_once_after_a_worker_was_struck(
    spark: Any, attack: Attack, make_pipeline: Callable[..., Pipeline], shape: str, failpoint: str
) -> None:
    """North's records pass now, and south's fail again at the same partitions and offsets. Of a join, all results do pass."""
    case = attack(shape)
    run(spark, case.pipeline, day(1))
    mended = MENDED if shape == "union" else MENDED.replace("-5", "-5000")
    case.pipeline = make_pipeline(**settings_of(case.pipeline.name, shape, "staged") | {"expectations": mended})
    plan_replay(case.pipeline, day(1))
    strike_worker_and_retry(spark, case, failpoint, partial(write_batch, spark, case.pipeline, day(1)), finish)
    batches = Ledger(case.pipeline).read().known(day(1)).all
    assert [(b.adds_to, b.state) for b in batches] == [(None, State.PUBLISHED), (1, State.PUBLISHED)]
    passing, kept = case.replayed()
    out = read_all(case.bootstrap, case.pipeline.output.topic)
    rows = Counter((r.key, r.json["n"]) for r in out)
    assert rows == Counter((k, v["n"]) for k, v, _, _ in case.source()) + Counter(passing)
    again = [r for r in read_all(case.bootstrap, case.pipeline.quarantine_topic) if r.batch == str(batches[-1].id)]
    assert differences_in_quarantine(again, kept, []) == []
    assert [*case.differences_of_followers(), *case.differences_of_frontier(1), *case.open_transactions()] == []


ALONE = """
def transform(south):
    return south.selectExpr("_key", "_record", "n", "n * 2 AS doubled", "name", "_topic AS region")
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((0, 3), (2, 3), marks=DEEP, id="a source is added"),
        pytest.param((2, 3), (0, 3), marks=SLOW, id="a source is taken away"),
        pytest.param((2, 3), (3, 3), marks=SLOW, id="a source gains a partition"),
    ],
)
def test_a_zombie_of_a_batch_with_other_sources_overwrites_no_mark_of_the_next(
    spark: Any,
    broker: Broker,
    make_pipeline: Callable[..., Pipeline],
    attack: Attack,
    start_step: Start,
    before: tuple[int, int],
    after: tuple[int, int],
) -> None:
    """Partitions of north and south, before and after. A worker of the first batch has begun a transaction for a partition of
    south and stands still, before its mark is pending, and the batch is skipped. In the next batch that partition is committed,
    and the writer at the zombie's position stands still before it fences anybody. The zombie goes on. Then the next batch's
    writer dies, and the retry finds the marks."""
    case = attack("union", "direct", days=(1, 2), bad=0)
    both, sent = case.pipeline, case.sent()
    north, south = case.topics
    settings = settings_of(both.name, "union", "direct")
    only_south = settings | {"transform": ALONE, "sources": {"south": settings["sources"]["south"]}}

    def pipeline_of(sizes: tuple[int, int]) -> Pipeline:
        return make_pipeline(**(settings if sizes[0] else only_south))

    position = before[0]
    case.pipeline = pipeline_of(before)
    plan_batch(case.pipeline, day(1))
    zombie = start_step(case, "write", failpoint := f"write.begun#{position}=stop")
    pid = case.await_struck(failpoint, lambda: zombie.poll() is None)
    skip_batch(case.pipeline, day(1), Decision(action="skip", by="a test", reason="so", decided_at=utc_now()))
    more = list[Sent]()
    if after[0] > SIZES[0]:
        widen_topic(broker.bootstrap, north, after[0])
        more = [(b"a2k%d" % n, {"n": n, "name": "x"}, 2, at(2)) for n in range(PER_PARTITION)]
        produce(broker.bootstrap, north, more)

    case.pipeline = pipeline_of(after)
    plan_batch(case.pipeline, day(2), sources_changed=True)
    assert latest(case.pipeline, day(2)).plan.lane == "0"
    attempt = Attempt(partial(write_batch, spark, case.pipeline, day(2)))
    with armed(spark, blocker := f"write.init#{position}=stop", case.struck):
        attempt.start()
        blocked = case.await_struck(blocker, attempt.is_alive)
        await_true(lambda: alone(spark), "all other task-partitions to commit")
        os.kill(pid, signal.SIGCONT)
        code, said = finished(zombie)
        os.kill(blocked, signal.SIGKILL)
        attempt.join(120)
        assert isinstance(attempt.error, Retriable)
    run(spark, case.pipeline, day(2))
    batch = latest(case.pipeline, day(2))
    assert (batch.state, batch.revision) == (State.PUBLISHED, 1)
    wanted = [r for n, topic in enumerate((north, south)) if after[n] for r in sent[topic] if r[3] >= at(2, 0)]
    seen = [r for r in read_all(broker.bootstrap, both.output.topic) if r.batch == str(batch.id)]
    assert Counter((r.key, r.json["n"]) for r in seen) == Counter((k, v["n"]) for k, v, _, _ in [*wanted, *more])
    assert code != 0, said


@pytest.mark.parametrize(
    ("shape", "failpoint"),
    [
        pytest.param("join", "write.begun#0=stop", marks=DEEP),
        pytest.param("join", "write.committed#0=kill", marks=SLOW),
        pytest.param("union", f"write.rows#{SECOND}=stop", marks=SLOW),
        pytest.param("union", f"write.committed#{SECOND}=kill", marks=SLOW),
    ],
)
def test_a_source_that_is_made_again_with_more_partitions_in_the_middle_of_a_batch_stops_the_pipeline(
    spark: Any, broker: Broker, attack: Attack, shape: str, failpoint: str
) -> None:
    """A worker that goes on commits what it has read of the deleted topic, and the step records none of it."""
    case = attack(shape, days=(1, 2))
    topic, records = case.topics[1], case.sent()[case.topics[1]]

    def made_again(spark: Any, case: TwoSources) -> None:
        delete_topic(broker.bootstrap, topic)
        create_topic(broker.bootstrap, topic, SIZES[1] + 2)
        produce(broker.bootstrap, topic, [(k, v, (p + n) % 5, t) for n, (k, v, p, t) in enumerate(records)])
        for again in (run, plan_and_write):
            with pytest.raises(TopicRecreated, match=f"source topic {topic} was deleted and created again"):
                again(spark, case.pipeline, day(1))

    plan_batch(case.pipeline, day(1))
    strike_worker_and_retry(spark, case, failpoint, partial(write_batch, spark, case.pipeline, day(1)), made_again)
    batch = latest(case.pipeline, day(1))
    assert (batch.state, batch.written) == (State.PLANNED, None)
    with pytest.raises(FencepostError, match=f"source topic {topic} was deleted"):
        plan_batch(case.pipeline, day(2))
    for name in case.topics:
        assert group_offsets(broker.bootstrap, case.pipeline.group, name, range(5)) == {}
    assert read_all(broker.bootstrap, case.pipeline.output.topic) == []
    assert read_all(broker.bootstrap, f"fencepost.{case.pipeline.name}.published") == []


@pytest.mark.parametrize("shape", [pytest.param("union", marks=SLOW), pytest.param("join", marks=DEEP)])
def test_two_runs_at_once_write_each_row_once(spark: Any, attack: Attack, start_step: Start, shape: str) -> None:
    """They go on side by side, each with a Spark of its own. One of them may end with an error to try again."""
    case = attack(shape, "direct")
    plan_batch(case.pipeline, day(1))
    twin = start_step(case, "write")
    own = Attempt(partial(run, spark, case.pipeline, day(1)))
    own.start()
    code, said = finished(twin, 300)
    own.join(300)
    assert own.error is None or isinstance(own.error, FencepostError), own.error
    assert code in {0, Retriable.exit_code}, said
    run(spark, case.pipeline, day(1))
    assert case.differences() == []
