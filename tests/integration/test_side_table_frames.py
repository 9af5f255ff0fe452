"""Side tables as DataFrames: their values are the table's, and a join with them is a broadcast join at any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable
from fencepost.errors import SideTableRefused
from fencepost.formats.json import fields_of
from fencepost.rows.row_by_row import partitions_read
from fencepost.rows.transform import SOURCE_VIEW, select
from fencepost.side_tables import frames
from fencepost.side_tables.content import MIB, TableContent, content_of
from fencepost.side_tables.frames import empty_frames, frames_of

TYPES = {
    "id": "int",
    "flag": "boolean",
    "tiny": "tinyint",
    "small": "smallint",
    "whole": "bigint",
    "single": "float",
    "number": "double",
    "price": "decimal(38,18)",
    "name": "string",
    "data": "binary",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "list": "array<timestamp>",
    "map": "map<string,decimal(5,2)>",
    "fields": "struct<x: date, y: array<struct<z: binary>>>",
}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "flag": True,
        "tiny": -128,
        "small": -32768,
        "whole": -(2**63),
        "single": 0.1,
        "number": -0.0,
        "price": Decimal("12345678901234567890.123456789012345678"),
        "name": "Zürich\0",
        "data": b"\x00\xff",
        "day": date(1, 1, 1),
        "at": datetime(1, 1, 1, tzinfo=UTC),
        "local": datetime(1, 1, 1),  # noqa: DTZ001
        "list": [datetime(1883, 11, 18, 17, 0, 0, 1, tzinfo=UTC), None],
        "map": [("a", Decimal("-1.50")), ("b", None)],
        "fields": {"x": date(1582, 10, 10), "y": [{"z": b"a"}, None]},
    },
    {
        "id": 2,
        "number": float("nan"),
        "name": "",
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "local": datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        "list": [],
        "map": [],
    },
    {"id": 3},
]
TO_JSON = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS", "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS"}
AS_JSON = [
    '{"id":1,"flag":true,"tiny":-128,"small":-32768,"whole":-9223372036854775808,"single":0.1,"number":-0.0,'
    '"price":12345678901234567890.123456789012345678,"name":"Zürich\\u0000","data":"AP8=","day":"0001-01-01",'
    '"at":"0001-01-01 00:00:00.000000","local":"0001-01-01 00:00:00.000000",'
    '"list":["1883-11-18 17:00:00.000001",null],"map":{"a":-1.50,"b":null},'
    '"fields":{"x":"1582-10-10","y":[{"z":"YQ=="},null]}}',
    '{"id":2,"number":"NaN","name":"","day":"9999-12-31","at":"9999-12-31 23:59:59.999999",'
    '"local":"1969-12-31 23:59:59.999999","list":[],"map":{}}',
    '{"id":3}',
]


def content(rows: pa.Table, schema: StructType, name: str = "goods", **settings: Any) -> tuple[Pipeline, TableContent]:
    """A side table with these rows, and its pipeline."""
    table = FileTable.model_validate({"file": "t.csv", "key": "id", "max_megabytes": 1024, **settings})
    pipeline = Pipeline.model_construct(name="shop", folder=Path(), tables={name: table})
    return pipeline, content_of(pipeline, name, rows, schema)


@pytest.fixture
def utc(spark: SparkSession) -> SparkSession:
    """A session with the settings that every session of a pipeline has."""
    from fencepost.spark.session import session_of_its_own

    return session_of_its_own(spark, Pipeline.model_construct(name="shop", folder=Path(), spark={}))


@pytest.mark.parametrize("most", [MIB, 0])
def test_values_are_those_of_the_table(utc: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """As Spark's own texts say, for every type, in both ways in which Spark holds a table."""
    monkeypatch.setattr(frames, "MOST_IN_PLAN", most)
    schema = fields_of(TYPES)
    pipeline, one = content(pa.Table.from_pylist(ROWS, to_arrow_schema(schema, timestamp_utc=True)), schema)
    frame = frames_of(utc, pipeline, {"goods": one})["goods"]
    assert frame.schema == schema
    found = frame.orderBy("id").select(F.to_json(F.struct("*"), TO_JSON)).collect()
    assert [row[0] for row in found] == AS_JSON
    assert ("LocalRelation" in plan(frame)) is (most > 0)
    assert frames_of(utc, pipeline, {"goods": one})["goods"].agg({"whole": "count"}).collect()[0][0] == 1


def plan(frame: DataFrame) -> str:
    """The optimized and the physical plan of a DataFrame."""
    execution: Any = frame._jdf.queryExecution()
    return f"{execution.optimizedPlan()}\n{execution.executedPlan()}"


LARGE = StructType([StructField("id", LongType()), StructField("name", StringType())])


