"""A DAG that each new announcement wakes, in an Airflow that does not know the pipeline. It copies published batches into SQLite.

It needs Airflow's Kafka provider, and published_batches.py beside this file. The connection's extra has `bootstrap.servers`, the
reader's `group.id`, `"auto.offset.reset": "earliest"`, and its login:

    {"bootstrap.servers": "kafka:9092", "group.id": "reports", "auto.offset.reset": "earliest"}

The trigger commits its position in the group before Airflow has the event. So an event may be lost, and after a failure it may
come twice. The task does not rely on the event: it reads all announcements after the position in its own database.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from airflow.providers.apache.kafka.triggers.await_message import AwaitMessageTrigger
from airflow.sdk import Asset, AssetOrTimeSchedule, AssetWatcher, BaseHook, CronTriggerTimetable, dag, task

PIPELINE = "nyc_flights"
CONNECTION = "kafka_reader"
DATABASE = "/var/lib/reports/batches.sqlite"
AT_THE_LATEST = "0 * * * *"  # the DAG also runs at these times, in case an event was lost

announced = Asset(
    f"announced-{PIPELINE}",
    watchers=[
        AssetWatcher(
            name=f"announcements-of-{PIPELINE}",
            trigger=AwaitMessageTrigger(topics=[f"fencepost.{PIPELINE}.published"], kafka_config_id=CONNECTION),
        )
    ],
)


@dag(
    dag_id=f"copy_{PIPELINE}",
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(AT_THE_LATEST, timezone="UTC"),
        assets=[announced],
    ),
    catchup=False,
    max_active_runs=1,  # one position, so one reader
)
def copy_published_batches() -> None:
    """Copy everything that was announced since the last run."""

    @task(retries=2)
    def copy() -> int:
        from published_batches import follow  # pandas: no time for it when DAGs are parsed

        settings: dict[str, Any] = BaseHook.get_connection(CONNECTION).extra_dejson
        with closing(sqlite3.connect(DATABASE)) as target:
            return follow(settings, PIPELINE, target)

    copy()


copy_published_batches()
