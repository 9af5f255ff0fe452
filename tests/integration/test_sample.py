"""A sample: the newest records and some from everywhere, committed ones only, within its bytes, with a reader's rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from conftest import at
from fencepost.drafting.connection import connection_of
from fencepost.drafting.draft import draft_pipeline
from fencepost.drafting.draft_request import DraftRequest
from fencepost.errors import AccessDenied
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.sample import Sample, take_newest, take_sample
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce
from rigs.kafka_cluster import LOGIN_PASSWORD, KafkaCluster, secured_broker


def sample_of(broker: Broker, topic: str, wanted: int, **limits: Any) -> Sample:
    cluster = Cluster(ClientSettings({"bootstrap.servers": broker.bootstrap}))
    return take_sample(cluster, cluster.describe(topic), "sampling", wanted, **limits)


def test_half_is_the_newest_and_half_is_spread_over_each_partition(broker: Broker) -> None:
    create_topic(broker.bootstrap, "sample-spread", 3)
    sizes = [4000, 1000, 5]
    produce(broker.bootstrap, "sample-spread", [(None, b"{}", p, at(1)) for p, n in enumerate(sizes) for _ in range(n)])
    found = sample_of(broker, "sample-spread", 400)
    assert len(found.records) == 400
    offsets = {p: [one.offset for one in found.records if one.partition == p] for p in range(3)}
    assert offsets[2] == list(range(5))
    for partition, size in enumerate(sizes[:2]):
        newest = [offset for offset in offsets[partition] if offset >= size - 97]
        assert newest == list(range(size - 97, size))
        eighths = {offset * 8 // (size - 97) for offset in offsets[partition] if offset < size - 97}
        assert eighths == set(range(8))
    assert not found.is_whole
    assert found.cut == ""


@pytest.mark.parametrize("wanted", [1, 7, 100])
def test_a_topic_of_few_records_is_taken_whole(wanted: int, broker: Broker) -> None:
    topic = f"sample-few-{wanted}"
    create_topic(broker.bootstrap, topic, 2)
    produce(broker.bootstrap, topic, [(b"k", None, 0, at(1)), *((None, b"%d" % n, n % 2, at(1)) for n in range(6))])
    found = sample_of(broker, topic, wanted)
    assert len(found.records) == min(wanted, 7)
    assert found.is_whole == (wanted >= 7)


def test_records_that_were_aborted_or_are_open_are_not_in_it(broker: Broker) -> None:
    """Every second offset is a marker, and the last record's transaction is open."""
    create_topic(broker.bootstrap, "sample-transactions", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "sample"})
    producer.init_transactions(30)
    for n in range(60):
        producer.begin_transaction()
        producer.produce("sample-transactions", b"%d" % n, partition=0)
        producer.flush(30)
        if n == 59:
            break
        if n % 3:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    committed = [b"%d" % n for n in range(59) if n % 3]
    assert [one.value for one in sample_of(broker, "sample-transactions", 1000).records] == committed
    assert [one.value for one in sample_of(broker, "sample-transactions", 10).records][-5:] == committed[-5:]
    cluster = Cluster(ClientSettings({"bootstrap.servers": broker.bootstrap}))
    topic = cluster.describe("sample-transactions")
    newest = take_newest(cluster, topic, "sampling", 3, ends=[40])
    assert [one.offset for one in newest.records] == [one for one in range(0, 40, 2) if (one // 2) % 3][-3:]
    producer.abort_transaction(30)


def test_records_of_megabytes_end_a_sample_early_and_the_newest_are_in_it(broker: Broker) -> None:
    create_topic(broker.bootstrap, "sample-large", 2, **{"max.message.bytes": "4000000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 4_000_000, "acks": "all"})
    for n in range(40):
        producer.produce("sample-large", bytes(2_000_000), partition=n % 2)
        producer.flush(30)
    found = sample_of(broker, "sample-large", 1000, most_bytes=20_000_000)
    assert found.cut == "the records are large"
    assert 5 <= len(found.records) <= 20
    at_ends = {(one.partition, one.offset) for one in found.records}
    assert {(0, 19), (1, 19), (0, 0), (1, 0)} <= at_ends


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with secured_broker(tmp_path_factory.mktemp("sampling")) as broker:
        yield broker


@pytest.mark.deep
def test_a_reader_s_rights_alone_are_enough_for_a_draft(
    secured: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read on the topic and on the group that is named; the password is in the environment, and in no file."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("READER_PASSWORD", LOGIN_PASSWORD)
    secured.set_password("reader")
    create_topic(secured.direct, "guarded", 2)
    produce(secured.direct, "guarded", [(None, b'{"n": 1}', n % 2, at(1)) for n in range(20)])
    settings = secured.scram("reader") | {"sasl.password": "${READER_PASSWORD}"}
    connection = connection_of(None, [f"{name}={value}" for name, value in settings.items()], ())
    with pytest.raises(AccessDenied, match="guarded"):
        draft_pipeline(DraftRequest("guarded_daily", "guarded", group="readers"), connection)
    secured.allow("reader", ResourceType.TOPIC, "guarded", AclOperation.READ)
    secured.allow("reader", ResourceType.GROUP, "readers", AclOperation.READ)
    before = len(secured.denials())
    draft = draft_pipeline(DraftRequest("guarded_daily", "guarded", group="readers"), connection)
    assert draft.sampled == 20
    text = (draft.folder / "pipeline.yaml").read_text()
    assert "${READER_PASSWORD}" in text
    assert LOGIN_PASSWORD not in text
    denied = secured.denials()[before:]
    assert [line for line in denied if "operation = DESCRIBE_CONFIGS" not in line] == [], (
        "a draft does without the settings"
    )
