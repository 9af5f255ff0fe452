"""Layout `output`'s shuffle: every row to the Spark partition of its output partition, ordered inside.

Spark 4.0 shuffles by its own hash of a column only. So each output partition p gets a number whose Spark hash falls on
p, and the shuffle is by that number: Spark partition p then holds exactly the rows of output partition p.
"""

from __future__ import annotations

from itertools import count

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from fencepost.partitioning import partition_of


def place_by_key(records: DataFrame, partitions: int, *, total: bool = False) -> DataFrame:
    """The rows, in `partitions` Spark partitions, each in the source's order where the transform kept it.

    A transform keeps it by keeping `_partition` and `_offset`; without them rows are ordered by key and value, so that
    an attempt and its retry write the same sequence. A row without a key is placed by its value, for the same reason.
    `total`: rows that one source record became are in order too, by all their columns; a chain that is taken up counts rows.
    """
    shuffled = records.withColumn("_to", _partition_column(partitions)(F.coalesce("key", "value")))
    numbers = F.array(*(F.lit(n) for n in _numbers(records.sparkSession, partitions)))
    shuffled = shuffled.withColumn("_number", F.element_at(numbers, F.col("_to") + 1))
    kept = {"_partition", "_offset"} <= set(records.columns)
    order = ["_partition", "_offset"] if kept else ["key", "value"]
    if total:
        order += [name for name in records.columns if name not in order]
    return (
        shuffled.repartition(partitions, "_number")
        .sortWithinPartitions(*order)
        .drop("_to", "_number", "_partition", "_offset")
    )


def _partition_column(partitions: int):  # type: ignore[no-untyped-def]  # a pandas UDF has no public type
    @pandas_udf("int")  # type: ignore[call-overload, untyped-decorator]
    def partition(keys: pd.Series) -> pd.Series:
        return pd.Series(partition_of(pa.array(keys, pa.binary()), partitions))

    return partition


def _numbers(spark: SparkSession, partitions: int) -> list[int]:
    """For each partition, the smallest number that Spark's hash partitioning sends there."""
    found: dict[int, int] = {}
    for block in count():
        start = block * partitions * 8
        numbers = spark.range(start, start + partitions * 8).select(F.col("id").cast("int").alias("n"))
        place: Column = F.expr(f"pmod(hash(n), {partitions})")
        for row in numbers.select("n", place.alias("p")).collect():
            found.setdefault(row["p"], row["n"])
        if len(found) == partitions:
            break
    return [found[p] for p in range(partitions)]
