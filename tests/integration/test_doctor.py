"""Each check of the doctor on a real broker: what makes it complain does, what it advises helps, and it changes nothing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions as Group
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.config.rights import Use
from fencepost.doctor.examination import examine
from fencepost.doctor.folder import check_transform
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.kafka import check_unfinished_batches
from fencepost.doctor.ledger import check_group_offsets, check_ledger_is_complete
from fencepost.doctor.limits import check_source_retention
from fencepost.doctor.rights import check_rights
from fencepost.doctor.run_check import run_check
from fencepost.doctor.spark import check_spark_executors, check_spark_master
from fencepost.doctor.topics import check_open_transactions, check_replication
from fencepost.errors import KafkaUnavailable
from fencepost.findings import Finding, Level
from fencepost.jars import java
from fencepost.model import utc_now
from fencepost.steps.advance import skip_batch
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.jars import class_path
from fencepost_stack.state_folder import StateFolder
from kafka_tools import QUIET_LOG, create_topic, end_offset, group_offsets, produce
from makers import a_decision
from rigs.kafka_cluster import LOGIN_PASSWORD, KafkaCluster, kafka_cluster
from rigs.spark_cluster import spark_cluster
from steps import latest
from waiting import await_true

from .test_refusals import delete_records, make_anew

pytestmark = pytest.mark.deep

Make = Callable[..., Pipeline]
DIRECT = {"publish": "direct"}  # one topic less to tell of
# Forgets marks within a minute or two, and ends transactions after ten seconds at most.
STRICT = {
    "offsets.retention.minutes": "1",
    "transactional.id.expiration.ms": "120000",
    "transaction.max.timeout.ms": "10000",
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker with small limits that asks for rights where there is a login."""
    with kafka_cluster(tmp_path_factory.mktemp("strict"), STRICT, nodes=1, secured=True) as running:
        running.set_password("alice")
        yield running


def filled(broker: Broker, pipeline: Pipeline, **config: str) -> Pipeline:
    """The pipeline, with ten records of each of two days in its source."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2, **config)
    for number in (1, 2):
        records = [(b"k", {"n": i, "name": "x"}, i % 2, at(number)) for i in range(10)]
        produce(broker.bootstrap, pipeline.source.topic, records)
    return pipeline


def passed(pipeline: Pipeline) -> Pipeline:
    """The pipeline, with the frontier behind the first day."""
    plan_batch(pipeline, day(1))
    skip_batch(pipeline, day(1), a_decision("skip"))
    return pipeline


def alter(broker: Broker, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(n.replace("_", "."), v, incremental_operation=AlterConfigOpType.SET) for n, v in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    asked = admin(broker)
    asked.incremental_alter_configs([resource])[resource].result(20)


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [one for one in findings if one.check == check]


def only(findings: list[Finding], check: str) -> Finding:
    (found,) = of(findings, check)
    return found


def problems(findings: list[Finding]) -> list[str]:
    """The checks that found something, but for the one broker, of which every test's cluster consists."""
    return [one.check for one in findings if one.level is not Level.OK and "has one broker" not in one.found]


def everything(broker: Broker) -> tuple[Any, ...]:
    """All topics with their ends, and all groups: what a check might have changed."""
    asked = admin(broker)
    topics = asked.list_topics(timeout=20).topics
    ends = {
        (name, p): end_offset(broker.bootstrap, name, p) for name, topic in topics.items() for p in topic.partitions
    }
    return ends, sorted(group.group_id for group in asked.list_consumer_groups().result(20).valid)


