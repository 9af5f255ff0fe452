"""Aborted records that take longer to pass than Kafka may be silent: each reader goes on, and a broker that is gone is noticed.

The broker stands behind a proxy that delays each answer, and sends one batch of records with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from conftest import at
from fencepost.errors import KafkaUnavailable
from fencepost.kafka import clients
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.sample import take_newest
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from kafka_tools import QUIET_LOG, create_topic
from rigs.tcp_proxy import Proxy

BATCHES = 60
DELAY = 0.05  # seconds, for each 64 KB and each way
SILENCE = 2.0  # seconds; to pass the aborted batches takes more than twice as long


def fill(broker: Broker) -> None:
    """A topic of a record, 60 aborted batches and a record."""
    create_topic(broker.bootstrap, "aborted", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "a"}, logger=QUIET_LOG)
    producer.init_transactions(30)
    for commits, batches in ((True, 1), (False, BATCHES), (True, 1)):
        producer.begin_transaction()
        for _ in range(batches):
            producer.produce("aborted", bytes(100_000), partition=0, timestamp=at(1))
            producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Proxy, ClientSettings]]:
    """A broker with that topic, and how a slow reader reaches it."""
    direct, behind = any_free_port(), any_free_port()
    broker = Broker(tmp_path_factory.mktemp("proxied"), extra_listener=("PROXIED", direct, behind))
    with Proxy(behind, direct) as proxy, broker:
        fill(broker)
        yield (
            broker,
            proxy,
            ClientSettings({"bootstrap.servers": f"127.0.0.1:{behind}", "fetch.message.max.bytes": "1"}),
        )


@pytest.fixture
def slow(proxied: tuple[Broker, Proxy, ClientSettings], monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientSettings]:
    _, proxy, settings = proxied
    monkeypatch.setattr(clients, "STATISTICS_MS", 100)
    proxy.delay = DELAY
    yield settings
    proxy.delay, proxy.swallowing = 0.0, False


def test_a_plan_finds_the_record_behind_them(slow: ClientSettings) -> None:
    cluster = Cluster(slow, timeout=SILENCE)
    topic = cluster.describe("aborted")
    assert cluster.first_at_or_after(topic, at(1), "readers", [1]) == [BATCHES + 3]


def test_a_sample_ends_in_time_and_says_so(slow: ClientSettings) -> None:
    cluster = Cluster(slow, timeout=SILENCE)
    topic = cluster.describe("aborted")
    found = take_newest(cluster, topic, "readers", 5, ends=[BATCHES + 2], seconds=SILENCE)
    assert (found.records, found.cut) == ((), "its time was up")


def test_a_broker_that_is_gone_in_the_middle_of_them_is_noticed(
    slow: ClientSettings, proxied: tuple[Broker, Proxy, ClientSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, proxy, _ = proxied
    cluster = Cluster(slow, timeout=SILENCE)
    topic = cluster.describe("aborted")
    taken = clients.ConsumerReports.take_statistics

    def swallow_from_the_tenth_on(reports: clients.ConsumerReports, statistics: str) -> None:
        taken(reports, statistics)
        proxy.swallowing = proxy.swallowing or reports.fetched.get(0, 0) > 10

    monkeypatch.setattr(clients.ConsumerReports, "take_statistics", swallow_from_the_tenth_on)
    with pytest.raises(KafkaUnavailable, match="searching topic aborted by timestamp: no answer from Kafka"):
        cluster.first_at_or_after(topic, at(1), "readers", [1])
