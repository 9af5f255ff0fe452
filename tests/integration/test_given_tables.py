"""The side tables that a test gives to `fencepost_transform` reach the transform as in a run, typed and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql.types import StructType

from fencepost.errors import SettingsError, SideTableRefused
from fencepost.side_tables.declared import declared_columns
from fencepost.testing.trial import Trials

Make = Callable[..., Path]
names = count(1)
ONE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]"
AIRLINES = {"file": "airlines.csv", "key": "carrier", "schema": {"carrier": "string", "name": "string"}}
JOIN = "SELECT _key, n, carrier, airlines.name FROM {source} LEFT JOIN airlines USING (carrier)"
ROWS = [{"n": 1, "carrier": "UA"}, {"n": 2, "carrier": "ZZ"}]


@pytest.fixture(scope="module")
def run(spark: Any) -> Iterator[Trials]:
    """The fixture's own object, on the session that the tests share."""
    with Trials() as trials:
        yield trials


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(transform: str, tables: Any) -> Path:
        folder = tmp_path / f"t{next(names)}"
        folder.mkdir()
        settings = {
            "source": {"topic": "in", "schema": {"n": "int", "carrier": "string"}},
            "output": {"topic": "out", "key": "_key"},
            "schedule": {"start": "2026-01-01"},
            "tables": tables,
            "postgres": {"host": "${NOWHERE_SET}", "dbname": "sales", "user": "reader"},
        }
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        (folder / ("transform.sql" if transform.startswith("SELECT") else "transform.py")).write_text(transform)
        (folder / "expectations.yaml").write_text(ONE)
        return folder

    return made


def test_a_transform_in_sql_and_one_in_python_get_the_given_rows(run: Trials, make: Make) -> None:
    """Layout `source` allows the join, because the table is broadcast."""
    python = (
        "def transform(source, airlines):\n    return source.join(airlines, 'carrier', 'left')"
        ".select('_key', 'n', 'carrier', 'name')\n"
    )
    given = {"airlines": [{"carrier": "UA", "name": "United"}, {"carrier": "AA"}]}
    for transform in (JOIN, python):
        found = run(make(transform, {"airlines": AIRLINES}), [*ROWS, {"n": 3, "carrier": "AA"}], tables=given)
        assert found.rows == [
            {"n": 1, "carrier": "UA", "name": "United"},
            {"n": 2, "carrier": "ZZ", "name": None},
            {"n": 3, "carrier": "AA", "name": None},
        ], "what is missing in a row is null"


def test_a_table_may_be_given_without_rows_although_a_run_refuses_it(run: Trials, make: Make) -> None:
    assert run(make(JOIN, {"airlines": AIRLINES}), ROWS[:1], tables={"airlines": []}).rows == [
        {"n": 1, "carrier": "UA", "name": None}
    ]
    undeclared = {name: AIRLINES[name] for name in ("file", "key")}
    with pytest.raises(
        SettingsError, match=r"airlines: without a row its columns are not known. Give a row, or declare"
    ):
        run(make(JOIN, {"airlines": undeclared}), ROWS, tables={"airlines": []})


