"""`try`, `trace`, `schema` and the doctor look up what a run then looks up, and write nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.doctor.topics import check_table_topics
from fencepost.errors import SettingsError, SideTableRefused
from fencepost.findings import Level
from fencepost.ledger.deployment import Deployment
from fencepost.preview.trace import location_of, trace_source
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import newest
from fencepost.schemas.report import report_schemas
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from registry_tools import SchemaRegistry
from steps import latest, run

Make = Callable[..., Pipeline]
LOOKS_UP = """
def transform(source, airlines, ranks):
    named = source.join(airlines, source.name == airlines.carrier, "left")
    return named.join(ranks, named.name == ranks.code, "left").select(named._key, named.n, airlines.title, ranks.rank)
"""
SUITE = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: title}}]"
AIRLINES = {"file": "airlines.csv", "key": "carrier", "schema": {"carrier": "string", "title": "string"}}
TITLES = "carrier,title\nAA,American\nUA,United\n"


@pytest.fixture
def pipeline(broker: Broker, make_pipeline: Make) -> Pipeline:
    """A pipeline with a file and a topic as side tables, and two records."""
    ranks = {"schema": {"code": "string", "rank": "int"}, "key": "code"}
    made = make_pipeline(LOOKS_UP, SUITE, tables={"airlines": AIRLINES, "ranks": {"topic": "ranks", **ranks}})
    topic = f"{made.name}-ranks"
    made = make_pipeline(
        LOOKS_UP, SUITE, name=made.name, tables={"airlines": AIRLINES, "ranks": {"topic": topic, **ranks}}
    )
    (made.folder / "airlines.csv").write_text(TITLES)
    create_topic(broker.bootstrap, topic, 2, **{"cleanup.policy": "compact"})
    produce(
        broker.bootstrap,
        topic,
        [
            (b"a", {"code": "UA", "rank": 3}, 0, at(1)),
            (b"b", {"code": "AA", "rank": 1}, 1, at(1)),
            (b"a", {"code": "UA", "rank": 2}, 0, at(1)),
        ],
    )
    create_topic(broker.bootstrap, made.source.topic, 1)
    produce(
        broker.bootstrap,
        made.source.topic,
        [(b"k", {"n": 1, "name": "UA"}, 0, at(1)), (b"l", {"n": 2, "name": "AA"}, 0, at(1))],
    )
    return made


def test_a_trial_looks_up_what_the_run_then_looks_up_and_names_the_states(
    spark: Any, broker: Broker, pipeline: Pipeline
) -> None:
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, newest(deployment, 10))
    assert trial.passes
    assert trial.rows == (
        {"n": "1", "title": "United", "rank": "2"},
        {"n": "2", "title": "American", "rank": "1"},
    )
    assert [(state.name, state.rows) for state in trial.tables] == [("airlines", 2), ("ranks", 2)]
    assert trial.tables[0].offsets is None
    assert trial.tables[1].offsets is not None
    assert (trial.tables[1].offsets.topic, trial.tables[1].offsets.ends) == (f"{pipeline.name}-ranks", (2, 1))
    run(spark, pipeline, day(1))
    recorded = latest(pipeline, day(1)).plan.tables
    assert [(one.name, one.fingerprint) for one in recorded] == [(one.name, one.fingerprint) for one in trial.tables]
    rows = [one.json for one in read_all(broker.bootstrap, pipeline.output.topic)]
    assert sorted(rows, key=lambda row: row["n"]) == [
        {"n": 1, "title": "United", "rank": 2},
        {"n": 2, "title": "American", "rank": 1},
    ]


def test_the_command_shows_each_table_and_a_refused_one_is_an_error(
    spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    monkeypatch.setenv("COLUMNS", "140")
    shared = SimpleNamespace(newSession=spark.newSession, stop=lambda: None)
    monkeypatch.setattr("fencepost.spark.session.build_session", lambda *_: shared)

    def tried(*options: str) -> Any:
        return CliRunner().invoke(app, ["try", pipeline.name, *options], catch_exceptions=False)

    plain = json.loads(tried("--json").stdout)["tables"]
    assert [(one["name"], one["rows"]) for one in plain] == [("airlines", 2), ("ranks", 2)]
    assert plain[1]["offsets"]["ends"] == [2, 1]
    assert "value_schema" not in plain[0]
    shown = tried().stdout
    assert "file airlines.csv" in shown
    assert f"topic {pipeline.name}-ranks" in shown
    assert "0:2 1:1" in shown
    assert plain[0]["fingerprint"][:8] in shown
    (pipeline.folder / "airlines.csv").write_text(f"{TITLES}UA,Twice\n")
    with pytest.raises(SideTableRefused, match=r"side table airlines, file airlines\.csv: the key \(carrier\) is not"):
        tried()
    (pipeline.folder / "airlines.csv").unlink()
    with pytest.raises(SettingsError, match=r"side table airlines: .*airlines\.csv: does not exist"):
        tried()
    with pytest.raises(SettingsError, match=r"side table airlines: .*airlines\.csv: does not exist"):
        plan_batch(pipeline, day(1))
    assert Deployment.of(pipeline).ledger.peek().all() == []


def test_a_trace_says_which_side_tables_have_changed_since(spark: Any, pipeline: Pipeline) -> None:
    run(spark, pipeline, day(1))

    def traced() -> Any:
        deployment = Deployment.of(pipeline)
        place = location_of("--source", f"{pipeline.source.topic}:0:0")
        return trace_source(spark, deployment, deployment.ledger.read(), place)

    before = traced()
    assert len(before.rows) == 1
    assert before.found == (
        "Which rows it became is not recorded. These rows are equal to what today's transform makes from it.",
    )
    (pipeline.folder / "airlines.csv").write_text(TITLES.replace("American", "American Airlines"))
    other_row = traced()
    assert other_row.rows == before.rows
    assert other_row.found == (
        "Which rows it became is not recorded. These rows are equal to what today's transform makes from it. Since the "
        "batch was written, side table airlines has changed.",
    )
    (pipeline.folder / "airlines.csv").write_text(TITLES.replace("United", "United Airlines"))
    assert traced().found == (
        "Today's transform makes 1 row from it, and the batch has none of these rows. Since the batch was written, "
        "side table airlines has changed.",
    )


def test_the_schema_command_gives_the_transform_its_side_tables(
    spark: Any, broker: Broker, make_pipeline: Make, schema_registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their types decide those of the result."""
    pipeline = make_pipeline(
        "def transform(source, sizes):\n    return source.join(sizes, 'n', 'left').select('_key', 'size')\n",
        tables={"sizes": {"file": "sizes.jsonl", "key": "n", "schema": {"n": "int", "size": "double"}}},
        output={"format": "avro"},
        schema_registry={"url": schema_registry.url, "auto_register": True},
    )
    (pipeline.folder / "sizes.jsonl").write_text('{"n": 1, "size": 2.5}\n')
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    monkeypatch.setattr("fencepost.spark.session.build_session", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    done = CliRunner().invoke(app, ["schema", pipeline.name, "--json"], catch_exceptions=False)
    (part,) = json.loads(done.stdout)["parts"]
    assert part["gives"] == "struct<size:double>"
    with pytest.raises(SettingsError, match="transform"):
        report_schemas(spark, pipeline)


def test_the_doctor_names_a_topic_that_is_empty_or_missing_or_not_compacted(
    broker: Broker, make_pipeline: Make
) -> None:
    made = make_pipeline()
    topic = f"{made.name}-ranks"
    ranks = {"topic": topic, "schema": {"code": "string"}, "key": "code"}
    pipeline = make_pipeline(
        "def transform(source, ranks):\n    return source\n", name=made.name, tables={"ranks": ranks}
    )

    def found() -> list[tuple[Level, str]]:
        return [(one.level, one.found) for one in run_check(check_table_topics, Inspection(pipeline))]

    ((level, said),) = found()
    assert (level, topic in said) == (Level.ERROR, True)
    create_topic(broker.bootstrap, topic, 1)
    empty, deleted = found()
    assert empty == (Level.ERROR, f"Topic {topic} of side table ranks has no records, so a run would fail.")
    assert deleted[0] is Level.WARNING
    assert "cleanup.policy=delete" in deleted[1]
    produce(broker.bootstrap, topic, [(b"a", {"code": "UA"}, 0, at(1))])
    assert [level for level, _ in found()] == [Level.WARNING]
