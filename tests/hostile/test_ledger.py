"""Whatever stands in the ledger topic is a batch of this pipeline's, or is refused by its offset, and nothing is written.

Records are refused without showing what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.examination import examine
from fencepost.errors import GroupInUse, LedgerLost, LedgerUnreadable, NeedsOperator
from fencepost.findings import Level
from fencepost.ledger.codec import ANNOUNCED_IN_KEY, parse, write_record
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.reader import NewestRecords, Record
from fencepost.model import LEDGER_VERSION, Batch, State
from fencepost.rows.writer import write_partition
from fencepost.steps.advance import advance_batch, skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.writers import rows_job
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, group_offsets, produce, read_all
from makers import a_batch, a_decision, a_publication
from steps import latest, run
from waiting import await_true

Make = Callable[..., Pipeline]
MARKER = "MARKER-of-a-record"
Raw = tuple[bytes, bytes | None]


@pytest.fixture
def planned(broker: Broker, make_pipeline: Make) -> Pipeline:
    """Day 1 is planned and empty, so that it can be finished without Spark."""
    pipeline = make_pipeline()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    plan_batch(pipeline, day(1))
    return pipeline


def taken(pipeline: Pipeline, *reads: list[Record]) -> list[Batch]:
    """What a reader knows after one or several reads."""
    records = NewestRecords(pipeline)
    for read in reads:
        records.take(read)
    return list(records.batches.values())


def stored(broker: Broker, pipeline: Pipeline) -> list[Raw]:
    return [(r.key or b"", r.value) for r in read_all(broker.bootstrap, pipeline.ledger_topic)]


def changed(value: bytes | None, **fields: Any) -> bytes:
    return json.dumps({**json.loads(value or b""), **fields}).encode()


def skip(pipeline: Pipeline) -> None:
    skip_batch(pipeline, day(1), a_decision("skip"))


# From the one record there is (key, value) to the record that is added, and words of the refusal.
CORPUS: dict[str, tuple[Callable[[bytes, bytes | None], Raw], str]] = {
    "text": (lambda k, v: (b"x", MARKER.encode()), "not a Fencepost record"),
    "no JSON object": (lambda k, v: (b"x", b"[1]"), "not a Fencepost record"),
    "a truncated record": (lambda k, v: (k, (v or b"")[: len(v or b"") // 2]), "not a Fencepost record"),
    "invalid UTF-8": (lambda k, v: (k, b'{"version": 1, "pipeline": "\xff\xfe"}'), "not a Fencepost record"),
    "deep nesting": (lambda k, v: (k, b'{"a":' * 50_000), "not a Fencepost record"),
    "a number of 5000 digits": (lambda k, v: (k, b'{"version": ' + b"9" * 5000 + b"}"), "not a Fencepost record"),
    "no value under a batch's key": (lambda k, v: (k, None), "not a Fencepost record"),
    "an empty value": (lambda k, v: (k, b""), "not a Fencepost record"),
    "a newer version": (
        lambda k, v: (k, changed(v, version=LEDGER_VERSION + 1, what=MARKER)),
        "written in version 2 of the ledger's format; this Fencepost reads version 1",
    ),
    "an older version": (
        lambda k, v: (k, changed(v, version=0)),
        "written in version 0 of the ledger's format; this Fencepost reads version 1",
    ),
    "a version of another kind": (lambda k, v: (k, changed(v, version=MARKER)), "damaged in version"),
    "a batch without history": (lambda k, v: (k, changed(v, history=[])), "damaged in history"),
    "a field too many": (lambda k, v: (k, changed(v, **{MARKER: 1})), "damaged in fields it should not have"),
    "a state there is not": (lambda k, v: (k, changed(v, state=MARKER)), "damaged in state"),
    "an interval that runs backwards": (
        lambda k, v: (k, changed(v, interval={"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"})),
        "damaged in interval",
    ),
    "a plan of another kind": (lambda k, v: (k, changed(v, plan=MARKER)), "damaged in plan"),
    "another pipeline's batch": (lambda k, v: (k, changed(v, pipeline=MARKER)), "not a record of this pipeline"),
    "a batch under another's key": (lambda k, v: (k + b"0", v), "not a record of this pipeline"),
    "a written batch without a lease": (lambda k, v: (k, changed(v, state="written")), "damaged in lease"),
}  # fmt: skip


def test_no_record_that_is_not_ours_is_taken_for_a_batch(broker: Broker, planned: Pipeline) -> None:
    (key, value), *_ = stored(broker, planned)
    first = (0, key, value)
    assert taken(planned, [first])[0].state is State.PLANNED
    for name, (make, words) in CORPUS.items():
        added = (1, *make(key, value))
        for reads in ([[first, added]], [[first], [added]]):
            with pytest.raises(LedgerUnreadable, match=rf"offset 1: .*{words}") as raised:
                taken(planned, *reads)
            assert MARKER not in str(raised.value), name


def test_no_step_writes_behind_a_record_that_is_not_ours(broker: Broker, planned: Pipeline) -> None:
    before = stored(broker, planned)
    damaged = CORPUS["a truncated record"][0](*before[0])
    produce(broker.bootstrap, planned.ledger_topic, [(*damaged, 0, at(1))])
    offset = read_all(broker.bootstrap, planned.ledger_topic)[-1].offset
    for step in (lambda: plan_batch(planned, day(2)), lambda: advance_batch(planned, day(1)), lambda: skip(planned)):
        with pytest.raises(LedgerUnreadable, match=rf"offset {offset}: not a Fencepost record"):
            step()
    assert stored(broker, planned) == [*before, damaged]
    assert group_offsets(broker.bootstrap, planned.group, planned.source.topic, [0]) == {}


def test_an_older_record_copied_behind_a_newer_one_does_not_turn_a_batch_back(
    broker: Broker, planned: Pipeline
) -> None:
    skip(planned)
    first = stored(broker, planned)[0]
    produce(broker.bootstrap, planned.ledger_topic, [(*first, 0, at(1))])
    with pytest.raises(LedgerUnreadable, match=r"offset \d+: an older record follows a newer one"):
        plan_batch(planned, day(2))


def test_a_foreign_record_is_withdrawn_by_one_without_a_value(broker: Broker, planned: Pipeline) -> None:
    """The way out that the error names."""
    produce(broker.bootstrap, planned.ledger_topic, [(b"x", b"foreign", 0, at(1))])
    with pytest.raises(LedgerUnreadable, match="remove it with a record of that key and no value"):
        plan_batch(planned, day(2))
    produce(broker.bootstrap, planned.ledger_topic, [(b"x", None, 0, at(1))])
    assert run(None, planned, day(1)).state is State.PUBLISHED
    produce(broker.bootstrap, planned.ledger_topic, [(b"x", b"again", 0, at(1))])
    with pytest.raises(LedgerUnreadable):
        Ledger(planned).read()


def test_an_older_record_is_seen_behind_a_newer_one_in_whichever_read_it_comes(
    broker: Broker, planned: Pipeline
) -> None:
    skip(planned)
    (key, first), (_, second) = (one for one in stored(broker, planned) if one[0] != ANNOUNCED_IN_KEY)
    older, newer, copied = (0, key, first), (1, key, second), (2, key, first)
    assert [b.state for b in taken(planned, [older, newer])] == [State.SKIPPED]
    for reads in (
        [[older, newer, copied]],
        [[older, newer], [copied]],
        [[newer], [copied]],
        [[older], [newer, copied]],
    ):
        with pytest.raises(LedgerUnreadable, match="offset 2: an older record follows a newer one"):
            taken(planned, *reads)
    again = (3, key, second)
    with pytest.raises(LedgerUnreadable, match="offset 2: an older record"):
        taken(planned, [older, newer], [copied, again])


def fill(broker: Broker, pipeline: Pipeline) -> None:
    """Four records a day, on two days."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(b"k", {"n": 10 * d + n, "name": "x"}, n % 2, at(d)) for d in (1, 2) for n in range(4)]
    produce(broker.bootstrap, pipeline.source.topic, records)


