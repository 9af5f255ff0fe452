"""A rejected batch, and the ways out of it: a fixed suite, a fixed transform, an operator's decision."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, ReceiptsDisagree, TransitionRefused, VerdictUndetermined
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, State
from fencepost.protocol.frontier import holding_back
from fencepost.steps.advance import advance_batch, skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import judge_what_was_written, validate_batch, validate_without_spark
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, group_offsets, produce, read_all
from makers import a_decision
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]

SMALL_ONLY = """
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: doubled, max_value: 16}
"""
HALVED = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "n AS doubled", "name")\n'


@pytest.fixture
def rejected(spark: Any, broker: Broker, make_pipeline: Make) -> Pipeline:
    """Day 1 is rejected: one of its ten records is 18, and 16 is allowed. Day 2 holds one good record."""
    pipeline = make_pipeline(expectations=SMALL_ONLY)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k%d" % n, {"n": n}, 0, at(1)) for n in range(10)])
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, at(2))])
    with pytest.raises(BatchRejected, match="Report: "):
        run(spark, pipeline, day(1))
    return pipeline


def frontier(broker: Broker, pipeline: Pipeline) -> dict[int, int]:
    return group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0])


def test_the_session_of_a_write_judges_and_validate_reports_it(
    spark: Any, broker: Broker, make_pipeline: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Without Spark, until the suite is another one. The write itself stays a success."""
    caplog.set_level("INFO", "fencepost")
    pipeline = make_pipeline(expectations=SMALL_ONLY)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    for number, values in ((1, [8]), (2, [9])):
        records = [(b"k%d" % n, {"n": n}, 0, at(number)) for n in values]
        produce(broker.bootstrap, pipeline.source.topic, records)
        wrote = plan_and_write(spark, pipeline, day(number))
        judge_what_was_written(spark, pipeline, day(number), wrote.batch)
    passed = validate_without_spark(pipeline, day(1), rejected=True)
    assert passed is not None
    assert passed.details["verdict"] == "passed"
    judged = latest(pipeline, day(2))
    assert judged.state is State.REJECTED
    assert judged.verdict is not None
    said = rf"1 of 1 expectation failed: .* Report: {judged.verdict.report}\. No offset moved\. "
    with pytest.raises(BatchRejected, match=said) as raised:
        validate_without_spark(pipeline, day(2), rejected=True)
    assert f"the step validate will report: {raised.value}" in caplog.messages
    assert latest(pipeline, day(2)) == judged
    assert validate_without_spark(pipeline, day(2)) is None
    milder = make_pipeline(expectations=SMALL_ONLY.replace("16", "18"), name=pipeline.name)
    assert validate_without_spark(milder, day(2), rejected=True) is None


def test_no_offset_moves_and_the_report_names_the_record(rejected: Pipeline, broker: Broker) -> None:
    batch = latest(rejected, day(1))
    assert batch.state is State.REJECTED
    assert frontier(broker, rejected) == {}
    with pytest.raises(TransitionRefused, match="verdict is rejected"):
        advance_batch(rejected, day(1))
    assert batch.verdict is not None
    report = json.loads(Path(batch.verdict.report).with_suffix(".json").read_text())
    (sample,) = report["evaluation"]["checks"][0]["sample"]
    (seen,) = [r for r in read_all(broker.bootstrap, rejected.staging_topic) if r.json["doubled"] == 18]
    assert (sample["partition"], sample["offset"], sample["key"]) == (seen.partition, seen.offset, "k9")


@pytest.mark.deep
def test_a_published_interval_behind_it_does_not_move_the_frontier(
    spark: Any, rejected: Pipeline, broker: Broker
) -> None:
    run(spark, rejected, day(2))
    assert latest(rejected, day(2)).state is State.PUBLISHED
    assert frontier(broker, rejected) == {0: 0}
    hole = holding_back(Ledger(rejected).read())
    assert hole is not None
    assert hole.interval == day(1)
    skip_batch(rejected, day(1), a_decision("skip"))
    assert frontier(broker, rejected) == {0: 11}


