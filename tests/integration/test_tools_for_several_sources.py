"""The tools of a pipeline's author know each of several sources: `try`, the fixture, `schema` and the doctor, and `new`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.fields import check_source_fields
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.drafting.connection import connection_of
from fencepost.drafting.draft import Draft, draft_pipeline
from fencepost.drafting.draft_request import DraftRequest
from fencepost.errors import SettingsError, SourcesChanged, TombstonesRefused
from fencepost.findings import Level
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import newest, of_interval
from fencepost.testing.trial import Quarantined, Trials
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import produce, read_all
from registry_tools import framed, register
from several_sources import JOIN, NUMBERS, OFF, UNION, fill, numbers, regions
from steps import latest, run

Make = Callable[..., Pipeline]
New = Callable[..., Draft]

RULES = """
expectations:
  - {type: expect_column_values_to_be_between, severity: quarantine, kwargs: {column: n, min_value: 0}}
"""


def orders_and_payments(name: str, **changes: Any) -> dict[str, Any]:
    payments = {"topic": f"{name}-payments", "schema": {"n": "int", "paid": "int"}}
    return {"orders": {"topic": f"{name}-orders", **NUMBERS, **changes}, "payments": payments | changes}


def in_sql(pipeline: Pipeline, sql: str) -> Pipeline:
    """The pipeline with this transform in SQL."""
    (pipeline.folder / "transform.py").unlink()
    (pipeline.folder / "transform.sql").write_text(sql)
    return load_pipeline(pipeline.folder)


# try


def test_a_trial_of_a_union_counts_each_source_as_the_run_does(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    sources = regions("tu", on_malformed="quarantine", tombstones="drop")
    pipeline = make_pipeline(UNION, RULES, name="tu", sources=sources, quality=OFF)
    fill(broker, "tu-north", [*numbers(range(6)), {"n": -1, "name": "x"}])
    fill(broker, "tu-south", [*numbers(range(10, 14)), b"{", None, b"["], partitions=3)
    deployment = Deployment.of(pipeline)
    looked = of_interval(deployment, day(1))
    assert (looked.whole, looked.frozen, looked.refused) == (True, False, "")
    trial = try_pipeline(spark, deployment, looked)
    assert (trial.read, trial.malformed, trial.written, trial.stops) == (14, 2, 10, ())
    counted = {topic: (one.read, one.malformed, one.refused_tombstones) for topic, one in trial.sources.items()}
    assert counted == {"tu-north": (7, 0, 0), "tu-south": (7, 2, 1)}
    assert Counter({(one.topic, one.name): one.rows for one in trial.unpublished if one.topic != "tu-south"}) == {
        ("", "expect_column_values_to_be_between(n)"): 1
    }
    assert sum(one.rows for one in trial.unpublished if one.topic == "tu-south") == 3
    run(spark, pipeline, day(1))
    written = latest(pipeline, day(1)).require_written
    assert written.rows == trial.written
    assert counted == {t: (one.rows_in, one.malformed, one.tombstones) for t, one in written.sources.items()}


def test_a_trial_names_the_source_whose_records_would_fail_a_run(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    sources = orders_and_payments("tf")
    sources["payments"]["tombstones"] = "drop"
    pipeline = in_sql(make_pipeline(name="tf", sources=sources, output={"layout": "output"}), JOIN)
    fill(broker, "tf-orders", [*numbers([1, 2]), None], partitions=1)
    fill(broker, "tf-payments", [{"n": 2, "paid": 20}, b"no", None], partitions=1)
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, of_interval(deployment, day(1)))
    assert (trial.written, trial.rows) == (1, ({"n": "2", "name": "x", "paid": "20"},))
    tombstone, malformed = trial.stops
    assert tombstone == (
        "1 record of topic tf-orders is a tombstone, and sources.orders.tombstones is fail (first at 0:2)"
    )
    assert malformed.startswith(
        "1 record of topic tf-payments is malformed, and sources.payments.on_malformed is fail: "
    )


def test_a_trial_of_the_newest_reads_as_many_of_each_source(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(name="tn", sources=orders_and_payments("tn"), output={"layout": "output"})
    pipeline = in_sql(pipeline, JOIN)
    fill(broker, "tn-orders", numbers(range(40)), partitions=1)
    fill(broker, "tn-payments", [{"n": n, "paid": n} for n in range(30, 33)], partitions=1)
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, newest(deployment, 8))
    assert {topic: one.read for topic, one in trial.sources.items()} == {"tn-orders": 8, "tn-payments": 3}
    assert trial.written == 1, "32 alone is among the newest of both"
    assert "Aggregates and joins are partial: they have only the sampled records." in trial.remarks


def test_a_trial_reads_the_sources_of_the_interval_and_says_what_a_changed_source_needs(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Day 1 was planned with the north alone. The south has records of day 1, which belong to no batch."""
    south = {"topic": "tc-south", **NUMBERS}
    north_alone = 'def transform(north):\n    return north.selectExpr("_key", "n", "name", "_topic AS region")\n'
    one = make_pipeline(north_alone, name="tc", sources={"north": regions("tc")["north"]})
    fill(broker, "tc-north", numbers(range(3)))
    fill(broker, "tc-north", numbers(range(5)), 2)
    run(spark, one, day(1))
    fill(broker, "tc-south", numbers(range(7)))
    fill(broker, "tc-south", numbers(range(2)), 2)
    both = make_pipeline(UNION, RULES, name="tc", sources={**regions("tc"), "south": south})
    deployment = Deployment.of(both)
    planned = of_interval(deployment, day(1))
    assert (planned.frozen, planned.whole, {part.topic for part in planned.ranges}) == (True, True, {"tc-north"})
    trial = try_pipeline(spark, deployment, planned)
    assert {topic: one.read for topic, one in trial.sources.items()} == {"tc-north": 3, "tc-south": 0}
    assert (trial.written, trial.stops) == (3, ())

    following = of_interval(deployment, day(2))
    trial = try_pipeline(spark, deployment, following)
    assert {topic: one.read for topic, one in trial.sources.items()} == {"tc-north": 5, "tc-south": 2}
    assert trial.written == 7
    (stop,) = trial.stops
    assert "--sources-changed" in stop
    assert not trial.passes
    south_alone = north_alone.replace("north", "south")
    other = make_pipeline(south_alone, name="tc", sources={"south": south})
    with pytest.raises(SourcesChanged, match="was planned with topic tc-north"):
        of_interval(Deployment.of(other), day(1))