def numbers(broker: Broker, pipeline: Pipeline) -> list[int]:
    """The field n of every record of the output, sorted."""
    return sorted(json.loads(r.value or b"")["n"] for r in read_all(broker.bootstrap, pipeline.output.topic))


def delete(broker: Broker, *topics: str, group: str = "") -> None:
    """Topics, which are gone when this returns; and a group, as if its offsets had expired."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    for future in admin.delete_topics(list(topics)).values() if topics else ():
        future.result(20)
    await_true(lambda: not set(topics) & set(admin.list_topics(timeout=10).topics), "the topics to be deleted")
    if group:
        admin.delete_consumer_groups([group])[group].result(20)


DAY_1, DAY_2 = [10, 11, 12, 13], [20, 21, 22, 23]


def test_a_group_of_the_pipelines_name_that_somebody_else_uses_is_called_that(
    broker: Broker, make_pipeline: Make
) -> None:
    """There is no ledger yet; or it was lost, and the output with it."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    other = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": pipeline.group}, logger=QUIET_LOG)
    other.commit(offsets=[TopicPartition(pipeline.source.topic, 0, 3)], asynchronous=False)
    other.close()
    named = rf"group {pipeline.group} has offsets of topic {pipeline.source.topic} \(partition 0: 3\)\. "
    with pytest.raises(
        GroupInUse, match=rf"{named}.*another application.*rename its folder.*restore the ledger"
    ) as raised:
        plan_batch(pipeline, day(1))
    assert Ledger(pipeline).read().all() == []
    (found,) = [one for one in examine(pipeline) if one.kind is GroupInUse]
    assert (found.level, found.do in str(raised.value)) == (Level.ERROR, True)
    delete(broker, group=pipeline.group)
    assert plan_batch(pipeline, day(1)).changed


