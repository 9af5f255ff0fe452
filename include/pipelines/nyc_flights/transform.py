"""Flights with airline, aircraft and measures of delay: row by row, and as many rows out as in."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def transform(flights: DataFrame, airlines: DataFrame, aircraft: DataFrame) -> DataFrame:
    """One row out for each row in, in the same order.

    Both joins are left joins with a side table whose key is unique: no flight is lost or doubled. Side tables are
    broadcast, so nothing is shuffled. Airline and aircraft are null where the tables do not know them. No value depends
    on the clock, the session's time zone or other rows.
    """
    return (
        flights.join(airlines, "carrier", "left")
        .join(aircraft, "tailnum", "left")
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
