"""A reader of the demo's output: each time `nyc_flights` publishes, mean delays by carrier of exactly what it published."""

from __future__ import annotations

from airflow.sdk import dag, task

from fencepost.airflow import SPARK_POOL, output_asset
from fencepost.config.loading import find_pipeline
from fencepost.paths import pipelines_folder

FLIGHTS = "nyc_flights"

if (pipelines_folder() / FLIGHTS).is_dir():
    delays = output_asset(FLIGHTS, "flight_delays")

    @dag(schedule=[delays], catchup=False, tags=["fencepost", "demo"], doc_md=__doc__)
    def flight_delays_by_carrier() -> None:
        @task(pool=SPARK_POOL)
        def summarise(triggering_asset_events=None):  # type: ignore[no-untyped-def]
            from pyspark.sql import functions as F

            from fencepost import read_validated
            from fencepost.spark.session import build_session

            told = [event.extra for event in triggering_asset_events[delays]]
            spark = build_session(find_pipeline(FLIGHTS), "by carrier")
            try:
                flights = read_validated(spark, told).groupBy("carrier")
                found = flights.agg(F.count("*"), F.round(F.avg("dep_delay"), 1)).orderBy("carrier").collect()
            finally:
                spark.stop()
            for carrier, flown, delay in found:
                print(f"{carrier}: {flown} flights, {delay} minutes late on average")  # noqa: T201
            return {"batches": [event["batch"] for event in told], "flights": sum(row[1] for row in found)}

        summarise()

    flight_delays_by_carrier()
