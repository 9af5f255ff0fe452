"""Side tables that are topics: the newest record of each key, while others write to the topic and Kafka compacts it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry

from avro_schemas import written
from conftest import at, day
from envelopes import POSTGRES, change
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.doctor.topics import check_table_topics
from fencepost.errors import KafkaUnavailable, SettingsError, SideTableRefused, TopicMissing
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.side_tables import newest
from fencepost.side_tables.content import TableContent
from fencepost.side_tables.reading import read_table
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import QUIET_LOG, create_topic, delete_topic, produce, read_all, stable_ends
from registry_tools import framed, register
from steps import latest, run
from waiting import await_true

Make = Callable[..., Pipeline]
numbers = count(1)
JSON: dict[str, Any] = {
    "format": "json",
    "schema": {"name": "string not null"},
    "key_format": "json",
    "key_schema": {"id": "int"},
    "key": "_key_id",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
LOOKS_UP = """
def transform(orders, customers):
    found = customers.selectExpr("_key_id AS n", "name AS customer")
    return orders.join(found, "n", "left").select("_key", "n", "customer")
"""


@pytest.fixture
def make(make_pipeline: Make, broker: Broker) -> Make:
    """A pipeline with the side table `customers`, a topic of two partitions that is there unless `topic` has other settings."""

    def make(
        table: dict[str, Any], partitions: int = 2, topic: dict[str, str] | None = None, **changes: Any
    ) -> Pipeline:
        name = f"looks_up{next(numbers)}"
        create_topic(broker.bootstrap, f"{name}-customers", partitions, **(topic or {}))
        tables = {"customers": {"topic": f"{name}-customers", **table}}
        return make_pipeline(LOOKS_UP, SUITE, name=name, tables=tables, **changes)

    return make


def topic_of(pipeline: Pipeline) -> str:
    return pipeline.topic_tables["customers"].topic


def read(spark: Any, pipeline: Pipeline) -> TableContent:
    return read_table(spark, pipeline, Deployment.of(pipeline).cluster, "customers")


def key(number: int) -> bytes:
    return b'{"id":%d}' % number


def named(*rows: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"name": name, "_key": key(number), "_key_id": number} for number, name in rows]


def test_the_newest_committed_record_of_each_key_is_a_row_and_a_tombstone_removes_it(
    spark: Any, broker: Broker, make: Make
) -> None:
    """Records of aborted and open transactions are none, and a marker at the end keeps nobody waiting."""
    pipeline = make(JSON)
    topic = topic_of(pipeline)
    records = [
        (key(2), {"name": "two"}, 0, at(1)),
        (key(3), {"name": "three"}, 0, at(1)),
        (key(2), {"name": "zwei"}, 0, at(1)),
        (key(3), None, 0, at(1)),
        (key(4), {"name": "four"}, 0, at(1)),
        (key(4), None, 0, at(1)),
        (key(4), {"name": "vier"}, 0, at(1)),
        (key(9), None, 0, at(1)),
    ]
    produce(broker.bootstrap, topic, records)
    writer = transactional(broker, "closes")
    written_in(writer, topic, key(1), b'{"name":"one"}')
    writer.commit_transaction(30)
    written_in(writer, topic, key(1), b'{"name":"aborted"}')
    writer.abort_transaction(30)
    assert stable_ends(broker.bootstrap, topic, 2) == [8, 4], "two records and two markers"
    open_ = transactional(broker, "stays-open")
    written_in(open_, topic, key(1), b'{"name":"open"}')

    content = read(spark, pipeline)

    assert content.rows.to_pylist() == named((1, "one"), (2, "zwei"), (4, "vier"))
    assert content.state.offsets is not None
    assert (content.state.offsets.topic, content.state.offsets.ends) == (topic, (8, 4))
    assert content.state.offsets.topic_id == Deployment.of(pipeline).cluster.describe(topic).id
    open_.abort_transaction(30)


def transactional(broker: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name}, logger=QUIET_LOG)
    producer.init_transactions(30)
    return producer


def written_in(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
    """Begin a transaction with a record in partition 1, which is in the log when this returns."""
    producer.begin_transaction()
    producer.produce(topic, value, key, partition=1, timestamp=at(1))
    assert producer.flush(30) == 0


def test_keys_and_values_in_avro_are_read_with_the_schemas_of_their_subjects(
    spark: Any, broker: Broker, schema_registry: SchemaRegistry, make: Make
) -> None:
    """Of any version, and of an id that no version has. The table's own subjects count, not those of the source."""
    table = {"format": "avro", "key_format": "avro", "key_schema": {"id": "long"}, "key": ["_key_id"]}
    pipeline = make(table, schema_registry={"url": schema_registry.url})
    topic = topic_of(pipeline)
    with pytest.raises(SettingsError) as unknown:
        read(spark, pipeline)
    assert str(unknown.value) == (
        f"pipeline {pipeline.name}, tables.customers: the registry has no subject {topic}-value. Register its schema, or name "
        "the subject that the producers use as tables.customers.subject."
    )
    keys = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    old = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
    new = {**old, "fields": [*old["fields"], {"name": "rank", "type": ["null", "int"], "default": None}]}
    of_key = register(schema_registry, f"{topic}-key", keys)
    first = register(schema_registry, f"{topic}-value", old)
    second = register(schema_registry, f"{topic}-value", new)
    elsewhere = {**new, "fields": [*new["fields"], {"name": "more", "type": "int"}]}
    third = register(schema_registry, f"{topic}-another", elsewhere)
    values = [
        framed(first, written(old, {"name": "one"})),
        framed(second, written(new, {"name": "two", "rank": 7})),
        framed(third, written(elsewhere, {"name": "three", "rank": 9, "more": 1})),
    ]
    avro_keys = [framed(of_key, written(keys, {"id": n + 1})) for n in range(3)]
    produce(broker.bootstrap, topic, [(k, v, 0, at(1)) for k, v in zip(avro_keys, values, strict=True)])
    assert read(spark, pipeline).rows.to_pylist() == [
        {"name": "one", "rank": None, "_key": {"id": 1}, "_key_id": 1},
        {"name": "two", "rank": 7, "_key": {"id": 2}, "_key_id": 2},
        {"name": "three", "rank": 9, "_key": {"id": 3}, "_key_id": 3},
    ]


