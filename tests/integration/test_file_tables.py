"""Side tables that are files: each value is what the file says, or the file is refused with its row."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable
from fencepost.errors import SettingsError, SideTableRefused, TableUnavailable
from fencepost.model import State
from fencepost.side_tables import files
from fencepost.side_tables.content import TableContent
from fencepost.side_tables.files import read_file_table
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import run

Read = Callable[..., TableContent]
LOCAL = datetime(2026, 1, 31, 12)  # noqa: DTZ001


@pytest.fixture
def read(tmp_path: Path, spark: Any) -> Read:
    """Read a file with this content as a side table."""

    def read(data: str | bytes, file: str = "goods.csv", schema: dict[str, str] | None = None, **settings: Any) -> Any:
        (tmp_path / file).write_bytes(data.encode() if isinstance(data, str) else data)
        declared = {"schema": schema} if schema else {}
        table = FileTable.model_validate({"file": file, "key": "none", **declared, **settings})
        pipeline = Pipeline.model_construct(name="shop", folder=tmp_path, tables={"goods": table})
        return read_file_table(pipeline, "goods", table)

    return read


def rows(content: TableContent) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in content.rows.to_pylist()]


def test_csv_has_nulls_empty_texts_and_lines_in_quotes(read: Read) -> None:
    found = read('\ufeffid,"a ""name""",n\r\n1,"x\r\ny",\r\n\r\n2,"",0\r\n3,, q"q', key="id")
    assert found.schema.simpleString() == 'struct<id:bigint,a "name":string,n:string>'
    assert rows(found) == [(1, "x\r\ny", None), (2, "", "0"), (3, None, ' q"q')]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ("0 -7 9223372036854775807", "bigint"),
        ("0 9223372036854775808", "string"),
        ("10115 01067", "string"),
        ("+1", "string"),
        ("0.10 -2 3.5", "double"),
        ("1e5", "string"),
        ("NaN 1.5", "string"),
        ("0.1234567890123456", "string"),
        ("true FALSE", "boolean"),
        ("true 1", "string"),
        ("2024-02-29 1999-12-31", "date"),
        ("2026-02-29", "string"),
        ("2026-01-31T12:00:00Z", "string"),
        ('""', "string"),
    ],
)
def test_types_are_inferred_only_without_a_doubt(read: Read, texts: str, kind: str) -> None:
    found = read("a,b\n" + "".join(f"{text},\n" for text in [*texts.split(), ""]))
    assert found.schema.simpleString() == f"struct<a:{kind},b:string>"
    assert found.rows["a"].null_count == 1
    if kind == "string":
        assert set(found.rows["a"].to_pylist()) == {*texts.replace('"', "").split(" "), None}


def test_declared_columns_have_their_types_exactly(read: Read) -> None:
    schema = {"at": "timestamp", "price": "decimal(5,2)", "flag": "boolean", "n": "tinyint not null", "zip": "string"}
    schema |= {"local": "timestamp_ntz", "day": "date", "single": "float", "number": "double"}
    text = (
        "left_out,zip,n,flag,price,at,local,day,single,number\n"
        "x,01067,-128,True,1.5,2026-01-31 12:00:00.000001+01:00,2026-01-31T12:00:00,2026-01-31,0.1,-0\n"
        ",,1,,,,,,,\n"
    )
    found = read(text, schema=schema)
    moment, single = datetime(2026, 1, 31, 11, 0, 0, 1, tzinfo=UTC), 0.10000000149011612
    assert found.rows.column_names == list(schema)
    assert rows(found) == [
        (moment, Decimal("1.50"), True, -128, "01067", LOCAL, date(2026, 1, 31), single, 0.0),
        (None, None, None, 1, None, None, None, None, None),
    ]
    assert str(found.rows["number"][0]) == "-0.0"


MISFITS = [
    ("n", "int", "1.5"),
    ("n", "tinyint", "128"),
    ("n", "int", " 1"),
    ("n", "bigint", "007"),
    ("n", "decimal(5,2)", "0.125"),
    ("n", "double", "NaN"),
    ("n", "double", "1e400"),
    ("n", "boolean", "yes"),
    ("n", "date", "2026-01-31 12:00"),
    ("n", "timestamp", "2026-01-31T12:00:00.1234567Z"),
    ("n", "timestamp_ntz", "2026-01-31T12:00:00Z"),
]


