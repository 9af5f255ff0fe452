"""Each source of a batch is judged by itself: one that is dead, malformed or late does not hide behind the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected
from fencepost.model import State, Verdict
from fencepost.steps.plan import withdraw_batch
from fencepost.steps.validate import validate_batch, validate_without_spark
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce
from makers import a_decision
from steps import answered_and_not_recorded, latest, run

Make = Callable[..., Pipeline]

UNION = """
def transform(north, south):
    return north.unionByName(south).select("_key", "n")
"""
JOIN = """
def transform(orders, payments):
    return orders.join(payments.select("n", "paid"), "n").select("_key", "n", "paid")
"""
NUMBERS = {"schema": {"n": "int"}}


def regions(name: str, **south: Any) -> dict[str, Any]:
    """Two regions, the second with these settings."""
    return {"north": {"topic": f"{name}-north", **NUMBERS}, "south": {"topic": f"{name}-south", **NUMBERS, **south}}


def send(broker: Broker, topic: str, number: int, values: Iterable[Any], hour: float = 12) -> None:
    """Writes records of that day and hour to the topic's only partition."""
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(number, hour)) for value in values])


def verdict_of(pipeline: Pipeline, number: int) -> Verdict:
    return latest(pipeline, day(number)).require_verdict


def report_of(pipeline: Pipeline, number: int) -> Any:
    return json.loads(Path(verdict_of(pipeline, number).report).with_suffix(".json").read_text())


