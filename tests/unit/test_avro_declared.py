"""What the settings declare about an Avro source: names of columns, and how values are read."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from avro_reading import varint
from fencepost.config.source import Source
from fencepost.formats import REGISTRY_FORMATS, BadSchema, Declared
from fencepost.formats.avro import columns_in_spark, decoder_of
from fencepost.formats.framing import header
from fencepost.model import ReadSchemas, RegisteredSchema

FORMAT = REGISTRY_FORMATS["avro"]
MICROS = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
NANOS = {"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def declared(**columns: Any) -> Declared:
    """As pipeline.yaml declares it."""
    return Source.model_validate({"topic": "t", "format": "avro", "schema": columns}).declared


def frozen(schema: Any, of: Declared) -> ReadSchemas:
    """As a plan freezes it."""
    text = FORMAT.reader(json.dumps(schema), (), of, columns=True)
    one = RegisteredSchema(subject="s", id=1, version=1, text=text)
    return ReadSchemas(reader=one, writers=(one,))


def rows(schema: Any, of: Declared, *payloads: bytes) -> tuple[list[dict[str, Any]], list[Any]]:
    """The rows of these payloads, by the names of the columns, and why there is none."""
    schemas = frozen(schema, of)
    fields = columns_in_spark(of.under(schemas))
    decoder = pickle.loads(pickle.dumps(decoder_of(fields, schemas, of)))()  # noqa: S301
    values = pa.array([header(1) + one for one in payloads], pa.binary())
    found, why = decoder.decode_array(values)
    arrays, alone = decoder.decode_values(values.to_pylist())
    assert alone == why
    assert [one.to_pylist() for one in arrays] == [one.to_pylist() for one in found]
    return pa.RecordBatch.from_arrays(found, fields.fieldNames()).to_pylist(), why


def test_a_field_that_can_be_no_column_is_read_under_a_columns_name() -> None:
    schema = record(**{"__deleted": "string", "_key": "int", "user-id": "int", "ID": "int", "id": "int", "n": "int"})
    of = declared(
        deleted={"field": "__deleted"}, of_key={"field": "_key"}, user_id={"field": "user-id"}, upper={"field": "ID"}
    )
    found, why = rows(schema, of, b"\x08true" + b"".join(map(varint, range(5))))
    assert why == [None]
    assert found == [{"deleted": "true", "of_key": 0, "user_id": 1, "upper": 2, "id": 3, "n": 4}]


def test_a_column_is_of_its_field_though_another_field_once_had_the_columns_name() -> None:
    """No alias decides it: the writer's `deleted` is another field."""
    of = declared(deleted={"field": "__deleted"})
    reader = frozen(record(__deleted="int"), of)
    old = RegisteredSchema(subject="s", id=2, version=1, text=json.dumps(record(deleted="int", __deleted="int")))
    schemas = reader.model_copy(update={"writers": (*reader.writers, old)})
    fields = columns_in_spark(of.under(schemas))
    (column,), why = decoder_of(fields, schemas, of)().decode_values([header(2) + varint(5) + varint(7)])
    assert (fields.fieldNames(), column.to_pylist(), why) == (["deleted"], [7], [None])


