"""A ledger followed from look to look is the ledger read whole, for the price of what is new."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, KafkaUnavailable, LedgerLost, LedgerUnreadable, WriterFenced
from fencepost.kafka.client_settings import ClientSettings, client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.transaction import Transaction
from fencepost.ledger import reader
from fencepost.ledger.codec import write_record
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import LARGEST_RECORD, Ledger, Recorded, coordinator_settings
from fencepost.ledger.reader import LedgerReader, NewestRecords, Record
from fencepost.model import Batch, Interval, State, Tally
from fencepost.pages.ledgers import Ledgers
from fencepost.protocol.view import View
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_without_spark
from fencepost.steps.write import write_without_spark
from fencepost_stack.ports import any_free_port
from kafka_tools import QUIET_LOG, create_topic, delete_topic, produce, read_all
from makers import a_batch, a_plan, a_receipt, a_topic, a_written, an_output
from steps import unheard_commits

Make = Callable[..., Pipeline]


@pytest.fixture
def pipeline(make_pipeline: Make) -> Pipeline:
    made = make_pipeline(lanes=4)
    create_topic(client_settings(made).bootstrap, made.source.topic, 2)
    return made


def run_empty(pipeline: Pipeline, interval: Interval, deployment: Deployment | None = None) -> None:
    """An interval without records, all the way."""
    plan_batch(pipeline, interval, deployment=deployment)
    write_without_spark(pipeline, interval, deployment=deployment)
    validate_without_spark(pipeline, interval, deployment=deployment)
    advance_batch(pipeline, interval, deployment=deployment)


def looked(reader: LedgerReader, pipeline: Pipeline) -> View:
    return View.of(reader.peek(Cluster(client_settings(pipeline)))[1])


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Offsets of the ledger's records, as readers take them."""
    offsets: list[int] = []
    take = NewestRecords.take

    def spy(self: NewestRecords, records: Iterable[Record]) -> list[Batch]:
        these = list(records)
        offsets.extend(offset for offset, _, _ in these)
        return take(self, these)

    monkeypatch.setattr(NewestRecords, "take", spy)
    return offsets


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """Keys of the ledger's records, as they are parsed in full."""
    keys: list[bytes | None] = []
    real = reader.read_record

    def parse(key: bytes | None, value: bytes | None, offset: int, of: Pipeline) -> Batch:
        keys.append(key)
        return real(key, value, offset, of)

    monkeypatch.setattr(reader, "read_record", parse)
    return keys


def test_a_ledger_that_is_not_there_yet_is_empty_and_then_it_is_followed(
    pipeline: Pipeline, parsed: list[bytes | None]
) -> None:
    reader = LedgerReader(pipeline, client_settings(pipeline), 10.0)
    assert looked(reader, pipeline) == View()
    run_empty(pipeline, day(1))
    assert looked(reader, pipeline) == Ledger(pipeline).read()
    parsed.clear()
    looked(reader, pipeline)
    assert parsed == [], "nothing is new, so nothing is read"
    run_empty(pipeline, day(2))
    parsed.clear()
    view = looked(reader, pipeline)
    assert len(parsed) == 1, "of several new records of one revision the newest alone is parsed"
    assert view == Ledger(pipeline).read()
    assert [b.state for b in view.all()] == [State.PUBLISHED] * 2


def test_a_run_reads_each_record_of_the_ledger_once(
    pipeline: Pipeline, taken: list[int], parsed: list[bytes | None]
) -> None:
    for number in (1, 2, 3):
        run_empty(pipeline, day(number))
    taken.clear()
    parsed.clear()
    deployment = Deployment.of(pipeline)
    run_empty(pipeline, day(4), deployment)
    stored = [r.offset for r in read_all(deployment.cluster.settings.bootstrap, pipeline.ledger_topic)]
    assert len(stored) == 17, "four transitions of each day, and once which topic has the announcements"
    assert taken == stored[:-1], "all but the last transition, after which nobody asks"
    assert len(parsed) == 3 + 3, "one of each day before, and the day's own as they are read back"
    assert deployment.ledger.read() == Ledger(pipeline).read()


