"""A reader's own connections in Airflow: named as in pipeline.yaml, and looked up in the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseHook
from airflow.sdk._shared.secrets_masker import _secrets_masker, reset_secrets_masker
from airflow.sdk.configuration import clear_secrets_backends_cache

from fencepost import read_validated
from fencepost.config.reader import Reader
from fencepost.errors import ConnectionNotFound, SettingsError
from fencepost.kafka.client_settings import client_settings
from fencepost.reading.validated import _whole
from makers import an_announcement

KAFKA = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "reports",
    "sasl.password": "hunter2-of-kafka",
    "group.id": "reports",
    "enable.auto.commit": False,
}
REGISTRY = {"conn_type": "http", "host": "https://registry", "login": "reports", "password": "hunter2-of-registry"}
POSTGRES = {"conn_type": "postgres", "host": "db", "schema": "shop", "login": "reports", "password": "hunter2-of-db"}
IN_PLAIN_PYTHON = """
import sys
from fencepost.config.reader import Reader
from fencepost.reading.validated import _whole
reader = Reader.of("orders", {"bootstrap.servers": "127.0.0.1:1"}, {"url": "http://r"}, None)
assert _whole(reader) is reader
assert "airflow" not in sys.modules
"""


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    reset_secrets_masker()
    for name, value in (
        ("KAFKA_READER", {"conn_type": "kafka", "extra": KAFKA}),
        ("REGISTRY_READER", REGISTRY),
        ("DB_READER", POSTGRES),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(value))
    yield
    reset_secrets_masker()
    clear_secrets_backends_cache()


def reader(**sections: Any) -> Reader:
    given = {"kafka": {"connection": "kafka_reader"}, "schema_registry": None, "postgres": None} | sections
    return _whole(Reader.of("orders", **given))


def test_each_section_takes_the_settings_of_its_connection_and_what_stands_beside_it_wins() -> None:
    found = reader(
        kafka={"connection": "kafka_reader", "client.id": "mine", "sasl.mechanisms": "PLAIN"},
        schema_registry={"connection": "registry_reader", "timeout_seconds": 5},
        postgres={"connection": "db_reader", "connect_timeout": 5, "user": "own"},
    )
    assert client_settings(found).values == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "reports",
        "sasl.password": "hunter2-of-kafka",
        "client.id": "mine",
    }
    registry = found.schema_registry
    assert registry is not None
    assert (registry.url, registry.username, registry.timeout_seconds) == ("https://registry", "reports", 5)
    plain = {name: value.get_secret_value() for name, value in found.postgres.items()}
    assert plain == {"host": "db", "dbname": "shop", "user": "own", "password": "hunter2-of-db", "connect_timeout": "5"}
    assert "hunter2" not in repr(found)


def test_the_secrets_are_masked_in_the_logs_of_the_readers_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow by itself does not mask a certificate's key."""
    extra = KAFKA | {"ssl.certificate.pem": "hunter2-of-the-certificate", "ssl.key.pem": "hunter2-of-the-key"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_READER", json.dumps({"conn_type": "kafka", "extra": extra}))
    reader(schema_registry={"connection": "registry_reader"}, postgres={"connection": "db_reader"})
    said = _secrets_masker().redact("hunter2-of-kafka hunter2-of-the-key hunter2-of-registry hunter2-of-db at db")
    assert said == "*** *** *** *** at db"


def test_read_validated_asks_the_cluster_of_the_connection_as_it_is_at_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asked(Exception):
        pass

    def ask(settings: Any) -> None:
        raise Asked(settings.values["sasl.password"])

    monkeypatch.setattr("fencepost.reading.validated.Cluster", ask)
    nothing: Any = None
    event = an_announcement().json_value
    with pytest.raises(Asked, match="hunter2-of-kafka"):
        read_validated(nothing, event, kafka={"connection": "kafka_reader"})
    rotated = {"conn_type": "kafka", "extra": KAFKA | {"sasl.password": "hunter2-rotated"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_READER", json.dumps(rotated))
    with pytest.raises(Asked, match="hunter2-rotated"):
        read_validated(nothing, event, kafka={"connection": "kafka_reader"})


@pytest.mark.parametrize(
    ("kafka", "why"),
    [
        ({"connection": "two words"}, r"reader of pipeline orders: kafka\.connection: .*1 to 200 letters"),
        ({"connection": ""}, r"reader of pipeline orders: kafka\.connection: .*1 to 200 letters"),
        ({"connection": "kafka_reader", "group.id": "x"}, r"group\.id cannot be set"),
        ({"connection": "kafka_reader", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN"}, "sasl.mechanism"),
        ({"connection": "empty"}, r"bootstrap\.servers: required but missing; add it to the extra of connection empty"),
        ({"connection": "token"}, "OAUTHBEARER"),
        ({}, r"Give kafka=.*\{\"connection\": NAME\}"),
    ],
)
def test_what_is_no_use_is_named_and_no_secret_with_it(
    monkeypatch: pytest.MonkeyPatch, kafka: dict[str, str], why: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_EMPTY", json.dumps({"conn_type": "kafka", "extra": {"client.id": "hunter2"}}))
    token = {"bootstrap.servers": "k:1", "sasl.mechanism": "OAUTHBEARER", "sasl.password": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_TOKEN", json.dumps({"conn_type": "kafka", "extra": token}))
    with pytest.raises(SettingsError, match=why) as raised:
        client_settings(reader(kafka=kafka))
    assert "hunter2" not in str(raised.value)


def test_a_connection_that_airflow_does_not_have_is_named() -> None:
    with pytest.raises(ConnectionNotFound, match=r"no connection 'elsewhere'.*AIRFLOW_CONN_ELSEWHERE"):
        reader(kafka={"connection": "elsewhere"})


def test_settings_that_were_not_looked_up_open_no_client() -> None:
    with pytest.raises(SettingsError, match=r"reader of pipeline orders: its kafka settings are in .* kafka_reader"):
        client_settings(Reader.of("orders", {"connection": "kafka_reader"}, None, None))


def test_without_a_connection_nothing_is_looked_up_and_airflow_is_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def look_up(conn_id: str) -> Any:
        raise AssertionError(f"{conn_id} is looked up")

    monkeypatch.setattr(BaseHook, "get_connection", look_up)
    assert not reader(kafka={"bootstrap.servers": "127.0.0.1:1"}).connections
    subprocess.run([sys.executable, "-c", IN_PLAIN_PYTHON], check=True, cwd=tmp_path, timeout=120)
