"""Loads real flights into the demo's source topic: exactly once, however often it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
from fencepost.local.nycflights import YEAR, Flight, day_of, days_between, read_flights

# Kafka deletes by record timestamp: a week's retention would delete flights of 2013 within minutes.
TOPIC_CONFIG = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}
STABLE_LIMIT = 60.0  # seconds to wait until a read_committed reader sees everything

Progress = Callable[[date, int, bool], None]


@dataclass(frozen=True)
class LoadSummary:
    """What a load did. `added` and `already_there` count flights; together they are all flights of `days`."""

    topic: str
    days: tuple[date, ...]
    added: int
    already_there: int


def load_flights(
    bootstrap: str,
    *,
    days: Sequence[date] | None = None,
    topic: str = "flights",
    partitions: int = 4,
    kafka: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> LoadSummary:
    """Make sure that the topic has every flight of `days` (New York's; None: all of 2013) exactly once.

    In each partition records are in order of scheduled departure; flights of one minute are in the data set's order. When
    this returns, read_committed readers see all of them; when it raises, they see none that it added. `kafka` adds librdkafka
    settings, such as those of a secured cluster. `progress` is called at the end of each day, with the number of its flights
    and whether they were added.

    1. do nothing if a read_committed reader sees all of them;
    2. otherwise init_transactions fences any other load, and aborts what an interrupted one left open;
    3. read the topic again, because the other load may just have committed: now it is known what is missing;
    4. produce that and commit it in one transaction.

    Raises:
        NeedsOperator: the topic has other records for a day, has later days already, or has settings that would lose or
            reorder the flights.
        ValueError: a day lies outside 2013, or the data set contradicts itself.
        Retriable: Kafka did not answer, or another load took over; the same call again does what is left.
    """
    wanted = tuple(sorted(set(days if days is not None else days_between(*YEAR))))
    flights = read_flights(wanted)
    settings = ClientSettings({**(kafka or {}), "bootstrap.servers": bootstrap})
    cluster = Cluster(settings)
    target = cluster.ensure_topic(topic, partitions, TOPIC_CONFIG)
    _check_topic(cluster, target, partitions)
    missing: list[date] = []
    found, _ = _read_days(cluster, target, settings, wanted)  # 1
    if any(found[day] != Counter(flights[day]) for day in wanted):
        transaction = Transaction(settings, f"fencepost-load.{topic}", "load")
        transaction.init()  # 2
        _await_stable(cluster, target)
        missing = _missing_days(topic, flights, *_read_days(cluster, target, settings, wanted))  # 3
        with transaction:  # 4
            for day in missing:
                _produce(transaction, topic, flights[day])
        _await_stable(cluster, target)
    if progress is not None:
        for day in wanted:
            progress(day, len(flights[day]), day in missing)
    added = sum(len(flights[day]) for day in missing)
    total = sum(len(of_day) for of_day in flights.values())
    return LoadSummary(topic=topic, days=wanted, added=added, already_there=total - added)


def _produce(transaction: Transaction, topic: str, flights: Sequence[Flight]) -> None:
    columns = {
        "key": pa.array([flight.key for flight in flights], pa.binary()),
        "value": pa.array([flight.value for flight in flights], pa.binary()),
        "timestamp": pa.array([flight.timestamp for flight in flights], pa.int64()),
    }
    transaction.produce_rows(topic, pa.RecordBatch.from_pydict(columns))


def _await_stable(cluster: Cluster, topic: Topic) -> None:
    """Wait until a read_committed reader sees everything; OpenTransaction if that takes too long."""
    ends = cluster.high_watermarks(topic)
    cluster.await_stable(topic, ends, STABLE_LIMIT, f"loading topic {topic.name}")


def _read_days(
    cluster: Cluster, topic: Topic, settings: ClientSettings, days: Collection[date]
) -> tuple[dict[date, Counter[Flight]], date]:
    """The flights of each day that a read_committed reader sees, and the latest day of any record."""
    found: dict[date, Counter[Flight]] = {day: Counter() for day in days}
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
                found[day][Flight(timestamp, message.key() or b"", message.value() or b"")] += 1
    finally:
        consumer.close()
    return found, latest


def _missing_days(
    topic: str, flights: Mapping[date, Sequence[Flight]], found: Mapping[date, Counter[Flight]], latest: date
) -> list[date]:
    """The days without any flight in the topic, in order; NeedsOperator if they cannot be added."""
    cure = "Load into another topic, or delete this one and load again."
    for day, there in found.items():
        expected = Counter(flights[day])
        if there and there != expected:
            raise NeedsOperator(
                f"topic {topic} has {(there & expected).total()} of the {len(flights[day])} flights of {day} "
                f"and {(there - expected).total()} other records: another program wrote them, "
                f"or records were deleted. {cure}"
            )
    missing = sorted(day for day, there in found.items() if not there)
    if missing and latest > missing[0]:
        raise NeedsOperator(
            f"topic {topic} has no flights of {missing[0]} but records as late as {latest}: adding flights now "
            f"would put them out of order. {cure}"
        )
    return missing


def _check_topic(cluster: Cluster, topic: Topic, partitions: int) -> None:
    """Raise NeedsOperator if an existing topic would lose or reorder the flights."""
    cure = "Set it with kafka-configs, or delete the topic and load again."
    if topic.partitions != partitions:
        raise NeedsOperator(
            f"topic {topic.name} has {topic.partitions} partitions instead of {partitions}. Ask for that many, or "
            "delete the topic and load again."
        )
    for name, value in TOPIC_CONFIG.items():
        found = cluster.topic_config(topic.name, name)
        if found != value:
            raise NeedsOperator(f"topic {topic.name}: {name} is {found}, flights need {value}. {cure}")
