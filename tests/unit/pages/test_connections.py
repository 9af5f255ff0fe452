"""Pages log in by connections of Airflow's: they notice a new password, and leave no client behind that tries the old one."""

from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.services.connection import Connection
from fencepost.errors import ConnectionNotFound, LoginRefused
from fencepost.kafka.client_settings import ClientSettings
from fencepost.pages import LazyApp, app
from fencepost.pages import ledgers as ledgers_module
from fencepost.pages.ledgers import Ledgers
from fencepost.pages.logins import Logins

from .conftest import SETTINGS


class Airflow:
    """Connections in Airflow, one of which has teams' own, and a cluster that takes one password alone, or any."""

    def __init__(self) -> None:
        self.password = "first"
        self.in_kafka = "first"
        self.teams: dict[str, str] = {}
        self.looked_up: list[tuple[str, str | None]] = []
        self.masked: list[Pipeline] = []
        self.made: list[str] = []
        self.alive: list[weakref.ref[Client]] = []

    def team_of(self, dag_id: str) -> str | None:
        return self.teams.get(dag_id)

    def look_up(self, name: str, team: str | None) -> Connection:
        self.looked_up.append((name, team))
        if not self.password:
            raise ConnectionNotFound("not there")
        password = f"{self.password} of {team}" if team else self.password
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
        extra = {"bootstrap.servers": "127.0.0.1:1", **login, "sasl.password": password}
        return Connection(name, extra=json.dumps(extra))

    def mask(self, pipeline: Pipeline) -> None:
        self.masked.append(pipeline)

    def client(self, settings: ClientSettings, timeout: float) -> Client:
        made = Client(self, settings.values["sasl.password"])
        self.made.append(made.password)
        self.alive.append(weakref.ref(made))
        return made

    @property
    def open(self) -> list[str]:
        gc.collect()
        return [client.password for ref in self.alive if (client := ref()) is not None]


class Client:
    def __init__(self, airflow: Airflow, password: str) -> None:
        self.airflow, self.password = airflow, password

    def find(self, topic: str) -> Any:
        if self.airflow.in_kafka not in {self.password, "any"}:
            raise LoginRefused("Authentication failed.")
        return topic

    def high_watermarks(self, topic: Any) -> list[int]:
        return [3]


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    made = Airflow()
    monkeypatch.setattr(ledgers_module, "Cluster", made.client)
    return made


@pytest.fixture
def ledgers(airflow: Airflow) -> Ledgers:
    made = Ledgers()
    made.logins = Logins(airflow)
    return made


@pytest.fixture
def pipeline(folders: Path) -> Pipeline:
    file = folders / "orders" / "pipeline.yaml"
    file.write_text(SETTINGS.format(description="").replace('{bootstrap.servers: "127.0.0.1:1"}', "{connection: prod}"))
    return load_pipeline(folders / "orders")


def test_a_connection_is_looked_up_again_after_a_minute_and_the_old_client_closed(
    ledgers: Ledgers, airflow: Airflow, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(ledgers_module.time, "monotonic", lambda: now[0])
    for _ in range(3):
        assert ledgers.source_ends(pipeline)
    assert (len(airflow.looked_up), airflow.made) == (1, ["first"])
    airflow.password, airflow.in_kafka = "second", "any"
    now[0] += 58
    assert ledgers.source_ends(pipeline)
    assert len(airflow.looked_up) == 1
    now[0] += 3
    assert ledgers.source_ends(pipeline)
    assert (len(airflow.looked_up), airflow.open) == (2, ["second"])


def test_a_refused_login_is_looked_up_at_once_and_the_page_shows_what_it_asked_for(
    ledgers: Ledgers, airflow: Airflow, pipeline: Pipeline
) -> None:
    assert ledgers.source_ends(pipeline)
    airflow.password = airflow.in_kafka = "second"
    assert ledgers.source_ends(pipeline)
    assert (len(airflow.looked_up), airflow.open) == (2, ["second"])


def test_a_login_that_stays_refused_is_told_and_leaves_no_client(
    ledgers: Ledgers, airflow: Airflow, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.in_kafka = "another"
    for _ in range(2):
        with pytest.raises(LoginRefused):
            ledgers.source_ends(pipeline)
    assert airflow.made == ["first"], "within some seconds nobody tries the same login again"
    monkeypatch.setattr(ledgers_module, "PAUSE", 0)
    airflow.password = "another"
    assert ledgers.source_ends(pipeline)
    assert airflow.open == ["another"]


def test_a_connection_that_is_not_found_is_told(ledgers: Ledgers, airflow: Airflow, pipeline: Pipeline) -> None:
    airflow.password = ""
    with pytest.raises(ConnectionNotFound):
        ledgers.source_ends(pipeline)
    airflow.password = "first"
    assert ledgers.source_ends(pipeline)


def test_a_pipeline_without_connections_is_not_looked_up(ledgers: Ledgers, airflow: Airflow, folders: Path) -> None:
    file = folders / "orders" / "pipeline.yaml"
    text = SETTINGS.format(description="").replace('"127.0.0.1:1"', '"127.0.0.1:1", sasl.password: first')
    file.write_text(text)
    assert ledgers.source_ends(load_pipeline(folders / "orders"))
    assert not airflow.looked_up


@pytest.fixture
def many(folders: Path) -> list[Pipeline]:
    """Pipelines that name the same connection."""
    for number in range(20):
        folder = folders / f"p{number:02}"
        folder.mkdir()
        text = SETTINGS.format(description="").replace('{bootstrap.servers: "127.0.0.1:1"}', "{connection: prod}")
        (folder / "pipeline.yaml").write_text(text)
        for other in ("transform.sql", "expectations.yaml"):
            (folder / other).write_bytes((folders / "orders" / other).read_bytes())
    return [load_pipeline(folders / f"p{number:02}") for number in range(20)]


def test_a_connection_that_many_pipelines_name_is_looked_up_once_and_has_one_client(
    ledgers: Ledgers, airflow: Airflow, many: list[Pipeline]
) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ledgers.source_ends, many))
    assert (airflow.looked_up, airflow.made) == ([("prod", None)], ["first"])
    airflow.password = airflow.in_kafka = "second"
    for pipeline in many:
        assert ledgers.source_ends(pipeline)
    assert len(airflow.looked_up) == 2, "the first that is refused looks it up for all"
    airflow.in_kafka = "another"
    for pipeline in many:
        with pytest.raises(LoginRefused):
            ledgers.source_ends(pipeline)
    assert len(airflow.looked_up) == 3, "one that was looked up after the refusal is not looked up again"


def test_pipelines_of_two_teams_get_each_its_own_connection_of_the_same_name(
    ledgers: Ledgers, airflow: Airflow, many: list[Pipeline]
) -> None:
    airflow.teams, airflow.in_kafka = {"p00": "blue", "p01": "red", "p03": "blue"}, "any"
    for pipeline in many[:4]:
        assert ledgers.source_ends(pipeline)
    assert airflow.looked_up == [("prod", "blue"), ("prod", "red"), ("prod", None)]
    assert airflow.made == ["first of blue", "first of red", "first"]
    assert {p.kafka["sasl.password"].get_secret_value() for p in airflow.masked} == {*airflow.made}


def test_the_plugin_brings_the_connections(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline
) -> None:
    monkeypatch.setattr(app, "ledgers", Ledgers())
    assert LazyApp(airflow)._load() is app.app
    assert app.ledgers.source_ends(pipeline)
    assert airflow.made == ["first"]
