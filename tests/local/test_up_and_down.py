"""What `up` leaves behind when it fails, and `down` always: nothing but data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.local.airflow_api import AirflowApi
from fencepost.local.broker import Broker
from fencepost.local.errors import LocalStackError, PortTaken, ServiceFailed
from fencepost.local.ports import LOOPBACK, answers, is_free
from fencepost.local.stack import Stack
from local.local_stack import all_processes, new_stack, recorded

pytestmark = pytest.mark.stack


def ports(stack: Stack) -> list[int]:
    found = stack.services()
    addresses = (found["kafka"]["bootstrap"], found["airflow"]["url"], found["postgres"]["dsn"].rpartition("/")[0])
    return [int(address.rpartition(":")[2]) for address in addresses]


def test_down_leaves_no_process_and_no_port_and_up_finds_the_data_again(stack: Stack) -> None:
    services = stack.services()
    bootstrap = services["kafka"]["bootstrap"]
    Cluster(ClientSettings({"bootstrap.servers": bootstrap})).ensure_topic("kept", 3)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("kept", value=b"kept", partition=2)
    assert producer.flush(30) == 0
    del producer
    with AirflowApi.of_stack(stack.state) as api:
        api.ensure_pool("kept", 7)
    before = all_processes(stack)
    assert len(before) > 6

    stopped: list[str] = []
    stack.down(report=lambda service, event, seconds: stopped.append(service))

    assert stopped == ["airflow", "postgres", "kafka"]
    assert not [process for process in before if process.alive()]
    assert not [port for port in ports(stack) if answers(LOOPBACK, port) or not is_free(port)]
    stack.down(report=lambda service, event, seconds: stopped.append(f"{service} again"))
    assert stopped == ["airflow", "postgres", "kafka"]

    assert stack.up() == services
    cluster = Cluster(ClientSettings({"bootstrap.servers": bootstrap}))
    assert cluster.high_watermarks(cluster.describe("kept")) == [0, 0, 1]
    with AirflowApi.of_stack(stack.state) as api:
        assert [pool["slots"] for pool in api.pools() if pool["name"] == "kept"] == [7]


def test_a_failed_start_names_the_component_and_stops_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "no.such.Executor")
    stack = new_stack(tmp_path)
    seen: set[int] = set()

    def report(service: str, event: str, seconds: float) -> None:
        seen.update(process.pid for process in all_processes(stack))

    with pytest.raises(ServiceFailed, match=r"(?s)Airflow's scheduler ended.*exit code 1.*no\.such\.Executor"):
        stack.up(report=report)
    assert len(seen) > 2, "Kafka and PostgreSQL ran"
    assert not recorded(stack)
    assert not [pid for pid in seen if Path(f"/proc/{pid}/stat").exists() and ") Z " not in stat_of(pid)]
    assert not [port for port in ports(stack) if answers(LOOPBACK, port)]


def stat_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ") Z "


def test_a_taken_explicit_port_is_named_and_nothing_is_started(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_KAFKA_PORT", str(broker.port))
    stack = new_stack(tmp_path)
    with pytest.raises(PortTaken, match=rf"port {broker.port} .*process {broker.pid} \(java\)"):
        stack.up()
    assert not recorded(stack)


def test_a_kafka_of_the_users_own_is_used_and_none_started(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = new_stack(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", broker.bootstrap)
    services = stack.up(only="kafka")
    assert services["kafka"]["bootstrap"] == broker.bootstrap
    assert services["kafka"]["external"]
    stack.down()
    assert broker.healthy()
    assert not stack.services()["kafka"]["running"]


def test_a_kafka_of_the_users_own_that_is_away_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:9")
    with pytest.raises(
        LocalStackError, match=r"KAFKA_BOOTSTRAP=127\.0\.0\.1:9: nothing accepts.*unset KAFKA_BOOTSTRAP"
    ):
        new_stack(tmp_path).up()


def test_two_ups_at_once_start_one_broker(tmp_path: Path) -> None:
    stack = new_stack(tmp_path)
    env = {**os.environ, "FENCEPOST_STATE": str(stack.state.root), "FENCEPOST_JARS": str(stack.state.jars)}
    command = [sys.executable, "-m", "fencepost.local", "up", "--only", "kafka"]
    ups = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    try:
        said = sorted(up.communicate(timeout=90)[0].splitlines()[0].split("Kafka")[1].split()[0] for up in ups)
        assert [up.returncode for up in ups] == [0, 0]
        assert said == ["runs", "up"]
        assert len(all_processes(stack)) == 1
    finally:
        stack.down()
    assert not all_processes(stack)
