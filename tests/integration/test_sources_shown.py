"""A pipeline of two topics whose partitions have the same numbers: what status, trace, announcements, metrics and lineage say
of each.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

if "AIRFLOW_HOME" not in os.environ:  # Airflow makes it when it is first imported; never in the user's home
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="fencepost-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

from conftest import RULES, at, day
from fencepost.airflow import lineage, metrics
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.ledger.deployment import Deployment
from fencepost.model import Layout, State
from fencepost.preview.trace import TraceResult, check_source, location_of, trace_source
from fencepost.steps.plan import plan_batch
from fencepost.steps.run_interval import run_interval
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, delete_topic, produce, read_all
from steps import announced, latest, on_session, run

Make = Callable[..., Pipeline]

# The sources name their fields differently, so that a record is read only by the settings of its own.
UNION = """
def transform(north, south):
    renamed = south.selectExpr("_key", "_record", "id AS n", "label AS name")
    return north.select("_key", "_record", "n", "name").unionByName(renamed)
"""
NORTH = """
def transform(north):
    return north.select("_key", "_record", "n", "name")
"""


def sources_of(name: str) -> dict[str, Any]:
    return {
        "north": {"topic": f"{name}-north", "schema": {"n": "int", "name": "string"}, "on_malformed": "quarantine"},
        "south": {"topic": f"{name}-south", "schema": {"id": "int", "label": "string"}, "tombstones": "drop"},
    }


def two_regions(broker: Broker, make_pipeline: Make, name: str) -> Pipeline:
    """A pipeline, and a day's records: 3 of the north, of which one is malformed, and 4 of the south, with a tombstone."""
    pipeline = make_pipeline(UNION, RULES, name=name, sources=sources_of(name), quality={"quarantine_limit": "none"})
    create_topic(broker.bootstrap, f"{name}-north", 1)
    create_topic(broker.bootstrap, f"{name}-south", 2)
    north = [{"n": 1, "name": "a"}, {"n": 2, "name": "b"}, b"{"]
    produce(broker.bootstrap, f"{name}-north", [(b"k", value, 0, at(1, h)) for h, value in enumerate(north)])
    south = [{"id": 11, "label": "c"}, {"id": -12, "label": "d"}, None]
    records = [(b"k", value, 0, at(1, h)) for h, value in enumerate(south)]
    produce(broker.bootstrap, f"{name}-south", [*records, (b"l", {"id": 13, "label": "e"}, 1, at(1))])
    return pipeline


def traced(spark: Any, pipeline: Pipeline, place: str) -> TraceResult:
    deployment, found = Deployment.of(pipeline), location_of("--source", place)
    view = deployment.ledger.read()
    check_source(deployment, view, found)
    return trace_source(spark, deployment, view, found)


def rows_at(broker: Broker, pipeline: Pipeline, found: TraceResult) -> list[tuple[int, str]]:
    """The rows in the output at the locations that a trace has found."""
    records = {(r.partition, r.offset): r.json for r in read_all(broker.bootstrap, pipeline.output.name)}
    rows = [records[place.partition, place.offset] for place in found.rows]
    return [(row["n"], row["name"]) for row in rows]


