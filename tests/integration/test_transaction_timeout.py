"""A transaction that the broker ended for its age says so; librdkafka speaks of a newer producer."""

from __future__ import annotations

import pytest

from fencepost.errors import TransactionTimedOut, WriterFenced
from fencepost.kafka import Cluster, Settings
from fencepost.local.broker import Broker
from fencepost.transaction import Transaction
from waiting import await_true

TOPIC = "timed-out"


def test_a_transaction_that_took_too_long_says_so_and_names_the_cure(broker: Broker) -> None:
    settings = Settings({"bootstrap.servers": broker.bootstrap, "transaction.timeout.ms": "1000"})
    cluster = Cluster(settings)
    topic = cluster.ensure_topic(TOPIC, 1)
    at_commit, at_produce = (Transaction(settings, f"{TOPIC}-{n}", "write", n) for n in range(2))
    for transaction in (at_commit, at_produce):
        transaction.init()
    expected = r"took \d+\.\d s, longer than transaction.timeout.ms \(1000\).*output.commit_every"
    with pytest.raises(TransactionTimedOut, match=f"{TOPIC}-0: commit_transaction: .*{expected}"), at_commit:
        at_commit.produce(TOPIC, b"first")
        with pytest.raises(TransactionTimedOut, match=f"{TOPIC}-1: .*{expected}"), at_produce:
            at_produce.produce(TOPIC, b"first")
            for transaction in (at_commit, at_produce):
                transaction._deliver()
            end = cluster.high_watermarks(topic)[0]
            await_true(lambda: cluster.last_stable(topic)[0] >= end, "the broker to end both", 60)
            at_produce.produce(TOPIC, b"second")


def test_a_newer_producer_is_still_called_one(broker: Broker) -> None:
    settings = Settings({"bootstrap.servers": broker.bootstrap})
    Cluster(settings).ensure_topic(TOPIC, 1)
    older, newer = (Transaction(settings, f"{TOPIC}-fenced", "write", 0) for _ in range(2))
    older.init()
    with pytest.raises(WriterFenced, match="a newer producer") as raised, older:
        older.produce(TOPIC, b"first")
        older._deliver()
        newer.init()
    assert type(raised.value) is WriterFenced
