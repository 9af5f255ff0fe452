"""Layout `source`: the transform has to work row by row. So each Spark partition of its result comes from one partition
of its input.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import OffsetRange

Read = OffsetRange | str
R = TypeVar("R", OffsetRange, Read)


class RowsMoved(Exception):
    """The Spark partitions of a DataFrame are not those of its input. The DataFrame shuffles, or reads another input."""


def partitions_read(frame: DataFrame) -> list[Read]:
    """Returns the input of each Spark partition of a DataFrame. An input is an offset range, or otherwise the kind and
    the number of Spark's own partition.

    The connector's RDD keeps one partition per range, even for empty ranges, through filters, projections and broadcast
    joins. A union has the partitions of each of its inputs.
    """
    return [_read_by(partition) for partition in frame._jdf.queryExecution().toRdd().partitions()]


def _read_by(partition: Any) -> Read:
    kind = partition.getClass().getSimpleName()
    if kind == "UnionPartition":
        return _read_by(partition.parentPartition())
    inputs = partition.inputPartitions() if kind == "DataSourceRDDPartition" else None
    if inputs is None or inputs.size() != 1 or inputs.head().getClass().getSimpleName() != "KafkaBatchInputPartition":
        return f"{kind} {partition.index()}"
    found = inputs.head().offsetRange()
    read = found.topicPartition()
    return OffsetRange(
        topic=read.topic(), partition=read.partition(), start=found.fromOffset(), end=found.untilOffset()
    )


def require_read(frame: DataFrame, read: Collection[R]) -> list[R]:
    """Returns the input of each Spark partition of a DataFrame. Every input in `read` has to occur exactly once, and no
    other input.

    Raises:
        RowsMoved: the inputs are not those in `read`. No job has run.
    """
    found = partitions_read(frame)
    if len(found) != len(read) or set(found) != set(read):
        raise RowsMoved
    by_itself: dict[Read, R] = {one: one for one in read}
    return [by_itself[one] for one in found]


def check_row_by_row(pipeline: Pipeline, result: DataFrame, read: Collection[Read]) -> None:
    """Checks that each Spark partition of a transform's result comes from one of the inputs in `read`.

    Raises:
        SettingsError: the transform shuffles, or reads something other than its source.
    """
    try:
        require_read(result, read)
    except RowsMoved:
        raise not_row_by_row(pipeline) from None


def not_row_by_row(pipeline: Pipeline) -> SettingsError:
    """Returns the error about a transform that shuffles, or that joins sources, under layout `source`."""
    several = ", joins of two sources, a source used twice" if pipeline.several else ""
    return SettingsError(
        f"{pipeline.transform_file}: under output.layout: source a transform works row by row, so that each "
        "task-partition is one source partition. This transform shuffles, merges or splits partitions (aggregates, sorts, "
        f"distinct, repartition, joins that are not broadcast{several}). Set output.layout: output, or remove these operations."
    )