def test_a_dead_region_is_rejected_beside_a_live_one_and_also_where_there_is_nothing_to_read(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(UNION, name="e1", sources=regions("e1", empty="reject"))
    for topic in pipeline.source_topics:
        create_topic(broker.bootstrap, topic, 1)
    send(broker, "e1-north", 1, [{"n": n} for n in range(20)])
    with pytest.raises(BatchRejected, match=r"Topic e1-south gave no record; sources\.south\.empty is 'reject'\."):
        run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert (batch.state, batch.require_written.rows) == (State.REJECTED, 20)
    assert verdict_of(pipeline, 1).failed_critical == ("sources.south.empty",)

    with pytest.raises(BatchRejected, match=r"set sources\.south\.empty to pass"):
        run(None, pipeline, day(2))
    batch = latest(pipeline, day(2))
    assert (batch.plan.is_empty, batch.state) == (True, State.REJECTED)
    assert verdict_of(pipeline, 2).failed_critical == ("sources.south.empty",), "the north may be empty"

    for region in ("north", "south"):
        send(broker, f"e1-{region}", 3, [{"n": 1}])
    run(spark, pipeline, day(3))
    assert latest(pipeline, day(3)).state is State.PUBLISHED

    allowing = make_pipeline(UNION, name="e1", sources=regions("e1"))
    assert validate_batch(spark, allowing, day(1)).changed
    assert latest(allowing, day(1)).revision == 1, "the setting decides no record"
    assert validate_without_spark(pipeline, day(1)) is None, "the setting changed since it passed"
    for number in (1, 2):
        assert run(None if number == 2 else spark, allowing, day(number)).state is State.PUBLISHED


def test_a_rejected_interval_that_is_withdrawn_and_planned_again_reads_what_a_dead_region_sent_late(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(UNION, name="e5", sources=regions("e5", empty="reject"))
    for topic in pipeline.source_topics:
        create_topic(broker.bootstrap, topic, 1)
    send(broker, "e5-north", 1, [{"n": 1}, {"n": 2}])
    with pytest.raises(BatchRejected, match=r"sources\.south\.empty"):
        run(spark, pipeline, day(1))
    send(broker, "e5-south", 1, [{"n": 3}])
    with pytest.raises(BatchRejected, match=r"sources\.south\.empty"):
        run(spark, pipeline, day(1))
    withdraw_batch(pipeline, day(1), a_decision("withdraw"))
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert (batch.state, batch.require_written.rows) == (State.PUBLISHED, 3)


def test_the_malformed_share_of_a_small_source_is_above_the_limit_although_that_of_all_records_is_not(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """The orders drop their malformed records, which share no limit; the payments keep theirs."""
    sources = {
        "orders": {"topic": "e2-orders", **NUMBERS, "on_malformed": "drop"},
        "payments": {"topic": "e2-payments", "schema": {"n": "int", "paid": "int"}, "on_malformed": "quarantine"},
    }
    kwargs: dict[str, Any] = {"name": "e2", "sources": sources, "output": {"layout": "output"}}
    pipeline = make_pipeline(JOIN, quality={"quarantine_limit": {"share": 0.1}}, **kwargs)
    for topic in pipeline.source_topics:
        create_topic(broker.bootstrap, topic, 1)
    send(broker, "e2-orders", 1, [*({"n": n} for n in range(97)), b"{", b"[", b"no"])
    send(broker, "e2-payments", 1, [*({"n": n, "paid": n} for n in range(4)), b"{"])
    with pytest.raises(
        BatchRejected, match=r"1 of 5 records read from topic e2-payments is malformed \(20.00%\), above .* of 10.00%"
    ):
        run(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).require_written.quarantined == {"malformed": 1}
    report = report_of(pipeline, 1)
    accounts = report["quarantined"]["accounts"]
    assert (accounts["read"], accounts["malformed"], accounts["malformed_kept"], accounts["dropped"]) == (105, 4, 1, 3)
    assert [
        (one["topic"], one["offsets"], one["read"], one["malformed"], one["dropped"]) for one in accounts["sources"]
    ] == [
        ("e2-orders", 100, 100, 3, 3),
        ("e2-payments", 5, 5, 1, 0),
    ]
    allowing = make_pipeline(JOIN, quality={"quarantine_limit": {"share": 0.2}}, **kwargs)
    assert run(spark, allowing, day(1)).state is State.PUBLISHED


FRESH = """
expectations:
  - {type: expect_batch_freshness_like_history, kwargs: {at_least: 2}}
"""


def test_a_source_that_is_late_fails_freshness_beside_one_that_is_not(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """The south usually ends an hour before midnight. On the third day it ends at 13:00, and the north as usual."""
    pipeline = make_pipeline(UNION, FRESH, name="e3", sources=regions("e3"))
    for topic in pipeline.source_topics:
        create_topic(broker.bootstrap, topic, 1)
    for number, hour in ((1, 23), (2, 23), (3, 13)):
        send(broker, "e3-north", number, [{"n": 1}], 23.5)
        send(broker, "e3-south", number, [{"n": 2}], hour)
    for number in (1, 2):
        run(spark, pipeline, day(number))
        assert latest(pipeline, day(number)).state is State.PUBLISHED
    with pytest.raises(BatchRejected, match="expect_batch_freshness_like_history"):
        run(spark, pipeline, day(3))
    (check,) = report_of(pipeline, 3)["evaluation"]["checks"]
    assert check["observed"] == {
        "e3-south": {"age of the newest record": "11:00:00", "usual": "1:00:00", "at most": "1:05:00"},
        "e3-north": {"age of the newest record": "0:30:00", "usual": "0:30:00", "at most": "0:35:00"},
    }


def test_a_retry_that_finds_all_committed_counts_the_source_that_has_to_give_records(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(UNION, name="e4", sources=regions("e4", empty="reject"))
    for topic, rows in (("e4-north", 3), ("e4-south", 2)):
        create_topic(broker.bootstrap, topic, 1)
        send(broker, topic, 1, [{"n": n} for n in range(rows)])

    answered_and_not_recorded(spark, pipeline, day(1))
    write_batch(spark, pipeline, day(1))
    found = latest(pipeline, day(1)).require_written.sources
    assert {topic: one.rows_in for topic, one in found.items()} == {"e4-north": None, "e4-south": 2}
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
