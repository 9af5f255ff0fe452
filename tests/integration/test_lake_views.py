"""What a person does with a batch of an Iceberg table besides publishing it: withdraws it, and traces records into it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.errors import TransitionRefused
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.output import missing_of
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost.steps.plan import withdraw_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from kafka_tools import read_all
from lakes import Lake
from makers import a_decision
from steps import latest, on_session, plan_and_write, run
from tables import fill, judged

from .test_lake_tables import Make, lake, make, numbers, of

__all__ = ["lake", "make"]


def test_a_withdrawn_batch_leaves_no_row_and_its_records_are_the_next_intervals(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    fill(broker, pipeline)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    fill(broker, pipeline, range(10, 14), number=2)
    plan_and_write(spark, pipeline, day(2))
    validate_batch(spark, pipeline, day(2))
    before = lake.history(pipeline.output.name)
    assert withdraw_batch(pipeline, day(2), a_decision("withdraw")).state is State.WITHDRAWN
    assert lake.history(pipeline.output.name) == before
    fill(broker, pipeline, range(20, 22), number=3)
    assert run(spark, pipeline, day(3)).state is State.PUBLISHED
    found = lake.by_spark(pipeline.output.name, None, "n, fencepost_interval, fencepost_revision")
    assert sorted(found) == [
        *((n, day(1).start.replace(tzinfo=None), 1) for n in range(6)),
        *((n, day(3).start.replace(tzinfo=None), 1) for n in (*range(10, 14), *range(20, 22))),
    ]
    assert missing_of(Deployment.of(pipeline)) == ""


def test_a_batch_that_is_on_its_way_into_the_table_or_in_it_is_not_withdrawn(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    judged(spark, broker, pipeline)
    begin_batch(pipeline, day(1))
    with pytest.raises(TransitionRefused, match="is being published") as refused:
        withdraw_batch(pipeline, day(1), a_decision("withdraw"))
    assert "Readers see nothing of it before its commit" in str(refused.value)
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    assert numbers(lake, pipeline) == []
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    with pytest.raises(TransitionRefused, match="is published and has offsets"):
        withdraw_batch(pipeline, day(1), a_decision("withdraw"))
    assert numbers(lake, pipeline) == of(1, range(6))


def test_a_record_leads_to_its_batch_and_the_batch_to_its_rows(
    spark: Any, broker: Broker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make()
    judged(spark, broker, pipeline)
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    plan_and_write(spark, pipeline, day(1), reprocess=True)
    validate_batch(spark, pipeline, day(1))
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    trace = tracing(spark, pipeline, monkeypatch)
    one, two = (f"{pipeline.name}/20260101T000000Z-20260102T000000Z/{n}" for n in (1, 2))
    staged = {
        (r.json["n"], r.timestamp): f"{pipeline.staging_topic}:{r.partition}:{r.offset}"
        for r in read_all(broker.bootstrap, pipeline.staging_topic)
    }
    timestamps = sorted({at for _, at in staged})
    found = trace("--source", f"{pipeline.source.topic}:1:2")  # the numbers are 1, 3, 5 there
    assert [(b["batch"], b["state"], b["verdict"]) for b in found["batches"]] == [
        (one, "superseded", "passed"),
        (two, "published", "passed"),
    ]
    assert found["rows"] == [staged[5, timestamps[1]]]
    assert found["quarantine"] == []
    for name, at in zip((one, two), timestamps, strict=True):
        found = trace("--output", staged[3, at])
        assert [b["batch"] for b in found["batches"]] == [name]


def tracing(spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The command, in this process and on this session."""
    on_session(monkeypatch, spark, pipeline)

    def trace(*options: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, ["trace", pipeline.name, *options, "--json"], catch_exceptions=False)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return trace
