"""Observations in metric units: row by row, and as many rows out as in."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KM_PER_MILE = 1.609344


def transform(weather: DataFrame) -> DataFrame:
    """One row out for each row in, in the same order. No value depends on the clock, the session's time zone or other rows.

    `gust_kmh` is null for records of the schema that had no gusts.
    """
    return weather.select(
        *("_key", "_record"),  # the record as it came: quarantine keeps it byte for byte
        "origin",
        F.col("time_hour").alias("observed_at"),
        celsius("temp").alias("temp_c"),
        celsius("dewp").alias("dewp_c"),
        F.col("humid").alias("humidity"),  # per cent
        "wind_dir",  # degrees
        (F.col("wind_speed") * KM_PER_MILE).alias("wind_kmh"),
        (F.col("wind_gust") * KM_PER_MILE).alias("gust_kmh"),
        (F.col("precip") * F.lit("25.4").cast("decimal(3,1)")).alias("precip_mm"),
        F.col("pressure").alias("pressure_hpa"),
        (F.col("visib") * KM_PER_MILE).alias("visibility_km"),
        sky().alias("sky"),
    )


def celsius(column: str) -> Column:
    """Degrees Celsius of a column in degrees Fahrenheit."""
    return (F.col(column) - 32) * 5 / 9


def sky() -> Column:
    """What fell, or how far one saw."""
    falls = F.col("precip") > 0
    return (
        F.when(falls & (F.col("temp") <= 32), "snow")
        .when(falls, "rain")
        .when(F.col("visib") < 1, "fog")
        .otherwise("dry")
    )
