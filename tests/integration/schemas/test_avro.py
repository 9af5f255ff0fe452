"""Avro records with a schema registry, through all four steps, on a real broker and a real registry.

Where records come from the SDK's AvroSerializer, and are read by its AvroDeserializer, no code is ours but the steps'.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from avro_schemas import written
from conftest import at, day
from fencepost.cli.schema import as_plain
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import MalformedRecords, RecordRefused, RegistryUnavailable, Retriable, SettingsError
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.schemas.report import report_schemas
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from fencepost_stack.schema_registry import API, SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from registry_tools import client, framed, register
from rigs.tcp_proxy import Proxy
from steps import latest, plan_and_write, replay, run

Make = Callable[..., Pipeline]

FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "buyer", "type": "string"},
        {"name": "gone", "type": {"type": "array", "items": "long"}},
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "paid", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "n", "type": "int"},
        {"name": "customer", "type": "string", "aliases": ["buyer"]},
        {"name": "country", "type": "string", "default": "AT"},
    ],
}
KEY = {"type": "record", "name": "OrderKey", "fields": [{"name": "id", "type": "long"}]}
OUT = {
    "type": "record",
    "name": "Bill",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "place", "type": {"type": "enum", "name": "Place", "symbols": ["AT", "DE"]}},
        {"name": "paid", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
TRANSFORM = """
def transform(frame):
    return frame.selectExpr(
        "_key", "_key.id AS _id", "_tombstone", "_topic", "_partition", "_offset", "customer", "n",
        "CAST(n AS decimal(5,0)) AS cents", "country AS place", "paid",
    )
