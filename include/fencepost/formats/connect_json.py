"""The schemas that Kafka Connect's JSON converter writes beside a value (`schemas.enable`), and Debezium's types in them.

Pure. A field's schema has Connect's `type`, and in `name` what the number or text means. `declaration_of` says how a field
is declared under `source.schema`. `Problems` finds declarations that would read a field wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fencepost.formats.declared import FieldOf
from fencepost.formats.quoting import quoted

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data", "io.debezium"
DECIMAL = f"{CONNECT}.Decimal"
VARIABLE_DECIMAL = f"{DEBEZIUM}.data.VariableScaleDecimal"
MOST_DIGITS = 38  # of a Spark decimal
DEEPEST = 20  # nested fields that are declared; what is deeper is a text


@dataclass(frozen=True)
class Declaration:
    """How a field is declared: its Spark SQL type, what `from` says (or None), and a note for a person (or an empty text)."""

    sql: str
    encoding: str | None = None
    note: str = ""


# How a value is declared that has one of these names. Names that are not here say nothing that `type` does not say.
NAMED = {
    f"{DEBEZIUM}.time.Date": Declaration("date", "epoch_days"),
    f"{DEBEZIUM}.time.Timestamp": Declaration("timestamp_ntz", "epoch_millis"),
    f"{DEBEZIUM}.time.MicroTimestamp": Declaration("timestamp_ntz", "epoch_micros"),
    f"{DEBEZIUM}.time.NanoTimestamp": Declaration("timestamp_ntz", "epoch_nanos"),
    f"{CONNECT}.Date": Declaration("date", "epoch_days"),
    f"{CONNECT}.Timestamp": Declaration("timestamp_ntz", "epoch_millis"),
    f"{DEBEZIUM}.time.ZonedTimestamp": Declaration("timestamp"),
    f"{DEBEZIUM}.time.Time": Declaration("int", note="milliseconds of the day; MySQL's times may exceed a day"),
    f"{DEBEZIUM}.time.MicroTime": Declaration("bigint", note="microseconds of the day; MySQL's times may exceed a day"),
    f"{DEBEZIUM}.time.NanoTime": Declaration("bigint", note="nanoseconds of the day"),
    f"{CONNECT}.Time": Declaration("int", note="milliseconds of the day"),
    f"{DEBEZIUM}.time.ZonedTime": Declaration("string", note="a time of the day with its zone"),
    f"{DEBEZIUM}.time.IsoDate": Declaration("string", note="a day with a Z"),
    f"{DEBEZIUM}.time.IsoTime": Declaration("string", note="a time of the day with a Z"),
    f"{DEBEZIUM}.time.IsoTimestamp": Declaration("string", note="a local time with a Z, which is not in UTC"),
    f"{DEBEZIUM}.time.Year": Declaration("int", note="a year"),
    f"{DEBEZIUM}.time.Interval": Declaration("string", note="an ISO 8601 duration"),
    f"{DEBEZIUM}.time.MicroDuration": Declaration("bigint", note="microseconds; a month counts as a number of days"),
    f"{DEBEZIUM}.time.NanoDuration": Declaration("bigint", note="nanoseconds; a month counts as a number of days"),
    f"{DEBEZIUM}.data.Bits": Declaration("binary", note="bits, with the first bit in the lowest bit of the first byte"),
    VARIABLE_DECIMAL: Declaration(
        "string",
        note="a decimal with a scale of its own in each value: declare decimal(precision, scale) with from: base64",
    ),
}
OF_TYPE = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "binary",
}


def declaration_of(schema: Mapping[str, Any], depth: int = 0) -> Declaration:
    """Returns how a field of this schema is declared. Within an array, map or struct there is no `from`, so values that
    need it keep the form that they have in JSON.
    """
    name, kind = schema.get("name"), schema.get("type")
    if name == DECIMAL:
        return _decimal(schema)
    if isinstance(name, str) and name in NAMED:
        return NAMED[name]
    if isinstance(name, str) and name.startswith(f"{DEBEZIUM}.data.geometry."):
        return Declaration("string", note="a geometry: an object with its WKB in Base64")
    inner = schema.get("items") if kind == "array" else schema.get("values") if kind == "map" else None
    if isinstance(inner, Mapping) and depth < DEEPEST:
        part = _within(inner, depth)
        text_keys = kind == "array" or (
            isinstance(schema.get("keys"), Mapping) and schema["keys"].get("type") == "string"
        )
        if text_keys:
            return Declaration(f"array<{part}>" if kind == "array" else f"map<string, {part}>")
    if kind == "struct" and depth < DEEPEST and (fields := fields_of(schema)):
        inside = ", ".join(f"{quoted(one)}: {_within(of, depth)}" for one, of in fields.items())
        return Declaration(f"struct<{inside}>")
    return Declaration(OF_TYPE.get(kind, "string") if isinstance(kind, str) else "string")


def _within(schema: Mapping[str, Any], depth: int) -> str:
    found = declaration_of(schema, depth + 1)
    if found.encoding is None:
        return found.sql
    kind = schema.get("type")
    return "string" if kind == "bytes" else OF_TYPE.get(kind, "string") if isinstance(kind, str) else "string"


def _decimal(schema: Mapping[str, Any]) -> Declaration:
    scale, precision = _parameter(schema, "scale"), _parameter(schema, "connect.decimal.precision")
    if scale is None or not 0 <= scale <= MOST_DIGITS:
        return Declaration("string", note="a decimal whose scale no decimal of Spark has")
    if precision is None or not max(scale, 1) <= precision <= MOST_DIGITS:
        return Declaration(f"decimal({MOST_DIGITS},{scale})", "base64", "a value with more digits is malformed")
    return Declaration(f"decimal({precision},{scale})", "base64")


def _parameter(schema: Mapping[str, Any], name: str) -> int | None:
    parameters = schema.get("parameters")
    value = parameters.get(name) if isinstance(parameters, Mapping) else None
    try:
        return int(value) if isinstance(value, str | int) else None
    except ValueError:
        return None


def fields_of(schema: Any) -> dict[str, Mapping[str, Any]]:
    """Returns the schemas of a struct's fields by name. Anything else has none."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list):
        return {}
    return {one["field"]: one for one in fields if isinstance(one, Mapping) and isinstance(one.get("field"), str)}


