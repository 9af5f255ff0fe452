"""Exact reads of a Kafka topic by Spark's connector."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from fencepost.config.java_options import java_settings
from fencepost.kafka.client_settings import ClientSettings
from fencepost.model import OffsetRange

POLL_TIMEOUT_MS = 120_000
# Of what is fetched already, so memory does not grow; by default the connector asks anew for every 500 records.
MAX_POLL_RECORDS = 50_000


def read_ranges(
    spark: SparkSession, settings: ClientSettings, topic: str, ranges: Sequence[OffsetRange], *, headers: bool
) -> DataFrame:
    """Exactly the records of these ranges, read_committed, one Spark partition per Kafka partition.

    Columns are the connector's: key, value (binary), topic, partition, offset, timestamp, and headers when asked for.
    """
    reader = (
        spark.read.format("kafka")
        .options(**{f"kafka.{k}": v for k, v in java_settings(settings.common()).items()})
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.poll.records", str(MAX_POLL_RECORDS))
        .option("assign", json.dumps({topic: [r.partition for r in ranges]}))
        .option("startingOffsets", json.dumps({topic: {str(r.partition): r.start for r in ranges}}))
        .option("endingOffsets", json.dumps({topic: {str(r.partition): r.end for r in ranges}}))
        .option("failOnDataLoss", "true")
        .option("kafkaConsumer.pollTimeoutMs", str(POLL_TIMEOUT_MS))
    )
    return reader.option("includeHeaders", str(headers).lower()).load()


def task_ranges(frame: DataFrame) -> list[OffsetRange] | None:
    """Which range of the source each task-partition of a frame reads, or None when it shuffles.

    Spark's Kafka RDD keeps one partition per range, empty ones too, through filters, projections and broadcast joins.
    """
    ranges = []
    for partition in frame._jdf.queryExecution().toRdd().partitions():
        if partition.getClass().getSimpleName() != "KafkaSourceRDDPartition":
            return None
        found = partition.offsetRange()
        ranges.append(
            OffsetRange(partition=found.topicPartition().partition(), start=found.fromOffset(), end=found.untilOffset())
        )
    return ranges
