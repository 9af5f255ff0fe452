"""A transaction that the broker ended for its age says so; librdkafka speaks of a newer producer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from fencepost.errors import TransactionTimedOut, WriterFenced
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.transaction import Transaction
from fencepost.kafka.writers import Writers
from fencepost_stack.broker import Broker
from waiting import await_true

pytestmark = pytest.mark.deep

TOPIC = "timed-out"
SAID = (
    r"took \d+\.\d s, longer than transaction.timeout.ms \(1000\).*Raise kafka.transaction.timeout.ms.*more partitions"
)


@contextmanager
def begun(settings: ClientSettings, name: str, errors: dict[str, WriterFenced]) -> Iterator[Transaction]:
    """A transaction with a record delivered; the error with which it ends goes into `errors`."""
    transaction = Transaction(settings, name, "write", 0, Writers.shorter)
    transaction.init()
    try:
        with transaction:
            transaction.produce(TOPIC, b"first")
            transaction._deliver()
            yield transaction
    except WriterFenced as error:
        errors[name] = error


def test_a_transaction_that_took_too_long_says_so_and_names_the_cure(broker: Broker) -> None:
    settings = ClientSettings({"bootstrap.servers": broker.bootstrap, "transaction.timeout.ms": "1000"})
    cluster = Cluster(settings)
    topic = cluster.ensure_topic(TOPIC, 1)
    errors: dict[str, WriterFenced] = {}
    with ExitStack() as stack:
        stack.enter_context(begun(settings, "at commit", errors))
        at_produce = stack.enter_context(begun(settings, "at produce", errors))
        end = cluster.high_watermarks(topic)[0]
        await_true(lambda: cluster.last_stable(topic)[0] >= end, "the broker to end both", 60)
        at_produce.produce(TOPIC, b"second")
    assert {name: type(error) for name, error in errors.items()} == {
        "at commit": TransactionTimedOut,
        "at produce": TransactionTimedOut,
    }
    assert all(re.search(SAID, str(error)) for error in errors.values())


def test_a_newer_producer_is_still_called_one(broker: Broker) -> None:
    settings = ClientSettings({"bootstrap.servers": broker.bootstrap})
    Cluster(settings).ensure_topic(TOPIC, 1)
    errors: dict[str, WriterFenced] = {}
    with begun(settings, "fenced", errors):
        Transaction(settings, "fenced", "write", 0).init()
    assert type(errors["fenced"]) is WriterFenced
    assert "a newer producer" in str(errors["fenced"])