def test_bytes_have_a_value_and_a_key(spark: Any, broker: Broker, make: Make) -> None:
    pipeline = make({"format": "bytes", "key": "_key"})
    produce(
        broker.bootstrap, topic_of(pipeline), [(b"b", b"2", 0, at(1)), (b"a", b"\0", 1, at(1)), (b"", b"0", 0, at(1))]
    )
    assert read(spark, pipeline).rows.to_pylist() == [
        {"value": b"0", "_key": b""},
        {"value": b"\0", "_key": b"a"},
        {"value": b"2", "_key": b"b"},
    ]


def test_a_deletion_in_an_envelope_removes_its_row_with_and_without_a_tombstone(
    spark: Any, broker: Broker, make: Make
) -> None:
    """In whatever partition: a deletion is no newest record of a key that is in another one. Other tables are left out."""
    pipeline = make(
        {**JSON, "schema": {"id": "int not null", "name": "string"}, "key": "id"}
        | {"envelope": "debezium", "table": "public.orders"}
    )
    other = POSTGRES.replace('"orders"', '"others"')
    changes = [
        (1, 0, change("r", after='{"id":1,"name":"one"}')),
        (2, 0, change("c", after='{"id":2,"name":"two"}')),
        (1, 0, change("u", before='{"id":1,"name":"one"}', after='{"id":1,"name":"eins"}')),
        (2, 0, change("d", before='{"id":2,"name":null}')),
        (3, 0, change("c", after='{"id":3,"name":"three"}')),
        (3, 0, change("d", before='{"id":3,"name":null}')),
        (3, 0, None),
        (4, 0, change("c", after='{"id":4,"name":"other"}', source=other)),
        (2, 1, change("c", after='{"id":2,"name":"again"}')),
    ]
    produce(broker.bootstrap, topic_of(pipeline), [(key(n), v and v.encode(), p, at(1)) for n, p, v in changes])
    content = read(spark, pipeline)
    assert content.rows.to_pylist() == [
        {"id": 1, "name": "eins", "_key": key(1), "_key_id": 1},
        {"id": 2, "name": "again", "_key": key(2), "_key_id": 2},
    ]


ENVELOPE = {**JSON, "envelope": "debezium"}
SEVERAL = [
    (key(1), {"name": "a"}, 0, at(1)),
    (key(2), {"name": "a"}, 0, at(1)),
    (key(3), {"name": "a"}, 1, at(1)),
    (key(2), {"name": "b"}, 1, at(1)),
]


