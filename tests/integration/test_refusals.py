"""What a retry cannot fix is refused with what to do, and nothing is lost or moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import (
    AccessDenied,
    KafkaUnavailable,
    LedgerUnreadable,
    NeedsOperator,
    ReceiptsDisagree,
    RecordRefused,
    SettingsError,
    SourceDataExpired,
    TopicRecreated,
    TransformFailed,
    TransitionRefused,
)
from fencepost.ledger.ledger import Ledger
from fencepost.model import Interval, Outcome, State
from fencepost.steps import write
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from kafka_tools import QUIET_LOG, assert_at_end, create_topic, delete_topic, group_offsets, produce, read_all
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]


def fill(broker: Broker, pipeline: Pipeline, partitions: int = 2) -> None:
    create_topic(broker.bootstrap, pipeline.source.topic, partitions)
    for number in (1, 2):
        records = [(b"k", {"n": i, "name": "x"}, i % partitions, at(number)) for i in range(10)]
        produce(broker.bootstrap, pipeline.source.topic, records)


def delete_records(broker: Broker, topic: str, partition: int, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    place = TopicPartition(topic, partition, before)
    admin.delete_records([place])[place].result(20)


def make_anew(broker: Broker, topic: str, partitions: int) -> None:
    delete_topic(broker.bootstrap, topic)
    create_topic(broker.bootstrap, topic, partitions)


def nothing_moved(broker: Broker, pipeline: Pipeline) -> bool:
    offsets = group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1])
    return offsets == {} and read_all(broker.bootstrap, pipeline.output.topic) == []


def test_source_data_expired_under_a_planned_range(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    delete_records(broker, pipeline.source.topic, 1, 3)
    with pytest.raises(SourceDataExpired, match=r"partition 1: offsets 0 to 2.*on_expired: skip"):
        plan_and_write(spark, pipeline, day(1))
    assert nothing_moved(broker, pipeline)
    assert latest(pipeline, day(1)).state is State.PLANNED

    accepting = make_pipeline(name=pipeline.name, source={"on_expired": "skip"})
    run(spark, accepting, day(1))
    batch = latest(accepting, day(1))
    assert (batch.revision, batch.state) == (2, State.PUBLISHED)
    assert [(r.partition, r.start, r.end) for r in batch.plan.lost] == [(1, 0, 3)]
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 7
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {0: 5, 1: 5}


@pytest.mark.deep
def test_source_data_expired_before_it_was_planned_can_be_accepted(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    delete_records(broker, pipeline.source.topic, 0, 7)
    with pytest.raises(SourceDataExpired, match="partition 0: offsets 5 to 6"):
        plan_batch(pipeline, day(2))
    accepting = make_pipeline(name=pipeline.name, source={"on_expired": "skip"})
    run(spark, accepting, day(2))
    batch = latest(accepting, day(2))
    assert [(r.partition, r.start, r.end) for r in batch.plan.lost] == [(0, 5, 7)]
    assert batch.written is not None
    assert batch.written.rows == 8
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {0: 10, 1: 10}


def test_a_source_topic_made_anew_is_refused(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    make_anew(broker, pipeline.source.topic, 2)
    for step in (lambda: plan_and_write(spark, pipeline, day(1)), lambda: plan_batch(pipeline, day(2))):
        with pytest.raises(TopicRecreated, match=r"deleted and created again.*a new name: rename its folder"):
            step()
    assert nothing_moved(broker, pipeline)


@pytest.mark.parametrize("which", [pytest.param("source", marks=pytest.mark.deep), "output"])
def test_a_topic_made_anew_while_executors_start_is_refused_before_anything_is_recorded(
    which: str, spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets are as good as the old ones, and the records below them are others."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    run_job = write.run_write_job

    def anew_first(*args: Any) -> Any:
        make_anew(broker, getattr(pipeline, which).topic, 2 if which == "source" else 3)
        if which == "source":
            records = [(b"other", {"n": 100 + i, "name": "y"}, i % 2, at(1)) for i in range(20)]
            produce(broker.bootstrap, pipeline.source.topic, records)
        return run_job(*args)

    monkeypatch.setattr(write, "run_write_job", anew_first)
    with pytest.raises(TopicRecreated, match=f"{which} topic .* was deleted and created again"):
        plan_and_write(spark, pipeline, day(1))
    assert len(read_all(broker.bootstrap, pipeline.staging_topic)) == 10, "the job itself noticed nothing"
    batch = latest(pipeline, day(1))
    assert (batch.state, batch.written) == (State.PLANNED, None)
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {}


@pytest.mark.parametrize("which", ["source", pytest.param("output", marks=pytest.mark.deep)])
def test_a_topic_made_anew_after_the_verdict_is_not_published(
    which: str, spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    make_anew(broker, getattr(pipeline, which).topic, 3)
    with pytest.raises(TopicRecreated, match=f"{which} topic .* was deleted and created again"):
        advance_batch(pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.WRITTEN
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {}
    assert group_offsets(broker.bootstrap, pipeline.validated_group, pipeline.output.topic, [0, 1, 2]) == {}


@pytest.mark.parametrize(
    ("config", "output", "says"),
    [
        ({"cleanup.policy": "compact"}, {}, r"is compacted \(cleanup.policy=compact\) after min.compaction.lag.ms=0"),
        ({"retention.ms": "3600000"}, {"timestamp": "_timestamp"}, r"retention.ms=3600000 by their timestamps"),
        ({"message.timestamp.before.max.ms": "1"}, {"timestamp": "_timestamp"}, "refuses records older than"),
    ],
)
def test_an_output_topic_that_would_lose_the_batch_is_refused_before_it_is_planned(
    config: dict[str, str], output: dict[str, str], says: str, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output={**output, "publish": "direct"})
    fill(broker, pipeline)
    create_topic(broker.bootstrap, pipeline.output.topic, 3, **config)
    with pytest.raises(NeedsOperator, match=says):
        plan_batch(pipeline, day(1))
    assert Ledger(pipeline).read().last(day(1)) is None
    assert plan_batch(pipeline, day(-300)).changed, "without offsets to read there is nothing to lose"


def test_output_that_was_deleted_before_it_was_judged_is_named_by_its_offsets(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output={"publish": "direct"})
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    written = latest(pipeline, day(1)).written
    assert written is not None
    partition = max(range(3), key=lambda p: written.output.ends[p])  # every record has one key
    delete_records(broker, pipeline.output.topic, partition, 4)
    with pytest.raises(ReceiptsDisagree, match=rf"no longer has partition {partition}: offsets 0 to 3.*retention\.ms"):
        validate_batch(spark, pipeline, day(1))
    verdict = latest(pipeline, day(1)).verdict
    assert verdict is not None
    assert verdict.outcome is Outcome.UNDETERMINED
    assert "Find out who else writes" not in Path(verdict.report).read_text()
    with pytest.raises(TransitionRefused, match=r"could not be judged \(verdict undetermined\)"):
        advance_batch(pipeline, day(1))


@pytest.mark.deep
def test_a_new_name_goes_on_with_a_source_topic_made_anew(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    make_anew(broker, pipeline.source.topic, 2)
    produce(broker.bootstrap, pipeline.source.topic, [(b"new", {"n": 7, "name": "x"}, 0, at(2))])
    topics = {"source": {"topic": pipeline.source.topic}, "output": {"topic": pipeline.output.topic}}
    renamed = make_pipeline(name=f"{pipeline.name}_2", schedule={"start": "2026-01-02"}, **topics)
    assert run(spark, renamed, day(2)).state is State.PUBLISHED
    own = str(latest(renamed, day(2)).id)
    assert [r.key for r in read_all(broker.bootstrap, renamed.output.topic) if r.batch == own] == [b"new"]
    assert latest(pipeline, day(1)).state is State.PUBLISHED


@pytest.mark.parametrize("partitions", [pytest.param(3, marks=pytest.mark.deep), 1])
def test_a_planned_batch_goes_on_with_an_output_topic_made_anew(
    partitions: int, spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Staged records keep their partition, so there the output has to have as many as the staging topic."""
    pipeline = make_pipeline(output={"publish": "direct"})
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    make_anew(broker, pipeline.output.topic, partitions)
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert (batch.revision, batch.state) == (2, State.PUBLISHED)
    assert "created again" in batch.history[0].note
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 10