def test_the_command_shows_each_source_by_its_topic(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = regions("tj", on_malformed="quarantine")
    pipeline = make_pipeline(UNION, RULES, name="tj", sources=sources, quality=OFF)
    fill(broker, "tj-north", numbers(range(3)))
    fill(broker, "tj-south", [*numbers(range(2)), b"{"])
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    monkeypatch.setenv("COLUMNS", "200")
    shared = SimpleNamespace(newSession=spark.newSession, stop=lambda: None)
    monkeypatch.setattr("fencepost.spark.session.build_session", lambda *_: shared)
    shown = CliRunner().invoke(app, ["try", "tj"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "3 records of topic tj-north, 3 records of topic tj-south (sample)" in shown.stdout
    assert "malformed (quarantine) in topic tj-south: " in shown.stdout
    plain = json.loads(CliRunner().invoke(app, ["try", "tj", "--json"], catch_exceptions=False).stdout)
    nothing = {"tombstones": 0, "excluded": {}}
    assert plain["sources"] == {
        "tj-north": {"read": 3, "malformed": 0, **nothing},
        "tj-south": {"read": 3, "malformed": 1, **nothing},
    }
    assert (plain["read"], plain["malformed"], plain["unpublished"][0]["topic"]) == (6, 1, "tj-south")


# the fixture


@pytest.fixture(scope="module")
def given(spark: Any) -> Iterator[Trials]:
    """The fixture's own object, on the session that the tests share."""
    with Trials() as trials:
        yield trials


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def made(transform: str, sources: dict[str, Any], suite: str = RULES, **sections: Any) -> Path:
        place = tmp_path / "given"
        place.mkdir()
        settings = {
            "sources": sources,
            "output": {"topic": "out", "key": "_key", **sections.pop("output", {})},
            "schedule": {"start": "2026-01-01"},
            "kafka": {"bootstrap.servers": "${NOWHERE_SET}"},
            **sections,
        }
        (place / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        (place / ("transform.sql" if transform.startswith("SELECT") else "transform.py")).write_text(transform)
        (place / "expectations.yaml").write_text(suite)
        return place

    return made


def test_rows_are_given_by_source_and_each_outcome_says_whose_row_it_is(
    given: Trials, folder: Callable[..., Path]
) -> None:
    """Both sources have records at offsets 0 and 1 of partition 0."""
    sources = regions("g", on_malformed="quarantine", tombstones="drop")
    place = folder(UNION, sources)
    north = [{"n": 1, "name": "a"}, {"n": -1}, b"{"]
    outcome = given(place, {"north": north, "south": [{"n": -2}, {"n": 2, "_timestamp": "2026-01-05T00:00:00Z"}, None]})
    assert outcome.rows == [
        {"n": 1, "name": "a", "region": "g-north"},
        {"n": 2, "name": None, "region": "g-south"},
    ]
    assert outcome.tombstones == 1
    malformed, *by_rule = outcome.quarantined
    assert (malformed.rule, malformed.given, malformed.source) == ("malformed", 2, "north")
    assert [(one.given, one.source) for one in by_rule] == [(1, "north"), (0, "south")]
    assert given(place, {"north": [], "south": []}).rows == []


def test_a_join_gets_its_rows_by_source_and_its_rows_have_no_record(given: Trials, folder: Callable[..., Path]) -> None:
    place = folder(JOIN, orders_and_payments("gj"), output={"layout": "output"})
    orders = [{"n": n, "name": "x", "_key": f"k{n}"} for n in (1, 2, -3)]
    outcome = given(place, {"orders": orders, "payments": [b'{"n": 2, "paid": 5}', {"n": -3, "paid": 1}]})
    assert (outcome.rows, outcome.keys) == ([{"n": 2, "name": "x", "paid": 5}], [b"k2"])
    reason = outcome.quarantined[0].reason
    row = {"n": -3, "name": "x", "paid": 1}
    assert outcome.quarantined == [Quarantined("expect_column_values_to_be_between(n)", reason, row)]


ROWS_REFUSED: dict[str, tuple[Any, str]] = {
    "a list": ([{"n": 1}], 'give them by the name of their source: {"north": [...], "south": [...]}'),
    "a missing source": ({"north": []}, 'none for source south. If it has no records, give "south": []'),
    "an unknown source": ({"north": [], "south": [], "west": []}, "no source 'west'; the sources are north, south"),
    "an unknown field": ({"north": [], "south": [{"n": 1}, {"m": 1}]}, "source south, row 1: no field 'm'"),
    "another type": ({"north": [{"n": "x"}], "south": []}, "source north, row 0: n: 'x' is no int"),
}


@pytest.mark.parametrize(("rows", "said"), ROWS_REFUSED.values(), ids=ROWS_REFUSED)
def test_rows_that_are_not_those_of_the_sources_are_refused_by_name(
    rows: Any, said: str, given: Trials, folder: Callable[..., Path]
) -> None:
    place = folder(UNION, regions("gr"))
    with pytest.raises(SettingsError) as error:
        given(place, rows)
    assert said in str(error.value)


def test_a_tombstone_is_refused_with_its_source_and_its_setting(given: Trials, folder: Callable[..., Path]) -> None:
    place = folder(UNION, regions("gt"))
    with pytest.raises(
        TombstonesRefused, match=r"^source south, row 1: a tombstone, and sources.south.tombstones is fail"
    ):
        given(place, {"north": [], "south": [{"n": 1}, None]})


def test_a_source_that_the_transform_does_not_use_is_refused(given: Trials, folder: Callable[..., Path]) -> None:
    place = folder(UNION.replace("north.unionByName(south)", "north"), regions("gu"))
    with pytest.raises(SettingsError, match=r"does not depend on sources\.south"):
        given(place, {"north": [{"n": 1}], "south": [{"n": 1}]})


def test_the_schemas_of_sources_in_a_registry_are_files_by_source(
    given: Trials, folder: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "north.avsc"
    file.write_text(json.dumps({"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}))
    sources = {"north": {"topic": "a", "format": "avro"}, "south": {"topic": "b", "schema": {"n": "int"}}}
    transform = "SELECT n, _topic AS t FROM north UNION ALL SELECT n, _topic FROM south"
    place = folder(transform, sources, output={"key": None}, schema_registry={"url": "${REGISTRY}"})
    rows = {"north": [b"\x00\x00\x00\x00\x01\x04"], "south": [{"n": 3}]}
    assert given(place, rows, schema={"north": file}).rows == [{"n": 2, "t": "a"}, {"n": 3, "t": "b"}]
    refused = {
        'give a file that has it as schema={"north": ...}': {},
        'schema: give files by the name of their source: {"north": ...}': {"schema": file},
        "schema: no source 'west'; the sources are north, south": {"schema": {"west": file}},
        "schema: the sources.south's schema is in no registry": {"schema": {"north": file, "south": file}},
    }
    for said, schema in refused.items():
        with pytest.raises(SettingsError) as error:
            given(place, rows, **schema)
        assert said in str(error.value)


# schema and the doctor


def test_what_drifted_is_told_of_each_source_by_its_section(
    broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = regions("sd", on_malformed="quarantine")
    sources["south"]["on_malformed"] = "fail"
    pipeline = make_pipeline(UNION, RULES, name="sd", sources=sources, quality=OFF)
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    fill(broker, "sd-north", numbers(range(9)))
    fill(broker, "sd-south", [*numbers(range(3)), {"n": "text", "name": "x", "more": 1}])
    told = CliRunner().invoke(app, ["schema", "sd", "--sample", "100"])
    assert told.exit_code == 1
    assert "sources.north: 9 sampled records of topic sd-north: all fit what is declared" in told.stdout
    assert "sources.south: 4 sampled records of topic sd-south:" in told.stdout
    plain = json.loads(CliRunner().invoke(app, ["schema", "sd", "--sample", "100", "--json"]).stdout)
    assert {topic: (one["records"], one["fits"]) for topic, one in plain["sources"].items()} == {
        "sd-north": (9, True),
        "sd-south": (4, False),
    }
    fine, drifted = run_check(check_source_fields, Inspection(pipeline))
    assert (fine.level, drifted.level) == (Level.OK, Level.WARNING)
    assert fine.found.startswith("sources.north: 9 sampled records have the declared fields")
    assert drifted.found.startswith(
        "sources.south (topic sd-south) has drifted from what pipeline.yaml declares: n does"
    )
    assert drifted.command == "fencepost schema sd --sample 1000"

    produce(broker.bootstrap, "sd-north", [(b"k", None, 0, at(1, 20))])
    findings = run_check(check_source_fields, Inspection(pipeline))
    (refused,) = (one for one in findings if "have no value" in one.found)
    assert refused.found.startswith("sources.north: 1 of 10 sampled records")
    assert "sources.north.tombstones is fail" in refused.found


# new


@pytest.fixture
def new(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> New:
    """Draft a pipeline of topics on the tests' broker."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))

    def draft(name: str, *topics: str, **options: Any) -> Draft:
        connection = connection_of(None, [f"bootstrap.servers={broker.bootstrap}"], options.pop("registry", ()))
        return draft_pipeline(DraftRequest(name, topics[0], more=topics[1:], **options), connection)

    return draft


def test_topics_with_the_same_columns_become_a_union_that_runs(spark: Any, broker: Broker, new: New) -> None:
    """Under layout source, with the columns in the order of the first topic, and the topic of each record."""
    fill(broker, "nu-north", [{"id": n, "placed_ms": 1_767_225_600_000 + n, "order": "a"} for n in range(4)])
    fill(broker, "nu.south", [*({"order": "b", "id": n, "placed_ms": 1_767_225_600_000} for n in range(3)), None], 1, 3)
    draft = new("united", "nu-north", "nu.south")
    settings = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())
    schema = {"id": "bigint", "placed_ms": "bigint", "order": "string"}
    assert {name: (one["topic"], one["schema"]) for name, one in settings["sources"].items()} == {
        "nu_north": ("nu-north", schema),
        "nu_south": ("nu.south", schema),
    }
    assert "tombstones" not in settings["sources"]["nu_north"]
    assert settings["sources"]["nu_south"]["tombstones"] == "pass"
    assert settings["output"] == {"topic": "united", "format": "json", "key": "_key", "partitions": 3}
    pipeline = load_pipeline(draft.folder)
    assert run(spark, pipeline, draft.chosen.interval).state is State.PUBLISHED
    found = read_all(broker.bootstrap, "united")
    rows = Counter((one.json["id"], one.json["order"], one.json["topic"]) for one in found if one.value is not None)
    assert rows == Counter([*((n, "a", "nu-north") for n in range(4)), *((n, "b", "nu.south") for n in range(3))])
    assert sum(one.value is None for one in found) == 1
    assert {one.json["placed_ms_time"][:10] for one in found if one.value is not None} == {"2026-01-01"}
    assert latest(pipeline, draft.chosen.interval).require_verdict.failed_warning == ()


def test_topics_with_other_columns_become_a_beginning_that_runs(spark: Any, broker: Broker, new: New) -> None:
    """Under layout output. A column with two types is two columns. The comment shows a join by the id that both have."""
    fill(broker, "nj-orders", [{"note": "x", "order_id": n, "at": "2026-01-01"} for n in range(3)], partitions=1)
    fill(broker, "nj-payments", [{"paid": True, "order_id": n, "at": n} for n in (1, 2)], 1, 1)
    produce(broker.bootstrap, "nj-payments", [(b"late", {"paid": False, "order_id": 2, "at": 3}, 0, at(3, 1))])
    draft = new("paid_orders", "nj-orders", "nj-payments")
    assert draft.chosen.interval == day(3), "the newest with records of any topic"
    settings = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())
    assert settings["output"]["layout"] == "output"
    sql = (draft.folder / "transform.sql").read_text()
    assert "--   FROM nj_orders JOIN nj_payments ON nj_orders.order_id = nj_payments.order_id\n" in sql
    pipeline = load_pipeline(draft.folder)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    found = sorted((one.json for one in read_all(broker.bootstrap, "paid_orders")), key=lambda row: str(sorted(row)))
    order = {"note": "x", "nj_orders_at": "2026-01-01", "nj_payments_at": None, "paid": None, "topic": "nj-orders"}
    payment = {"note": None, "nj_orders_at": None, "paid": True, "topic": "nj-payments"}
    expected = [
        *({**order, "order_id": n} for n in range(3)),
        *({**payment, "order_id": n, "nj_payments_at": n} for n in (1, 2)),
    ]
    assert Counter(json.dumps(one, sort_keys=True) for one in found) == Counter(
        json.dumps(one, sort_keys=True) for one in expected
    )
    assert latest(pipeline, day(1)).require_verdict.failed_warning == ()
    suite = yaml.safe_load((draft.folder / "expectations.yaml").read_text())["expectations"]
    not_null = [one["kwargs"]["column"] for one in suite if one["type"].endswith("to_not_be_null")]
    assert not_null == ["order_id"], "the only column that every record has"


def test_three_topics_with_words_of_sql_and_a_tombstone_become_one_that_runs(
    spark: Any, broker: Broker, new: New
) -> None:
    fill(broker, "nf-select", [*numbers(range(2)), None], partitions=1)
    fill(broker, "nf-class", numbers(range(2), more=[1]), partitions=1)
    fill(broker, "nf-class2", [{"n": {"deep": 1}}], partitions=1)
    draft = new("several", "nf-select", "nf-class", "nf-class2")
    pipeline = load_pipeline(draft.folder)
    assert run(spark, pipeline, draft.chosen.interval).state is State.PUBLISHED
    found = read_all(broker.bootstrap, "several")
    assert (len(found), [one.key for one in found if one.value is None]) == (6, [b"k2"])


def test_a_topic_twice_and_a_subject_of_several_topics_are_refused(broker: Broker, new: New, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--from-topic a: given twice"):
        new("twice", "a", "b", "a")
    with pytest.raises(SettingsError, match="--subject s: a subject is of one topic, and 2 are given"):
        new("subjects", "a", "b", subject="s")
    assert list(tmp_path.iterdir()) == []


def test_the_command_drafts_a_source_for_each_topic(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, "nc-orders", numbers(range(2)), partitions=1)
    fill(broker, "nc-payments", [{"n": 1}, b"{"], partitions=1)
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", broker.bootstrap)
    topics = ("--from-topic", "nc-orders", "--from-topic", "nc-payments")
    shown = CliRunner().invoke(app, ["new", "shown", *topics], catch_exceptions=False)
    assert shown.exit_code == 0
    said = "source nc_orders (json, 2 columns), source nc_payments (json, 1 column) and "
    assert said in shown.stdout
    assert "Topic nc-payments: Malformed: 1 of 2 sampled records" in " ".join(shown.stdout.split())
    plain = json.loads(CliRunner().invoke(app, ["new", "plain", *topics, "--json"], catch_exceptions=False).stdout)
    assert {name: (one["topic"], one["records"]) for name, one in plain["sources"].items()} == {
        "nc_orders": ("nc-orders", 2),
        "nc_payments": ("nc-payments", 2),
    }
    assert set(plain["sources"]["nc_payments"]["malformed"].values()) == {1}


def test_topics_of_avro_become_a_union_in_avro_and_schema_shows_each(
    spark: Any, broker: Broker, schema_registry: SchemaRegistry, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third topic of JSON with another type of the column makes the output JSON."""
    record = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    for topic, value in (("na-north", b"\x02"), ("na-south", b"\x04")):
        number = register(schema_registry, f"{topic}-value", record)
        fill(broker, topic, [framed(number, value)], partitions=1)
    fill(broker, "na-west", [{"n": 3}], partitions=1)
    registry = [f"url={schema_registry.url}"]
    draft = new("avro_union", "na-north", "na-south", registry=registry)
    pipeline = load_pipeline(draft.folder)
    assert (pipeline.output.records.format, pipeline.replays_results_only) == ("avro", False)
    deployment = Deployment.of(pipeline)
    assert try_pipeline(spark, deployment, newest(deployment, 5)).written == 2
    assert run(spark, pipeline, draft.chosen.interval).state is State.PUBLISHED
    assert len(read_all(broker.bootstrap, "avro_union")) == 2
    shared = SimpleNamespace(newSession=spark.newSession, stop=lambda: None, createDataFrame=spark.createDataFrame)
    monkeypatch.setattr("fencepost.spark.session.build_session", lambda *_: shared)
    shown = CliRunner().invoke(app, ["schema", "avro_union", "--json"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert {one["part"]: one["subject"] for one in json.loads(shown.stdout)["parts"]} == {
        "sources.na_north": "na-north-value",
        "sources.na_south": "na-south-value",
        "output": "avro_union-value",
    }
    mixed = new("mixed_union", "na-north", "na-west", registry=registry)
    pipeline = load_pipeline(mixed.folder)
    assert (pipeline.output.records.format, pipeline.replays_results_only) == ("json", True)
    assert run(spark, pipeline, mixed.chosen.interval).state is State.PUBLISHED
    found = [one.json for one in read_all(broker.bootstrap, "mixed_union")]
    assert Counter((one["topic"], one["na_north_n"], one["na_west_n"]) for one in found) == Counter(
        [("na-north", 1, None), ("na-west", None, 3)]
    )
