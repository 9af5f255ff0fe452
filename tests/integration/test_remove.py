"""`fencepost remove`: what trying a pipeline made goes, by name; nothing goes while anything is published, nor of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

import steps
from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, delete_topic, produce
from makers import a_decision

Make = Callable[..., Pipeline]


def everything(broker: Broker) -> tuple[set[str], set[str]]:
    """All topics and all groups."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    groups = {group.group_id for group in admin.list_consumer_groups().result(20).valid}
    return set(admin.list_topics(timeout=20).topics), groups


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def remove(pipeline: Pipeline, *options: str) -> Any:
    return CliRunner().invoke(app, ["remove", pipeline.name, *options])


@pytest.fixture
def tried(spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pipeline:
    """A staged pipeline with a rejected batch and a malformed record."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    pipeline = make_pipeline(
        expectations="expectations: [{type: expect_column_values_to_be_between, kwargs: {column: n, max_value: 1}}]",
        source={"on_malformed": "quarantine"},
        output={"publish": "staged"},
        quality={"quarantine_limit": "none"},
    )
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", value, 0, at(1)) for value in ({"n": 5}, b"{")])
    with pytest.raises(BatchRejected):
        steps.run(spark, pipeline, day(1))
    return pipeline


def test_what_trying_made_is_listed_then_deleted_and_nothing_else(
    broker: Broker, tried: Pipeline, make_pipeline: Make
) -> None:
    name = tried.name
    create_topic(broker.bootstrap, f"{name}.lane-0", 1)  # names that look like the pipeline's
    for group in (f"{name}.dashboard", f"{name}x", f"{name}.lane-0.x"):
        commit(broker, group, tried.source.topic, 1)
    topics, groups = everything(broker)
    made = {f"fencepost.{name}.{role}" for role in ("ledger", "published", "staging", "quarantine")} | {
        tried.output.topic
    }
    marks = {f"{name}.lane-0", f"{name}.malformed-0"}
    assert topics >= made
    assert groups >= marks
    listed = remove(tried)
    assert listed.exit_code == 0, listed.output
    assert {line.split(maxsplit=1)[1] for line in listed.stdout.splitlines()} == (
        {f"topic {topic}" for topic in made} | {f"group {group}" for group in marks}
    )
    assert f"fencepost remove {name} --yes deletes them" in listed.stderr
    assert everything(broker) == (topics, groups)

    done = json.loads(remove(tried, "--yes", "--json").stdout)
    assert (set(done["topics"]), set(done["groups"]), done["kept"], done["deleted"]) == (made, marks, {}, True)
    assert everything(broker) == (topics - made, groups - marks)
    assert remove(tried, "--yes").exit_code == 0
    planned = plan_batch(tried, day(1))
    assert (planned.state, planned.revision) == (State.PLANNED, 1)


def test_a_topic_that_may_be_somebody_else_s_stays(
    spark: Any, broker: Broker, tried: Pipeline, make_pipeline: Make
) -> None:
    """The output has somebody's record; another pipeline names the quarantine topic, which has none, and one
    reads the staging topic. Of a pipeline that cannot be read nobody knows what it names."""
    produce(broker.bootstrap, str(tried.output.topic), [(b"k", {"n": 1}, 0, at(1))])
    shared = f"{tried.name}-aside"
    create_topic(broker.bootstrap, shared, 1)
    settings = tried.folder / "pipeline.yaml"
    settings.write_text(
        settings.read_text().replace("quarantine_limit", f"quarantine_topic: {shared}\n  quarantine_limit")
    )
    other = make_pipeline(source={"on_malformed": "quarantine"}, quality={"quarantine_topic": shared})
    reader = make_pipeline(source={"topic": tried.staging_topic})
    before, broken = everything(broker), tried.folder.parent / "broken"
    broken.mkdir()
    (broken / "pipeline.yaml").write_text("source: {}")
    assert "the topics that broken may name are not known, so nothing is deleted" in str(
        remove(tried, "--yes").exception
    )
    assert everything(broker) == before
    (broken / "pipeline.yaml").unlink()
    broken.rmdir()
    done = json.loads(remove(tried, "--yes", "--json").stdout)
    assert done["kept"] == {
        tried.output.topic: "it has had 1 record, which may belong to others",
        shared: f"pipeline {other.name} names it too",
        tried.staging_topic: f"pipeline {reader.name} names it too",
    }
    assert {tried.output.topic, shared, tried.source.topic} <= everything(broker)[0]
    assert f"fencepost.{tried.name}.quarantine" not in everything(broker)[0], "an earlier plan wrote there"


def test_nothing_is_deleted_while_anything_is_published(spark: Any, broker: Broker, tried: Pipeline) -> None:
    """By the ledger, and by the announcements where the ledger is gone; a group's offsets alone are enough."""
    from fencepost.steps.advance import advance_batch

    advance_batch(tried, day(1), a_decision("publish"))
    before = everything(broker)
    for step in ("published", "without a ledger", "without announcements"):
        refused = remove(tried, "--yes")
        words = str(refused.exception)
        assert everything(broker) == before
        if step == "published":
            assert "1 interval is published, or being published (2026-01-01 00:00 to 2026-01-02 00:00 UTC)" in words
            assert "A pipeline that has published cannot be removed yet" in words
            delete_topic(broker.bootstrap, tried.ledger_topic)
        elif step == "without a ledger":
            assert "1 interval is published" in words
            delete_topic(broker.bootstrap, tried.announcements_topic)
        else:
            assert f"group {tried.group} has offsets of topic {tried.source.topic}" in words
        before = everything(broker)


def test_a_run_that_publishes_between_the_list_and_the_deletion_is_not_lost(
    spark: Any, broker: Broker, tried: Pipeline
) -> None:
    from fencepost.errors import TransitionRefused
    from fencepost.steps.advance import advance_batch
    from fencepost.steps.remove import plan_removal
    from fencepost.steps.remove import remove as remove_all

    deployment = Deployment.of(tried)
    removal = plan_removal(deployment, {})
    advance_batch(tried, day(1), a_decision("publish"))
    before = everything(broker)
    with pytest.raises(TransitionRefused, match="1 interval is published"):
        list(remove_all(deployment, removal))
    assert everything(broker) == before
