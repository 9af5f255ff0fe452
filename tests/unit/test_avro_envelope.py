"""`source.envelope` in Avro and JSON Schema: the schema that envelopes are read with, and the rows that they have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from envelopes import AT, FROM_POSTGRES, PLACEHOLDER, SOURCE, TOAST
from fencepost.config.source import Source
from fencepost.drafting.drift import FieldDrift, _of_avro
from fencepost.drafting.registered import decoder_for
from fencepost.formats import REGISTRY_FORMATS, BadSchema, Declared
from fencepost.formats.avro_envelope_rows import AvroEnvelopeDecoder
from fencepost.formats.avro_schema import Incompatible
from fencepost.formats.declared import Envelope
from fencepost.formats.framing import ExcludedKind, Framing
from fencepost.model import ReadSchemas, RegisteredSchema

AVRO, JSON_SCHEMA = REGISTRY_FORMATS["avro"], REGISTRY_FORMATS["json_schema"]
COLUMNS = [("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string())), ("image", pa.binary())]
SCHEMA = pa.schema([*COLUMNS, ("_op", pa.string()), ("_source", SOURCE)])
POSTGRES: dict[str, Any] = {
    "version": "3.3.1.Final",
    "connector": "postgresql",
    "ts_ms": 1767225600123,
    "snapshot": "false",
    "db": "shop",
    "ts_us": 1767225600123456,
    "schema": "public",
    "table": "orders",
    "lsn": 24023128,
}


def optional(kind: Any) -> Any:
    return ["null", kind]


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) and kind[0] == "null" else {})}


VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        field("id", "long"),
        field("name", optional("string")),
        field("tags", optional({"type": "array", "items": optional("string")})),
        field("image", optional("bytes")),
    ],
}


def source_record(**others: Any) -> dict[str, Any]:
    """As Debezium's converters declare it, where `others` replace or add fields."""
    snapshot = [{"type": "string", "connect.name": "io.debezium.data.Enum"}, "null"]
    kinds = {
        "version": "string",
        "connector": "string",
        "ts_ms": "long",
        "snapshot": snapshot,
        "db": "string",
        "ts_us": optional("long"),
        "schema": "string",
        "table": "string",
        "lsn": optional("long"),
    } | others
    fields = [field(name, kind) for name, kind in kinds.items() if kind is not None]
    return {"type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql", "fields": fields}


def envelope(value: Any = VALUE, source: Any = None, table: str = "orders") -> dict[str, Any]:
    name = value["name"] if isinstance(value, dict) else value
    block = {"type": "record", "name": "block", "namespace": "event", "fields": [field("id", "string")]}
    fields = [
        field("before", optional(value)),
        field("after", optional(name)),
        field("source", source or source_record()),
        field("transaction", optional(block)),
        field("op", "string"),
        field("ts_ms", optional("long")),
    ]
    return {"type": "record", "name": "Envelope", "namespace": f"s.public.{table}", "fields": fields}


def written(schema: Any, op: str, number: int = 1, **fields: Any) -> bytes:
    out = BytesIO()
    out.write(b"\0" + number.to_bytes(4))
    value = {"before": None, "after": None, "source": POSTGRES, "transaction": None, "op": op, "ts_ms": 1, **fields}
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def row(number: int = 7, name: str | None = "Anne", tags: Any = None, image: bytes | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "tags": tags, "image": image}


def decoder_of(*schemas: Any, table: str | None = None) -> AvroEnvelopeDecoder:
    """Reads with the first schema. The schemas' ids are 1, 2, …"""
    declared = Declared(envelope=Envelope(table))
    reader = AVRO.reader(json.dumps(schemas[0]), (), declared, columns=True)
    writers = {n: AVRO.writer(json.dumps(one), (), reader, declared) for n, one in enumerate(schemas, 1)}
    return AvroEnvelopeDecoder(SCHEMA, Framing(frozenset(writers)), reader, writers, declared)


