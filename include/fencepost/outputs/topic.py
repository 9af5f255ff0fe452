"""The output as a Kafka topic.

The topic must not drop a batch's records before they are judged, nor refuse them for their age: validate would read back
another batch than the one that was written. Kafka computes a record's age from its timestamp. Under `output.timestamp` that is
the data's own, so Kafka may delete a batch of old data within minutes. Compaction drops all but the newest record of a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.errors import AccessDenied, NeedsOperator, TopicRecreated
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Topic
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.lost import newest_batches
from fencepost.model import (
    BATCH_HEADER,
    Batch,
    Interval,
    OffsetRange,
    TopicOutput,
    utc_now,
)
from fencepost.protocol.frontier import Place, of_topic, validated_ends
from fencepost.protocol.ranges import without_expired
from fencepost.protocol.view import View
from fencepost.spark.source import read_ranges

KEPT_FOR = timedelta(hours=6)  # from a record's write to its verdict, with retries
FOREVER = 2**62  # milliseconds; a limit of at least that much never applies


class KafkaTopicOutput:
    """An `Output` that is a topic. Several pipelines may write to it: a record's header names its batch.

    The topic is described once; `check_same` describes it again.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger, self._pipeline, self._cluster = ledger, ledger.pipeline, ledger.cluster
        self._name = name
        self._known: Topic | None = None

    def prepare(self) -> str:
        """Make the topic if it is missing; return its id."""
        self._known = self._cluster.ensure_topic(self._name, self._pipeline.output.partitions)
        return self._known.id

    def now(self) -> TopicOutput:
        """Its id and its high watermarks."""
        ends = tuple(self._cluster.high_watermarks(self._topic))
        return TopicOutput(topic=self._name, topic_id=self._topic.id, ends=ends)

    def newest_batches(self) -> Iterator[str]:
        """The batches of this pipeline that own the newest records of each partition."""
        return newest_batches(self._ledger, self._topic)

    def check_keeps(self, interval: Interval) -> None:
        """Check that the topic takes the interval's records and keeps them until they are judged, if we may ask.

        Raises:
            NeedsOperator: names the topic's setting, its value, and what to do.
        """
        try:
            settings = self._cluster.topic_configs(self._name)
        except AccessDenied:
            return
        refusal = what_is_lost(settings, interval, utc_now(), stamped=self._pipeline.output.timestamp is not None)
        if refusal:
            raise NeedsOperator(
                f"pipeline {self._pipeline.name}, interval {interval}: output topic {self._name} {refusal} Nothing was planned."
            )

    def check_same(self, batch: Batch) -> None:
        """Raise TopicRecreated unless the batch was planned on this very topic."""
        planned, self._known = batch.plan.output.topic_id, self._cluster.describe(self._name)
        if self._known.id != planned:
            raise TopicRecreated(
                f"output topic {self._name} was deleted and created again since batch {batch.id} was planned (topic id "
                f"{planned}, now {self._known.id}). Run its write step again: that makes a new revision on the new topic."
            )

    def await_readable(self, batch: Batch, limit: float, doing: str) -> None:
        """Wait until the last stable offsets pass the ends of a written batch, for `limit` seconds at most."""
        assert batch.written is not None
        self._cluster.await_stable(self._topic, batch.written.output.ends, limit, doing)

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """The records with a written batch's header, at the offsets that still exist."""
        kept, _ = self._kept_and_deleted(batch)
        return read_batch(spark, self._ledger.settings, batch, kept)

    def deleted(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """The parts of a written batch's ranges that were deleted, by retention or by a person."""
        return self._kept_and_deleted(batch)[1]

    def is_compacted(self) -> bool:
        """Whether the topic drops a record once its key has a newer one; False if we may not ask."""
        try:
            return "compact" in self._cluster.topic_config(self._name, "cleanup.policy")
        except AccessDenied:
            return False

    def validated(self, view: View) -> tuple[str, Mapping[Place, int]]:
        """The group `<pipeline>.validated` and its offsets. Offsets of a topic that the pipeline has left stay as they are."""
        ends = of_topic(validated_ends(view), self._name)
        return self._pipeline.validated_group, {(self._name, partition): end for partition, end in ends.items()}

    @property
    def _topic(self) -> Topic:
        if self._known is None:
            self._known = self._cluster.describe(self._name)
        return self._known

    def _kept_and_deleted(self, batch: Batch) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
        assert batch.written is not None
        return without_expired(batch.output_ranges(batch.written), self._cluster.earliest(self._topic))


def what_is_lost(settings: Mapping[str, str], interval: Interval, now: datetime, *, stamped: bool) -> str | None:
    """Why the topic would lose the interval's records before they are judged, and what to do; None if it keeps them. Pure.

    `stamped`: the records have timestamps of their own, assumed to be as old as the interval's start.
    """
    own_time = stamped and settings.get("message.timestamp.type") != "LogAppendTime"
    age = max(now - interval.start, timedelta(0)) if own_time else timedelta(0)
    policy = settings.get("cleanup.policy", "delete")
    way_out = (
        ", set message.timestamp.type=LogAppendTime, or take output.timestamp out of pipeline.yaml" if own_time else ""
    )
    of_age = (
        f" by their timestamps, and output.timestamp dates them from {interval.start:%Y-%m-%d %H:%M} UTC on" * own_time
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
            f"deletes records after retention.ms={settings['retention.ms']}{of_age}: they may be gone before the verdict, "
            f"which may take {_hours(KEPT_FOR)}. Raise retention.ms with kafka-configs.sh (-1: no limit){way_out}."
        )
    # Unlike for the others, -1 or 0 means no lag here.
    if "compact" in policy and (
        int(settings.get("min.compaction.lag.ms") or 0) <= 0 or too_short("min.compaction.lag.ms", age + KEPT_FOR)
    ):
        return (
            f"is compacted (cleanup.policy={policy}) after min.compaction.lag.ms={settings.get('min.compaction.lag.ms', '0')}"
            f"{of_age}: records whose key has a newer one may be gone before the verdict, which may take "
            f"{_hours(KEPT_FOR)}. Raise min.compaction.lag.ms with kafka-configs.sh{way_out}; or use another topic."
        )
    return None


def _hours(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 3600:g} hours"


def read_batch(spark: SparkSession, settings: ClientSettings, batch: Batch, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The records with this batch's header in these ranges of its output topic, where other batches may have written too.

    Columns: key, value (binary), topic, partition, offset.
    """
    raw = read_ranges(spark, settings, batch.plan.output.topic, ranges, headers=True)
    # Not `exists`: Spark interprets a lambda for every row, but generates code for this.
    own = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(str(batch.id)).cast("binary").alias("value"))
    return raw.where(F.array_contains("headers", own)).select("key", "value", "topic", "partition", "offset")
