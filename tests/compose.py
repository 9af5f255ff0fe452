"""`make compose`: docker-compose.yaml with a Docker engine, from the build of the image to what a reader finds, and down again.

It has a project of its own, with passwords and ports of its own, so it touches nothing that runs. DOCKER_COMPOSE names another
command than `docker compose`.
"""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx

from fencepost.cli.airflow_api import AirflowRefused, AirflowUnavailable
from fencepost_stack.airflow_api import StackAirflow, await_value
from fencepost_stack.ports import any_free_port

ROOT = Path(__file__).parents[1]
COMPOSE = [*shlex.split(os.environ.get("DOCKER_COMPOSE", "docker compose")), "--project-name", "fencepost-check"]
DAY = datetime(2013, 1, 1, tzinfo=ZoneInfo("America/New_York"))
PUBLISHED = {"nyc_flights": 842, "nyc_weather": 67}  # records of that day
UP = 1200.0  # seconds until Airflow has its DAGs
PORTS = """FENCEPOST_KAFKA_1_PORT FENCEPOST_KAFKA_2_PORT FENCEPOST_KAFKA_3_PORT FENCEPOST_SCHEMA_REGISTRY_PORT
FENCEPOST_AIRFLOW_PORT FENCEPOST_SPARK_UI_PORT""".split()

LOAD = """
from fencepost_stack.compose import ComposeKafka
from fencepost_stack.demo import load
print(*load(ComposeKafka().admin_settings(), "http://schema-registry:8081/apis/ccompat/v7"))
"""
# As the pipelines' own users, whose settings the pipelines have.
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
    consumer, complaints = make_consumer(settings, "compose")
    filled = {p: end for p, end in ends.items() if end}
    consumer.assign([TopicPartition(pipeline.output.topic, p, 0) for p in filled])
    print(name, sum(1 for _ in read_until(consumer, complaints, settings, filled, "reading")))
"""


def main() -> int:
    """Build, start, run a day of both pipelines through Airflow's API, read it back, and take all of it down."""
    with tempfile.TemporaryDirectory() as folder:
        variables = settings()
        env_file = Path(folder) / "env"
        env_file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        env_file.chmod(0o600)

        def compose(*command: str, text: str | None = None) -> str:
            told(f"docker compose {' '.join(command[:4])}")
            whole = [*COMPOSE, "--env-file", str(env_file), *command]
            return subprocess.run(whole, cwd=ROOT, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout

        try:
            compose("build", "cluster-init")
            compose("up", "--detach")
            found = published(compose, variables)
        except Exception:
            sys.stderr.write(compose("logs", "--tail", "40"))
            raise
        finally:
            compose("down", "--volumes", "--remove-orphans", "--timeout", "30")
    told(f"published and read back: {found}")
    return int(found != PUBLISHED)


def published(compose: Callable[..., str], variables: dict[str, str]) -> dict[str, int]:
    """Load, backfill a day of both pipelines, and count the records that their users read."""
    url = f"http://127.0.0.1:{variables['FENCEPOST_AIRFLOW_PORT']}"

    def logged_in() -> StackAirflow | None:
        try:
            return StackAirflow(url, "admin", variables["FENCEPOST_AIRFLOW_ADMIN_PASSWORD"])
        except (AirflowRefused, AirflowUnavailable, httpx.HTTPError):
            return None

    with await_value(logged_in, "Airflow to answer", UP) as airflow:
        told(compose("run", "--rm", "--no-deps", "-T", "kafka-users", "python", "-", text=LOAD).strip())
        for name in PUBLISHED:
            airflow.await_dag(name, timeout=UP)
            airflow.unpause(name)
            airflow.backfill(name, DAY, DAY)
        for name in PUBLISHED:
            (run,) = airflow.await_intervals(name, [DAY], timeout=UP)
            told(f"{name}: {run['state']}")
    read = compose("exec", "-T", "airflow-scheduler", "python", "-", *PUBLISHED, text=READ)
    return {name: int(count) for name, count in (line.split() for line in read.splitlines())}


def settings() -> dict[str, str]:
    """The variables of .env.example, with values of this run's own."""
    names = [line.split("=")[0] for line in (ROOT / ".env.example").read_text().splitlines() if line[:1].isupper()]
    values = {name: secrets.token_hex(16) for name in names if "PASSWORD" in name or "SECRET" in name}
    values["FENCEPOST_AIRFLOW_FERNET_KEY"] = urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return values | {name: str(any_free_port()) for name in PORTS}


def told(text: str) -> None:
    """A line of what happens, with the time."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
