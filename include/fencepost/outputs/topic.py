"""What an output topic must not do before a batch is judged: drop its records, or refuse them for their age.

Kafka reckons a record's age from its timestamp. Under `output.timestamp` that is the data's own, so that a batch of long ago
is deleted within minutes. Compaction drops all but the newest record of a key. Either way validate would read back another
batch than the one that was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, NeedsOperator, TopicRecreated
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.ledger.ledger import Ledger
from fencepost.model import (
    BATCH_HEADER,
    Batch,
    Interval,
    OffsetRange,
    utc_now,
)
from fencepost.spark.source import read_ranges


def same_output(ledger: Ledger, batch: Batch) -> Topic:
    """The batch's output topic, as above."""
    plan = batch.plan
    output = ledger.cluster.describe(plan.output_topic)
    if output.id != plan.output_topic_id:
        raise TopicRecreated(
            f"output topic {output.name} was deleted and created again since batch {batch.id} was planned (topic id "
            f"{plan.output_topic_id}, now {output.id}). Run its write step again: it makes a new revision on the new topic."
        )
    return output


KEPT_FOR = timedelta(hours=6)  # from a record's write to its verdict, with retries
FOREVER = 2**62  # milliseconds; what is at least that has no end


def check_output_topic(cluster: Cluster, pipeline: Pipeline, interval: Interval) -> None:
    """The output topic takes the interval's records and keeps them until they are judged; not checked where we may not ask.

    Raises:
        NeedsOperator: naming the topic's setting, its value, and what to do.
    """
    try:
        settings = cluster.topic_configs(pipeline.output.topic)
    except AccessDenied:
        return
    refusal = what_is_lost(settings, interval, utc_now(), stamped=pipeline.output.timestamp is not None)
    if refusal:
        raise NeedsOperator(
            f"pipeline {pipeline.name}, interval {interval}: output topic {pipeline.output.topic} {refusal} Nothing was planned."
        )


def is_compacted(cluster: Cluster, topic: str) -> bool:
    """Whether the topic drops records with a newer one of their key; False where we may not ask."""
    try:
        return "compact" in cluster.topic_config(topic, "cleanup.policy")
    except AccessDenied:
        return False


def what_is_lost(settings: Mapping[str, str], interval: Interval, now: datetime, *, stamped: bool) -> str | None:
    """Why records of the interval, written now, would not be there to be judged, and what to do; None where they will. Pure.

    `stamped`: they have timestamps of their own, which are taken to be as old as the interval's start.
    """
    own_time = stamped and settings.get("message.timestamp.type") != "LogAppendTime"
    age = max(now - interval.start, timedelta(0)) if own_time else timedelta(0)
    policy = settings.get("cleanup.policy", "delete")
    way_out = (
        ", set message.timestamp.type=LogAppendTime, or take output.timestamp out of pipeline.yaml" if own_time else ""
    )
    of_age = (
        f" by their timestamps, and output.timestamp stamps them from {interval.start:%Y-%m-%d %H:%M} UTC on" * own_time
    )

    def too_short(name: str, needed: timedelta) -> bool:
        limit = int(settings.get(name) or -1)
        return 0 <= limit < FOREVER and timedelta(milliseconds=min(limit, 10**14)) < needed

    if own_time and too_short("message.timestamp.before.max.ms", age):
        return (
            f"refuses records older than message.timestamp.before.max.ms={settings['message.timestamp.before.max.ms']}{of_age}. "
            f"Raise that with kafka-configs.sh{way_out}."
        )
    if "delete" in policy and too_short("retention.ms", age + KEPT_FOR):
        return (
            f"deletes records after retention.ms={settings['retention.ms']}{of_age}: they may be gone before they are judged, "
            f"which may take {_hours(KEPT_FOR)}. Raise retention.ms with kafka-configs.sh (-1: no limit){way_out}."
        )
    # Unlike the others a lag of -1 or 0 is none.
    if "compact" in policy and (
        int(settings.get("min.compaction.lag.ms") or 0) <= 0 or too_short("min.compaction.lag.ms", age + KEPT_FOR)
    ):
        return (
            f"is compacted (cleanup.policy={policy}) after min.compaction.lag.ms={settings.get('min.compaction.lag.ms', '0')}"
            f"{of_age}: records with a newer one of their key may be gone before they are judged, which may take "
            f"{_hours(KEPT_FOR)}. Raise min.compaction.lag.ms with kafka-configs.sh{way_out}; or use another topic."
        )
    return None


def _hours(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 3600:g} hours"


def read_batch(spark: SparkSession, settings: ClientSettings, batch: Batch, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The records with this batch's header in these ranges of its output topic; others may have written in between.

    Columns: key, value (binary), topic, partition, offset.
    """
    raw = read_ranges(spark, settings, batch.plan.output_topic, ranges, headers=True)
    # Not `exists`: Spark interprets a lambda for every row, and generates code for this.
    own = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(str(batch.id)).cast("binary").alias("value"))
    return raw.where(F.array_contains("headers", own)).select("key", "value", "topic", "partition", "offset")
