"""A pipeline reads several topics: unions row by row, joins after a shuffle, and each source by its own settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from conftest import at, day
from envelopes import change
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.ledger import check_changed_sources
from fencepost.doctor.run_check import run_check
from fencepost.errors import SettingsError, SourcesChanged, TopicRecreated
from fencepost.findings import Level
from fencepost.model import Interval, State, WriteSummary
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, delete_topic, group_offsets, produce, read_all
from several_sources import ANY, JOIN, NUMBERS, OFF, UNION, fill, numbers, regions
from steps import latest, plan_and_write, replay, run

Make = Callable[..., Pipeline]

RULES = """
expectations:
  - {type: expect_column_values_to_be_between, severity: quarantine, kwargs: {column: n, min_value: 0}}
  - {type: expect_table_row_count_to_be_between, kwargs: {max_value: 1000}}
"""
NAMES = count(1)


def written(pipeline: Pipeline, interval: Interval) -> WriteSummary:
    return latest(pipeline, interval).require_written


def test_a_union_of_two_regions_is_written_once_and_each_region_is_counted(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Both regions have records at the same partitions and offsets. A record that fails withholds none of the other region."""
    pipeline = make_pipeline(UNION, RULES, name="u1", sources=regions("u1", on_malformed="quarantine"), quality=OFF)
    fill(broker, "u1-north", [*numbers(range(6)), {"n": -1, "name": "x"}])
    fill(broker, "u1-south", [*numbers(range(10, 14)), b"{"], partitions=3)
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    rows = Counter((r.json["region"], r.json["n"]) for r in read_all(broker.bootstrap, pipeline.output.name))
    assert rows == Counter([*(("u1-north", n) for n in range(6)), *(("u1-south", n) for n in range(10, 14))])
    found = batch.require_written.sources
    assert {topic: (one.rows_in, one.malformed) for topic, one in found.items()} == {
        "u1-north": (7, 0),
        "u1-south": (5, 1),
    }
    assert batch.require_written.quarantined == {"malformed": 1, "expect_column_values_to_be_between(n)": 1}
    assert group_offsets(broker.bootstrap, pipeline.group, "u1-north", [0, 1]) == {0: 4, 1: 3}
    assert group_offsets(broker.bootstrap, pipeline.group, "u1-south", [0, 1, 2]) == {0: 2, 1: 2, 2: 1}

    fixed = make_pipeline(
        UNION,
        RULES.replace("n, min_value: 0", "n, min_value: -5"),
        name="u1",
        sources=regions("u1", on_malformed="quarantine"),
        quality=OFF,
    )
    replay(spark, fixed, day(1))
    addition = latest(fixed, day(1))
    assert (addition.state, addition.require_written.rows) == (State.PUBLISHED, 1)
    assert addition.require_written.quarantined == {"malformed": 1}
    rows = Counter((r.json["region"], r.json["n"]) for r in read_all(broker.bootstrap, pipeline.output.name))
    assert rows[("u1-north", -1)] == 1
    assert sum(rows.values()) == 11


