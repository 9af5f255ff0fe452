"""Loads the days of a data set into a topic: exactly once, however often it runs, and in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
from confluent_kafka import TopicPartition

from fencepost.errors import NeedsOperator
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import read_until
from fencepost.kafka.transaction import Transaction
from fencepost.local.nycflights import Record, day_of

# Kafka deletes by record timestamp: a week's retention would delete records of 2013 within minutes.
TOPIC_CONFIG = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}
STABLE_LIMIT = 60.0  # seconds to wait until a read_committed reader sees everything


@dataclass(frozen=True)
class Day:
    """What a day's records may be, each alternative in the order of its timestamps; the first is the one to add."""

    alternatives: tuple[Sequence[Record], ...]

    def found_as(self, found: Counter[Record]) -> Sequence[Record] | None:
        """The alternative that was found; None where the day is not there as a load leaves it."""
        return next((records for records in self.alternatives if Counter(records) == found), None)


@dataclass(frozen=True)
class Loaded:
    """A day's records in the topic, and whether this load added them."""

    records: Sequence[Record]
    added: bool


def load_days(
    settings: ClientSettings, topic: str, partitions: int, expected: Mapping[date, Day], noun: str
) -> dict[date, Loaded]:
    """Make sure that the topic has the records of each day exactly once; a day that is there stays as it is.

    When this returns, read_committed readers see all of them; when it raises, they see none that it added. `noun` names the
    records in messages.

    1. do nothing if a read_committed reader sees all of them;
    2. otherwise init_transactions fences any other load, and aborts what an interrupted one left open;
    3. read the topic again, because the other load may just have committed: now it is known what is missing;
    4. produce that and commit it in one transaction.

    Raises:
        NeedsOperator: the topic has other records for a day, has later days already, or has settings that would lose or
            reorder the records.
        Retriable: Kafka did not answer, or another load took over; the same call again does what is left.
    """
    cluster = Cluster(settings)
    target = cluster.ensure_topic(topic, partitions, TOPIC_CONFIG)
    _check_topic(cluster, target, partitions, noun)
    missing: list[date] = []
    found, _ = _read_days(cluster, target, settings, expected)  # 1
    if any(day.found_as(found[name]) is None for name, day in expected.items()):
        transaction = Transaction(settings, f"fencepost-load.{topic}", "load")
        transaction.init()  # 2
        _await_stable(cluster, target)
        found, latest = _read_days(cluster, target, settings, expected)  # 3
        missing = _missing_days(topic, expected, found, latest, noun)
        with transaction:  # 4
            for name in missing:
                _produce(transaction, topic, expected[name].alternatives[0])
        _await_stable(cluster, target)
    return {
        name: Loaded(day.found_as(found[name]) or day.alternatives[0], name in missing)
        for name, day in expected.items()
    }


def _produce(transaction: Transaction, topic: str, records: Sequence[Record]) -> None:
    columns = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
    }
    transaction.produce_rows(topic, pa.RecordBatch.from_pydict(columns))


def _await_stable(cluster: Cluster, topic: Topic) -> None:
    """Wait until a read_committed reader sees everything; OpenTransaction if that takes too long."""
    ends = cluster.high_watermarks(topic)
    cluster.await_stable(topic, ends, STABLE_LIMIT, f"loading topic {topic.name}")


def _read_days(
    cluster: Cluster, topic: Topic, settings: ClientSettings, days: Collection[date]
) -> tuple[dict[date, Counter[Record]], date]:
    """The records of each day that a read_committed reader sees, and the latest day of any record."""
    found: dict[date, Counter[Record]] = {day: Counter() for day in days}
    latest = date.min
    ends = dict(enumerate(cluster.last_stable(topic)))
    starts = {p: start for p, start in enumerate(cluster.earliest(topic)) if start < ends[p]}
    consumer, complaints = make_consumer(settings, f"fencepost-load.{topic.name}")
    try:
        consumer.assign([TopicPartition(topic.name, p, start) for p, start in starts.items()])
        ends = {p: ends[p] for p in starts}
        for message in read_until(consumer, complaints, settings, ends, f"reading topic {topic.name}"):
            timestamp = message.timestamp()[1]
            day = day_of(timestamp)
            latest = max(latest, day)
            if day in found:
                found[day][Record(timestamp, message.key() or b"", message.value() or b"")] += 1
    finally:
        consumer.close()
    return found, latest


def _missing_days(
    topic: str, expected: Mapping[date, Day], found: Mapping[date, Counter[Record]], latest: date, noun: str
) -> list[date]:
    """The days without any record in the topic, in order; NeedsOperator if they cannot be added."""
    cure = "Load into another topic, or delete this one and load again."
    for day, there in found.items():
        if there and expected[day].found_as(there) is None:
            wanted = min((Counter(records) for records in expected[day].alternatives), key=Counter.total)
            raise NeedsOperator(
                f"topic {topic} has {(there & wanted).total()} of the {wanted.total()} {noun} of {day} "
                f"and {(there - wanted).total()} other records: another program wrote them, "
                f"or records were deleted. {cure}"
            )
    missing = sorted(day for day, there in found.items() if not there and expected[day].alternatives[0])
    if missing and latest > missing[0]:
        raise NeedsOperator(
            f"topic {topic} has no {noun} of {missing[0]} but records as late as {latest}: adding {noun} now "
            f"would put them out of order. {cure}"
        )
    return missing


def _check_topic(cluster: Cluster, topic: Topic, partitions: int, noun: str) -> None:
    """Raise NeedsOperator if an existing topic would lose or reorder the records."""
    cure = "Set it with kafka-configs, or delete the topic and load again."
    if topic.partitions != partitions:
        raise NeedsOperator(
            f"topic {topic.name} has {topic.partitions} partitions instead of {partitions}. Ask for that many, or "
            "delete the topic and load again."
        )
    for name, value in TOPIC_CONFIG.items():
        found = cluster.topic_config(topic.name, name)
        if found != value:
            raise NeedsOperator(f"topic {topic.name}: {name} is {found}, {noun} need {value}. {cure}")
