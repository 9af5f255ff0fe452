"""What a daily run costs however little it does (B7): python benchmarks/fixed_cost.py [rounds]

Starts Kafka, PostgreSQL and Airflow in a temporary folder and backfills days of a pipeline, by turns one of 1,000 rows and
one of none. Airflow's own scheduler runs all four steps; the time is the DAG run's, from its start to its end. Prints where
it went, and keeps it in benchmarks/results/fixed_cost.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fencepost.local.airflow import Folders  # noqa: E402
from fencepost.local.airflow_api import AirflowApi  # noqa: E402
from fencepost.local.ports import any_free_port  # noqa: E402
from fencepost.local.stack import SERVICES, Stack  # noqa: E402
from fencepost.local.state import State  # noqa: E402
from kafka_tools import create_topic, produce  # noqa: E402

ROUNDS = 5
ROWS = 1_000
PARTITIONS = 4
GOALS = {ROWS: 30.0, 0: 10.0}  # seconds
STEPS = ("plan", "write", "validate", "advance")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = """
source:
  topic: orders-in
  format: json
  columns: {id: bigint not null, customer: string, country: string, amount: double, items: int, paid: boolean, at: timestamp}
output: {topic: orders-out, format: json, key: customer}
schedule: {start: 2026-01-01, end: 2026-07-01}
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
  - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 1}}
"""


def measure(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """For each case the median of the run's seconds beside the goal's (lower is better), and of every part of the run.

    `spread` is the longest run's seconds less the shortest's, beside the goal's too. Nothing is left out: the first run pays
    for what later ones find warm.
    """
    with running(rounds) as api:
        days = [FIRST + timedelta(days=n) for n in range(2 * rounds)]
        api.await_dag("orders")
        api.unpause("orders")
        api.backfill("orders", days[0], days[-1], max_active_runs=1)
        runs = api.await_intervals("orders", days)
        failed = [run["dag_run_id"] for run in runs if run["state"] != "success"]
        if failed:
            raise SystemExit(f"runs that failed: {', '.join(failed)}")
        parts = [parts_of(run, api.task_instances("orders", run["dag_run_id"])) for run in runs]
    return [result(rows, parts[first::2]) for first, rows in enumerate(GOALS)]


@contextmanager
def running(rounds: int) -> Iterator[AirflowApi]:
    """A stack with the pipeline, and its records on every other day."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        orders = folder / "pipelines" / "orders"
        orders.mkdir(parents=True)
        (orders / "pipeline.yaml").write_text(SETTINGS)
        (orders / "transform.sql").write_text(TRANSFORM)
        (orders / "expectations.yaml").write_text(EXPECTATIONS)
        os.environ.pop("KAFKA_BOOTSTRAP", None)
        folders = Folders(ROOT / "dags", ROOT / "plugins", orders.parent)
        stack = Stack(State(folder / "state", State.default().jars), folders, {s: any_free_port() for s in SERVICES})
        bootstrap = stack.up()["kafka"]["bootstrap"]
        try:
            create_topic(bootstrap, "orders-in", PARTITIONS)
            # One day more, so that no day before it ends at the end of the topic.
            for number in range(0, 2 * rounds + 1, 2):
                noon = FIRST + timedelta(days=number, hours=12)
                produce(bootstrap, "orders-in", orders_of(noon))
            with AirflowApi.of_stack(stack.state) as api:
                yield api
        finally:
            stack.down()


def orders_of(moment: datetime) -> Iterator[tuple[str, dict[str, Any], int, int]]:
    """A day's records, spread over the partitions."""
    for n in range(ROWS):
        order = {
            "id": n,
            "customer": f"c{n % 97}",
            "country": ("at", "ch", "de", "fr")[n % 4],
            "amount": 5 + n / 8,
            "items": 1 + n % 7,
            "paid": n % 3 > 0,
            "at": moment.isoformat(),
        }
        yield order["customer"], order, n % PARTITIONS, int(moment.timestamp() * 1000)


def parts_of(run: Mapping[str, Any], tasks: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of a run: of each step's task, and of all between them, when Airflow had nothing of it running."""
    by_name = {task["task_id"]: task for task in tasks}
    parts = {step: seconds(by_name[step]["start_date"], by_name[step]["end_date"]) for step in STEPS}
    whole = seconds(run["start_date"], run["end_date"])
    return {**parts, "between": whole - sum(parts.values()), "run": whole}


def seconds(start: str, end: str) -> float:
    """Between two of Airflow's times."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def result(rows: int, parts: list[dict[str, float]]) -> dict[str, Any]:
    """One case as `benchmarks/results` keeps it."""
    took = [one["run"] for one in parts]
    return {
        "id": "B7",
        "case": f"a daily run with {rows:,} rows, seconds / {GOALS[rows]:.0f}",
        "ratio": round(median(took) / GOALS[rows], 3),
        "spread": round((max(took) - min(took)) / GOALS[rows], 3),
        "rounds": len(parts),
        "seconds": {name: round(median(one[name] for one in parts), 2) for name in parts[0]},
    }


def main() -> None:
    """Print a line for each case."""
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
    for case in found:
        took = case["seconds"]
        shares = ", ".join(f"{name} {took[name]:.1f} ({took[name] / took['run']:.0%})" for name in (*STEPS, "between"))
        print(f"{case['case']}: {case['ratio']:.2f} ± {case['spread'] / 2:.2f}; {took['run']:.1f} s: {shares}")
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / "fixed_cost.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
