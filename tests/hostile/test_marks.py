"""Whatever is committed in a lane's group: a mark, or a refusal that names the group and shows nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, NeedsOperator, Superseded, TransitionRefused
from fencepost.model import Receipt, State, Tally
from fencepost.protocol.marks import MarkState, compare_mark, mark_metadata, read_mark
from fencepost.steps.advance import skip_batch
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, group_offsets, produce, read_all
from makers import a_decision
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]
MARKER = "MARKER-of-a-mark"
RECEIPTS = st.builds(
    Receipt,
    task=st.integers(0, 10_000),
    ledger=st.just("L"),
    lease=st.integers(0, 2**62),
    topics=st.fixed_dictionaries(
        {"out": st.builds(Tally, rows=st.integers(0, 2**62), fingerprint=st.integers(0, 2**64 - 1))}
    ),
)


@given(receipt=RECEIPTS)
def test_a_mark_is_read_back_as_it_was_written_and_fits(receipt: Receipt) -> None:
    text = mark_metadata(receipt)
    assert read_mark(text, "here") == receipt
    assert len(text) < 4096


@settings(max_examples=500)
@given(receipt=RECEIPTS, cut=st.integers(1, 40), text=st.text())
def test_a_truncated_or_foreign_mark_is_refused(receipt: Receipt, cut: int, text: str) -> None:
    whole = mark_metadata(receipt)
    for damaged in (whole[:-cut], text, whole.replace('"rows":', '"row":'), whole[:-1] + f',"{MARKER}":1}}', None):
        with pytest.raises(NeedsOperator, match=r"lane 3.*not a mark of Fencepost's") as raised:
            read_mark(damaged, "lane 3")
        assert MARKER not in str(raised.value)


@pytest.mark.parametrize(
    "text", ['{"task":' * 50_000, '{"task": ' + "9" * 5000 + "}", '{"task":-1}', "[]", "\0", '"\\ud800"']
)
def test_a_mark_that_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(NeedsOperator, match="not a mark of Fencepost's"):
        read_mark(text, "here")


@given(receipt=RECEIPTS, lease=st.integers(0, 2**62))
def test_a_writer_writes_unless_its_lease_or_a_later_one_has(receipt: Receipt, lease: int) -> None:
    expected = (MarkState.WRITE, MarkState.DONE, MarkState.SUPERSEDED)[
        (receipt.lease >= lease) + (receipt.lease > lease)
    ]
    assert compare_mark(receipt, lease, receipt.ledger) is expected
    assert compare_mark(None, lease, receipt.ledger) is MarkState.WRITE


@pytest.fixture
def planned(broker: Broker, make_pipeline: Make) -> Pipeline:
    """Day 1 is planned: two records on each of two partitions."""
    pipeline = make_pipeline()
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(b"k%d" % n, {"n": n, "name": "x"}, n % 2, at(1)) for n in range(4)]
    produce(broker.bootstrap, pipeline.source.topic, records)
    plan_batch(pipeline, day(1))
    return pipeline


def commit(broker: Broker, pipeline: Pipeline, metadata: str) -> None:
    """Somebody else's offset in the group that holds the marks of lane 0, on partition 0."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": pipeline.lane_group("0")}, logger=QUIET_LOG)
    place = TopicPartition(pipeline.source.topic, 0, 1, metadata=metadata)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def mark(pipeline: Pipeline, lease: int = 0, task: int = 0) -> str:
    ours = latest(pipeline, day(1))
    ledger = ours.plan.ledger_topic_id
    topics = {pipeline.output.topic: Tally(rows=2)}
    return mark_metadata(Receipt(task=task, ledger=ledger, lease=ours.require_lease + lease, topics=topics))


@pytest.mark.parametrize(
    ("forged", "raised", "words"),
    [
        (lambda p: MARKER, NeedsOperator, r"group p\d+\.lane-0: the offset committed there is not a mark"),
        (lambda p: mark(p, lease=1), Superseded, "later than this attempt's"),
        (lambda p: mark(p, task=1), TransitionRefused, r"receipts do not cover the plan.*missing \[0\]"),
    ],
    ids=["foreign", "a later lease", "another task-partition's"],
)
def test_a_forged_mark_stops_the_write_and_moves_nothing(
    forged: Callable[[Pipeline], str],
    raised: type[FencepostError],
    words: str,
    spark: Any,
    broker: Broker,
    planned: Pipeline,
) -> None:
    commit(broker, planned, forged(planned))
    with pytest.raises(raised, match=words) as error:
        plan_and_write(spark, planned, day(1))
    assert MARKER not in str(error.value)
    assert latest(planned, day(1)).state is State.PLANNED
    assert group_offsets(broker.bootstrap, planned.group, planned.source.topic, [0, 1]) == {}
    if raised is NeedsOperator:
        follow_the_advice(spark, broker, planned)


def follow_the_advice(spark: Any, broker: Broker, pipeline: Pipeline) -> None:
    """Delete the group, skip, reprocess: each record is published once."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    admin.delete_consumer_groups([pipeline.lane_group("0")])[pipeline.lane_group("0")].result(20)
    skip_batch(pipeline, day(1), a_decision("skip"))
    run(spark, pipeline, day(1), reprocess=True)
    batch = latest(pipeline, day(1))
    assert (batch.revision, batch.state) == (2, State.PUBLISHED)
    own = [r.json["n"] for r in read_all(broker.bootstrap, pipeline.output.topic) if r.batch == str(batch.id)]
    assert sorted(own) == [0, 1, 2, 3]