@pytest.mark.deep
def test_a_written_batch_whose_output_topic_was_made_anew_is_written_again(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Validate says so, the write step makes a new revision, and what was published before needs --reprocess."""
    pipeline = make_pipeline()
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    plan_and_write(spark, pipeline, day(2))
    make_anew(broker, pipeline.output.topic, 3)
    with pytest.raises(
        TopicRecreated,
        match=r"output topic .* was deleted and created again.*clear write\) writes and",
    ):
        validate_batch(spark, pipeline, day(2))
    run(spark, pipeline, day(2))
    second = latest(pipeline, day(2))
    assert (second.revision, second.state) == (2, State.PUBLISHED)
    seen = read_all(broker.bootstrap, pipeline.output.topic)
    assert {r.batch for r in seen} == {str(second.id)}
    assert len(seen) == 10
    # Offsets of the old topic mean nothing in the new.
    assert_at_end(broker.bootstrap, pipeline.validated_group, pipeline.output.topic, [0, 1, 2])

    run(spark, pipeline, day(1), reprocess=True)
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 20


def test_a_transaction_timeout_above_the_brokers_is_refused_at_plan(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(kafka={"transaction.timeout.ms": 900_001})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    with pytest.raises(SettingsError, match=r"900001.*transaction.max.timeout.ms of 900000"):
        plan_batch(pipeline, day(1))
    assert Ledger(pipeline).read().all() == []


def test_a_broker_that_is_down_is_named(make_pipeline: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.kafka.cluster.FIRST_CONTACT", 2.0)
    where = f"127.0.0.1:{any_free_port()}"
    with pytest.raises(KafkaUnavailable, match=where):
        plan_batch(make_pipeline(kafka={"bootstrap.servers": where}), day(1))


def test_wrong_credentials_are_refused_without_showing_them(tmp_path: Path, make_pipeline: Make) -> None:
    with Broker(tmp_path / "sasl", sasl_users={"etl": "right"}) as secured:
        login = {
            "bootstrap.servers": secured.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "etl",
        }
        pipeline = make_pipeline(kafka={**login, "sasl.password": "hunter2-wrong"})
        with pytest.raises(AccessDenied, match=r"sasl\.password") as raised:
            plan_batch(pipeline, day(1))
        assert "hunter2" not in str(raised.value) + repr(pipeline)

        create_topic(secured.bootstrap, pipeline.source.topic, 1)
        right = make_pipeline(name=pipeline.name, kafka={**login, "sasl.password": "right"})
        assert plan_batch(right, day(1)).state is State.PLANNED


def test_a_source_topic_that_is_not_there_is_named(make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    with pytest.raises(NeedsOperator, match=pipeline.source.topic):
        plan_batch(pipeline, day(1))


def test_an_interval_that_overlaps_a_planned_one_in_part_is_refused(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    with pytest.raises(TransitionRefused, match="overlaps"):
        plan_batch(pipeline, Interval(start=day(1).start, end=day(2).end))


def test_a_foreign_record_in_the_ledger_is_named_by_its_offset(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    produce(broker.bootstrap, pipeline.ledger_topic, [(b"x", b"SECRET", 0, at(1))])
    with pytest.raises(LedgerUnreadable, match=r"offset \d+: not a Fencepost record") as raised:
        plan_batch(pipeline, day(2))
    assert "SECRET" not in str(raised.value)


def test_a_ledger_record_of_a_newer_version_asks_for_an_upgrade(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    produce(broker.bootstrap, pipeline.ledger_topic, [(b"x", {"version": 99, "new": True}, 0, at(1))])
    with pytest.raises(LedgerUnreadable, match="written in version"):
        plan_batch(pipeline, day(2))


def test_a_record_kafka_will_never_take_is_not_retried(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    long = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "repeat(\'x\', 2000000) AS name")\n'
    pipeline = make_pipeline(long)
    fill(broker, pipeline)
    with pytest.raises(RecordRefused, match=r"message\.max\.bytes"):
        plan_and_write(spark, pipeline, day(1))
    assert nothing_moved(broker, pipeline)


LONG = "^(a|b)*$"
RULE = f"""
expectations:
  - {{type: expect_column_values_to_not_be_null, kwargs: {{column: n}}}}
  - {{type: expect_column_values_to_match_regex, severity: quarantine, kwargs: {{column: name, regex: '{LONG}'}}}}
"""
SOURCE = "def transform(frame):\n    return frame.selectExpr('*')\n"
MATCHES = f'def transform(frame):\n    return frame.selectExpr("_key", "n", "string(name RLIKE \'{LONG}\') AS name")\n'


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (
            SOURCE,
            ("expectations.1: expect_column_values_to_match_regex(name): regex ", f"{LONG!r} overflows", "-in:1:1. "),
        ),
        (MATCHES, ("java.lang.StackOverflowError in a regex, on a long text", "The same record would fail again")),
    ],
)
def test_a_text_that_overflows_a_regex_stops_the_write_for_good_and_the_jvm_lives(
    spark: Any, broker: Broker, make_pipeline: Make, transform: str, says: tuple[str, ...]
) -> None:
    """It ended Spark's JVM, which was taken for a lack of memory and tried again."""
    pipeline = make_pipeline(transform, RULE)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    texts = ["ab", "ab" * 20_000, "ba"]
    records = [(b"k", {"n": n, "name": text}, 1, at(1)) for n, text in enumerate(texts)]
    produce(broker.bootstrap, pipeline.source.topic, records)
    plan_batch(pipeline, day(1))
    with pytest.raises(TransformFailed) as stopped:
        write.write_batch(spark, pipeline, day(1))
    assert all(part in str(stopped.value) for part in says), str(stopped.value)
    assert "abab" not in str(stopped.value)
    assert spark.range(3).count() == 3
    assert latest(pipeline, day(1)).state is State.PLANNED
