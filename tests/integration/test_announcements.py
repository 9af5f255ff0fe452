"""What a reader of the topic of announcements sees, on a real broker: each decision once, in the transaction that records it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.ledger import check_announcements
from fencepost.errors import AnnouncementsLost, NeedsOperator, TransitionRefused
from fencepost.findings import Level
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.asset import extra_of
from fencepost.protocol.announcement import Announcement
from fencepost.steps.advance import advance_batch, skip_batch
from fencepost.steps.announce import announce_again
from fencepost.steps.plan import plan_batch, withdraw_batch
from fencepost.steps.validate import validate_without_spark
from fencepost.steps.write import write_without_spark
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, Record, create_topic, delete_topic, end_offset, produce, read_all
from makers import a_decision
from steps import latest, replay, run, unheard_commits

Make = Callable[..., Pipeline]
RULE = """
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: n, min_value: 0}, severity: quarantine}
"""
KEEPING = """
def transform(frame):
    return frame.selectExpr("_key", "n", "n * 2 AS doubled", "name", "_partition", "_offset", "_record")
"""
ABSOLUTE = KEEPING.replace('"n",', '"abs(n) AS n",')
TOLERANT = {"quarantine_limit": "none"}


def announced(pipeline: Pipeline) -> list[Record]:
    return read_all(Deployment.of(pipeline).cluster.settings.bootstrap, pipeline.announcements_topic)


def told(pipeline: Pipeline) -> list[Announcement]:
    return [Announcement.of(record.json) for record in announced(pipeline)]


def delete(pipeline: Pipeline) -> None:
    """The topic of announcements is gone when this returns."""
    delete_topic(Deployment.of(pipeline).cluster.settings.bootstrap, pipeline.announcements_topic)


def run_empty(pipeline: Pipeline, number: int) -> None:
    """A day without records, all the way."""
    run(None, pipeline, day(number))


@pytest.fixture
def empty(broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose source has no record, so that no step needs Spark."""
    pipeline = make_pipeline()
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    return pipeline


def test_a_reader_finds_each_batch_where_its_announcement_says(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """A staged batch with quarantine, what a replay adds to it, its reprocess, a skip and a withdrawal."""
    made = make_pipeline(KEEPING, RULE, quality=TOLERANT)
    create_topic(broker.bootstrap, made.source.topic, 2)
    source = [(f"k{n}".encode(), {"n": n - 1, "name": "x"}, n % 2, at(1) + n) for n in range(6)]
    produce(broker.bootstrap, made.source.topic, source)
    first = run(spark, made, day(1))
    fixed = make_pipeline(ABSOLUTE, RULE, name=made.name, quality=TOLERANT)
    added = replay(spark, fixed, day(1))
    again = run(spark, fixed, day(1), reprocess=True)
    plan_batch(fixed, day(2))
    skip_batch(fixed, day(2), a_decision("skip"))
    plan_batch(fixed, day(3))
    withdraw_batch(fixed, day(3), a_decision("withdraw"))
    one, addition, newer, skipped, withdrawn = told(fixed)
    assert [extra_of(result) for result in (first, added, again)] == [r.json for r in announced(fixed)[:3]]
    assert [
        (a.state, a.revision, a.adds_to, a.replaces, a.rows, a.quarantined, a.decided_by_person) for a in told(fixed)
    ] == [
        ("published", 1, None, (), 5, {"expect_column_values_to_be_between(n)": 1}, False),
        ("published", 2, 1, (), 1, {}, False),
        ("published", 3, None, (1, 2), 6, {}, False),
        ("skipped", 1, None, (), 0, {}, True),
        ("withdrawn", 1, None, (), 0, {}, True),
    ]
    assert [a.complete_until for a in (one, addition, newer)] == [day(1).end] * 3
    assert (skipped.complete_until, withdrawn.complete_until) == (day(2).end, day(2).end)
    assert {c.name: c.type for c in one.columns} == {"n": "integer", "doubled": "integer", "name": "string"}
    deployment = Deployment.of(fixed)
    for a in told(fixed):
        batch = next(b for b in deployment.ledger.read().all() if str(b.id) == a.batch)
        assert (a.ledger_id, a.cluster_id) == (batch.plan.ledger_topic_id, deployment.cluster.id)
        assert (a.output, a.topic_id) == (fixed.output.name, deployment.cluster.describe(fixed.output.name).id)
        ranges = {int(p): range(*ends) for p, ends in a.ranges.items()}
        seen = [r for r in read_all(broker.bootstrap, fixed.output.name) if r.offset in ranges.get(r.partition, ())]
        assert len([r for r in seen if dict(r.headers)[a.header or ""] == a.batch.encode()]) == a.rows


def test_a_lost_topic_stops_plans_and_publications_until_it_is_written_again_as_it_was(
    empty: Pipeline, broker: Broker
) -> None:
    for number in (1, 2):
        run_empty(empty, number)
    plan_batch(empty, day(3))
    write_without_spark(empty, day(3))
    validate_without_spark(empty, day(3))
    before = [r.json for r in announced(empty)]
    assert check_announcements(looking(empty)).found.endswith("has all 2 announcements")
    delete(empty)
    for step in (lambda: plan_batch(empty, day(4)), lambda: advance_batch(empty, day(3))):
        with pytest.raises(AnnouncementsLost, match=rf"no longer exists.*`fencepost announce {empty.name}`"):
            step()
    create_topic(broker.bootstrap, empty.announcements_topic, 1)
    with pytest.raises(AnnouncementsLost, match="was deleted and created again"):
        skip_batch(empty, day(3), a_decision("skip"))
    found = check_announcements(looking(empty))
    assert (found.level, found.command) == (Level.ERROR, f"fencepost announce {empty.name}")
    assert f"`fencepost announce {empty.name}` writes it again" in says("status", empty.name)
    assert json.loads(says("status", empty.name, "--json"))["announcements_lost"]
    assert latest(empty, day(3)).state is State.WRITTEN, "nothing was recorded"
    assert "wrote 2 announcements" in says("announce", empty.name)
    assert [r.json for r in announced(empty)] == before
    assert announce_again(empty).written == 0, "whoever comes second finds it written"
    advance_batch(empty, day(3))
    assert [a.interval for a in told(empty)] == [day(1), day(2), day(3)]
    assert check_announcements(looking(empty)).level is Level.OK


def looking(pipeline: Pipeline) -> Inspection:
    """As the doctor looks, which has read the ledger."""
    look = Inspection(pipeline)
    assert look.view.all()
    return look


def says(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "1000"}).invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.deep
def test_announcements_that_were_deleted_are_missed_and_not_mixed_with_others(empty: Pipeline) -> None:
    """They would come behind newer ones. The command says what to do."""
    from confluent_kafka import TopicPartition

    for number in (1, 2):
        run_empty(empty, number)
    admin = AdminClient({"bootstrap.servers": Deployment.of(empty).cluster.settings.bootstrap}, logger=QUIET_LOG)
    for done in admin.delete_records([TopicPartition(empty.announcements_topic, 0, 2)]).values():
        done.result(20)
    with pytest.raises(AnnouncementsLost, match="begins at offset 2"):
        plan_batch(empty, day(3))
    with pytest.raises(NeedsOperator, match=r"has 1 announcement from offset 2 on and lacks 1.*Delete the topic"):
        announce_again(empty)
    delete(empty)
    assert announce_again(empty).written == 2
    assert plan_batch(empty, day(3)).state is State.PLANNED


