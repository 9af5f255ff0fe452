"""`make compose`: docker-compose.yaml with a Docker engine, from the build of the image to what a reader finds, and down again.

It has a project of its own, with passwords and ports of its own, so it touches nothing that runs; but one engine does one of
these at a time. However it ends, no container, network or volume is left; the image stays, and makes the next build short.
DOCKER_COMPOSE names another command than `docker compose`.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from fencepost.cli.airflow_api import AirflowRefused, AirflowUnavailable, Json
from fencepost_stack.airflow_api import ENDED, StackAirflow, await_value
from fencepost_stack.errors import LocalStackError
from fencepost_stack.ports import any_free_port
from fencepost_stack.registry import ending_by_exception

ROOT = Path(__file__).parents[1]
COMMAND = shlex.split(os.environ.get("DOCKER_COMPOSE", "docker compose"))
PROJECT = ["--project-name", "fencepost-check", "--file", "docker-compose.yaml"]
DOWN = ("down", "--volumes", "--remove-orphans", "--timeout", "30")
DAY = datetime(2013, 1, 1, tzinfo=ZoneInfo("America/New_York"))
FIRST, BEHIND = (
    {"nyc_flights": 842, "nyc_weather": 67},
    {"nyc_delays": 160, "nyc_airport_hours": 54, "nyc_weather_lake": 67},
)  # records of that day; rows, made of these records
PUBLISHED = FIRST | BEHIND
PATIENCE = 1200.0  # seconds for Airflow to have its DAGs, and for runs side by side
POLL = 2.0  # seconds
PORTS = """FENCEPOST_KAFKA_1_PORT FENCEPOST_KAFKA_2_PORT FENCEPOST_KAFKA_3_PORT FENCEPOST_SCHEMA_REGISTRY_PORT
FENCEPOST_AIRFLOW_PORT FENCEPOST_SPARK_UI_PORT""".split()

LOAD = """
from fencepost_stack.compose import ComposeKafka
from fencepost_stack.demo import load
print(*load(ComposeKafka().admin_settings(), "http://schema-registry:8081/apis/ccompat/v7"))
"""
# As the pipelines' own users, who may read in groups of that name.
READ = """
import sys
from confluent_kafka import TopicPartition
from fencepost.config.loading import find_pipeline
from fencepost.kafka.client_settings import client_settings
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.offsets import read_until
for name in sys.argv[1:]:
    pipeline = find_pipeline(name)
    settings = client_settings(pipeline)
    cluster = Cluster(settings)
    ends = dict(enumerate(cluster.last_stable(cluster.describe(pipeline.output.topic))))
    consumer, complaints = make_consumer(settings, f"{name}.compose")
    filled = {p: end for p, end in ends.items() if end}
    consumer.assign([TopicPartition(pipeline.output.topic, p, 0) for p in filled])
    print(name, sum(1 for _ in read_until(consumer, complaints, settings, filled, "reading")))
"""
# As the pipeline's own user: the image has no file with the password of people who read.
READ_LAKE = """
from fencepost.config.loading import find_pipeline
from fencepost.outputs.iceberg.catalog import catalog_of
pipeline = find_pipeline("nyc_weather_lake")
print(pipeline.name, catalog_of(pipeline).load_table(pipeline.output.table).scan().count())
"""
# As the user of people who read the tables; docker-compose.yaml names this way to them.
READ_TABLE = "exec -T postgres psql --username reader reporting --no-align --tuples-only --command".split()


class ComposeFailed(LocalStackError):
    """A command of compose failed; it has said why."""


class Compose:
    """docker-compose.yaml, as a project of its own."""

    def __init__(self) -> None:
        self.variables = settings() | free_ports()

    def __call__(self, *command: str, text: str | None = None) -> None:
        """One command of compose, which shows what it says."""
        self._run(command, text)

    def answer(self, *command: str, text: str | None = None) -> str:
        """What one command of compose prints."""
        return self._run(command, text, subprocess.PIPE)

    def _run(self, command: tuple[str, ...], text: str | None, stdout: int | None = None) -> str:
        told(shlex.join([*COMMAND, *command]))
        # In a session of its own: Ctrl-C comes to it once, from here, and it is waited for, or `down` would begin while it works.
        with subprocess.Popen(
            [*COMMAND, *PROJECT, *command],
            cwd=ROOT,
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=stdout,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(text)
            except BaseException:
                os.killpg(process.pid, signal.SIGINT)
                process.wait()  # Python itself waits a quarter of a second after Ctrl-C, and goes on
                raise
        if process.returncode:
            raise ComposeFailed(f"`{shlex.join([*COMMAND, *command])}` ended with exit code {process.returncode}.")
        return printed or ""


def main() -> int:
    """Build, start, run a day of the pipelines through Airflow's API, read it back, and take all of it down."""
    with ending_by_exception():
        try:
            return check()
        except LocalStackError as error:
            told(f"FAILED: {error}")
            return error.exit_code
        except KeyboardInterrupt:
            told("interrupted")
            return 130


