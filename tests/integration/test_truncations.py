"""A truncation of the source table: beside a current table it fails its batch by name, unless the settings drop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import at, day
from envelopes import POSTGRES, change, wrapped
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.errors import TruncationsRefused
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.output import output_of
from fencepost.outputs.postgres.doctor import check_current_table
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import newest
from fencepost.steps.advance import advance_batch
from fencepost.steps.validate import validate_batch
from fencepost.testing.trial import Trials
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, produce, read_all
from steps import latest, plan_and_write, run
from tables import ask, store_of

Make = Callable[..., Pipeline]
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
ROWS = """
def transform(frame):
    return frame.selectExpr("id", "name", "_op = 'delete' AS gone", "_offset AS pos")
"""
ONE_ROW = ROWS.replace("frame.select", "frame.limit(1).select")  # the job stops before it has read the truncation
CURRENT = {"table": "newest", "key": ["id"], "order_by": ["fencepost_interval", "pos"], "deleted": "gone"}
SOURCE: dict[str, Any] = {"schema": {"id": "bigint not null", "name": "string"}, "envelope": "debezium"}
FAILS = "source.truncations is fail, the default with output.current"


def created(number: int) -> tuple[bytes | None, str]:
    return b'{"id":%d}' % number, change("c", after=f'{{"id":{number},"name":"n{number}"}}')


# By offset, in one partition. The truncation of the other table is not one of this table.
RECORDS = [
    created(1),
    created(2),
    (None, change("t")),
    (None, change("t", source=POSTGRES.replace('"orders"', '"others"'))),
    created(3),
    (None, wrapped(change("t"))),
]


def fill(broker: Broker, pipeline: Pipeline) -> None:
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    records = [(key, value.encode(), 0, at(1, n)) for n, (key, value) in enumerate(RECORDS)]
    produce(broker.bootstrap, pipeline.source.topic, records)


@pytest.mark.parametrize(("layout", "transform"), [("source", ROWS), ("output", ROWS), ("output", ONE_ROW)])
def test_beside_a_current_table_a_truncation_fails_its_batch_by_name_until_the_settings_drop_it(
    spark: Any, broker: Broker, make_table: Make, layout: str, transform: str
) -> None:
    """Each attempt says the same, and so does `try`. Dropped ones are counted, and the removed rows stay."""
    source = {**SOURCE, "table": "public.orders"}
    output = {"current": CURRENT, "layout": layout}
    pipeline = make_table(transform, SUITE, source=source, output=output)
    fill(broker, pipeline)
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, newest(deployment, 100))
    assert trial.stops == (f"2 records are truncations of the source table, and {FAILS} (first at 0:2)",)
    assert not trial.passes
    for _ in range(2):
        with pytest.raises(TruncationsRefused) as refused:
            plan_and_write(spark, pipeline, day(1))
        assert str(refused.value) == (
            f"batch {latest(pipeline, day(1)).id}: 2 of 6 records of topic {pipeline.source.topic} are truncations of the "
            f"source table, and {FAILS}; partition:offset of the first: 0:2, 0:5. A truncation does not say which rows it "
            "removed, so current table public.newest would keep them. No offset moved. Set source.truncations in "
            "pipeline.yaml to drop, which leaves them out and counts them. The current table then keeps these rows until "
            "the topic has their deletions."
        )
    if transform is ROWS:
        assert read_all(broker.bootstrap, pipeline.staging_topic) == [], "no task-partition with a truncation commits"
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0]) == {}
    revision = latest(pipeline, day(1)).revision

    dropping = make_table(
        transform,
        SUITE,
        name=pipeline.name,
        source={**source, "truncations": "drop"},
        output=output,
        postgres=store_of(pipeline),
    )
    trial = try_pipeline(spark, Deployment.of(dropping), newest(deployment, 100))
    assert (trial.stops, trial.passes) == ((), True)
    assert run(spark, dropping, day(1)).state is State.PUBLISHED
    batch = latest(dropping, day(1))
    assert batch.revision == revision, "it decides no record, so the batch continues"
    assert batch.written is not None
    assert batch.written.excluded == {"other_tables": 1, "truncations": 2}
    found = ask(dropping, "select id, name, pos from newest order by id")
    assert found == ([(1, "n1", 0)] if transform is ONE_ROW else [(1, "n1", 0), (2, "n2", 1), (3, "n3", 4)])


def test_a_batch_that_was_written_before_the_current_table_was_added_is_not_published_to_it(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table(ROWS, SUITE, source=SOURCE)
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    settings: dict[str, Any] = {"output": {"current": CURRENT}, "postgres": store_of(pipeline), "name": pipeline.name}
    with pytest.raises(TruncationsRefused) as refused:
        advance_batch(make_table(ROWS, SUITE, source=SOURCE, **settings), day(1))
    batch = latest(pipeline, day(1))
    assert str(refused.value).startswith(
        f"batch {batch.id}: it left out 3 truncations of the source table, and {FAILS}. A truncation does not say"
    )
    assert batch.state is State.WRITTEN
    dropping = make_table(ROWS, SUITE, source={**SOURCE, "truncations": "drop"}, **settings)
    assert advance_batch(dropping, day(1)).state is State.PUBLISHED
    assert ask(pipeline, "select id from newest order by id") == [(1,), (2,), (3,)]


def test_of_a_truncation_that_was_published_before_doctor_and_rebuild_say_that_its_rows_may_be_there(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    """A table of changes may have truncations behind it. Whoever drops them says that the rows stay."""
    pipeline = make_table(ROWS, SUITE, source=SOURCE)
    fill(broker, pipeline)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED, "without a current table they are counted"
    ask(pipeline, "create index on numbers (id, fencepost_interval, pos)")
    settings: dict[str, Any] = {"output": {"current": CURRENT}, "postgres": store_of(pipeline), "name": pipeline.name}
    asking = make_table(ROWS, SUITE, source=SOURCE, **settings)
    deployment = Deployment.of(asking)
    current = output_of(deployment).current
    assert current is not None
    with pytest.raises(TruncationsRefused) as refused:
        current.rebuild(deployment.ledger.read)
    why = (
        "a truncation of the source table is in 1 published interval, the last of them 20260101T000000Z-20260102T000000Z, "
        f"and {FAILS}: the output table has no deletions of the rows that it removed"
    )
    assert str(refused.value) == (
        f"pipeline {pipeline.name}: current table public.newest cannot be computed: {why}. Set source.truncations to drop in "
        "pipeline.yaml to keep these rows until the topic has their deletions."
    )
    dropping = make_table(ROWS, SUITE, source={**SOURCE, "truncations": "drop"}, **settings)
    current = output_of(Deployment.of(dropping)).current
    assert current is not None
    assert current.rebuild(deployment.ledger.read).endswith("0 deleted, 3 changed, 0 as before")
    assert [one.level for one in run_check(check_current_table, Inspection(dropping))] == ["ok"]
    (warned,) = run_check(check_current_table, Inspection(asking))
    assert (warned.level, warned.found) == (
        "warning",
        f"Current table public.newest may have rows that the source table no longer has: {why}.",
    )


def test_a_topic_has_truncations_refused_only_if_the_settings_say_so(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    failing = make_pipeline(ROWS, SUITE, source={**SOURCE, "truncations": "fail"}, output={"key": None})
    fill(broker, failing)
    with pytest.raises(TruncationsRefused) as refused:
        plan_and_write(spark, failing, day(1))
    assert str(refused.value).endswith(
        f"3 of 6 records of topic {failing.source.topic} are truncations of the source table, and source.truncations is fail; "
        "partition:offset of the first: 0:2, 0:3, 0:5. No offset moved. Set source.truncations in pipeline.yaml to drop, "
        "which leaves them out and counts them."
    )
    counting = make_pipeline(ROWS, SUITE, name=failing.name, source=SOURCE, output={"key": None})
    assert run(spark, counting, day(1)).state is State.PUBLISHED
    assert sorted(r.json["id"] for r in read_all(broker.bootstrap, counting.output.topic)) == [1, 2, 3]


def test_tests_of_a_transform_refuse_a_truncation_as_a_run_does(make_table: Make) -> None:
    rows = [{"id": 1, "name": "one"}, {"_value": change("t").encode()}]
    with Trials() as trials:
        with pytest.raises(TruncationsRefused) as refused:
            trials(make_table(ROWS, SUITE, source=SOURCE, output={"current": CURRENT}).folder, rows)
        assert str(refused.value) == (
            f"row 1: a truncation of the source table, and {FAILS}: a run would fail. Set it to drop."
        )
        outcome = trials(make_table(ROWS, SUITE, source=SOURCE).folder, rows)
    assert (len(outcome.rows), outcome.excluded) == (1, {"truncations": 1})
