"""The Arrow type of a declared Spark SQL type, without Spark, as the decoder asks for it.

`tests/integration/test_drift.py` compares it with Spark's own."""

from __future__ import annotations

import pyarrow as pa

from fencepost.config.sql_types import SqlType, parse_sql_type

SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_of(sql: str) -> pa.DataType:
    """The Arrow type of a text that `is_sql_type` accepts."""
    return _arrow(parse_sql_type(sql))


def _arrow(kind: SqlType) -> pa.DataType:
    parts = [_arrow(part) for part in kind.parts]
    if kind.name == "array":
        return pa.list_(parts[0])
    if kind.name == "map":
        return pa.map_(pa.string(), parts[0])
    if kind.name == "struct":
        return pa.struct(list(zip(kind.fields, parts, strict=True)))
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return SIMPLE[kind.name]