"""
FORMAT = "avro"


def serialized(registry: SchemaRegistry, topic: str, schema: Any, value: Any, *, key: bool = False) -> bytes:
    """As the SDK writes it; it registers the schema."""
    serializer = AvroSerializer(client(registry), json.dumps(schema))
    found = serializer(value, SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE))
    assert found is not None
    return found


def deserialized(registry: SchemaRegistry, topic: str, raw: bytes | None, *, key: bool = False) -> Any:
    """As the SDK reads it."""
    return AvroDeserializer(client(registry))(
        raw, SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE)
    )


def n_of(**types: Any) -> dict[str, Any]:
    """A record with a number n, and fields of these types."""
    fields = [{"name": "n", "type": "int"}, *({"name": name, "type": kind} for name, kind in types.items())]
    return {"type": "record", "name": "R", "fields": fields}


def test_a_batch_of_two_schemas_and_its_keys_go_from_the_sdk_through_the_steps_to_the_sdk(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """In the middle of the interval the schema changes: a field is added, one is gone, one has another name."""
    output = {"format": "avro", "key_format": "avro", "partitions": 2}
    pipeline = make(TRANSFORM, source={"key_format": "avro", "tombstones": "pass"}, output=output)
    source, out = pipeline.source.topic, pipeline.output.topic
    create_topic(broker.bootstrap, source, 2)
    paid = datetime(2026, 1, 1, 12, tzinfo=UTC)
    records = []
    for i in range(20):
        old = {"n": i, "buyer": f"é{i}", "gone": [i, i]}
        new = {"n": i, "customer": f"é{i}", "country": "DE", "paid": paid if i % 3 else None}
        value = serialized(schema_registry, source, *((FIRST, old) if i < 10 else (SECOND, new)))
        key = serialized(schema_registry, source, KEY, {"id": i}, key=True)
        records.append((key, None if i == 19 else value, i % 2, at(1)))
    produce(broker.bootstrap, source, records)
    key_id = register(schema_registry, f"{out}-key", KEY)
    out_id = register(schema_registry, f"{out}-value", OUT)

    run(spark, pipeline, day(1))

    found = {}
    for record in read_all(broker.bootstrap, out):
        assert record.key[:5] == framed(key_id, b"")
        key = deserialized(schema_registry, out, record.key, key=True)["id"]
        assert record.value is None or record.value[:5] == framed(out_id, b"")
        found[key] = deserialized(schema_registry, out, record.value)
    for i in range(19):
        place, when = ("AT", None) if i < 10 else ("DE", paid if i % 3 else None)
        cents = Decimal(i).quantize(Decimal("0.01"))
        wanted = {"customer": f"é{i}", "n": i, "cents": cents, "place": place, "paid": when, "note": None}
        assert found[i] == wanted
    assert found[19] is None
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    schemas = batch.plan.schemas
    assert schemas is not None
    values = schemas.of(pipeline.source.topic).value
    assert values is not None
    assert schemas.output is not None
    versions = {w.version: w.id for w in values.writers}
    assert (values.reader.subject, values.reader.version) == (f"{source}-value", 2)
    assert versions == {1: records_id(records[0]), 2: records_id(records[-2])}
    assert (schemas.output.subject, schemas.output.version, schemas.output.id) == (f"{out}-value", 1, out_id)


def records_id(record: tuple[Any, Any, int, int]) -> int:
    return int.from_bytes(record[1][1:5])


def test_each_kind_of_malformed_record_is_quarantined_with_its_id_and_place(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """Ids that the plan does not know are looked up: one that can be read is, and the ledger says so."""
    settings = {"on_malformed": "quarantine", "tombstones": "pass"}
    pipeline = make(source=settings, quality={"quarantine_limit": "none"})
    topic = pipeline.source.topic
    subject = f"{topic}-value"
    create_topic(broker.bootstrap, topic, 1)
    text = register(schema_registry, subject, n_of() | {"fields": [{"name": "n", "type": "string"}]})
    good = register(schema_registry, subject, n_of())
    wider = register(schema_registry, f"{topic}-other", n_of(more="string"))
    other = register(schema_registry, f"{topic}-more", "string")
    payload = written(n_of(), {"n": 5})
    values = [
        framed(good, payload),
        b'{"n": 5}',
        b"\0",
        framed(good, payload + b"\0"),
        framed(good, b""),
        framed(text, written("string", "5")),
        framed(wider, written(n_of(more="string"), {"n": 6, "more": "x"})),
        framed(other, written("string", "x")),
        framed(2**31 - 1, payload),
        None,
    ]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])

    run(spark, pipeline, day(1))

    assert [r.json and r.json["n"] for r in read_all(broker.bootstrap, pipeline.output.topic)] == [5, 6, None]
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)
    reasons = {
        int(dict(r.headers)["fencepost-source"].decode().removeprefix(f"{topic}:0:")): dict(r.headers)[
            "fencepost-reason"
        ].decode()
        for r in kept
    }
    assert reasons == {
        1: "the first byte is 0x7B, not 0: no schema id",
        2: "1 byte, and no schema id; an id in a header of the record is not read",
        3: f"schema id {good}: something follows the value, which ends after 1 of 2 bytes",
        4: f"schema id {good}: the value is not complete",
        5: f"schema id {text}: n: written as string, read as int",
        7: f"schema id {other}: the value: written as string, read as record R",
        8: f"schema id {2**31 - 1}: the registry does not have it",
    }
    assert [r.value for r in kept] == [values[i] for i in sorted(reasons)]
    schemas = latest(pipeline, day(1)).plan.schemas
    assert schemas is not None
    values = schemas.of(pipeline.source.topic).value
    assert values is not None
    assert {w.id for w in values.writers} == {good, wider}
    assert set(values.refused) == {text, other, 2**31 - 1}


@pytest.mark.deep
def test_a_replay_decodes_with_the_schemas_of_now(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """A kept result of the transform has the output's schema: it stays as it is, beside a record that passes now."""
    rules = "expectations:\n  - type: expect_column_values_to_be_between\n    severity: quarantine\n"
    pipeline = make(
        "def transform(frame):\n    return frame.select('_key', 'n')\n",
        f"{rules}    kwargs: {{column: n, min_value: 0}}\n",
        source={"on_malformed": "quarantine"},
        output={"format": "avro", "partitions": 1},
        schema_registry={"auto_register": True},
        quality={"quarantine_limit": "none"},
    )
    topic, out = pipeline.source.topic, pipeline.output.topic
    create_topic(broker.bootstrap, topic, 1)
    whole = register(schema_registry, f"{topic}-value", n_of())
    wide = n_of() | {"fields": [{"name": "n", "type": "long"}]}
    wider = register(schema_registry, f"{topic}-other", wide)
    values = [
        framed(whole, written(n_of(), {"n": 5})),
        framed(wider, written(wide, {"n": 6})),
        framed(whole, written(n_of(), {"n": -1})),
    ]
    produce(broker.bootstrap, topic, [(b"%d" % i, value, 0, at(1)) for i, value in enumerate(values)])
    run(spark, pipeline, day(1))
    first = {r.key: dict(r.headers) for r in read_all(broker.bootstrap, pipeline.quarantine_topic)}
    assert b"n: written as long, read as int" in first[b"1"]["fencepost-reason"]
    assert first[b"2"]["fencepost-kept"] == b"result"

    register(schema_registry, f"{topic}-value", wide)
    replay(spark, pipeline, day(1))

    found = read_all(broker.bootstrap, out)
    assert [deserialized(schema_registry, out, r.value) for r in found] == [{"n": 5}, {"n": 6}]
    again = [r for r in read_all(broker.bootstrap, pipeline.quarantine_topic) if r.headers[-1][1].endswith(b"/2")]
    assert [r.key for r in again] == [b"2"]
    assert deserialized(schema_registry, out, again[0].value) == {"n": -1}
    batch = latest(pipeline, day(1))
    assert (batch.adds_to, batch.state) == (1, State.PUBLISHED)
    schemas = batch.plan.schemas
    assert schemas is not None
    values = schemas.of(pipeline.source.topic).value
    assert values is not None
    assert values.reader.version == 2
    assert client(schema_registry).get_versions(f"{out}-value") == [1, 2]


