"""A transform that gives other rows on a retry, behind a shuffle: a row would move from a task-partition that has committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arming import armed
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, TransformNotDeterministic
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.rows.writer import write_partition
from fencepost.steps.advance import skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost.steps.writers import rows_job
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, produce, read_all
from makers import a_decision
from steps import latest, run

Make = Callable[..., Pipeline]
ROWS = 30
STEADY = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "name")\n'
# Another key on each run, so that a row lies in another output partition.
UUID = 'def transform(frame):\n    return frame.selectExpr("cast(uuid() as binary) AS _key", "n")\n'
# The same keys, and no row moves; but some are left out.
RANDOM = 'def transform(frame):\n    return frame.selectExpr("_key", "n").where("rand() < 0.5")\n'
CLOCK = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "current_timestamp() AS seen_at")\n'
LOOKED_UP = """
from pathlib import Path
def transform(frame):
    shift = int(Path({path!r}).read_text())
    return frame.selectExpr(f"cast('k' || (n + {{shift}}) % {rows} as binary) AS _key", "n")
"""


@pytest.fixture
def shuffling(broker: Broker, make_pipeline: Make) -> Callable[..., Pipeline]:
    def make(transform: str, **changes: Any) -> Pipeline:
        """A pipeline of layout `output` whose first day is planned."""
        pipeline = make_pipeline(transform, **{"output": {"layout": "output"}, **changes})
        create_topic(broker.bootstrap, pipeline.source.topic, 2)
        records = [(f"k{n}".encode(), {"n": n, "name": "a"}, n % 2, at(1) + n) for n in range(ROWS)]
        produce(broker.bootstrap, pipeline.source.topic, records)
        plan_batch(pipeline, day(1))
        return pipeline

    return make


def fail_at_the_last_task_partition(spark: Any, broker: Broker, pipeline: Pipeline, folder: Path) -> None:
    """An attempt that ends when some task-partitions have committed, and not all."""
    with armed(spark, "write.init#2=raise", folder), pytest.raises(FencepostError):
        write_batch(spark, pipeline, day(1))
    job = rows_job(Deployment.of(pipeline), latest(pipeline, day(1)))
    assert job.writers.committed_receipts() is None
    assert read_all(broker.bootstrap, pipeline.staging_topic), "nothing has committed"


def counted(broker: Broker, pipeline: Pipeline) -> Counter[int]:
    """How often each number is in the newest batch, as it is staged."""
    batch, staged = latest(pipeline, day(1)), read_all(broker.bootstrap, pipeline.staging_topic)
    return Counter(r.json["n"] for r in staged if r.timestamp == batch.plan.staging_timestamp)


ONCE = Counter(range(ROWS))


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(UUID, id="uuid"),
        pytest.param(RANDOM, id="rand", marks=pytest.mark.deep),
    ],
)
def test_a_retry_that_gives_other_rows_stops_for_good_and_a_mended_transform_is_a_new_revision(
    spark: Any, broker: Broker, shuffling: Any, make_pipeline: Make, tmp_path: Path, transform: str
) -> None:
    pipeline = shuffling(transform)
    fail_at_the_last_task_partition(spark, broker, pipeline, tmp_path)
    with pytest.raises(
        TransformNotDeterministic, match=r"/1, task-partition \d: an earlier attempt committed \d+ rows"
    ):
        write_batch(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PLANNED
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {}

    fixed = make_pipeline(STEADY, name=pipeline.name, output={"layout": "output"})
    assert run(spark, fixed, day(1)).state is State.PUBLISHED
    assert latest(fixed, day(1)).revision == 2
    assert counted(broker, fixed) == ONCE


@pytest.mark.deep
def test_an_input_that_changed_between_attempts_moves_no_row_and_what_the_error_says_works(
    spark: Any, broker: Broker, shuffling: Any, tmp_path: Path
) -> None:
    table = tmp_path / "elsewhere"
    table.write_text("0")
    pipeline = shuffling(LOOKED_UP.format(path=str(table), rows=ROWS))
    fail_at_the_last_task_partition(spark, broker, pipeline, tmp_path)
    table.write_text("1")
    with pytest.raises(TransformNotDeterministic, match=r"`fencepost skip` the interval and run it with --reprocess"):
        write_batch(spark, pipeline, day(1))
    skip_batch(pipeline, day(1), a_decision("skip"))
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    assert counted(broker, pipeline) == ONCE


@pytest.mark.deep
def test_a_retry_that_gives_the_same_rows_writes_what_is_missing(
    spark: Any, broker: Broker, shuffling: Any, tmp_path: Path
) -> None:
    pipeline = shuffling(STEADY)
    fail_at_the_last_task_partition(spark, broker, pipeline, tmp_path)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert latest(pipeline, day(1)).revision == 1
    assert counted(broker, pipeline) == ONCE


def test_marks_of_all_task_partitions_are_not_enough_where_their_attempts_may_have_differed(
    spark: Any, shuffling: Any
) -> None:
    """Each is final, and together they may be of several attempts: the driver of the last one died before it compared."""
    pipeline = shuffling(STEADY)
    job = rows_job(Deployment.of(pipeline), latest(pipeline, day(1)))
    for number in range(3):
        write_partition(job, number, iter([]))
    with pytest.raises(TransformNotDeterministic, match="committed 0 rows"):
        write_batch(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PLANNED


@pytest.mark.deep
def test_under_layout_source_no_row_moves_so_a_retry_may_give_others(
    spark: Any, broker: Broker, shuffling: Any, tmp_path: Path
) -> None:
    """Whatever a row says of the clock, its record is read by one task-partition, which commits once."""
    pipeline = shuffling(CLOCK, output={"layout": "source"})
    with armed(spark, "write.init#1=raise", tmp_path), pytest.raises(FencepostError):
        write_batch(spark, pipeline, day(1))
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert counted(broker, pipeline) == ONCE
