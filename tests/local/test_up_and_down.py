"""What `up` leaves behind when it fails, and `down` always: nothing but data."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost_stack.airflow_api import StackAirflow
from fencepost_stack.broker import Broker
from fencepost_stack.errors import LocalStackError, PortTaken, ServiceFailed
from fencepost_stack.ports import LOOPBACK, answers, is_free
from fencepost_stack.registry import Registry
from fencepost_stack.schema_registry import SchemaRegistry, used_by
from fencepost_stack.stack import Stack, is_ready
from local.local_stack import add_pipeline, all_processes, new_stack, recorded

pytestmark = [pytest.mark.deep, pytest.mark.stack]


def ports(stack: Stack) -> list[int]:
    found = stack.services()
    addresses = (found["kafka"]["bootstrap"], *(found[name]["url"] for name in ("airflow", "schema-registry")))
    dsn = found["postgres"]["dsn"]
    return [int(address.split("/apis")[0].rpartition(":")[2]) for address in (*addresses, dsn.rpartition("/")[0])]


def test_down_leaves_no_process_and_no_port_and_up_finds_the_data_again(stack: Stack) -> None:
    services = stack.services()
    bootstrap = services["kafka"]["bootstrap"]
    Cluster(ClientSettings({"bootstrap.servers": bootstrap})).ensure_topic("kept", 3)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("kept", value=b"kept", partition=2)
    assert producer.flush(30) == 0
    del producer
    schema = Schema('{"type": "record", "name": "Kept", "fields": []}', "AVRO")
    registered = SchemaRegistryClient({"url": services["schema-registry"]["url"]}).register_schema("kept-value", schema)
    with StackAirflow.of_stack(stack.state) as api:
        api.ensure_pool("kept", 7)
    before = all_processes(stack)
    assert len(before) > 6

    stopped: list[str] = []
    stack.down(report=lambda service, event, seconds: stopped.append(service))

    assert stopped == ["airflow", "postgres", "schema-registry", "kafka"]
    assert not [process for process in before if process.alive()]
    assert not [port for port in ports(stack) if answers(LOOPBACK, port) or not is_free(port)]
    stack.down(report=lambda service, event, seconds: stopped.append(f"{service} again"))
    assert stopped == ["airflow", "postgres", "schema-registry", "kafka"]

    assert stack.up() == services
    schemas = SchemaRegistryClient({"url": services["schema-registry"]["url"]})
    assert schemas.get_latest_version("kept-value").schema_id == registered
    assert schemas.get_compatibility() == "BACKWARD"
    cluster = Cluster(ClientSettings({"bootstrap.servers": bootstrap}))
    assert cluster.high_watermarks(cluster.describe("kept")) == [0, 0, 1]
    with StackAirflow.of_stack(stack.state) as api:
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


@pytest.mark.parametrize("service", ["kafka", "schema-registry"])
def test_a_taken_explicit_port_is_named_and_nothing_is_started(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    variable = f"FENCEPOST_{service.replace('-', '_').upper()}_PORT"
    monkeypatch.setenv(variable, str(broker.port))
    stack = new_stack(tmp_path)
    with pytest.raises(
        PortTaken, match=rf"port {broker.port} for {service} \({variable}\).*process {broker.pid} \(java\)"
    ):
        stack.up(only=service)
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


def test_a_schema_registry_of_the_users_own_is_used_and_none_started(
    tmp_path: Path, schema_registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = new_stack(tmp_path)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", schema_registry.url)
    found = stack.up(only="schema-registry")["schema-registry"]
    assert (found["url"], found["running"], found["external"]) == (schema_registry.url, True, True)
    assert not recorded(stack)
    stack.down()
    assert schema_registry.healthy()
    assert not stack.services()["schema-registry"]["running"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9/apis", r"nothing accepts connections at 127\.0\.0\.1:9\..*unset SCHEMA_REGISTRY_URL"),
        ("127.0.0.1:9", "not a URL such as"),
    ],
)
def test_a_schema_registry_of_the_users_own_that_is_away_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", url)
    stack = new_stack(tmp_path)
    with pytest.raises(LocalStackError, match=rf"SCHEMA_REGISTRY_URL: {said}"):
        stack.up(only="schema-registry")
    assert not recorded(stack)


@pytest.mark.parametrize(
    ("only", "pipeline", "variable", "wanted"),
    [
        (None, False, False, ["kafka", "postgres", "airflow"]),
        (None, True, False, ["kafka", "schema-registry", "postgres", "airflow"]),
        (None, False, True, ["kafka", "schema-registry", "postgres", "airflow"]),
        ("airflow", True, False, ["kafka", "schema-registry", "postgres", "airflow"]),
        ("kafka", True, True, ["kafka"]),
        ("schema-registry", False, False, ["schema-registry"]),
    ],
)
def test_a_schema_registry_starts_where_a_pipeline_needs_it_or_a_person_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: str | None, pipeline: bool, variable: bool, wanted: list[str]
) -> None:
    stack = new_stack(tmp_path)
    if pipeline:
        add_pipeline(stack)
    if variable:
        monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://registry:8081")
    Registry(stack.state).record("schema-registry", external="http://once:8081")
    started: list[str] = []
    monkeypatch.setattr(stack, "_up_server", lambda service, *_: started.append(service) or is_ready)
    monkeypatch.setattr(stack, "_up_airflow", lambda *_: started.append("airflow") or is_ready)
    stack.up(only)
    assert started == wanted
    forgotten = "airflow" in wanted and "schema-registry" not in wanted
    assert stack.services()["schema-registry"]["external"] is not forgotten


def test_services_start_side_by_side_and_airflow_once_they_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, told = new_stack(tmp_path), list[str]()
    add_pipeline(stack)  # which needs the schema registry

    def up(service: str, *_: object) -> Callable[[float], None]:
        told.append(f"{service} starts")
        return lambda timeout: told.append(f"{service} is ready")

    monkeypatch.setattr(stack, "_up", up)
    stack.up()
    others = ("kafka", "schema-registry", "postgres")
    assert told == [
        *(f"{service} starts" for service in others),
        *(f"{service} is ready" for service in others),
        *("airflow starts", "airflow is ready"),
    ]


@pytest.mark.parametrize(
    ("settings", "uses"),
    [
        ("schema_registry: {url: '${SCHEMA_REGISTRY_URL}'}", True),
        ("schema_registry: {url: '${SCHEMA_REGISTRY_URL:-http://127.0.0.1:8081}', username: u}", True),
        ("schema_registry: {url: http://localhost:8081}", True),
        ("schema_registry: {url: https://registry.example}", False),
        ("schema_registry: {url: 'http://[broken'}", False),
        ("schema_registry: {}", False),
        ("schema_registry:", False),
        ("source: {topic: t}", False),
        ("- a list", False),
        ("", False),
        ("schema_registry: {url: [", False),
    ],
)
def test_a_pipeline_uses_the_local_registry_by_variable_or_by_address(
    tmp_path: Path, settings: str, uses: bool
) -> None:
    for name in ("pipeline", ".hidden", "_draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pipeline.yaml").write_text(settings)
    (tmp_path / "empty").mkdir()
    assert used_by(tmp_path) == (["pipeline"] if uses else [])


def test_two_ups_at_once_start_one_broker(tmp_path: Path) -> None:
    stack = new_stack(tmp_path)
    env = {**os.environ, "FENCEPOST_STATE": str(stack.state.root), "FENCEPOST_JARS": str(stack.state.jars)}
    command = [sys.executable, "-m", "fencepost_stack", "up", "--only", "kafka"]
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
