"""A staged pipeline on a real broker and real Spark: what a plain read_committed consumer of its output sees, and when."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.cimpl import TopicPartition

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.observed_state import observed_state
from fencepost.errors import BatchRejected, NeedsOperator, TopicRecreated, TransitionRefused
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change, Ledger
from fencepost.model import Batch, State
from fencepost.outputs.topic.publication import copied_receipts
from fencepost.reading.validated import read_validated
from fencepost.steps.advance import advance_batch, advance_without_spark, begin_batch, skip_batch
from fencepost.steps.obstacle import give_up
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, delete_topic, end_offset, group_offsets, produce, read_all, stable_ends
from makers import a_decision
from steps import announced, copied_and_not_recorded, kafka_of, latest, plan_and_write
from waiting import await_true

Make = Callable[..., Pipeline]

STAGED = {"publish": "staged"}
EVERYTHING = """
def transform(frame):
    return frame.select("_key", "_timestamp", "_headers", "_tombstone", "n", "name")
"""
ANYTHING = "expectations:\n  - {type: expect_table_row_count_to_equal, kwargs: {value: 30}}\n"
FAILS = "expectations:\n  - {type: expect_column_values_to_be_between, kwargs: {column: n, max_value: -1}}\n"


def judged(spark: Any, pipeline: Pipeline, number: int = 1, *, reprocess: bool = False) -> None:
    plan_and_write(spark, pipeline, day(number), reprocess=reprocess)
    validate_batch(spark, pipeline, day(number))


def published(spark: Any, pipeline: Pipeline, number: int = 1) -> Any:
    return advance_batch(pipeline, day(number), spark=lambda: spark)


def fill(broker: Broker, pipeline: Pipeline, count: int = 40, number: int = 1) -> None:
    if number == 1:
        create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(f"k{i % 7}".encode(), {"n": i, "name": "ü"}, i % 7 % 2, at(number) + i) for i in range(count)]
    produce(broker.bootstrap, pipeline.source.topic, records)


def delete_staged(broker: Broker, pipeline: Pipeline) -> None:
    """All there is in the staging topic, as its retention would."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    topic = pipeline.staging_topic
    futures = admin.delete_records([TopicPartition(topic, p, -1) for p in range(pipeline.output.partitions)])
    for future in futures.values():
        future.result(30)


def others(broker: Broker, batch: Batch) -> None:
    """Records in the batch's ranges of its staging topic that are not the batch's, whatever they are named."""
    producer, own = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG), batch.plan.staging_timestamp
    for partition in range(3):
        for timestamp in (own - 1, own + 1):
            headers = [("fencepost-batch", str(batch.id).encode())]
            producer.produce(batch.require_staging.topic, b"{}", b"k0", partition, timestamp=timestamp, headers=headers)
    assert producer.flush(10) == 0


