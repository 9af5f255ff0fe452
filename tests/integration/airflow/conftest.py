"""One real stack for the folder, with the product's own DAG files and pipelines made for the tests."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fencepost.airflow.pools import SPARK_POOL
from fencepost.local.airflow import Folders
from fencepost.local.airflow_api import AirflowApi
from fencepost.local.ports import any_free_port
from fencepost.local.stack import SERVICES, Stack
from fencepost.local.state import State
from kafka_tools import create_topic, produce

ROOT = Path(__file__).resolve().parents[3]

SETTINGS = """
source: {{topic: {name}-in, format: bytes}}
output: {{topic: {name}-out, format: bytes, key: _key, partitions: 1}}
schedule:
  start: 2026-01-01
  end: 2026-02-01
  retries: {retries}
  retry_delay_seconds: 1
  timeout_minutes: {timeout_minutes}
spark: {{spark.driver.memory: 512m}}
kafka: {{bootstrap.servers: "${{KAFKA_BOOTSTRAP}}"}}
"""
EXPECTATIONS = """
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: value}
"""
PLAIN = "def transform(frame): return frame.selectExpr('_key', 'value')"
# Attempts up to number {sleeps} sleep until somebody ends them: in a Python worker, or before there is one. Each notes
# its processes, and which of an earlier attempt's still live when it begins.
SLEEPY = """
import os, time
from pathlib import Path

folder = Path({folder!r})

def alive(pid):
    try:
        return Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

def transform(frame):
    number = 1 + len(list(folder.glob("*.began")))
    left = [file.stem for file in folder.glob("*.pid") if alive(file.read_text())]
    (folder / f"{{number}}-driver.pid").write_text(str(os.getpid()))
    (folder / f"{{number}}-jvm.pid").write_text(str(os.getppid()))
    (folder / f"{{number}}.began").write_text(" ".join(left))
    if number > {sleeps}:
        return frame.selectExpr("_key", "value")
    if not {in_worker}:
        (folder / f"{{number}}.asleep").touch()
        time.sleep(600)

    def sleep(batches):
        for batch in batches:
            (folder / f"{{number}}-daemon.pid").write_text(str(os.getppid()))
            (folder / f"{{number}}-worker.pid").write_text(str(os.getpid()))
            (folder / f"{{number}}.asleep").touch()
            time.sleep(600)
            yield batch

    return frame.selectExpr("_key", "value").mapInArrow(sleep, "_key binary, value binary")
"""


def day(number: int) -> datetime:
    """Midnight that day `number` of January 2026 begins with."""
    return datetime(2026, 1, number, tzinfo=UTC)


@dataclass(frozen=True)
class Running:
    """The stack, and where its pipelines lie."""

    api: AirflowApi
    bootstrap: str
    pipelines: Path

    def add(
        self, name: str, transform: str, *, timeout_minutes: int = 5, retries: int = 1, records: int = 0, more: str = ""
    ) -> None:
        """A pipeline with `more` settings, and records of 1 January in its source."""
        create_topic(self.bootstrap, f"{name}-in", 1)
        noon = int(day(1).timestamp() * 1000) + 12 * 3600 * 1000
        produce(self.bootstrap, f"{name}-in", [(b"k", b"v%d" % n, 0, noon) for n in range(records)])
        folder = self.pipelines / f".{name}"  # hidden until it is whole
        folder.mkdir()
        (folder / "pipeline.yaml").write_text(
            SETTINGS.format(name=name, timeout_minutes=timeout_minutes, retries=retries) + more
        )
        (folder / "transform.py").write_text(textwrap.dedent(transform))
        (folder / "expectations.yaml").write_text(EXPECTATIONS)
        folder.rename(self.pipelines / name)

    def add_sleepy(self, name: str, notes: Path, *, sleeps: int, in_worker: bool, **schedule: int) -> None:
        """A pipeline whose first attempts to write sleep until they are ended."""
        notes.mkdir()
        transform = SLEEPY.format(folder=str(notes), sleeps=sleeps, in_worker=in_worker)
        self.add(name, transform, records=3, **schedule)

    def whole_log(self, run: dict[str, Any], task_id: str, try_number: int = 1) -> str:
        """A try's log as Airflow's UI gets it, with what it shows of exceptions."""
        task = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances/{task_id}"
        return str(self.api.call("GET", f"{task}/logs/{try_number}", full_content=True)["content"])

    def backfill(self, name: str, first: int, last: int, **options: Any) -> int:
        """Start a backfill of some days of January, and wait for nothing; returns its id."""
        self.api.await_dag(name)
        self.api.unpause(name)
        body = {
            "dag_id": name,
            "from_date": day(first).isoformat(),
            "to_date": day(last).isoformat(),
            "reprocess_behavior": "none",
            "max_active_runs": 3,
            **options,
        }
        return int(self.api.call("POST", "/backfills", body)["id"])


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Kafka, PostgreSQL and Airflow, started once."""
    root = tmp_path_factory.mktemp("airflow")
    pipelines = root / "pipelines"
    pipelines.mkdir()
    folders = Folders(ROOT / "dags", root / "plugins", pipelines)
    ports = {service: any_free_port() for service in SERVICES}
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("AIRFLOW_", "KAFKA_", "FENCEPOST_"))]:
            if name not in {"FENCEPOST_CI_RUN", "FENCEPOST_JARS"}:
                patch.delenv(name)
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
        stack = Stack(State(root / "state", State.default().jars), folders, ports)
        services = stack.up()
        try:
            with AirflowApi.of_stack(stack.state) as api:
                api.ensure_pool(SPARK_POOL, 3)  # one is held by a task that a test makes an orphan
                yield Running(api, services["kafka"]["bootstrap"], pipelines)
        finally:
            stack.down()


@pytest.fixture(scope="session")
def backfills(running: Running) -> int:
    """Three empty days of `ordered`, run together, the earliest first; and two of `backwards`. The first's id.

    Nobody waits here: they run while a test of the folder waits for a time-out.
    """
    running.add("ordered", PLAIN)
    running.add("backwards", PLAIN)
    forwards = running.backfill("ordered", 1, 3)
    running.backfill("backwards", 5, 6, run_backwards=True, max_active_runs=1)
    return forwards
