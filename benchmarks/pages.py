"""How long the pages take over many batches of many pipelines: python benchmarks/pages.py [batches] [pipelines]

Starts Kafka, PostgreSQL and Airflow in a temporary folder, fills the ledger of one pipeline and, with a day of hourly batches,
those of the others; asks for each page twenty times, times the parsing of all DAGs in a process of its own, prints all that, and
keeps it in benchmarks/results/pages.json.
"""

from __future__ import annotations

import json
import os
import subprocess
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

from fencepost.model import State as Batches  # noqa: E402
from fencepost_stack.airflow import Folders  # noqa: E402
from fencepost_stack.airflow_api import StackAirflow  # noqa: E402
from fencepost_stack.ports import any_free_port  # noqa: E402
from fencepost_stack.stack import SERVICES, Stack  # noqa: E402
from fencepost_stack.state_folder import StateFolder  # noqa: E402

TIMES = 20
SETTINGS = """
source: {{topic: {name}-in, format: bytes}}
output: {{topic: {name}-out, format: bytes, key: _key}}
schedule: {{start: 2026-01-01, cron: "0 * * * *"}}
kafka: {{bootstrap.servers: "${{KAFKA_BOOTSTRAP}}"}}
"""
PARSING = """
import time
began = time.monotonic()
from fencepost.airflow import build_dags
from airflow.serialization.serialized_objects import DagSerialization
dags = [DagSerialization.to_dict(dag) for dag in build_dags().values()]
print(len(dags), time.monotonic() - began)
"""


def add(pipelines: Path, name: str) -> None:
    """A pipeline that hands records on."""
    folder = pipelines / name
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(SETTINGS.format(name=name))
    (folder / "transform.sql").write_text("SELECT _key, value FROM {source}")
    (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: value}}]")


def fill(bootstrap: str, pipeline: str, batches: int) -> None:
    """A ledger in which every hundredth batch is rejected."""
    topic = f"fencepost.{pipeline}.ledger"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 10**6})
    for batch in ledger(batches, dict.fromkeys(range(50, batches, 100), Batches.REJECTED)):
        of_it = batch.model_copy(update={"pipeline": pipeline})
        producer.produce(topic, of_it.model_dump_json(), f"{batch.interval}/{batch.revision}")
    assert producer.flush(60) == 0


def parsing(pipelines: Path) -> float:
    """Seconds to build the DAGs of all pipelines and make of them what Airflow stores."""
    environment = {**os.environ, "FENCEPOST_PIPELINES": str(pipelines), "KAFKA_BOOTSTRAP": "127.0.0.1:9092"}
    command = [sys.executable, "-c", PARSING]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    count, seconds = done.stdout.split()
    assert int(count) == len(list(pipelines.iterdir()))
    return float(seconds)


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
    others = [f"other_{number:03d}" for number in range(1, int(sys.argv[2]) if len(sys.argv) > 2 else 500)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pipelines = folder / "pipelines"
        for pipeline in ("orders", *others):
            add(pipelines, pipeline)
        seconds = parsing(pipelines)
        print(f"{len(others) + 1} DAGs are parsed in {seconds:.1f} s")
        for name in ("KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL"):
            os.environ.pop(name, None)
        folders = Folders(ROOT / "dags", ROOT / "plugins", pipelines)
        stack = Stack(
            StateFolder(folder / "state", StateFolder.default().jars), folders, {s: any_free_port() for s in SERVICES}
        )
        services = stack.up()
        try:
            fill(services["kafka"]["bootstrap"], "orders", batches)
            for pipeline in others:
                fill(services["kafka"]["bootstrap"], pipeline, 24)
            with StackAirflow.of_stack(stack.state) as api:
                for pipeline in ("orders", *others):
                    api.await_dag(pipeline)
                found = measure(api.url, api.token, batches)
        finally:
            stack.down()
    for page, took in found.items():
        print(f"{page:18} first {took['first']:8.1f} ms, median {took['median']:7.1f}, longest {took['longest']:7.1f}")
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / "pages.json").write_text(
        json.dumps(
            {"batches": batches, "pipelines": len(others) + 1, "parsing": round(seconds, 1), "milliseconds": found},
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
