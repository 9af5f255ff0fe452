"""A publication that Kafka refuses, or whose marks are gone, on a real broker: the ways out, and what readers see."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from arming import armed
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import (
    FencepostError,
    NeedsOperator,
    OpenTransaction,
    RecordRefused,
    TopicRecreated,
    TransactionTimedOut,
    TransitionRefused,
)
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.advance import advance_batch, begin_batch, skip_batch
from fencepost.steps.plan import plan_batch, withdraw_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, create_topic, delete_topic, end_offset, group_offsets, produce, read_all, stable_ends
from makers import a_decision
from steps import copied_and_not_recorded, latest, plan_and_write, run
from waiting import await_true

from .test_refusals import make_anew

Make = Callable[..., Pipeline]

ROWS = 40
STAGED = {"publish": "staged"}
DATED = """
from pyspark.sql import functions as F
def transform(frame):
    return frame.select("_key", "n", F.expr("CASE WHEN n = 7 THEN TIMESTAMP'AHEAD' ELSE _timestamp END").alias("at"))
"""
AHEAD = DATED.replace("AHEAD", "2999-01-01 00:00:00")
MENDED = DATED.replace("AHEAD", "2026-01-01 00:00:00")
KEYLESS = 'def transform(frame):\n    return frame.selectExpr("IF(n = 7, NULL, _key) AS _key", "n")\n'
LONG = """
from pyspark.sql import functions as F
def transform(frame):
    digits = F.concat_ws("", F.transform(F.sequence(F.lit(1), F.lit(700)), lambda i: F.sha2(i.cast("string"), 256)))
    return frame.where("n < 8").select("_key", "n", digits.alias("name"))