@pytest.mark.deep
def test_a_topic_that_was_restored_from_a_copy_is_taken_as_it_is(empty: Pipeline, broker: Broker) -> None:
    for number in (1, 2):
        run_empty(empty, number)
    copy = [(r.key, r.value, 0, r.timestamp) for r in announced(empty)]
    delete(empty)
    create_topic(broker.bootstrap, empty.announcements_topic, 1)
    produce(broker.bootstrap, empty.announcements_topic, copy)
    with pytest.raises(AnnouncementsLost):
        plan_batch(empty, day(3))
    assert (announce_again(empty).written, announce_again(empty).had) == (0, 2)
    assert plan_batch(empty, day(3)).state is State.PLANNED


@pytest.mark.deep
def test_a_topic_that_would_lose_announcements_is_refused(empty: Pipeline, broker: Broker) -> None:
    create_topic(broker.bootstrap, empty.announcements_topic, 1, **{"retention.ms": "1000000"})
    with pytest.raises(NeedsOperator, match=r"retention\.ms=1000000.*kafka-configs\.sh"):
        plan_batch(empty, day(1))


@pytest.mark.deep
def test_a_decision_that_is_refused_announces_nothing(empty: Pipeline) -> None:
    run_empty(empty, 1)
    with pytest.raises(TransitionRefused):
        skip_batch(empty, day(1), a_decision("skip"))
    assert len(announced(empty)) == 1
    run_empty(empty, 1)
    assert len(announced(empty)) == 1, "nor does a run that finds its work done"


@pytest.mark.deep
def test_a_commit_that_was_taken_and_not_heard_of_is_announced_once_and_its_event_is_the_same(
    empty: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker answered "fenced" to a commit that it took: the next turn finds it in the ledger."""
    plan_batch(empty, day(1))
    write_without_spark(empty, day(1))
    validate_without_spark(empty, day(1))
    unheard = unheard_commits(monkeypatch)
    result = advance_batch(empty, day(1))
    assert (len(unheard), result.changed) == (1, True)
    assert [r.json for r in announced(empty)] == [extra_of(result)]
    assert extra_of(advance_batch(empty, day(1))) == extra_of(result), "and so is that of whoever finds it published"


@pytest.mark.deep
def test_most_changes_of_the_ledger_write_nothing_to_the_topic(empty: Pipeline, broker: Broker) -> None:
    plan_batch(empty, day(1))
    write_without_spark(empty, day(1))
    validate_without_spark(empty, day(1))
    assert end_offset(broker.bootstrap, empty.announcements_topic, 0) == 0
    advance_batch(empty, day(1))
    assert end_offset(broker.bootstrap, empty.announcements_topic, 0) == 2, "a record and its transaction's marker"
