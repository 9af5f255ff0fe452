"""Staged values become rows in the table's own types, or are refused by the field's name."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg import types as i
from pyiceberg.schema import Schema

from fencepost.outputs.iceberg.rows import IcebergRows, NullRefused
from fencepost.outputs.table.staged_rows import StagedMisfit
from spark_types import columns

START = datetime(2026, 1, 31, tzinfo=UTC)
OWN = (
    i.NestedField(90, "fencepost_interval", i.TimestamptzType(), required=True),
    i.NestedField(91, "fencepost_revision", i.IntegerType(), required=True),
)


def staged(*texts: str | None) -> pa.Array:
    return pa.array([text and text.encode() for text in texts], pa.large_binary())


def test_rows_have_the_columns_of_the_table_with_the_ids_of_its_fields() -> None:
    table = Schema(
        i.NestedField(5, "extra", i.UUIDType(), required=False),
        OWN[1],
        i.NestedField(7, "s", i.StructType(i.NestedField(8, "x", i.LongType(), required=False)), required=False),
        OWN[0],
        i.NestedField(2, "n", i.LongType(), required=False),
    )
    made = IcebergRows(columns(n="int", s="struct<x:int>"), table, START, 4).of(
        staged('{"n": 1, "s": {"x": 2}}', '{"n": null}')
    )
    assert made.to_pylist() == [
        {"extra": None, "fencepost_revision": 4, "s": {"x": 2}, "fencepost_interval": START, "n": 1},
        {"extra": None, "fencepost_revision": 4, "s": None, "fencepost_interval": START, "n": None},
    ]
    assert [int(one.metadata[b"PARQUET:field_id"]) for one in made.schema] == [5, 91, 7, 90, 2]
    assert made.schema.field("s").type.field(0).metadata == {b"PARQUET:field_id": b"8"}
    made.validate(full=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"n": 128}', "n: not an integer of 8 bits"),  # the column of the table would take it
        ('{"n": "a secret"}', "n: not an integer of 8 bits"),
        ('{"n": NaN}', "NaN is not JSON"),
        (None, "a tombstone, which a table cannot store"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused_without_the_value(text: str | None, why: str) -> None:
    table = Schema(i.NestedField(1, "n", i.LongType(), required=False), *OWN)
    with pytest.raises(StagedMisfit) as raised:
        IcebergRows(columns(n="tinyint"), table, START, 0).of(staged(text))
    assert str(raised.value).startswith(why)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('{"l": [{"a": 1}]}', None),
        ('{"l": null, "m": null, "s": null}', None),
        ('{"l": [], "m": {}, "s": {"x": 1}}', None),
        ('{"l": [null]}', "column l.element is null, and the table requires a value"),
        ('{"l": [{"a": null}]}', "column l.element.a is null, and the table requires a value"),
        ('{"m": {"k": null}}', "column m.value is null, and the table requires a value"),
        ('{"m": {"k": []}}', None),
        ('{"m": {"k": [null]}}', "column m.value.element is null, and the table requires a value"),
        ('{"s": {"x": null}}', "column s.x is null, and the table requires a value"),
    ],
)
def test_a_null_is_refused_where_the_table_requires_a_value(value: str, why: str | None) -> None:
    a = i.StructType(i.NestedField(2, "a", i.IntegerType(), required=True))
    table = Schema(
        i.NestedField(1, "l", i.ListType(3, a, element_required=True), required=False),
        i.NestedField(
            4,
            "m",
            i.MapType(5, i.StringType(), 6, i.ListType(7, i.LongType(), element_required=True), value_required=True),
            required=False,
        ),
        i.NestedField(8, "s", i.StructType(i.NestedField(9, "x", i.LongType(), required=True)), required=False),
        *OWN,
    )
    rows = IcebergRows(
        columns(l="array<struct<a:int>>", m="map<string,array<int>>", s="struct<x:int>"), table, START, 0
    )
    first = '{"l": [{"a": 5}, {"a": 6}], "m": {"a": [1, 2], "b": [3]}, "s": {"x": 1}}'
    values = staged(first, value, first)
    if why is None:
        assert rows.of(values).num_rows == 3
    else:
        with pytest.raises(NullRefused, match=f"^{re.escape(why)}$"):
            rows.of(values)


def test_a_null_in_a_required_column_is_refused() -> None:
    table = Schema(i.NestedField(1, "n", i.LongType(), required=True), *OWN)
    with pytest.raises(NullRefused, match=r"^column n is null, and the table requires a value$"):
        IcebergRows(columns(n="int"), table, START, 0).of(staged('{"n": 1}', '{"n": null}'))
