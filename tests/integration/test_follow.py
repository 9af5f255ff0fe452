"""A ledger followed from look to look is the ledger read whole, for the price of what is new."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from conftest import day
from fencepost import follow
from fencepost.advance import advance_batch
from fencepost.errors import FencepostError, KafkaUnavailable, LedgerUnreadable
from fencepost.follow import LedgerFollower
from fencepost.kafka import Cluster, settings_of
from fencepost.ledger import Ledger
from fencepost.local.ports import any_free_port
from fencepost.model import Batch, Interval, State
from fencepost.pages.ledgers import Ledgers
from fencepost.plan import plan_batch
from fencepost.settings import Pipeline
from fencepost.transitions import View
from fencepost.validate import validate_without_spark
from fencepost.write import write_without_spark
from kafka_tools import QUIET_LOG, create_topic, produce

Make = Callable[..., Pipeline]


@pytest.fixture
def pipeline(make_pipeline: Make) -> Pipeline:
    made = make_pipeline()
    create_topic(settings_of(made).bootstrap, made.source.topic, 2)
    return made


def run_empty(pipeline: Pipeline, interval: Interval) -> None:
    """An interval without records, all the way."""
    plan_batch(pipeline, interval)
    write_without_spark(pipeline, interval)
    validate_without_spark(pipeline, interval)
    advance_batch(pipeline, interval)


def looked(follower: LedgerFollower, pipeline: Pipeline) -> View:
    return View.of(follower.look(Cluster(settings_of(pipeline)))[1])


def test_a_ledger_that_is_not_there_yet_is_empty_and_then_it_is_followed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = LedgerFollower(pipeline, settings_of(pipeline), 10.0)
    assert looked(follower, pipeline) == View()
    run_empty(pipeline, day(1))
    assert looked(follower, pipeline) == Ledger(pipeline).read()
    parsed, real = [], follow.own_batch

    def parse(key: bytes | None, value: bytes | None, offset: int, of: Pipeline) -> Batch:
        parsed.append(key)
        return real(key, value, offset, of)

    monkeypatch.setattr(follow, "own_batch", parse)
    assert looked(follower, pipeline) == Ledger(pipeline).read()
    assert parsed == [], "nothing is new, so nothing is read"
    run_empty(pipeline, day(2))
    view = looked(follower, pipeline)
    assert view == Ledger(pipeline).read()
    assert len(parsed) == 1, "of several new records of one revision the newest alone is parsed"
    assert [b.state for b in view.all()] == [State.PUBLISHED] * 2


def test_a_ledger_that_was_deleted_and_made_again_is_not_mixed_with_the_old_one(pipeline: Pipeline) -> None:
    follower = LedgerFollower(pipeline, settings_of(pipeline), 10.0)
    run_empty(pipeline, day(1))
    assert len(looked(follower, pipeline).all()) == 1
    admin = AdminClient({"bootstrap.servers": settings_of(pipeline).bootstrap}, logger=QUIET_LOG)
    admin.delete_topics([pipeline.ledger_topic])[pipeline.ledger_topic].result()
    while pipeline.ledger_topic in admin.list_topics(timeout=10).topics:
        time.sleep(0.05)
    admin.delete_consumer_groups([pipeline.group])[pipeline.group].result()  # or the ledger would count as lost
    for number in (5, 6):
        run_empty(pipeline, day(number))
    assert looked(follower, pipeline).intervals == [day(5), day(6)]


def test_a_foreign_record_is_named_and_not_passed_over_by_the_next_look(pipeline: Pipeline) -> None:
    follower = LedgerFollower(pipeline, settings_of(pipeline), 10.0)
    run_empty(pipeline, day(1))
    produce(settings_of(pipeline).bootstrap, pipeline.ledger_topic, [(b"k", b"{}", 0, 1)])
    for _ in range(2):
        with pytest.raises(LedgerUnreadable, match="damaged in"):
            looked(follower, pipeline)


def test_an_absent_kafka_costs_a_page_its_time_limit_once_and_then_nothing_for_a_moment(make_pipeline: Make) -> None:
    away = make_pipeline(kafka={"bootstrap.servers": f"127.0.0.1:{any_free_port()}"})
    ledgers = Ledgers(timeout=1.0)

    def failure() -> tuple[FencepostError, float]:
        began = time.monotonic()
        with pytest.raises(KafkaUnavailable, match=r"no answer from Kafka at 127.0.0.1") as raised:
            ledgers.snapshot(away)
        return raised.value, time.monotonic() - began

    first, took = failure()
    assert took < 10, "a page is not worth more; a step waits for thirty seconds"
    second, took = failure()
    assert second is first
    assert took < 0.5


def test_the_source_ends_are_asked_with_the_snapshot_and_a_missing_source_is_no_error(make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    assert Ledgers().source_ends(pipeline) is None
    create_topic(settings_of(pipeline).bootstrap, pipeline.source.topic, 2)
    produce(settings_of(pipeline).bootstrap, pipeline.source.topic, [(b"k", b"v", 1, 1)] * 3)
    assert Ledgers().source_ends(pipeline) == [0, 3]
