"""What librdkafka's error callback says, and what Fencepost makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from fencepost.errors import AccessDenied, KafkaUnavailable, NeedsOperator
from fencepost.kafka import Cluster, Complaints, Settings, Topic, translate

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


def test_a_partition_without_an_answer_is_asked_again_and_never_taken_for_an_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by seed 128 of the soak: -1001 and no error, while a broker was cut off."""
    answers = [[5, OFFSET_INVALID], [5, 7]]

    def list_offsets(asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        return dict(zip(asked, answers.pop(0), strict=True))

    cluster = Cluster(HERE, timeout=1.0)
    monkeypatch.setattr(cluster, "_admin", SimpleNamespace(list_offsets=list_offsets))
    monkeypatch.setattr(cluster, "_ask", lambda doing, offset: SimpleNamespace(offset=offset))
    assert cluster.high_watermarks(Topic("orders", "id", 2)) == [5, 7]
    answers = [[5, OFFSET_INVALID]] * 1000
    with pytest.raises(KafkaUnavailable, match="listing offsets of topic orders"):
        cluster.high_watermarks(Topic("orders", "id", 2))
