"""A record dated ahead of the clock is read with the batch that meets it, and holds no later interval back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.examination import examine
from fencepost.findings import Level
from fencepost.model import Interval, utc_now
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import latest, run

Make = Callable[..., Pipeline]

IN_MICROSECONDS = at(1) * 1000
FOREVER = str(2**63 - 1)
FRESHNESS = """
expectations:
  - {type: expect_column_values_to_not_be_null, kwargs: {column: n}}
  - {type: expect_batch_freshness_like_history, severity: warning}
"""


def ahead(**by: float) -> int:
    """Milliseconds, that far ahead of the clock."""
    return round((utc_now() + timedelta(**by)).timestamp() * 1000)


@pytest.fixture
def pipeline(broker: Broker, make_pipeline: Make) -> Pipeline:
    made = make_pipeline(expectations=FRESHNESS)
    create_topic(broker.bootstrap, made.source.topic, 1, **{"message.timestamp.after.max.ms": FOREVER})
    return made


def arrive(broker: Broker, pipeline: Pipeline, *timestamps: int) -> None:
    """A record of each of these timestamps."""
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, t) for t in timestamps])


def planned(pipeline: Pipeline, interval: Interval) -> list[tuple[int, int]]:
    plan_batch(pipeline, interval)
    return [(r.start, r.end) for r in latest(pipeline, interval).plan.ranges]


def test_every_record_is_published_and_the_newest_credible_one_is_told(
    spark: Any, broker: Broker, pipeline: Pipeline
) -> None:
    """Milliseconds that were sent as microseconds: a year that no datetime holds."""
    arrive(broker, pipeline, at(1, 1), IN_MICROSECONDS, at(1, 2), at(2))
    for number, rows in ((1, 3), (2, 1), (3, 0)):
        assert run(spark, pipeline, day(number)).details["rows"] == rows
    assert len(read_all(broker.bootstrap, pipeline.output.topic)) == 4
    written = latest(pipeline, day(1)).written
    assert written is not None
    assert written.newest == datetime.fromtimestamp(at(1, 2) / 1000, tz=utc_now().tzinfo)


@pytest.mark.parametrize("wrong", [IN_MICROSECONDS, ahead(days=1), ahead(days=400)])
def test_an_interval_ends_where_its_time_does_whatever_lies_before_and_behind(
    broker: Broker, make_pipeline: Make, wrong: int
) -> None:
    pipeline = make_pipeline(lanes=9)
    create_topic(broker.bootstrap, pipeline.source.topic, 1, **{"message.timestamp.after.max.ms": FOREVER})
    arrive(broker, pipeline, at(1), wrong, at(2), wrong, at(3), at(4), wrong)
    assert planned(pipeline, day(2)) == [(2, 4)], "the first interval starts by time too"
    assert planned(pipeline, day(4)) == [(4, 7)], "the newest takes what nobody else will"
    assert planned(pipeline, day(3)) == [(4, 4)]
    assert planned(pipeline, day(1)) == [(0, 2)]
    arrive(broker, pipeline, at(5), wrong)
    assert planned(pipeline, day(5)) == [(7, 9)]


def test_a_record_a_little_ahead_of_the_clock_ends_an_interval(broker: Broker, pipeline: Pipeline) -> None:
    """Clocks differ."""
    arrive(broker, pipeline, at(1), ahead(minutes=2), at(1))
    assert planned(pipeline, day(1)) == [(0, 1)]


def test_the_doctor_names_the_record(broker: Broker, pipeline: Pipeline) -> None:
    arrive(broker, pipeline, at(1), IN_MICROSECONDS, at(2))
    (found,) = [one for one in examine(pipeline) if one.check == "source times"]
    assert found.level is Level.WARNING
    assert f"partition 0, offset 1: timestamp {IN_MICROSECONDS}, in the year 57" in found.found
    assert "message.timestamp.after.max.ms=3600000" in found.command
