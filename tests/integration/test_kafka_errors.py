"""What a real broker refuses is named as what it answered, with advice that is about it; and never called silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.rights import check_rights
from fencepost.errors import FencepostError, KafkaRefused, RecordRefused, SettingsError, TopicMissing
from fencepost.findings import Level
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.errors import translate
from fencepost.kafka.transaction import Transaction
from fencepost.ledger.deployment import Deployment
from fencepost.preview.trial_output import of_names
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic


@pytest.fixture
def settings(broker: Broker) -> ClientSettings:
    """A producer gives a topic up that is not there after a second, not after half a minute."""
    return ClientSettings({"bootstrap.servers": broker.bootstrap, "topic.metadata.propagation.max.ms": "1000"})


def write(settings: ClientSettings, topic: str, timestamp: int | None = None) -> None:
    """One record without a key."""
    columns: dict[str, pa.Array] = {"key": pa.array([None], pa.binary()), "value": pa.array([b"v"], pa.binary())}
    if timestamp is not None:
        columns["timestamp"] = pa.array([timestamp], pa.int64())
    transaction = Transaction(settings, f"answers-{topic}", "write", 0)
    transaction.init()
    with transaction:
        transaction.produce_rows(topic, pa.RecordBatch.from_pydict(columns))


@pytest.mark.parametrize(
    ("name", "config", "raised", "words"),
    [
        (
            "no topic's name!",
            {},
            SettingsError,
            "TOPIC_EXCEPTION.*at most 249.*pipeline.yaml: output.topic, output.staging_topic or",
        ),
        ("odd-settings", {"no.such.setting": "1"}, KafkaRefused, "INVALID_CONFIG.*Create the topic yourself"),
    ],
)
def test_a_topic_that_is_not_created_says_why(
    settings: ClientSettings, name: str, config: dict[str, str], raised: type[FencepostError], words: str
) -> None:
    with pytest.raises(raised, match=words):
        Cluster(settings).ensure_topic(name, 1, config)


@pytest.mark.parametrize(
    ("there", "changes"),
    [
        ("beside_a-out", {"output": {"topic": "beside.a-out"}}),
        ("fencepost_beside_staging", {"name": "beside", "output": {"topic": "beside-b-out"}}),
    ],
)
def test_a_topic_that_cannot_stand_beside_another_is_found_by_doctor_and_try_before_a_plan(
    broker: Broker, make_pipeline: Callable[..., Pipeline], there: str, changes: dict[str, Any]
) -> None:
    """Kafka takes dots and underscores for the same. Whose topic that is, pipeline.yaml may not even name."""
    create_topic(broker.bootstrap, there, 1)
    pipeline = make_pipeline(**changes)
    deployment = Deployment.of(pipeline)
    (refused,) = of_names(deployment)
    (found,) = [one for one in check_rights(Inspection(pipeline, deployment)) if one.level is Level.ERROR]
    for words in (refused, found.found):
        assert f"collides with existing topic: {there}" in words or f"collides with existing topics: {there}" in words
        assert "a.b and a_b cannot both exist" in words
        assert "output.staging_topic" in words
    create_topic(broker.bootstrap, there.replace("beside", "free"), 1)
    free = make_pipeline(name="free_of_it", output={"topic": there.replace("beside", "free")})
    assert of_names(Deployment.of(free)) == []


def test_partitions_that_another_run_has_added_meanwhile_are_taken(settings: ClientSettings) -> None:
    """Found by seed 243 of the soak."""
    cluster = Cluster(settings)
    before = cluster.ensure_topic("grown", 1)
    assert cluster.grow_topic(before, 2).partitions == 2
    assert cluster.grow_topic(before, 2).partitions == 2


def test_a_replication_factor_above_the_brokers_is_no_silence(broker: Broker, settings: ClientSettings) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    with pytest.raises(KafkaException) as answered:
        admin.create_topics([NewTopic("three-times", 1, replication_factor=3)])["three-times"].result(20)
    error = translate(answered.value.args[0], "creating topic three-times", settings)
    assert type(error) is KafkaRefused
    assert "default.replication.factor" in str(error)


@pytest.mark.parametrize(
    ("topic", "config", "timestamp", "raised", "words"),
    [
        (
            "of-today",
            {"message.timestamp.before.max.ms": "1000"},
            1000,
            RecordRefused,
            "message.timestamp.before.max.ms",
        ),
        ("with-keys", {"cleanup.policy": "compact"}, None, RecordRefused, "output.key"),
        ("not-there", None, None, TopicMissing, "Create the topic"),
    ],
)
def test_a_record_that_is_refused_says_why(
    settings: ClientSettings,
    topic: str,
    config: dict[str, str] | None,
    timestamp: int | None,
    raised: type[FencepostError],
    words: str,
) -> None:
    if config is not None:
        Cluster(settings).ensure_topic(topic, 1, config)
    with pytest.raises(raised, match=words) as refused:
        write(settings, topic, timestamp)
    assert "message.max.bytes" not in str(refused.value), "nobody spoke of size"
