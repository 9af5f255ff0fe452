"""A reader of the demo's table: each time `nyc_delays` publishes, mean delays by carrier of exactly what it published."""

from __future__ import annotations

from airflow.sdk import dag, task

from fencepost.airflow import output_asset
from fencepost.config.loading import find_pipeline
from fencepost.paths import pipelines_folder

DELAYS = "nyc_delays"
BY_CARRIER = """
SELECT carrier, sum(flights), round(1.0 * sum(delay_minutes) / sum(departed), 1) FROM delays_by_hour
WHERE (fencepost_interval, fencepost_revision) IN %s GROUP BY carrier ORDER BY carrier
"""

if (pipelines_folder() / DELAYS).is_dir():
    delays = output_asset(DELAYS, "public.delays_by_hour")

    @dag(schedule=[delays], catchup=False, tags=["fencepost", "demo"], doc_md=__doc__)
    def flight_delays_by_carrier() -> None:
        @task
        def summarise(triggering_asset_events=None):  # type: ignore[no-untyped-def]
            from contextlib import closing

            import psycopg2

            announced = [event.extra for event in triggering_asset_events[delays]]
            batches = tuple((event["interval"]["start"], event["revision"]) for event in announced)
            login = {name: value.get_secret_value() for name, value in find_pipeline(DELAYS).postgres.items()}
            with closing(psycopg2.connect(**login)) as connection, connection.cursor() as cursor:
                cursor.execute(BY_CARRIER, (batches,))
                found = cursor.fetchall()
            for carrier, flights, minutes in found:
                print(f"{carrier}: {flights} flights, {minutes} minutes late on average")  # noqa: T201
            return {"batches": [event["batch"] for event in announced], "flights": sum(row[1] for row in found)}

        summarise()

    flight_delays_by_carrier()
