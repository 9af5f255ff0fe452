"""A retry that comes after the broker has forgotten the marks: it writes a new revision, and trusts nothing of the old one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arming import armed
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, produce, read_all
from steps import run
from waiting import await_true

FORGETFUL = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]


def test_a_retry_older_than_the_retention_writes_a_new_revision(
    spark: Any, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    with Broker(tmp_path / "kafka", properties=FORGETFUL) as broker:
        pipeline = make_pipeline(kafka={"bootstrap.servers": broker.bootstrap})
        source, lane = pipeline.source.topic, pipeline.lane_group("0")
        create_topic(broker.bootstrap, source, 2)
        produce(broker.bootstrap, source, [(b"k%d" % n, {"n": n}, n % 2, at(1)) for n in range(10)])
        plan_batch(pipeline, day(1))
        with armed(spark, "write.committed#1=raise", tmp_path), pytest.raises(FencepostError, match=r"failpoints\.py"):
            write_batch(spark, pipeline, day(1))
        await_true(lambda: len(group_offsets(broker.bootstrap, lane, source, [0, 1])) == 2, "both marks")
        await_true(lambda: group_offsets(broker.bootstrap, lane, source, [0, 1]) == {}, "the marks to expire", 200)
        run(spark, pipeline, day(1))
        first, second = Ledger(pipeline).read().all()
        assert (first.state, second.state) == (State.SUPERSEDED, State.PUBLISHED)
        assert "marks may have expired" in second.history[0].note
        seen = read_all(broker.bootstrap, pipeline.output.topic)
        assert sorted(r.json["n"] for r in seen) == list(range(10))
        assert {r.batch for r in seen} == {str(second.id)}
        staged = read_all(broker.bootstrap, pipeline.staging_topic)
        for batch in (first, second):  # with a timestamp of its own each
            own = [r.json["n"] for r in staged if r.timestamp == batch.plan.staging_timestamp]
            assert sorted(own) == list(range(10))
