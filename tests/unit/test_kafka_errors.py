"""What librdkafka's error callback says, and what Fencepost makes of it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from fencepost.errors import AccessDenied, KafkaUnavailable
from fencepost.kafka import Complaints, Settings, translate

HERE = Settings({"bootstrap.servers": "127.0.0.1:1"})
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("SASL authentication error: Authentication failed: Invalid username or password", AccessDenied),
        (
            "SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure",
            KafkaUnavailable,
        ),
        ("SASL SCRAM-SHA-256 mechanism handshake failed: Local: Timed out (after 10 ms)", KafkaUnavailable),
    ],
)
def test_a_login_that_broke_off_was_not_refused(said: str, raised: type[Exception]) -> None:
    complaints = Complaints()
    complaints(KafkaError(KafkaError._AUTHENTICATION, said))
    assert type(translate(TIMED_OUT, "reading", HERE, complaints)) is raised