"""

KEY_LACKS = (KEYLESS, {"cleanup_policy": "compact"}, {"cleanup_policy": "delete"}, "needs keys")
TOO_LONG = (LONG, {"max_message_bytes": "20000"}, {"max_message_bytes": "1048588"}, "too large")
DEEP = pytest.mark.deep


def admin_of(broker: Broker) -> Any:
    return AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)


def alter(broker: Broker, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_of(broker)  # which a call does not outlive
    admin.incremental_alter_configs([resource])[resource].result(20)


def fill(broker: Broker, pipeline: Pipeline, number: int = 1) -> None:
    if number == 1:
        create_topic(broker.bootstrap, pipeline.source.topic, 2)
        create_topic(broker.bootstrap, pipeline.output.topic, 3)
    records = [(f"k{i % 7}".encode(), {"n": i, "name": "x"}, i % 2, at(number) + i) for i in range(ROWS)]
    produce(broker.bootstrap, pipeline.source.topic, records)


def judged(spark: Any, pipeline: Pipeline, number: int = 1) -> None:
    plan_and_write(spark, pipeline, day(number))
    validate_batch(spark, pipeline, day(number))


def published(spark: Any, pipeline: Pipeline) -> Any:
    return advance_batch(pipeline, day(1), spark=lambda: spark)


def seen(broker: Broker, pipeline: Pipeline) -> Counter[str]:
    """How many records a plain consumer of the output sees, by batch."""
    return Counter(r.batch for r in read_all(broker.bootstrap, pipeline.output.topic))


def delete_group(broker: Broker, group: str) -> None:
    admin = admin_of(broker)
    admin.delete_consumer_groups([group])[group].result(20)


def copied_in_part(spark: Any, broker: Broker, pipeline: Pipeline, strikes: Path) -> None:
    """Have one of two parts copied, and the worker of the other killed before it wrote."""
    strike = strikes / "publish.begun#1=stop"
    with armed(spark, strike.name, strikes), ThreadPoolExecutor(1) as aside:
        copy = aside.submit(published, spark, pipeline)
        await_true(lambda: strike.exists() and strike.read_text() != "", "the worker to stand still")
        try:
            await_true(lambda: seen(broker, pipeline).total() > 0, "the other part to be there")
        finally:
            os.kill(int(strike.read_text()), signal.SIGKILL)
        with pytest.raises(FencepostError):
            copy.result()


@pytest.fixture
def refused(spark: Any, broker: Broker, make_pipeline: Make) -> Pipeline:
    """A pipeline whose first batch has passed, and one of whose records the output refuses for its timestamp."""
    pipeline = make_pipeline(AHEAD, output=STAGED | {"timestamp": "at"})
    fill(broker, pipeline)
    judged(spark, pipeline)
    with pytest.raises(
        RecordRefused, match=r"message.timestamp.after.max.ms.*clear advance\) publishes the batch as it"
    ):
        published(spark, pipeline)
    batch = latest(pipeline, day(1))
    assert (batch.state, batch.publication is not None) == (State.PUBLISHING, True)
    assert "INVALID_TIMESTAMP" in batch.history[-1].note
    assert seen(broker, pipeline) == {}
    return pipeline


def test_once_the_topic_takes_it_the_next_advance_publishes_it(spark: Any, broker: Broker, refused: Pipeline) -> None:
    with pytest.raises(RecordRefused):
        published(spark, refused)
    told = [event.note for event in latest(refused, day(1)).history if "refused" in event.note]
    assert len(told) == 1, "the same refusal is recorded once"
    assert write_batch(spark, refused, day(1)).message == "already publishing, revision 1"
    alter(broker, refused.output.topic, message_timestamp_type="LogAppendTime")
    assert published(spark, refused).state is State.PUBLISHED
    batch = latest(refused, day(1))
    assert seen(broker, refused) == {str(batch.id): ROWS}
    assert batch.publication is not None
    assert batch.publication.refused == ""


def test_a_refused_publication_is_skipped(spark: Any, broker: Broker, refused: Pipeline) -> None:
    with pytest.raises(TransitionRefused, match="skip"):
        withdraw_batch(refused, day(1), a_decision("withdraw"))
    result = skip_batch(refused, day(1), a_decision("skip"))
    assert (result.state, result.changed) == (State.SKIPPED, True)
    assert "readers may have seen 0 of its 40 records" in latest(refused, day(1)).history[-1].note
    assert group_offsets(broker.bootstrap, refused.group, refused.source.topic, [0, 1]) == {0: 20, 1: 20}
    assert skip_batch(refused, day(1), a_decision("skip")).changed is False
    assert published(spark, refused).changed is False
    assert seen(broker, refused) == {}


@pytest.mark.deep
def test_a_refused_publication_is_reprocessed_once_however_often_that_request_is_tried(
    spark: Any, broker: Broker, make_pipeline: Make, refused: Pipeline
) -> None:
    assert plan_batch(refused, day(1)).message == "revision 1 is publishing", "nobody asked for more"
    for changed in (True, False):
        result = plan_batch(refused, day(1), reprocess=True)
        assert (result.revision, result.state, result.changed) == (2, State.PLANNED, changed)
    old, new = Ledger(refused).read().known(day(1)).all
    assert (old.state, new.state) == (State.SUPERSEDED, State.PLANNED)
    assert "given up during its publication; readers may have seen 0 of its 40 records" in old.history[-1].note
    fixed = make_pipeline(MENDED, name=refused.name, output=STAGED | {"timestamp": "at"})
    run(spark, fixed, day(1))
    assert set(seen(broker, refused).values()) == {ROWS}


@pytest.mark.deep
def test_a_mended_transform_is_written_as_a_new_revision(
    spark: Any, broker: Broker, make_pipeline: Make, refused: Pipeline
) -> None:
    """In Airflow: clear write."""
    fixed = make_pipeline(MENDED, name=refused.name, output=STAGED | {"timestamp": "at"})
    assert write_batch(spark, fixed, day(1)).revision == 2
    validate_batch(spark, fixed, day(1))
    assert published(spark, fixed).state is State.PUBLISHED
    new = latest(fixed, day(1))
    assert new.history[0].note.startswith("Kafka refused its copy: ")
    assert new.history[0].note.endswith("And these parts changed since it was planned: transform")
    assert seen(broker, refused) == {str(new.id): ROWS}


@pytest.mark.parametrize(
    ("transform", "config", "back", "said", "megabytes"),
    [
        (*KEY_LACKS, 256),
        pytest.param(*TOO_LONG, 0, marks=DEEP),
        pytest.param(*KEY_LACKS, 0, marks=DEEP),
        pytest.param(*TOO_LONG, 256, marks=DEEP),
    ],
)
def test_what_the_output_refuses_is_told_here_and_by_spark_and_ends_when_its_settings_are_mended(
    spark: Any,
    broker: Broker,
    make_pipeline: Make,
    megabytes: int,
    transform: str,
    config: dict[str, str],
    back: dict[str, str],
    said: str,
) -> None:
    """A topic may be set otherwise after a publication began."""
    pipeline = make_pipeline(transform, output=STAGED | {"atomic_megabytes": megabytes})
    fill(broker, pipeline)
    judged(spark, pipeline)
    begin_batch(pipeline, day(1))
    alter(broker, pipeline.output.topic, **config)
    with pytest.raises(RecordRefused, match=f"{said}.*clear write"):
        published(spark, pipeline)
    batch = latest(pipeline, day(1))
    assert batch.publication is not None
    assert said in batch.publication.refused
    alter(broker, pipeline.output.topic, **back)
    assert published(spark, pipeline).state is State.PUBLISHED
    assert batch.written is not None
    assert seen(broker, pipeline) == {str(batch.id): batch.written.rows}


@pytest.mark.deep
def test_a_copy_that_takes_longer_than_its_transaction_may_is_not_stuck(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    short = make_pipeline(
        name=pipeline.name,
        output=STAGED,
        kafka={"bootstrap.servers": broker.bootstrap, "transaction.timeout.ms": "1000"},
    )
    topic = pipeline.output.topic

    def reached(name: str, task: int | None = None) -> None:
        if name == "publish.rows":
            # The broker may end it before the last.
            await_true(
                lambda: any(end_offset(broker.bootstrap, topic, p) for p in range(3)), "the first records to be there"
            )
            stable_ends(broker.bootstrap, topic, 3)  # once the broker has ended the transaction

    with monkeypatch.context() as patch:
        patch.setattr("fencepost.rows.writer.reached", reached)
        with pytest.raises(TransactionTimedOut, match=r"lower output.atomic_megabytes.*skip"):
            published(spark, short)
    assert skip_batch(pipeline, day(1), a_decision("skip")).state is State.SKIPPED
    assert seen(broker, pipeline) == {}


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ({"topic": "renamed"}, "renamed"),
        pytest.param({"staging_topic": "renamed"}, "renamed", marks=DEEP),
        pytest.param({"publish": "direct"}, None, marks=DEEP),
        pytest.param({"partitions": 5}, None, marks=DEEP),
        pytest.param({"batch_header": False}, None, marks=DEEP),
    ],
)
def test_a_publication_goes_on_where_it_began_whatever_the_settings_say_now(
    spark: Any, broker: Broker, make_pipeline: Make, change: dict[str, Any], new: str | None
) -> None:
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    begin_batch(pipeline, day(1))
    named = {key: f"{pipeline.name}-{value}" if value == "renamed" else value for key, value in change.items()}
    other = make_pipeline(name=pipeline.name, output=STAGED | named)
    assert write_batch(spark, other, day(1)).message == "already publishing, revision 1"
    if new is not None:
        assert f"{pipeline.name}-{new}" not in admin_of(broker).list_topics(timeout=10).topics, "nothing is made for it"
    with pytest.raises(TransitionRefused, match="is being published and can be finished"):
        skip_batch(other, day(1), a_decision("skip"))
    assert plan_batch(other, day(1), reprocess=True).message == "revision 1 is publishing"
    assert published(spark, other).state is State.PUBLISHED
    assert seen(broker, pipeline) == {str(latest(pipeline, day(1)).id): ROWS}


@pytest.mark.deep
@pytest.mark.parametrize("copied", [True, False])
def test_a_source_made_anew_does_not_keep_a_publication(
    spark: Any, broker: Broker, make_pipeline: Make, copied: bool
) -> None:
    """What is judged and staged needs its source no more, and readers may see some of it: it is finished, not given up."""
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    if copied:
        copied_and_not_recorded(spark, pipeline, day(1))
    else:
        begin_batch(pipeline, day(1))
    make_anew(broker, pipeline.source.topic, 2)
    with pytest.raises(TransitionRefused, match="is being published and can be finished"):
        skip_batch(pipeline, day(1), a_decision("skip"))
    assert published(spark, pipeline).state is State.PUBLISHED
    assert seen(broker, pipeline) == {str(latest(pipeline, day(1)).id): ROWS}
    with pytest.raises(TopicRecreated, match=r"its source topic .* was deleted and created again.*rename its folder"):
        plan_batch(pipeline, day(2))


@pytest.mark.deep
def test_an_output_that_was_deleted_while_it_was_left_does_not_keep_its_publication(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Another topic is named now, so nobody makes the old one again."""
    pipeline = make_pipeline(output=STAGED)
    fill(broker, pipeline)
    judged(spark, pipeline)
    begin_batch(pipeline, day(1))
    old = pipeline.output.topic
    delete_topic(broker.bootstrap, old)
    other = make_pipeline(name=pipeline.name, output=STAGED | {"topic": f"{pipeline.name}-new"})
    with pytest.raises(TopicRecreated, match=f"output topic {old} was deleted during .*clear write"):
        published(spark, other)
    assert run(spark, other, day(1)).revision == 2
    assert Ledger(other).read().known(day(1)).all[0].history[-1].note.endswith("may have seen 40 of its 40 records")
    assert seen(broker, other) == {str(latest(other, day(1)).id): ROWS}


