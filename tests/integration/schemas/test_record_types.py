"""`source.only` by the names of schemas, under each strategy for subjects, on a real broker and a real registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from avro_schemas import written
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import State
from fencepost.schemas.freeze import read_schemas
from fencepost.schemas.report import report_schemas
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from registry_tools import client, framed, register
from steps import latest, run

Make = Callable[..., Pipeline]
FORMAT = "avro"
N = 'def transform(frame):\n    return frame.select("_key", "n")\n'


def record(name: str, **types: Any) -> dict[str, Any]:
    fields = [{"name": field, "type": kind} for field, kind in types.items()]
    return {"type": "record", "namespace": "acme", "name": name, "fields": fields}


CREATED = record("OrderCreated", n="int")
SHIPPED = record("OrderShipped", day={"type": "int", "logicalType": "date"})
NODE = record("Node", next=["null", "acme.Node"])  # no column has such a type


def out(broker: Broker, pipeline: Pipeline) -> list[int]:
    batch = str(latest(pipeline, day(1)).id)
    return sorted(r.json["n"] for r in read_all(broker.bootstrap, pipeline.output.topic) if r.batch == batch)


def excluded(pipeline: Pipeline) -> dict[str, int]:
    found = latest(pipeline, day(1)).written
    assert found is not None
    return found.excluded


def test_records_of_other_subjects_are_excluded_by_name_whatever_their_schemas_are(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """RecordNameStrategy. Nothing is malformed under `fail`, and the ledger has the ids of the others."""
    subject = {"subject": "acme.OrderCreated", "only": ["acme.OrderCreated"]}
    pipeline = make(N, source=subject)
    ids = [register(schema_registry, f"acme.{one['name']}", one) for one in (CREATED, SHIPPED, NODE)]
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    values = [framed(ids[0], written(CREATED, {"n": n})) for n in range(50)]
    values += [framed(ids[1], written(SHIPPED, {"day": n})) for n in range(30)] + [framed(ids[2], b"anything")] * 20
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", value, 0, at(1)) for value in values])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert (out(broker, pipeline), excluded(pipeline)) == (list(range(50)), {"other_types": 50})
    schemas = latest(pipeline, day(1)).plan.schemas
    assert schemas is not None
    values = schemas.of(pipeline.source.topic).value
    assert values is not None
    assert (values.others, values.refused) == (tuple(sorted(ids[1:])), {})
    for only, says in (
        (["acme.OrderShipped"], "source.only names acme.OrderShipped, and record acme.OrderCreated does not read that"),
        (["acme.OrderCreated", "acme.Nope"], "source.only names acme.Nope, and record acme.OrderCreated does not"),
    ):
        with pytest.raises(SettingsError, match=says):
            plan_batch(make(N, name=pipeline.name, source={**subject, "only": only}), day(2))


def test_of_one_subject_with_versions_of_several_types_the_newest_of_the_type_is_read(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """TopicNameStrategy without compatibility; the aliases of one record read two types."""
    pipeline = make(N, source={"only": ["acme.OrderCreated"]})
    topic = pipeline.source.topic
    subject = f"{topic}-value"
    more = record("OrderCreated", n="int", note="string")
    more["fields"][1]["default"] = ""
    paid, other = record("OrderPaid", n="int"), record("OrderShipped", n="int")
    ids = [register(schema_registry, subject, one) for one in (CREATED, SHIPPED, paid, more, other)]
    create_topic(broker.bootstrap, topic, 1)
    values = [
        framed(ids[0], written(CREATED, {"n": 1})),
        framed(ids[1], written(SHIPPED, {"day": 2})),
        framed(ids[2], written(paid, {"n": 3})),
        framed(ids[3], written(more, {"n": 4, "note": "x"})),
        framed(ids[4], written(other, {"n": 5})),
    ]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])
    assert read_schemas(pipeline, pipeline.source_parts[0]).reader.id == ids[3]
    assert [one.problem for part in report_schemas(spark, pipeline) for one in part.versions] == [None] * 2
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert (out(broker, pipeline), excluded(pipeline)) == ([1, 4], {"other_types": 3})
    register(schema_registry, subject, {**more, "aliases": ["OrderPaid"]})
    both = make(N, name=pipeline.name, source={"only": ["acme.OrderCreated", "acme.OrderPaid"]})
    assert run(spark, both, day(1), reprocess=True).state is State.PUBLISHED
    assert (out(broker, both), excluded(both)) == ([1, 3, 4], {"other_types": 2})


def test_of_a_union_with_references_the_named_record_is_read(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    pipeline = make(N, source={"only": ["acme.OrderCreated"]})
    subject, registry = f"{pipeline.source.topic}-value", client(schema_registry)
    references = []
    for one in (CREATED, SHIPPED):
        register(schema_registry, f"{subject}-{one['name']}", one)
        references.append(SchemaReference(f"acme.{one['name']}", f"{subject}-{one['name']}", 1))
    names = [reference.name for reference in references]
    number = registry.register_schema(subject, Schema(json.dumps(names), "AVRO", references))
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    values = [framed(number, b"\0" + written(CREATED, {"n": n})) for n in range(10)]
    values += [framed(number, b"\2" + written(SHIPPED, {"day": 1}))] * 20
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", value, 0, at(1)) for value in values])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert (out(broker, pipeline), excluded(pipeline)) == (list(range(10)), {"other_types": 20})
    for only, says in (
        (
            ["acme.Nope"],
            "source.only names acme.Nope, and the schema's records are acme.OrderCreated, acme.OrderShipped",
        ),
        (names, "source.only names acme.OrderShipped, and record acme.OrderCreated does not read that"),
    ):
        with pytest.raises(SettingsError, match=says):
            plan_batch(make(N, name=pipeline.name, source={"only": only}), day(2))


def test_json_schemas_are_told_apart_by_their_titles(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """TopicRecordNameStrategy. A schema without a title is of no type, so its record is malformed."""

    def of(title: str | None, **properties: Any) -> dict[str, Any]:
        found = {"type": "object", "properties": properties, "additionalProperties": False}
        return found if title is None else {"title": title, **found}

    source = {"format": "json_schema", "only": ["OrderCreated"], "on_malformed": "quarantine"}
    named = make(N, source=source)
    topic = named.source.topic
    source["subject"] = f"{topic}-OrderCreated"
    pipeline = make(N, name=named.name, source=source, quality={"quarantine_limit": {"rows": 1}})
    whole = {"type": "integer"}
    ids = [
        register(schema_registry, f"{topic}-{number}", of(title, n=whole), "JSON")
        for number, title in enumerate(("OrderShipped", None))
    ]
    ids.append(register(schema_registry, source["subject"], of("OrderCreated", n=whole, m=whole), "JSON"))
    create_topic(broker.bootstrap, topic, 1)
    values = [framed(ids[2], {"n": 1}), framed(ids[1], {"n": 2}), framed(ids[0], {"n": 3}), framed(ids[0], b"{")]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert (out(broker, pipeline), excluded(pipeline)) == ([1], {"other_types": 2})
    (aside,) = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert dict(aside.headers)["fencepost-reason"].decode() == (
        f"schema id {ids[1]}: the schema has no title, and source.only names titles"
    )
    with pytest.raises(SettingsError, match=r"source\.only names OrderPaid, and the schema's title is OrderCreated"):
        plan_batch(make(N, name=named.name, source={**source, "only": ["OrderPaid"]}), day(2))


def test_fields_of_an_avro_key_are_columns_beside_the_key_itself(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """Of tombstones too. A declared type is the schema's, and a field that the schema lacks is refused by the plan."""
    transform = 'def transform(frame):\n    return frame.selectExpr("_key", "_key_id", "_tombstone", "_key.id + _key_id AS n")\n'
    source = {"key_format": "avro", "key": {"id": "bigint not null"}, "tombstones": "pass"}
    output = {"key": "_key_id"}
    pipeline = make(transform, source=source, output=output)
    topic = pipeline.source.topic
    key = record("Key", id=["null", "long"])
    ids = [register(schema_registry, f"{topic}-{part}", one) for part, one in (("key", key), ("value", CREATED))]
    create_topic(broker.bootstrap, topic, 1)
    records = [
        (framed(ids[0], written(key, {"id": 1})), framed(ids[1], written(CREATED, {"n": 1})), 0, at(1)),
        (framed(ids[0], written(key, {"id": 2})), None, 0, at(1)),
    ]
    produce(broker.bootstrap, topic, records)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    found = [(r.key, r.value and r.json) for r in read_all(broker.bootstrap, pipeline.output.topic)]
    assert found == [(b"1", {"n": 2}), (b"2", None)]

    produce(broker.bootstrap, topic, [(framed(ids[0], written(key, {"id": None})), None, 0, at(2))])
    produce(broker.bootstrap, topic, [(None, None, 0, at(2))])
    keeping: dict[str, Any] = {"source": {**source, "on_malformed": "quarantine"}, "output": output}
    strict = make(transform, name=pipeline.name, quality={"quarantine_limit": "none"}, **keeping)
    assert run(spark, strict, day(2)).state is State.PUBLISHED
    aside = read_all(broker.bootstrap, strict.quarantine_topic)
    assert sorted(dict(record.headers)["fencepost-reason"].decode() for record in aside) == [
        "key: id: null, and declared not null",
        "key: null, and id is declared not null",
    ]
    lacks = make(transform, name=pipeline.name, source={**source, "key": {"nope": "int"}}, output=output)
    with pytest.raises(SettingsError, match=r"source key: .* it has no field nope, which source\.key declares"):
        plan_batch(lacks, day(3))
    narrow = make(transform, name=pipeline.name, source={**source, "key": {"id": "int"}}, output=output)
    with pytest.raises(SettingsError, match=r"source\.key: id is declared int, and the key's schema has bigint"):
        report_schemas(spark, narrow)
