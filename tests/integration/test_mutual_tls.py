"""A cluster that asks clients for a certificate: librdkafka and Spark's Java reader both get in, by PEM or PKCS#12.

Certificates are made on the spot. What each setting becomes for Java is in `fencepost.config.java_options`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from kafka_tools import create_topic, produce, read_all
from rigs.certificates import PASSWORD
from rigs.kafka_cluster import KafkaCluster, secured_broker
from steps import run

pytestmark = pytest.mark.deep

Make = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with secured_broker(tmp_path_factory.mktemp("tls")) as broker:
        broker.grant_all("client")
        yield broker


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
def test_both_clients_get_in(kind: str, spark: Any, secured: KafkaCluster, make_pipeline: Make) -> None:
    tls = {"bootstrap.servers": secured.mutual()["bootstrap.servers"], "security.protocol": "ssl"}
    pipeline = make_pipeline(kafka=tls | client_settings(kind, secured.certificates))
    create_topic(secured.direct, pipeline.source.topic, 1)
    produce(secured.direct, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert [r.json["n"] for r in read_all(secured.direct, pipeline.output.topic)] == [1]


def test_a_wrong_password_is_refused_at_plan_and_not_shown(secured: KafkaCluster, make_pipeline: Make) -> None:
    tls = {"bootstrap.servers": secured.mutual()["bootstrap.servers"], "security.protocol": "ssl"}
    wrong = client_settings("pkcs12", secured.certificates) | {"ssl.keystore.password": "hunter2-wrong"}
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location") as raised:
        plan_batch(make_pipeline(kafka=tls | wrong), day(1))
    assert "hunter2" not in str(raised.value)
