"""A wide batch on a cluster: 64 source and 256 output partitions, by 1, 2 and 4 executors, and by 2 of which one is lost.

    python -m benchmarks.cluster [rows]

Starts three brokers and a Spark cluster of two workers in a temporary folder (`fencepost cluster` without Airflow), runs the
four steps for each case by the command line, compares the output with the source, prints a table, and keeps it in
benchmarks/results/cluster.json. On a machine of two cores it shows what more executors cost, not what they gain.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.data import log
from fencepost.config.loading import load_pipeline
from fencepost.errors import FencepostError
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch
from fencepost_stack.airflow import Folders
from fencepost_stack.cluster_stack import ClusterStack
from fencepost_stack.state_folder import StateFolder

KEPT = Path(__file__).with_name("results") / "cluster.json"
SOURCE, OUTPUT = 64, 256  # partitions
ROWS, SIZE = 500_000, 200  # bytes of a value
DAY = datetime(2026, 1, 1, tzinfo=UTC)
LOST = "two_one_lost"
EXECUTORS = {"one": 1, "two": 2, "four": 4, LOST: 2}
SETTINGS = """
source: {{topic: wide, format: bytes}}
output: {{topic: {name}, format: bytes, key: _key, partitions: {output}, layout: output, publish: direct}}
schedule: {{start: 2026-01-01}}
kafka:
  bootstrap.servers: ${{KAFKA_BOOTSTRAP}}
  security.protocol: ${{KAFKA_SECURITY_PROTOCOL}}
  sasl.mechanism: SCRAM-SHA-512
  sasl.username: {name}
  sasl.password: ${{KAFKA_PASSWORD_{variable}}}
  ssl.ca.location: ${{KAFKA_CA_LOCATION}}
spark: {{spark.cores.max: "{executors}", spark.driver.memory: 1g}}
"""
EXPECTATIONS = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: value}}]\n"


def main(rows: int) -> None:
    """All cases, one after another."""
    out = Console()
    with running() as stack:
        fill(stack, rows)
        table = Table("case", "executors", "write, s", "whole run, s", "rows", "verdict")
        kept = []
        for name, executors in EXECUTORS.items():
            seconds = run(stack, name)
            batch = batch_of(stack, name)
            assert batch.written is not None
            assert batch.verdict is not None
            if batch.written.rows != rows or batch.written.tasks != OUTPUT:
                raise RuntimeError(
                    f"{name}: {batch.written.rows} rows by {batch.written.tasks} task-partitions, wanted {rows}"
                )
            told = "2, one lost in the middle" if name == LOST else str(executors)
            row = (batch.written.seconds, seconds)
            table.add_row(name, told, *(f"{s:.1f}" for s in row), f"{batch.written.rows:,}", batch.verdict.outcome)
            kept.append({"case": name, "executors": told, "write": round(row[0], 1), "run": round(row[1], 1)})
            out.print(f"{name}: {row[0]:.1f} s")
        out.print(table)
    KEPT.write_text(json.dumps({"rows": rows, "bytes": SIZE, "cases": kept}, indent=2) + "\n")


@contextmanager
def running() -> Iterator[ClusterStack]:
    """Brokers and Spark, with the pipelines of all cases; stopped and deleted at the end."""
    with tempfile.TemporaryDirectory() as folder:
        pipelines = Path(folder) / "pipelines"
        for name, executors in EXECUTORS.items():
            own = pipelines / name
            own.mkdir(parents=True)
            settings = SETTINGS.format(name=name, output=OUTPUT, executors=executors, variable=name.upper())
            (own / "pipeline.yaml").write_text(settings)
            (own / "transform.py").write_text("def transform(frame):\n    return frame.select('_key', 'value')\n")
            (own / "expectations.yaml").write_text(EXPECTATIONS)
        local = StateFolder(Path(folder) / "state", StateFolder.default().jars)
        stack = ClusterStack(local, Folders(pipelines, pipelines, pipelines))
        try:
            for service in ("kafka", "spark"):
                stack.up(service)
            yield stack
        finally:
            stack.down()


def fill(stack: ClusterStack, rows: int) -> None:
    """Rows with keys that spread over all partitions, an hour into the day."""
    settings = stack.kafka.admin_settings()
    admin = AdminClient(settings, logger=log)
    admin.create_topics([NewTopic("wide", SOURCE, -1)])["wide"].result(60)
    producer = Producer({**settings, "linger.ms": 50, "compression.type": "lz4"}, logger=log)
    at = int(DAY.timestamp() * 1000) + 3_600_000
    for number in range(rows):
        value = f"{number:08d}".encode() * (SIZE // 8)
        while True:
            try:
                producer.produce("wide", value, f"key-{number}".encode(), timestamp=at)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("the source could not be filled")
    if (
        sum(Cluster(ClientSettings(settings)).high_watermarks(Cluster(ClientSettings(settings)).describe("wide")))
        != rows
    ):
        raise RuntimeError(f"the source does not hold {rows} rows")


def run(stack: ClusterStack, name: str) -> float:
    """Seconds of `fencepost run`; in the case of a lost worker one is killed while its executor works."""
    command = [sys.executable, "-c", "from fencepost.cli.app import main; main()", "run", name]
    command += ["--start", "2026-01-01", "--end", "2026-01-02"]
    environment = {**os.environ, **stack.environment()}
    killer = Thread(target=kill_a_worker, args=(stack,), daemon=True)
    began = time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        if name == LOST:
            killer.start()
        said = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"{name}: exit code {process.returncode}: {said[-2000:]}")
    if name == LOST and killer.is_alive():
        raise RuntimeError("no worker was killed: its executor was never at work")
    return time.monotonic() - began


def kill_a_worker(stack: ClusterStack) -> None:
    """As soon as rows come out, with executors on both workers."""
    settings = ClientSettings(stack.kafka.admin_settings())
    while True:
        try:
            cluster = Cluster(settings)
            begun = sum(cluster.high_watermarks(cluster.describe(LOST))) > 0
        except FencepostError:  # the topic is not there yet
            begun = False
        if begun and all(worker["coresused"] for worker in stack.spark.state().get("workers", [])):
            stack.kill("spark", "worker-2")
            return
        time.sleep(0.1)


def batch_of(stack: ClusterStack, name: str) -> Batch:
    """The case's batch, from its ledger."""
    before = dict(os.environ)
    os.environ.update(stack.environment())
    try:
        [batch] = Ledger(load_pipeline(stack.folders.pipelines / name)).read().all()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return batch


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
