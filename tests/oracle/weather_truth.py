"""What topic `weather_metric` and table `weather.observations` must hold for given days, computed with pandas from the CSV
file alone.

It shares no code with the loader or the transform. The timestamps come from the local time by the zone's rules, where the loader
uses the data set's own UTC hour. Gusts are in the topic from noon of 2 January on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import pandas as pd

from oracle.flights_truth import table

GUSTS_FROM = pd.Timestamp("2013-01-02 12:00", tz="America/New_York")


def expected_weather(days: Iterable[date]) -> list[dict[str, Any]]:
    """The values of these New York days' observations, by hour, then by airport; times are in UTC."""
    wanted = {(day.month, day.day) for day in days if day.year == 2013}
    frame = weather_frame()
    rows = frame[[pair in wanted for pair in zip(frame.month, frame.day, strict=True)]]
    plain = rows.drop(columns=["month", "day"]).sort_values(["observed_at", "origin"]).astype(object)
    return [{str(k): v for k, v in row.items()} for row in plain.where(plain.notna(), None).to_dict("records")]


def expected_observations(days: Iterable[date]) -> list[dict[str, Any]]:
    """The rows of the table: the values of the topic, each with the start of its day in UTC and the first revision."""
    return [
        {**value, "fencepost_interval": start.tz_convert("UTC").to_pydatetime(), "fencepost_revision": 1}
        for day in days
        for start in [pd.Timestamp(day, tz="America/New_York")]
        for value in expected_weather([day])
    ]


@cache
def weather_frame() -> pd.DataFrame:
    """All 26,115 observations with every output column, and the New York month and day. Do not change it: it is kept."""
    weather = table("weather.csv")
    clock = pd.to_datetime(weather[["year", "month", "day", "hour"]])
    # The hour that November repeats is there twice for each airport, the one in summer time first.
    summer = ~weather.duplicated(["origin", "year", "month", "day", "hour"])
    local = clock.dt.tz_localize("America/New_York", ambiguous=summer.to_numpy(), nonexistent="raise")
    frame = weather[["month", "day", "origin"]].copy()
    frame["observed_at"] = local.dt.tz_convert("UTC")
    frame["temp_c"], frame["dewp_c"] = ((weather[name] - 32) * 5 / 9 for name in ("temp", "dewp"))
    frame["humidity"] = weather.humid
    frame["wind_dir"] = weather.wind_dir.astype("Int64")
    frame["wind_kmh"] = weather.wind_speed * 1.609344
    frame["gust_kmh"] = (weather.wind_gust * 1.609344).where(local >= GUSTS_FROM)
    frame["precip_mm"] = [Decimal(str(inches)) * Decimal("25.4") for inches in weather.precip]
    frame["pressure_hpa"] = weather.pressure
    frame["visibility_km"] = weather.visib * 1.609344
    wet = weather.precip > 0
    frame["sky"] = "dry"
    frame.loc[weather.visib < 1, "sky"] = "fog"
    frame.loc[wet, "sky"] = "rain"
    frame.loc[wet & (weather.temp <= 32), "sky"] = "snow"
    return frame
