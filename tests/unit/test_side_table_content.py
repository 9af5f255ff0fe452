"""The content of a side table: equal rows have one fingerprint, and a table that no transform should see is refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable
from fencepost.errors import SideTableRefused
from fencepost.side_tables.canonical import fingerprint
from fencepost.side_tables.content import TableContent, content_of

FIELDS = StructType([StructField("x", DoubleType()), StructField("y", ArrayType(StringType()))])
KINDS: dict[str, DataType] = {
    "flag": BooleanType(),
    "tiny": ByteType(),
    "whole": LongType(),
    "single": FloatType(),
    "number": DoubleType(),
    "price": DecimalType(38, 18),
    "name": StringType(),
    "data": BinaryType(),
    "day": DateType(),
    "at": TimestampType(),
    "local": TimestampNTZType(),
    "list": ArrayType(DoubleType()),
    "map": MapType(StringType(), IntegerType()),
    "fields": FIELDS,
    "lists": ArrayType(FIELDS),
}
SCHEMA = StructType([StructField(name, kind) for name, kind in KINDS.items()])
ARROW = to_arrow_schema(SCHEMA, timestamp_utc=True)
FIRST, LAST = datetime.min, datetime.max  # noqa: DTZ901
NAN = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]  # another NaN than Python's
FULL: dict[str, Any] = {
    "flag": True,
    "tiny": -1,
    "whole": 2**63 - 1,
    "single": 0.5,
    "number": -0.0,
    "price": Decimal("1.500000000000000000"),
    "name": "Zürich",
    "data": b"\x00\xff",
    "day": date(1, 1, 1),
    "at": datetime(1899, 12, 31, tzinfo=UTC),
    "local": LAST,
    "list": [1.0, None, math.nan],
    "map": [("a", 1), ("b", None)],
    "fields": {"x": 0.0, "y": ["", None]},
    "lists": [{"x": None, "y": []}, None],
}
OTHERS = FULL | {
    "flag": False,
    "tiny": 1,
    "whole": 0,
    "price": Decimal("1.5") + Decimal("1e-18"),
    "name": "zürich",
    "data": b"",
    "day": date(9999, 12, 31),
    "at": datetime(1899, 12, 31, 0, 0, 0, 1, tzinfo=UTC),
    "local": FIRST,
}
TYPES = {"int": IntegerType(), "bigint": LongType(), "date": DateType(), "string": StringType()}
EMPTY = dict.fromkeys(KINDS)


def content(rows: Sequence[Any] | pa.Table, schema: StructType = SCHEMA, **settings: Any) -> TableContent:
    """The content of a side table with these rows."""
    table = FileTable.model_validate({"file": "t.csv", "key": "none", **settings})
    pipeline = Pipeline.model_construct(name="shop", folder=Path(), tables={"goods": table})
    arrow = to_arrow_schema(schema, timestamp_utc=True)
    return content_of(
        pipeline, "goods", rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), arrow), schema
    )


def numbered(*numbers: int | None, **settings: Any) -> TableContent:
    """The content of a side table with these keys."""
    schema = StructType([StructField("id", LongType()), StructField("place", LongType())])
    rows = [{"id": number, "place": place} for place, number in enumerate(numbers)]
    return content(rows, schema, key="id", **settings)


def test_fingerprints_are_the_same_in_all_versions() -> None:
    """A batch that is written in part is finished by the next version only if both call the rows by one name."""
    assert content([FULL, EMPTY]).state.fingerprint == "c3d281f816e48c7bf584786e4369ccad"
    assert content([], not_empty=False).state.fingerprint == "e22e719da0e03a28edde6433291d53b0"
    assert numbered(1, 2, 3).state.fingerprint == "f8c0edca5a9d231be2ca115da20202cc"


simple: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": st.sampled_from([0, -1, 127]),
    "whole": st.sampled_from([0, -(2**63)]),
    "single": st.sampled_from([0.0, -0.0, math.nan, 0.5]),
    "number": st.sampled_from([0.0, -0.0, math.nan, NAN, math.inf]),
    "price": st.sampled_from([Decimal(0), Decimal("1e-18"), Decimal("-1e19")]),
    "name": st.sampled_from(["", "a", "ab", "b", "None"]),
    "data": st.sampled_from([b"", b"a", b"ab"]),
    "day": st.sampled_from([date(1, 1, 1), date(1970, 1, 1)]),
    "at": st.sampled_from([datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]),
    "local": st.sampled_from([FIRST, LAST]),
}
values = {
    **simple,
    "list": st.lists(st.none() | simple["number"], max_size=2),
    "map": st.dictionaries(simple["name"], st.none() | st.just(0), max_size=2).map(lambda one: list(one.items())),
    "fields": st.fixed_dictionaries(
        {"x": st.none() | simple["number"], "y": st.none() | st.lists(simple["name"], max_size=2)}
    ),
}
values["lists"] = st.lists(st.none() | values["fields"], max_size=2)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some rows with a few values of some columns, so that equal and almost equal tables are frequent."""
    names = draw(st.lists(st.sampled_from(list(KINDS)), max_size=2))
    return [
        {**EMPTY, **{name: draw(st.none() | values[name]) for name in names}} for _ in range(draw(st.integers(1, 3)))
    ]