def row_fields(schema: Any) -> dict[str, Mapping[str, Any]]:
    """Returns the schemas of a row's fields by name, out of the schema of Debezium's envelope."""
    sides = fields_of(schema)
    return fields_of(sides.get("after")) or fields_of(sides.get("before"))


class Problems:
    """Finds declared columns that would misread values with a schema. `columns` are the declared columns, and `fields` the
    fields of those that are not named as their field or are encoded. `setting` declares them.
    """

    def __init__(self, columns: pa.Schema, fields: Mapping[str, FieldOf], setting: str = "source.schema") -> None:
        self._setting = setting
        self._columns = [(_field_name(f.name, fields), f.type, _encoding(f.name, fields)) for f in columns]

    def of(self, schema: Any) -> str | None:
        """Returns why the envelopes of a schema are malformed, or None."""
        return self._of_fields(row_fields(schema))

    def of_struct(self, schema: Any) -> str | None:
        """Returns why values of a schema are malformed, or None."""
        return self._of_fields(fields_of(schema))

    def _of_fields(self, known: Mapping[str, Mapping[str, Any]]) -> str | None:
        found = (_problem(known[name], kind, encoding, name) for name, kind, encoding in self._columns if name in known)
        problem = next(filter(None, found), None)
        return None if problem is None else problem.replace("source.schema", self._setting)


def _field_name(column: str, fields: Mapping[str, FieldOf]) -> str:
    return fields[column].name if column in fields else column


def _encoding(column: str, fields: Mapping[str, FieldOf]) -> str | None:
    encoding = fields[column].encoding if column in fields else None
    return None if encoding is None else encoding.name or None


def _problem(schema: Mapping[str, Any], kind: pa.DataType, encoding: str | None, name: str) -> str | None:
    said, type_ = schema.get("name"), schema.get("type")
    reads = encoding or _sql(kind)
    if said == DECIMAL and pa.types.is_decimal(kind):
        scale = _parameter(schema, "scale")
        if encoding != "base64":
            return _differs(name, DECIMAL, reads, "base64")
        if scale != kind.scale:
            return (
                f"field {name}: the schema has a decimal of scale {scale}, and source.schema one of scale {kind.scale}"
            )
        return None
    if said == VARIABLE_DECIMAL and pa.types.is_decimal(kind):
        return None if encoding == "base64" else _differs(name, VARIABLE_DECIMAL, reads, "base64")
    known = NAMED.get(said) if isinstance(said, str) else None
    if known is not None and known.sql.startswith(("date", "timestamp")) and pa.types.is_temporal(kind):
        return None if encoding == known.encoding else _differs(name, str(said), reads, known.encoding)
    if known is not None and encoding is not None and encoding.startswith("epoch_"):
        return _differs(name, str(said), reads, known.encoding)
    if encoding is not None or not isinstance(type_, str) or type_ not in TAKES:
        return None
    return None if any(takes(kind) for takes in TAKES[type_]) else _differs(name, type_, reads, None)


def _differs(name: str, said: str, reads: str, encoding: str | None) -> str:
    fix = f". Set from: {encoding}" if encoding else ""
    return f"field {name}: the schema says {said}, and source.schema reads it as {reads}{fix}"


TEXT = pa.types.is_string
NUMBER = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, TEXT)
# Which columns can hold a value of Connect's type without an encoding.
TAKES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "float32", "float64", "float", "double"), NUMBER),
    "boolean": (pa.types.is_boolean, TEXT),
    "string": (TEXT, pa.types.is_binary, pa.types.is_temporal),
    "bytes": (TEXT, pa.types.is_binary),
    "array": (TEXT, pa.types.is_list, pa.types.is_large_list),
    "map": (TEXT, pa.types.is_map, pa.types.is_struct, pa.types.is_list),
    "struct": (TEXT, pa.types.is_map, pa.types.is_struct),
}


def _sql(kind: pa.DataType) -> str:
    """Returns the Spark SQL type of a column, without what is within it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    for is_it, name in SQL:
        if is_it(kind):
            return name
    return str(kind)


SQL = (
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_date, "date"),
    (pa.types.is_struct, "struct"),
    (pa.types.is_map, "map"),
    (pa.types.is_list, "array"),
    (pa.types.is_large_list, "array"),
)