@pytest.mark.parametrize(("name", "kind", "text"), MISFITS)
def test_a_text_that_would_be_rounded_or_cut_is_refused_with_its_row(
    read: Read, name: str, kind: str, text: str
) -> None:
    wanted = rf"^pipeline shop: side table goods, file goods\.csv: row 2: {name}: .* Correct the file, or declare n as string\.$"
    with pytest.raises(SideTableRefused, match=wanted) as refusal:
        read(f"m,n\n,\n\n,{text}\n", schema={name: kind})
    assert text not in str(refusal.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty. Its first row has the names of the columns."),
        (b"a,b\n1,2\n3\n4,5,6\n", "row 2 has 1 field for 2 names (1 other row is like it). "),
        (b'a,b\n"x\ny",1\n2\n', "row 2 has 1 field for 2 names. "),
        (b'a,b\n1,2\n"3,4\n', "in line 3 a field in quotes has no end, or text behind its end. "),
        (b'a,b\n1,2\n3,"4', "in line 3 a field in quotes has no end, or text behind its end. "),
        (b'a,b\n"x"y,2\n', "in line 2 a field in quotes has no end, or text behind its end. "),
        (b"a,a\n1,2\n", "two columns have the name 'a'. Rename one."),
        (b"a,A\n1,2\n", "columns 'a' and 'A' have the same name to Spark"),
        (b"a, \n1,2\n", "column 2 has no name in the first row. "),
        ("a,b\n1,Zürich\n".encode("latin-1"), "line 2 is not UTF-8. "),
        ("a,b\n1,2\n".encode("utf-16"), "line 1 is not UTF-8. "),
    ],
)
def test_what_is_no_csv_is_refused_with_its_line(read: Read, data: bytes, reason: str) -> None:
    with pytest.raises(SideTableRefused) as refusal:
        read(data)
    assert str(refusal.value).startswith(f"pipeline shop: side table goods, file goods.csv: {reason}")


def test_columns_of_the_schema_and_of_the_file_are_compared(read: Read) -> None:
    with pytest.raises(
        SideTableRefused, match=r"it has no column c, which the schema declares\. Its columns are a, b\."
    ):
        read("a,b\n1,2\n", schema={"a": "int", "c": "int"})
    with pytest.raises(SideTableRefused, match="column a is declared not null, and is null in 1 row"):
        read("a,b\n,2\n", schema={"a": "int not null"})


def test_json_lines_mean_what_a_source_reads(read: Read) -> None:
    schema = {"id": "bigint", "price": "decimal(20,2)", "tags": "array<struct<x: string>>", "zip": "string"}
    lines = '{"id":9007199254740993,"price":0.10,"tags":[{"x":"a"},null],"more":1}\r\n\n{"id":2,"zip":-0}\n'
    assert rows(read(lines, "goods.jsonl", schema, key="id")) == [
        (2, None, None, "-0"),
        (2**53 + 1, Decimal("0.10"), [{"x": "a"}, None], None),
    ]
    with pytest.raises(
        SideTableRefused, match=r"file goods\.ndjson: line 3 is malformed: id: not an integer of 64 bits \(1 other line"
    ):
        read('{"id":1}\n\n{"id":1.5}\n{"id":', "goods.ndjson", {"id": "bigint"})
    with pytest.raises(SideTableRefused, match="line 1 is malformed: id: null or missing, and declared not null"):
        read("{}", "goods.jsonl", {"id": "bigint not null"})


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def column(values: list[Any], kind: pa.DataType, **options: Any) -> bytes:
    return parquet(pa.table({"a": pa.array(values, kind)}), **options)


FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
PARQUET: list[tuple[bytes, str, list[Any]]] = [
    (column([2**64 - 1], pa.uint64()), "decimal(20,0)", [Decimal(2**64 - 1)]),
    (column([2**32 - 1], pa.uint32()), "bigint", [2**32 - 1]),
    (column(["a", None, "a"], pa.dictionary(pa.int8(), pa.string())), "string", ["a", "a", None]),
    (column(["a"], pa.large_string()), "string", ["a"]),
    (column([[1, None]], pa.large_list(pa.int8())), "array<tinyint>", [[1, None]]),
    (column([b"ab"], pa.binary(2)), "binary", [b"ab"]),
    (column([FIRST, LAST], pa.timestamp("us")), "timestamp_ntz", [FIRST, LAST]),
    (column([FIRST], pa.timestamp("us", "UTC")), "timestamp", [FIRST.replace(tzinfo=UTC)]),
    (column([0], pa.timestamp("ns", "Europe/Berlin")), "timestamp", [datetime(1970, 1, 1, tzinfo=UTC)]),
    (
        # As Spark writes a timestamp.
        column([FIRST, LAST], pa.timestamp("us"), use_deprecated_int96_timestamps=True),
        "timestamp",
        [FIRST.replace(tzinfo=UTC), LAST.replace(tzinfo=UTC)],
    ),
    (
        column([Decimal("1.10")], pa.decimal256(40, 2)),
        "",
        ["column a has the type decimal256(40, 2), which a side table cannot have"],
    ),
    (column([1], pa.time64("us")), "", ["column a has the type time64[us], which a side table cannot have"]),
    (column([None], pa.null()), "", ["column a has the type null, which a side table cannot have"]),
    (
        column([1], pa.timestamp("ns")),
        "",
        ["column a has the type timestamp[ns], and a value that timestamp[us] does not hold"],
    ),
    (
        column([[FIRST]], pa.list_(pa.timestamp("us")), use_deprecated_int96_timestamps=True),
        "",
        ["column a has timestamps of 96 bits within its values"],
    ),
    (column([1], pa.int8())[:-5], "", ["the file is not Parquet, or is not whole"]),
    (b"a,b\n1,2\n", "", ["the file is not Parquet, or is not whole"]),
]


