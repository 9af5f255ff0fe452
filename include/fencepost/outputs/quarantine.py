"""A pipeline's quarantine topic: malformed records, and rows that fail a rule, committed by their batch.

The topic is created without retention, so its records stay until somebody deletes them. The last header of a record names its
batch: the source record's own headers stay, and may name another one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from fencepost.errors import AccessDenied, NeedsOperator, TopicRecreated
from fencepost.kafka.cluster import Topic
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, OffsetRange, TopicOutput
from fencepost.protocol.ranges import without_expired
from fencepost.spark.quarantine import is_quarantined_by
from fencepost.spark.source import read_ranges

FOREVER = 2**63 - 1
ROOM = 65_536  # bytes for the headers that a quarantined record has beyond those of its source record


class QuarantineTopic:
    """The quarantine topic of one pipeline. It is described once; `check_same` describes it again."""

    def __init__(self, ledger: Ledger, batch: Batch | None = None) -> None:
        """The pipeline's topic; with a batch, the topic that the batch was planned with."""
        planned = batch.plan.quarantine if batch else None
        self._ledger, self._cluster = ledger, ledger.cluster
        self._name = planned.topic if planned else ledger.pipeline.quarantine_topic
        self._known: Topic | None = None

    def prepare(self) -> str:
        """Create the topic if it is missing; return its id."""
        config = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
        # A source record may have any timestamp, and may be as large as its topic allows.
        config |= {"message.timestamp.before.max.ms": str(FOREVER), "message.timestamp.after.max.ms": str(FOREVER)}
        try:
            largest = int(self._cluster.topic_config(self._ledger.pipeline.source.topic, "max.message.bytes") or 0)
        except AccessDenied:
            largest = 0
        if largest:
            config["max.message.bytes"] = str(min(largest + ROOM, 2**31 - 1))
        self._known = self._cluster.ensure_topic(self._name, self._ledger.pipeline.output.partitions, config)
        return self._known.id

    def now(self) -> TopicOutput:
        """Its id and its high watermarks."""
        ends = tuple(self._cluster.high_watermarks(self._topic))
        return TopicOutput(topic=self._name, topic_id=self._topic.id, ends=ends)

    def check_keeps(self) -> None:
        """Check that the topic keeps its records, if we may ask.

        Raises:
            NeedsOperator: names the topic's setting, its value, and what to do.
        """
        try:
            settings = self._cluster.topic_configs(self._name)
        except AccessDenied:
            return
        policy = settings.get("cleanup.policy", "delete")
        if "compact" in policy:
            raise NeedsOperator(
                f"pipeline {self._ledger.pipeline.name}: quarantine topic {self._name} is compacted (cleanup.policy={policy}): "
                "it refuses records without a key, and drops all but the newest record of a key. Set cleanup.policy=delete "
                "with kafka-configs.sh, or name another topic in quality.quarantine_topic. Nothing was planned."
            )

    def check_same(self, batch: Batch) -> None:
        """Raise TopicRecreated unless the batch was planned with this very topic."""
        assert batch.plan.quarantine is not None
        planned, self._known = batch.plan.quarantine.topic_id, self._cluster.describe(self._name)
        if self._known.id != planned:
            raise TopicRecreated(
                f"quarantine topic {self._name} was deleted and created again since batch {batch.id} was planned (topic id "
                f"{planned}, now {self._known.id}). Run its write step again: that makes a new revision on the new topic."
            )

    def await_readable(self, batch: Batch, limit: float, doing: str) -> None:
        """Wait until the last stable offsets pass the ends of a written batch, for `limit` seconds at most."""
        assert batch.written is not None
        assert batch.written.quarantine is not None
        self._cluster.await_stable(self._topic, batch.written.quarantine.ends, limit, doing)

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """The quarantined records of a written batch that still exist: the connector's columns, with headers."""
        assert batch.written is not None
        ranges = batch.quarantine_ranges(batch.written)
        kept, _ = without_expired(ranges, self._cluster.earliest(self._topic))
        raw = read_ranges(spark, self._ledger.settings, self._name, kept, headers=True)
        return raw.where(is_quarantined_by(str(batch.id)))

    def deleted(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """The parts of a written batch's ranges here that the topic no longer has."""
        assert batch.written is not None
        return without_expired(batch.quarantine_ranges(batch.written), self._cluster.earliest(self._topic))[1]

    @property
    def _topic(self) -> Topic:
        if self._known is None:
            self._known = self._cluster.describe(self._name)
        return self._known
