"""The broker is a real one: transactions, credentials, and data that survives."""

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost_stack.broker import Broker

pytestmark = [pytest.mark.deep, pytest.mark.stack]

QUIET = logging.getLogger("tests.librdkafka")


def create_topic(broker: Broker, topic: str) -> None:
    Cluster(ClientSettings({"bootstrap.servers": broker.bootstrap})).ensure_topic(topic, 1)


def producer(broker: Broker, **config: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, **config}, logger=QUIET)


def read_all(broker: Broker, topic: str) -> list[bytes]:
    """What a plain read_committed consumer sees of partition 0, to its end."""
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(config, logger=QUIET)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while (message := consumer.poll(30.0)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return values
            values.append(message.value())
        raise AssertionError("no answer")
    finally:
        consumer.close()


def write(broker: Broker, topic: str, transactional_id: str, values: list[bytes], *, commit: bool) -> None:
    client = producer(broker, **{"transactional.id": transactional_id})
    client.init_transactions(30)
    client.begin_transaction()
    for value in values:
        client.produce(topic, value=value)
    client.flush()
    client.commit_transaction() if commit else client.abort_transaction()


def test_committed_records_are_read_and_aborted_ones_are_not(broker: Broker) -> None:
    create_topic(broker, "transactions")
    write(broker, "transactions", "one", [b"a", b"b"], commit=True)
    write(broker, "transactions", "one", [b"lost"], commit=False)
    write(broker, "transactions", "one", [b"c"], commit=True)
    assert read_all(broker, "transactions") == [b"a", b"b", b"c"]


def test_a_topic_is_not_made_by_asking_for_it(broker: Broker) -> None:
    errors: list[KafkaError] = []
    client = producer(broker, **{"message.timeout.ms": 3000})
    client.produce("never-created", value=b"x", on_delivery=lambda error, _: errors.append(error))
    client.flush(10)
    assert errors
    assert errors[0] is not None


@pytest.mark.parametrize("password", ["right", "wrong"])
def test_the_sasl_listener_lets_in_who_knows_the_password(broker: Broker, password: str) -> None:
    codes: list[int] = []
    client = Producer(
        {
            "bootstrap.servers": broker.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": password,
            "error_cb": lambda error: codes.append(error.code()),
        },
        logger=QUIET,
    )
    if password == "right":
        assert client.list_topics(timeout=15).brokers
        return
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    assert KafkaError._AUTHENTICATION in codes


def test_data_survives_a_stop_and_a_kill(broker: Broker) -> None:
    create_topic(broker, "kept")
    write(broker, "kept", "keeper", [b"before"], commit=True)
    broker.stop()
    assert broker.pid is None
    broker.start()
    assert read_all(broker, "kept") == [b"before"]
    broker.kill()
    broker.start()
    assert read_all(broker, "kept") == [b"before"]
