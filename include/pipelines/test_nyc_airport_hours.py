"""The transform of `nyc_airport_hours` on a few flights and observations: a join by airport and hour, and days written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fencepost.testing.trial import Trials

NYC_AIRPORT_HOURS = Path(__file__).with_name("nyc_airport_hours")
DAY = {"year": 2013, "month": 1, "day": 1, "origin": "EWR", "carrier": "UA"}
AT_TEN, AT_ELEVEN = "2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"
COLUMNS: dict[str, Any] = {
    "origin": "string",
    "observed_at": {"type": "long", "logicalType": "timestamp-micros"},
    "sky": "string",
    "precip_mm": {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 3},
    "wind_kmh": "double",
}
UNKNOWN = ("None", "None", "None")


def flight(number: int, delay: int | None, hour: str = AT_TEN, **more: Any) -> dict[str, Any]:
    """A flight as the topic has it."""
    return {**DAY, "flight": number, "dep_delay": delay, "time_hour": hour, **more}


def observation(sky: str, at: str = AT_TEN, **more: Any) -> dict[str, Any]:
    """An observation as the topic has it."""
    return {"origin": "EWR", "observed_at": at, "sky": sky, "precip_mm": "0.250", "wind_kmh": 20.25, **more}


@pytest.fixture
def joined(fencepost_transform: Trials, tmp_path: Path) -> Any:
    """The rows for these flights and observations: airport, hour in UTC, flights, departed, late, minutes, weather."""
    schema = tmp_path / "weather_metric.avsc"
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in COLUMNS.items()]
    schema.write_text(json.dumps({"type": "record", "name": "Observation", "fields": fields}))

    def join(flights: list[dict[str, Any]], weather: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        given = {"flights": flights, "weather": weather}
        outcome = fencepost_transform(NYC_AIRPORT_HOURS, given, schema={"weather": schema})
        counts = ("flights", "departed", "late", "delay_minutes")
        return sorted(
            (
                row["origin"],
                f"{row['hour']:%H}",
                *(row[name] for name in counts),
                *(str(row[name]) for name in ("sky", "precip_mm", "wind_kmh")),
            )
            for row in outcome.rows
        )

    return join


def test_each_airport_and_hour_with_flights_is_there_once_beside_its_weather(joined: Any) -> None:
    flights = [
        flight(1, 15),
        flight(2, -3),
        flight(3, None),
        flight(4, 14, AT_ELEVEN),
        flight(1, 100, carrier="B6", origin="JFK"),
    ]
    weather = [observation("rain"), observation("dry", AT_ELEVEN, wind_kmh=None), observation("fog", origin="LGA")]
    assert joined(flights, weather) == [
        ("EWR", "10", 3, 2, 1, 12, "rain", "0.250", "20.3"),
        ("EWR", "11", 1, 1, 0, 14, "dry", "0.250", "None"),
        ("JFK", "10", 1, 1, 1, 100, *UNKNOWN),
    ]


def test_of_several_observations_in_an_hour_the_last_one_counts(joined: Any) -> None:
    weather = [
        observation("rain", "2013-01-01T10:51:00Z"),
        observation("dry"),
        observation("fog", "2013-01-01T11:00:00Z"),
    ]
    assert joined([flight(1, 0), flight(2, 1)], weather) == [("EWR", "10", 2, 2, 0, 1, "rain", "0.250", "20.3")]


def test_of_what_was_published_again_the_newer_record_counts_on_both_sides(joined: Any) -> None:
    flights = [{**flight(1, 20, AT_ELEVEN), "_offset": 5}, {**flight(1, 15), "_offset": 3}]
    weather = [
        {**observation("snow", AT_ELEVEN), "_offset": 9},
        {**observation("rain", AT_ELEVEN), "_offset": 4},
        {**observation("rain"), "_offset": 3},
    ]
    assert joined(flights, weather) == [("EWR", "11", 1, 1, 1, 20, "snow", "0.250", "20.3")]


def test_without_weather_every_flight_is_counted_and_without_flights_there_is_no_row(joined: Any) -> None:
    assert joined([flight(1, 0)], []) == [("EWR", "10", 1, 1, 0, 0, *UNKNOWN)]
    assert joined([], [observation("rain")]) == []