def rows_of(decoder: AvroEnvelopeDecoder, values: Sequence[bytes | None]) -> list[Any]:
    """Of each record its columns, or the reason why it has none. All at once is the same as one by one."""
    columns, why = decoder.decode_array(pa.array(values, pa.binary()))
    alone, reasons = decoder.decode_values(values)
    assert why == reasons
    assert [c.to_pylist() for c in columns] == [c.to_pylist() for c in alone]
    return [reason or list(one) for reason, *one in zip(why, *(c.to_pylist() for c in columns), strict=True)]


def test_a_change_is_the_row_that_it_leaves_or_the_row_that_it_deletes() -> None:
    schema = envelope()
    decoder = decoder_of(schema)
    values = [
        written(schema, "c", after=row()),
        written(schema, "u", before=row(name="Ann"), after=row(tags=["a", None], image=b"\0")),
        written(schema, "d", before=row(name=None)),
        None,
        written(schema, "t"),
        written(schema, "m"),
        written(schema, "d"),
        written(schema, "d", after=row()),
        written(schema, "r"),
        written(schema, "x", after=row()),
        written(schema, "c", after=row())[:-1],
        written(schema, "c", after=row()) + b"\0",
        b"\0\0\0",
    ]
    found = rows_of(decoder, values)
    assert found[:3] == [
        [7, "Anne", None, None, "create", FROM_POSTGRES],
        [7, "Anne", ["a", None], b"\0", "update", FROM_POSTGRES],
        [7, None, None, None, "delete", FROM_POSTGRES],
    ]
    kinds = [ExcludedKind.DELETION_TOMBSTONES, ExcludedKind.TRUNCATIONS, ExcludedKind.MESSAGES]
    no_before = (
        "schema id 1: before: null in a delete, so its row is not known. Set REPLICA IDENTITY FULL for the table, or "
        "DEFAULT if it has a primary key"
    )
    assert found[3:10] == [
        *kinds,
        no_before,
        no_before,
        "schema id 1: after: null or missing, and op says read",
        "schema id 1: op: none of c, r, u, d, t, m",
    ]
    assert found[10] == "schema id 1: the value is not complete"
    assert found[11].startswith("schema id 1: something follows the value")
    assert found[12].startswith("3 bytes, and no schema id")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", PLACEHOLDER),
        ("name", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        ("tags", [PLACEHOLDER]),
        ("tags", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        ("image", PLACEHOLDER.encode()),
    ],
)
def test_a_value_that_the_log_does_not_have_is_malformed_beside_values_of_its_kind(column: str, value: Any) -> None:
    schema = envelope()
    lost = row() | {column: value}
    like = row(name=f"{PLACEHOLDER}s", tags=["b68a35a7"], image=b"__debezium")
    values = [
        written(schema, "u", after=like),
        written(schema, "u", after=lost),
        written(schema, "u", before=lost, after=like),
    ]
    found = rows_of(decoder_of(schema), [*values, written(schema, "d", before=lost)])
    expected = [7, f"{PLACEHOLDER}s", ["b68a35a7"], b"__debezium", "update", FROM_POSTGRES]
    assert found == [expected, f"schema id 1: {column}: {TOAST}", expected, f"schema id 1: {column}: {TOAST}"]


def test_what_is_wrong_in_the_other_row_does_not_matter() -> None:
    """Here a time that Spark cannot hold, in a schema whose `at` is a timestamp."""
    value = {
        "type": "record",
        "name": "Value",
        "fields": [field("id", "long"), field("at", {"type": "long", "logicalType": "timestamp-millis"})],
    }
    schema = envelope(value)
    plain = json.loads(json.dumps(schema).replace(', "logicalType": "timestamp-millis"', ""))
    declared = Declared(envelope=Envelope())
    reader = AVRO.reader(json.dumps(schema), (), declared, columns=True)
    columns = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("_op", pa.string()), ("_source", SOURCE)]
    )
    decoder = AvroEnvelopeDecoder(columns, Framing(frozenset([1])), reader, {1: json.dumps(schema)}, declared)
    bad, good = {"id": 1, "at": 2**62}, {"id": 1, "at": 1000}
    values = [
        written(plain, "u", before=bad, after=good),
        written(plain, "u", before=good, after=bad),
        written(plain, "d", before=bad, after=good),
    ]
    found = rows_of(decoder, values)
    assert found[0][2] == "update"
    assert [one.partition("at: ")[0] for one in found[1:]] == ["schema id 1: after.", "schema id 1: before."]


