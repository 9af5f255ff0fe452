"""A pipeline's quarantine topic has malformed records, and rows that failed a rule. A batch commits them together with
its own rows.

The topic is created without retention, so its records stay until a person deletes them. A record keeps the headers of
its source record. The source's headers may name another batch, so only the record's last header names its own batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from fencepost.errors import AccessDenied, NeedsOperator
from fencepost.kafka.offsets import messages_of
from fencepost.ledger.deployment import Deployment
from fencepost.model import BATCH_HEADER, Batch, OffsetRange
from fencepost.outputs.batch_topic import BatchTopic
from fencepost.rows.quarantine_headers import REASON_HEADER, RULE_HEADER, SOURCE_HEADER
from fencepost.rows.quarantined import is_quarantined_by
from fencepost.rows.source import read_ranges

SHOWN = (SOURCE_HEADER, RULE_HEADER, REASON_HEADER)
FOREVER = 2**63 - 1
ROOM = 65_536  # bytes for the headers that quarantine adds to those of the source record


class QuarantinedRecord(NamedTuple):
    """A record in quarantine, without its data. The tuple has the offset in quarantine and in the source, the failed
    rule, and the reason.
    """

    place: str
    source: str
    rule: str
    reason: str


class QuarantineTopic(BatchTopic):
    """The quarantine topic of one pipeline."""

    role = "quarantine"

    def __init__(self, deployment: Deployment, batch: Batch | None = None) -> None:
        """Opens the pipeline's quarantine topic. With a batch, this is the topic that the batch was planned with."""
        planned = batch.plan.quarantine if batch else None
        super().__init__(deployment, planned.topic if planned else deployment.pipeline.quarantine_topic)

    def prepare(self) -> str:
        """Creates the topic if it is missing, and returns its id."""
        self._known = self._cluster.find(self._name)
        if self._known is None:
            self._known = self._cluster.ensure_topic(self._name, self._pipeline.output.partitions, self._settings())
        return self._known.id

    def _settings(self) -> dict[str, str]:
        """Returns the settings of a new topic. A source record may have any timestamp, and be as large as its topic
        allows.
        """
        config = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
        config |= {"message.timestamp.before.max.ms": str(FOREVER), "message.timestamp.after.max.ms": str(FOREVER)}
        try:
            limits = [self._cluster.topic_config(name, "max.message.bytes") for name in self._pipeline.source_topics]
            largest = max(int(one or 0) for one in limits)
        except AccessDenied:
            largest = 0
        if largest:
            config["max.message.bytes"] = str(min(largest + ROOM, 2**31 - 1))
        return config

    def check_keeps(self) -> None:
        """Checks that the topic keeps its records. The check is skipped if the user may not read the topic's settings.

        Raises:
            NeedsOperator: names the topic's setting, its value, and what to do.
        """
        try:
            settings = self._cluster.topic_configs(self._name)
        except AccessDenied:
            return
        if refusal := self.refusal(settings):
            raise NeedsOperator(
                f"pipeline {self._pipeline.name}: quarantine topic {self._name} {refusal} Nothing was planned."
            )

    @staticmethod
    def refusal(settings: Mapping[str, str]) -> str | None:
        """Returns why a topic with these settings would lose quarantined records, and what to do, or None."""
        policy = settings.get("cleanup.policy", "delete")
        if "compact" not in policy:
            return None
        return (
            f"is compacted (cleanup.policy={policy}): it refuses records without a key, and drops all but the newest record of a "
            "key. Set cleanup.policy=delete with kafka-configs.sh, or name another topic in quality.quarantine_topic."
        )

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """Returns the quarantined records of a written batch that still exist. The columns are the connector's, with
        headers.
        """
        kept, _ = self._kept_and_deleted(batch)
        raw = read_ranges(spark, self._deployment.cluster.settings, kept, headers=True)
        return raw.where(is_quarantined_by(str(batch.id)))

    def some(self, batch: Batch, most: int) -> list[QuarantinedRecord]:
        """Returns up to `most` of the batch's remaining records, from the start of its ranges. It needs no Spark."""
        kept, _ = self._kept_and_deleted(batch)
        doing = f"batch {batch.id}: reading its records in topic {self._name}"
        own, found = (BATCH_HEADER, str(batch.id).encode()), list[QuarantinedRecord]()
        for messages in messages_of(self._deployment.cluster.settings, self._pipeline.group, kept, doing):
            for message in messages:
                headers = [*(message.headers() or ())]
                if headers[-1:] == [own]:
                    last = {str(name): bytes(value or b"").decode("utf-8", "replace") for name, value in headers}
                    place = f"{self._name}:{message.partition()}:{message.offset()}"
                    found.append(QuarantinedRecord(place, *(last.get(name, "") for name in SHOWN)))
                if len(found) == most:
                    return found
        return found

    def _ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        return batch.quarantine_ranges(batch.written) if batch.written else ()
