"""The schemas that Connect's JSON converter writes: what they declare, and which declarations they contradict."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from envelopes import COLUMNS, FROM_POSTGRES, change, decoder_of, rows_of, wrapped
from fencepost.config.sql_types import is_sql_type
from fencepost.formats.connect_json import NAMED, Declaration, Problems, declaration_of, row_fields
from fencepost.formats.declared import Encoding, FieldOf
from fencepost.formats.framing import ExcludedKind

DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIME = "io.debezium.time"


def schema_of(**fields: dict[str, Any]) -> dict[str, Any]:
    row = [{"optional": True, **of, "field": name} for name, of in fields.items()]
    sides = [
        {"type": "struct", "fields": row, "optional": True, "name": "s.Value", "field": side}
        for side in ("before", "after")
    ]
    others = [{"type": "string", "optional": False, "field": "op"}]
    return {"type": "struct", "fields": [*sides, *others], "optional": False, "name": "s.Envelope", "version": 2}


def decimal(scale: Any, precision: Any = None) -> dict[str, Any]:
    digits = {} if precision is None else {"connect.decimal.precision": precision}
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": scale, **digits}}


def struct(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{**of, "field": name} for name, of in fields.items()]}


@pytest.mark.parametrize(
    ("schema", "declared"),
    [
        ({"type": "int8"}, Declaration("tinyint")),
        ({"type": "int16"}, Declaration("smallint")),
        ({"type": "int32"}, Declaration("int")),
        ({"type": "int64"}, Declaration("bigint")),
        ({"type": "float"}, Declaration("float")),
        ({"type": "double"}, Declaration("double")),
        ({"type": "boolean"}, Declaration("boolean")),
        ({"type": "bytes"}, Declaration("binary")),
        ({"type": "string", "name": "io.debezium.data.Uuid"}, Declaration("string")),
        ({"type": "string", "name": "io.debezium.data.Json"}, Declaration("string")),
        ({"type": "int32", "name": f"{TIME}.Date"}, Declaration("date", "epoch_days")),
        ({"type": "int64", "name": f"{TIME}.Timestamp"}, Declaration("timestamp_ntz", "epoch_millis")),
        ({"type": "int64", "name": f"{TIME}.MicroTimestamp"}, Declaration("timestamp_ntz", "epoch_micros")),
        ({"type": "int64", "name": f"{TIME}.NanoTimestamp"}, Declaration("timestamp_ntz", "epoch_nanos")),
        ({"type": "string", "name": f"{TIME}.ZonedTimestamp"}, Declaration("timestamp")),
        (decimal("2", "12"), Declaration("decimal(12,2)", "base64")),
        (decimal("2"), Declaration("decimal(38,2)", "base64", "a value with more digits is malformed")),
        (decimal("2", "64"), Declaration("decimal(38,2)", "base64", "a value with more digits is malformed")),
        (decimal("-3", "12"), Declaration("string", note="a decimal whose scale no decimal of Spark has")),
        (decimal("x"), Declaration("string", note="a decimal whose scale no decimal of Spark has")),
        ({"type": "array", "items": {"type": "int32"}}, Declaration("array<int>")),
        ({"type": "array", "items": {"type": "int32", "name": f"{TIME}.Date"}}, Declaration("array<int>")),
        ({"type": "array", "items": decimal("2", "12")}, Declaration("array<string>")),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, Declaration("map<string, string>")),
        ({"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}}, Declaration("string")),
        (struct(a={"type": "int32"}, b={"type": "string"}), Declaration("struct<`a`: int, `b`: string>")),
        (struct(), Declaration("string")),
        ({"type": "sometype"}, Declaration("string")),
        ({}, Declaration("string")),
        ({"type": ["int32"], "name": ["x"]}, Declaration("string")),
    ],
)
def test_a_field_is_declared_as_its_schema_says(schema: Any, declared: Declaration) -> None:
    assert declaration_of(schema) == declared


def test_every_name_is_declared_by_a_type_that_may_be_declared() -> None:
    assert {one.sql for one in NAMED.values() if not is_sql_type(one.sql)} == set()
    assert {one.encoding for one in NAMED.values()} == {
        None,
        "epoch_days",
        "epoch_millis",
        "epoch_micros",
        "epoch_nanos",
    }
    deep: dict[str, Any] = {"type": "int32"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    assert is_sql_type(declaration_of(deep).sql)


@pytest.mark.parametrize(
    "schema", [None, 7, [], {}, {"fields": 7}, {"fields": [7, {"field": 1}]}, {"fields": [{"field": "after"}]}]
)
def test_what_is_no_schema_of_an_envelope_declares_nothing(schema: Any) -> None:
    assert row_fields(schema) == {}
    assert Problems(COLUMNS, {}).of(schema) is None


UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("kind", "schema", "what"),
    [
        (pa.int64(), {"type": "int64"}, None),
        (pa.int32(), {"type": "int64"}, None),
        (pa.string(), {"type": "int64"}, None),
        (pa.float64(), {"type": "int64"}, None),
        (pa.int64(), {"type": "int64", "name": f"{TIME}.MicroTimestamp"}, None),
        (pa.string(), {"type": "int64", "name": f"{TIME}.MicroTimestamp"}, None),
        (
            UTC,
            {"type": "int64", "name": f"{TIME}.MicroTimestamp"},
            f"{TIME}.MicroTimestamp, and source.schema reads it as timestamp. Set from: epoch_micros",
        ),
        (
            LOCAL,
            {"type": "int64", "name": f"{TIME}.Timestamp"},
            f"{TIME}.Timestamp, and source.schema reads it as timestamp_ntz. Set from: epoch_millis",
        ),
        (
            pa.date32(),
            {"type": "int32", "name": f"{TIME}.Date"},
            f"{TIME}.Date, and source.schema reads it as date. Set from: epoch_days",
        ),
        (UTC, {"type": "string", "name": f"{TIME}.ZonedTimestamp"}, None),
        (UTC, {"type": "string"}, None),
        (UTC, {"type": "int64"}, "int64, and source.schema reads it as timestamp"),
        (
            pa.decimal128(12, 2),
            decimal("2"),
            f"{DECIMAL}, and source.schema reads it as decimal(12,2). Set from: base64",
        ),
        (pa.decimal128(12, 2), {"type": "string"}, "string, and source.schema reads it as decimal(12,2)"),
        (pa.decimal128(12, 2), {"type": "double"}, None),
        (pa.string(), decimal("2"), None),
        (pa.binary(), decimal("2"), None),
        (pa.int64(), {"type": "string"}, "string, and source.schema reads it as bigint"),
        (pa.int64(), {"type": "boolean"}, "boolean, and source.schema reads it as bigint"),
        (pa.bool_(), {"type": "int16"}, "int16, and source.schema reads it as boolean"),
        (pa.list_(pa.string()), {"type": "string"}, "string, and source.schema reads it as array"),
        (pa.list_(pa.string()), {"type": "array", "items": {"type": "string"}}, None),
        (pa.struct([("a", pa.string())]), {"type": "map"}, None),
        (pa.map_(pa.string(), pa.string()), {"type": "struct"}, None),
        (pa.int64(), {"type": "no type"}, None),
        (pa.int64(), {"type": 7, "name": 7}, None),
    ],
)
def test_a_declaration_that_a_schema_contradicts_is_named(kind: pa.DataType, schema: Any, what: str | None) -> None:
    columns = pa.schema([("id", pa.int64()), ("x", kind)])
    wanted = None if what is None else f"field y: the schema says {what}"
    fields = {"x": FieldOf("y")}
    assert Problems(columns, fields).of(schema_of(id={"type": "int64"}, y=schema)) == wanted
    assert Problems(columns, fields).of(schema_of(id={"type": "int64"}, x=schema)) is None


def test_the_records_of_a_schema_that_contradicts_are_malformed_and_only_those() -> None:
    """Whether the schema's bytes are known or not, and in the middle of others."""
    schemas = [
        json.dumps(schema_of(id={"type": "int64"}, name={"type": kind})) for kind in ("string", "boolean", "string")
    ]
    decoder = decoder_of(
        pa.schema([("id", pa.int64()), ("name", pa.list_(pa.string()))]), captured_table="public.orders"
    )
    schemas[2] = json.dumps(schema_of(id={"type": "int64"}, name={"type": "array"}))
    values = [wrapped(change("c", after='{"id":1,"name":null}'), schema) for schema in (*schemas, *schemas)]
    values += [json.dumps(json.loads(value)) for value in values[:3]]
    values.append(wrapped(change("c", after='{"id":1}', source='{"table":"x"}'), schemas[0]))
    found = rows_of(decoder, values)
    said = "field name: the schema says {}, and source.schema reads it as array"
    wrong = [said.format("string"), said.format("boolean")]
    assert [row if isinstance(row, str) else row[0] for row in found] == [
        *wrong,
        1,
        *wrong,
        1,
        *wrong,
        1,
        ExcludedKind.OTHER_TABLES,
    ]


