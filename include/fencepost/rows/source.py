"""Reads exact offset ranges of Kafka topics with Spark's connector."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from fencepost.config.java_options import java_settings
from fencepost.kafka.client_settings import ClientSettings
from fencepost.model import OffsetRange
from fencepost.spark.sql_settings import set_for_now

POLL_TIMEOUT_MS = 120_000
# Fetched records are in memory anyway. By default the connector polls again for every 500 records.
MAX_POLL_RECORDS = 50_000
# A batch's records exist already, so no fetch has to wait for them. Only the fetch after the last record waits, in vain (500 ms
# by default), and delays the connector's last request on the same connection, for the topic's offsets.
FETCH_MAX_WAIT_MS = 10
V1_SOURCES = "spark.sql.sources.useV1SourceList"


def read_ranges(
    spark: SparkSession, settings: ClientSettings, ranges: Sequence[OffsetRange], *, headers: bool
) -> DataFrame:
    """Returns exactly the committed records of these ranges, with one Spark partition per Kafka partition.

    The columns are the connector's: key, value (binary), topic, partition, offset and timestamp, and headers on
    request.
    """
    by_topic: dict[str, list[OffsetRange]] = {}
    for part in ranges:
        by_topic.setdefault(part.topic, []).append(part)
    starts = {topic: {str(r.partition): r.start for r in parts} for topic, parts in by_topic.items()}
    ends = {topic: {str(r.partition): r.end for r in parts} for topic, parts in by_topic.items()}
    reader = (
        spark.read.format("kafka")
        .options(**{f"kafka.{k}": v for k, v in java_settings(settings.common()).items()})
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.poll.records", str(MAX_POLL_RECORDS))
        .option("kafka.fetch.max.wait.ms", str(FETCH_MAX_WAIT_MS))
        .option("assign", json.dumps({topic: [r.partition for r in parts] for topic, parts in by_topic.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("kafkaConsumer.pollTimeoutMs", str(POLL_TIMEOUT_MS))
    )
    # By default Spark reads a batch by its older interface, which makes a `Row` of each record and converts it again.
    others = [name for name in str(spark.conf.get(V1_SOURCES)).split(",") if name != "kafka"]
    with set_for_now(spark, {V1_SOURCES: ",".join(others)}):
        return reader.option("includeHeaders", str(headers).lower()).load()
