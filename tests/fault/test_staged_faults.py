"""The publication of a staged batch is struck at every step, by a process of its own or on Spark; then it is run again.

A plain read_committed consumer, which knows nothing of Fencepost, reads the output along: it must see nothing before advance
begins, and each record once.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from conftest import day
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.advance import advance_batch
from fencepost.steps.validate import validate_batch
from kafka_tools import QUIET_LOG, group_offsets, read_all
from steps import latest, plan_and_write, run

from .checker import PARTITIONS, PER_PARTITION, Attacked
from .conftest import finished
from .strikes import strike_worker_and_retry
from .test_plan_and_advance_faults import strike
from .test_process_faults import COORDINATOR

Start = Callable[..., subprocess.Popen[str]]

COPY = ["init", "initialised", "mark-read", "begun", "rows", "offsets-sent", "committing", "committed"]
PLACES = [
    *COORDINATOR,
    "advance.begun",
    *(f"publish.{at}" for at in COPY),
    "advance.copied",
    *(f"coordinator.{at}@2" for at in ("begun", "offsets-sent", "committing", "committed")),
    "advance.answered@2",
]
SLOW = pytest.mark.fault


def staged(attacked: Callable[..., Attacked], days: tuple[int, ...] = (1,), megabytes: int = 256) -> Attacked:
    return attacked(days, output={"publish": "staged", "atomic_megabytes": megabytes})


def judged(spark: Any, case: Attacked, number: int = 1) -> None:
    plan_and_write(spark, case.pipeline, day(number))
    validate_batch(spark, case.pipeline, day(number))


@pytest.mark.parametrize(
    ("action", "places"),
    [
        # Decided and nothing copied; copied, and nobody heard of it; a copy under way with a zombie behind it.
        pytest.param("kill", ["advance.begun", "publish.committed"], id="kill in short"),
        pytest.param("stop", ["publish.committing"], marks=pytest.mark.deep, id="stop in short"),
        *(pytest.param(action, PLACES, marks=SLOW, id=action) for action in ("kill", "raise", "stop")),
    ],
)
def test_a_publication_struck_anywhere_shows_each_record_once(
    spark: Any, attacked: Callable[..., Attacked], start_step: Start, action: str, places: list[str]
) -> None:
    """One day for each place; after each one, the ledger and both groups agree."""
    days = tuple(range(1, len(places) + 1))
    case = staged(attacked, days)
    for number, place in zip(days, places, strict=True):
        judged(spark, case, number)
        seen = read_all(case.bootstrap, case.pipeline.output.topic)
        assert len(seen) == (number - 1) * PARTITIONS * PER_PARTITION, "nothing of what is only judged"
        again = partial(advance_batch, case.pipeline, day(number))
        strike(case, start_step, "advance", f"{place}={action}", again, number)
        assert latest(case.pipeline, day(number)).state is State.PUBLISHED
        group = group_offsets(case.bootstrap, case.pipeline.group, case.pipeline.source.topic, [0, 1])
        assert group == dict.fromkeys([0, 1], number * PER_PARTITION)
    assert case.differences() == []


@pytest.mark.deep
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(f"publish.{at}#1={action}", marks=[] if (at, action) == ("committed", "kill") else [SLOW])
        for action in ("kill", "raise", "stop")
        for at in [*COPY, "receipt"]
    ],
)
def test_each_record_once_after_a_worker_that_copies_a_part_was_struck(
    spark: Any, attacked: Callable[..., Attacked], failpoint: str
) -> None:
    case = staged(attacked, megabytes=0)
    judged(spark, case)
    advance = partial(advance_batch, case.pipeline, day(1), spark=lambda: spark)
    strike_worker_and_retry(spark, case, failpoint, advance)
    assert case.differences() == []


@pytest.mark.deep
@pytest.mark.parametrize("place", [pytest.param("publish.init", marks=SLOW), "publish.committing"])
def test_a_zombie_of_a_publication_that_was_given_up_shows_nothing(
    spark: Any, attacked: Callable[..., Attacked], start_step: Start, place: str
) -> None:
    """It has read all staged records when they are deleted, or comes late: the mark of who gave up stands in its way."""
    case = staged(attacked)
    judged(spark, case)
    zombie = start_step(case, "advance", f"{place}=stop")
    pid = case.await_struck(f"{place}=stop", lambda: zombie.poll() is None)
    admin = AdminClient({"bootstrap.servers": case.bootstrap}, logger=QUIET_LOG)
    parts = range(case.pipeline.output.partitions)
    for future in admin.delete_records([TopicPartition(case.pipeline.staging_topic, p, -1) for p in parts]).values():
        future.result(30)
    run(spark, case.pipeline, day(1))
    os.kill(pid, signal.SIGCONT)
    code, said = finished(zombie)
    assert code != 0, said
    old, new = Ledger(case.pipeline).read().known(day(1)).all
    assert (old.state, new.state) == (State.SUPERSEDED, State.PUBLISHED)
    assert "readers may have seen 0 of its" in old.history[-1].note
    seen = read_all(case.bootstrap, case.pipeline.output.topic)
    assert {r.batch for r in seen} == {str(new.id)}
    assert Counter((r.key, r.json["n"]) for r in seen) == Counter((k, v["n"]) for k, v, _, _ in case.source())
    case.follower.stop()
    assert len(case.follower.seen) == len(set(case.follower.seen))