@pytest.mark.parametrize(
    ("megabytes", "part"),
    [(256, False), *(pytest.param(*case, marks=DEEP) for case in ((0, True), (0, False), (256, True)))],
)
def test_what_is_copied_is_found_in_the_output_where_its_marks_are_gone(
    spark: Any,
    broker: Broker,
    make_pipeline: Make,
    tmp_path: Path,
    megabytes: int,
    part: bool,
) -> None:
    """Somebody deleted the group, or it expired: nothing else says what was copied."""
    pipeline = make_pipeline(output=STAGED | {"atomic_megabytes": megabytes})
    fill(broker, pipeline)
    judged(spark, pipeline)
    if not part:
        copied_and_not_recorded(spark, pipeline, day(1))
    elif megabytes:
        begin_batch(pipeline, day(1))
    else:
        copied_in_part(spark, broker, pipeline, tmp_path)
    before = sum(seen(broker, pipeline).values())
    assert (0 < before < ROWS) if part and not megabytes else before == (0 if part else ROWS)
    delete_group(broker, pipeline.publisher_group(0))
    assert write_batch(spark, pipeline, day(1)).message == "already publishing, revision 1"
    assert published(spark, pipeline).state is State.PUBLISHED
    assert seen(broker, pipeline) == {str(latest(pipeline, day(1)).id): ROWS}