def test_versions_of_a_connector_differ_in_their_sources() -> None:
    """What the reader's has and another's lacks is null."""
    old = envelope(source=source_record(ts_us=None, lsn=None))
    older = envelope(source=source_record(ts_us=None, schema=None, snapshot=optional("boolean")))
    decoder = decoder_of(envelope(), old)
    without = {name: value for name, value in POSTGRES.items() if name not in ("ts_us", "lsn")}
    found = rows_of(decoder, [written(old, "c", 2, after=row(), source=without)])
    assert found[0][5] == FROM_POSTGRES | {"lsn": None, "ts": AT.replace(microsecond=123000)}
    decoder = decoder_of(older)
    found = rows_of(decoder, [written(older, "c", after=row(), source={**without, "lsn": 3, "snapshot": True})])
    assert found[0][5] == {
        "ts": AT.replace(microsecond=123000),
        "lsn": 3,
        "position": None,
        "db": "shop",
        "table": "shop.orders",
        "snapshot": None,
    }


def test_records_of_other_tables_are_excluded_whatever_their_schemas() -> None:
    """A schema like the table's own, one that it cannot read, and truncations and deletions of both."""
    mine, alike = envelope(), envelope(table="customers")
    foreign = envelope({"type": "record", "name": "Value", "fields": [field("code", "string")]}, table="codes")
    decoder = decoder_of(mine, alike, foreign, table="public.orders")
    of = {"source": POSTGRES | {"table": "customers"}}
    values = [
        written(mine, "c", after=row()),
        written(alike, "c", 2, after=row(), **of),
        written(foreign, "c", 3, after={"code": "x"}, **of),
        written(foreign, "d", 3, before={"code": "x"}, **of),
        written(foreign, "t", 3, **of),
        written(foreign, "m", 3, **of),
        written(foreign, "c", 3, after={"code": "x"}),
        written(foreign, "c", 3, after={"code": "x"}, **of)[:-1],
    ]
    found = rows_of(decoder, values)
    other = ExcludedKind.OTHER_TABLES
    assert found[0][:2] == [7, "Anne"]
    assert found[1:6] == [other, other, other, other, ExcludedKind.MESSAGES]
    assert found[6] == "schema id 3: before.id: not written, and it has no default"
    assert found[7] == "schema id 3: the value is not complete"
    with pytest.raises(Incompatible):
        decoder_of(mine, foreign)


def test_the_readers_schema_has_the_columns_of_the_row() -> None:
    declared = Declared(envelope=Envelope())
    text = AVRO.reader(json.dumps(envelope()), (), declared, columns=True)
    assert [one["name"] for one in json.loads(text)["fields"]] == ["before", "after", "source", "op"]
    schema = RegisteredSchema(subject="s", id=1, version=1, text=text)
    assert AVRO.fields(schema, declared) == ["id", "name", "tags", "image"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (VALUE, "it is not a Debezium envelope: it has no field op. A flattened topic"),
        ({**envelope(), "fields": envelope()["fields"][2:]}, "it is not a Debezium envelope: it has no field after"),
        ("string", "it is not a Debezium envelope"),
        (
            {"type": "record", "name": "E", "fields": [field("after", optional("string")), field("op", "string")]},
            "after: of type null or string, and only a record has columns. MongoDB's connector",
        ),
        (
            envelope({"type": "record", "name": "Value", "fields": [field("_op", "long")]}),
            "_op: the transform's source already has",
        ),
        (
            envelope({"type": "record", "name": "Value", "fields": [field("_source", "long")]}),
            "_source: the transform's source",
        ),
        (
            envelope({"type": "record", "name": "Value", "fields": [field("next", optional("Value"))]}),
            "contains itself",
        ),
    ],
)
def test_a_schema_that_is_no_envelope_is_refused_by_its_reason(schema: Any, why: str) -> None:
    with pytest.raises(BadSchema) as refused:
        AVRO.reader(json.dumps(schema), (), Declared(envelope=Envelope()), columns=True)
    assert why in str(refused.value)


