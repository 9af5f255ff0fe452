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
from fencepost.local.broken_flights import broken_flights
from fencepost.local.nycflights import YEAR, Flight, day_of, days_between, read_flights

# Kafka deletes by record timestamp: a week's retention would delete flights of 2013 within minutes.
TOPIC_CONFIG = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}
STABLE_LIMIT = 60.0  # seconds to wait until a read_committed reader sees everything

Progress = Callable[[date, int, int, bool], None]


@dataclass(frozen=True)
class LoadSummary:
    """What a load did. `added` and `already_there` count flights; together they are all flights of `days`.

    `broken_added` and `broken_already_there` count broken records; together they are those that the topic has of `days`.
    """

    topic: str
    days: tuple[date, ...]
    added: int
    already_there: int
    broken_added: int = 0
    broken_already_there: int = 0


@dataclass(frozen=True)
class _Day:
    """What a day's records may be: its flights, and its broken records too or not. No load leaves anything between."""

    flights: Sequence[Flight]
    broken: Sequence[Flight]

    def in_order(self, *, broken: bool) -> list[Flight]:
        """The records to add, in order of scheduled departure; flights come before broken records of the same minute."""
        records = [*self.flights, *(self.broken if broken else ())]
        return sorted(records, key=lambda record: record.timestamp)  # a stable sort

    def broken_in(self, found: Counter[Flight]) -> int | None:
        """How many broken records are among those found; None where the day is not there as a load leaves it."""
        flights = Counter(self.flights)
        for broken in ([], self.broken):
            if found == flights + Counter(broken):
                return len(broken)
        return None


def load_flights(
    bootstrap: str,
    *,
    days: Sequence[date] | None = None,
    topic: str = "flights",
    partitions: int = 4,
    kafka: Mapping[str, str] | None = None,
    broken: bool = False,
    progress: Progress | None = None,
) -> LoadSummary:
    """Make sure that the topic has every flight of `days` (New York's; None: all of 2013) exactly once.

    In each partition records are in order of scheduled departure; flights of one minute are in the data set's order. When
    this returns, read_committed readers see all of them; when it raises, they see none that it added. `kafka` adds librdkafka
    settings, such as those of a secured cluster. `progress` is called at the end of each day, with the number of its flights,
    of its broken records in the topic, and whether they were added.

    `broken`: a day that is added gets its broken records too, for the demo's quarantine, exactly once like its flights. A day
    that is there already stays as it is, with them or without: its interval may be published, and they would be out of order.

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
    expected = {day: _Day(flights, broken_flights(day)) for day, flights in read_flights(wanted).items()}
    settings = ClientSettings({**(kafka or {}), "bootstrap.servers": bootstrap})
    cluster = Cluster(settings)
    target = cluster.ensure_topic(topic, partitions, TOPIC_CONFIG)
    _check_topic(cluster, target, partitions)
    missing: list[date] = []
    found, _ = _read_days(cluster, target, settings, wanted)  # 1
    if any(expected[day].broken_in(found[day]) is None for day in wanted):
        transaction = Transaction(settings, f"fencepost-load.{topic}", "load")
        transaction.init()  # 2
        _await_stable(cluster, target)
        found, latest = _read_days(cluster, target, settings, wanted)  # 3
        missing = _missing_days(topic, expected, found, latest)
        with transaction:  # 4
            for day in missing:
                _produce(transaction, topic, expected[day].in_order(broken=broken))
        _await_stable(cluster, target)
    added, there = Counter[str](), Counter[str]()
    for day, of_day in expected.items():
        is_added, flights, broken_now = day in missing, len(of_day.flights), of_day.broken_in(found[day]) or 0
        if is_added and broken:
            broken_now = len(of_day.broken)
        (added if is_added else there).update(flights=flights, broken=broken_now)
        if progress is not None:
            progress(day, flights, broken_now, is_added)
    return LoadSummary(topic, wanted, added["flights"], there["flights"], added["broken"], there["broken"])


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
    topic: str, expected: Mapping[date, _Day], found: Mapping[date, Counter[Flight]], latest: date
) -> list[date]:
    """The days without any record in the topic, in order; NeedsOperator if they cannot be added."""
    cure = "Load into another topic, or delete this one and load again."
    for day, there in found.items():
        if there and expected[day].broken_in(there) is None:
            flights = Counter(expected[day].flights)
            raise NeedsOperator(
                f"topic {topic} has {(there & flights).total()} of the {flights.total()} flights of {day} "
                f"and {(there - flights).total()} other records: another program wrote them, "
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
