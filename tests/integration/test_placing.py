"""Layout `output` places keys where Kafka's Java client does, and Spark partition p is output partition p."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import functions as F

from fencepost.rows.placing import kafka_partition, place_by_key
from oracle.murmur2 import partition_of

KEYS = [b"", *(random.Random(n).randbytes(n % 23) for n in range(300))]


@pytest.mark.parametrize("partitions", [1, 3, 10])
def test_keys_are_placed_as_the_oracle_places_them(spark: Any, partitions: int) -> None:
    """The oracle is checked against the vectors of Kafka's own tests."""
    keys = spark.createDataFrame([(key,) for key in KEYS], "key binary")
    found = keys.select("key", kafka_partition(spark, F.col("key"), partitions).alias("p")).collect()
    assert [(bytes(r.key), r.p) for r in found] == [(key, partition_of(key, partitions)) for key in KEYS]


def test_each_spark_partition_holds_its_output_partition_in_the_sources_order(spark: Any) -> None:
    """A row without a key goes by its value, and one without either goes where an empty key goes."""
    rows = [(None if n % 5 == 0 else KEYS[n], None if n % 10 == 0 else b"%d" % n, n % 2, n) for n in range(300)]
    frame = spark.createDataFrame(rows, "key binary, value binary, _partition int, _offset long")
    placed = place_by_key(frame, 4).rdd.glom().collect()
    order = sorted(rows, key=lambda row: row[2:])
    homes = [
        [r[:2] for r in order if partition_of(next((x for x in r[:2] if x is not None), b""), 4) == p] for p in range(4)
    ]
    assert [[(r.key and bytes(r.key), r.value and bytes(r.value)) for r in part] for part in placed] == homes


def test_records_of_several_topics_are_ordered_by_topic_first(spark: Any) -> None:
    rows = [(b"k", b"%d" % n, "ba"[n % 2], n % 3, n) for n in range(12)]
    frame = spark.createDataFrame(rows, "key binary, value binary, _topic string, _partition int, _offset long")
    (placed,) = place_by_key(frame, 1).rdd.glom().collect()
    assert placed[0].asDict().keys() == {"key", "value"}
    assert [int(r.value) for r in placed] == [3, 9, 1, 7, 5, 11, 0, 6, 4, 10, 2, 8]


def test_rows_of_a_replay_keep_the_sources_order_of_a_key_and_those_without_a_place_are_sorted(spark: Any) -> None:
    """Rows 2, 6 and 10 are of no single record, so no place is known. The others come from two topics."""
    rows = [(b"k", b"%02d" % n, *((None,) * 3 if n % 4 == 2 else ("ba"[n % 2], 0, 99 - n))) for n in range(12)]
    frame = spark.createDataFrame(rows, "key binary, value binary, _topic string, _partition int, _offset long")
    (placed,) = place_by_key(frame.repartition(3), 1, "key", "value").rdd.glom().collect()
    assert [int(r.value) for r in placed] == [2, 6, 10, 11, 9, 7, 5, 3, 1, 8, 4, 0]
