"""Flights counted by carrier and hour of scheduled departure."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

FLIGHT = ("year", "month", "day", "carrier", "flight", "origin")  # a flight number leaves an airport once a day


def transform(flights: DataFrame) -> DataFrame:
    """One row for each carrier and hour. No value depends on the clock, the session's time zone or the order of rows.

    A day that `nyc_flights` wrote again lies in the topic twice. Where one batch reads both, the newer record of a flight counts.
    """
    place = F.struct("_offset", "_partition")  # a flight keeps its partition, and so its order
    newest = flights.groupBy(*FLIGHT).agg(
        F.max_by(F.struct("airline", "time_hour", "dep_delay"), place).alias("newest")
    )
    return (
        newest.select("carrier", "newest.*")
        .groupBy(F.col("time_hour").alias("hour"), "carrier", "airline")
        .agg(
            F.count("*").cast("int").alias("flights"),
            F.count("dep_delay").cast("int").alias("departed"),  # the others were cancelled
            F.count_if(F.col("dep_delay") >= 15).cast("int").alias("late"),  # the airlines' own line
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),  # of all that departed
        )
    )