def test_a_join_has_each_pair_once_and_quarantines_rows_as_results(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    sources = {
        "orders": {"topic": "j1-orders", **NUMBERS, "on_malformed": "quarantine"},
        "payments": {"topic": "j1-payments", "schema": {"n": "int", "paid": "int"}, "on_malformed": "quarantine"},
    }
    kwargs: dict[str, Any] = {"name": "j1", "sources": sources, "quality": OFF, "output": {"layout": "output"}}
    pipeline = make_pipeline(JOIN, RULES, **kwargs)
    fill(broker, "j1-orders", [*numbers([1, 2, 3, -4]), b"no"])
    fill(broker, "j1-payments", [{"n": n, "paid": 10 * n} for n in (2, 3, 3, -4, 9)], partitions=1)
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    rows = sorted((r.json["n"], r.json["paid"]) for r in read_all(broker.bootstrap, pipeline.output.name))
    assert rows == [(2, 20), (3, 30), (3, 30)]
    assert batch.require_written.quarantined == {"malformed": 1, "expect_column_values_to_be_between(n)": 1}
    assert {t: one.rows_in for t, one in batch.require_written.sources.items()} == {"j1-orders": 5, "j1-payments": 5}

    (pipeline.folder / "expectations.yaml").write_text(RULES.replace("n, min_value: 0", "n, min_value: -5"))
    fixed = load_pipeline(pipeline.folder)
    replay(spark, fixed, day(1))
    addition = latest(fixed, day(1))
    assert (addition.state, addition.require_written.rows) == (State.PUBLISHED, 1)
    assert addition.require_written.quarantined == {"malformed": 1}, "kept, and not given to the transform alone"
    assert replay(spark, fixed, day(1)).message.startswith("nothing to replay: revision 2")


FIRST = """
def transform(north):
    return north.selectExpr("_key", "n", "_topic AS region")
"""
BOTH = """
def transform(north, south):
    return north.unionByName(south).selectExpr("_key", "n", "_topic AS region")
"""


def region_numbers(broker: Broker, topic: str) -> list[tuple[str, int]]:
    """The published rows of all days."""
    return sorted((r.json["region"].split("-")[1], r.json["n"]) for r in read_all(broker.bootstrap, topic))


def test_sources_come_leave_and_return_on_a_persons_word(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """South comes with day 2, is away on day 3 and 4, and returns with day 5. Its topic is not even there on day 4."""
    both = {region: {"topic": f"c1-{region}", **NUMBERS} for region in ("north", "south")}
    north = {"north": both["north"]}
    one = make_pipeline(FIRST, name="c1", sources=north)
    fill(broker, "c1-north", numbers([1]), 1)
    fill(broker, "c1-south", numbers([10]), 1)  # before the pipeline reads it
    run(spark, one, day(1))
    fill(broker, "c1-north", numbers([2]), 2)
    fill(broker, "c1-south", numbers([20]), 2)

    two = make_pipeline(BOTH, name="c1", sources=both)
    with pytest.raises(
        SourcesChanged, match=r"newest interval .* was planned with topic c1-north. Added: c1-south. Nothing was"
    ):
        plan_batch(two, day(2))
    (found,) = run_check(check_changed_sources, Inspection(two))
    assert (found.level, "Added: c1-south." in found.found) == (Level.ERROR, True)
    assert latest(two, day(1)).revision == 1
    planned = plan_batch(two, day(2), sources_changed=True)
    assert "1 offset of topic c1-south lies before the first range" in planned.message
    run(spark, two, day(2))
    assert [one.level for one in run_check(check_changed_sources, Inspection(two))] == [Level.OK]
    assert region_numbers(broker, "c1-out") == [("north", 1), ("north", 2), ("south", 20)]

    run(spark, two, day(1), reprocess=True)
    again = latest(two, day(1))
    assert (again.plan.source_topics, again.require_written.rows) == (("c1-north",), 1), "it sees south empty"

    fill(broker, "c1-north", numbers([3]), 3)
    fill(broker, "c1-south", numbers([30]), 3)
    plan_and_write(spark, two, day(3))
    alone = make_pipeline(FIRST, name="c1", sources=north)
    with pytest.raises(SourcesChanged, match=r"batch c1/.*/1 of an interval that reads topic c1-south is written"):
        plan_batch(alone, day(4), sources_changed=True)
    two = make_pipeline(BOTH, name="c1", sources=both)
    run(spark, two, day(3))
    fill(broker, "c1-north", numbers([4]), 4)
    fill(broker, "c1-south", numbers([40]), 4)
    alone = make_pipeline(FIRST, name="c1", sources=north)
    with pytest.raises(SourcesChanged, match="sources_changed of a backfill"):
        plan_batch(alone, day(4))
    plan_batch(alone, day(4), sources_changed=True)
    run(spark, alone, day(4))
    with pytest.raises(SourcesChanged, match="was planned with topic c1-south"):
        plan_batch(alone, day(3), reprocess=True)

    two = make_pipeline(BOTH, name="c1", sources=both)
    plan_batch(two, day(5), sources_changed=True)
    run(spark, two, day(5))
    found = [n for region, n in region_numbers(broker, "c1-out") if region == "south"]
    assert found == [20, 30, 40], "it goes on where it left"


def test_a_topic_that_left_may_be_deleted(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """Kafka refuses a commit of offsets of a topic that is gone."""
    both = {region: {"topic": f"d1-{region}", **NUMBERS} for region in ("north", "south")}
    two = make_pipeline(BOTH, name="d1", sources=both)
    fill(broker, "d1-north", numbers([1]), 1)
    fill(broker, "d1-south", numbers([10]), 1)
    run(spark, two, day(1))
    alone = make_pipeline(FIRST, name="d1", sources={"north": both["north"]})
    fill(broker, "d1-north", numbers([2]), 2)
    plan_batch(alone, day(2), sources_changed=True)
    delete_topic(broker.bootstrap, "d1-south")
    run(spark, alone, day(2))
    assert region_numbers(broker, "d1-out") == [("north", 1), ("north", 2), ("south", 10)]
    fill(broker, "d1-south", numbers([11]), 1)
    two = make_pipeline(BOTH, name="d1", sources=both)
    with pytest.raises(TopicRecreated, match="its source topic d1-south was deleted and created again"):
        plan_batch(two, day(3), sources_changed=True)


def test_another_topic_under_an_old_name_is_a_change_too(broker: Broker, make_pipeline: Make) -> None:
    right = make_pipeline(FIRST, name="w1", sources={"north": {"topic": "w1-north", **NUMBERS}})
    fill(broker, "w1-north", numbers([1]))
    fill(broker, "w1-other", numbers([1]))
    plan_batch(right, day(1))
    wrong = make_pipeline(FIRST, name="w1", sources={"north": {"topic": "w1-other", **NUMBERS}})
    with pytest.raises(
        SourcesChanged,
        match=r"reads topic w1-other, and batch w1/.*/1 of an interval that reads topic w1-north is planned",
    ):
        plan_batch(wrong, day(2))
    with pytest.raises(SourcesChanged, match="it reads source topic w1-north, which the pipeline no longer reads"):
        write_batch(None, wrong, day(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        ("SELECT _key, n FROM north", "does not read the view south, and sources.south in pipeline.yaml"),
        ("WITH s AS (SELECT * FROM south) SELECT _key, n FROM north", r"does not depend on sources.south \(topic"),
        ("SELECT _key, n FROM {source}", "selects from {source}, and pipeline.yaml has several sources"),
        ("SELECT _key, n FROM north UNION ALL SELECT _key, n FROM south", ""),
        ("SELECT _key, n FROM north WHERE n > (SELECT max(n) FROM south)", ""),
    ],
)
def test_a_source_that_the_transform_does_not_use_is_refused(
    spark: Any, broker: Broker, make_pipeline: Make, transform: str, says: str
) -> None:
    """Nothing would compute its records, and the write would wait for their counts for ever."""
    name = f"n{next(NAMES)}x"
    both = {region: {"topic": f"{name}-{region}", **NUMBERS} for region in ("north", "south")}
    pipeline = make_pipeline(transform, name=name, sources=both, output={"layout": "output"})
    for topic in (f"{name}-north", f"{name}-south"):
        fill(broker, topic, numbers([1, 2]))
    if says:
        with pytest.raises(SettingsError, match=says):
            plan_and_write(spark, pipeline, day(1))
        assert not read_all(broker.bootstrap, pipeline.staging_topic, committed=False)
        return
    plan_and_write(spark, pipeline, day(1))
    found = latest(pipeline, day(1)).require_written.sources
    assert {topic: one.rows_in for topic, one in found.items()} == {f"{name}-north": 2, f"{name}-south": 2}


def test_changes_of_a_database_are_joined_with_a_compacted_topic_that_is_a_side_table_too(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """The interval has the customers that were written in it; the side table has the newest of each key, of any time."""
    name = "changesjoined"
    sources = {
        "changes": {
            "topic": f"{name}-changes",
            "format": "json",
            "envelope": "debezium",
            "schema": {"id": "bigint", "name": "string"},
        },
        "customers": {
            "topic": f"{name}-customers",
            "schema": {"city": "string"},
            "key_format": "json",
            "key": {"id": "int"},
            "tombstones": "pass",
        },
    }
    tables = {
        "newest": {
            "topic": f"{name}-customers",
            "format": "json",
            "schema": {"city": "string"},
            "key_format": "json",
            "key_schema": {"id": "int"},
            "key": "_key_id",
        }
    }
    transform = """
        SELECT c.id, false AS _tombstone, c._op AS op, c.name, w.cities, w.removed, n.city AS newest
        FROM changes AS c
        LEFT JOIN (SELECT _key_id AS id, count(city) AS cities, count_if(city IS NULL) AS removed FROM customers GROUP BY 1) AS w
        ON c.id = w.id
        LEFT JOIN newest AS n ON c.id = n._key_id
    """
    pipeline = make_pipeline(
        transform, ANY, name=name, sources=sources, tables=tables, output={"layout": "output", "key": None}
    )
    create_topic(broker.bootstrap, f"{name}-changes", 2)
    create_topic(broker.bootstrap, f"{name}-customers", 2, **{"cleanup.policy": "compact"})

    def customer(number: int, city: str | None, when: int) -> Any:
        return (b'{"id":%d}' % number, {"city": city} if city else None, number % 2, at(when))

    produce(
        broker.bootstrap, f"{name}-customers", [customer(1, "Bern", 1), customer(1, "Thun", 1), customer(2, "Chur", 1)]
    )
    produce(broker.bootstrap, f"{name}-customers", [customer(2, None, 2), customer(3, "Zug", 2)])
    after = [
        (f"k{n}".encode(), change("c", after=json.dumps({"id": n, "name": f"c{n}"})).encode(), n % 2, at(1, n))
        for n in (1, 2, 3)
    ]
    produce(broker.bootstrap, f"{name}-changes", after)
    late = change("d", before=json.dumps({"id": 2, "name": "c2"}))
    produce(broker.bootstrap, f"{name}-changes", [(b"k2", late.encode(), 0, at(2)), (b"k2", None, 0, at(2, 1))])

    assert [run(spark, pipeline, day(number)).state for number in (1, 2)] == [State.PUBLISHED] * 2
    found = sorted((tuple(r.json.values()) for r in read_all(broker.bootstrap, pipeline.output.name)), key=str)
    assert found == [
        (1, "create", "c1", 2, 0, "Thun"),
        (2, "create", "c2", 1, 0, None),
        (2, "delete", "c2", 0, 1, None),
        (3, "create", "c3", None, None, "Zug"),
    ]