def test_each_source_is_shown_by_its_topic(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = two_regions(broker, make_pipeline, "s1")
    steps = {
        one.step: one for one in run_interval(pipeline, day(1), lambda: spark, planned=plan_batch(pipeline, day(1)))
    }
    assert latest(pipeline, day(1)).state is State.PUBLISHED
    produce(broker.bootstrap, "s1-south", [(b"k", {"id": n, "label": "late"}, 1, at(2)) for n in range(5)])

    assert announced(pipeline, day(1))["sources"] == [
        {"topic": "s1-north", "ranges": {"0": [0, 3]}},
        {"topic": "s1-south", "ranges": {"0": [0, 3], "1": [0, 1]}},
    ]

    on_session(monkeypatch, spark, pipeline)
    told = json.loads(CliRunner().invoke(app, ["status", pipeline.name, "--json"], catch_exceptions=False).stdout)
    assert told["frontier"] == {"s1-north": {"0": 3}, "s1-south": {"0": 3, "1": 1}}
    assert told["lag"] == {"s1-north": {"0": 0}, "s1-south": {"0": 0, "1": 5}}
    (batch,) = told["batches"]
    assert batch["sources"] == {
        "s1-north": {"offsets": 3, "rows_in": 3},
        "s1-south": {"offsets": 4, "rows_in": 4},
    }
    monkeypatch.setenv("COLUMNS", "200")
    words = CliRunner().invoke(app, ["status", pipeline.name], catch_exceptions=False).stdout
    assert "frontier: s1-north 0:3; s1-south 0:3, 1:1   offsets behind: 5 (s1-north 0, s1-south 5)" in words

    sent = {
        (one.name, *one.tags.values()): one.value
        for one in metrics.of_step(pipeline, steps["advance"], 1.0, judged=False)
    }
    assert {name: value for name, value in sent.items() if "lag_records" in name[0]} == {
        ("lag_records",): 5,
        ("topic_lag_records", "s1-north"): 0,
        ("topic_lag_records", "s1-south"): 5,
    }
    (read_by_write,) = [
        one.value for one in metrics.of_step(pipeline, steps["write"], 1.0, judged=False) if one.name == "rows_read"
    ]
    assert read_by_write == 7, "both together, as before"

    place = f"kafka://{broker.bootstrap}"
    for step in ("write", "advance"):
        read = lineage.of_step(pipeline, day(1), steps[step], judged=False, finished=True)
        assert read is not None
        found = [(one.namespace, one.name, one.inputFacets["inputStatistics"].rowCount) for one in read.inputs]
        assert found == [(place, "s1-north", 3), (place, "s1-south", 4)]


def test_a_record_of_each_source_is_traced_by_the_settings_of_its_own(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0, offset 0 of both topics, and the rest of them."""
    pipeline = two_regions(broker, make_pipeline, "s2")
    run(spark, pipeline, day(1))
    north, south = (traced(spark, pipeline, f"s2-{region}:0:0") for region in ("north", "south"))
    assert (north.source, rows_at(broker, pipeline, north)) == ("sources.north", [(1, "a")])
    assert (south.source, rows_at(broker, pipeline, south)) == ("sources.south", [(11, "c")])
    assert traced(spark, pipeline, "s2-south:1:0").batches == north.batches == (latest(pipeline, day(1)),)

    malformed, rule = traced(spark, pipeline, "s2-north:0:2"), traced(spark, pipeline, "s2-south:0:1")
    assert ([one.rule for one in malformed.kept], malformed.rows) == (["malformed"], ())
    assert [one.rule for one in rule.kept] == ["expect_column_values_to_be_between(n)"]
    assert traced(spark, pipeline, "s2-south:0:2").found == (
        "It is a tombstone, and sources.south.tombstones: drop gives none to the transform.",
    )
    with pytest.raises(SettingsError, match="s2-east:0:0: pipeline s2 reads s2-north, s2-south, and not s2-east"):
        traced(spark, pipeline, "s2-east:0:0")

    on_session(monkeypatch, spark, pipeline)
    command = ["trace", pipeline.name, "--source", "s2-south:0:0"]
    shown = CliRunner().invoke(app, command, catch_exceptions=False).stdout.splitlines()
    assert shown[0] == "s2-south:0:0, sources.south"
    assert shown[2:4] == [
        "    from topic s2-north, partition 0: offsets 0 to 2",
        "    from topic s2-south, partition 0: offsets 0 to 2, partition 1: offsets 0 to 0",
    ]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False).stdout)
    assert (told["source"], len(told["rows"])) == ("sources.south", 1)


def test_a_source_that_left_is_traced_and_not_asked_about(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = two_regions(broker, make_pipeline, "s3")
    run(spark, both, day(1))
    kept = {"north": sources_of("s3")["north"]}
    pipeline = make_pipeline(NORTH, RULES, name="s3", sources=kept, quality={"quarantine_limit": "none"})
    produce(broker.bootstrap, "s3-north", [(b"k", {"n": 5, "name": "f"}, 0, at(2))])
    planned = plan_batch(pipeline, day(2), sources_changed=True)
    assert [*run_interval(pipeline, day(2), lambda: spark, planned=planned)][-1].state is State.PUBLISHED

    left = traced(spark, pipeline, "s3-south:0:0")
    assert (left.source, left.rows) == (None, ())
    assert [str(batch.id) for batch in left.batches] == [str(latest(pipeline, day(1)).id)]
    assert left.found == (
        "Which rows it became is not recorded, and cannot be found: the pipeline no longer reads topic s3-south.",
    )
    stays = traced(spark, pipeline, "s3-north:0:0")
    assert (stays.source, rows_at(broker, pipeline, stays)) == ("sources.north", [(1, "a")])

    delete_topic(broker.bootstrap, "s3-south")
    assert traced(spark, pipeline, "s3-south:0:0").found == left.found
    on_session(monkeypatch, spark, pipeline)
    told = json.loads(CliRunner().invoke(app, ["status", pipeline.name, "--json"], catch_exceptions=False).stdout)
    assert told["lag"] == {"s3-north": {"0": 0}}
    assert told["frontier"] == {"s3-north": {"0": 4}, "s3-south": {"0": 3, "1": 1}}
    assert [[*one["sources"]] for one in told["batches"]] == [["s3-north", "s3-south"], ["s3-north"]]
    assert [one["topic"] for one in announced(pipeline, day(2))["sources"]] == ["s3-north"]


def test_a_batch_that_was_planned_before_a_source_was_added_is_traced_with_it_empty(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = two_regions(broker, make_pipeline, "s4")
    first = make_pipeline(
        NORTH,
        RULES,
        name="s4",
        sources={"north": sources_of("s4")["north"]},
        quality={"quarantine_limit": "none"},
    )
    run(spark, first, day(1))
    pipeline = make_pipeline(UNION, RULES, name="s4", sources=sources_of("s4"), quality={"quarantine_limit": "none"})
    found = traced(spark, pipeline, "s4-north:0:1")
    assert (found.source, rows_at(broker, pipeline, found)) == ("sources.north", [(2, "b")])
    assert traced(spark, pipeline, "s4-south:0:0").found == (
        "No batch of this pipeline has read partition 0 of topic s4-south.",
    )
    read = latest(pipeline, day(1))
    assert (read.plan.layout, read.rows_read) == (Layout.SOURCE, {"s4-north": 3})
