"""What an interval costs when many are caught up: python -m benchmarks.catch_up [intervals] [through Airflow] [made]

`fencepost run --each` over daily intervals of 100 records, two years of them in a zone with summer time, on a stack of its own;
then Airflow runs the next ones behind that ledger. `made` puts so many published intervals without records into the ledger first,
copies of one that was run: on a busy machine fewer intervals then show what a long ledger adds. Times each interval by the line
that the command prints when it ends, and afterwards the same command again, `fencepost status` and the pages. Prints the figures,
and keeps them in benchmarks/results/catch_up.json, by the number of those made.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import yaml
from confluent_kafka import Producer

from benchmarks import pages
from benchmarks.cases import daily_run
from benchmarks.cases.long_ledger import moved, value_of
from fencepost.config.loading import find_pipeline
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.codec import record_key
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Interval
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_without_spark
from fencepost.steps.write import write_without_spark
from fencepost_stack.airflow import Folders
from fencepost_stack.airflow_api import StackAirflow
from fencepost_stack.ports import any_free_port
from fencepost_stack.stack import SERVICES, Stack
from fencepost_stack.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).with_name("fencepost"))
ZONE = ZoneInfo("Europe/Vienna")
FIRST = datetime(2024, 9, 1, tzinfo=ZONE)
RECORDS = 100  # a day
PART = 50  # intervals, of which the median is told at the beginning and at the end
DONE = re.compile(r"^ *(\d+)/\d+  .* published, .*  ([\d.]+) s$")


def day(number: int) -> datetime:
    """When that day begins, by the clock on the wall."""
    return FIRST + timedelta(days=number)


def make_ledger(bootstrap: str, made: int) -> None:
    """So many published intervals: the first day is run on the empty topic, the others are its records again."""
    pipeline = find_pipeline("orders")
    deployment, interval = Deployment.of(pipeline), Interval.of(day(0), day(1))
    states: list[Batch] = []
    for step in (plan_batch, write_without_spark, validate_without_spark, advance_batch):
        step(pipeline, interval, deployment=deployment)
        states.append(deployment.ledger.read().known(interval).last)
    producer = Producer({"bootstrap.servers": bootstrap})
    lease = deployment.cluster.high_watermarks(deployment.cluster.describe(pipeline.ledger_topic))[0]
    for number in range(1, made):
        for state in states:
            record = moved(state, Interval.of(day(number), day(number + 1)), lease)
            producer.produce(pipeline.ledger_topic, value_of(record), record_key(record), partition=0)
            producer.poll(0)
        lease += len(states)
    if producer.flush(120) or len(Ledger(pipeline).read().intervals) != made:
        raise RuntimeError("the ledger could not be filled")


def fill(bootstrap: str, first: int, days: int) -> None:
    """The records of so many days, and of one more, so that no day ends at the end of the topic."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + days + 1):
        daily_run.fill(producer, day(number) + timedelta(hours=12), RECORDS)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the source could not be filled")


def add_pipeline(folder: Path, intervals: int, more: int) -> None:
    """The pipeline, whose schedule begins where the command ends: Airflow runs the others."""
    folder.mkdir(parents=True)
    settings: dict[str, Any] = yaml.safe_load(daily_run.SETTINGS)
    settings["output"]["topic"] = "orders-out"
    start, end = (day(number).isoformat() for number in (intervals, intervals + max(more, 1)))
    settings["schedule"] = {"timezone": str(ZONE), "start": start, "end": end}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
    (folder / "transform.sql").write_text(daily_run.TRANSFORM)
    (folder / "expectations.yaml").write_text(daily_run.EXPECTATIONS)