@pytest.mark.parametrize(
    ("table", "records", "why"),
    [
        pytest.param(
            JSON,
            [(key(1), {"name": "a"}, 1, at(1)), (None, {"name": "secret"}, 1, at(1))],
            "its record at partition 1, offset 1 has no key, and a record without a key has no newest. Let the producer write a "
            "key to each record, and fill a new topic.",
            id="no key",
        ),
        pytest.param(
            ENVELOPE,
            [(None, change("t").encode(), 0, at(1))],
            "its record at partition 0, offset 0 has no key, and a record without a key has no newest. A truncation of the "
            "captured table is such a record, and does not say which rows it removed. Let the connector skip truncations "
            "(skipped.operations: t), and fill a new topic by a new snapshot.",
            id="truncation",
        ),
        pytest.param(
            JSON,
            [(key(1), {"name": "a"}, 1, at(1)), (key(2), b"{", 0, at(1)), (key(3), {"name": None}, 0, at(1))],
            "2 of its records are malformed. The first is at partition 0, offset 0: not JSON: EOF while parsing an object at "
            "line 1 column 1. Write a correct record or a tombstone with the same key, or correct tables.customers in "
            "pipeline.yaml.",
            id="malformed",
        ),
        pytest.param(
            JSON,
            [(b'{"id":"secret"}', {"name": "a"}, 0, at(1))],
            "1 of its records is malformed. The first is at partition 0, offset 0: key: id: not an integer of 32 bits. "
            "Write a correct record or a tombstone with the same key, or correct tables.customers in pipeline.yaml.",
            id="malformed key",
        ),
        pytest.param(
            JSON,
            SEVERAL,
            "1 key has records in several partitions, one of them at partition 0, offset 1 and partition 1, offset 1. Records of "
            "two partitions have no order, so neither is the newest. The topic got more partitions, or its producers place keys "
            "differently. Write a tombstone with the key to the partition that does not count any more, or fill a new topic.",
            id="two partitions",
        ),
        pytest.param(
            {**JSON, "max_megabytes": 1},
            [(key(n), {"name": random.Random(n).randbytes(300_000).hex()}, 0, at(1)) for n in range(2)],
            "it has 1.1 MB or more, and max_megabytes is 1. Each executor holds the whole table. Make the table smaller, raise "
            "max_megabytes, or read the rows as a source of another pipeline.",
            id="too large",
        ),
    ],
)
def test_a_topic_that_is_no_table_is_refused_by_name_and_without_its_data(
    table: dict[str, Any], records: list[Any], why: str, spark: Any, broker: Broker, make: Make
) -> None:
    pipeline = make(table)
    produce(broker.bootstrap, topic_of(pipeline), records)
    with pytest.raises(SideTableRefused) as refused:
        read(spark, pipeline)
    assert str(refused.value) == f"pipeline {pipeline.name}: side table customers, topic {topic_of(pipeline)}: {why}"


def test_a_tombstone_in_the_partition_that_a_key_has_left_makes_a_table_of_it_again(
    spark: Any, broker: Broker, make: Make
) -> None:
    pipeline = make(JSON)
    produce(broker.bootstrap, topic_of(pipeline), [*SEVERAL, (key(2), None, 0, at(1))])
    assert read(spark, pipeline).rows.to_pylist() == named((1, "a"), (2, "b"), (3, "a"))


def test_what_was_newest_before_and_larger_does_not_count(spark: Any, broker: Broker, make: Make) -> None:
    """Neither what a newer record replaced nor what a tombstone removed."""
    pipeline = make({**JSON, "max_megabytes": 1})
    large = random.Random(1).randbytes(300_000).hex()
    records = [(key(1 + n % 2), {"name": large}, 0, at(1)) for n in range(0, 6, 2)]
    records += [(key(1), None, 0, at(1)), (key(2), {"name": large}, 0, at(1)), (key(2), {"name": "two"}, 0, at(1))]
    produce(broker.bootstrap, topic_of(pipeline), records)
    assert read(spark, pipeline).rows.to_pylist() == named((2, "two"))


