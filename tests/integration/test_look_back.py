"""A transform gets records of earlier intervals again. A row belongs to the latest interval that consumed one of its records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import several_sources
from conftest import day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError, SourceDataExpired, TransformFailed, TransitionRefused
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.preview.trace import location_of, trace_source
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import newest, of_interval
from fencepost.steps.advance import skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost.testing.trial import Trials
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, read_all
from makers import a_decision
from several_sources import ANY
from steps import latest, on_session, plan_and_write, run

Make = Callable[..., Pipeline]
INPUTS = Path(__file__).parents[2] / "docs" / "inputs.md"

EXAMPLES = dict(re.findall(r"^### ([^\n]+)\n.*?```sql\n(.*?)```", INPUTS.read_text(), re.MULTILINE | re.DOTALL))
INNER = EXAMPLES["Each pair once"]
LEFT = EXAMPLES["Each order once, with the payment that is known by then"]
FIRST_OF_A_KEY = EXAMPLES["The first of a key"]
NEWEST = EXAMPLES["The newest state of a key"]
NAMES = count(1)


def make_sql(make_pipeline: Make, transform: str, sources: dict[str, Any], **changes: Any) -> Pipeline:
    name = changes.pop("name", f"lb{next(NAMES)}")
    topics = {source: {"topic": f"{name}-{source}", **settings} for source, settings in sources.items()}
    return make_pipeline(transform, ANY, name=name, sources=topics, output={"layout": "output"}, **changes)


def fill(broker: Broker, pipeline: Pipeline, number: int, **values: list[Any]) -> None:
    """Writes a day's records of each source, by the source's name."""
    for name, each in values.items():
        several_sources.fill(broker, pipeline.sources[name].topic, each, number)


def orders(*numbers: int) -> list[dict[str, int]]:
    return [{"n": n} for n in numbers]


def payments(*numbers: int) -> list[dict[str, int]]:
    return [{"n": n, "paid": 10 * n} for n in numbers]


def rows(broker: Broker, pipeline: Pipeline) -> list[tuple[int, ...]]:
    """All published rows, in the order of their values."""
    return sorted(tuple(r.json.values()) for r in read_all(broker.bootstrap, pipeline.output.name))


WEEK: dict[str, Any] = {"lookback": "7 days"}
N: dict[str, Any] = {"schema": {"n": "int"}}
PAID: dict[str, Any] = {"schema": {"n": "int", "paid": "int"}}


def test_an_inner_join_has_each_pair_once_whichever_side_comes_late(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_sql(make_pipeline, INNER, {"orders": {**N, **WEEK}, "payments": {**PAID, **WEEK}})
    fill(broker, pipeline, 1, orders=orders(1, 2, 3), payments=payments(1, 9))
    fill(broker, pipeline, 2, orders=orders(9), payments=payments(2))
    fill(broker, pipeline, 3, orders=orders(4), payments=payments(3, 4))
    found = []
    for number in (1, 2, 3):
        run(spark, pipeline, day(number))
        found.append(latest(pipeline, day(number)))
    assert rows(broker, pipeline) == [(1, 10), (2, 20), (3, 30), (4, 40), (9, 90)]
    assert [batch.require_written.rows for batch in found] == [1, 2, 2]
    assert [batch.require_written.rows_of_earlier for batch in found] == [0, 1, 3]
    orders_of = [batch.require_written.sources[pipeline.sources["orders"].topic] for batch in found]
    assert [(one.rows_in, one.looked_back) for one in orders_of] == [(3, 0), (1, 3), (1, 4)]
    assert [batch.plan.offsets_looked_back for batch in found] == [0, 5, 7]


def test_a_left_join_whose_left_side_does_not_look_back_adds_no_later_partner(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_sql(make_pipeline, LEFT, {"orders": N, "payments": {**PAID, **WEEK}})
    fill(broker, pipeline, 1, orders=orders(1, 2), payments=payments(1, 3))
    fill(broker, pipeline, 2, orders=orders(3), payments=payments(2))
    run(spark, pipeline, day(1))
    run(spark, pipeline, day(2))
    found = [(r.json["n"], r.json["paid"]) for r in read_all(broker.bootstrap, pipeline.output.name)]
    assert sorted(found, key=str) == [(1, 10), (2, None), (3, 30)]


def test_the_first_of_a_key_within_a_time_and_a_chain(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """With five days, the click of day 5 is suppressed by that of day 1, and that of day 10 by the suppressed one of day 5."""
    pipeline = make_sql(make_pipeline, FIRST_OF_A_KEY, {"clicks": {**N, "lookback": "5 days"}})
    fill(broker, pipeline, 1, clicks=orders(7))
    fill(broker, pipeline, 5, clicks=orders(7))
    fill(broker, pipeline, 10, clicks=orders(7, 8))
    fill(broker, pipeline, 16, clicks=orders(7))
    for number in range(1, 17):
        run(spark, pipeline, day(number))
    by_day = {n: latest(pipeline, day(n)).require_written.rows for n in (1, 5, 10, 16)}
    assert by_day == {1: 1, 5: 0, 10: 1, 16: 1}
    assert rows(broker, pipeline) == [(7,), (7,), (8,)]


def test_the_newest_state_of_a_key(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_sql(make_pipeline, NEWEST, {"clicks": {**N, **WEEK}})
    fill(broker, pipeline, 1, clicks=orders(7, 8, 7))
    fill(broker, pipeline, 2, clicks=orders(7, 9))
    run(spark, pipeline, day(1))
    run(spark, pipeline, day(2))
    assert rows(broker, pipeline) == [(7, 2), (7, 3), (8, 1), (9, 1)], "8 has no record on day 2"


def test_plans_decide_what_is_looked_back_at_whatever_became_of_the_batch(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """A skipped batch's records still count as partners, and malformed ones are left out, counted and kept nowhere again."""
    sources = {"orders": {**N, **WEEK, "on_malformed": "quarantine"}, "payments": {**PAID, **WEEK}}
    pipeline = make_sql(make_pipeline, INNER, sources, quality={"quarantine_limit": "none"})
    fill(broker, pipeline, 1, orders=[*orders(1, 2), b"{"], payments=payments(1))
    plan_and_write(spark, pipeline, day(1))
    skip_batch(pipeline, day(1), a_decision(action="skip"))
    fill(broker, pipeline, 2, orders=orders(3), payments=payments(2))
    run(spark, pipeline, day(2))
    second = latest(pipeline, day(2))
    assert rows(broker, pipeline) == [(2, 20)], "the pair of day 1 is never published; that of a skipped order is"
    found = second.require_written.sources[pipeline.sources["orders"].topic]
    assert (found.rows_in, found.malformed, found.looked_back, found.looked_back_malformed) == (1, 0, 3, 1)
    assert second.require_written.quarantined == {}
    ranges = second.plan.looked_back
    run(spark, pipeline, day(1), reprocess=True)
    run(spark, pipeline, day(2), reprocess=True)
    assert latest(pipeline, day(2)).plan.looked_back == ranges
    assert rows(broker, pipeline) == [(1, 10), (2, 20), (2, 20)]


