"""The compose files, checked without an engine; and each check, seen to find what it is for."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost_stack import schema_registry
from fencepost_stack.airflow import COMPONENTS, AirflowPlan, Folders
from fencepost_stack.compose import PORTS
from fencepost_stack.credentials import Credentials
from fencepost_stack.pipeline_users import names_of, password_variable
from fencepost_stack.state_folder import StateFolder
from static.compose_check import Files, problems

ROOT = Path(__file__).resolve().parents[2]
FILES = Files.of(ROOT)
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


def test_nothing_is_wrong_with_the_compose_files() -> None:
    assert problems(FILES) == []


def environment(service: str) -> dict[str, str]:
    return dict(FILES.model["services"][service]["environment"])


def test_airflow_is_set_up_as_in_the_local_stack(tmp_path: Path) -> None:
    credentials = Credentials(*["x"] * 7)
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
    services = FILES.model["services"]
    assert {name.removeprefix("airflow-") for name in services if name.startswith("airflow-")} == {*COMPONENTS, "init"}
    for component, command in COMPONENTS.items():
        assert services[f"airflow-{component}"]["command"] == ["airflow", *command]
        assert environment(f"airflow-{component}") == environment("airflow-scheduler")


def test_brokers_and_workers_differ_in_nothing_but_name_and_port() -> None:
    services = FILES.model["services"]
    assert services["spark-worker-1"] == services["spark-worker-2"]
    first = json.dumps(services["kafka-1"])
    for number, port in ((2, 9093), (3, 9094)):
        renamed = first.replace("kafka-1", f"kafka-{number}").replace("broker-1", f"broker-{number}")
        renamed = renamed.replace(f"kafka-{number},kafka-2,kafka-3", "kafka-1,kafka-2,kafka-3")
        assert (
            json.loads(renamed.replace("KAFKA_1_PORT:-9092", f"KAFKA_{number}_PORT:-{port}"))
            == services[f"kafka-{number}"]
        )


def test_every_pipeline_of_the_repository_has_a_password_in_compose() -> None:
    wanted = {password_variable(name) for name in names_of(ROOT / "include" / "pipelines")}
    for service in ("kafka-users", "airflow-scheduler"):
        assert {name for name in environment(service) if name.startswith("KAFKA_PASSWORD_")} == wanted


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
    services = FILES.model["services"]
    master = json.loads(settings["AIRFLOW_CONN_SPARK_DEFAULT"])["host"]
    assert master == settings["FENCEPOST_SPARK_MASTER"] == services["spark-worker-1"]["command"][-1]
    hosts = environment("kafka-1")["FENCEPOST_KAFKA_HOSTS"].split(",")
    assert settings["KAFKA_BOOTSTRAP"] == ",".join(f"{host}:{PORTS['clients']}" for host in hosts)
    port = environment("schema-registry")["QUARKUS_HTTP_PORT"]
    assert settings["SCHEMA_REGISTRY_URL"] == f"http://schema-registry:{port}{schema_registry.API}"
    assert settings["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"].startswith("http://airflow-api-server:8080/")


COMPOSE_BREAKS = [
    ("    restart: unless-stopped\n", "    restart: unless-stoped\n", "restart policy"),
    ("    stop_grace_period: 1m", "    stop_grace_perod: 1m", "unknown field"),
    ("image: postgres:17-bookworm", "image: postgres", "image with its version"),
    ("image: postgres:17-bookworm", "image: postgres:latest", "names no version"),
    ("  image: fencepost:local", "  image: fencepost:other", "those of the local stack"),
    ("kafka-2: {condition: service_healthy}", "kafka-2: {}", "without a condition"),
    ("kafka-2: {condition: service_healthy}", "kafak: {condition: service_healthy}", "no service"),
    (
        "airflow-init: {condition: service_completed_successfully}",
        "airflow-init: {condition: service_healthy}",
        "health",
    ),
    ("kafka-2: {condition: service_healthy}", "kafka-2: {condition: service_completed_successfully}", "does not fit"),
    ("127.0.0.1:${FENCEPOST_KAFKA_2_PORT:-9093}:9092", "${FENCEPOST_KAFKA_2_PORT:-9093}:9092", "127.0.0.1"),
    ("127.0.0.1:${FENCEPOST_AIRFLOW_PORT:-8080}:8080", "0.0.0.0:8080:8080", "127.0.0.1"),
    ("    healthcheck: *spark-health\n", "", "no health check"),
    ("      interval: 5s", "      interval: often", "no duration"),
    ("test: [CMD, pg_isready", "test: [pg_isready", "begins with CMD"),
    ("      - kafka-2:/var/lib", "      - kafak:/var/lib", "not declared"),
    ("schema-registry:/var/lib", "state:/var/lib", "schema-registry: volume state has secrets of others"),
    ("schema-registry:/var/lib", "state:/var/lib", "volume state is written by airflow, schema-registry"),
    ("      - spark:/var/lib/fencepost-spark:ro", "      - cluster:/x:ro", "spark-master: volume cluster has secrets"),
    ("/var/lib/fencepost-spark:ro", "/var/lib/fencepost-spark", "volume spark is written by airflow, kafka, spark"),
    ("      - kafka-2:/var/lib", "      - ./nowhere:/var/lib", "not in the repository"),
    ("/opt/fencepost/dags", "/opt/fencepost/dag", "dag is not in the repository"),
    ("${FENCEPOST_POSTGRES_PASSWORD:?see .env.example}\n", "hunter2\n", "must be a variable"),
    ("airflow:${FENCEPOST_POSTGRES_PASSWORD:?see .env.example}@", "airflow:hunter2@", "holds a password"),
    ("${FENCEPOST_AIRFLOW_JWT_SECRET:?see .env.example}", "${FENCEPOST_AIRFLOW_JWT_SECRET}", "required"),
    ("${FENCEPOST_AIRFLOW_JWT_SECRET:?see .env.example}", "${FENCEPOST_AIRFLOW_JWT_SECRET:-x}", "required"),
    ('FENCEPOST_KAFKA_PORT: "9092"', "FENCEPOST_KAFKA_PORT: s3cr3tS3cr3tS3cr3tS3cr3t", "looks like a key"),
    ('FENCEPOST_KAFKA_PORT: "9092"', "FENCEPOST_KAFKA_PORT: 9092", "quote it"),
    ("${FENCEPOST_SPARK_WORKER_CORES:-2}", "${FENCEPOST_CORES:-2}", "FENCEPOST_CORES is not documented"),
    ("${FENCEPOST_SPARK_WORKER_CORES:-2}", "2", "which nothing uses"),
    ("${FENCEPOST_SPARK_WORKER_CORES:-2}", "${FENCEPOST_SPARK_WORKER_CORES:-3}", "documented as '2'"),
    ("${FENCEPOST_SPARK_WORKER_CORES:-2}", "${FENCEPOST_SPARK_WORKER_CORES}", "empty in silence"),
    (
        "AIRFLOW__CORE__EXECUTOR: LocalExecutor",
        'AIRFLOW__CORE__EXECUTOR: LocalExecutor\n    AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS: "True"',
        "everybody",
    ),
    ("registry-app-3.0.9-runner", "registry-app-3.0.8-runner", "the jar of the local stack"),
    ("NOT RUN YET", "Tested", "has not been run"),
    ("name: fencepost\n", "nane: fencepost\n", "unknown top-level field nane"),
]
OTHER_BREAKS = [
    ("dockerfile", "/var/lib/fencepost-schema-registry ", "", "/var/lib/fencepost-schema-registry is not made"),
    ("dockerfile", "COPY Makefile", "COPY Makefille", "Makefille is not in the repository"),
    ("dockerfile", "python:3.11-slim", "python:3.12-slim", "base image"),
    ("dockerfile", "openjdk-17", "openjdk-21", "no Java 17"),
    ("dockerfile", "RUN make setup PYTHON=python3.11", "RUN pip install pyspark==4.1.0", "beside requirements.txt"),
    ("dockerfile", "RUN make setup PYTHON=python3.11", "RUN true", "make setup"),
    ("dockerfile", "fencepost/errors.py", "fencepost/mistakes.py", "mistakes.py is not in the repository"),
    ("dockerignore", "!Makefile", "", "kept out of the image"),
    ("dockerignore", "**/__pycache__", "include/fencepost_stack", "fencepost_stack is kept out of the image"),
    ("dockerignore", "\n*\n", "\n", "lets .env into the image"),
    ("env_example", "FENCEPOST_AIRFLOW_JWT_SECRET=", "FENCEPOST_AIRFLOW_JWT_SECRET=abc", "everybody's own"),
    ("requirements", "pyspark-client==", "pyspark-client==9.", "two versions"),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), COMPOSE_BREAKS, ids=[new.strip()[:50] for _, new, _ in COMPOSE_BREAKS]
)
def test_a_broken_compose_file_is_found(old: str, new: str, message: str) -> None:
    assert old in FILES.compose
    found = problems(replace(FILES, compose=FILES.compose.replace(old, new)))
    assert any(message in problem for problem in found), found


@pytest.mark.parametrize(("field", "old", "new", "message"), OTHER_BREAKS, ids=[b[3] for b in OTHER_BREAKS])
def test_a_broken_file_beside_it_is_found(field: str, old: str, new: str, message: str) -> None:
    text = getattr(FILES, field)
    assert old in text
    found = problems(replace(FILES, **{field: text.replace(old, new)}))
    assert any(message in problem for problem in found), found
