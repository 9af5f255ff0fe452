"""Which intervals are planned: mistyped ones are refused, told and taken back, and nothing starves behind them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError, TransitionRefused
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import Interval, State, StepResult, utc_now
from fencepost.protocol.planning import Neighbours, PlanFacts
from fencepost.steps import plan as plan_module
from fencepost.steps.advance import advance_batch, skip_batch
from fencepost.steps.plan import plan_batch, withdraw_batch
from fencepost.steps.validate import validate_without_spark
from fencepost.steps.write import write_without_spark
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, produce
from makers import a_decision
from steps import latest

Make = Callable[..., Pipeline]

FAR = Interval.of(datetime(2834, 1, 1, tzinfo=UTC), datetime(2834, 1, 2, tzinfo=UTC))
MISTAKE = a_decision("withdraw")


@pytest.fixture
def pipeline(broker: Broker, make_pipeline: Make) -> Pipeline:
    made = make_pipeline(lanes=4)
    create_topic(broker.bootstrap, made.source.topic, 1)
    return made


def arrive(broker: Broker, pipeline: Pipeline, number: int, count: int = 5) -> None:
    """Records of that day."""
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, at(number)) for n in range(count)])


def publish_empty(pipeline: Pipeline, interval: Interval) -> StepResult:
    planned = plan_batch(pipeline, interval, allow_future=True)
    assert write_without_spark(pipeline, interval)
    assert validate_without_spark(pipeline, interval)
    assert advance_batch(pipeline, interval).state is State.PUBLISHED
    return planned


def offsets(pipeline: Pipeline, interval: Interval) -> list[tuple[int, int]]:
    return [(r.start, r.end) for r in latest(pipeline, interval).plan.ranges]


def test_an_interval_that_ends_in_the_future_is_refused_and_nothing_is_planned(pipeline: Pipeline) -> None:
    for interval in (FAR, Interval.of(day(1).start, utc_now() + timedelta(hours=1))):
        with pytest.raises(SettingsError, match=r"ends in the future.*--allow-future"):
            plan_batch(pipeline, interval)
    assert Ledger(pipeline).read().all() == []
    plan_batch(pipeline, FAR, allow_future=True)
    assert plan_batch(pipeline, FAR).changed is False, "a retry needs no flag"


def test_an_interval_behind_a_later_one_says_that_it_has_no_records_and_there_is_a_way_back(
    pipeline: Pipeline, broker: Broker
) -> None:
    assert "starved_by" not in publish_empty(pipeline, FAR).details
    arrive(broker, pipeline, 1)
    planned = plan_batch(pipeline, day(1))
    assert planned.details["offsets"] == 0
    assert planned.details["starved_by"] == str(latest(pipeline, FAR).id)
    assert f"fencepost withdraw {pipeline.name} --start 2834-01-01T00:00:00Z" in planned.message
    assert "starved_by" in plan_batch(pipeline, day(1)).details, "a retry says it too"

    withdraw_batch(pipeline, FAR, MISTAKE)
    assert withdraw_batch(pipeline, FAR, MISTAKE).changed is False
    arrive(broker, pipeline, 2, 3)
    assert plan_batch(pipeline, day(2)).details["offsets"] == 8, "the starved day's records are late, not lost"
    withdraw_batch(pipeline, day(2), MISTAKE)
    withdraw_batch(pipeline, day(1), MISTAKE)
    assert plan_batch(pipeline, day(1)).details["offsets"] == 5, "or they are planned again, in their order"
    assert latest(pipeline, day(1)).revision == 2
    assert plan_batch(pipeline, FAR, allow_future=True).details["offsets"] == 3


def test_the_frontier_goes_on_from_where_it_was(pipeline: Pipeline, broker: Broker) -> None:
    """It was counted from the interval that was withdrawn, which was planned first of all."""
    arrive(broker, pipeline, 1)
    publish_empty(pipeline, FAR)

    def frontier() -> dict[int, int]:
        return group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0])

    assert frontier() == {0: 5}
    withdraw_batch(pipeline, FAR, MISTAKE)
    arrive(broker, pipeline, 2, 3)
    for number, end in ((1, 5), (2, 8)):
        plan_batch(pipeline, day(number))
        skip_batch(pipeline, day(number), a_decision("skip"))
        assert frontier() == {0: end}
    assert [offsets(pipeline, day(n)) for n in (1, 2)] == [[(0, 5)], [(5, 8)]]


def test_what_would_be_lost_or_read_twice_is_not_withdrawn(pipeline: Pipeline, broker: Broker) -> None:
    arrive(broker, pipeline, 1)
    arrive(broker, pipeline, 2)
    for number in (1, 2):
        plan_batch(pipeline, day(number))
    with pytest.raises(TransitionRefused, match="begins where it ends"):
        withdraw_batch(pipeline, day(1), MISTAKE)
    skip_batch(pipeline, day(2), a_decision("skip"))
    with pytest.raises(TransitionRefused, match="another interval would read them again"):
        withdraw_batch(pipeline, day(2), MISTAKE)
    with pytest.raises(TransitionRefused, match="never planned"):
        withdraw_batch(pipeline, day(3), MISTAKE)
    assert [latest(pipeline, day(n)).state for n in (1, 2)] == [State.PLANNED, State.SKIPPED]


@pytest.mark.parametrize(("start", "end", "found"), [(1, 1960, 0), (1960, 1970, 0), (1969, 2026, 1), (1, 2026, 1)])
def test_an_interval_before_1970_has_the_records_there_are(
    pipeline: Pipeline, broker: Broker, start: int, end: int, found: int
) -> None:
    """Kafka takes negative timestamps for the names of offsets: -1 is the end, -2 the beginning."""
    old, new = (int(datetime(year, 6, 1, tzinfo=UTC).timestamp() * 1000) for year in (1970, 2026))
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, old), (b"k", {"n": 2}, 0, new)])
    interval = Interval.of(datetime(start, 1, 1, tzinfo=UTC), datetime(end, 1, 1, tzinfo=UTC))
    assert plan_batch(pipeline, interval).details["offsets"] == found
    assert latest(pipeline, interval).interval == interval, "the ledger's key can be read back"


def test_a_transform_or_suite_that_cannot_be_loaded_keeps_an_interval_from_being_planned(
    pipeline: Pipeline, make_pipeline: Make
) -> None:
    typo = "expectations:\n  - {type: expect_column_values_to_be_betwixt, kwargs: {column: n}}\n"
    for changes in ({"transform": "def transform(frame:\n"}, {"expectations": typo}):
        with pytest.raises(SettingsError, match=r"SyntaxError|betwixt"):
            plan_batch(make_pipeline(name=pipeline.name, lanes=4, **changes), day(1))
    assert Ledger(pipeline).read().all() == []
    plan_batch(make_pipeline(name=pipeline.name, lanes=4), day(1))
    Path(pipeline.expectations_file).write_text(typo)
    assert plan_batch(pipeline, day(1)).changed is False, "what is planned is found planned"


def test_a_partition_that_another_run_planned_meanwhile_is_read_once(
    pipeline: Pipeline, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that was slower has gathered all about one partition when the other plans on two, and gathers again."""
    topic = pipeline.source.topic
    arrive(broker, pipeline, 1)
    plan_batch(pipeline, day(1))
    gathered, before = plan_module.facts_of_plan, list[Neighbours]()

    def slowly(deployment: Deployment, near: Neighbours, *given: Any) -> PlanFacts:
        facts = gathered(deployment, near, *given)
        before.append(near)
        if len(before) == 1:
            deployment.cluster.grow_topic(deployment.cluster.describe(topic), 2)
            produce(broker.bootstrap, topic, [(b"k", {"n": n}, 1, at(2)) for n in range(3)])
            plan_batch(make_pipeline(name=pipeline.name, lanes=4), day(2))
        return facts

    monkeypatch.setattr(plan_module, "facts_of_plan", slowly)
    plan_batch(pipeline, day(3))
    assert [near.before and near.before.interval for near in before] == [day(1), day(1), day(2)]
    plan_batch(pipeline, day(4))
    assert [offsets(pipeline, day(n))[1:] for n in (2, 3, 4)] == [[(0, 3)], [(3, 3)], [(3, 3)]]


