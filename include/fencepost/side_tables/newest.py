"""Reads the newest record of each key of a topic, while the topic may be written and compacted.

Compaction may delete a record that was the newest of its key when the read began, before the read gets there. The newer
record of the key is then behind the stable end that was known at the beginning. So a read goes on behind that end, stretch
by stretch, until a stretch of the partition has a record at each of its offsets, or is empty. Then the newest records below
its end are complete:

- compaction has deleted no record of this stretch;
- all records before this stretch were read before its end was asked for. Compaction uses no record behind the stable end, so
  until then it had deleted them only in favour of records below this end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import TopicTable
from fencepost.errors import KafkaUnavailable
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import messages_of
from fencepost.model import OffsetRange, TopicEnds
from fencepost.side_tables.content import check_size, refused

log = logging.getLogger("fencepost.side_tables")
TELL_EVERY = 10.0  # seconds
MOST_SECONDS = (
    300.0  # in which a read, after its first pass, has to find the end of a topic that is written all the time
)

Place = tuple[int, int]  # partition and offset


@dataclass
class NewestByKey:
    """The newest record of each key of each partition, without tombstones: its offset and value. `ends` are the offsets
    up to which each partition was read.
    """

    topic: Topic
    ends: list[int]
    records: dict[tuple[int, bytes], tuple[int, bytes]] = field(default_factory=dict)
    size: int = 0  # bytes of keys and values

    @property
    def offsets(self) -> TopicEnds:
        """Returns the ends in the form that the ledger has."""
        return TopicEnds(topic=self.topic.name, topic_id=self.topic.id, ends=tuple(self.ends))

    def add(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        """Adds a record that is newer than the others of its partition. A tombstone removes the record of its key."""
        before = self.records.pop((partition, key), None)
        if before is not None:
            self.size -= len(key) + len(before[1])
        if value is not None:
            self.records[partition, key] = offset, value
            self.size += len(key) + len(value)

    def in_several_partitions(self) -> list[list[Place]]:
        """Returns the places of the records of each key that is in several partitions."""
        if len({key for _, key in self.records}) == len(self.records):
            return []
        places: dict[bytes, list[Place]] = {}
        for (partition, key), (offset, _) in self.records.items():
            places.setdefault(key, []).append((partition, offset))
        return [sorted(found) for found in places.values() if len(found) > 1]


def read_newest(pipeline: Pipeline, cluster: Cluster, name: str, table: TopicTable) -> NewestByKey:
    """Returns the newest records of the topic of a side table, as they are together at the ends up to which they are read.
    Records of aborted and of open transactions do not count.

    Raises:
        SideTableRefused: a record has no key, or the records are too large.
        TopicMissing, AccessDenied: the topic does not exist, or the user may not read it.
        KafkaUnavailable: Kafka does not answer, or the topic changes too fast.
    """
    topic = cluster.describe(table.topic)
    found = NewestByKey(topic, cluster.earliest(topic))
    unread, deadline = set(range(topic.partitions)), float("inf")
    while unread:
        ends = cluster.last_stable(topic)
        stretches = {p: (found.ends[p], ends[p]) for p in unread}
        records = _read(pipeline, cluster, name, table, found, stretches)
        found.ends = [ends[p] if p in unread else end for p, end in enumerate(found.ends)]
        unread = {p for p, (first, end) in stretches.items() if records[p] < end - first}
        deadline = min(deadline, time.monotonic() + MOST_SECONDS)
        if unread and time.monotonic() > deadline:
            raise KafkaUnavailable(
                f"topic {topic.name} is written and compacted all the time, so within {MOST_SECONDS:.0f} s no read of it was "
                "sure to have the newest record of each key. Raise min.compaction.lag.ms of the topic, then run again."
            )
    if cluster.describe(table.topic) != topic:
        raise KafkaUnavailable(
            f"topic {topic.name} was created again or got more partitions while it was read. Run again."
        )
    return found


def _read(
    pipeline: Pipeline,
    cluster: Cluster,
    name: str,
    table: TopicTable,
    found: NewestByKey,
    stretches: Mapping[int, tuple[int, int]],
) -> dict[int, int]:
    """Adds the records of these stretches. Returns the number of records in each of them."""
    records = dict.fromkeys(stretches, 0)
    ranges = [
        OffsetRange(topic=table.topic, partition=p, start=first, end=end)
        for p, (first, end) in stretches.items()
        if first < end
    ]
    total, logged = sum(one.length for one in ranges), time.monotonic()
    doing = f"reading topic {table.topic}"
    for messages in messages_of(cluster.settings, pipeline.group, ranges, doing):
        for partition, offset, key, value in _with_keys(pipeline, name, table, messages):
            records[partition] += 1
            found.add(partition, offset, key, value)
        check_size(pipeline, name, found.size)
        if time.monotonic() > logged + TELL_EVERY:
            logged = time.monotonic()
            log.info(
                "pipeline %s: %s for side table %s: %d records of at most %d, and %d keys",
                *(pipeline.name, doing, name, sum(records.values()), total, len(found.records)),
            )
    return records


def _with_keys(
    pipeline: Pipeline, name: str, table: TopicTable, messages: list[Message]
) -> Iterator[tuple[int, int, bytes, bytes | None]]:
    """Yields partition, offset, key and value of each message.

    Raises:
        SideTableRefused: a message has no key.
    """
    for message in messages:
        partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
        assert partition is not None
        assert offset is not None
        if key is None:
            raise refused(
                pipeline,
                name,
                f"its record at partition {partition}, offset {offset} has no key, and a record without a key has no newest. "
                + (WITHOUT_KEY if table.envelope is None else TRUNCATED),
            )
        yield partition, offset, bytes(key), None if value is None else bytes(value)


WITHOUT_KEY = "Let the producer write a key to each record, and fill a new topic."
TRUNCATED = (
    "A truncation of the captured table is such a record, and does not say which rows it removed. Let the connector skip "
    "truncations (skipped.operations: t), and fill a new topic by a new snapshot."
)
