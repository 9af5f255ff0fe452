"""What a table of Iceberg gives back is what was staged: by Spark and by DuckDB, for every type, at every edge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as i
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import types as t

from fencepost.outputs.iceberg.data_files import write_data_files
from fencepost.outputs.iceberg.rows import IcebergRows
from fencepost.outputs.iceberg.types import (
    add_missing,
    column_differences,
    new_partition_spec,
    new_schema,
    unsupported_columns,
)
from lakes import Lake, duck
from spark_types import columns

START = datetime(2026, 1, 1, tzinfo=UTC)
numbers = count(1)


def rows_of(texts: dict[str, Sequence[str]]) -> list[str]:
    """Staged records from the JSON texts of each column's values. Where a column has fewer, the rest is null."""
    longest = max(map(len, texts.values()))
    each = {name: [*own, *["null"] * (longest - len(own))] for name, own in texts.items()}
    return ["{" + ", ".join(f"{json.dumps(name)}: {each[name][n]}" for name in each) + "}" for n in range(longest)]


def made(
    lake: Lake, schema: Schema, spec: PartitionSpec | None = None, properties: dict[str, str] | None = None
) -> str:
    """A new table."""
    name = f"values{next(numbers)}.t"
    lake.catalog.create_namespace(name.split(".")[0])
    lake.catalog.create_table(
        name, schema, partition_spec=spec or new_partition_spec(schema), properties=properties or {}
    )
    return name


def written(
    lake: Lake, name: str, schema: t.StructType, *batches: Sequence[str], add: bool = False, each: bool = False
) -> list[DataFile]:
    """Commits staged records as one snapshot. With `each`, every batch is a file of its own. Returns the data files."""
    table = lake.catalog.load_table(name)
    tx = table.transaction()
    if add:
        with tx.update_schema() as update:
            add_missing(update, schema, table.schema())
    metadata = tx.table_metadata
    rows = IcebergRows(schema, metadata.schema(), START, 3)
    arrays = [pa.array([text.encode() for text in batch], pa.large_binary()) for batch in batches]
    parts = [[one] for one in arrays] if each else [arrays]
    files = [
        file
        for number, part in enumerate(parts)
        for file in write_data_files(name, metadata, table.io, map(rows.of, part), f"attempt{next(numbers)}-{number}")
    ]
    with tx.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    table.catalog.commit_table(table, tx._requirements, tx._updates)
    return files


def by_spark(lake: Lake, name: str, *picked: str, where: str = "true", order: str = "n") -> list[tuple[Any, ...]]:
    return lake.sql(f"select {', '.join(picked)} from {name} where {where} order by {order}")  # noqa: S608


def by_duckdb(lake: Lake, name: str, *picked: str, order: str = "n") -> list[tuple[Any, ...]]:
    found = lake.by_duckdb(name, columns=", ".join([order, *picked]))
    return [row[1:] for row in sorted(found, key=lambda row: row[0])]


