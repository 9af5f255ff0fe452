"""What librdkafka's error callback says, and what Fencepost makes of it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from fencepost.errors import AccessDenied, KafkaUnavailable, NeedsOperator
from fencepost.kafka import Cluster, Complaints, Settings, translate

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


def test_a_setting_of_a_topic_just_created_is_asked_again_until_the_broker_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by seed 112 of the soak: the ledger was made, and the next broker asked had not heard of it."""
    answers: list[str | NeedsOperator] = [NeedsOperator("unknown topic"), NeedsOperator("unknown topic"), "compact"]

    def config(*_: object) -> str:
        answer = answers.pop(0)
        if isinstance(answer, NeedsOperator):
            raise answer
        return answer

    cluster = Cluster(HERE)
    monkeypatch.setattr(cluster, "_config", config)
    assert cluster.topic_config("ledger", "cleanup.policy") == "compact"


def test_a_topic_that_stays_unknown_is_named_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(*_: object) -> str:
        raise NeedsOperator("unknown topic ledger")

    cluster = Cluster(HERE, timeout=0.1)
    monkeypatch.setattr(cluster, "_config", config)
    with pytest.raises(NeedsOperator, match="unknown topic ledger"):
        cluster.topic_config("ledger", "cleanup.policy")