@pytest.mark.deep
@pytest.mark.parametrize("why", ["header", "deleted", "compacted"])
def test_where_the_output_cannot_tell_what_was_copied_nothing_is_copied_again(
    spark: Any, broker: Broker, make_pipeline: Make, why: str
) -> None:
    pipeline = make_pipeline(output=STAGED | {"batch_header": why != "header"})
    fill(broker, pipeline)
    judged(spark, pipeline)
    copied_and_not_recorded(spark, pipeline, day(1))
    topic = pipeline.output.topic
    if why == "deleted":
        places = [TopicPartition(topic, p, 2) for p in range(3) if end_offset(broker.bootstrap, topic, p) > 2]
        admin = admin_of(broker)
        for future in admin.delete_records(places).values():
            future.result(20)
    if why == "compacted":
        alter(broker, topic, cleanup_policy="compact")
    before = stable_ends(broker.bootstrap, topic, 3)
    delete_group(broker, pipeline.publisher_group(0))
    said = {"header": "have no header", "deleted": "no longer has", "compacted": "is compacted"}[why]
    with pytest.raises(NeedsOperator, match=f"marks of its publication are gone, and .*{said}.*clear write"):
        published(spark, pipeline)
    assert stable_ends(broker.bootstrap, topic, 3) == before
    assert run(spark, pipeline, day(1)).revision == 2
    old = Ledger(pipeline).read().known(day(1)).all[0]
    assert old.history[-1].note.endswith("given up during its publication; readers may have seen 40 of its 40 records")


@pytest.mark.deep
def test_without_headers_a_group_deleted_before_anything_was_copied_stops_nothing(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output=STAGED | {"batch_header": False})
    fill(broker, pipeline)
    judged(spark, pipeline)
    begin_batch(pipeline, day(1))
    delete_group(broker, pipeline.publisher_group(0))
    assert published(spark, pipeline).state is State.PUBLISHED
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == ROWS


