"""A command looks a connection up where Airflow would on this machine, and says where it looked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from airflow.sdk.configuration import clear_secrets_backends_cache

from fencepost.airflow import command_connections
from fencepost.airflow.command_connections import resolve_for_command
from fencepost.airflow.connections import ServerConnections
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.run_check import run_check
from fencepost.doctor.settings import check_connections
from fencepost.errors import ConnectionNotFound, SettingsError
from fencepost.findings import Level
from fencepost.pages.logins import Logins
from vault import use_vault

PIPELINE_YAML = """
source: {topic: in, format: bytes}
output: {topic: out, format: bytes}
schedule: {start: 2013-03-01}
kafka: {connection: kafka_prod}
"""
EXTRA = {"bootstrap.servers": "127.0.0.1:1", "group.id": "reports", "client.id": "hunter2"}
KAFKA = {"conn_type": "kafka", "extra": EXTRA}
IN_ENVIRONMENT = "the environment (AIRFLOW_CONN_KAFKA_PROD)"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(
        command_connections, "_has_database", lambda: False
    )  # another test may have made one in this AIRFLOW_HOME
    yield
    clear_secrets_backends_cache()


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    made = make_pipeline(settings=PIPELINE_YAML)
    made.expectations_file.write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: value}}]")
    return made


def test_the_secrets_backend_comes_before_the_environment(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = use_vault(monkeypatch, tmp_path / "vault.json", {"kafka_prod": KAFKA})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", json.dumps(KAFKA | {"extra": {"bootstrap.servers": "127.0.0.1:2"}}))
    told: list[str] = []
    whole, _ = resolve_for_command(pipeline, told.append)
    assert whole.kafka["bootstrap.servers"].get_secret_value() == "127.0.0.1:1"
    vault.write_text("{}")
    whole, _ = resolve_for_command(pipeline, told.append)
    assert whole.kafka["bootstrap.servers"].get_secret_value() == "127.0.0.1:2"
    assert told == [
        "connection kafka_prod: from the secrets backend vault.Vault",
        f"connection kafka_prod: from {IN_ENVIRONMENT}",
    ]


def test_what_was_asked_in_vain_is_told_with_what_it_answered(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = use_vault(monkeypatch, tmp_path / "vault.json", {})
    with pytest.raises(ConnectionNotFound) as raised:
        resolve_for_command(pipeline, print)
    said = f"the secrets backend vault.Vault: not there; {IN_ENVIRONMENT}: not there; not in Airflow's database, whose settings"
    assert said in str(raised.value)
    vault.unlink()
    with pytest.raises(ConnectionNotFound, match=r"vault\.Vault: it does not answer \(FileNotFoundError\)"):
        resolve_for_command(pipeline, print)


def test_a_backend_that_is_not_installed_here_is_told(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "nowhere.Vault")
    with pytest.raises(SettingsError, match=r"secrets backend cannot be loaded here .*\[secrets\] backend"):
        resolve_for_command(pipeline, print)


def test_the_doctor_names_what_is_left_out(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", json.dumps(KAFKA))
    places: list[str] = []
    _, given = resolve_for_command(pipeline, places.append)
    left_out, where = run_check(check_connections, pipeline, given, places)
    assert (left_out.level, where.level) == (Level.WARNING, Level.OK)
    assert "kafka does not use group.id of connection kafka_prod" in left_out.found
    assert IN_ENVIRONMENT in where.found
    assert "hunter2" not in left_out.message + where.message


def fencepost(pipelines: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("fencepost")), *arguments]
    variables = {**os.environ, "FENCEPOST_PIPELINES": str(pipelines), "COLUMNS": "200", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=False)


def test_a_command_says_on_stderr_where_it_found_the_connection(
    pipeline: Pipeline, pipelines: Path, tmp_path: Path
) -> None:
    asked = ("acls", "counted", "--principal", "User:etl")
    home = {"AIRFLOW_HOME": str(tmp_path / "airflow")}
    done = fencepost(pipelines, *asked, AIRFLOW_CONN_KAFKA_PROD=json.dumps(KAFKA), **home)
    assert (done.returncode, done.stderr) == (0, f"connection kafka_prod: from {IN_ENVIRONMENT}\n")
    assert "127.0.0.1:1" in done.stdout
    missing = fencepost(pipelines, *asked, **home)
    assert missing.returncode == 3
    assert f"{IN_ENVIRONMENT}: not there; not in Airflow's database" in missing.stderr
    assert not (tmp_path / "airflow" / "airflow.cfg").exists(), "asking makes no settings"


def test_airflow_is_imported_only_for_a_pipeline_that_names_a_connection(
    pipeline: Pipeline, make_pipeline: Callable[..., Pipeline], pipelines: Path
) -> None:
    make_pipeline("own")
    code = (
        "import sys\n"
        "from fencepost.cli.app import app\n"
        "from fencepost.cli.arguments import pipeline_of\n"
        "pipeline_of('own')\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'airflow']\n"
        "pipeline_of('counted')\n"
        "assert 'airflow' in sys.modules\n"
    )
    variables = {**os.environ, "AIRFLOW_CONN_KAFKA_PROD": json.dumps(KAFKA), "FENCEPOST_PIPELINES": str(pipelines)}
    subprocess.run([sys.executable, "-c", code], check=True, env=variables, capture_output=True)


IN_DATABASE = """
import json, sys
from airflow import settings
from airflow.models import Connection
from airflow.utils.session import create_session
for table in ("team", "connection"):
    Connection.metadata.tables[table].create(settings.engine)
