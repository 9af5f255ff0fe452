"""What those who read by asset events get, on a real broker and real Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import TRANSFORM, at, day
from fencepost import read_validated
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, NeedsOperator, SettingsError, Superseded, TopicRecreated
from fencepost.model import StepResult
from fencepost.outputs.asset import extra_of
from fencepost.rows.source import V1_SOURCES
from fencepost_stack.broker import Broker
from integration.test_refusals import delete_records, make_anew
from kafka_tools import create_topic, produce
from steps import latest, run

Make = Callable[..., Pipeline]

SMALL = """
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: n, max_value: 99}}
"""
WIDER = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "name AS label")\n'
AS_TEXT = 'def transform(frame):\n    return frame.selectExpr("_key", "CAST(n AS string) AS n", "name")\n'


def event(result: StepResult) -> dict[str, Any]:
    """What Airflow is told of a batch that was published."""
    return {**extra_of(result)}


@pytest.fixture
def brokers(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a reader has: the brokers' address. No pipeline is to be found."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("FENCEPOST_PIPELINES", "/nonexistent")


def test_events_are_read_as_the_batches_that_count(
    spark: Any, broker: Broker, make_pipeline: Make, brokers: None
) -> None:
    pipeline = make_pipeline(expectations=SMALL)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    for number, n in ((1, 1), (2, 100), (3, 3)):
        produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n, "name": "x"}, 0, at(number))])
    empty = event(run(None, pipeline, day(-3)))
    session_has = spark.conf.get(V1_SOURCES)
    nothing = read_validated(spark, empty)
    assert spark.conf.get(V1_SOURCES) == session_has, "what the reader's own frames are read by"
    assert (nothing.count(), "n" in nothing.columns) == (0, False), (
        "no transform was run yet, so nobody knows the columns"
    )
    first = event(run(spark, pipeline, day(1)))
    with pytest.raises(BatchRejected):
        run(spark, pipeline, day(2))  # its record lies between the others
    third = event(run(spark, pipeline, day(3)))
    again = event(run(spark, pipeline, day(1), reprocess=True))

    def read(*events: dict[str, Any]) -> list[int]:
        return sorted(row["n"] for row in read_validated(spark, events).collect())

    with pytest.raises(Superseded, match=r"is superseded.*add its event"):
        read(first)
    rejected = str(latest(pipeline, day(2)).id)
    with pytest.raises(Superseded, match="is not announced"):
        read(third, {**third, "batch": rejected, "interval": {"start": day(2).start, "end": day(2).end}})
    with pytest.raises(SettingsError, match="is in cluster another, and Kafka at"):
        read({**third, "cluster_id": "another"})
    assert read(first, again) == read(again, first, again) == read(again) == [1]
    assert read(third, empty, first, again, third) == [1, 3]
    assert read(empty) == []
    later = event(run(None, pipeline, day(9)))
    assert "doubled" in read_validated(spark, [later, later]).columns, "the columns of what was written before"

    changed = make_pipeline(WIDER, SMALL, name=pipeline.name)
    wider = event(run(spark, changed, day(3), reprocess=True))
    rows = read_validated(spark, [third, again, wider]).orderBy("n").collect()
    assert [(r["n"], r["doubled"], r["label"]) for r in rows] == [(1, 2, None), (3, None, "x")]
    text = event(run(spark, make_pipeline(AS_TEXT, name=pipeline.name), day(3), reprocess=True))
    with pytest.raises(SettingsError, match=r"column n is int in batch .* and string in batch"):
        read(again, text)


def test_records_that_are_gone_are_not_read_as_none(
    spark: Any, broker: Broker, make_pipeline: Make, brokers: None
) -> None:
    pipeline = make_pipeline(TRANSFORM, output={"partitions": 1})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n, "name": "x"}, 0, at(1)) for n in range(5)])
    told = event(run(spark, pipeline, day(1)))
    delete_records(broker, pipeline.output.topic, 0, 2)
    with pytest.raises(NeedsOperator, match="no longer has partition 0: offsets 0 to 1"):
        read_validated(spark, told)
    make_anew(broker, pipeline.output.topic, 1)
    with pytest.raises(TopicRecreated, match="output topic"):
        read_validated(spark, told)