def test_what_metrics_tell_of_the_pipeline_follows_a_persons_decision(rejected: Pipeline) -> None:
    skipped = skip_batch(rejected, day(1), a_decision("skip"))
    later = advance_batch(rejected, day(1))
    assert (skipped.changed, later.changed, later.state) == (True, False, State.SKIPPED)
    for told in (skipped.details, later.details):
        assert (told["verdict_final"], told["frontier_time"]) == (True, day(1).end.isoformat())


def test_a_mended_transform_is_written_as_a_new_revision(
    spark: Any, rejected: Pipeline, broker: Broker, make_pipeline: Make
) -> None:
    fixed = make_pipeline(HALVED, SMALL_ONLY, name=rejected.name)
    run(spark, fixed, day(1))
    batch = latest(fixed, day(1))
    assert (batch.revision, batch.state) == (2, State.PUBLISHED)
    assert frontier(broker, fixed) == {0: 10}
    seen = [r.json["doubled"] for r in read_all(broker.bootstrap, fixed.output.topic) if r.batch == str(batch.id)]
    assert sorted(seen) == list(range(10))


def test_an_operator_may_publish_it_all_the_same(rejected: Pipeline, broker: Broker) -> None:
    advance_batch(rejected, day(1), a_decision("publish"))
    batch = latest(rejected, day(1))
    assert batch.state is State.PUBLISHED
    assert batch.decision is not None
    assert (batch.decision.by, batch.decision.reason) == ("operator", "looked at it")
    assert frontier(broker, rejected) == {0: 10}


def test_a_check_that_cannot_be_evaluated_gives_no_verdict(
    spark: Any, rejected: Pipeline, broker: Broker, make_pipeline: Make
) -> None:
    wrong = SMALL_ONLY.replace("expect_column_values_to_be_between", "expect_column_values_to_be_betwixt")
    pipeline = make_pipeline(expectations=wrong, name=rejected.name)
    with pytest.raises(VerdictUndetermined, match="betwixt"):
        validate_batch(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.REJECTED
    assert frontier(broker, pipeline) == {}


@pytest.mark.parametrize("publish", ["staged", pytest.param("direct", marks=pytest.mark.deep)])
def test_foreign_records_that_look_like_the_batchs_are_found(
    spark: Any, broker: Broker, make_pipeline: Make, publish: str
) -> None:
    """What a second copy of a record would look like: the receipts say what was committed, and it is more."""
    pipeline = make_pipeline(output={"publish": publish})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    plan_batch(pipeline, day(1))
    batch = latest(pipeline, day(1))
    forge(broker, batch)
    plan_and_write(spark, pipeline, day(1))
    with pytest.raises(ReceiptsDisagree, match=r"receipts count 1 record .*shows 2"):
        validate_batch(spark, pipeline, day(1))
    with pytest.raises(TransitionRefused, match=r"could not be judged \(verdict undetermined\)"):
        advance_batch(pipeline, day(1))


def forge(broker: Broker, batch: Batch) -> None:
    producer, topic = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG), batch.plan.write_topic.topic
    if batch.plan.staging is not None:
        producer.produce(topic, b'{"n": 1}', b"k", timestamp=batch.plan.staging_timestamp)
    else:
        producer.produce(topic, b'{"n": 1}', b"k", headers=[("fencepost-batch", str(batch.id).encode())])
    assert producer.flush(10) == 0


LIKE_HISTORY = """
expectations:
  - {type: expect_batch_volume_like_history, kwargs: {at_least: 2}}
  - {type: expect_batch_freshness_like_history, severity: warning, kwargs: {at_least: 2}}
"""