@pytest.fixture(scope="module")
def large() -> tuple[Pipeline, TableContent]:
    """12 MB, which Spark does not broadcast by itself."""
    names = pa.table({"id": range(12_000), "name": [f"{n:01000d}" for n in range(12_000)]})
    pipeline, one = content(names, LARGE)
    assert one.state.bytes > 11 * MIB
    return pipeline, one


def of_python(source: DataFrame, goods: DataFrame) -> DataFrame:
    wanted = goods.where("id < 11000").selectExpr("id", "length(name) AS long")
    return source.join(wanted, "id", "left").select("id", "long")


def of_sql(text: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def transform(source: DataFrame, goods: DataFrame) -> DataFrame:
        return select(source.sparkSession, text, {SOURCE_VIEW: source, "source": source, "goods": goods})

    return transform


JOINS: Sequence[Callable[[DataFrame, DataFrame], DataFrame]] = (
    of_python,
    of_sql("SELECT id, CASE WHEN id < 11000 THEN length(name) END FROM source LEFT JOIN goods USING (id)"),
    of_sql(
        "SELECT s.id, a.long FROM {source} s LEFT JOIN goods b ON b.id = s.id + 1 "
        "LEFT JOIN (SELECT id, length(name) AS long FROM goods WHERE id < 11000) a ON s.id = a.id"
    ),
)
# Spark forgets the hint of a table in WITH, in a union and in an aggregate.
WITHOUT_HINT = (
    of_sql(
        "WITH some AS (SELECT length(name) AS long, id AS number FROM goods WHERE id < 11000) "
        "SELECT s.id, a.long FROM source s LEFT JOIN some a ON a.number = s.id"
    ),
    of_sql("SELECT id, (SELECT max(length(name)) FROM goods g WHERE g.id = s.id AND g.id < 11000) FROM source s"),
    of_sql(
        "SELECT s.id, long FROM source s LEFT JOIN (SELECT id, length(name) AS long FROM goods WHERE id < 9 UNION ALL "
        "SELECT id, length(name) AS long FROM goods WHERE id BETWEEN 9 AND 10999) g ON g.id = s.id"
    ),
)


def moves_no_row(source: DataFrame, result: DataFrame) -> None:
    assert len(partitions_read(source)) == 3
    assert len(partitions_read(result)) == 3
    assert "BroadcastHashJoin" in plan(result)
    assert sorted(map(tuple, result.collect())) == [(n, 1000 if n < 11_000 else None) for n in range(10_990, 11_010)]


@pytest.mark.parametrize("join", JOINS, ids=["Python", "USING", "twice"])
def test_a_join_with_a_large_table_moves_no_row_of_the_source(
    utc: SparkSession, large: tuple[Pipeline, TableContent], join: Callable[[DataFrame, DataFrame], DataFrame]
) -> None:
    source = utc.range(10_990, 11_010, 1, 3)
    moves_no_row(source, join(source, frames_of(utc, large[0], {"goods": large[1]})["goods"]))


@pytest.mark.parametrize("join", WITHOUT_HINT, ids=["WITH", "aggregate", "union"])
def test_a_table_of_usual_size_is_broadcast_where_the_hint_is_lost(
    utc: SparkSession,
    large: tuple[Pipeline, TableContent],
    join: Callable[[DataFrame, DataFrame], DataFrame],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = utc.range(10_990, 11_010, 1, 3)
    monkeypatch.setattr(frames, "MOST_IN_PLAN", 20 * MIB)
    moves_no_row(source, join(source, frames_of(utc, large[0], {"goods": large[1]})["goods"]))


def test_a_table_without_rows_gives_nulls(utc: SparkSession) -> None:
    pipeline, one = content(pa.table({"id": [], "name": []}).cast(to_arrow_schema(LARGE)), LARGE, not_empty=False)
    for goods in (frames_of(utc, pipeline, {"goods": one})["goods"], empty_frames(utc, [one.state])["goods"]):
        assert goods.schema == LARGE
        result = utc.range(2).join(goods, "id", "left")
        assert sorted(map(tuple, result.collect())) == [(0, None), (1, None)]


def test_a_setting_of_the_session_is_kept(utc: SparkSession, large: tuple[Pipeline, TableContent]) -> None:
    before = utc.conf.get(frames.THRESHOLD)
    frames_of(utc, large[0], {"goods": large[1]})
    assert utc.conf.get(frames.THRESHOLD) == before


def test_tables_that_the_drivers_memory_does_not_hold_are_refused(
    utc: SparkSession, large: tuple[Pipeline, TableContent]
) -> None:
    pipeline, one = large
    for changes in ({"bytes": 10**12}, {"rows": 10**10}):
        too_much = TableContent(one.state.model_copy(update=changes), one.rows, one.schema)
        with pytest.raises(SideTableRefused, match=r"^pipeline shop: .* Set spark\.driver\.memory to \d+m or more, or"):
            frames_of(utc, pipeline, {"goods": too_much})
