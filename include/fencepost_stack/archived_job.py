"""Runs the job whose classes are archived. It writes and validates a batch with every kind of work
(`class_archive.py`).

Usage: spark-submit archived_job.py FOLDER, with KAFKA_BOOTSTRAP set.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer

from fencepost.config.loading import load_pipeline
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.model import Interval
from fencepost.spark.session import build_session
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 100

SETTINGS = """
source:
  topic: in
  schema: {n: bigint not null, name: string, amount: double, at: timestamp}
output: {topic: out, key: name, partitions: 2, layout: output}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "${KAFKA_BOOTSTRAP}"}
"""
TRANSFORM = "SELECT *, amount / 2 AS half FROM {source} WHERE n >= 0"
EXPECTATIONS = """
expectations:
  - {type: expect_column_values_to_be_unique, kwargs: {column: n}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: at}}
"""


def main(work: Path) -> None:
    """Plans, writes and validates a pipeline's first batch."""
    folder = work / "archived"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(SETTINGS)
    (folder / "transform.sql").write_text(TRANSFORM)
    (folder / "expectations.yaml").write_text(EXPECTATIONS)
    pipeline = load_pipeline(folder)
    interval = _fill(os.environ["KAFKA_BOOTSTRAP"])
    plan_batch(pipeline, interval)
    spark = build_session(pipeline, "class archive")
    write_batch(spark, pipeline, interval)
    validate_batch(spark, pipeline, interval)
    spark.stop()


def _fill(bootstrap: str) -> Interval:
    """Produces records in two partitions, and returns their interval."""
    Cluster(ClientSettings({"bootstrap.servers": bootstrap})).ensure_topic("in", 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(ROWS):
        record = {"n": n, "name": f"name {n}", "amount": n / 2, "at": START.isoformat()}
        producer.produce("in", json.dumps(record), partition=n % 2, timestamp=int(START.timestamp() * 1000) + n)
    producer.flush()
    return Interval(start=START, end=START + timedelta(days=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
