"""A cluster that asks clients for a certificate: librdkafka and Spark's Java reader both get in, by PEM or PKCS#12.

Certificates are made on the spot. What each setting becomes for Java is in `fencepost.config.java_options`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.ports import LOOPBACK, any_free_port
from kafka_tools import create_topic, produce, read_all
from rigs.certificates import PASSWORD, make_certificates
from steps import run

pytestmark = pytest.mark.deep

Make = Callable[..., Pipeline]


@dataclass(frozen=True)
class Secured:
    """A broker whose listener at `bootstrap` asks for a certificate, and the folder with a client's files."""

    broker: Broker
    bootstrap: str
    files: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    broker = Broker(folder / "kafka")
    port = any_free_port()
    controller = any_free_port()
    listeners = f"PLAINTEXT://{broker.bootstrap},TLS://{LOOPBACK}:{port}"
    broker.properties |= {
        "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.keystore.type": "PKCS12",
        "listener.name.tls.ssl.keystore.location": str(folder / "server.p12"),
        "listener.name.tls.ssl.keystore.password": PASSWORD,
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(folder / "ca.pem"),
    }
    with broker:
        yield Secured(broker, f"{LOOPBACK}:{port}", folder)


def client_settings(kind: str, files: Path) -> dict[str, str]:
    """The ways to name a client's certificate and key."""
    ca = {"ssl.ca.location": str(files / "ca.pem")}
    pair = {"ssl.certificate.location": str(files / "client.pem"), "ssl.key.location": str(files / "client.key")}
    return {
        "pem files": ca | pair,
        "pem texts": {
            "ssl.ca.pem": (files / "ca.pem").read_text(),
            "ssl.certificate.pem": (files / "client.pem").read_text(),
            "ssl.key.pem": (files / "client.key").read_text(),
        },
        "pkcs12": ca | {"ssl.keystore.location": str(files / "client.p12"), "ssl.keystore.password": PASSWORD},
    }[kind]


@pytest.mark.parametrize("kind", ["pem files", "pem texts", "pkcs12"])
def test_both_clients_get_in(kind: str, spark: Any, secured: Secured, make_pipeline: Make) -> None:
    tls = {"bootstrap.servers": secured.bootstrap, "security.protocol": "ssl"}
    pipeline = make_pipeline(kafka=tls | client_settings(kind, secured.files))
    create_topic(secured.broker.bootstrap, pipeline.source.topic, 1)
    produce(secured.broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert [r.json["n"] for r in read_all(secured.broker.bootstrap, pipeline.output.topic)] == [1]


def test_a_wrong_password_is_refused_at_plan_and_not_shown(secured: Secured, make_pipeline: Make) -> None:
    tls = {"bootstrap.servers": secured.bootstrap, "security.protocol": "ssl"}
    wrong = client_settings("pkcs12", secured.files) | {"ssl.keystore.password": "hunter2-wrong"}
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location") as raised:
        plan_batch(make_pipeline(kafka=tls | wrong), day(1))
    assert "hunter2" not in str(raised.value)