@pytest.fixture(scope="module")
def compacting(broker: Broker) -> Iterator[None]:
    """The broker looks for logs to compact at once, and not every 15 seconds."""

    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    (node,) = admin.describe_cluster().result(20).nodes

    def alter(how: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "50", incremental_operation=how)
        changed = ConfigResource(ResourceType.BROKER, node.id_string, incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(20)

    alter(AlterConfigOpType.SET)
    yield
    alter(AlterConfigOpType.DELETE)


def between_end_and_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[list[int]]:
    """Acts once, after the stable end is known and before anything is read. Returns the ends that are asked for from then on."""
    ask, asked = Cluster.last_stable, list[list[int]]()

    def last_stable(self: Cluster, topic: Topic) -> list[int]:
        ends = ask(self, topic)
        asked.append(ends)
        if len(asked) == 1:
            act()
        return ends

    monkeypatch.setattr(Cluster, "last_stable", last_stable)
    return asked


def test_a_record_that_compaction_deletes_before_it_is_read_is_found_behind_the_end_in_its_newer_form(
    spark: Any, broker: Broker, compacting: None, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a topic that is always so, no read is certain, and the error says what ends it."""
    pipeline = make(JSON, 1, COMPACTED)
    topic = topic_of(pipeline)
    produce(broker.bootstrap, topic, [(key(1), {"name": "one"}, 0, at(1)), (key(2), {"name": "two"}, 0, at(1))])

    def overtaken() -> None:
        for number, name, when in ((1, "eins", 2), (3, "three", 3)):  # each begins a new segment
            produce(broker.bootstrap, topic, [(key(number), {"name": name}, 0, at(when))])
        await_true(
            lambda: [r.offset for r in read_all(broker.bootstrap, topic)] == [1, 2, 3], "Kafka to compact the log"
        )

    with monkeypatch.context() as patch:
        asked = between_end_and_read(patch, overtaken)
        content = read(spark, pipeline)
    assert content.rows.to_pylist() == named((1, "eins"), (2, "two"), (3, "three"))
    assert asked == [[2], [4]], "a stretch without gaps is the last"
    assert content.state.offsets is not None
    assert content.state.offsets.ends == (4,)

    monkeypatch.setattr(newest, "MOST_SECONDS", -1.0)
    with pytest.raises(KafkaUnavailable) as restless:
        read(spark, pipeline)
    assert str(restless.value).startswith(
        f"pipeline {pipeline.name}: side table customers: topic {topic} is written and compacted all the time, so within"
    )
    assert str(restless.value).endswith("Raise min.compaction.lag.ms of the topic, then run again.")


def test_a_topic_that_is_created_again_while_it_is_read_is_read_by_the_next_attempt(
    spark: Any, broker: Broker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(JSON, 1)
    topic = topic_of(pipeline)
    produce(broker.bootstrap, topic, [(key(1), {"name": "one"}, 0, at(1))])

    def again() -> None:
        delete_topic(broker.bootstrap, topic)
        create_topic(broker.bootstrap, topic, 1)
        produce(broker.bootstrap, topic, [(key(1), {"name": "another"}, 0, at(1))])

    with monkeypatch.context() as patch:
        between_end_and_read(patch, again)
        with pytest.raises(KafkaUnavailable) as raised:
            read(spark, pipeline)
    assert str(raised.value) == (
        f"pipeline {pipeline.name}: side table customers: topic {topic} was created again or got more partitions while it was "
        "read. Run again."
    )
    assert read(spark, pipeline).rows.to_pylist() == named((1, "another"))
    delete_topic(broker.bootstrap, topic)
    with pytest.raises(TopicMissing) as missing:
        read(spark, pipeline)
    assert str(missing.value).startswith(f"pipeline {pipeline.name}: side table customers: describing topic {topic}: ")
    assert str(missing.value).endswith("Create the topic, or correct its name in pipeline.yaml.")


def test_a_run_looks_up_in_a_topic_and_records_the_ends_up_to_which_it_read(
    spark: Any, broker: Broker, make: Make
) -> None:
    pipeline = make(JSON)
    produce(broker.bootstrap, topic_of(pipeline), SEVERAL[:3])
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    orders = [(b"o%d" % n, {"n": n}, 0, at(1)) for n in (1, 3, 4)]
    produce(broker.bootstrap, pipeline.source.topic, orders)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    found = sorted(((r.key, r.json) for r in read_all(broker.bootstrap, pipeline.output.topic)), key=str)
    assert found == [
        (b"o1", {"n": 1, "customer": "a"}),
        (b"o3", {"n": 3, "customer": "a"}),
        (b"o4", {"n": 4, "customer": None}),
    ]
    (state,) = latest(pipeline, day(1)).plan.tables
    assert (state.name, state.rows) == ("customers", 3)
    assert state.offsets is not None
    assert state.offsets.ends == (2, 1)


def test_the_doctor_warns_of_a_topic_whose_rows_vanish(broker: Broker, make: Make) -> None:
    kept, vanishing = make(JSON, 1, COMPACTED), make(JSON, 1)
    for pipeline in (kept, vanishing):
        produce(broker.bootstrap, topic_of(pipeline), [(key(1), {"name": "one"}, 0, at(1))])
    assert [(one.level, one.found) for one in run_check(check_table_topics, Inspection(kept))] == [
        ("ok", "1 side table is a topic")
    ]
    (warned,) = run_check(check_table_topics, Inspection(vanishing))
    assert (warned.level, warned.found) == (
        "warning",
        f"Topic {topic_of(vanishing)} of side table customers has cleanup.policy=delete: Kafka deletes records that are older "
        "than retention.ms, and their rows vanish from the table.",
    )
    delete_topic(broker.bootstrap, topic_of(vanishing))
    (missing,) = run_check(check_table_topics, Inspection(vanishing))
    assert (missing.level, missing.kind) == ("error", TopicMissing)