@pytest.mark.deep
def test_a_malformed_record_fails_the_batch_with_its_place_and_its_id(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """A record whose id has to be looked up comes behind it."""
    pipeline = make()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    good = register(schema_registry, f"{pipeline.source.topic}-value", n_of())
    wider = register(schema_registry, f"{pipeline.source.topic}-other", n_of(more="int"))
    values = [
        framed(good, written(n_of(), {"n": 5})),
        framed(good, b"\x02\x02"),
        framed(wider, written(n_of(more="int"), {"n": 6, "more": 1})),
    ]
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", value, 0, at(1)) for value in values])
    with pytest.raises(MalformedRecords) as found:
        plan_and_write(spark, pipeline, day(1))
    assert f"1 of 3 records of topic {pipeline.source.topic} do not fit the reader's schema" in str(found.value)
    assert (
        f"partition:offset of the first: 0:1. Cause at the first record: schema id {good}: something follows the value"
        in str(found.value)
    )
    assert read_all(broker.bootstrap, pipeline.output.topic) == []


@pytest.mark.parametrize("version", [None, 1])
def test_a_readers_schema_that_cannot_read_another_version_is_refused_at_plan(
    version: int | None, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """The latest by default, or a fixed one; nothing is planned."""
    pipeline = make(source={"version": version})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    subject = f"{pipeline.source.topic}-value"
    register(schema_registry, subject, n_of(when="int"))
    register(schema_registry, subject, n_of(when="string"))
    with pytest.raises(SettingsError, match=r"when: written as (int|string), read as (int|string)\)"):
        plan_batch(pipeline, day(1))
    assert Ledger(pipeline).read().last(day(1)) is None


def test_a_retry_reads_with_the_frozen_schema_while_the_registry_is_away(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """Also after a newer version came. A plan without the registry is refused, to be tried again."""
    with Proxy(any_free_port(), schema_registry.port) as proxy:
        output = {"format": "avro"}
        pipeline = make(
            output=output, schema_registry={"url": f"http://127.0.0.1:{proxy.port}{API}", "timeout_seconds": 2}
        )
        create_topic(broker.bootstrap, pipeline.source.topic, 1)
        subject = f"{pipeline.source.topic}-value"
        first = register(schema_registry, subject, n_of())
        register(schema_registry, f"{pipeline.output.topic}-value", n_of())
        produce(broker.bootstrap, pipeline.source.topic, [(b"k", framed(first, written(n_of(), {"n": 5})), 0, at(1))])
        plan_batch(pipeline, day(1))
        newer = {**n_of(), "fields": [*n_of()["fields"], {"name": "new", "type": "int", "default": 1}]}
        register(schema_registry, subject, newer)
        proxy.refusing = True
        proxy.cut()
        write_batch(spark, pipeline, day(1))
        with pytest.raises(RegistryUnavailable, match=r"does not answer \(\w+\). Check its url") as found:
            plan_batch(pipeline, day(2))
    assert isinstance(found.value, Retriable)
    (record,) = read_all(broker.bootstrap, pipeline.staging_topic)
    assert deserialized(schema_registry, pipeline.output.topic, record.value) == {"n": 5}


def test_a_source_without_a_subject_is_refused_with_the_next_step(broker: Broker, make: Make) -> None:
    pipeline = make()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    with pytest.raises(
        SettingsError, match=f"the registry has no subject {pipeline.source.topic}-value. Register its schema"
    ):
        plan_batch(pipeline, day(1))


def test_a_schema_of_types_that_spark_lacks_is_refused_with_the_way_on_which_works(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """The way on is a reader's schema without them, under a subject of one's own."""
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "next", "type": ["null", "Node"]},
            {"name": "wide", "type": {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}},
            {"name": "n", "type": "int"},
        ],
    }
    pipeline = make()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    schema_id = register(schema_registry, f"{pipeline.source.topic}-value", node)
    wide, last = Decimal(10**60).scaleb(-2), {"next": None, "wide": Decimal("0.05"), "n": 7}
    for n in (1, 2):
        value = written(node, {"next": last, "wide": wide, "n": n})
        produce(broker.bootstrap, pipeline.source.topic, [(b"k", framed(schema_id, value), 0, at(1))])
    with pytest.raises(
        SettingsError, match=r"next: Node contains itself.+A schema without this field.+set source.subject to"
    ):
        plan_batch(pipeline, day(1))
    own = f"{pipeline.name}-reader"
    register(schema_registry, own, {**node, "fields": [node["fields"][2]]})
    pipeline = make(source={"topic": pipeline.source.topic, "subject": own}, name=pipeline.name)
    run(spark, pipeline, day(1))
    assert [record.json for record in read_all(broker.bootstrap, pipeline.output.topic)] == [{"n": 1}, {"n": 2}]


WRONG = [
    (
        "SELECT n, 'x' AS what FROM {source}",
        r"field what: the transform gives string, which does not fit in int. Cast it.",
    ),
    ("SELECT n FROM {source}", "the transform does not give what, which is of type int. Add it to the result."),
    ("SELECT n, 1 AS what, 2 AS more FROM {source}", "the schema has no field for more, which the transform gives."),
    (
        "SELECT n, 1L AS what FROM {source}",
        "field what: the transform gives bigint, which does not fit in int. Cast it.",
    ),
]


@pytest.mark.deep
def test_a_result_that_does_not_fit_the_outputs_schema_is_refused_before_a_row_is_written(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """A retry takes a version that fits, once somebody has registered one."""
    sql = "def transform(frame):\n    frame.createOrReplaceTempView('s')\n    return frame.sparkSession.sql({!r})\n"
    pipeline = make(output={"format": "avro", "key": None})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    good = register(schema_registry, f"{pipeline.source.topic}-value", n_of())
    subject = f"{pipeline.output.topic}-value"
    register(schema_registry, subject, n_of(what="int"))
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", framed(good, written(n_of(), {"n": 5})), 0, at(1))])
    for query, why in WRONG:
        pipeline.transform_file.write_text(sql.format(query.replace("{source}", "s")))
        with pytest.raises(SettingsError, match=why):
            plan_and_write(spark, pipeline, day(1))
    assert read_all(broker.bootstrap, pipeline.staging_topic, committed=False) == []
    fitting = register(schema_registry, subject, n_of(what="long"))
    plan_and_write(spark, pipeline, day(1))
    (record,) = read_all(broker.bootstrap, pipeline.staging_topic)
    assert record.value[:5] == framed(fitting, b"")
    schemas = latest(pipeline, day(1)).plan.schemas
    assert schemas is not None
    assert schemas.output is not None
    assert schemas.output.id == fitting


@pytest.mark.deep
def test_auto_register_registers_what_the_registry_takes_and_the_ledger_names_it(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    add = "def transform(frame):\n    return frame.selectExpr('n', {})\n"
    output = {"format": "avro", "key": None}
    pipeline = make(add.format("'1.50BD AS price'"), output=output, schema_registry={"auto_register": True})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    good = register(schema_registry, f"{pipeline.source.topic}-value", n_of())
    for number in (1, 2, 3):
        produce(
            broker.bootstrap, pipeline.source.topic, [(b"k", framed(good, written(n_of(), {"n": 5})), 0, at(number))]
        )
    subject, registry = f"{pipeline.output.topic}-value", client(schema_registry)

    def recorded() -> Any:
        schemas = latest(pipeline, day(number)).plan.schemas
        assert schemas is not None
        return schemas.output

    number = 1
    run(spark, pipeline, day(number))
    assert registry.get_versions(subject) == [1]
    assert recorded().id == registry.get_version(subject, 1).schema_id

    number = 2
    pipeline.transform_file.write_text(add.format("'1.50BD AS price', 'CAST(n AS string) AS text'"))
    run(spark, pipeline, day(number))
    run(spark, pipeline, day(number), reprocess=True)
    assert registry.get_versions(subject) == [1, 2], "what fits is not registered again"
    assert (recorded().version, recorded().id) == (2, registry.get_version(subject, 2).schema_id)
    found = [
        deserialized(schema_registry, pipeline.output.topic, r.value)
        for r in read_all(broker.bootstrap, pipeline.output.topic)
    ]
    found.sort(key=len)  # without a key a record may be in any partition
    assert found[0] == {"n": 5, "price": Decimal("1.50")}
    assert found[1:] == [{"n": 5, "price": Decimal("1.50"), "text": "5"}] * 2

    number = 3
    pipeline.transform_file.write_text(add.format("'true AS price', 'CAST(n AS string) AS text'"))
    with pytest.raises(
        SettingsError,
        match=r"not compatible .*the new schema cannot read records of the old schema \(price: written as .*Nothing was reg",
    ):
        plan_and_write(spark, pipeline, day(number))
    assert registry.get_versions(subject) == [1, 2]
    assert len(read_all(broker.bootstrap, pipeline.output.topic, committed=False)) == len(found)


NULL_RULE = """
expectations:
  - type: expect_column_values_to_not_be_null
    severity: quarantine
    kwargs: {column: n}
"""


@pytest.mark.deep
def test_a_null_in_a_field_that_holds_none_names_the_field_and_the_record(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """A quarantine rule sets such rows aside instead."""
    nulls = "def transform(frame):\n    return frame.selectExpr('_topic', '_partition', '_offset', {} 'nullif(n, 7) AS n')\n"
    pipeline = make(nulls.format(""), output={"format": "avro", "key": None}, quality={"quarantine_limit": "none"})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    good = register(schema_registry, f"{pipeline.source.topic}-value", n_of())
    register(schema_registry, f"{pipeline.output.topic}-value", n_of())
    values = [framed(good, written(n_of(), {"n": n})) for n in (5, 7)]
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", value, 0, at(1)) for value in values])
    with pytest.raises(RecordRefused) as found:
        plan_and_write(spark, pipeline, day(1))
    assert f"n: null, and its type is int (source record {pipeline.source.topic}:0:1). No offset moved" in str(
        found.value
    )
    pipeline.expectations_file.write_text(NULL_RULE)
    pipeline.transform_file.write_text(nulls.format("'_record',"))
    run(spark, load_pipeline(pipeline.folder), day(1))
    assert [r.value for r in read_all(broker.bootstrap, pipeline.quarantine_topic)] == values[1:]
    (record,) = read_all(broker.bootstrap, pipeline.output.topic)
    assert deserialized(schema_registry, pipeline.output.topic, record.value) == {"n": 5}


ALL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "parts", "type": {"type": "array", "items": n_of(x="double") | {"name": "Part"}}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
    ],
}


def test_a_validated_batch_has_typed_columns_and_every_value_of_the_source(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """The suite compares a day with a day, and sees fields in the transform's order and types, wherever the schema has them."""
    rule = """
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: day, min_value: "2026-01-01", max_value: "2026-01-31"}
  - type: expect_column_values_to_be_in_set
    kwargs: {column: parts, value_set: ['[{"x":0.5,"n":1}]']}
"""
    reordered = """
def transform(frame):
    parts = "transform(parts, p -> named_struct('x', p.x, 'n', p.n))"
    return frame.selectExpr("_key", "raw", f"{parts} AS parts", "tags", "local", "time", "id", "day", "CAST(n AS tinyint) AS n")
"""
    pipeline = make(reordered, rule, output={"format": "avro"})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    register(schema_registry, f"{pipeline.output.topic}-value", ALL)
    value = {
        "n": 1,
        "day": datetime(2026, 1, 5).date(),  # noqa: DTZ001
        "id": UUID(int=7),
        "time": datetime(2026, 1, 1, 23, 59, 59, 999999).time(),  # noqa: DTZ001
        "local": datetime(2026, 1, 1, 1, 2, 3),  # noqa: DTZ001
        "tags": {"a": None, "b": "c"},
        "parts": [{"n": 1, "x": 0.5}],
        "raw": b"\0\1",
    }
    raw = serialized(schema_registry, pipeline.source.topic, ALL, value)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", raw, 0, at(1))])
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    (record,) = read_all(broker.bootstrap, pipeline.output.topic)
    assert deserialized(schema_registry, pipeline.output.topic, record.value) == value


def test_the_report_on_schemas_says_what_can_be_read_and_written(
    spark: Any, make: Make, schema_registry: SchemaRegistry
) -> None:
    """It refuses nothing, and registers nothing."""
    pipeline = make(
        "def transform(frame):\n    return frame.selectExpr('_key', 'n', 'true AS ok')\n", output={"format": "avro"}
    )
    source, out = pipeline.source_parts[0].subject, pipeline.output_parts[0].subject
    old = register(schema_registry, source, n_of() | {"fields": [{"name": "n", "type": "string"}]})
    new = register(schema_registry, source, n_of())
    written_with = register(schema_registry, out, n_of(ok="string"))
    first, second = (as_plain(part) for part in report_schemas(spark, pipeline))
    assert first == {
        "part": "source",
        "subject": source,
        "takes": {"subject": source, "id": new, "version": 2},
        "gives": None,
        "versions": sorted(  # another test may have registered either of them before
            [
                {"id": old, "version": None, "problem": "n: written as string, read as int"},
                {"id": new, "version": 2, "problem": None},
            ],
            key=itemgetter("id"),
        ),
        "compatible": False,
    }
    assert (second["subject"], second["gives"], second["compatible"]) == (out, "struct<n:int,ok:boolean>", False)
    assert second["versions"] == [
        {
            "id": written_with,
            "version": 1,
            "problem": "field ok: the transform gives boolean, which does not fit in string. Cast it.",
        }
    ]
    assert client(schema_registry).get_versions(out) == [1]


@pytest.mark.deep
def test_a_field_that_would_be_lost_on_its_way_is_refused_and_may_have_another_name(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """Columns that begin with _ are not written."""
    pipeline = make()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    schema = n_of(__deleted="boolean", _id="string")
    good = register(schema_registry, f"{pipeline.source.topic}-value", schema)
    value = framed(good, written(schema, {"n": 5, "__deleted": True, "_id": "x"}))
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", value, 0, at(1))])
    with pytest.raises(SettingsError, match="its result has __deleted, _id from the source's value"):
        plan_and_write(spark, pipeline, day(1))
    with pytest.raises(SettingsError, match="its result has __deleted, _id from the source's value"):
        report_schemas(spark, pipeline)
    renamed = "def transform(frame):\n    return frame.selectExpr('_key', 'n', '__deleted AS deleted', '_id AS id')\n"
    pipeline.transform_file.write_text(renamed)
    plan_and_write(spark, pipeline, day(1))
    (record,) = read_all(broker.bootstrap, pipeline.staging_topic)
    assert record.json == {"n": 5, "deleted": True, "id": "x"}
    keyed = make(name=f"{pipeline.name}_keyed", source={"topic": pipeline.source.topic}, output={"key": "_id"})
    keyed.transform_file.write_text("def transform(frame):\n    return frame.select('n', '_id')\n")
    plan_and_write(spark, keyed, day(1))
    assert [r.key for r in read_all(broker.bootstrap, keyed.staging_topic)] == [b"x"]
