"""Loads a demo's records into its source topic in one transaction, if the topic has no records."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from confluent_kafka import TopicPartition

from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import read_until
from fencepost.kafka.transaction import Transaction
from fencepost_stack.nycflights import Record

# Kafka deletes by record timestamp: a week's retention would delete records of 2013 within minutes.
TOPIC_CONFIG = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}
STABLE_LIMIT = 60.0  # seconds to wait until a read_committed reader sees everything


def load(settings: ClientSettings, topic: str, partitions: int, records: Sequence[Record]) -> bool:
    """Produces the records in this order, if the topic has no records. Returns whether they were produced.

    Afterwards read_committed readers see all records of the topic.

    Raises:
        Retriable: Kafka did not answer. The same call again loads the records.
    """
    cluster = Cluster(settings)
    target = cluster.ensure_topic(topic, partitions, TOPIC_CONFIG)
    transaction = Transaction(settings, f"fencepost-load.{topic}", "load")
    transaction.init()  # ends what an interrupted load left open
    _await_stable(cluster, target)
    if _holds_records(cluster, target, settings):
        return False
    columns = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
    }
    with transaction:
        transaction.produce_rows(topic, pa.RecordBatch.from_pydict(columns))
    _await_stable(cluster, target)
    return True


def _await_stable(cluster: Cluster, topic: Topic) -> None:
    """Waits until a read_committed reader sees everything. Raises OpenTransaction if that takes too long."""
    cluster.await_stable(topic, cluster.high_watermarks(topic), STABLE_LIMIT, f"loading topic {topic.name}")


def _holds_records(cluster: Cluster, topic: Topic, settings: ClientSettings) -> bool:
    """Returns whether a read_committed reader finds a record. An aborted load leaves offsets without records."""
    starts, ends = cluster.earliest(topic), cluster.last_stable(topic)
    filled = {p: end for p, end in enumerate(ends) if starts[p] < end}
    consumer, complaints = make_consumer(settings, f"fencepost-load.{topic.name}")
    try:
        consumer.assign([TopicPartition(topic.name, p, starts[p]) for p in filled])
        return next(read_until(consumer, complaints, settings, filled, f"reading topic {topic.name}"), None) is not None
    finally:
        consumer.close()