def said(value: Any) -> str:
    """A value in words of its own: NaN is one, and a zero has its sign."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}={said(one)}" for name, one in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(said, value)) + "]"
    return f"{type(value).__name__} {value!r}"


@settings(max_examples=50)
@given(tables(), tables())
def test_fingerprints_are_equal_if_and_only_if_the_rows_are_in_any_order(one: list[Any], other: list[Any]) -> None:
    same = sorted(map(said, one)) == sorted(map(said, other))
    assert (content(one).state.fingerprint == content(other).state.fingerprint) is same
    assert content(one[::-1]).state.fingerprint == content(one).state.fingerprint
    assert content(one[::-1]).rows.to_pylist().__repr__() == content(one).rows.to_pylist().__repr__()


@settings(max_examples=30)
@given(tables(), st.integers(0, 3))
def test_a_fingerprint_does_not_depend_on_arrows_memory(rows: list[Any], cut: int) -> None:
    """Slices, pieces, dictionaries, and whatever is behind a null."""
    plain = pa.Table.from_pylist(rows, ARROW)
    wanted = fingerprint(plain, SCHEMA)
    around = pa.Table.from_pylist([FULL, *rows, FULL], ARROW).slice(1, len(rows))
    pieces = pa.concat_tables([around.slice(0, cut), around.slice(cut)])
    assert fingerprint(around, SCHEMA) == fingerprint(pieces, SCHEMA) == wanted
    assert content(pieces).state.fingerprint == content(plain).state.fingerprint
    assert content(pieces).state.bytes <= content(plain).state.bytes + 64 * len(KINDS)
    names = plain.set_column(plain.schema.get_field_index("name"), "name", plain["name"].dictionary_encode())
    assert content(names).state.fingerprint == content(plain).state.fingerprint


def test_what_is_behind_a_null_is_not_in_a_fingerprint() -> None:
    nulls = pa.array([False, True])
    by_hand = {
        "whole": pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.array([1, 7]).buffers()[1]]),
        "name": pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), *pa.array(["a", "b"]).buffers()[1:]]),
        "list": pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array([1.0, 2.0, 3.0]), mask=nulls),
        "fields": pa.StructArray.from_arrays(
            [pa.array([1.0, 2.0]), pa.array([["a"], ["b"]])], fields=list(ARROW.field("fields").type), mask=nulls
        ),
        "map": pa.MapArray.from_arrays(
            pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"]), pa.array([1, 2], pa.int32()), mask=nulls
        ),
    }
    for name, values in by_hand.items():
        schema = StructType([SCHEMA[name]])
        arrow = to_arrow_schema(schema, timestamp_utc=True)
        dirty = pa.Table.from_arrays([values], schema=arrow)
        clean = pa.Table.from_pylist(dirty.to_pylist(), arrow)
        assert clean[name].null_count == 1
        assert fingerprint(dirty, schema) == fingerprint(clean, schema), name


@pytest.mark.parametrize("kind", [DoubleType(), ArrayType(DoubleType())])
def test_all_nan_are_equal_and_zeros_have_signs(kind: DataType) -> None:
    """Also in the order of rows, where Arrow calls both zeros equal."""
    schema = StructType([StructField("x", kind), StructField("name", StringType())])

    def of(*numbers: float) -> str:
        nested = isinstance(kind, ArrayType)
        return content([{"x": [n] if nested else n} for n in numbers], schema).state.fingerprint

    assert struct.pack("<d", NAN) != struct.pack("<d", math.nan)
    assert of(NAN) == of(math.nan)
    assert of(0.0, -0.0) == of(-0.0, 0.0)
    assert len({of(0.0, 0.0), of(0.0, -0.0), of(-0.0, -0.0), of(math.nan, 0.0)}) == 4


def test_types_and_names_are_in_a_fingerprint() -> None:
    found = set()
    for name, kind in [
        ("a", "int"),
        ("a", "bigint"),
        ("b", "int"),
        ("a", "date"),
        ("a", "decimal(9,0)"),
        ("a", "string"),
    ]:
        schema = StructType([StructField(name, {**TYPES, "decimal(9,0)": DecimalType(9, 0)}[kind])])
        found.add(content([{name: None}], schema).state.fingerprint)
    assert len(found) == 6


def test_rows_are_in_the_order_of_the_key() -> None:
    assert numbered(3, -1, 2).rows.to_pylist() == [{"id": -1, "place": 1}, {"id": 2, "place": 2}, {"id": 3, "place": 0}]
    assert numbered(3, -1, 2).state.fingerprint != numbered(-1, 2, 3).state.fingerprint  # their places differ


@pytest.mark.parametrize(
    "name", [name for name in KINDS if name not in {"single", "number", "list", "map", "fields", "lists"}]
)
def test_a_key_of_each_type_is_checked(name: str) -> None:
    """Also if another column of the key is the same in all rows."""
    schema = StructType([SCHEMA[name], StructField("n", LongType())])
    one, other = ({name: value} for value in (FULL[name], OTHERS[name]))
    assert content([one, other], schema, key=name).state.rows == 2
    assert content([{**one, "n": 1}, {**other, "n": 1}], schema, key=[name, "n"]).state.rows == 2
    with pytest.raises(
        SideTableRefused, match=rf"the key \({name}\) is not unique: 2 rows have the key of another row\."
    ):
        content([one, other, {**one, "n": 1}, {**one, "n": 2}], schema, key=name)


def test_a_table_that_no_transform_should_see_is_refused() -> None:
    table = "pipeline shop: side table goods, file t.csv: "
    with pytest.raises(SideTableRefused, match=f"^{table}it has no rows. Fill it, or set not_empty: false if"):
        content([])
    with pytest.raises(
        SideTableRefused, match=rf"^{table}key id is null in 2 rows\. Remove these rows, or name another key\.$"
    ):
        numbered(1, None, None)
    with pytest.raises(
        SideTableRefused, match=r"key carrier is not among its columns: flag, tiny, .* Correct key in pipeline.yaml"
    ):
        content([FULL], key="carrier")
    with pytest.raises(
        SideTableRefused, match="key number has the type double, whose values cannot be compared exactly"
    ):
        content([FULL], key=["name", "number"])
    with pytest.raises(SideTableRefused, match=r"columns 'a' and 'A' have the same name to Spark, which ignores case"):
        content(pa.table({"a": [1], "A": [1]}), StructType([StructField(name, LongType()) for name in "aA"]))
    with pytest.raises(SideTableRefused, match=r"two columns have the name 'a'. Rename one."):
        content(pa.table([[1], [1]], ["a", "a"]), StructType([StructField("a", LongType())] * 2))
    with pytest.raises(
        SideTableRefused, match=r"it has 1\.9 MB or more, and max_megabytes is 1. Each executor holds the whole"
    ):
        content([{"name": "x" * 2_000_000}], StructType([StructField("name", StringType())]), max_megabytes=1)


def test_a_part_of_a_large_table_has_the_size_of_the_part() -> None:
    schema = StructType([StructField("name", StringType())])
    large = pa.table({"name": ["x" * 2_000_000, "y"]})
    assert content(large.slice(1), schema, max_megabytes=1).state.bytes < 100