@pytest.mark.parametrize(("data", "kind", "wanted"), PARQUET)
def test_parquet_is_converted_exactly_or_refused(read: Read, data: bytes, kind: str, wanted: list[Any]) -> None:
    if kind:
        found = read(data, "goods.parquet")
        assert (found.schema.simpleString(), found.rows["a"].to_pylist()) == (f"struct<a:{kind}>", wanted)
    else:
        with pytest.raises(SideTableRefused) as refusal:
            read(data, "goods.parquet")
        assert str(refusal.value).startswith(f"pipeline shop: side table goods, file goods.parquet: {wanted[0]}")


def test_declared_columns_of_parquet_have_the_types_of_the_file(read: Read) -> None:
    data = parquet(pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([1], pa.time64("us"))}))
    assert rows(read(data, "goods.parquet", {"a": "int not null"})) == [(1,)]
    with pytest.raises(
        SideTableRefused, match=r"column a has the type int, and the schema in pipeline\.yaml declares bigint"
    ):
        read(data, "goods.parquet", {"a": "bigint"})


def test_a_file_that_is_too_large_is_not_read(read: Read, tmp_path: Path) -> None:
    """Neither on disk nor unpacked."""
    with pytest.raises(SideTableRefused, match=r"it has 1\.9 MB or more, and max_megabytes is 1\."):
        read("a\n" + "x" * 2_000_000, max_megabytes=1)
    small = parquet(pa.table({"a": ["x" * 1000] * 200_000}), compression="zstd")
    assert len(small) < 50_000
    with pytest.raises(SideTableRefused, match=r"it has [\d.]+ MB or more, and max_megabytes is 50\."):
        read(small, "goods.parquet", max_megabytes=50)


def test_a_file_that_cannot_be_read_is_named(read: Read, tmp_path: Path) -> None:
    table = FileTable.model_validate({"file": "none.csv", "key": "none"})
    pipeline = Pipeline.model_construct(name="shop", folder=tmp_path, tables={"goods": table})
    with pytest.raises(SettingsError, match=r"none\.csv: does not exist\.$"):
        read_file_table(pipeline, "goods", table)
    os.mkfifo(tmp_path / "none.csv")
    with pytest.raises(SettingsError, match=r"none\.csv: cannot be read: it is not a regular file\."):
        read_file_table(pipeline, "goods", table)


def test_a_file_that_changes_while_it_is_read_is_read_again(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two looks at it somebody writes, once, or again and again."""
    monkeypatch.setattr(files, "PAUSE", 0)
    state, changes = files._state, [b"a\n2\n3\n"]

    def changing(number: int) -> tuple[int, int, int]:
        found = state(number)
        if changes:
            (tmp_path / "goods.csv").write_bytes(changes.pop())
        return found

    monkeypatch.setattr(files, "_state", changing)
    assert rows(read("a\n1\n")) == [(2,), (3,)]
    changes += [b"a\n" + b"4\n" * n for n in range(20)]
    with pytest.raises(
        TableUnavailable, match=r"pipeline shop: side table goods: .*goods\.csv changed during each of 5 reads"
    ):
        read("a\n1\n")


AIRLINES = 'carrier,name,since\nAA,American,1930\nUA,United,\nB6,"JetBlue, New York",1998\n'
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
LOOKS_UP = """
def transform(flights, airlines):
    return flights.join(airlines, flights.name == airlines.carrier, "left").select("_key", "n", airlines.name, "since")
"""
IN_SQL = "SELECT _key, n, a.name, since FROM source f LEFT JOIN airlines a ON f.name = a.carrier"
WANTED = [
    {"n": 1, "name": "American", "since": 1930},
    {"n": 2, "name": "JetBlue, New York", "since": 1998},
    {"n": 3, "name": None, "since": None},
    {"n": 4, "name": "United", "since": None},
]


@pytest.mark.parametrize("language", ["py", "sql"])
def test_a_run_looks_up_in_a_file(
    spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], language: str
) -> None:
    tables = {"airlines": {"file": "airlines.csv", "key": "carrier"}}
    pipeline = make_pipeline(LOOKS_UP, SUITE, tables=tables)
    (pipeline.folder / "airlines.csv").write_text(AIRLINES)
    if language == "sql":
        pipeline.transform_file.unlink()
        (pipeline.folder / "transform.sql").write_text(IN_SQL)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    flights = [(f"{n}".encode(), {"n": n, "name": c}, n % 2, at(1)) for n, c in enumerate(["AA", "B6", "XX", "UA"], 1)]
    produce(broker.bootstrap, pipeline.source.topic, flights)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    found = [record.json for record in read_all(broker.bootstrap, pipeline.output.topic)]
    assert sorted(found, key=lambda row: row["n"]) == WANTED
