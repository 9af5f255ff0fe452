"""An open transaction of somebody else hides committed records: waited for, then a clear retriable error."""

from __future__ import annotations

from collections.abc import Callable
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Producer

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import OpenTransaction, TransitionRefused
from fencepost.model import State
from fencepost.steps.advance import advance_batch
from fencepost.steps.validate import judge_what_was_written, validate_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, group_offsets, produce
from steps import latest, plan_and_write

pytestmark = pytest.mark.deep

Make = Callable[..., Pipeline]


def open_transaction(broker: Broker, topic: str) -> Producer:
    config = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"foreign-{topic}"}
    producer = Producer(config, logger=QUIET_LOG)
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, b"foreign", partition=partition)
    assert producer.flush(20) == 0
    return producer


def written_with_foreign(spark: Any, broker: Broker, pipeline: Pipeline) -> Producer:
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": i, "name": "x"}, 0, at(1)) for i in range(9)])
    create_topic(broker.bootstrap, pipeline.staging_topic, 3)
    foreign = open_transaction(broker, pipeline.staging_topic)
    plan_and_write(spark, pipeline, day(1))
    return foreign


def test_validate_gives_no_verdict_on_part_of_the_data(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(quality={"open_transaction_wait_seconds": 1})
    foreign = written_with_foreign(spark, broker, pipeline)
    with pytest.raises(OpenTransaction, match=f"topic {pipeline.staging_topic} hides records"):
        validate_batch(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert (batch.state, batch.verdict) == (State.WRITTEN, None)
    with pytest.raises(TransitionRefused, match="it has not been judged"):
        advance_batch(pipeline, day(1))
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0]) == {}
    foreign.abort_transaction(20)


def test_the_session_of_a_write_leaves_it_to_validate(
    spark: Any,
    broker: Broker,
    make_pipeline: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has a write's slot, so it does not wait as long as validate may."""
    monkeypatch.setattr("fencepost.steps.validate.OWN_COMMITS", 0.5)
    pipeline = make_pipeline(quality={"open_transaction_wait_seconds": 3600})
    foreign = written_with_foreign(spark, broker, pipeline)
    judge_what_was_written(spark, pipeline, day(1), str(latest(pipeline, day(1)).id))
    assert f"OpenTransaction: batch {latest(pipeline, day(1)).id}" in caplog.text
    assert latest(pipeline, day(1)).verdict is None
    foreign.abort_transaction(20)
    judge_what_was_written(spark, pipeline, day(1), str(latest(pipeline, day(1)).id))
    verdict = latest(pipeline, day(1)).verdict
    assert verdict is not None
    assert verdict.outcome == "passed"


def test_validate_waits_for_a_transaction_that_ends_in_time(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(quality={"open_transaction_wait_seconds": 60})
    foreign = written_with_foreign(spark, broker, pipeline)
    ends = Timer(2.0, foreign.commit_transaction, [20])
    ends.start()
    try:
        result = validate_batch(spark, pipeline, day(1))
    finally:
        ends.join()
    assert result.details["verdict"] == "passed", "the foreign records carry no header of ours and are not judged"
