"""B7: what a daily run costs however little it does: its four steps through Airflow, with 1,000 rows and with none.

On a stack of its own, with Kafka, PostgreSQL and Airflow, days of a pipeline are backfilled by turns, one with rows and one
without. Airflow's own scheduler runs all steps; the time is the DAG run's, from its start to its end.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, Self

import numpy as np
import psutil
import yaml
from confluent_kafka import Producer

from benchmarks.bench import Bench
from benchmarks.measure import at_most
from benchmarks.results import Result, result
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost_stack.airflow import Folders
from fencepost_stack.airflow_api import StackAirflow
from fencepost_stack.ports import any_free_port
from fencepost_stack.stack import SERVICES, Stack
from fencepost_stack.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[2]
ROWS = 1_000
PARTITIONS = 4
GOALS = {ROWS: 13.0, 0: 10.0}  # seconds
STEPS = ("plan", "write", "validate", "advance")
FIRST, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
SETTINGS = """
source:
  topic: orders-in
  format: json
  columns: {id: bigint not null, customer: string, country: string, amount: double, items: int, paid: boolean, at: timestamp}
output: {format: json, key: customer}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "${KAFKA_BOOTSTRAP}"}
"""
TRANSFORM = "SELECT *, amount / items AS price FROM {source} WHERE amount >= 0"
EXPECTATIONS = """
expectations:
  - {type: expect_column_values_to_not_be_null, kwargs: {column: id}}
  - {type: expect_column_values_to_be_unique, kwargs: {column: id}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: customer}}
  - {type: expect_column_values_to_match_regex, kwargs: {column: customer, regex: "^c[0-9]+$"}}
  - {type: expect_column_values_to_be_in_set, kwargs: {column: country, value_set: [at, ch, de, fr]}}
  - {type: expect_column_values_to_be_between, kwargs: {column: amount, min_value: 0, max_value: 10000}}
  - {type: expect_column_values_to_be_between, kwargs: {column: items, min_value: 1, max_value: 100}}
  - {type: expect_column_mean_to_be_between, kwargs: {column: amount, min_value: 1, max_value: 10000}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: at}}
  - {type: expect_table_row_count_to_be_between, kwargs: {max_value: 1000}}
"""


def run(bench: Bench) -> Iterator[Result]:
    """Seconds of the run, and the share of each step in its note. The first run pays for what later ones find warm."""
    with running(bench.rounds) as api:
        days = [FIRST + timedelta(days=n) for n in range(2 * bench.rounds)]
        api.await_dag("orders")
        api.backfill("orders", days[0], days[-1], max_active_runs=1)
        # Not before: a backfill and the scheduler that make the same run at once end the scheduler.
        api.unpause("orders")
        with Busy() as busy:
            runs = api.await_intervals("orders", days)
        failed = [run["dag_run_id"] for run in runs if run["state"] != "success"]
        if failed:
            raise RuntimeError(f"runs that failed: {', '.join(failed)}")
        parts = [parts_of(run, api.task_instances("orders", run["dag_run_id"])) for run in runs]
    for first, (rows, goal) in enumerate(GOALS.items()):
        mine = parts[first::2]
        case, each = f"a daily run with {rows:,} rows", [one["run"] for one in mine]
        yield result("B7", case, each, "wall time", goal=at_most(goal), unit="s", note=shares_of(mine))
        used = [busy.seconds(run["start_date"], run["end_date"]) for run in runs[first::2]]
        yield result("B7", f"{case}, processor time", used, "processor seconds of the whole machine", unit="s")


@contextmanager
def running(
    rounds: int, outputs: Mapping[str, Mapping[str, Any]] | None = None, end: datetime = END
) -> Iterator[StackAirflow]:
    """A stack with the pipeline `orders`, and its records on every other day.

    `outputs` names other pipelines on the same records, each with more settings of its output; `end` is when the schedule ends.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pipeline, output in (outputs or {"orders": {}}).items():
            own = folder / "pipelines" / pipeline
            own.mkdir(parents=True)
            settings = yaml.safe_load(SETTINGS)
            settings["output"] |= {"topic": f"{pipeline}-out", **output}
            settings["schedule"]["end"] = end
            (own / "pipeline.yaml").write_text(yaml.safe_dump(settings))
            (own / "transform.sql").write_text(TRANSFORM)
            (own / "expectations.yaml").write_text(EXPECTATIONS)
        for name in ("KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL"):
            os.environ.pop(name, None)
        folders = Folders(ROOT / "dags", ROOT / "plugins", folder / "pipelines")
        stack = Stack(
            StateFolder(folder / "state", StateFolder.default().jars), folders, {s: any_free_port() for s in SERVICES}
        )
        bootstrap = stack.up()["kafka"]["bootstrap"]
        try:
            Cluster(ClientSettings({"bootstrap.servers": bootstrap})).ensure_topic("orders-in", PARTITIONS)
            producer = Producer({"bootstrap.servers": bootstrap})
            # One day more, so that no day before it ends at the end of the topic.
            for number in range(0, 2 * rounds + 1, 2):
                fill(producer, FIRST + timedelta(days=number, hours=12))
            if producer.flush(60):
                raise RuntimeError("the source could not be filled")
            with StackAirflow.of_stack(stack.state) as api:
                yield api
        finally:
            stack.down()


def fill(producer: Producer, moment: datetime, rows: int = ROWS) -> None:
    """A day's records, spread over the partitions."""
    for n in range(rows):
        order: dict[str, Any] = {
            "id": n,
            "customer": f"c{n % 97}",
            "country": ("at", "ch", "de", "fr")[n % 4],
            "amount": 5 + n / 8,
            "items": 1 + n % 7,
            "paid": n % 3 > 0,
            "at": moment.isoformat(),
        }
        value, at = json.dumps(order), int(moment.timestamp() * 1000)
        producer.produce("orders-in", value, order["customer"], partition=n % PARTITIONS, timestamp=at)


class Busy(Thread):
    """Looks now and then at the processor time that the whole machine has used."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = Event()
        self._at: list[float] = []
        self._used: list[float] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Until the block ends."""
        while not self._ended.wait(0.1):
            times = psutil.cpu_times()
            self._at.append(time.time())
            self._used.append(times.user + times.nice + times.system + times.irq + times.softirq)

    def seconds(self, start: str, end: str) -> float:
        """Processor seconds between two of Airflow's times."""
        at = [datetime.fromisoformat(moment).timestamp() for moment in (start, end)]
        begun, ended = np.interp(at, self._at, self._used)
        return float(ended - begun)


def parts_of(run: Mapping[str, Any], tasks: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of a run: of each step's task, and of all between them, when Airflow had nothing of it running."""
    by_name = {task["task_id"]: task for task in tasks}
    parts = {step: seconds(by_name[step]["start_date"], by_name[step]["end_date"]) for step in STEPS}
    whole = seconds(run["start_date"], run["end_date"])
    return {**parts, "between": whole - sum(parts.values()), "run": whole}


def seconds(start: str, end: str) -> float:
    """Between two of Airflow's times."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def shares_of(parts: list[dict[str, float]]) -> str:
    """The median seconds of each step and between them."""
    return ", ".join(f"{name} {median(one[name] for one in parts):.1f} s" for name in (*STEPS, "between"))
