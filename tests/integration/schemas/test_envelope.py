"""`source.envelope` in Avro and JSON Schema, through all four steps, on a real broker and a real registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from avro_schemas import written
from conftest import at, day
from envelopes import NO_OP, POSTGRES, TOAST, change
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError, TruncationsRefused
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from registry_tools import framed, register
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]
FORMAT = "avro"
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
ROWS = """
def transform(frame):
    return frame.selectExpr("_key", "id", "name", "_op AS op", "_source.lsn AS lsn", "_offset AS at")
"""
SOURCE = {"ts_ms": 1767225600123, "snapshot": "false", "db": "shop", "schema": "public", "table": "orders", "lsn": 5}
EXCLUDED = {"other_tables": 1, "truncations": 1, "messages": 1, "deletion_tombstones": 1}


def record(title: str, space: str, **types: Any) -> dict[str, Any]:
    fields = [{"name": field, "type": kind} for field, kind in types.items()]
    return {"type": "record", "name": title, "namespace": space, "fields": fields}


def envelope(of: str, **columns: Any) -> dict[str, Any]:
    kinds = {"ts_ms": "long", "snapshot": ["string", "null"], "db": "string", "schema": "string", "table": "string"}
    source = record("Source", "io.debezium.connector.postgresql", **kinds, lsn=["null", "long"])
    space = f"shop.public.{of}"
    value = record("Value", space, **columns)
    sides = {"before": ["null", value], "after": ["null", f"{space}.Value"]}
    return record("Envelope", space, **sides, source=source, op="string", ts_ms=["null", "long"])


ORDERS = envelope("orders", id="long", name=["null", "string"])
CODES = envelope("codes", code="string")


def changed(schema: Any, op: str, **fields: Any) -> bytes:
    return written(schema, {"before": None, "after": None, "source": SOURCE, "op": op, "ts_ms": 1, **fields})


def excluded(pipeline: Pipeline) -> dict[str, int]:
    found = latest(pipeline, day(1)).written
    assert found is not None
    return found.excluded


def reasons(broker: Broker, pipeline: Pipeline) -> list[str]:
    aside = read_all(broker.bootstrap, pipeline.quarantine_topic)
    return sorted(dict(r.headers)["fencepost-reason"].decode() for r in aside)


def rows(broker: Broker, pipeline: Pipeline) -> list[Any]:
    found = [r.json for r in read_all(broker.bootstrap, pipeline.output.topic)]
    return [(one["id"], one["name"], one["op"], one["lsn"]) for one in sorted(found, key=lambda one: one["at"])]


def test_avro_of_several_tables_is_read_for_one_of_them(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """TopicRecordNameStrategy: the other table's schema cannot be read with this one's."""
    source = {"envelope": "debezium", "table": "public.orders", "on_malformed": "quarantine"}
    pipeline = make(ROWS, SUITE, source=source, quality={"quarantine_limit": "none"})
    topic = pipeline.source.topic
    orders = register(schema_registry, f"{topic}-value", ORDERS)
    codes = register(schema_registry, f"{topic}-shop.public.codes.Envelope", CODES)
    create_topic(broker.bootstrap, topic, 1)
    values = [
        framed(orders, changed(ORDERS, "r", after={"id": 1, "name": "one"})),
        framed(orders, changed(ORDERS, "u", before={"id": 1, "name": "one"}, after={"id": 1, "name": None})),
        framed(orders, changed(ORDERS, "d", before={"id": 1, "name": None})),
        None,
        framed(codes, changed(CODES, "c", after={"code": "x"}, source={**SOURCE, "table": "codes"})),
        framed(orders, changed(ORDERS, "t")),
        framed(orders, changed(ORDERS, "m")),
        framed(orders, changed(ORDERS, "u", after={"id": 2, "name": "__debezium_unavailable_value"})),
        framed(orders, changed(ORDERS, "d")),
    ]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert rows(broker, pipeline) == [(1, "one", "read", 5), (1, None, "update", 5), (1, None, "delete", 5)]
    assert excluded(pipeline) == EXCLUDED
    assert reasons(broker, pipeline) == [
        f"schema id {orders}: before: null in a delete, so its row is not known. Set REPLICA IDENTITY FULL for the table, or "
        "DEFAULT if it has a primary key",
        f"schema id {orders}: name: {TOAST}",
    ]


def test_a_truncation_in_avro_is_refused_by_name(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """One of another table, whose schema is another, is not one of this table."""
    source = {"envelope": "debezium", "table": "public.orders", "truncations": "fail"}
    pipeline = make(ROWS, SUITE, source=source)
    topic = pipeline.source.topic
    orders = register(schema_registry, f"{topic}-value", ORDERS)
    codes = register(schema_registry, f"{topic}-shop.public.codes.Envelope", CODES)
    create_topic(broker.bootstrap, topic, 1)
    values = [
        framed(codes, changed(CODES, "t", source={**SOURCE, "table": "codes"})),
        framed(orders, changed(ORDERS, "c", after={"id": 1, "name": "one"})),
        framed(orders, changed(ORDERS, "t")),
    ]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])
    with pytest.raises(
        TruncationsRefused,
        match=f"1 of 3 records of topic {topic} is a truncation of the source table, .* of the first: 0:2. No offset moved",
    ):
        plan_and_write(spark, pipeline, day(1))


def test_a_subject_of_rows_is_refused_by_the_plan(broker: Broker, make: Make, schema_registry: SchemaRegistry) -> None:
    pipeline = make(ROWS, SUITE, source={"envelope": "debezium"})
    register(schema_registry, f"{pipeline.source.topic}-value", record("Value", "shop", id="long"))
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    with pytest.raises(SettingsError, match=r"it is not a Debezium envelope: it has no field op\. A flattened topic"):
        plan_batch(pipeline, day(1))


def test_of_a_json_schema_the_row_is_read(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    columns = {"id": {"type": "integer"}, "name": {"oneOf": [{"type": "null"}, {"type": "string"}]}}
    value = {"type": "object", "title": "shop.public.orders.Value", "properties": columns, "required": ["id", "name"]}
    sides = {side: {"oneOf": [{"type": "null"}, value]} for side in ("before", "after")}
    schema = {"type": "object", "title": "Envelope", "properties": {**sides, "op": {"type": "string"}, "source": {}}}
    source = {"format": "json_schema", "envelope": "debezium", "table": "public.orders", "on_malformed": "quarantine"}
    pipeline = make(ROWS, SUITE, source=source, output={"format": "json"}, quality={"quarantine_limit": "none"})
    topic = pipeline.source.topic
    number = register(schema_registry, f"{topic}-value", schema, "JSON")
    create_topic(broker.bootstrap, topic, 1)
    other = POSTGRES.replace('"table":"orders"', '"table":"codes"')
    texts = [
        change("c", after='{"id":1,"name":"one"}'),
        change("d", before='{"id":1}'),
        None,
        change("t"),
        change("m"),
        change("c", after='{"code":1}', source=other),
        json.dumps({"id": 3}),
    ]
    values = [text if text is None else framed(number, text.encode()) for text in texts]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert rows(broker, pipeline) == [(1, "one", "create", 24023128), (1, None, "delete", 24023128)]
    assert excluded(pipeline) == EXCLUDED
    assert reasons(broker, pipeline) == [f"schema id {number}: {NO_OP}"]