def test_drift_is_that_of_the_rows() -> None:
    """The fields of the envelope are none of it, and neither are excluded records."""
    more = envelope({**VALUE, "fields": [*VALUE["fields"], field("more", optional("int"))]})
    schema, declared = envelope(), Declared(envelope=Envelope())
    reader = AVRO.reader(json.dumps(schema), (), declared, columns=True)
    texts = [AVRO.writer(json.dumps(one), (), reader, declared) for one in (schema, more)]
    writers = tuple(RegisteredSchema(subject="s", id=n, text=text) for n, text in enumerate(texts, 1))
    schemas = ReadSchemas(reader=RegisteredSchema(subject="s", id=1, version=1, text=reader), writers=writers)
    decoder, names = decoder_for(Source(topic="t", format="avro", envelope="debezium"), schemas)
    assert names == ["id", "name", "tags", "image"]
    values = [
        written(schema, "c", after=row()),
        written(more, "c", 2, after=row() | {"more": 3}),
        written(schema, "t"),
        written(schema, "c"),
    ]
    drift = _of_avro(values, decoder, schemas, declared.envelope)
    assert (drift.records, drift.excluded, drift.malformed) == (3, 1, 1)
    assert drift.undeclared == (FieldDrift("more", 1, "null or int"),)


def test_names_of_an_envelopes_columns_are_free_without_one() -> None:
    plain = {"type": "record", "name": "Value", "fields": [field("_op", "long"), field("_source", "long")]}
    assert AVRO.reader(json.dumps(plain), (), Declared(), columns=True)


def json_envelope(value: Any) -> dict[str, Any]:
    """As Confluent's JsonSchemaConverter declares it."""
    properties = {
        "op": {"type": "string", "connect.index": 3},
        "before": {"connect.index": 0, "oneOf": [{"type": "null"}, value]},
        "after": {"connect.index": 1, "oneOf": [{"type": "null"}, value]},
        "source": {"type": "object", "properties": {"x": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
    }
    return {"type": "object", "title": "s.public.orders.Envelope", "properties": properties, "required": ["op"]}


JSON_VALUE = {
    "type": "object",
    "title": "s.public.orders.Value",
    "properties": {
        "id": {"type": "integer", "connect.type": "int64"},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "amount": {"type": ["string", "number"]},
    },
    "required": ["id"],
}


def test_of_a_json_schema_the_row_is_what_is_read() -> None:
    """So the rest of the envelope may be of types that no column has."""
    declared = Declared({"amount": "string"}, envelope=Envelope())
    text = JSON_SCHEMA.reader(json.dumps(json_envelope(JSON_VALUE)), (), declared, columns=True)
    assert json.loads(text) == {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}},
        "required": ["id"],
    }
    schema = RegisteredSchema(subject="s", id=1, version=1, text=text)
    assert JSON_SCHEMA.fields(schema, declared) == ["id", "name"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (JSON_VALUE, "#/properties: no op, so it is not a Debezium envelope. A flattened topic"),
        ({"type": "object", "properties": {"op": {"type": "string"}}}, "#/properties: no after, so it is not"),
        (
            json_envelope(JSON_VALUE),
            "#/properties/after/oneOf/1/properties/amount/type: several types (number, string)",
        ),
        (json_envelope({"type": "string"}), "its values are of type string"),
        (
            json_envelope({"type": "object", "properties": {"_op": {"type": "string"}}}),
            "the transform's source already has _op",
        ),
        ([], "it is not a JSON Schema"),
    ],
)
def test_a_json_schema_that_is_no_envelope_is_refused_by_its_reason(schema: Any, why: str) -> None:
    with pytest.raises(BadSchema) as refused:
        JSON_SCHEMA.reader(json.dumps(schema), (), Declared(envelope=Envelope()), columns=True)
    assert why in str(refused.value)
