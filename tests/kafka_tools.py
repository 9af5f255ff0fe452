"""Plain Kafka for tests: records in, records out, offsets of groups. Shares no code with what is tested."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions as Group
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,  # type: ignore[attr-defined]
    NewTopic,  # type: ignore[attr-defined]
    OffsetSpec,
)

from waiting import await_true

QUIET_LOG = logging.getLogger("tests.librdkafka")
QUIET_LOG.setLevel(logging.CRITICAL)
QUIET = 20.0  # seconds without progress after which a read gives up


@dataclass(frozen=True)
class Record:
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = field(default=())

    @property
    def json(self) -> Any:
        """The value parsed."""
        return json.loads(self.value or b"null")

    @property
    def batch(self) -> str:
        """The batch its header names."""
        return dict(self.headers).get("fencepost-batch", b"").decode()


def create_topic(
    bootstrap: str, topic: str, partitions: int, *, replicas: list[list[int]] | None = None, **config: str
) -> None:
    """A topic that is known to the broker when this returns; `replicas` names each partition's nodes, leader first."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET_LOG)
    placed = {"replica_assignment": replicas} if replicas else {"replication_factor": 1}
    new = NewTopic(topic, partitions, config={"retention.ms": "-1", **config}, **placed)
    admin.create_topics([new])[topic].result()
    while topic not in admin.list_topics(timeout=10).topics:
        time.sleep(0.05)


def widen_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """The topic has so many partitions when this returns."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET_LOG)
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)
    there = admin.list_topics
    await_true(lambda: len(there(topic, timeout=10).topics[topic].partitions) == partitions, f"{topic} to be wider", 30)


def delete_topic(bootstrap: str, topic: str) -> None:
    """The topic is gone when this returns."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET_LOG)
    admin.delete_topics([topic])[topic].result(20)
    await_true(lambda: topic not in admin.list_topics(timeout=10).topics, f"topic {topic} to be gone", 30)


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[Any, Any, int, int]],
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Records (key, value, partition, timestamp in milliseconds); values that are not bytes or None become JSON."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}, logger=QUIET_LOG)
    for key, value, partition, timestamp in records:
        raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        place = {"key": key, "partition": partition, "timestamp": timestamp, "headers": list(headers)}
        producer.produce(topic, raw, on_delivery=lambda e, _: failed.append(e) if e else None, **place)
    assert producer.flush(30) == 0
    assert failed == []


def read_all(bootstrap: str, topic: str, *, committed: bool = True) -> list[Record]:
    """Every record up to the high watermark of now, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        },
        logger=QUIET_LOG,
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        open_ = set(partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        records: list[Record] = []
        deadline = time.monotonic() + QUIET
        while open_:
            assert time.monotonic() < deadline, f"no end of {topic} in sight"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                open_.discard(message.partition())
                continue
            deadline = time.monotonic() + QUIET
            records.append(
                Record(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    tuple(message.headers() or ()),
                )
            )
        return sorted(records, key=lambda r: (r.partition, r.offset))
    finally:
        consumer.close()


def end_offset(bootstrap: str, topic: str, partition: int, *, committed: bool = False) -> int:
    """The high watermark, or with `committed` the last stable offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET_LOG)
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(topic, partition): OffsetSpec.latest()}
    (future,) = admin.list_offsets(asked, isolation_level=isolation).values()
    return int(future.result(20).offset)


def stable_ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The end of each partition, once no transaction is open: Kafka answers a commit before its markers are in all partitions."""

    def ends(*, committed: bool) -> list[int]:
        return [end_offset(bootstrap, topic, p, committed=committed) for p in range(partitions)]

    await_true(lambda: ends(committed=True) == ends(committed=False), f"the markers of {topic}'s transactions", 60)
    return ends(committed=False)


def group_offsets(bootstrap: str, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """A group's committed offsets; partitions without one are left out."""
    found = committed_by(bootstrap, Group(group, [TopicPartition(topic, p) for p in partitions]))
    return {tp.partition: tp.offset for tp in found if tp.offset >= 0}


def committed_by(bootstrap: str, asked: Group) -> list[TopicPartition]:
    """What a group has committed, with metadata, once no transaction of it is open; of all its partitions if none are named."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET_LOG)
    answer = admin.list_consumer_group_offsets([asked], require_stable=True)[asked.group_id].result()
    return list(answer.topic_partitions)


def assert_at_end(bootstrap: str, group: str, topic: str, partitions: Sequence[int]) -> None:
    """A group stands behind every record of these partitions.

    Perhaps before the last transaction marker, which may come later than the answer to the commit.
    """
    offsets = group_offsets(bootstrap, group, topic, partitions)
    records = read_all(bootstrap, topic)
    assert records
    last = {r.partition: r.offset for r in records}
    for partition in partitions:
        assert last.get(partition, -1) < offsets.get(partition, 0) <= end_offset(bootstrap, topic, partition)
