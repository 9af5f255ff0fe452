"""`make cluster`, but for one day: the demo's pipelines on a secured cluster, while a broker and a Spark worker die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fencepost_stack.nycflights import days_between
from fencepost_stack.ports import any_free_port, is_free
from fencepost_stack.reporting import WEATHER_LAKE
from fencepost_stack.secured_kafka import SecuredKafka
from kafka_tools import QUIET_LOG
from lakes import scanned
from oracle import airport_hours_truth
from oracle.delays_truth import TABLE, expected_delays
from oracle.flights_truth import expected_records
from oracle.reader import compare, read_topic
from oracle.weather_truth import expected_observations
from rigs.postgres_server import query

from .local_stack import SHARED_JARS

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(1700)]
FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
DAYS = days_between(date(2013, 1, 1), date(2013, 1, 1))


@dataclass(frozen=True)
class Ran:
    """A cluster on which the demo has run, and what that printed."""

    environment: dict[str, str]
    printed: str
    services: dict[str, Any]
    kafka: SecuredKafka

    @property
    def secrets(self) -> dict[str, str]:
        """Made for the cluster, by name."""
        return dict(
            json.loads((Path(self.environment["FENCEPOST_STATE"]) / "cluster/cluster-secrets.json").read_text())
        )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    state = tmp_path_factory.mktemp("cluster") / "state"
    ports = {
        f"FENCEPOST_{service}_PORT": str(any_free_port()) for service in ("SCHEMA_REGISTRY", "POSTGRES", "AIRFLOW")
    }
    ours = ("AIRFLOW_", "KAFKA_", "SCHEMA_REGISTRY_", "SPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"FENCEPOST_STATE": str(state), "FENCEPOST_JARS": str(SHARED_JARS), "COLUMNS": "120", **ports}
    try:
        done = subprocess.run(
            [FENCEPOST, "cluster", "--days", "1"], env=environment, capture_output=True, text=True, timeout=1500
        )
        assert done.returncode == 0, done.stdout + done.stderr
        asked = subprocess.run(
            [FENCEPOST, "services", "--json"], env=environment, capture_output=True, text=True, check=True
        )
        services = json.loads(asked.stdout)["cluster"]
        yield Ran(environment, done.stdout, services, SecuredKafka(state / "cluster" / "kafka"))
    finally:
        subprocess.run([FENCEPOST, "down"], env=environment, check=True, capture_output=True, timeout=120)


def test_every_flight_is_in_the_output_once_although_a_broker_and_a_worker_died_in_the_middle(ran: Ran) -> None:
    assert "Kafka's broker-2 killed" in ran.printed
    assert "Spark's worker-2 killed" in ran.printed
    assert "842 flights of 1 published batch," in ran.printed
    admin = ran.kafka.admin_settings()
    assert compare(expected_records(DAYS), read_topic(admin, "flight_delays")) == []
    weather = read_topic(admin, "weather_metric")
    assert len(weather) == len({(r.key, r.timestamp) for r in weather}) == 67
    reader = ran.services["postgres"]["reader"]
    assert query(reader, TABLE) == expected_delays(DAYS)
    assert query(reader, airport_hours_truth.TABLE) == airport_hours_truth.expected_hours(DAYS)
    found = scanned({**reader, "dbname": WEATHER_LAKE}, "weather.observations", "observed_at, origin")
    assert found == expected_observations(DAYS)
    [quarantined] = read_topic(admin, "fencepost.nyc_flights.quarantine")
    assert dict(quarantined.headers)["fencepost-rule"] == b"malformed"


def test_all_that_was_killed_runs_again_with_three_replicas_of_everything(ran: Ran) -> None:
    assert ran.services["kafka"]["brokers"] == ["broker-1", "broker-2", "broker-3"]
    assert ran.services["spark"]["workers"] == ["worker-1", "worker-2"]
    topics = AdminClient(ran.kafka.admin_settings(), logger=QUIET_LOG).list_topics(timeout=30).topics.values()
    assert {len(partition.replicas) for topic in topics for partition in topic.partitions.values()} == {3}


def test_a_pipelines_user_sees_nothing_of_the_other_pipelines(ran: Ran) -> None:
    login = ran.kafka.login("nyc_weather", ran.secrets["kafka nyc_weather"])
    seen = set(AdminClient(login, logger=QUIET_LOG).list_topics(timeout=30).topics)
    assert "weather" in seen
    assert not [topic for topic in seen if "flight" in topic]


def test_nobody_gets_in_without_the_password(ran: Ran) -> None:
    wrong = ran.kafka.login("nyc_weather", "wrong")
    with pytest.raises(KafkaException):
        AdminClient(wrong, logger=QUIET_LOG).list_topics(timeout=5)


def test_no_process_shows_a_secret_in_its_arguments_and_every_port_is_on_loopback(ran: Ran) -> None:
    state = ran.environment["FENCEPOST_STATE"]
    ours = [p for p in psutil.process_iter(["cmdline"]) if any(state in part for part in p.info["cmdline"] or [])]
    assert len(ours) >= 6  # three brokers, Spark's two workers, Airflow
    told = " ".join(part for process in ours for part in process.info["cmdline"])
    assert [name for name, secret in ran.secrets.items() if secret in told] == []
    addresses = {c.laddr.ip for p in ours for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}


def test_down_ends_it_and_leaves_nothing_behind(ran: Ran) -> None:
    state = ran.environment["FENCEPOST_STATE"]
    subprocess.run([FENCEPOST, "down"], env=ran.environment, check=True, capture_output=True, timeout=120)
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if any(state in part for part in p.info["cmdline"] or [])]
    assert left == []
    assert all(is_free(port) for broker in ran.kafka.ports.values() for port in broker.values())