@pytest.mark.parametrize(
    ("megabytes", "header"),
    [
        (256, True),
        pytest.param(0, False, marks=pytest.mark.deep),
        pytest.param(256, False, marks=pytest.mark.deep),
        pytest.param(0, True, marks=pytest.mark.deep),
    ],
)
def test_a_published_batch_is_seen_as_if_it_had_been_written_there_and_not_before_it_is_judged(
    spark: Any, broker: Broker, make_pipeline: Make, megabytes: int, header: bool
) -> None:
    """Beside it, the same source written directly: key, value, tombstone, headers, timestamp, partition and order are its own."""
    shared = {"timestamp": "_timestamp", "headers": "_headers"}
    settings: dict[str, Any] = {"source": {"headers": True, "tombstones": "pass"}}
    direct = make_pipeline(EVERYTHING, ANYTHING, output=shared | {"publish": "direct"}, **settings)
    staged = make_pipeline(
        EVERYTHING,
        ANYTHING,
        source={"headers": True, "tombstones": "pass", "topic": direct.source.topic},
        output=shared | STAGED | {"atomic_megabytes": megabytes, "batch_header": header},
    )
    create_topic(broker.bootstrap, direct.source.topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    given = [("trace", b"1"), ("trace", None)]
    for n in range(30):
        value = None if n % 10 == 9 else b'{"n": %d, "name": "a"}' % n
        headers = given[: n % 3]
        key = None if n % 11 == 10 else b"k%d" % (n % 6)
        producer.produce(direct.source.topic, value, key, n % 2, timestamp=at(1) + n, headers=headers)
    assert producer.flush(10) == 0
    judged(spark, direct)
    plan_batch(staged, day(1))
    others(broker, latest(staged, day(1)))
    judged(spark, staged)
    assert read_all(broker.bootstrap, staged.output.topic, committed=False) == []

    result = published(spark, staged)
    assert result.details["method"] == ("in one transaction" if megabytes else "in 3 task-partitions")
    assert result.message == f"published revision 1, {result.details['method']}"
    batch = latest(staged, day(1))
    own = (("fencepost-batch", str(batch.id).encode()),)

    def without(headers: Any) -> Any:
        return tuple(h for h in headers if h[0] != "fencepost-batch")

    def told(topic: str) -> dict[bytes, list[Any]]:
        keyed: dict[bytes, list[Any]] = {}
        for r in read_all(broker.bootstrap, topic):
            if r.key is not None:  # which else is placed at random
                keyed.setdefault(r.key, []).append((r.partition, r.value, r.timestamp, without(r.headers)))
        return keyed

    assert told(staged.output.topic) == told(direct.output.topic), "each key's records, in their order"
    seen = read_all(broker.bootstrap, staged.output.topic)
    assert len(seen) == 30
    assert all(r.headers[len(r.headers) - 1 :] == own for r in seen) if header else all(r.batch == "" for r in seen)
    ends = group_offsets(broker.bootstrap, staged.validated_group, staged.output.topic, range(3))
    assert all(r.offset < ends[r.partition] for r in seen)
    assert all(end <= end_offset(broker.bootstrap, staged.output.topic, p) for p, end in ends.items())
    assert group_offsets(broker.bootstrap, staged.group, staged.source.topic, [0, 1]) == {0: 15, 1: 15}

    event = announced(staged, day(1))
    if header:
        assert read_validated(spark, event, kafka=kafka_of(staged)).count() == 30
    else:
        with pytest.raises(NeedsOperator, match="records have no header"):
            read_validated(spark, event, kafka=kafka_of(staged))


@pytest.mark.parametrize("megabytes", [256, pytest.param(0, marks=pytest.mark.deep)])
def test_a_record_without_a_timestamp_of_its_own_gets_that_of_its_publication(
    spark: Any, broker: Broker, make_pipeline: Make, megabytes: int
) -> None:
    """In the staging topic it had its batch's, as all others."""
    pipeline = make_pipeline(
        "def transform(frame):\n    return frame.selectExpr('_key', 'n', 'CASE WHEN n % 2 = 0 THEN _timestamp END AS at')\n",
        ANYTHING,
        output=STAGED | {"timestamp": "at", "atomic_megabytes": megabytes},
    )
    fill(broker, pipeline, 30)
    judged(spark, pipeline)
    batch = latest(pipeline, day(1))
    assert {r.timestamp for r in read_all(broker.bootstrap, pipeline.staging_topic)} == {batch.plan.staging_timestamp}
    began = round(time.time() * 1000)
    published(spark, pipeline)
    seen = read_all(broker.bootstrap, pipeline.output.topic)
    assert len(seen) == 30
    for record in seen:
        n = record.json["n"]
        assert record.timestamp == at(1) + n if n % 2 == 0 else record.timestamp >= began


@pytest.mark.parametrize(("partitions", "transactions"), [(1, 1), pytest.param(2, 2, marks=pytest.mark.deep)])
def test_in_one_transaction_is_said_of_one(
    spark: Any, broker: Broker, make_pipeline: Make, partitions: int, transactions: int
) -> None:
    """Spark copies a staging partition in a transaction of its own: behind each lies one marker."""
    pipeline = make_pipeline(output=STAGED | {"atomic_megabytes": 0, "partitions": partitions})
    fill(broker, pipeline)
    judged(spark, pipeline)
    way = "in one transaction" if transactions == 1 else "in 2 task-partitions"
    assert published(spark, pipeline).details["method"] == way
    assert sum(stable_ends(broker.bootstrap, pipeline.output.topic, partitions)) == 40 + transactions


def test_a_rejected_batch_is_not_seen_until_an_operator_publishes_it(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(expectations=FAILS, output=STAGED)
    fill(broker, pipeline)
    with pytest.raises(BatchRejected):
        judged(spark, pipeline)
    with pytest.raises(TransitionRefused):
        published(spark, pipeline)
    assert read_all(broker.bootstrap, pipeline.output.topic, committed=False) == []
    result = advance_batch(pipeline, day(1), a_decision("publish"))
    assert (result.state, result.changed) == (State.PUBLISHED, True)
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 40
    again = advance_batch(pipeline, day(1), a_decision("publish"))
    assert (again.changed, again.message) == (False, "already published, revision 1")
    assert len(read_all(broker.bootstrap, pipeline.output.topic, committed=False)) == 40


def test_what_is_being_published_is_finished_by_whoever_comes_next_and_others_go_on_beside_it(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output=STAGED | {"atomic_megabytes": 0})
    fill(broker, pipeline)
    fill(broker, pipeline, number=2)
    judged(spark, pipeline)
    begun = begin_batch(pipeline, day(1))
    assert (begun.state, begun.message) == (State.PUBLISHING, "began to publish revision 1, in 3 task-partitions")
    assert advance_without_spark(pipeline, day(1)) is None, "it is for Spark"
    with pytest.raises(TransitionRefused, match="is being published and can be finished"):
        skip_batch(pipeline, day(1), a_decision("skip"))
    assert plan_batch(pipeline, day(1), reprocess=True).message == "revision 1 is publishing"
    assert write_batch(spark, pipeline, day(1)).message == "already publishing, revision 1"
    assert validate_batch(spark, pipeline, day(1)).message == "already publishing, revision 1"

    judged(spark, pipeline, 2)
    assert published(spark, pipeline, 2).state is State.PUBLISHED
    two = latest(pipeline, day(2))
    assert two.publication is not None
    assert two.publication.lane == 1, "the other's is held"
    assert {r.batch for r in read_all(broker.bootstrap, pipeline.output.topic)} == {str(two.id)}
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) != {0: 46, 1: 34}

    assert published(spark, pipeline).state is State.PUBLISHED
    seen = Counter(r.batch for r in read_all(broker.bootstrap, pipeline.output.topic))
    assert seen == {str(latest(pipeline, day(n)).id): 40 for n in (1, 2)}


@pytest.mark.parametrize("begun", [pytest.param(False, marks=pytest.mark.deep), True])
def test_a_batch_whose_staged_records_expired_before_it_was_published_is_written_anew_and_says_so(
    spark: Any, broker: Broker, make_pipeline: Make, begun: bool
) -> None:
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    if begun:
        begin_batch(pipeline, day(1))
    delete_staged(broker, pipeline)
    with pytest.raises(NeedsOperator, match=r"no longer has partition .*writes and judges a new revision"):
        published(spark, pipeline)
    zombie = latest(pipeline, day(1))

    judged(spark, pipeline)
    old, new = Ledger(pipeline).read().known(day(1)).all
    assert (old.state, new.state) == (State.SUPERSEDED, State.WRITTEN)
    assert f"its staging topic {pipeline.staging_topic} no longer has partition" in new.history[0].note
    told = "by revision 2; given up during its publication; readers may have seen 0 of its 40 records"
    assert old.history[-1].note == (told if begun else "by revision 2")
    if begun:
        deployment = Deployment.of(pipeline)
        deployment.ledger.read()
        assert zombie.publication is not None
        receipts = copied_receipts(zombie.publication, observed_state(deployment, zombie).output.marks)
        assert receipts is not None
        assert [r.topics for r in receipts] == [{}], "a late attempt finds it done, with nothing"
    assert published(spark, pipeline).state is State.PUBLISHED
    assert Counter(r.batch for r in read_all(broker.bootstrap, pipeline.output.topic)) == {str(new.id): 40}


def test_a_publication_that_was_copied_in_full_needs_its_staged_records_no_more(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Who copied it died before the ledger said so; the write step's retry does not give it up, and advance records it."""
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    copied_and_not_recorded(spark, pipeline, day(1))
    delete_staged(broker, pipeline)
    deployment = Deployment.of(pipeline)
    deployment.ledger.read()
    held = latest(pipeline, day(1))
    assert give_up(deployment, held, observed_state(deployment, held)) is None
    assert write_batch(spark, pipeline, day(1)).message == "already publishing, revision 1"
    assert published(None, pipeline).state is State.PUBLISHED
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 40


def test_a_staging_topic_made_anew_is_told_and_the_batch_is_written_anew(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    delete_topic(broker.bootstrap, pipeline.staging_topic)
    create_topic(broker.bootstrap, pipeline.staging_topic, 3)
    with pytest.raises(TopicRecreated, match=r"staging topic .* was deleted and created again"):
        published(spark, pipeline)
    judged(spark, pipeline)
    assert published(spark, pipeline).revision == 2
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 40


def test_the_staging_topic_has_as_many_partitions_as_the_output(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    fill(broker, pipeline, number=2)
    plan_batch(pipeline, day(1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    admin.create_partitions([NewPartitions(pipeline.output.topic, 5)])[pipeline.output.topic].result(30)
    await_true(lambda: len(admin.list_topics(timeout=10).topics[pipeline.output.topic].partitions) == 5, "5 partitions")
    skip_batch(pipeline, day(1), a_decision("skip"))
    plan_batch(pipeline, day(2))
    plan = latest(pipeline, day(2)).plan
    assert plan.staging is not None
    assert len(plan.staging.ends) == len(plan.output.ends) == 5
    settings = Deployment.of(pipeline).cluster.topic_configs(pipeline.staging_topic)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == (str(168 * 3_600_000), "delete")

    other = make_pipeline(output=STAGED | {"staging_topic": f"{pipeline.name}-own", "partitions": 2})
    fill(broker, other)
    create_topic(broker.bootstrap, f"{pipeline.name}-own", 4)
    with pytest.raises(
        NeedsOperator, match=r"has 4 partitions and output topic .* has 2, so .* Add partitions to the output"
    ):
        plan_batch(other, day(1))


def test_a_copy_that_would_not_be_the_batch_is_not_committed_and_the_batch_is_written_anew(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Somebody writes into the batch's range under its header, behind validate's back."""
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    ledger = Ledger(pipeline)
    ledger.read()
    batch = latest(pipeline, day(1))
    assert batch.written is not None
    fewer = batch.written.tally.model_copy(update={"rows": batch.written.rows - 1})
    written = batch.written.model_copy(update={"topics": {pipeline.staging_topic: fewer}})
    other = batch.model_copy(update={"written": written})
    ledger.transact(lambda view: Change((other,)))
    with pytest.raises(NeedsOperator, match=r"40 records .* receipts count 39 .*writes and judges a new revision"):
        published(spark, pipeline)
    assert read_all(broker.bootstrap, pipeline.output.topic) == []
    judged(spark, pipeline)
    assert latest(pipeline, day(1)).history[0].note == "its copy does not hold the records that were written"
    assert published(spark, pipeline).revision == 2
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 40
