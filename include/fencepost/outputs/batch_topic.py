"""Topics that hold the records of batches, such as the staging topic. A batch can be read back from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.errors import AccessDenied, NeedsOperator, TopicMissing, TopicRecreated
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Topic
from fencepost.ledger.completeness import Named, newest_batches
from fencepost.ledger.deployment import Deployment
from fencepost.model import (
    BATCH_HEADER,
    Batch,
    Interval,
    OffsetRange,
    TopicEnds,
    by_partition,
    describe_ranges,
    utc_now,
)
from fencepost.outputs.topic_settings import loss_reason, what_is_too_large, what_staging_needs
from fencepost.protocol.advice import reprocess
from fencepost.protocol.obstacle import Obstacle, remade
from fencepost.protocol.ranges import without_expired
from fencepost.rows.source import read_ranges


class RecordsGone(Exception):
    """Some of a batch's records can no longer be read. `obstacle` has the reason and the next step."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.why)
        self.obstacle = obstacle


class BatchTopic(ABC):
    """A topic that holds records of batches. Kafka is asked to describe it once, unless the description is `known`."""

    role: str

    def __init__(self, deployment: Deployment, name: str, known: Topic | None = None) -> None:
        self._deployment, self._pipeline, self._cluster = deployment, deployment.pipeline, deployment.cluster
        self._name = name
        self._known = known

    def now(self) -> TopicEnds:
        """Returns the topic's id and its present high watermarks."""
        ends = tuple(self._cluster.high_watermarks(self._topic))
        return TopicEnds(topic=self._name, topic_id=self._topic.id, ends=ends)

    def await_readable(self, batch: Batch, limit: float, doing: str) -> None:
        """Waits until the last stable offsets have passed the ends of the batch's ranges. It waits at most `limit`
        seconds.
        """
        self._cluster.await_stable(self._topic, [r.end for r in self._ranges(batch)], limit, doing)

    def identity(self) -> str:
        """Returns the topic's present id."""
        return self._topic.id

    def deleted(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Returns the parts of a batch's ranges in this topic that were deleted, by retention or by a person."""
        return self._kept_and_deleted(batch)[1]

    @abstractmethod
    def _ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Returns the batch's ranges in this topic. There are none before the batch is written to it."""

    @property
    def _topic(self) -> Topic:
        if self._known is None:
            self._known = self._cluster.describe(self._name)
        return self._known

    def _kept_and_deleted(self, batch: Batch) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
        return without_expired(self._ranges(batch), by_partition(self._name, self._cluster.earliest(self._topic)))


class RecordTopic(BatchTopic):
    """A topic that batches are written to, judged in, or copied to."""

    @abstractmethod
    def newest_batches(self) -> Iterator[Named]:
        """Returns the batches of this pipeline that own the newest records of each partition."""

    @abstractmethod
    def refusal(self, settings: Mapping[str, str], interval: Interval) -> str | None:
        """Returns why a topic with these settings would refuse the interval's records or delete them too early. Returns
        None if it keeps them.
        """

    @abstractmethod
    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """Returns the batch's records in its ranges of this topic. Records whose offsets no longer exist are missing.
        The columns are those of `read_named`.
        """

    @abstractmethod
    def _names_batches(self, batch: Batch) -> bool:
        """Returns whether the batch's records can be distinguished from other records in this topic."""

    @abstractmethod
    def _id_then(self, batch: Batch) -> str:
        """Returns the id that the topic had when the batch's records were written to it."""

    @property
    def name(self) -> str:
        """Returns the topic's name."""
        return self._name

    @property
    def partitions(self) -> int:
        """Returns the topic's number of partitions."""
        return self._topic.partitions

    def check_keeps(self, interval: Interval) -> None:
        """Checks that the topic accepts the interval's records and keeps them until they are judged. The check is
        skipped if the user may not read the topic's settings.

        Raises:
            NeedsOperator: names the topic's setting, its value, and what to do.
        """
        self.check(interval, "Nothing was planned.")

    def check_fits(self, staging: StagingTopic) -> None:
        """Checks that the topic accepts record batches as large as the staging topic does. The check is skipped if the
        user may not read the topics' settings.

        Raises:
            NeedsOperator: names both settings, and what to do.
        """
        own, other = self.settings(), staging.settings()
        if own and other and (refusal := what_is_too_large(own, other)):
            raise NeedsOperator(
                f"pipeline {self._pipeline.name}: output topic {self._name} {refusal} Staging topic: {staging.name}. Nothing was "
                "planned."
            )

    def settings(self) -> Mapping[str, str]:
        """Returns the topic's settings by name. The mapping is empty if the user may not read the settings."""
        try:
            return self._cluster.topic_configs(self._name)
        except AccessDenied:
            return {}

    def check(self, interval: Interval, so: str) -> None:
        """Does the check of `check_keeps`. `so` is the end of the error's message."""
        settings = self.settings()
        if settings and (refusal := self.refusal(settings, interval)):
            raise NeedsOperator(
                f"pipeline {self._pipeline.name}, interval {interval}: {self.role} topic {self._name} {refusal} {so}"
            )

    def is_compacted(self) -> bool:
        """Returns whether the topic is compacted. Returns False if the user may not read its settings."""
        try:
            return "compact" in self._cluster.topic_config(self._name, "cleanup.policy")
        except AccessDenied:
            return False

    def read_whole(self, spark: SparkSession, batch: Batch, doing: str) -> DataFrame:
        """Returns the records of `read_back` if the batch is complete. It waits for open transactions that hide
        records.

        Raises:
            RecordsGone: some records are gone, or cannot be distinguished from other records.
            OpenTransaction: another producer's open transaction hides records for too long.
        """
        if (lost := self._lost(batch)) is not None:
            raise RecordsGone(lost)
        self.await_readable(batch, self._pipeline.quality.open_transaction_wait_seconds, doing)
        return self.read_back(spark, batch)

    def _lost(self, batch: Batch) -> Obstacle | None:
        """Returns why the batch's records are incomplete or cannot be distinguished from other records, with the next
        step. Returns None if they are complete.
        """
        if batch.require_written.rows and not self._names_batches(batch):
            return Obstacle(
                "its records have no header that names their batch (output.batch_header: false)",
                cure=f"Set output.batch_header: true; then {reprocess(batch)}.",
            )
        try:
            topic_id = self.identity()
        except TopicMissing:
            topic_id = ""
        if topic_id != self._id_then(batch):
            return Obstacle(f"its {self.role} topic {self._name} {remade(topic_id)} since", TopicRecreated)
        if deleted := self.deleted(batch):
            gone = describe_ranges(deleted)
            return Obstacle(
                f"{self.role} topic {self._name} no longer has {gone}: retention or a person deleted them",
                cure=f"Raise the topic's retention.ms; then {reprocess(batch)}.",
            )
        return None


class StagingTopic(RecordTopic):
    """The topic that staged batches are written to, judged in and copied from.

    The Kafka timestamp of a staged record is its batch's `staging_timestamp`, which identifies the batch. A row's own
    timestamp is in a header. So retention counts from the plan, however old the row is.
    """

    role = "staging"

    def prepare_like(self, outputs: Sequence[RecordTopic]) -> None:
        """Creates the topic if it is missing, and gives it as many partitions as the output topic. So a key has the
        same partition in both topics.

        A new topic accepts records as large as the output topic does. Without an output topic, the number of partitions comes
        from the pipeline's settings.

        Raises:
            NeedsOperator: the topic has more partitions than the output topic.
        """
        known = self._cluster.find(self._name)
        partitions = max((one.partitions for one in outputs), default=self._pipeline.output.partitions)
        if known is None:
            known = self._cluster.ensure_topic(self._name, partitions, self._settings(outputs))
        if known.partitions < partitions:
            known = self._cluster.grow_topic(known, partitions)
        for output in outputs:
            if known.partitions > output.partitions:
                raise NeedsOperator(
                    f"pipeline {self._pipeline.name}: staging topic {self._name} has {known.partitions} partitions and output "
                    f"topic {output.name} has {output.partitions}, so records would go to the wrong partitions. Add "
                    "partitions to the output topic, or name another output.staging_topic in pipeline.yaml."
                )
        self._known = known

    def _settings(self, outputs: Sequence[RecordTopic]) -> dict[str, str]:
        hours = self._pipeline.output.staging_hours
        config = {
            "cleanup.policy": "delete",
            "retention.ms": str(round(hours * 3_600_000)),
            "message.timestamp.type": "CreateTime",
        }
        largest = [taken for one in outputs if (taken := one.settings().get("max.message.bytes"))]
        return config | ({"max.message.bytes": largest[0]} if largest else {})

    def gone(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Returns the deleted parts of the batch's ranges. Before the batch is written, it returns the deleted parts of
        all offsets since the plan.
        """
        if batch.written is not None:
            return self.deleted(batch)
        starts, ends = batch.require_staging.ends, self._cluster.high_watermarks(self._topic)
        ranges = [
            OffsetRange(topic=self._name, partition=p, start=s, end=max(s, e))
            for p, (s, e) in enumerate(zip(starts, ends, strict=False))
        ]
        return without_expired(ranges, by_partition(self._name, self._cluster.earliest(self._topic)))[1]

    def newest_batches(self) -> Iterator[Named]:
        """Returns the batches that own the newest records, by the records' timestamps. These batches may be in another
        ledger.
        """
        return newest_batches(self._deployment, self._topic, staged=True)

    def refusal(self, settings: Mapping[str, str], interval: Interval) -> str | None:
        """Returns why a topic with these settings would refuse the records or delete them too early. Staged records
        have the time of their plan, not the time of their interval.
        """
        return what_staging_needs(settings) or loss_reason(settings, interval, utc_now(), stamped=False)

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """Returns the records that have the batch's timestamp."""
        kept, _ = self._kept_and_deleted(batch)
        raw = staged_records(spark, self._deployment.cluster.settings, batch, kept, headers=False)
        return raw.select("key", "value", "topic", "partition", "offset")

    def _names_batches(self, batch: Batch) -> bool:
        return True

    def _id_then(self, batch: Batch) -> str:
        return batch.require_staging.topic_id

    def _ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        return batch.output_ranges(batch.written) if batch.written else ()


def staged_records(
    spark: SparkSession, settings: ClientSettings, batch: Batch, ranges: Sequence[OffsetRange], *, headers: bool
) -> DataFrame:
    """Returns the batch's records in these ranges of its staging topic, with the columns of `read_ranges`.

    Records of other batches in the same ranges are left out.
    """
    raw = read_ranges(spark, settings, ranges, headers=headers)
    return raw.where(F.col("timestamp") == F.timestamp_millis(F.lit(batch.require_staging_timestamp)))


def read_named(spark: SparkSession, settings: ClientSettings, ranges: Sequence[OffsetRange], batch: str) -> DataFrame:
    """Returns the records in these ranges whose header names this batch. Records of other batches are left out.

    The columns are key, value (binary), topic, partition and offset.
    """
    # Not `exists`: Spark interprets a lambda for every row, but generates code for this.
    own = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(batch).cast("binary").alias("value"))
    raw = read_ranges(spark, settings, ranges, headers=True).where(F.array_contains("headers", own))
    return raw.select("key", "value", "topic", "partition", "offset")
