"""Loads real flights, and a few broken records, into the demo's source topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from fencepost.kafka.client_settings import ClientSettings
from fencepost_stack.broken_flights import broken_flights
from fencepost_stack.loader import load
from fencepost_stack.nycflights import read_flights


@dataclass(frozen=True)
class LoadedFlights:
    """The numbers of loaded records. `added` is False if nothing was loaded because the topic had records before."""

    flights: int
    broken: int
    added: bool


def load_flights(kafka: Mapping[str, str], days: Sequence[date], topic: str = "flights") -> LoadedFlights:
    """Loads every flight of these days in New York, with their broken records, if the topic has no records.

    In each of four partitions records are in order of scheduled departure. Flights of the same minute are in the data
    set's order, and come before broken records. `kafka` are librdkafka's settings.

    Raises:
        ValueError: a day lies outside 2013, or the data set contradicts itself.
        Retriable: see `load`.
    """
    flights = [flight for of_day in read_flights(days).values() for flight in of_day]
    broken = [record for day in days for record in broken_flights(day)]
    records = sorted([*flights, *broken], key=lambda record: record.timestamp)  # a stable sort
    return LoadedFlights(len(flights), len(broken), load(ClientSettings(dict(kafka)), topic, 4, records))
