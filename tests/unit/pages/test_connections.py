"""Pages log in by connections of Airflow's: they notice a new password, and leave no client behind that tries the old one."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import ConnectionNotFound, LoginRefused
from fencepost.kafka.client_settings import ClientSettings
from fencepost.pages import LazyApp, app
from fencepost.pages import ledgers as ledgers_module
from fencepost.pages.ledgers import Ledgers

from .conftest import SETTINGS


class Airflow:
    """A connection in Airflow, and a cluster that takes one password alone from whoever logs in, or any."""

    def __init__(self) -> None:
        self.password = "first"
        self.in_kafka = "first"
        self.looked_up = 0
        self.made: list[str] = []
        self.alive: list[weakref.ref[Client]] = []

    def look_up(self, pipeline: Pipeline) -> Pipeline:
        self.looked_up += 1
        if not self.password:
            raise ConnectionNotFound("not there")
        kafka = {"bootstrap.servers": SecretStr("127.0.0.1:1"), "sasl.password": SecretStr(self.password)}
        return pipeline.model_copy(update={"kafka": kafka, "resolved": True})

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
    made.look_up = airflow.look_up
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
    assert (airflow.looked_up, airflow.made) == (1, ["first"])
    airflow.password, airflow.in_kafka = "second", "any"
    now[0] += 58
    assert ledgers.source_ends(pipeline)
    assert airflow.looked_up == 1
    now[0] += 3
    assert ledgers.source_ends(pipeline)
    assert (airflow.looked_up, airflow.open) == (2, ["second"])


def test_a_refused_login_is_looked_up_at_once_and_the_page_shows_what_it_asked_for(
    ledgers: Ledgers, airflow: Airflow, pipeline: Pipeline
) -> None:
    assert ledgers.source_ends(pipeline)
    airflow.password = airflow.in_kafka = "second"
    assert ledgers.source_ends(pipeline)
    assert (airflow.looked_up, airflow.open) == (2, ["second"])


def test_a_login_that_stays_refused_is_told_and_leaves_no_client(
    ledgers: Ledgers, airflow: Airflow, pipeline: Pipeline
) -> None:
    airflow.in_kafka = "another"
    for _ in range(2):
        with pytest.raises(LoginRefused):
            ledgers.source_ends(pipeline)
    assert airflow.made == ["first"], "within some seconds nobody tries the same login again"
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
    assert airflow.looked_up == 0


def test_the_plugin_brings_the_look_up(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "ledgers", Ledgers())
    assert LazyApp(airflow.look_up)._load() is app.app
    assert app.ledgers.look_up == airflow.look_up