def test_declared_types_are_those_of_the_settings_and_others_those_of_the_values(run: Trials, make: Make) -> None:
    def types_of(table: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The row as the transform sees it, and the types of its columns."""
        transform = (
            "def transform(source, t):\n    types = ','.join(kind for _, kind in t.dtypes)\n"
            "    return source.crossJoin(t).selectExpr('_key', *t.columns, f\"'{types}' AS types\")\n"
        )
        (found,) = run(make(transform, {"t": {"key": "none", **table}}), ROWS[:1], tables={"t": [row]}).rows
        assert found is not None
        return found, found.pop("types")

    schema = {"i": "int", "d": "date", "m": "decimal(10,2)", "a": "array<int>"}
    declared = {"i": 1, "d": "2026-01-31", "m": "1.5", "a": [1, None]}
    assert types_of({"query": "SELECT 1", "schema": schema}, declared) == (
        {"i": 1, "d": date(2026, 1, 31), "m": Decimal("1.50"), "a": [1, None]},
        "int,date,decimal(10,2),array<int>",
    )
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    free = {"i": 1, "x": 1.5, "b": True, "s": "a", "t": noon, "m": Decimal("1.50"), "z": None}
    assert types_of({"query": "SELECT 1"}, free) == (
        free,
        "bigint,double,boolean,string,timestamp,decimal(3,2),string",
    )


def test_the_columns_of_a_topic_are_those_of_its_records(run: Trials, make: Make) -> None:
    customers = {
        "topic": "customers",
        "schema": {"name": "string", "rank": "int"},
        "key_format": "json",
        "key_schema": {"id": "int"},
        "key": "_key_id",
    }
    transform = "SELECT s._key, n, c.name, c._key_id AS id FROM {source} s JOIN customers c ON s.n = c._key_id"
    folder = make(transform, {"customers": customers})
    given = [{"_key": '{"id": 1}', "_key_id": 1, "name": "Ann"}, {"_key_id": 2, "name": "Ben", "rank": 3}]
    assert run(folder, ROWS, tables={"customers": given}).rows == [
        {"n": 1, "name": "Ann", "id": 1},
        {"n": 2, "name": "Ben", "id": 2},
    ]
    with pytest.raises(
        SettingsError,
        match=r"tables: customers: row 0: no column '_offset'; it has name, rank, _key, _key_id",
    ):
        run(folder, ROWS, tables={"customers": [{"_offset": 1}]})


def test_a_file_that_is_not_given_is_read_and_another_table_is_asked_for(run: Trials, make: Make) -> None:
    folder = make(JOIN, {"airlines": AIRLINES})
    (folder / "airlines.csv").write_text("carrier,name\nUA,From the file\n")
    assert run(folder, ROWS[:1]).rows == [{"n": 1, "carrier": "UA", "name": "From the file"}]
    customers = {"topic": "customers", "schema": {"name": "string"}, "key": "name"}
    with pytest.raises(SettingsError) as raised:
        run(make("SELECT _key, n FROM {source}, customers", {"customers": customers}), ROWS)
    assert str(raised.value).endswith(
        "side table customers is topic customers, which a test does not read. Give its rows: "
        'tables={"customers": [{"name": ..., ...}]}.'
    )


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"airline": []}, "tables: no side table 'airline'; its side tables are airlines."),
        ({"airlines": ["UA"]}, "tables: airlines: row 0 is no dict of its columns."),
        (
            {"airlines": [{"carrier": "UA"}, {"nme": "x"}]},
            "tables: airlines: row 1: no column 'nme'; it has carrier, name.",
        ),
        ({"airlines": [{"carrier": 1}]}, "tables: airlines: row 0: carrier: 1 is no string."),
    ],
)
def test_what_no_table_can_have_is_refused_by_name(run: Trials, make: Make, tables: Any, words: str) -> None:
    folder = make(JOIN, {"airlines": AIRLINES})
    with pytest.raises(SettingsError) as raised:
        run(folder, ROWS, tables=tables)
    assert str(raised.value) == f"pipeline {folder.name}: {words}"


def test_values_without_a_common_type_are_refused_by_name(run: Trials, make: Make) -> None:
    undeclared = {"query": "SELECT 1", "key": "carrier"}
    with pytest.raises(SettingsError, match="airlines: column 'name': the values have no common type"):
        run(
            make(JOIN, {"airlines": undeclared}),
            ROWS,
            tables={"airlines": [{"carrier": "a", "name": 1}, {"carrier": "b", "name": "x"}]},
        )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"carrier": "UA"}, {"carrier": "UA"}], "the key (carrier) is not unique: 1 row has the key of another row"),
        ([{"name": "United"}], "key carrier is null in 1 row"),
    ],
)
def test_the_key_is_checked_as_in_a_run(run: Trials, make: Make, rows: Any, words: str) -> None:
    with pytest.raises(SideTableRefused) as raised:
        run(make(JOIN, {"airlines": AIRLINES}), ROWS, tables={"airlines": rows})
    assert f"side table airlines, file airlines.csv: {words}" in str(raised.value)


def test_a_pipeline_without_side_tables_says_so(run: Trials, make: Make) -> None:
    with pytest.raises(SettingsError, match="tables: no side table 'airlines'; it has no side tables"):
        run(make("SELECT _key, n FROM {source}", {}), ROWS, tables={"airlines": []})


def test_declared_types_are_the_types_that_spark_reads_in_the_same_words(spark: Any) -> None:
    kinds = "string binary boolean byte tinyint short smallint int integer long bigint real float double date timestamp"
    words = [
        *kinds.split(),
        "timestamp_ntz",
        "dec",
        "decimal(12)",
        "decimal(38, 10)",
        "array<array<int>>",
        "map<string, struct<a: date>>",
        "STRUCT<a: int, `b c`: array<string>>",
    ]
    types = {f"c{number}": kind for number, kind in enumerate(words)}
    by_spark = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in types.items()))
    assert declared_columns(types) == by_spark