def test_a_ledger_that_was_deleted_does_not_begin_anew_and_what_the_error_says_works(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """What is published would be written a second time. Its group knows better, and when that has expired the output does."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    published = str(latest(pipeline, day(1)).id)
    delete(broker, pipeline.ledger_topic)
    with pytest.raises(
        LedgerLost,
        match=rf"is empty, and topic .* has records of its batch {published}.*would write published records again",
    ):
        plan_batch(pipeline, day(1))
    delete(broker, group=pipeline.group)
    with pytest.raises(LedgerLost, match=rf"records of its batch {published}\..*give the pipeline a new name"):
        plan_batch(pipeline, day(2))
    assert stored(broker, pipeline) == []
    assert numbers(broker, pipeline) == DAY_1

    # "Set schedule.start to where this one ended, to go on"
    topics = {"source": {"topic": pipeline.source.topic}, "output": {"topic": pipeline.output.topic}}
    going_on = make_pipeline(name=f"{pipeline.name}_2", schedule={"start": "2026-01-02"}, **topics)
    assert run(spark, going_on, day(2)).state is State.PUBLISHED
    assert numbers(broker, pipeline) == DAY_1 + DAY_2
    # "or leave it and name another output.topic, to begin again"
    topics["output"] = {"topic": f"{pipeline.output.topic}-again"}
    again = make_pipeline(name=f"{pipeline.name}_3", **topics)
    for number in (1, 2):
        assert run(spark, again, day(number)).state is State.PUBLISHED
    assert numbers(broker, again) == DAY_1 + DAY_2


def test_marks_that_a_lost_ledger_left_prove_nothing_to_the_next_one(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Group and output are gone too, so nothing says that there was a ledger; its marks carry the lease of the new plan."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    before = latest(pipeline, day(1))
    delete(broker, pipeline.ledger_topic, pipeline.output.topic, group=pipeline.group)
    with pytest.raises(LedgerLost, match=f"topic {pipeline.staging_topic} has records of its batch planned at 20"):
        plan_batch(pipeline, day(1))
    delete(broker, pipeline.staging_topic)
    assert set(group_offsets(broker.bootstrap, pipeline.lane_group("0"), pipeline.source.topic, [0, 1])) == {0, 1}
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert latest(pipeline, day(1)).require_lease == before.require_lease
    assert numbers(broker, pipeline) == DAY_1


def test_a_planned_batch_of_a_ledger_restored_from_a_copy_is_written_as_a_new_revision(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Its leases were offsets of the topic that is gone; one task-partition had committed under them."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    write_partition(rows_job(Deployment.of(pipeline), latest(pipeline, day(1))), 0, iter([]))
    restore(broker, pipeline, stored(broker, pipeline))
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert latest(pipeline, day(1)).revision == 2
    assert numbers(broker, pipeline) == DAY_1


def restore(broker: Broker, pipeline: Pipeline, copy: list[Raw]) -> None:
    """The ledger topic created again, with these records."""
    delete(broker, pipeline.ledger_topic)
    Ledger(pipeline).create()
    produce(broker.bootstrap, pipeline.ledger_topic, [(key, value, 0, at(1)) for key, value in copy])


@pytest.mark.deep
def test_a_ledger_restored_from_an_old_copy_is_refused_and_what_the_error_says_works(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Day 2 was published after the copy was made; planned again, its records would be written a second time."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    old = stored(broker, pipeline)
    run(spark, pipeline, day(2))
    published, whole = str(latest(pipeline, day(2)).id), stored(broker, pipeline)
    restore(broker, pipeline, old)
    with pytest.raises(LedgerLost, match=rf"incomplete, and group {pipeline.group} has offsets.*copy that has them"):
        plan_batch(pipeline, day(2))
    delete(broker, group=pipeline.group)
    with pytest.raises(LedgerLost, match=rf"incomplete, and topic .* has records of its batch {published}\."):
        plan_batch(pipeline, day(3))
    assert stored(broker, pipeline) == old

    # "restore the ledger from a copy that has them"
    restore(broker, pipeline, whole)
    for number in (2, 3):
        assert run(spark, pipeline, day(number)).state is State.PUBLISHED
    assert numbers(broker, pipeline) == DAY_1 + DAY_2
    # "If somebody set these offsets by hand, set them back": a plan is refused, and so is a publication of what was planned
    there = group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1])
    plan_batch(pipeline, day(4))
    set_offset(broker, pipeline, there[1] + 1)
    for step in (lambda: plan_batch(pipeline, day(5)), lambda: run(spark, pipeline, day(4))):
        with pytest.raises(LedgerLost, match=rf"set them back: {pipeline.source.topic}:1 to {there[1]} "):
            step()
    set_offset(broker, pipeline, there[1])
    assert run(spark, pipeline, day(4)).state is State.PUBLISHED


def set_offset(broker: Broker, pipeline: Pipeline, offset: int) -> None:
    """By hand, as kafka-consumer-groups.sh does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    moved = ConsumerGroupTopicPartitions(pipeline.group, [TopicPartition(pipeline.source.topic, 1, offset)])
    admin.alter_consumer_group_offsets([moved])[pipeline.group].result(20)


def test_records_of_other_pipelines_in_the_output_do_not_make_a_new_one_lost(
    broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    create_topic(broker.bootstrap, pipeline.output.topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    for name in (f"{pipeline.name}0/x/1", f"other/{pipeline.name}/1", None):
        headers = [("fencepost-batch", name and name.encode()), ("other", f"{pipeline.name}/x/1".encode())]
        producer.produce(pipeline.output.topic, b"v", headers=headers)
    producer.produce(pipeline.output.topic, b"v")
    assert producer.flush(20) == 0
    assert plan_batch(pipeline, day(1)).state is State.PLANNED


@pytest.mark.parametrize("config", [{"cleanup.policy": "delete"}, {"cleanup.policy": "compact,delete"}])
def test_a_ledger_topic_that_would_forget_is_refused(
    config: dict[str, str], broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    create_topic(broker.bootstrap, pipeline.ledger_topic, 1, **config)
    with pytest.raises(
        NeedsOperator,
        match=rf"cleanup\.policy={config['cleanup.policy']}; it needs 1 partition and cleanup\.policy=compact",
    ):
        plan_batch(pipeline, day(1))


@pytest.mark.parametrize("kind", [None, 1, ["topic"], {"topic": 1}, "missing"])
@pytest.mark.parametrize("part", ["plan", "publication"])
def test_a_kind_of_output_that_is_no_name_of_one_is_refused(part: str, kind: Any) -> None:
    whole = json.loads(write_record(a_batch(State.PUBLISHING, publication=a_publication())))
    damaged = whole["plan"]["output"] if part == "plan" else whole["publication"]
    damaged["kind"] = kind
    with pytest.raises(LedgerUnreadable, match=f"ledger of p, offset 3: damaged in {part}"):
        parse(json.dumps(whole).encode(), "ledger of p, offset 3")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=500)
@given(value=st.none() | st.binary(max_size=60) | JSON.map(lambda v: json.dumps(v).encode()))
def test_any_value_is_a_batch_or_refused(value: bytes | None) -> None:
    with pytest.raises(LedgerUnreadable, match="ledger of p, offset 3: "):
        parse(value, "ledger of p, offset 3")


def test_any_damage_to_a_batch_is_a_batch_or_refused(broker: Broker, planned: Pipeline) -> None:
    (key, value), *_ = stored(broker, planned)
    whole = json.loads(value or b"")
    places = [(f,) for f in whole] + [("plan", f) for f in whole["plan"]] + [("interval", f) for f in whole["interval"]]

    @settings(max_examples=500)
    @given(place=st.sampled_from(places), damage=JSON)
    def check(place: tuple[str, ...], damage: Any) -> None:
        raw = json.loads(value or b"")
        inner = raw
        for part in place[:-1]:
            inner = inner[part]
        inner[place[-1]] = damage
        try:
            found = taken(planned, [(0, key, json.dumps(raw).encode())])
        except LedgerUnreadable:
            return
        assert all(isinstance(b, Batch) for b in found)

    check()
    assert latest(planned, day(1)).state is State.PLANNED
