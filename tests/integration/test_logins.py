"""A login that Kafka refuses is named by what is wrong with it: the password, or a certificate and its date."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from cryptography import x509

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.certificates import check_certificates
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.errors import AccessDenied
from fencepost.findings import Level
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.offsets import committed_offsets
from fencepost.kafka.transaction import Transaction
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from kafka_tools import create_topic, end_offset, produce
from rigs.certificates import AUTHORITY, PASSWORD
from rigs.kafka_cluster import LOGIN_PASSWORD, KafkaCluster, secured_broker

pytestmark = pytest.mark.deep

Make = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with secured_broker(tmp_path_factory.mktemp("logins")) as broker:
        yield broker


def keystore(broker: KafkaCluster) -> dict[str, str]:
    return {
        **{k: v for k, v in broker.mutual().items() if not k.startswith(("ssl.certificate", "ssl.key"))},
        "ssl.keystore.location": str(broker.certificates / "expired-client.p12"),
        "ssl.keystore.password": PASSWORD,
    }


def texts(broker: KafkaCluster) -> dict[str, str]:
    return {
        **{k: v for k, v in broker.mutual().items() if not k.startswith(("ssl.certificate", "ssl.key"))},
        "ssl.certificate.pem": (broker.certificates / "expired-client.pem").read_text(),
        "ssl.key.pem": (broker.certificates / "expired-client.key").read_text(),
    }


def expiry(file: Path) -> str:
    return f"{x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc:%Y-%m-%d %H:%M} UTC"


TLS = r"TLS failed: .*`fencepost doctor PIPELINE`"
# What each client's error says, and what the doctor says of the certificates.
LOGINS: dict[str, tuple[Callable[[KafkaCluster], dict[str, Any]], str, str]] = {
    "a wrong password": (
        lambda b: b.scram("etl", "hunter2-wrong"), "Authentication failed: check sasl.username, sasl.pass", ""
    ),
    "an expired client": (
        lambda b: b.mutual("expired-client"), TLS,
        "client's certificate in ssl.certificate.location .CN=client. expired on DATE",
    ),
    "an expired client, as text": (
        texts, TLS, "client's certificate in ssl.certificate.pem .CN=client. expired on DATE"
    ),
    "an expired client, PKCS#12": (
        keystore, TLS, "client's certificate in ssl.keystore.location .CN=client. expired on DATE"
    ),
    "an expired broker": (
        lambda b: b.tls("expired"), TLS, f"broker's certificate .CN=server, issued by {AUTHORITY}. expired on DATE"
    ),
    "an unknown authority": (
        lambda b: b.tls() | {"ssl.ca.location": str(b.certificates / "other-ca.pem")}, TLS,
        f"issued by {AUTHORITY}. is valid until",
    ),
    "no client certificate": (lambda b: b.tls("brokers"), TLS, "has no client certificate; a broker that requires"),
}  # fmt: skip


@pytest.mark.parametrize("login", LOGINS)
def test_each_client_names_what_is_wrong_with_the_login_and_shows_no_secret(
    login: str, secured: KafkaCluster, make_pipeline: Make
) -> None:
    """The admin client in the plan step; a consumer and a producer, which executors have; and the doctor, on certificates."""
    secured.set_password("etl")
    make, said, of_certificates = LOGINS[login]
    settings = ClientSettings({k: str(v) for k, v in make(secured).items()})
    pipeline = make_pipeline(kafka=settings.values)
    place = [TopicPartition("orders", 0)]
    for attempt in (
        lambda: plan_batch(pipeline, day(1)),
        lambda: committed_offsets(settings, "orders", place, "reading offsets"),
        lambda: Transaction(settings, "orders", "coordinator").init(),
    ):
        with pytest.raises(AccessDenied, match=said) as raised:
            attempt()
        assert "hunter2" not in str(raised.value)
        assert "PRIVATE KEY" not in str(raised.value)
    found = run_check(check_certificates, Inspection(pipeline))
    shown = "\n".join(one.message for one in found)
    assert re.search(of_certificates.replace("DATE", expiry(secured.certificates / "expired-client.pem")), shown)
    assert ("expired on" in shown) == any(one.level is Level.ERROR for one in found)
    assert "hunter2" not in shown
    assert "PRIVATE KEY" not in shown


def test_a_password_that_is_rotated_stops_the_next_step_and_the_new_one_goes_on(
    spark: Any, secured: KafkaCluster, make_pipeline: Make
) -> None:
    """Executors and Spark's reader log in again, so they hear of it. Nothing is half done."""
    secured.set_password("etl")
    secured.grant_all("etl")
    pipeline = make_pipeline(kafka=secured.scram("etl"))
    create_topic(secured.direct, pipeline.source.topic, 1)
    produce(secured.direct, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    plan_batch(pipeline, day(1))
    secured.set_password("etl", "hunter2-rotated")
    with pytest.raises(AccessDenied, match=r"Authentication failed: check sasl\.username, sasl\.password") as raised:
        write_batch(spark, pipeline, day(1))
    assert LOGIN_PASSWORD not in str(raised.value)
    assert end_offset(secured.direct, pipeline.output.topic, 0) == 0
    renewed = make_pipeline(name=pipeline.name, kafka=secured.scram("etl", "hunter2-rotated"))
    assert write_batch(spark, renewed, day(1)).state is State.WRITTEN