def check() -> int:
    """0 if readers found what they should."""
    compose = Compose()
    try:
        compose(*DOWN)  # what one that was killed has left
    except (OSError, ComposeFailed) as error:
        raise LocalStackError(
            f"{error}\n`make compose` needs a Docker engine that runs, and Docker's compose plugin. If compose has another name,"
            " set DOCKER_COMPOSE to it."
        ) from error
    try:
        compose("build", "cluster-init")
        compose.variables |= free_ports()  # those of before may have been taken meanwhile
        compose("up", "--detach")
        found = published(compose)
    except Exception:
        with suppress(ComposeFailed):
            compose("logs", "--tail", "40")
        raise
    finally:
        compose(*DOWN)
    if found != PUBLISHED:
        raise LocalStackError(f"readers found {found}, not {PUBLISHED}.")
    told(f"published and read back: {found}")
    return 0


def published(compose: Compose) -> dict[str, int]:
    """Load, backfill a day of the pipelines, and count the records that their users read."""
    url = f"http://127.0.0.1:{compose.variables['FENCEPOST_AIRFLOW_PORT']}"

    def logged_in() -> StackAirflow | None:
        try:
            return StackAirflow(url, "admin", compose.variables["FENCEPOST_AIRFLOW_ADMIN_PASSWORD"])
        except (AirflowRefused, AirflowUnavailable):
            return None

    told("loading flights and weather")
    compose("run", "--rm", "--no-deps", "-T", "kafka-users", "python", "-", text=LOAD)
    with await_value(logged_in, "Airflow to answer", PATIENCE) as airflow:
        for names in (FIRST, BEHIND):
            for name in names:
                airflow.await_dag(name, timeout=PATIENCE)
                airflow.unpause(name)
                airflow.backfill(name, DAY, DAY)
            follow(airflow, names)
    read = compose.answer("exec", "-T", "airflow-scheduler", "python", "-", *FIRST, text=READ)
    read += compose.answer("exec", "-T", "airflow-scheduler", "python", "-", text=READ_LAKE)
    read += compose.answer(*READ_TABLE, "SELECT 'nyc_delays ' || count(*) FROM delays_by_hour")
    read += compose.answer(*READ_TABLE, "SELECT 'nyc_airport_hours ' || count(*) FROM airport_hours")
    return {name: int(count) for name, count in (line.split() for line in read.splitlines())}


def follow(airflow: StackAirflow, names: Collection[str]) -> None:
    """Say which task has ended, until the day of these pipelines has."""
    shown: set[tuple[str, str]] = set()
    deadline = time.monotonic() + PATIENCE
    while True:
        runs = {name: run for name in names for run in airflow.dag_runs(name) if begins(run) == DAY}
        for name, run in runs.items():
            for task in airflow.task_instances(name, run["dag_run_id"]):
                if task["state"] in ENDED and (name, task["task_id"]) not in shown:
                    shown.add((name, task["task_id"]))
                    told(f"{name} {task['task_id']}: {task['state']}, {task['duration'] or 0:.1f} s")
                    if task["state"] == "failed":
                        told(airflow.task_log(name, run["dag_run_id"], task["task_id"], task["try_number"]))
        states = {name: run["state"] for name, run in runs.items()}
        if "failed" in states.values():
            raise LocalStackError(f"a run failed: {states}.")
        if list(states.values()) == ["success"] * len(names):
            return
        if time.monotonic() > deadline:
            raise LocalStackError(f"the runs did not end within {PATIENCE:.0f} s: {states}.")
        time.sleep(POLL)


def begins(run: Json) -> datetime:
    """When a run's interval does."""
    return datetime.fromisoformat(run["data_interval_start"])


def settings() -> dict[str, str]:
    """The variables of .env.example, with values of this run's own."""
    names = [line.split("=")[0] for line in (ROOT / ".env.example").read_text().splitlines() if line[:1].isupper()]
    values = {name: secrets.token_hex(16) for name in names if "PASSWORD" in name or "SECRET" in name}
    values["FENCEPOST_AIRFLOW_FERNET_KEY"] = urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return values


def free_ports() -> dict[str, str]:
    """A port on 127.0.0.1 for each service that has one there."""
    return {name: str(any_free_port()) for name in PORTS}


def told(text: str) -> None:
    """A line of what happens, with the time."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