@pytest.mark.parametrize("step", [plan_batch, write_without_spark, validate_without_spark, advance_batch])
def test_a_step_reads_each_record_of_the_ledger_once(
    pipeline: Pipeline, taken: list[int], step: Callable[..., object]
) -> None:
    run_empty(pipeline, day(1))
    for before in (plan_batch, write_without_spark, validate_without_spark, advance_batch):
        taken.clear()
        before(pipeline, day(2))
        if before is step:
            break
    assert taken == sorted(set(taken))


def test_what_another_run_recorded_is_not_taken_for_ones_own(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records say the same, of the same second, and a fenced commit may have been taken or not."""
    commit, struck = Ledger._commit, list[bool]()

    def fenced_by_another_run(ledger: Ledger, *sent: Any) -> None:
        if struck:
            return commit(ledger, *sent)
        struck.append(True)
        step(pipeline, day(1))
        raise WriterFenced("a newer producer took over")

    monkeypatch.setattr(Ledger, "_commit", fenced_by_another_run)
    for step in (plan_batch, write_without_spark, advance_batch):
        struck.clear()
        result = step(pipeline, day(1))
        assert result is not None
        assert (struck, result.changed) == ([True], False)
        if step is write_without_spark:
            validate_without_spark(pipeline, day(1))


def test_a_view_with_a_change_applied_is_the_ledger_read_again(pipeline: Pipeline) -> None:
    plan_batch(pipeline, day(1))
    deployment = Deployment.of(pipeline)
    for step in (plan_batch, write_without_spark, validate_without_spark, advance_batch):
        views: list[View] = []
        transact = deployment.ledger.transact

        def seen(decide: Any, transact: Any = transact, views: list[View] = views) -> Recorded:
            found: Recorded = transact(decide)
            views.append(found.view)
            return found

        deployment.ledger.transact = seen  # type: ignore[method-assign]
        step(pipeline, day(2), deployment=deployment)
        deployment.ledger.transact = transact  # type: ignore[method-assign]
        assert views == [Ledger(pipeline).read()]


def test_a_coordinator_that_is_kept_is_fenced_by_another_and_decides_again(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = Deployment.of(pipeline), Deployment.of(pipeline)
    plan_batch(pipeline, day(1), deployment=mine)
    plan_batch(pipeline, day(2), deployment=other)
    with caplog.at_level("INFO", "fencepost.ledger.ledger"):
        plan_batch(pipeline, day(3), deployment=mine)
    assert "deciding again" in caplog.text
    kept = [value for record in caplog.records for value in record.args or () if isinstance(value, BaseException)]
    assert not kept, "a record that is kept would keep the error's frames, and their clients"
    assert mine.ledger.read().intervals == [day(1), day(2), day(3)]


def test_a_step_whose_commit_is_answered_with_fenced_finds_its_change_recorded(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fenced does not mean that nothing was committed; whoever decides again finds it, says that it was its own doing, and
    records nothing twice."""
    unheard = unheard_commits(monkeypatch)
    for step in (plan_batch, write_without_spark, validate_without_spark, advance_batch):
        unheard.clear()
        result = step(pipeline, day(1))
        assert unheard, "it was asked twice"
        assert result is not None
        assert result.changed
    records = [
        r for r in read_all(client_settings(pipeline).bootstrap, pipeline.ledger_topic) if b"/" in (r.key or b"")
    ]
    assert [json.loads(r.value or b"")["state"] for r in records] == ["planned", "written", "written", "published"]


@pytest.mark.parametrize(("asked", "expected"), [({}, 15_000), ({"transaction.timeout.ms": "9000"}, 9000)])
def test_a_coordinators_transaction_lasts_no_longer_than_the_pipeline_allows(
    asked: dict[str, str], expected: int
) -> None:
    found = coordinator_settings(ClientSettings({"bootstrap.servers": "b", **asked}))
    assert found.values == {
        "bootstrap.servers": "b",
        "transaction.timeout.ms": str(expected),
        "message.max.bytes": str(LARGEST_RECORD),
    }


def test_a_batch_of_ten_thousand_task_partitions_fits_into_a_record_of_the_ledger(pipeline: Pipeline) -> None:
    """As any broker takes it: its plan has a range for each source partition, and its result sums over all of them."""
    deployment = Deployment.of(pipeline)
    deployment.ledger.create()
    chance = random.Random(1)
    at = [chance.randrange(10**9) for _ in range(10_000)]
    topic = pipeline.output.topic
    receipts = [
        a_receipt(t, topics={topic: Tally(rows=10**5, fingerprint=chance.randrange(2**64), bytes=10**9)})
        for t in range(len(at))
    ]
    plan = a_plan(*((start, start + 10**5) for start in at), output=an_output(*at[:100], topic=topic))
    batch = a_batch(State.WRITTEN, plan=plan, written=a_written(*receipts, output=a_topic(*at[:100], topic=topic)))
    value = write_record(batch)
    assert len(value) < 1_000_000
    one = batch.model_copy(update={"written": a_written(receipts[0], output=a_topic(*at[:100], topic=topic))})
    assert len(value) - len(write_record(one)) < 100, "its result is as long as that of one"
    coordinator = Transaction(coordinator_settings(deployment.cluster.settings), pipeline.coordinator_id, "coordinator")
    coordinator.init()
    with coordinator:
        coordinator.produce(pipeline.ledger_topic, value, b"wide", partition=0)
    [record] = read_all(deployment.cluster.settings.bootstrap, pipeline.ledger_topic)
    assert record.value == value


def test_a_step_whose_ledger_is_made_anew_meanwhile_stops(pipeline: Pipeline) -> None:
    deployment = Deployment.of(pipeline)
    plan_batch(pipeline, day(1), deployment=deployment)
    delete_topic(client_settings(pipeline).bootstrap, pipeline.ledger_topic)
    Ledger(pipeline).create()
    with pytest.raises(LedgerLost, match="deleted and created again"):
        write_without_spark(pipeline, day(1), deployment=deployment)
    assert read_all(deployment.cluster.settings.bootstrap, pipeline.ledger_topic) == []


def test_a_ledger_that_was_deleted_and_made_again_is_not_mixed_with_the_old_one(pipeline: Pipeline) -> None:
    reader = LedgerReader(pipeline, client_settings(pipeline), 10.0)
    run_empty(pipeline, day(1))
    assert len(looked(reader, pipeline).all()) == 1
    bootstrap = client_settings(pipeline).bootstrap
    delete_topic(bootstrap, pipeline.ledger_topic)
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET_LOG)
    admin.delete_consumer_groups([pipeline.group])[pipeline.group].result()  # or the ledger would count as lost
    for number in (5, 6):
        run_empty(pipeline, day(number))
    assert looked(reader, pipeline).intervals == [day(5), day(6)]


def test_a_foreign_record_is_named_and_not_passed_over_by_the_next_look(pipeline: Pipeline) -> None:
    reader = LedgerReader(pipeline, client_settings(pipeline), 10.0)
    run_empty(pipeline, day(1))
    produce(client_settings(pipeline).bootstrap, pipeline.ledger_topic, [(b"k", b"{}", 0, 1)])
    for _ in range(2):
        with pytest.raises(LedgerUnreadable, match="damaged in"):
            looked(reader, pipeline)


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
    assert Ledgers().source_ends(pipeline) == {}
    create_topic(client_settings(pipeline).bootstrap, pipeline.source.topic, 2)
    produce(client_settings(pipeline).bootstrap, pipeline.source.topic, [(b"k", b"v", 1, 1)] * 3)
    assert Ledgers().source_ends(pipeline) == {(pipeline.source.topic, 0): 0, (pipeline.source.topic, 1): 3}
