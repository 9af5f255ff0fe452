"""Gives the contents of side tables to Spark, as DataFrames that are broadcast."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import SideTableRefused
from fencepost.model import SideTableState
from fencepost.side_tables.content import MIB, TableContent
from fencepost.spark.sql_settings import set_for_now

THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"
# Up to this size a table is rows in Spark's plan. Then Spark knows the size, and broadcasts the table even where the hint gets
# lost, as in WITH. Of a larger table the plan has Arrow's batches, which take a third of the driver's heap.
MOST_IN_PLAN = 10 * MIB
# What the driver's heap needs for each row and for each byte of a table until it is broadcast, and besides. In 512 MB the
# largest tables that Spark broadcast had 2.2 million rows of two integers, or 115 MB in rows of 2 kB; in the plan they had
# 790,000 rows *(measured)*.
HEAP_PER_ROW, HEAP_PER_BYTE, HEAP_BESIDES = 80, 4, 100 * MIB
HEAP_PER_ROW_IN_PLAN, HEAP_PER_BYTE_IN_PLAN = 400, 8


def frames_of(spark: SparkSession, pipeline: Pipeline, tables: Mapping[str, TableContent]) -> dict[str, DataFrame]:
    """Returns the side tables as DataFrames. A join with one of them is a broadcast join, whatever the table's size.

    Raises:
        SideTableRefused: the driver's memory is too small for the tables.
    """
    _check_memory(spark, pipeline, tables)
    return {name: F.broadcast(_frame(spark, content)) for name, content in tables.items()}


def _frame(spark: SparkSession, content: TableContent) -> DataFrame:
    with set_for_now(spark, {THRESHOLD: str(2**40 if _is_in_plan(content) else 0)}):
        return spark.createDataFrame(content.rows, content.schema)


def _is_in_plan(content: TableContent) -> bool:
    return _size_in_spark(content) <= MOST_IN_PLAN


def _size_in_spark(content: TableContent) -> int:
    """Returns how many bytes the rows have in Spark, where every column takes eight, and the values of texts besides."""
    return content.state.bytes + 8 * content.state.rows * len(content.schema.fields)


def empty_frames(spark: SparkSession, states: Iterable[SideTableState]) -> dict[str, DataFrame]:
    """Returns DataFrames without rows, with the columns of these states. Spark can analyse a transform with them."""
    return {
        state.name: F.broadcast(spark.createDataFrame([], StructType.fromJson(json.loads(state.value_schema))))
        for state in states
    }


def _check_memory(spark: SparkSession, pipeline: Pipeline, tables: Mapping[str, TableContent]) -> None:
    if not tables:
        return
    needed = HEAP_BESIDES + sum(map(_heap_of, tables.values()))
    heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    if needed <= heap:
        return
    largest = max(tables.values(), key=_heap_of).state
    raise SideTableRefused(
        f"pipeline {pipeline.name}: to broadcast its side tables the driver of the Spark job needs {needed / MIB:,.0f} MB of "
        f"memory, and has {heap / MIB:,.0f} MB. The largest is {largest.name}, with {count_of(largest.rows, 'row')} and "
        f"{largest.bytes / MIB:,.1f} MB. Set spark.driver.memory to {needed * 5 // 4 // MIB + 1}m or more, or make the tables "
        "smaller."
    )


def _heap_of(content: TableContent) -> int:
    size, rows = _size_in_spark(content), content.state.rows
    if _is_in_plan(content):
        return size * HEAP_PER_BYTE_IN_PLAN + rows * HEAP_PER_ROW_IN_PLAN
    return size * HEAP_PER_BYTE + rows * HEAP_PER_ROW
