"""The Arrow type of a declared Spark SQL type, without Spark, as the decoder asks for it.

`tests/integration/test_drift.py` compares it with Spark's own."""

from __future__ import annotations

import re

import pyarrow as pa

TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:])", re.ASCII)
SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_of(sql: str) -> pa.DataType:
    """The type of a text that `is_sql_type` takes."""
    kind, _ = _type(TOKEN.findall(sql), 0)
    return kind


def _type(tokens: list[str], at: int) -> tuple[pa.DataType, int]:
    """The type that begins at `at`, and where the next token is."""
    word = tokens[at].lower()
    if word in SIMPLE:
        return SIMPLE[word], at + 1
    if word == "array":
        items, at = _type(tokens, at + 2)
        return pa.list_(items), at + 1
    if word == "map":  # map < string , value >
        items, at = _type(tokens, at + 4)
        return pa.map_(pa.string(), items), at + 1
    if word == "struct":
        fields, at = list[tuple[str, pa.DataType]](), at + 1
        while tokens[at] != ">":
            name = tokens[at + 1]
            kind, at = _type(tokens, at + 3)
            fields.append((name, kind))
        return pa.struct(fields), at + 1
    digits, at = [10, 0], at + 1  # a decimal's, as Spark has it without any
    if tokens[at : at + 1] == ["("]:
        digits[0] = int(tokens[at + 1])
        if tokens[at + 2] == ",":
            digits[1], at = int(tokens[at + 3]), at + 2
        at += 3
    return pa.decimal128(digits[0], digits[1]), at