@pytest.mark.deep
def test_what_another_producers_open_transaction_hides_is_waited_for_before_anything_is_copied_again(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """The copy lies behind the transaction's first record, so a read_committed reader does not see it yet."""
    pipeline = make_pipeline(output=STAGED, quality={"open_transaction_wait_seconds": 0.5})
    fill(broker, pipeline)
    judged(spark, pipeline)
    begin_batch(pipeline, day(1))
    foreign = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "foreign"}, logger=QUIET_LOG)
    foreign.init_transactions(30)
    foreign.begin_transaction()
    for partition in range(3):
        foreign.produce(pipeline.output.topic, b"{}", b"k", partition)
    assert foreign.flush(20) == 0
    copied_and_not_recorded(spark, pipeline, day(1))
    delete_group(broker, pipeline.publisher_group(0))
    with pytest.raises(OpenTransaction, match="looking for what is copied"):
        published(spark, pipeline)
    foreign.abort_transaction(30)
    assert published(spark, pipeline).state is State.PUBLISHED
    assert seen(broker, pipeline) == {str(latest(pipeline, day(1)).id): ROWS}


@pytest.mark.parametrize(
    ("config", "output", "said"),
    [
        ({"retention.ms": str(7 * 24 * 3_600_000)}, {"timestamp": "_timestamp"}, "deletes records after retention.ms=604800000"),
        ({"cleanup.policy": "compact"}, {"key": None}, "refuses records without a key"),
        ({}, {}, "accepts record batches of up to 20,000 bytes"),
    ],
)  # fmt: skip
def test_plan_refuses_an_output_that_would_refuse_or_lose_what_is_staged(
    broker: Broker, make_pipeline: Make, config: dict[str, str], output: dict[str, Any], said: str
) -> None:
    pipeline = make_pipeline(output=STAGED | output)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    create_topic(broker.bootstrap, pipeline.output.topic, 3, **config)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, at(1))])
    if not config:
        create_topic(broker.bootstrap, pipeline.staging_topic, 3, **{"retention.ms": "-1"})
        alter(broker, pipeline.output.topic, max_message_bytes="20000")
    with pytest.raises(NeedsOperator, match=f"output topic .*{said}.*Nothing was planned"):
        plan_batch(pipeline, day(1))
    assert Ledger(pipeline).read().all() == []


def test_plan_refuses_a_staging_topic_that_replaces_timestamps_and_the_cure_works(
    broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output=STAGED)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, at(1))])
    own_time = {"message.timestamp.type": "LogAppendTime"}
    create_topic(broker.bootstrap, pipeline.staging_topic, pipeline.output.partitions, **own_time)
    with pytest.raises(
        NeedsOperator, match=r"staging topic .*LogAppendTime.*type=CreateTime with.*Nothing was planned"
    ):
        plan_batch(pipeline, day(1))
    alter(broker, pipeline.staging_topic, message_timestamp_type="CreateTime")
    assert plan_batch(pipeline, day(1)).changed


def test_a_staging_topic_that_is_made_takes_no_more_than_the_output(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(output=STAGED)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    create_topic(broker.bootstrap, pipeline.output.topic, 3, **{"max.message.bytes": "20000"})
    plan_batch(pipeline, day(1))
    assert Deployment.of(pipeline).cluster.topic_configs(pipeline.staging_topic)["max.message.bytes"] == "20000"


@pytest.mark.deep
def test_an_output_set_otherwise_since_the_plan_is_refused_before_the_publication_begins(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output=STAGED | {"timestamp": "_timestamp"}, transform="""
def transform(frame):
    return frame.select("_key", "_timestamp", "n")
""")  # fmt: skip
    fill(broker, pipeline)
    judged(spark, pipeline)
    alter(broker, pipeline.output.topic, retention_ms="3600000")
    with pytest.raises(NeedsOperator, match=r"deletes records after retention.ms=3600000.*Nothing is published"):
        published(spark, pipeline)
    assert latest(pipeline, day(1)).state is State.WRITTEN
    alter(broker, pipeline.output.topic, retention_ms="-1")
    assert published(spark, pipeline).state is State.PUBLISHED