def test_a_fields_alias_is_the_readers_schemas_matter() -> None:
    """The field's name is the one of the reader's schema."""
    of = declared(deleted={"field": "__deleted"})
    schema = record(__deleted="int")
    schema["fields"][0]["aliases"] = ["__gone"]
    reader = frozen(schema, of)
    old = RegisteredSchema(subject="s", id=2, version=1, text=json.dumps(record(__gone="int")))
    schemas = reader.model_copy(update={"writers": (old,)})
    (column,), _ = decoder_of(columns_in_spark(of.under(schemas)), schemas, of)().decode_values([header(2) + b"\4"])
    assert column.to_pylist() == [2]
    with pytest.raises(BadSchema, match=r"column 'deleted' of source\.schema: the schema has no field '__gone'"):
        frozen(schema, declared(deleted={"field": "__gone"}))


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (record(n="int"), {"m": {"field": "x"}}, r"column 'm' of source\.schema: the schema has no field 'x'"),
    (
        record(n="int"),
        {"a": {"field": "n"}, "b": {"field": "n"}},
        r"columns 'a' and 'b' of source\.schema are both of the field 'n'. Declare one, and select it twice",
    ),
    (
        record(a="int", __a="int"),
        {"a": {"field": "__a"}},
        r"fields a and __a would have the same column.+\{field: \"__a\"\}",
    ),
    (record(a="int", __a="int"), {"A": {"field": "__a"}}, "fields a and __a would have the same column to Spark"),
    (record(a="int", A="int"), {}, r"fields a and A would have the same column to Spark.+\{field: \"A\"\}"),
    (
        record(**{"a b": "int"}),
        {},
        r"'a b': a column's name may have letters.+source\.schema: \{a_name: \{field: \"a b\"\}\}",
    ),
    (record(_offset="int"), {}, r"_offset: the transform's source already has.+\{a_name: \{field: \"_offset\"\}\}"),
    (record(n=MICROS), {"n": {"digits": "truncate"}}, "digits: truncate means nothing for long"),
    (record(n="int"), {"n": {"infinity": None}}, "infinity: null means nothing for int"),
    (record(n="int"), {"n": "decimal(9,2)"}, r"its type is int, by the registry. Leave out type: decimal\(9,2\)"),
    (
        record(n=["null", VARIABLE, "int"]),
        {"n": "decimal(9,2)"},
        "its type is null or record io.debezium.data.VariableScaleDecimal or int, by the registry",
    ),
    (record(**{"next-one": ["null", "R"]}), {"next_one": {"field": "next-one"}}, "R contains itself"),
]


@pytest.mark.parametrize(("schema", "columns", "why"), REFUSED)
def test_what_the_schema_does_not_have_is_refused_at_plan_by_the_columns_name(
    schema: Any, columns: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadSchema, match=why):
        frozen(schema, declared(**columns))


SETTINGS: list[tuple[Any, str]] = [
    ("int", "column 'n': with format avro its type comes from the schema registry. Leave out type"),
    ({"type": "string", "field": "m"}, "column 'n': with format avro its type comes from the schema registry"),
    ("decimal(9,2) not null", "with format avro the schema registry says what may be null. Leave out not null"),
    ({"type": "decimal(9,2)", "from": "base64"}, "with format avro the schema registry says how values are encoded"),
]