def caught_up(first: int, intervals: int) -> dict[str, Any]:
    """Seconds of each interval by the command's own lines, and the memory of its processes early, midway and at the end."""
    span = ("--start", day(first).isoformat(), "--end", day(first + intervals).isoformat())
    began = time.monotonic()
    command = subprocess.Popen([COMMAND, "run", "orders", *span, "--each"], stderr=subprocess.PIPE, text=True)
    assert command.stderr is not None
    seconds: list[float] = []
    used: list[float] = [0.0]
    memory: dict[int, dict[str, float]] = {}
    for line in command.stderr:
        print(line, end="", flush=True)
        if found := DONE.match(line):
            seconds.append(float(found[2]))
            used.append(processor_seconds(command.pid))
            if len(seconds) in {min(PART, intervals // 2), intervals // 2, intervals - 1}:
                memory[len(seconds)] = resident(command.pid)
    if command.wait() or len(seconds) != intervals:
        raise RuntimeError(f"the command ended with {command.returncode} after {len(seconds)} intervals")
    took = {"seconds": round(time.monotonic() - began, 1), "megabytes": memory}
    return took | {"wall": parts_of(seconds), "processor": parts_of([b - a for a, b in pairwise(used)])}


def parts_of(seconds: Sequence[float]) -> dict[str, float]:
    """Of the first interval, which starts Spark, and the medians of the first and the last part."""
    part = min(PART, len(seconds) // 2)
    return {
        "first": round(seconds[0], 2),
        "early": round(median(seconds[1 : part + 1]), 2),
        "late": round(median(seconds[-part:]), 2),
        "longest": round(max(seconds[1:]), 2),
    }


def processor_seconds(pid: int) -> float:
    """What a process and its descendants, those that have ended too, have used so far. The broker is none of them."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in [process, *process.children(recursive=True)]]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def resident(pid: int) -> dict[str, float]:
    """Megabytes that the command, its JVM and the JVM's Python workers have in memory; what is shared counts for each of them."""
    process = psutil.Process(pid)
    found = {"command": process.memory_info().rss, "jvm": 0, "workers": 0}
    for one in process.children(recursive=True):
        with suppress(psutil.Error):  # a worker that has just ended
            found["jvm" if one.name() == "java" else "workers"] += one.memory_info().rss
    return {name: round(size / 1e6) for name, size in found.items()}


def through_airflow(api: StackAirflow, intervals: int, more: int) -> dict[str, float]:
    """Seconds of Airflow's runs, and the time that each step's task waited in the queue for a slot."""
    api.await_dag("orders")
    began = time.monotonic()
    api.unpause("orders")
    runs = api.await_intervals("orders", [day(n) for n in range(intervals, intervals + more)], timeout=3600)
    if failed := [run["dag_run_id"] for run in runs if run["state"] != "success"]:
        raise RuntimeError(f"{len(failed)} runs failed")
    took = [daily_run.seconds(run["start_date"], run["end_date"]) for run in runs]
    write = [
        task for run in runs for task in api.task_instances("orders", run["dag_run_id"]) if task["task_id"] == "write"
    ]
    return {
        "seconds": round(time.monotonic() - began, 1),
        "run": round(median(took), 1),
        "write": round(median(daily_run.seconds(t["start_date"], t["end_date"]) for t in write), 1),
        "queued": round(median(daily_run.seconds(t["queued_when"], t["start_date"]) for t in write), 1),
    }


def main() -> None:
    """Print and keep the figures."""
    intervals = int(sys.argv[1]) if len(sys.argv) > 1 else 730
    more = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    made = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    ended = made + intervals
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        add_pipeline(folder / "pipelines" / "orders", ended, more)
        for variable in ("KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL"):
            os.environ.pop(variable, None)
        folders = Folders(ROOT / "dags", ROOT / "plugins", folder / "pipelines")
        ports = {service: any_free_port() for service in SERVICES}
        stack = Stack(StateFolder(folder / "state", StateFolder.default().jars), folders, ports)
        bootstrap = stack.up("kafka")["kafka"]["bootstrap"]  # Airflow comes later: it would take time from the command
        os.environ |= {
            "KAFKA_BOOTSTRAP": bootstrap,
            "FENCEPOST_PIPELINES": str(folder / "pipelines"),
            "FENCEPOST_REPORTS": str(folder / "reports"),
            "FENCEPOST_SPARK_MASTER": "local[2]",
        }
        try:
            cluster = Cluster(ClientSettings({"bootstrap.servers": bootstrap}))
            cluster.ensure_topic("orders-in", daily_run.PARTITIONS)
            if made:
                make_ledger(bootstrap, made)
            fill(bootstrap, made, intervals + more)
            figures: dict[str, Any] = {"made": made, "intervals": intervals, "records": RECORDS}
            figures["each"] = caught_up(made, intervals)
            figures["ledger_offsets"] = cluster.high_watermarks(cluster.describe("fencepost.orders.ledger"))[0]
            span = ("--start", day(0).isoformat(), "--end", day(ended).isoformat())
            for name, command in (("again", ("run", "orders", *span, "--each")), ("status", ("status", "orders"))):
                began = time.monotonic()
                subprocess.run([COMMAND, *command], check=True, capture_output=True)
                figures[name] = round(time.monotonic() - began, 1)
            print(json.dumps(figures, indent=2), flush=True)
            stack.up()
            with StackAirflow.of_stack(stack.state) as api:
                if more:
                    figures["airflow"] = {"intervals": more, **through_airflow(api, ended, more)}
                figures["pages"] = pages.measure(api.url, api.token, ended)
        finally:
            stack.down()
    print(json.dumps(figures, indent=2))
    file = ROOT / "benchmarks" / "results" / "catch_up.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | {str(made): figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
