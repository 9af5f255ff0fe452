"""How long the pages take over a ledger of many batches, inside a real Airflow: python benchmarks/pages.py [batches]

Starts Kafka, PostgreSQL and Airflow in a temporary folder, fills one pipeline's ledger, asks for each page twenty times,
prints the milliseconds, and keeps them in benchmarks/results/pages.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "unit" / "pages")]

from ledgers import ledger  # noqa: E402  # made batches, as the pages' tests have them

from fencepost.local.airflow import Folders  # noqa: E402
from fencepost.local.airflow_api import AirflowApi  # noqa: E402
from fencepost.local.ports import any_free_port  # noqa: E402
from fencepost.local.stack import SERVICES, Stack  # noqa: E402
from fencepost.local.state_folder import StateFolder  # noqa: E402
from fencepost.model import State as Batches  # noqa: E402

TIMES = 20
SETTINGS = """
source: {topic: orders-in, format: bytes}
output: {topic: orders-out, format: bytes, key: _key}
schedule: {start: 2026-01-01, cron: "0 * * * *"}
kafka: {bootstrap.servers: "${KAFKA_BOOTSTRAP}"}
"""


def fill(bootstrap: str, batches: int) -> None:
    """A ledger in which every hundredth batch is rejected."""
    topic = "fencepost.orders.ledger"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 10**6})
    for batch in ledger(batches, dict.fromkeys(range(50, batches, 100), Batches.REJECTED)):
        producer.produce(topic, batch.model_dump_json(), f"{batch.interval}/{batch.revision}")
    assert producer.flush(60) == 0


def measure(url: str, token: str, batches: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each page: the first time, and the median and the longest of twenty more."""
    pages = {
        "overview": "/fencepost/",
        "newest batches": "/fencepost/pipelines/orders",
        "oldest batches": f"/fencepost/pipelines/orders?page={batches // 50}",
        "rejected batches": "/fencepost/pipelines/orders?state=rejected",
    }
    found: dict[str, dict[str, float]] = {}
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False
    ) as client:
        for name, path in pages.items():
            took = []
            for _ in range(TIMES + 1):
                began = time.perf_counter()
                client.get(path).raise_for_status()
                took.append(round(1000 * (time.perf_counter() - began), 1))
            found[name] = {"first": took[0], "median": round(median(took[1:]), 1), "longest": max(took[1:])}
    return found


def main() -> None:
    """Print a line for each page."""
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        orders = folder / "pipelines" / "orders"
        orders.mkdir(parents=True)
        (orders / "pipeline.yaml").write_text(SETTINGS)
        (orders / "transform.sql").write_text("SELECT _key, value FROM {source}")
        (orders / "expectations.yaml").write_text(
            "expectations: [{type: expect_column_to_exist, kwargs: {column: value}}]"
        )
        for name in ("KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL"):
            os.environ.pop(name, None)
        folders = Folders(ROOT / "dags", ROOT / "plugins", orders.parent)
        stack = Stack(
            StateFolder(folder / "state", StateFolder.default().jars), folders, {s: any_free_port() for s in SERVICES}
        )
        services = stack.up()
        try:
            fill(services["kafka"]["bootstrap"], batches)
            with AirflowApi.of_stack(stack.state) as api:
                api.await_dag("orders")
                found = measure(api.url, api.token, batches)
        finally:
            stack.down()
    for page, took in found.items():
        print(f"{page:18} first {took['first']:8.1f} ms, median {took['median']:7.1f}, longest {took['longest']:7.1f}")
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / "pages.json").write_text(json.dumps({"batches": batches, "milliseconds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