@pytest.mark.parametrize(("column", "why"), SETTINGS)
def test_settings_that_the_registry_decides_are_refused(column: Any, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        declared(n=column)


def test_digits_and_infinities_are_read_as_the_column_says_wherever_they_are_in_it() -> None:
    schema = record(at=NANOS, until=["null", MICROS], all={"type": "array", "items": ["null", MICROS]}, strict=MICROS)
    of = declared(at={"digits": "truncate"}, end={"field": "until", "infinity": None}, all={"infinity": None})
    infinite = varint(9_223_372_036_825_200_000)
    good = varint(1001) + b"\2" + infinite + b"\4\2" + infinite + b"\2\2\0" + b"\0"
    found, why = rows(schema, of, good, good[:-1] + infinite, varint(2**63 - 1) + good[2:])
    begin = datetime(1970, 1, 1)  # noqa: DTZ001
    later = datetime(1970, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
    assert found[0] == {"at": later, "end": None, "all": [None, later], "strict": begin}
    assert why[0] is None
    assert [reason.partition(";")[0] for reason in why[1:]] == [
        "schema id 1: strict: an infinity",
        "schema id 1: at: an infinity",
    ]


def test_a_decimal_with_its_scale_is_a_decimal_where_one_is_declared() -> None:
    schema = record(
        a=VARIABLE, b=["null", "io.debezium.data.VariableScaleDecimal"], c="io.debezium.data.VariableScaleDecimal"
    )
    of = declared(a="decimal(9,2)", price={"field": "b", "type": "decimal(5, 1)"})
    value = varint(1) + b"\2\x0f"
    found, why = rows(
        schema, of, value + b"\2" + value + value, value + b"\0" + value, value + b"\2" + b"\4\2\1" + value
    )
    assert found[:2] == [
        {"a": Decimal("1.50"), "price": Decimal("1.5"), "c": {"scale": 1, "value": b"\x0f"}},
        {"a": Decimal("1.50"), "price": None, "c": {"scale": 1, "value": b"\x0f"}},
    ]
    assert why == [None, None, "schema id 1: b: not a decimal(5,1)"]


@pytest.mark.parametrize("kind", ["decimal(9,2)", {"type": "dec(9)"}, {"type": "NUMERIC(9 , 2)"}])
def test_a_default_that_the_declared_decimal_cannot_be_is_refused_at_plan(kind: Any) -> None:
    schema = record(a=VARIABLE)
    schema["fields"][0]["default"] = {"scale": 5, "value": "\u0001"}
    with pytest.raises(
        BadSchema, match=r"column 'a' of source\.schema: a: not written, and its default is not a value"
    ):
        frozen(schema, declared(a=kind))
    schema["fields"][0]["default"] = {"scale": 0, "value": "\u0001"}
    frozen(schema, declared(a=kind))


ENVELOPE = {"topic": "t", "format": "avro", "envelope": "debezium"}
PLACEHOLDER = b"__debezium_unavailable_value"


def change(op: str, row: bytes, before: bytes | None = None) -> bytes:
    """The bytes of an envelope of `before`, `after` and `op`."""
    return (
        b"".join(b"\0" if side is None else b"\2" + side for side in (before, row if op != "d" else None))
        + b"\2"
        + op.encode()
    )


@pytest.mark.parametrize(
    ("kind", "name", "begin"),
    [
        ("int", "Date", date(1970, 1, 1)),
        ("long", "Timestamp", datetime(1970, 1, 1)),  # noqa: DTZ001
        ("long", "MicroTimestamp", datetime(1970, 1, 1)),  # noqa: DTZ001
    ],
)
def test_the_row_of_an_envelope_is_read_as_its_columns_are_declared(kind: str, name: str, begin: Any) -> None:
    """Of `after`, of `before` in a delete, one by one and in columns."""
    days = {"type": kind, "connect.name": f"io.debezium.time.{name}"}
    row = record(id="int", _key=NANOS, until=MICROS, price=VARIABLE, days={"type": "array", "items": days})
    schema = record(before=["null", row | {"name": "Value"}], after=["null", "Value"], op="string") | {
        "name": "Envelope"
    }
    columns = {"at": {"field": "_key", "digits": "truncate"}, "until": {"infinity": None}, "price": "decimal(9,2)"}
    of = Source.model_validate(ENVELOPE | {"schema": columns}).declared
    value = b"\2" + varint(1001) + varint(9_223_372_036_825_200_000) + b"\2\2\x0f"
    lost = varint(len(PLACEHOLDER)) + b"".join(map(varint, PLACEHOLDER)) + b"\0"
    good = value + b"\2\0\0"
    lacking = change("u", value + lost)  # often enough that the arrays are read in columns
    found, why = rows(schema, of, *[change("c", good)] * 30, change("d", b"", good), *[lacking] * 30)
    wanted = {
        "id": 1,
        "at": datetime(1970, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
        "until": None,
        "price": Decimal("1.50"),
        "days": [begin],
        "_source": None,
    }
    assert found[:31] == [*[wanted | {"_op": "create"}] * 30, wanted | {"_op": "delete"}]
    assert why[:31] == [None] * 31
    for reason in why[31:]:
        assert reason is not None
        assert "days: the connector's placeholder for a value that the database's log does not have" in reason
    with pytest.raises(BadSchema, match=r"column 'm' of source\.schema: the schema has no field 'm'"):
        frozen(schema, Source.model_validate(ENVELOPE | {"schema": {"m": {"infinity": None}}}).declared)
    with pytest.raises(BadSchema, match=r"_key: the transform's source already has.+\{field: \"_key\"\}"):
        frozen(schema, Source.model_validate(ENVELOPE).declared)