def test_who_looked_back_at_a_record_and_what_was_made_without_one_that_became_readable(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third order of day 1 is too large for an int. A wider column makes it readable, after day 2 was made without it."""
    payments_too = {"payments": {"schema": {"n": "bigint", "paid": "bigint"}, **WEEK}}
    narrow = {"orders": {**N, **WEEK, "on_malformed": "drop"}, **payments_too}
    pipeline = make_sql(make_pipeline, INNER, narrow)
    fill(broker, pipeline, 1, orders=orders(1, 2, 3_000_000_000), payments=payments(1))
    fill(broker, pipeline, 2, orders=orders(4), payments=payments(2, 3_000_000_000))
    run(spark, pipeline, day(1))
    run(spark, pipeline, day(2))
    wide = {"orders": {"schema": {"n": "bigint"}, **WEEK}, **payments_too}
    pipeline = make_sql(make_pipeline, INNER, wide, name=pipeline.name)
    run(spark, pipeline, day(1), reprocess=True)

    topic = pipeline.sources["orders"].topic
    deployment, place = Deployment.of(pipeline), location_of("--source", f"{topic}:0:1")
    traced = trace_source(spark, deployment, deployment.ledger.read(), place)
    assert [batch.revision for batch in traced.batches] == [1, 2], "of day 1, which consumed it"
    assert [batch.interval for batch in traced.looked_back_by] == [day(2)]

    on_session(monkeypatch, spark, pipeline)
    told = json.loads(CliRunner().invoke(app, ["status", pipeline.name, "--json"], catch_exceptions=False).stdout)
    (without,) = told["made_without"]
    assert (without["topic"], without["records_of"]["start"]) == (topic, day(1).start.isoformat())
    assert [one["start"] for one in without["intervals"]] == [day(2).start.isoformat()]
    assert told["batches"][1]["sources"][topic] == {"offsets": 1, "rows_in": 1, "offsets_looked_back": 3}
    monkeypatch.setenv("COLUMNS", "250")
    words = CliRunner().invoke(app, ["status", pipeline.name], catch_exceptions=False).stdout
    assert f"made without records: 1 later interval was made without records of topic {topic}" in words
    second = latest(pipeline, day(2))
    place = next(part for part in second.published_ranges if part.length)
    asked = ["trace", pipeline.name, "--output", f"{place.topic}:{place.partition}:{place.start}"]
    words = CliRunner().invoke(app, asked, catch_exceptions=False).stdout
    assert f"looked back at topic {topic}, partition 0: offsets 0 to 1, partition 1: offsets 0 to 0" in words
    run(spark, pipeline, day(2), reprocess=True)
    assert (3_000_000_000, 30_000_000_000) in rows(broker, pipeline)
    told = json.loads(CliRunner().invoke(app, ["status", pipeline.name, "--json"], catch_exceptions=False).stdout)
    assert told["made_without"] == []


def test_an_interval_before_the_first_is_refused(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_sql(make_pipeline, INNER, {"orders": {**N, **WEEK}, "payments": {**PAID, **WEEK}})
    fill(broker, pipeline, 1, orders=orders(1), payments=payments(1))
    run(spark, pipeline, day(2))
    with pytest.raises(
        TransitionRefused, match=r"looks back, and the later interval .* was planned without the records"
    ):
        plan_batch(pipeline, day(1))


def test_looked_back_records_that_expired(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    sources = {"orders": {**N, **WEEK}, "payments": {**PAID, **WEEK}}
    pipeline = make_sql(make_pipeline, INNER, sources)
    topic = pipeline.sources["orders"].topic
    fill(broker, pipeline, 1, orders=orders(1, 2, 3, 4), payments=payments(9))
    run(spark, pipeline, day(1))
    fill(broker, pipeline, 2, orders=orders(5), payments=payments(1, 3, 5))
    plan_batch(pipeline, day(2))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    next(iter(admin.delete_records([TopicPartition(topic, 0, 1)]).values())).result()  # order 1
    with pytest.raises(
        SourceDataExpired, match=r"partition 0: offsets 0 to 0, which the batch looks back at.*lookback: \{for"
    ):
        write_batch(spark, pipeline, day(2))
    skips = {"orders": {**N, "lookback": {"for": "7 days", "on_expired": "skip"}}, "payments": {**PAID, **WEEK}}
    pipeline = make_sql(make_pipeline, INNER, skips, name=pipeline.name)
    run(spark, pipeline, day(2))
    batch = latest(pipeline, day(2))
    assert (batch.revision, batch.state) == (2, State.PUBLISHED)
    lost = [(p.partition, p.start, p.end) for one in batch.plan.looked_back for p in one.lost]
    assert lost == [(0, 0, 1)]
    assert rows(broker, pipeline) == [(3, 30), (5, 50)]
    said = f"without what had expired: topic {topic}, partition 0: offsets 0 to 0"
    assert said in plan_batch(pipeline, day(2), reprocess=True).message
    on_session(monkeypatch, spark, pipeline)
    monkeypatch.setenv("COLUMNS", "250")
    words = CliRunner().invoke(app, ["status", pipeline.name], catch_exceptions=False).stdout
    lost = f"{batch.id}. topic {topic}, partition 0: offsets 0 to 0."
    assert f"not looked back at, because it had expired: {lost}" in words
    told = json.loads(CliRunner().invoke(app, ["status", pipeline.name, "--json"], catch_exceptions=False).stdout)
    assert told["batches"][1]["sources"][topic] == {
        "offsets": 1,
        "rows_in": 1,
        "offsets_looked_back": 3,
        "offsets_not_looked_back": 1,
    }


@pytest.mark.parametrize(
    ("transform", "error", "says"),
    [
        (
            INNER.replace(" AS _lookback", " AS late"),
            SettingsError,
            "has no column _lookback, and sources.orders looks back",
        ),
        (
            INNER.replace("o._lookback AND p._lookback AS", "o._lookback, p._lookback AS"),
            SettingsError,
            "has 2 columns _lookback",
        ),
        (INNER.replace("o._lookback AND p._lookback", "1"), SettingsError, "has a int in column _lookback"),
        (LEFT.replace("o._lookback", "p._lookback"), TransformFailed, "a row of its result has null in _lookback"),
    ],
)
def test_a_result_says_of_each_row_whether_it_is_an_earlier_one(
    spark: Any, broker: Broker, make_pipeline: Make, transform: str, error: type[Exception], says: str
) -> None:
    pipeline = make_sql(make_pipeline, transform, {"orders": {**N, **WEEK}, "payments": {**PAID, **WEEK}})
    fill(broker, pipeline, 1, orders=orders(1), payments=payments(2))
    plan_batch(pipeline, day(1))
    with pytest.raises(error, match=says):
        write_batch(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PLANNED


def test_a_look_back_that_is_longer_than_retention_is_refused(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_sql(make_pipeline, FIRST_OF_A_KEY, {"clicks": {**N, **WEEK}})
    create_topic(broker.bootstrap, pipeline.sources["clicks"].topic, 1, **{"retention.ms": str(3 * 86_400_000)})
    says = r"sources.clicks looks back 7 days, and topic lb\d+-clicks keeps records for 3 days \(retention.ms\)"
    with pytest.raises(SettingsError, match=says):
        plan_batch(pipeline, day(1))


def test_a_test_gives_records_of_earlier_intervals_too(spark: Any, make_pipeline: Make) -> None:
    pipeline = make_sql(make_pipeline, INNER, {"orders": {**N, **WEEK}, "payments": {**PAID, **WEEK}})
    early: dict[str, Any] = {"_lookback": True}
    given = {
        "orders": [{"n": 1, **early}, {"n": 2}, {"n": 3, **early}],
        "payments": [{"n": 1, "paid": 10, **early}, {"n": 2, "paid": 20, **early}, {"n": 3, "paid": 30}],
    }
    with Trials() as run_on_rows:
        assert run_on_rows(pipeline.folder, given).rows == [{"n": 2, "paid": 20}, {"n": 3, "paid": 30}]
        left = make_sql(make_pipeline, LEFT, {"orders": N, "payments": {**PAID, **WEEK}})
        with pytest.raises(SettingsError, match=r"source orders, row 1: _lookback is for a source that looks back"):
            run_on_rows(left.folder, {"orders": [{"n": 1}, {"n": 2, **early}], "payments": []})
        silent = make_sql(
            make_pipeline, LEFT.replace("o._look", "p._look"), {"orders": N, "payments": {**PAID, **WEEK}}
        )
        with pytest.raises(TransformFailed, match=r"transform.sql: a row of its result has null in _lookback"):
            run_on_rows(silent.folder, {"orders": [{"n": 1}], "payments": []})


def test_a_trial_says_of_a_null_in_lookback_what_a_run_would_say(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    silent = LEFT.replace("o._lookback", "p._lookback")
    pipeline = make_sql(make_pipeline, silent, {"orders": {**N, **WEEK}, "payments": {**PAID, **WEEK}})
    fill(broker, pipeline, 1, orders=orders(1), payments=payments(2))
    deployment = Deployment.of(pipeline)
    with pytest.raises(TransformFailed, match=r"transform.sql: a row of its result has null in _lookback"):
        try_pipeline(spark, deployment, of_interval(deployment, day(1)))


def test_a_trial_of_an_interval_looks_back(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_sql(make_pipeline, INNER, {"orders": {**N, **WEEK}, "payments": {**PAID, **WEEK}})
    fill(broker, pipeline, 1, orders=orders(1, 2), payments=payments(1))
    fill(broker, pipeline, 2, orders=orders(3), payments=payments(2, 3))
    run(spark, pipeline, day(1))
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, of_interval(deployment, day(2)))
    assert (trial.verdict, trial.written) == ("would pass", 2)
    assert {topic: one.read for topic, one in trial.sources.items()} == {
        pipeline.sources["orders"].topic: 1,
        pipeline.sources["payments"].topic: 2,
    }
    topics = [one.topic for one in pipeline.sources.values()]
    said = f"2 offsets of topic {topics[0]} and 1 offset of topic {topics[1]}"
    assert f"The transform also gets {said}, which earlier intervals consumed." in trial.remarks
    sample = try_pipeline(spark, deployment, newest(deployment, 10))
    assert any("A sample looks back at nothing." in remark for remark in sample.remarks)
