"""A replay is struck at each of its steps, and then asked for again: each quarantined record passes once, or stays once.

A plain read_committed consumer, which knows nothing of Fencepost, reads the output along.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from conftest import RULES, day
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.advance import advance_batch
from fencepost.steps.replay import plan_replay
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from kafka_tools import group_offsets, read_all
from steps import replay, run

from .checker import PARTITIONS, PER_PARTITION, Attacked
from .strikes import await_strike_and_retry, strike_worker_and_retry
from .test_process_faults import COORDINATOR
from .test_quarantine_faults import SETTINGS
from .test_worker_faults import POINTS

Start = Callable[..., subprocess.Popen[str]]

BAD = 3  # in each source partition so many that pass once the rule is fixed, and as many that stay malformed
MENDED = SETTINGS | {"expectations": RULES.replace("min_value: 0", "min_value: -5")}
SPARK = {"spark.sql.execution.arrow.maxRecordsPerBatch": 20}
OUTPUT = {"publish": "staged"}
QUARANTINE_PARTITIONS = 3  # the output's, each a task-partition; behind them are those of what is malformed again
SLOW = pytest.mark.fault

IN_SHORT = {
    ("stop", QUARANTINE_PARTITIONS, "write.committing"): [pytest.mark.deep],
}
RESULT_IN_SHORT = ("kill", "write.committed")
STEPS = {
    "replay": ["plan.frozen", *COORDINATOR],
    "write": ["write.results-answered", "write.answered", "write.recorded"],
    "validate": ["validate.reported", "validate.recorded"],
    "advance": [
        "advance.begun",
        *(f"publish.{at}" for at in ("init", "mark-read", "rows", "committing", "committed")),
        "advance.copied",
        "advance.answered@2",
    ],
}
STEPS_IN_SHORT = {"write.results-answered=kill"}


DROPPING = {"transform": SETTINGS["transform"].replace('"_record", ', "")}


@pytest.fixture
def quarantined(spark: Any, attacked: Callable[..., Attacked], make_pipeline: Callable[..., Any]) -> Attacked:
    """A published day with bad records, whose rule is fixed now."""
    return _published(spark, attacked, make_pipeline)


@pytest.fixture
def results(spark: Any, attacked: Callable[..., Attacked], make_pipeline: Callable[..., Any]) -> Attacked:
    """The same, whose transform does not keep the source record: what fails the rule lies in quarantine as a result."""
    return _published(spark, attacked, make_pipeline, DROPPING)


def _published(spark: Any, attacked: Any, make_pipeline: Any, changes: dict[str, Any] | None = None) -> Attacked:
    others = {"output": OUTPUT, "spark": SPARK} | (changes or {})
    case: Attacked = attacked(bad=BAD, **SETTINGS | others)
    run(spark, case.pipeline, day(1))
    case.pipeline = make_pipeline(name=case.pipeline.name, **MENDED | others)
    return case


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(f"{place}#{task}={action}", marks=IN_SHORT.get((action, task, place), [SLOW]))
        for action in ("kill", "raise", "stop")
        for task in (0, QUARANTINE_PARTITIONS)
        for place in POINTS
        if not place.startswith("write.rows")  # an addition has few
    ],
)
def test_each_record_passes_or_stays_once_after_a_worker_was_struck(
    spark: Any, quarantined: Attacked, failpoint: str
) -> None:
    """A stopped worker stands still while a second replay finishes the addition, and goes on as a zombie."""
    case = quarantined
    plan_replay(case.pipeline, day(1))
    strike_worker_and_retry(spark, case, failpoint, lambda: write_batch(spark, case.pipeline, day(1)), finish)
    assert_each_record_once(case)


@pytest.mark.deep
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(
            f"{place}#{QUARANTINE_PARTITIONS}={action}", marks=[] if (action, place) == RESULT_IN_SHORT else [SLOW]
        )
        for action in ("kill", "raise", "stop")
        for place in POINTS
        if not place.startswith("write.rows")
    ],
)
def test_each_result_passes_once_after_the_worker_that_judges_it_was_struck(
    spark: Any, results: Attacked, failpoint: str
) -> None:
    """Results go to the output, and malformed records to quarantine, in one transaction."""
    plan_replay(results.pipeline, day(1))
    strike_worker_and_retry(spark, results, failpoint, lambda: write_batch(spark, results.pipeline, day(1)), finish)
    assert_each_record_once(results)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("step", "failpoint"),
    [
        pytest.param(step, f"{place}={action}", marks=[] if f"{place}={action}" in STEPS_IN_SHORT else [SLOW])
        for action in ("kill", "stop")
        for step, places in STEPS.items()
        for place in places
        if action == "kill" or place not in COORDINATOR  # a request that comes late is one of its own
    ],
)
def test_each_record_passes_or_stays_once_after_a_step_was_struck(
    spark: Any, quarantined: Attacked, start_step: Start, step: str, failpoint: str
) -> None:
    case = quarantined
    if step != "replay":
        plan_replay(case.pipeline, day(1))
    if step in {"validate", "advance"}:
        write_batch(spark, case.pipeline, day(1))
    if step == "advance":
        validate_batch(spark, case.pipeline, day(1))
    await_strike_and_retry(spark, case, start_step(case, step, failpoint), failpoint, finish)
    assert_each_record_once(case)


def finish(spark: Any, case: Attacked) -> None:
    """Replay again, if the addition is not published yet: one that is, is not what a second request would finish."""
    latest = Ledger(case.pipeline).read().last(day(1))
    assert latest is not None
    if latest.adds_to is None or latest.state is not State.PUBLISHED:
        replay(spark, case.pipeline, day(1))
    else:
        advance_batch(case.pipeline, day(1))


def assert_each_record_once(case: Attacked) -> None:
    """What passes now is in the output once, beside what was there; the rest is in quarantine under the addition, once."""
    batches = Ledger(case.pipeline).read().known(day(1)).all
    assert [(b.adds_to, b.state) for b in batches] == [(None, State.PUBLISHED), (1, State.PUBLISHED)]
    addition = batches[-1]
    bad = case.bad_source()
    passing = [(key, value, time) for key, value, _, time in bad if b'"n": -1' in value]
    failing = Counter((key, value, time) for key, value, _, time in bad if b'"n": -1' not in value)
    out = read_all(case.bootstrap, case.pipeline.output.topic)
    there = Counter((r.key, r.json["n"]) for r in out)
    assert there == Counter((key, v["n"]) for key, v, _, _ in case.source()) + Counter(
        (key, -1) for key, _, _ in passing
    )
    assert {r.key for r in out if r.batch == str(addition.id)} == {key for key, _, _ in passing}
    kept = read_all(case.bootstrap, case.pipeline.quarantine_topic)
    again = [r for r in kept if r.headers[-1][1] == str(addition.id).encode()]
    assert Counter((r.key, r.value, r.timestamp) for r in again) == failing
    assert {dict(r.headers)["fencepost-attempt"] for r in again} == {b"2"}
    assert len(kept) == len(bad) + len(again)
    assert case.differences_of_followers() == []
    assert case.open_transactions() == []
    group = group_offsets(case.bootstrap, case.pipeline.group, case.pipeline.source.topic, range(PARTITIONS))
    assert group == dict.fromkeys(range(PARTITIONS), PER_PARTITION + 2 * BAD)