def test_a_batch_unlike_those_published_before_is_rejected_or_warned_of(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(expectations=LIKE_HISTORY)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)

    def records(number: int, count: int, hour: float) -> None:
        produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, at(number, hour)) for n in range(count)])

    for number, count, hour in ((1, 20, 23.5), (2, 20, 23.5), (3, 20, 13), (4, 3, 23.5)):
        records(number, count, hour)
    for number in (1, 2, 3):
        run(spark, pipeline, day(number))
        assert latest(pipeline, day(number)).state is State.PUBLISHED
    warned = latest(pipeline, day(3)).verdict
    assert warned is not None
    assert warned.failed_warning == ("expect_batch_freshness_like_history",), "its last record came eleven hours early"
    with pytest.raises(BatchRejected, match="expect_batch_volume_like_history"):
        run(spark, pipeline, day(4))
    verdict = latest(pipeline, day(4)).verdict
    assert verdict is not None
    report = json.loads(Path(verdict.report).with_suffix(".json").read_text())
    found = [check["observed"] for check in report["evaluation"]["checks"]]
    assert found == [
        {"rows": 3, "usual": "20 ± 2"},
        {"age of the newest record": "0:30:00", "usual": "0:30:00", "at most": "0:35:00"},
    ]


AT_LEAST_ONE = """
expectations:
  - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 1}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: n}}
"""
NONE_LEFT = 'def transform(frame):\n    return frame.where("n < 0")\n'


def test_an_empty_batch_is_rejected_where_a_check_asks_for_records(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """With offsets whose records the transform left out, and without any: there is no Spark then."""
    pipeline = make_pipeline(NONE_LEFT, AT_LEAST_ONE)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, at(1))])
    for session, number in ((spark, 1), (None, 2)):
        with pytest.raises(BatchRejected, match=r"no records\. 1 of 2 expectations failed: expect_table_row_count"):
            run(session, pipeline, day(number))
        batch = latest(pipeline, day(number))
        assert batch.state is State.REJECTED
        assert batch.plan.is_empty is (session is None)
        assert batch.verdict is not None
        assert batch.verdict.expectations == 2
    assert frontier(broker, pipeline) == {}
    allowing = make_pipeline(NONE_LEFT, AT_LEAST_ONE.replace("min_value: 1", "max_value: 9"), name=pipeline.name)
    validate_batch(spark, allowing, day(1))
    rejecting = make_pipeline(
        NONE_LEFT, AT_LEAST_ONE.replace("min_value: 1", "max_value: 9"), name=pipeline.name, quality={"empty": "reject"}
    )
    assert validate_without_spark(rejecting, day(1)) is None, "the rule changed since it passed"
    for number in (1, 2):
        assert run(None, allowing, day(number)).state is State.PUBLISHED


@pytest.mark.deep
def test_history_rejects_a_batch_that_had_nothing_to_read(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(expectations=LIKE_HISTORY)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    for number in (1, 2):
        produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, at(number, 23)) for n in range(20)])
        run(spark, pipeline, day(number))
    with pytest.raises(BatchRejected, match="expect_batch_volume_like_history"):
        run(None, pipeline, day(3))
    verdict = latest(pipeline, day(3)).verdict
    assert verdict is not None
    assert verdict.failed_warning == ("expect_batch_freshness_like_history",), "its newest record is over a day old"


def test_a_batch_that_passed_is_not_judged_again_under_the_same_suite(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """A run that died at advance goes on there, without Spark."""
    pipeline = make_pipeline(expectations=SMALL_ONLY)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 8}, 0, at(1))])
    plan_and_write(spark, pipeline, day(1))
    assert validate_without_spark(pipeline, day(1)) is None
    validate_batch(spark, pipeline, day(1))
    judged = latest(pipeline, day(1))

    again = validate_without_spark(pipeline, day(1))
    assert again is not None
    assert (again.changed, again.details["verdict"]) == (False, "passed")
    assert again.message == "already judged, passed under the same suite: revision 1, validation 1"
    assert latest(pipeline, day(1)) == judged

    stricter = make_pipeline(expectations=SMALL_ONLY.replace("16", "15"), name=pipeline.name)
    assert validate_without_spark(stricter, day(1)) is None
    with pytest.raises(BatchRejected):
        validate_batch(spark, stricter, day(1))
    fixed = make_pipeline(expectations=SMALL_ONLY, name=pipeline.name)
    assert validate_without_spark(fixed, day(1)) is None, "a rejected batch is judged whenever that is asked for"
    validate_batch(spark, fixed, day(1))
    assert run(None, fixed, day(1)).state is State.PUBLISHED