def encoded(**columns: str) -> dict[str, FieldOf]:
    return {name: FieldOf(name, Encoding(how)) for name, how in columns.items()}


@pytest.mark.parametrize(
    ("kind", "how", "schema", "what"),
    [
        (UTC, "epoch_micros", {"type": "int64", "name": f"{TIME}.MicroTimestamp"}, None),
        (LOCAL, "epoch_millis", {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, None),
        (pa.date32(), "epoch_days", {"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, None),
        (UTC, "epoch_millis", {"type": "int64"}, None),
        (
            UTC,
            "epoch_millis",
            {"type": "int64", "name": f"{TIME}.MicroTimestamp"},
            f"says {TIME}.MicroTimestamp, and source.schema reads it as epoch_millis. Set from: epoch_micros",
        ),
        (
            UTC,
            "epoch_millis",
            {"type": "string", "name": f"{TIME}.ZonedTimestamp"},
            f"says {TIME}.ZonedTimestamp, and source.schema reads it as epoch_millis",
        ),
        (
            LOCAL,
            "epoch_micros",
            {"type": "int64", "name": f"{TIME}.MicroTime"},
            f"says {TIME}.MicroTime, and source.schema reads it as epoch_micros",
        ),
        (pa.decimal128(12, 2), "base64", decimal("2", "12"), None),
        (pa.decimal128(20, 2), "base64", decimal("2", "64"), None),
        (
            pa.decimal128(12, 3),
            "base64",
            decimal("2", "12"),
            "has a decimal of scale 2, and source.schema one of scale 3",
        ),
        (pa.decimal128(12, 2), "base64", decimal("x"), "has a decimal of scale None, and source.schema one of scale 2"),
        (pa.decimal128(12, 2), "base64", {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, None),
        (pa.decimal128(12, 2), "text", {"type": "string"}, None),
        (
            pa.decimal128(12, 2),
            "text",
            decimal("2"),
            f"says {DECIMAL}, and source.schema reads it as text. Set from: base64",
        ),
        (pa.int64(), "text", {"type": "string"}, None),
    ],
)
def test_an_encoding_that_a_schema_contradicts_is_named(
    kind: pa.DataType, how: str, schema: Any, what: str | None
) -> None:
    found = Problems(pa.schema([("x", kind)]), encoded(x=how)).of(schema_of(x=schema))
    assert found == (None if what is None else f"field x: the schema {what}")


def test_encoded_values_are_read_below_every_wrapper_and_their_scale_is_that_of_their_schema() -> None:
    columns = pa.schema([("at", LOCAL), ("amount", pa.decimal128(12, 2)), ("day", pa.date32())])
    schema = schema_of(
        at={"type": "int64", "name": f"{TIME}.MicroTimestamp"},
        amount=decimal("2", "12"),
        day={"type": "int32", "name": f"{TIME}.Date"},
    )
    decoder = decoder_of(columns, fields=encoded(at="epoch_micros", amount="base64", day="epoch_days"))
    text = change("c", after='{"at":-1,"amount":"BNI=","day":20454}')
    found = rows_of(
        decoder,
        [
            text,
            wrapped(text, json.dumps(schema)),
            wrapped(text, json.dumps(schema).replace('"scale": "2"', '"scale": "3"')),
        ],
    )
    row = [datetime(1969, 12, 31, 23, 59, 59, 999999), Decimal("12.34"), date(2026, 1, 1), "create", FROM_POSTGRES]  # noqa: DTZ001
    assert found == [row, row, "field amount: the schema has a decimal of scale 3, and source.schema one of scale 2"]