FULL = "map('ignoreNullFields', 'false')"
LONG = "x" * 3_000_000
# Spark's type, the JSON texts of values, and what DuckDB gives for them. Spark gives the same texts.
CASES: dict[str, tuple[str, list[str], list[Any]]] = {
    "n": ("int", [str(n) for n in range(8)], list(range(8))),
    "tiny": ("tinyint", ["-128", "127", "0"], [-128, 127, 0]),
    "small": ("smallint", ["-32768", "32767"], [-32768, 32767]),
    "whole": ("int", ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
    "big": ("bigint", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    "single": (
        "float",
        ["-0.0", "1.0E-41", "3.4028235E38", "-3.4028235E38", "1.4E-45", "0.1", "0.0"],
        [
            -0.0,
            9.999665841421895e-42,
            3.4028234663852886e38,
            -3.4028234663852886e38,
            1.401298464324817e-45,
            0.10000000149011612,
            0.0,
        ],
    ),
    "double": (
        "double",
        ["-0.0", "4.9E-324", "1.7976931348623157E308", "-1.7976931348623157E308", "2.2250738585072014E-308", "0.1"],
        [-0.0, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, 0.1],
    ),
    "flag": ("boolean", ["true", "false"], [True, False]),
    "text": (
        "string",
        ['""', r'"\u0000a\u0000"', '"😀\ud7ff"', json.dumps(LONG), r'"\"\\\n"', '"null"', '"\uffff\U0010ffff"'],
        ["", "\0a\0", "😀\ud7ff", LONG, '"\\\n', "null", "\uffff\U0010ffff"],
    ),
    "bytes": ("binary", ['""', '"AAEA/w=="', '"//8="'], [b"", b"\0\1\0\xff", b"\xff\xff"]),
    "day": (
        "date",
        ['"0001-01-01"', '"9999-12-31"', '"1969-12-31"', '"1970-01-01"', '"1582-10-10"'],
        [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(1970, 1, 1), date(1582, 10, 10)],
    ),
    "list": (
        "array<string>",
        ["[]", "null", "[null]", '["a",null,""]', '["b"]'],
        [[], None, [None], ["a", None, ""], ["b"]],
    ),
    "lists": (
        "array<array<int>>",
        ["[]", "null", "[null]", "[[]]", "[[null],[],null,[1]]"],
        [[], None, [None], [[]], [[None], [], None, [1]]],
    ),
    "pair": (
        "struct<a:int,b:struct<c:string,d:array<int>>>",
        [
            "null",
            '{"a":null,"b":null}',
            '{"a":null,"b":{"c":null,"d":null}}',
            '{"a":1,"b":{"c":"","d":[]}}',
            '{"a":2,"b":{"c":"x","d":[null]}}',
        ],
        [
            None,
            {"a": None, "b": None},
            {"a": None, "b": {"c": None, "d": None}},
            {"a": 1, "b": {"c": "", "d": []}},
            {"a": 2, "b": {"c": "x", "d": [None]}},
        ],
    ),
    "map": (
        "map<string,double>",
        ["{}", "null", '{"a":null}', '{"a":-0.0,"":1.5}'],
        [{}, None, {"a": None}, {"a": -0.0, "": 1.5}],
    ),
    "deep": (
        "array<struct<m:map<string,array<decimal(20,2)>>>>",
        ["[]", "null", "[null]", '[{"m":null},{"m":{}},{"m":{"k":null}}]', '[{"m":{"k":[],"l":[null,-0.05]}}]'],
        [
            [],
            None,
            [None],
            [{"m": None}, {"m": {}}, {"m": {"k": None}}],
            [{"m": {"k": [], "l": [None, Decimal("-0.05")]}}],
        ],
    ),
}
MOMENTS = [
    "0001-01-01T00:00:00.000000",
    "9999-12-31T23:59:59.999999",
    "1969-12-31T23:59:59.999999",
    "1970-01-01T00:00:00.000001",
    "1582-10-10T12:00:00.000000",
]


@pytest.fixture(scope="module")
def lake(sql_lake: Lake) -> Lake:
    return sql_lake


@pytest.fixture(scope="module")
def all_types(lake: Lake) -> str:
    schema = columns(**{name: kind for name, (kind, _, _) in CASES.items()}, moment="timestamp", local="timestamp_ntz")
    texts: dict[str, Sequence[str]] = {name: texts for name, (_, texts, _) in CASES.items()}
    texts["moment"] = [f'"{moment}Z"' for moment in MOMENTS]
    texts["local"] = [f'"{moment}"' for moment in MOMENTS]
    name = made(lake, new_schema(schema))
    rows = rows_of(texts)
    written(lake, name, schema, rows[:3], rows[3:])
    return name


@pytest.mark.parametrize("column", CASES)
def test_every_type_is_read_by_spark_as_it_was_staged(lake: Lake, all_types: str, column: str) -> None:
    """Spark writes the values that it reads as the JSON that was staged."""
    texts = CASES[column][1]
    found = by_spark(lake, all_types, f"to_json(named_struct('v', {column}), {FULL})", where=f"n < {len(texts)}")
    # json.loads would lose the sign of an integer's 0 only, and there is none: texts are compared as values.
    assert [repr(json.loads(text)["v"]) for (text,) in found] == [repr(json.loads(text)) for text in texts]


@pytest.mark.parametrize("column", CASES)
def test_every_type_is_read_by_duckdb_as_it_was_staged(lake: Lake, all_types: str, column: str) -> None:
    """Representations tell -0.0 from 0.0."""
    expected = CASES[column][2]
    found = by_duckdb(lake, all_types, column)
    assert [repr(value) for (value,) in found] == [repr(value) for value in [*expected, *[None] * (8 - len(expected))]]


def test_timestamps_of_the_years_1_to_9999_keep_their_microseconds(lake: Lake, all_types: str) -> None:
    """Texts, because Python's times end at the same years in another zone."""
    micros = [-62135596800000000, 253402300799999999, -1, 1, -12219681600000000]
    spark = by_spark(lake, all_types, "unix_micros(moment)", "unix_micros(cast(local as timestamp))", where="n < 5")
    assert spark == [(one, one) for one in micros]
    duck = by_duckdb(lake, all_types, "epoch_us(moment)", "epoch_us(local)")
    assert duck == [*((one, one) for one in micros), *[(None, None)] * 3]


def test_interval_and_revision_are_those_of_the_publication(lake: Lake, all_types: str) -> None:
    assert set(lake.by_duckdb(all_types, columns="fencepost_interval, fencepost_revision")) == {(START, 3)}
    assert (
        by_spark(lake, all_types, "unix_micros(fencepost_interval)", "fencepost_revision")
        == [(1767225600000000, 3)] * 8
    )


def test_decimals_of_every_precision_are_exact(lake: Lake) -> None:
    """The largest, the smallest, and those next to 0, with half of the digits behind the point."""
    kinds = {f"d{p}": (p, p // 2) for p in range(1, 39)}
    schema = columns(n="int", **{name: f"decimal({p},{s})" for name, (p, s) in kinds.items()})

    def plain(digits: str, scale: int, sign: str) -> str:
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[: len(digits) - scale]}{'.' if scale else ''}{digits[len(digits) - scale :]}"

    texts = {
        name: [plain(digits, s, sign) for digits in ("9" * p, "1") for sign in ("", "-")]
        for name, (p, s) in kinds.items()
    }
    name = made(lake, new_schema(schema))
    rows = rows_of({"n": ["0", "1", "2", "3"], **texts})
    written(lake, name, schema, *[[row] for row in rows], each=True)
    expected = [tuple(texts[column][n] for column in kinds) for n in range(4)]
    assert by_spark(lake, name, *(f"cast({column} as string)" for column in kinds)) == expected
    assert by_duckdb(lake, name, *(f"cast({column} as varchar)" for column in kinds)) == expected
    for n in range(4):
        every = " and ".join(
            f"{column} = cast('{texts[column][n]}' as decimal({p},{s}))" for column, (p, s) in kinds.items()
        )
        assert by_spark(lake, name, "n", where=every) == [(n,)]
        assert duck_where(lake, name, every) == [n]


def duck_where(lake: Lake, name: str, where: str) -> list[int]:
    with duck() as session:
        table = f"iceberg_scan('{lake.table(name).metadata_location}')"
        return sorted(row[0] for row in session.sql(f"select n from {table} where {where}").fetchall())  # noqa: S608


# A value, and a literal of Spark's and of DuckDB's. Each value is a file of its own, with bounds of its own.
EDGES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "whole": ("int", [(str(n), str(n), str(n)) for n in (-(2**31), -1, 0, 2**31 - 1)]),
    "big": ("bigint", [(str(n), str(n), str(n)) for n in (-(2**63) + 1, -1, 2**63 - 1)]),
    "cents": ("decimal(9,2)", [(n, n, n) for n in ("-9999999.99", "-0.01", "0.00", "1.28", "9999999.99")]),
    "money": (
        "decimal(18,4)",
        [(n, n, n) for n in ("-99999999999999.9999", "-0.0128", "0.0255", "99999999999999.9999")],
    ),
    "huge": (
        "decimal(38,10)",
        [(n, n, n) for n in ("-1234567890123456789012345678.0123456789", "-0.0000000001", "0.0000000001")],
    ),
    "zero": (
        "double",
        [
            ("-0.0", "-0.0D", "-0.0::double"),
            ("5e-324", "4.9E-324D", "5e-324::double"),
            ("-1e308", "-1e308D", "-1e308::double"),
        ],
    ),
    "single": ("float", [("-0.0", "float('-0.0')", "'-0.0'::float"), ("0.1", "float('0.1')", "'0.1'::float")]),
    "text": (
        "string",
        [
            (json.dumps(text), f"'{text}'", f"'{text}'")
            for text in (
                "",
                "a" * 16,
                "a" * 16 + "b",
                "a" * 15 + "\ud7ff\ud7ff",
                "\U0010ffff" * 17,
                "a" * 15 + "\U0010ffff" + "b",
                "\uffff" * 17,
                "y" * 5000,
            )
        ],
    ),
    "bytes": (
        "binary",
        [('"//////////////////////////8="', f"X'{'FF' * 20}'", f"from_hex('{'FF' * 20}')"), ('""', "X''", "''::blob")],
    ),
    "day": (
        "date",
        [(f'"{day}"', f"date '{day}'", f"date '{day}'") for day in ("0001-01-01", "1969-12-31", "9999-12-31")],
    ),
    "at": ("timestamp", [(f'"{at}Z"', f"timestamp '{at}Z'", f"timestamptz '{at}Z'") for at in MOMENTS]),
    "local": ("timestamp_ntz", [(f'"{at}"', f"timestamp_ntz '{at}'", f"timestamp '{at}'") for at in MOMENTS]),
    "flag": ("boolean", [("false", "false", "false"), ("true", "true", "true")]),
}


@pytest.mark.parametrize("column", EDGES)
def test_a_predicate_finds_the_row_at_each_edge(lake: Lake, column: str) -> None:
    """Bounds that do not hold make readers skip the file that has the row."""
    kind, edges = EDGES[column]
    schema = columns(n="int", value=kind)
    name = made(lake, new_schema(schema))
    written(
        lake, name, schema, *[[f'{{"n": {n}, "value": {text}}}'] for n, (text, _, _) in enumerate(edges)], each=True
    )
    signs = ["=", "<=", ">="]
    spark = lake.sql(
        " union all ".join(
            f"select {at} as at, '{sign}' as sign, n from {name} where value {sign} {literal}"  # noqa: S608
            for at, (_, literal, _) in enumerate(edges)
            for sign in signs
        )
    )
    for at, (_, _, literal) in enumerate(edges):
        for sign in signs:
            assert (at, sign, at) in spark, (at, sign)
            assert at in duck_where(lake, name, f"value {sign} {literal}"), (at, sign)
        assert [n for row, sign, n in spark if (row, sign) == (at, "=")] == [at]


def test_a_long_value_in_one_row_group_leaves_the_column_without_bounds(lake: Lake) -> None:
    """Parquet leaves a bound of more than 4,096 bytes out, and the other row group's bounds would hide the row."""
    schema = columns(n="int", value="string")
    name = made(lake, new_schema(schema), properties={"write.parquet.row-group-limit": "1"})
    long = "z" * 5000
    (file,) = written(lake, name, schema, ['{"n": 0, "value": "a"}'], [f'{{"n": 1, "value": "{long}"}}'])
    assert len(file.split_offsets or ()) == 2
    assert by_spark(lake, name, "n", where=f"value = '{long}'") == [(1,)]
    assert duck_where(lake, name, f"value = '{long}'") == [1]
    assert (2 in file.lower_bounds, 1 in file.lower_bounds) == (False, True)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_zero_is_found_whatever_its_sign(lake: Lake, kind: str) -> None:
    """To Spark and DuckDB both zeros are equal. Statistics and dictionaries of Parquet tell them apart."""
    schema = columns(n="int", value=kind)
    name = made(lake, new_schema(schema))
    values = ["-0.0", "0.0", "1.5", "-0.1"]
    written(lake, name, schema, *[[f'{{"n": {n}, "value": {x}}}'] for n, x in enumerate(values)], each=True)
    for where, expected in (
        ("value = 0.0", [0, 1]),
        ("value <= 0.0", [0, 1, 3]),
        ("value >= 0.0", [0, 1, 2]),
        ("value < 0.0", [3]),
        ("value > 0.0", [2]),
        ("value <> 0.0", [2, 3]),
        ("value in (0.0, 1.5)", [0, 1, 2]),
        ("value between 0.0 and 1.0", [0, 1]),
    ):
        assert [n for (n,) in by_spark(lake, name, "n", where=where)] == expected, where
        assert duck_where(lake, name, where) == expected, where


@pytest.mark.parametrize("properties", [{}, {"write.metadata.metrics.column.value": "none"}])
def test_nulls_are_counted_in_every_column(lake: Lake, properties: dict[str, str]) -> None:
    """DuckDB would take a column without a number of nulls for one without values."""
    schema = columns(n="int", value="double", pair="struct<a:int>", items="array<int>", map="map<string,int>")
    name = made(lake, new_schema(schema), properties=properties)
    rows = [
        '{"n": 0, "value": null, "pair": null, "items": null, "map": null}',
        '{"n": 1, "value": null, "pair": {"a": null}, "items": [null], "map": {"k": null}}',
        '{"n": 2, "value": null, "pair": {"a": null}, "items": [], "map": {}}',
    ]
    (file,) = written(lake, name, schema, rows)
    assert (file.record_count, file.null_value_counts) == (
        3,
        {1: 0, 2: 3, 3: 1, 4: 1, 5: 1, 6: 0, 7: 0, 8: 3, 9: 3, 10: 2, 11: 3},
    )
    for where, expected in (
        ("value is null", [0, 1, 2]),
        ("value is not null", []),
        *((f"{one} is null", [0]) for one in ("pair", "items", "map")),
        *((f"{one} is not null", [1, 2]) for one in ("pair", "items", "map")),
        ("pair.a is null", [0, 1, 2]),
    ):
        assert [n for (n,) in by_spark(lake, name, "n", where=where)] == expected, where
        assert duck_where(lake, name, where) == expected, where


def test_files_roll_by_their_real_bytes(lake: Lake) -> None:
    """Random texts, which hardly compress."""
    schema = columns(n="int", value="string")
    name = made(lake, new_schema(schema), properties={"write.target-file-size-bytes": "200000"})
    random = Random(1)
    rows = [f'{{"n": {n}, "value": "{random.randbytes(500).hex()}"}}' for n in range(2000)]
    files = written(lake, name, schema, rows[:1500], rows[1500:])
    sizes = [file.file_size_in_bytes for file in files]
    assert all(200_000 <= size < 400_000 for size in sizes[:-1])
    assert len(sizes) > 3
    assert sum(file.record_count for file in files) == 2000
    assert by_spark(lake, name, "count(distinct n)", "count(*)", order="1") == [(2000, 2000)]


def test_wider_columns_take_the_exact_value(lake: Lake) -> None:
    """A float in a column of doubles is not the double of its text."""
    table = Schema(
        i.NestedField(1, "fencepost_revision", i.IntegerType(), required=True),
        i.NestedField(2, "extra", i.UUIDType(), required=False),
        i.NestedField(3, "d", i.DecimalType(30, 4), required=False),
        i.NestedField(
            4,
            "s",
            i.StructType(
                i.NestedField(5, "new", i.FixedType(4), required=False),
                i.NestedField(6, "b", i.LongType(), required=False),
                i.NestedField(7, "a", i.DoubleType(), required=True),
            ),
            required=False,
        ),
        i.NestedField(8, "fencepost_interval", i.TimestamptzType(), required=True),
        i.NestedField(9, "f", i.DoubleType(), required=False),
        i.NestedField(10, "n", i.LongType(), required=True),
    )
    schema = columns(n="tinyint", f="float", d="decimal(10,2)", s="struct<a:float,b:smallint>")
    name = made(lake, table)
    assert column_differences(name, schema, table, add=False) == []
    written(
        lake,
        name,
        schema,
        ['{"n": 1, "f": 0.1, "d": -0.05, "s": {"a": 0.1, "b": -3}}', '{"n": 2, "f": null, "d": null, "s": null}'],
    )
    single = 0.10000000149011612
    assert by_spark(lake, name, "n", "f", "cast(d as string)", "s.a", "s.b", "s.new", "extra") == [
        (1, single, "-0.0500", single, -3, None, None),
        (2, None, None, None, None, None, None),
    ]
    assert by_duckdb(lake, name, "n", "f", "d", "s", "extra") == [
        (1, single, Decimal("-0.0500"), {"new": None, "b": -3, "a": single}, None),
        (2, None, None, None, None),
    ]


ODD = ["a-b", "1x", "é ü", "a b.c", "a_x2Db", "😀", "select", 'q"`\\', "x{}(),;=\t\n"]


def test_names_with_odd_characters_are_read(lake: Lake) -> None:
    """Readers find columns by the ids of their fields."""
    schema = columns(n="int", **dict.fromkeys(ODD, "int"), s="struct<a-b:int,1x:int,a.b:int>")
    assert unsupported_columns(schema) == []
    name = made(lake, new_schema(schema))
    values = {odd: number for number, odd in enumerate(ODD)}
    written(lake, name, schema, [json.dumps({"n": 0, **values, "s": {"a-b": 7, "1x": 8, "a.b": 9}})])
    spark = [f"`{odd.replace('`', '``')}`" for odd in ODD]
    assert by_spark(lake, name, *spark, "s.`a-b`", "s.`1x`", "s.`a.b`") == [(*range(len(ODD)), 7, 8, 9)]
    assert by_spark(lake, name, "n", where=f"{spark[0]} = 0 and {spark[3]} = 3 and {spark[8]} = 8") == [(0,)]
    duckdb = ['"' + odd.replace('"', '""') + '"' for odd in ODD]
    assert by_duckdb(lake, name, *duckdb, "s") == [(*range(len(ODD)), {"a-b": 7, "1x": 8, "a.b": 9})]


def test_fields_behind_ours_partition_the_files(lake: Lake) -> None:
    """Each file has rows of one value, and readers take the value from the partition."""
    kinds = {
        "a-b": "string",
        "day": "date",
        "x": "bigint",
        "d": "decimal(9,2)",
        "moment": "timestamp",
        "flag": "boolean",
    }
    schema = columns(n="int", **kinds)
    table = new_schema(schema)
    spec = PartitionSpec(
        *new_partition_spec(table).fields,
        *(
            PartitionField(table.find_field(one).field_id, 1002 + at, IdentityTransform(), one)
            for at, one in enumerate(kinds)
        ),
    )
    name = made(lake, table, spec)
    rows = [
        ("a/b?#%é", "1969-12-31", -5, Decimal("-1.28"), "0001-01-01T00:00:00.000001Z", True),
        (None, None, None, None, None, None),
        ("null", "9999-12-31", 0, Decimal("0.00"), "9999-12-31T23:59:59.999999Z", False),
        ("w" * 300, "0001-01-01", 7, Decimal("1.28"), "1969-12-31T23:59:59.999999Z", None),
    ]
    texts = [json.dumps({"n": n, **dict(zip(kinds, rows[n % 4], strict=True))}, default=float) for n in range(12)]
    files = written(lake, name, schema, texts[:6], texts[6:])
    assert [file.record_count for file in files] == [3, 3, 3, 3]
    interval = 1767225600000000
    assert {tuple(file.partition[n] for n in range(8)) for file in files} == {
        (interval, 3, "a/b?#%é", -1, -5, Decimal("-1.28"), -62135596799999999, True),
        (interval, 3, None, None, None, None, None, None),
        (interval, 3, "null", 2932896, 0, Decimal("0.00"), 253402300799999999, False),
        (interval, 3, "w" * 300, -719162, 7, Decimal("1.28"), -1, None),
    }
    micros = [-62135596799999999, None, 253402300799999999, -1]
    expected = [(*row[:4], micros[number], row[5]) for number, row in enumerate(rows)] * 3
    picked = ["cast(day as string)", "x", "d", "unix_micros(moment)", "flag"]
    spark = by_spark(lake, name, "`a-b`", *picked)
    assert spark == expected
    duck = by_duckdb(lake, name, '"a-b"', "cast(day as varchar)", "x", "d", "epoch_us(moment)", "flag")
    assert duck == expected
    for n, (text, day, _, d, _, _) in enumerate(rows):
        if text is not None:
            where = f"day = date '{day}' and d = {d} and {{}} = '{text}'"
            assert by_spark(lake, name, "n", where=where.format("`a-b`")) == [(n,), (n + 4,), (n + 8,)]
            assert duck_where(lake, name, where.format('"a-b"')) == [n, n + 4, n + 8]
    assert by_spark(lake, name, "n", where="x is null") == [(1,), (5,), (9,)]


def test_columns_are_added_by_the_commit_that_has_their_values(lake: Lake) -> None:
    """Before it, rows have null there; fields within structs, arrays and maps are added too."""
    before = columns(n="int", s="struct<a:int>", l="array<struct<a:int>>", m="map<string,struct<a:int>>")
    after = columns(
        n="int",
        s="struct<a:int,b:array<struct<c:int>>>",
        l="array<struct<a:int,b:string>>",
        m="map<string,struct<a:int,b:date>>",
        late="map<string,decimal(9,2)>",
    )
    name = made(lake, new_schema(before))
    written(lake, name, before, ['{"n": 1, "s": {"a": 1}, "l": [{"a": 1}], "m": {"k": {"a": 1}}}'])
    table = lake.table(name)
    assert column_differences(name, after, table.schema(), add=True) == []
    rows = [
        '{"n": 2, "s": {"a": 2, "b": [{"c": 5}, null]}, "l": [{"a": 2, "b": "x"}, null], "m": {"k": {"a": 2, "b": "2026-01-31"}},'
        ' "late": {"k": 1.5}}'
    ]
    written(lake, name, after, rows, add=True)
    assert len(lake.history(name)) == 2
    assert by_duckdb(lake, name, "s", "l", "m", "late") == [
        ({"a": 1, "b": None}, [{"a": 1, "b": None}], {"k": {"a": 1, "b": None}}, None),
        (
            {"a": 2, "b": [{"c": 5}, None]},
            [{"a": 2, "b": "x"}, None],
            {"k": {"a": 2, "b": date(2026, 1, 31)}},
            {"k": Decimal("1.50")},
        ),
    ]
    texts = [text for (text,) in by_spark(lake, name, f"to_json(struct(s, l, m, late), {FULL})")]
    assert [json.loads(text) for text in texts] == [
        {"s": {"a": 1, "b": None}, "l": [{"a": 1, "b": None}], "m": {"k": {"a": 1, "b": None}}, "late": None},
        {key: value for key, value in json.loads(rows[0]).items() if key != "n"},
    ]