with create_session() as session:
    session.add(Connection(conn_id="kafka_prod", conn_type="kafka", extra=sys.argv[1]))
"""


@pytest.mark.deep
def test_airflows_database_is_asked_where_this_machine_has_its_settings(
    pipeline: Pipeline, pipelines: Path, tmp_path: Path
) -> None:
    environment = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path / 'airflow.db'}",
        "AIRFLOW__CORE__FERNET_KEY": "",
    }
    (tmp_path / "airflow").mkdir()
    made = [sys.executable, "-W", "ignore", "-c", IN_DATABASE, json.dumps(EXTRA)]
    subprocess.run(made, check=True, env={**os.environ, **environment}, capture_output=True)
    done = fencepost(pipelines, "acls", "counted", "--principal", "User:etl", **environment)
    assert done.returncode == 0, done.stderr
    assert f"connection kafka_prod: from Airflow's database (sqlite:///{tmp_path / 'airflow.db'})" in done.stderr
    assert "127.0.0.1:1" in done.stdout


BLUE = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:3"}}


@pytest.fixture
def teams(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A multi-team Airflow, whose environment has a connection of team blue's beside everybody's: teams by DAG."""
    found: dict[str, str] = {}
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id, **_: found.get(dag_id))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", json.dumps(KAFKA))
    monkeypatch.setenv("AIRFLOW_CONN__BLUE___KAFKA_PROD", json.dumps(BLUE))
    return found


def test_pages_get_the_connection_of_their_dags_team(pipeline: Pipeline, teams: dict[str, str]) -> None:
    def brokers() -> str:
        return Logins(ServerConnections()).with_connections(pipeline).kafka["bootstrap.servers"].get_secret_value()

    assert brokers() == "127.0.0.1:1"
    teams["counted"] = "red"
    assert brokers() == "127.0.0.1:1"
    teams["counted"] = "blue"
    assert brokers() == "127.0.0.1:3"


def test_a_connection_of_another_team_is_not_found(
    pipeline: Pipeline, teams: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_PROD")
    teams["counted"] = "red"
    with pytest.raises(ConnectionNotFound, match="no connection 'kafka_prod'"):
        Logins(ServerConnections()).with_connections(pipeline)


def test_a_command_gets_its_teams_connection_where_airflows_database_says_the_team(
    pipeline: Pipeline, teams: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    teams["counted"] = "blue"
    whole, _ = resolve_for_command(pipeline, print)
    assert whole.kafka["bootstrap.servers"].get_secret_value() == "127.0.0.1:1", "without the database no team is known"
    monkeypatch.setattr(command_connections, "_has_database", lambda: True)
    whole, _ = resolve_for_command(pipeline, print)
    assert whole.kafka["bootstrap.servers"].get_secret_value() == "127.0.0.1:3"

    def away(dag_id: str, **_: object) -> str:
        raise OSError("hunter2")

    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", away)
    with pytest.raises(ConnectionNotFound, match=r"which team DAG counted belongs to \(OSError\)"):
        resolve_for_command(pipeline, print)


def test_without_teams_nobody_asks_for_one(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", None)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", json.dumps(KAFKA))
    whole = Logins(ServerConnections()).with_connections(pipeline)
    assert whole.kafka["bootstrap.servers"].get_secret_value() == "127.0.0.1:1"
