"""The compose files, without an engine: what `make compose`, the run with one, could not see."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from fencepost_stack import schema_registry
from fencepost_stack.airflow import COMPONENTS, AirflowPlan, Folders
from fencepost_stack.compose import PORTS
from fencepost_stack.credentials import Credentials
from fencepost_stack.jars import SCHEMA_REGISTRY
from fencepost_stack.pipeline_users import names_of, password_variable
from fencepost_stack.schema_registry import runner
from fencepost_stack.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yaml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]
# Where compose has to differ: names of hosts, places of files, and secrets.
ELSEWHERE = {
    ("core", "dags_folder"),
    ("core", "plugins_folder"),
    ("core", "fernet_key"),
    ("core", "execution_api_server_url"),
    ("core", "simple_auth_manager_passwords_file"),
    ("database", "sql_alchemy_conn"),
    ("logging", "base_log_folder"),
    ("api", "host"),
    ("api", "port"),
    ("api", "base_url"),
    ("api", "secret_key"),
    ("api_auth", "jwt_secret"),
}
VARIABLE = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)(:[-?][^}]*)?\}")
# Logins and logs of Airflow; keys of the brokers and of their administrator.
PRIVATE = {"state": ("airflow",), "cluster": ("kafka", "cluster-init")}


def environment(service: str) -> dict[str, str]:
    return dict(SERVICES[service]["environment"])


def test_airflow_is_set_up_as_in_the_local_stack(tmp_path: Path) -> None:
    credentials = Credentials(*["x"] * 10)
    plan = AirflowPlan(
        StateFolder(tmp_path), 8080, credentials, "postgresql://x", "127.0.0.1:9092", "http://x", Folders.default()
    )
    local = {(section, name): value for section, names in plan.settings().items() for name, value in names.items()}
    compose = {
        (match.group(1).lower(), match.group(2).lower()): value
        for variable, value in environment("airflow-scheduler").items()
        if (match := re.fullmatch(r"AIRFLOW__([A-Z_]+?)__(\w+)", variable))
    }
    assert compose.keys() == local.keys()
    assert {k: v for k, v in compose.items() if k not in ELSEWHERE} == {
        k: v for k, v in local.items() if k not in ELSEWHERE
    }


def test_every_airflow_component_is_a_service_with_the_same_settings_and_command() -> None:
    assert {name.removeprefix("airflow-") for name in SERVICES if name.startswith("airflow-")} == {*COMPONENTS, "init"}
    for component, command in COMPONENTS.items():
        assert SERVICES[f"airflow-{component}"]["command"] == ["airflow", *command]
        assert environment(f"airflow-{component}") == environment("airflow-scheduler")


def test_brokers_and_workers_differ_in_nothing_but_name_and_port() -> None:
    assert SERVICES["spark-worker-1"] == SERVICES["spark-worker-2"]
    first = json.dumps(SERVICES["kafka-1"])
    for number, port in ((2, 9093), (3, 9094)):
        renamed = first.replace("kafka-1", f"kafka-{number}").replace("broker-1", f"broker-{number}")
        renamed = renamed.replace(f"kafka-{number},kafka-2,kafka-3", "kafka-1,kafka-2,kafka-3")
        assert (
            json.loads(renamed.replace("KAFKA_1_PORT:-9092", f"KAFKA_{number}_PORT:-{port}"))
            == SERVICES[f"kafka-{number}"]
        )


def test_every_pipeline_of_the_repository_has_a_password_in_compose() -> None:
    wanted = {password_variable(name) for name in names_of(ROOT / "include" / "pipelines")}
    for service in ("kafka-users", "airflow-scheduler"):
        assert {name for name in environment(service) if name.startswith("KAFKA_PASSWORD_")} == wanted


def test_the_warehouse_is_a_volume_of_every_airflow_component() -> None:
    place = urlsplit(environment("airflow-scheduler")["LAKE_WAREHOUSE"])
    assert (place.scheme, f"lake:{place.path}" in SERVICES["airflow-scheduler"]["volumes"]) == ("file", True)
    volumes = [SERVICES[f"airflow-{component}"]["volumes"] for component in COMPONENTS]
    assert volumes == volumes[:1] * len(COMPONENTS)


def test_every_volume_of_the_image_is_a_folder_that_its_user_owns() -> None:
    """Docker gives a new volume the owner of the folder that it takes the place of: without one, root."""
    places = {str(m).split(":")[1] for s in SERVICES.values() if "build" in s for m in s.get("volumes", [])}
    [owned] = re.findall(r"install --directory --owner fencepost --mode 0750 (.+?)\n\n", DOCKERFILE, re.DOTALL)
    assert places == set(owned.replace("\\", " ").split())


def test_the_schema_registry_is_set_up_as_the_local_one() -> None:
    compose = environment("schema-registry")
    local = {re.sub(r"[.-]", "_", name).upper(): value for name, value in schema_registry.PROPERTIES.items()}
    local = {name: value for name, value in local.items() if not name.startswith(("QUARKUS_LOG", "QUARKUS_BANNER"))}
    local["APICURIO_DATASOURCE_URL"] = local["APICURIO_DATASOURCE_URL"].replace(
        "file:.", "file:/var/lib/fencepost-schema-registry"
    )
    assert compose == {**local, "QUARKUS_HTTP_HOST": "0.0.0.0", "QUARKUS_HTTP_PORT": "8081"}  # noqa: S104


def test_tasks_reach_the_services_of_the_network_and_not_their_own_container() -> None:
    settings = environment("airflow-scheduler")
    master = json.loads(settings["AIRFLOW_CONN_SPARK_DEFAULT"])["host"]
    assert master == settings["FENCEPOST_SPARK_MASTER"] == SERVICES["spark-worker-1"]["command"][-1]
    hosts = environment("kafka-1")["FENCEPOST_KAFKA_HOSTS"].split(",")
    assert settings["KAFKA_BOOTSTRAP"] == ",".join(f"{host}:{PORTS['clients']}" for host in hosts)
    port = environment("schema-registry")["QUARKUS_HTTP_PORT"]
    assert settings["SCHEMA_REGISTRY_URL"] == f"http://schema-registry:{port}{schema_registry.API}"
    assert settings["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"].startswith("http://airflow-api-server:8080/")


def exposed(services: Mapping[str, Any]) -> list[str]:
    """Ports that other machines would reach, and volumes with secrets of others."""
    found = [
        f"{name}: {port}"
        for name, service in services.items()
        for port in service.get("ports", [])
        if not re.fullmatch(r"127\.0\.0\.1:(\$\{\w+:-\d+\}|\d+):\d+", str(port))
    ]
    mounts = [(name, str(m).split(":")[0]) for name, service in services.items() for m in service.get("volumes", [])]
    return found + [f"{name}: {volume}" for name, volume in mounts if not name.startswith(PRIVATE.get(volume, ""))]


def literal_secrets(services: Mapping[str, Any]) -> list[str]:
    """Secrets that are not required variables."""
    return [
        f"{name}: {variable}"
        for name, service in services.items()
        for variable, value in service.get("environment", {}).items()
        if re.search(r"PASSWORD|SECRET|FERNET|SQL_ALCHEMY_CONN", variable) and not variable.endswith("_FILE")
        if not re.fullmatch(r"(postgresql\S+://airflow:)?\$\{\w+:\?[^}]+\}(@postgres:5432/airflow)?", str(value))
    ]


def test_nothing_is_open_to_other_machines_and_no_secret_is_in_the_file() -> None:
    assert (exposed(SERVICES), literal_secrets(SERVICES)) == ([], [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("127.0.0.1:${FENCEPOST_KAFKA_2_PORT:-9093}:9092", "${FENCEPOST_KAFKA_2_PORT:-9093}:9092"),
        ("127.0.0.1:${FENCEPOST_AIRFLOW_PORT:-8080}:8080", "0.0.0.0:8080:8080"),
        ("schema-registry:/var/lib", "state:/var/lib"),
        ("      - spark:/var/lib/fencepost-spark:ro", "      - cluster:/x:ro"),
        ("${FENCEPOST_POSTGRES_PASSWORD:?see .env.example}\n", "hunter2\n"),
        ("airflow:${FENCEPOST_POSTGRES_PASSWORD:?see .env.example}@", "airflow:hunter2@"),
        ("${FENCEPOST_AIRFLOW_JWT_SECRET:?see .env.example}", "${FENCEPOST_AIRFLOW_JWT_SECRET:-x}"),
    ],
)
def test_what_is_open_or_readable_would_be_found(old: str, new: str) -> None:
    assert old in TEXT
    services = yaml.safe_load(TEXT.replace(old, new))["services"]
    assert [*exposed(services), *literal_secrets(services)]


def test_every_variable_is_documented_with_its_default() -> None:
    used = {name: how for line in TEXT.splitlines() if line.strip()[:1] != "#" for name, how in VARIABLE.findall(line)}
    documented = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert {name: how[2:] if how.startswith(":-") else "" for name, how in used.items()} == documented
    assert all(used.values()), "a variable without :- and :? would be empty in silence"


def test_the_build_sees_no_secret_and_no_state() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert rules[0] == "*"
    assert not {"!.env", "!.git", "!.fencepost"} & set(rules)


def test_the_registry_of_compose_is_the_jar_that_set_up_downloads() -> None:
    jar = runner(StateFolder.default().jars_schema_registry).name
    assert SERVICES["schema-registry"]["command"][-1] == f"/opt/fencepost/jars/{SCHEMA_REGISTRY.name}/{jar}"