def test_on_a_new_cluster_nothing_is_made_and_what_is_missing_is_said(
    strict: KafkaCluster, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(kafka={"bootstrap.servers": strict.direct}, output={"publish": "staged"})
    before = everything(strict.nodes[1])
    found = examine(pipeline)
    assert everything(strict.nodes[1]) == before == ({}, [])
    assert only(found, "kafka").level is Level.OK
    missing = only(found, "source")
    assert (missing.level, "Create the topic" in missing.found) == (Level.ERROR, True)
    assert only(found, "group offsets").level is Level.SKIPPED


def test_a_pipeline_that_runs_has_no_problem_and_nothing_changes(broker: Broker, make_pipeline: Make) -> None:
    pipeline = passed(
        filled(broker, make_pipeline(output={"publish": "staged"}, source={"on_malformed": "quarantine"}))
    )
    before = everything(broker)
    assert problems(examine(pipeline)) == []
    assert everything(broker) == before


def test_a_cluster_that_never_answers_ends_every_check(make_pipeline: Make) -> None:
    with create_server(("127.0.0.1", 0)) as silent:
        pipeline = make_pipeline(kafka={"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        found = examine(pipeline)
    assert only(found, "kafka").level is Level.ERROR
    without_kafka = {"transform", "suite", "schedule", "schema registry", "side tables", "certificates", "kafka"}
    assert {one.level for one in found if one.check not in without_kafka} == {Level.SKIPPED}


def test_limits_of_the_broker_are_compared_with_the_pipelines_needs(strict: KafkaCluster, make_pipeline: Make) -> None:
    limits = {"bootstrap.servers": strict.direct, "transaction.timeout.ms": 10_001}
    pipeline = filled(strict.nodes[1], make_pipeline(kafka=limits))
    timeout = only(found := examine(pipeline), "transaction timeout")
    assert (timeout.level, "at most 10000" in timeout.do) == (Level.ERROR, True)
    patience, pause = of(found, "expiry of marks")
    assert "A step may take 4 hours with its retries, and Kafka forgets marks after 1 minute " in patience.found
    assert "The schedule pauses for up to 24 hours" in pause.found


def test_a_batch_that_outlives_its_marks_is_named(strict: KafkaCluster, make_pipeline: Make) -> None:
    kafka = {"bootstrap.servers": strict.direct, "transaction.timeout.ms": 10_000}
    pipeline = filled(strict.nodes[1], make_pipeline(kafka=kafka))
    plan_batch(pipeline, day(1))
    look = Inspection(pipeline)
    (batch,) = look.view.all()

    def after(seconds: int) -> Finding:
        look.now = batch.plan.planned_at + timedelta(seconds=seconds)
        (found,) = check_unfinished_batches(look)
        return found

    assert after(20).level is Level.OK
    assert "Its marks may be gone in 4 seconds" in after(50).found
    late = after(60)
    assert "Its marks may have expired" in late.found
    assert late.command.startswith(f"fencepost run {pipeline.name} --start 2026-01-01T00:00:00Z")


def test_the_hours_until_unread_records_are_deleted(broker: Broker, make_pipeline: Make) -> None:
    pipeline = passed(filled(broker, make_pipeline(), **{"retention.ms": "-1"}))
    (kept,) = check_source_retention(Inspection(pipeline))
    assert "has no retention time" in kept.found
    age = utc_now() - datetime(2026, 1, 2, 12, tzinfo=UTC)
    alter(broker, pipeline.source.topic, retention_ms=str(round((age + timedelta(hours=3)).total_seconds() * 1000)))
    soon = only(examine(pipeline), "source retention")
    assert soon.level is Level.WARNING
    assert "In 3 hours Kafka may delete the oldest unread record" in soon.found
    assert f"--entity-name {pipeline.source.topic} --add-config retention.ms=" in soon.command
    delete_records(broker, pipeline.source.topic, 0, 7)
    (gone, _) = of(examine(pipeline), "source retention")
    assert (gone.level, "partition 0: offsets 5 to 6" in gone.found) == (Level.ERROR, True)


def test_a_plan_says_how_long_unread_records_stay(
    broker: Broker, make_pipeline: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = passed(filled(broker, make_pipeline()))
    age = utc_now() - datetime(2026, 1, 2, 12, tzinfo=UTC)
    alter(broker, pipeline.source.topic, retention_ms=str(round((age + timedelta(hours=3)).total_seconds() * 1000)))
    plan_batch(pipeline, day(2))
    assert f"pipeline {pipeline.name}: In 3 hours Kafka may delete the oldest unread record" in caplog.text


def test_topics_that_lose_refuse_or_split_records_are_named(broker: Broker, make_pipeline: Make) -> None:
    pipeline = passed(filled(broker, make_pipeline(source={"on_malformed": "quarantine"}, output=DIRECT)))
    plan_batch(pipeline, day(2))
    alter(broker, pipeline.source.topic, cleanup_policy="compact")
    alter(broker, pipeline.output.topic, cleanup_policy="compact", max_message_bytes="5000")
    alter(broker, pipeline.quarantine_topic, cleanup_policy="compact", max_message_bytes="1000000")
    alter(broker, pipeline.ledger_topic, cleanup_policy="delete", max_message_bytes="1000", min_insync_replicas="2")
    found = examine(pipeline)
    assert "may read fewer records" in only(found, "source").found
    output, quarantine = of(found, "output retention")
    assert "is compacted (cleanup.policy=compact) after min.compaction.lag.ms=0" in output.found
    assert f"quarantine topic {pipeline.quarantine_topic} is compacted" in quarantine.found
    ledger = only(found, "ledger topic")
    assert (ledger.level, "it needs 1 partition and cleanup.policy=compact" in ledger.found) == (Level.ERROR, True)
    assert ledger.command.endswith("--add-config cleanup.policy=compact")
    replicas, _ = of(found, "replication")
    assert (replicas.level, "no write is ever acknowledged" in replicas.found) == (Level.ERROR, True)
    sizes = [(one.level, one.found.partition(" topic")[0]) for one in of(found, "record size")]
    assert sizes[:2] == [(Level.WARNING, "The output"), (Level.WARNING, "The quarantine")]
    assert (sizes[2][0], "The ledger's records have up to" in sizes[2][1]) == (Level.ERROR, True)
    alter(broker, pipeline.output.topic, cleanup_policy="delete")
    make_anew(broker, pipeline.output.topic, 3)
    held = only(examine(pipeline), "topics of batches")
    assert f"output topic {pipeline.output.topic} was deleted and created again since it was planned" in held.found
    assert "(in Airflow: clear write) writes and judges a new revision" in held.do


def test_how_long_a_transaction_has_been_open_is_not_told_by_the_staging_topic(
    broker: Broker, make_pipeline: Make
) -> None:
    """Its records have the time of their plan, and a write may begin long after that: it would be ended by hand."""
    pipeline = filled(broker, make_pipeline())
    plan_batch(pipeline, day(1))
    topic, planned = pipeline.staging_topic, latest(pipeline, day(1)).require_staging_timestamp
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writes-{topic}"}, logger=QUIET_LOG)
    writer.init_transactions(20)
    writer.begin_transaction()
    writer.produce(topic, b"{}", partition=1, timestamp=planned)
    assert writer.flush(20) == 0
    look = Inspection(pipeline)
    look.now += timedelta(minutes=20)
    (found,) = check_open_transactions(look)
    assert found.level is Level.WARNING
    assert f"A transaction is open on the staging topic {topic}, partition 1, offset 0: readers" in found.found
    writer.abort_transaction(20)


def test_a_hanging_transaction_is_named_and_the_command_ends_it(broker: Broker, make_pipeline: Make) -> None:
    pipeline = filled(broker, make_pipeline())
    source = pipeline.source.topic
    foreign = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"foreign-{source}"}, logger=QUIET_LOG
    )
    foreign.init_transactions(20)
    foreign.begin_transaction()
    foreign.produce(source, b"{}", partition=1)
    assert foreign.flush(20) == 0
    (young,) = check_open_transactions(Inspection(pipeline))
    assert (young.level, f"source topic {source}, partition 1, offset 10" in young.found) == (Level.WARNING, True)
    look = Inspection(pipeline)
    look.now += timedelta(minutes=20)
    (hangs,) = check_open_transactions(look)
    assert hangs.level is Level.ERROR
    assert "A transaction hangs on the source topic" in hangs.found
    assert end_offset(broker.bootstrap, source, 1, committed=True) == 10
    tool, *arguments = shlex.split(hangs.command)
    assert tool == "kafka-transactions.sh"
    jars = class_path(StateFolder.default().jars_kafka)
    subprocess.run([java(), "-cp", jars, "org.apache.kafka.tools.TransactionsCommand", *arguments], check=True)
    assert end_offset(broker.bootstrap, source, 1, committed=True) > 10
    (after,) = check_open_transactions(Inspection(pipeline))
    assert after.level is Level.OK


def test_group_offsets_that_the_ledger_does_not_have_are_named(broker: Broker, make_pipeline: Make) -> None:
    pipeline = passed(filled(broker, make_pipeline()))
    source, asked = pipeline.source.topic, admin(broker)

    def move(partition: int, offset: int) -> None:
        change = Group(pipeline.group, [TopicPartition(source, partition, offset)])
        asked.alter_consumer_group_offsets([change])[pipeline.group].result(20)

    assert group_offsets(broker.bootstrap, pipeline.group, source, [0, 1]) == {0: 5, 1: 5}
    (agree,) = check_group_offsets(Inspection(pipeline))
    assert agree.level is Level.OK
    move(0, 3)
    (behind,) = check_group_offsets(Inspection(pipeline))
    assert (behind.level, "partition 0: 3, ledger 5" in behind.found) == (Level.WARNING, True)
    move(1, 8)
    (ahead,) = check_group_offsets(Inspection(pipeline))
    assert (ahead.level, "(partition 1: 8) that the ledger cannot explain" in ahead.found) == (Level.ERROR, True)
    assert ahead.command.endswith(f"--topic {source}:1 --to-offset 5")
    asked.delete_consumer_groups([pipeline.group])[pipeline.group].result(20)
    (none,) = check_group_offsets(Inspection(pipeline))
    assert (none.level, "has lost its offsets of topic" in none.found) == (Level.WARNING, True)


def test_output_of_a_batch_that_the_ledger_lacks_is_named(broker: Broker, make_pipeline: Make) -> None:
    pipeline = filled(broker, make_pipeline())
    create_topic(broker.bootstrap, pipeline.output.topic, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    batch = f"{pipeline.name}/20260101T000000Z-20260102T000000Z/1"
    producer.produce(pipeline.output.topic, b"{}", headers={"fencepost-batch": batch.encode()})
    assert producer.flush(20) == 0
    lost = check_ledger_is_complete(Inspection(pipeline))
    assert (lost.level, f"has records of batch {batch}" in lost.found) == (Level.ERROR, True)


def test_missing_rights_are_named_with_the_command_that_grants_them(strict: KafkaCluster, make_pipeline: Make) -> None:
    pipeline = make_pipeline(kafka=strict.scram("alice") | {"transaction.timeout.ms": 10_000}, output=DIRECT)
    create_topic(strict.direct, pipeline.source.topic, 2)
    create_topic(strict.direct, pipeline.output.topic, 3)
    strict.allow("alice", ResourceType.TOPIC, pipeline.source.topic, AclOperation.READ)
    strict.allow("alice", ResourceType.TOPIC, pipeline.output.topic, AclOperation.READ, AclOperation.WRITE)
    strict.allow("alice", ResourceType.TOPIC, pipeline.ledger_topic, AclOperation.WRITE, AclOperation.READ)
    for group in (pipeline.group, pipeline.validated_group):
        strict.allow("alice", ResourceType.GROUP, group, AclOperation.READ)
    found = examine(pipeline)
    told = {one.found.removesuffix(".") for one in of(found, "rights")}
    assert told == {
        f"The pipeline's user lacks DescribeConfigs on topic {pipeline.output.topic}: {Use.OPTIONAL}",
        f"The pipeline's user lacks Write, DescribeConfigs on topic {pipeline.announcements_topic}",
        f"Topic {pipeline.ledger_topic} does not exist, and this user may not create it",
        f"The pipeline's user lacks Read on groups beginning with {pipeline.name}.",
        f"The pipeline's user lacks DescribeConfigs on the cluster: {Use.OPTIONAL}",
    }
    (lane,) = (one for one in of(found, "rights") if "groups" in one.found)
    assert lane.command == (
        f"kafka-acls.sh --bootstrap-server {strict.bootstrap} --command-config client.properties --add --allow-principal "
        f"User:NAME --operation Read --group {pipeline.name}. --resource-pattern-type prefixed"
    )
    assert LOGIN_PASSWORD not in "".join(one.message for one in found)
    strict.allow("alice", ResourceType.TOPIC, pipeline.output.topic, AclOperation.DESCRIBE_CONFIGS)
    announcements = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE_CONFIGS
    strict.allow("alice", ResourceType.TOPIC, pipeline.announcements_topic, *announcements)
    strict.allow("alice", ResourceType.GROUP, pipeline.lane_group("0"), AclOperation.READ)
    strict.allow(
        "alice",
        ResourceType.BROKER,
        "kafka-cluster",
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
    )
    (fine,) = check_rights(Inspection(pipeline))
    assert fine.level is Level.OK


def test_a_wrong_password_is_a_finding_that_does_not_show_it(strict: KafkaCluster, make_pipeline: Make) -> None:
    found = examine(make_pipeline(kafka=strict.scram("alice", "hush-hush")))
    refused = only(found, "kafka")
    assert (refused.level, "refused access" in refused.found) == (Level.ERROR, True)
    assert "hush-hush" not in "".join(one.message for one in found)


def test_a_transform_that_never_ends_is_left_behind(tmp_path: Path, make_pipeline: Make) -> None:
    pipeline = make_pipeline(transform="import threading\nthreading.Event().wait()\n")
    (endless,) = run_check(check_transform, pipeline, limit=0.5)
    assert (endless.level, "did not end within" in endless.found) == (Level.ERROR, True)


def test_executors_of_a_cluster_are_compared_with_the_driver(
    make_pipeline: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers; then a Python without packages, and no worker with enough memory."""
    pipeline = make_pipeline(spark={"spark.executor.memory": "512m", "spark.cores.max": 2})
    greedy = make_pipeline(spark={"spark.executor.memory": "64g"})
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    with spark_cluster(tmp_path) as cluster:
        assert check_spark_master(cluster.master).level is Level.OK
        (alike,) = check_spark_executors(pipeline, cluster.master)
        assert "the same Python and packages as the driver" in alike.found
        (starved,) = check_spark_executors(greedy, cluster.master, limit=5)
        assert (starved.level, "did not end within 5 s" in starved.found) == (Level.ERROR, True)
        monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "bare" / "bin" / "python"))
        (bare,) = check_spark_executors(pipeline, cluster.master)
        assert (bare.level, "pyarrow missing" in bare.found) == (Level.ERROR, True)


def test_topics_that_take_no_writes_are_named_until_the_brokers_that_are_down_come_back(
    make_pipeline: Make, tmp_path: Path
) -> None:
    with kafka_cluster(tmp_path / "cluster") as cluster:
        pipeline = make_pipeline(kafka={"bootstrap.servers": cluster.direct})
        create_topic(cluster.direct, pipeline.source.topic, 1)
        produce(cluster.direct, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
        plan_batch(pipeline, day(1))

        def findings() -> list[Finding]:
            with suppress(
                KafkaUnavailable
            ):  # until the cluster knows who is dead, it may name one of them as its controller
                return list(check_replication(Inspection(pipeline)))
            return []

        def all_well() -> bool:
            return {one.level for one in findings()} == {Level.OK}

        await_true(all_well, "all replicas to be in sync", 60)
        for number in (2, 3):
            cluster.nodes[number].kill()
        for name in (pipeline.output.topic, pipeline.ledger_topic):
            said = f"topic {name} has 1 of 3 replicas in sync, and min.insync.replicas=2: it accepts no writes."
            await_true(lambda said=said: any(one.found.endswith(said) for one in findings()), said, 60)  # type: ignore[misc]
        for number in (2, 3):
            cluster.nodes[number].start()
        await_true(all_well, "the replicas to be in sync again", 60)