def test_a_batch_says_which_stretch_it_covers_besides_its_own_interval(pipeline: Pipeline, broker: Broker) -> None:
    """With `catchup: false` the intervals during which the DAG was paused are left out."""
    assert "also_covers" not in plan_batch(pipeline, day(1)).details, "nothing was planned before the first one"
    arrive(broker, pipeline, 1)
    arrive(broker, pipeline, 3)
    missed = Interval.of(day(2).start, day(3).end)
    planned = plan_batch(pipeline, day(4))
    assert (planned.details["offsets"], planned.details["also_covers"]) == (10, str(missed))
    assert (
        "It also covers 2026-01-02 00:00 to 2026-01-04 00:00 UTC, for which no interval was planned" in planned.message
    )
    assert plan_batch(pipeline, day(4)).details["also_covers"] == str(missed), "a retry says it too"

    assert plan_batch(pipeline, day(3)).details["starved_by"] == str(latest(pipeline, day(4)).id)
    assert latest(pipeline, day(3)).plan.also_covers is None, "it has no records"
    skip_batch(pipeline, day(4), a_decision("skip"))
    plan_batch(pipeline, day(4), reprocess=True)
    assert latest(pipeline, day(4)).plan.also_covers == missed, "a new revision has the same records"
    plan_batch(pipeline, day(5))
    assert latest(pipeline, day(5)).plan.also_covers is None, "it touches the one before"
