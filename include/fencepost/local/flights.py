"""Loads real flights into the demo's source topic: exactly once, however often it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from fencepost.kafka.client_settings import ClientSettings
from fencepost.local.broken_flights import broken_flights
from fencepost.local.loader import Day, load_days
from fencepost.local.nycflights import YEAR, Record, days_between, read_flights

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

    Raises:
        NeedsOperator: the topic has other records for a day, has later days already, or has settings that would lose or
            reorder the flights.
        ValueError: a day lies outside 2013, or the data set contradicts itself.
        Retriable: Kafka did not answer, or another load took over; the same call again does what is left.
    """
    wanted = tuple(sorted(set(days if days is not None else days_between(*YEAR))))
    flights = read_flights(wanted)
    expected = {day: _day(flights[day], broken_flights(day), broken=broken) for day in wanted}
    settings = ClientSettings({**(kafka or {}), "bootstrap.servers": bootstrap})
    added, there = Counter[str](), Counter[str]()
    for day, loaded in load_days(settings, topic, partitions, expected, "flights").items():
        told = {"flights": len(flights[day]), "broken": len(loaded.records) - len(flights[day])}
        (added if loaded.added else there).update(told)
        if progress is not None:
            progress(day, told["flights"], told["broken"], loaded.added)
    return LoadSummary(topic, wanted, added["flights"], there["flights"], added["broken"], there["broken"])


def _day(flights: Sequence[Record], broken_ones: Sequence[Record], *, broken: bool) -> Day:
    """A day with its broken records or without; flights come before broken records of the same minute."""
    mixed = sorted([*flights, *broken_ones], key=lambda record: record.timestamp)  # a stable sort
    return Day((mixed, flights) if broken else (flights, mixed))
