"""The main job through Airflow's own scheduler: the demo's pipelines, side by side, against the truth."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from fencepost_stack.broken_flights import BROKEN
from fencepost_stack.demo import DELAYS, FLIGHTS, HOURS, LAKE, WEATHER
from fencepost_stack.flights import load_flights
from fencepost_stack.nycflights import day_of, days_between, start_of
from fencepost_stack.reporting import WEATHER_LAKE
from fencepost_stack.weather import load_weather
from lakes import scanned
from oracle import airport_hours_truth
from oracle.delays_truth import TABLE, expected_delays
from oracle.flights_truth import expected_records
from oracle.reader import compare, read_topic
from oracle.weather_truth import expected_observations, expected_weather
from rigs.postgres_server import query

from .conftest import ROOT, Running

FIRST, SECOND = DAYS = days_between(date(2013, 1, 1), date(2013, 1, 2))
PIPELINES = (FLIGHTS, WEATHER)

Runs = dict[str, dict[str, Any]]


def backfill(running: Running, day: date, *names: str) -> Runs:
    """A day through these DAGs, side by side; their runs, all green."""
    for name in names:
        running.api.backfill(name, start_of(day), start_of(day))
    runs = {name: running.api.await_intervals(name, [start_of(day)], timeout=850)[0] for name in names}
    assert {name: run["state"] for name, run in runs.items()} == dict.fromkeys(names, "success")
    return runs


def days_run(running: Running, name: str) -> list[date]:
    """The days that have gone through a DAG: theirs is all that its topics hold."""
    starts = {datetime.fromisoformat(run["data_interval_start"]) for run in running.api.dag_runs(name)}
    return [day for day in DAYS if start_of(day) in starts]


@pytest.fixture(scope="module")
def loaded(running: Running) -> None:
    """Two days of flights, some broken records, and the weather in their topics; both DAGs are on."""
    load_flights({"bootstrap.servers": running.bootstrap}, DAYS)
    load_weather({"bootstrap.servers": running.bootstrap}, running.start_registry(), DAYS)
    for name in PIPELINES:
        shutil.copytree(ROOT / "include" / "pipelines" / name, running.pipelines / name)
    running.parse()
    for name in PIPELINES:
        running.api.await_dag(name)
        running.api.unpause(name)


@pytest.fixture(scope="module")
def first(running: Running, loaded: None) -> Runs:
    """The first day through the DAGs."""
    return backfill(running, FIRST, *PIPELINES)


@pytest.fixture(scope="module")
def second(running: Running, loaded: None) -> Runs:
    """The second day, on which the schema of the weather changes; whether or not the first has run."""
    for name in PIPELINES:
        if running.api.dag_runs(name):
            running.end_backfill(name)
    return backfill(running, SECOND, *PIPELINES)


def test_a_day_of_weather_is_in_the_output_as_avro_value_by_value(running: Running, first: Runs) -> None:
    assert_weather(running)


def test_a_day_of_flights_is_in_the_output_record_for_record(running: Running, first: Runs) -> None:
    assert_flights(running)


def assert_flights(running: Running) -> None:
    """The flights of the days that have run and nothing else are in the output, each at its hour."""
    found = read_topic(running.bootstrap, "flight_delays")
    assert compare(expected_records(days_run(running, FLIGHTS)), found) == []
    hours = [datetime.fromisoformat(json.loads(record.value or b"")["time_hour"]) for record in found]
    assert [record.timestamp for record in found] == [round(hour.timestamp() * 1000) for hour in hours]


def test_what_tasks_hand_on_is_small_and_tells_rows_and_verdict(running: Running, first: Runs) -> None:
    handed = {
        task: running.api.xcom("nyc_flights", first["nyc_flights"]["dag_run_id"], task)
        for task in ("plan", "write", "validate", "advance")
    }
    details = handed["write"]["details"]
    assert (details["rows_in"], details["rows"], details["quarantined"]) == (843, 842, {"malformed": 1})
    assert handed["validate"]["details"]["verdict"] == "passed"
    assert Path(handed["validate"]["details"]["report"]).read_text().startswith("<!DOCTYPE html>")
    assert all(len(json.dumps(value)) < 2000 for value in handed.values())


@pytest.mark.deep
def test_the_next_day_of_weather_is_in_the_output_as_avro_value_by_value(running: Running, second: Runs) -> None:
    assert_weather(running)


def assert_weather(running: Running) -> None:
    """The weather of the days that have run and nothing else is in the output, by one version of its schema."""
    client = SchemaRegistryClient({"url": running.start_registry()})
    decode, context = AvroDeserializer(client), SerializationContext("weather_metric", MessageField.VALUE)
    found = [(record, decode(record.value, context)) for record in read_topic(running.bootstrap, "weather_metric")]
    found.sort(key=lambda one: (one[0].timestamp, one[0].key or b""))
    expected = expected_weather(days_run(running, WEATHER))
    assert [value for _, value in found] == expected
    assert [(record.key, record.timestamp) for record, _ in found] == [
        (one["origin"].encode(), round(one["observed_at"].timestamp() * 1000)) for one in expected
    ]
    assert client.get_versions("weather_metric-value") == [1]  # registered once


@pytest.mark.deep
def test_a_day_on_which_the_schema_changes_is_read_by_both_and_any_day_by_what_its_plan_froze(
    running: Running, second: Runs
) -> None:
    client = SchemaRegistryClient({"url": running.start_registry()})
    old, new = (client.get_version("weather-value", number).schema_id for number in (1, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCHEMA_REGISTRY_URL", running.start_registry())
        schemas = [batch.plan.schemas for batch in running.ledger("nyc_weather")]
    values = [found for s in schemas if s and (found := s.of("weather").value)]
    frozen = [(one.reader.id, one.ids) for one in values]
    assert frozen == [(new, {old, new})] * len(days_run(running, WEATHER))
    changing = [r for r in read_topic(running.bootstrap, "weather") if day_of(r.timestamp) == SECOND]
    ids = Counter(int.from_bytes((record.value or b"")[1:5], "big") for record in changing)
    assert ids == {old: 36, new: 36}


@pytest.mark.deep
def test_the_next_day_of_flights_is_in_the_output_record_for_record(running: Running, second: Runs) -> None:
    assert_flights(running)


@pytest.mark.deep
def test_a_day_of_delays_is_in_the_table_row_by_row(running: Running, second: Runs) -> None:
    """It begins once its flights are published."""
    run_behind(running, DELAYS)
    assert query(running.stack.services()["postgres"]["reader"], TABLE) == expected_delays([SECOND])


@pytest.mark.deep
def test_a_day_of_airport_hours_is_in_the_table_row_by_row(running: Running, second: Runs) -> None:
    """It begins once its flights and its weather are published, and joins them."""
    run_behind(running, HOURS)
    reader = running.stack.services()["postgres"]["reader"]
    assert query(reader, airport_hours_truth.TABLE) == airport_hours_truth.expected_hours([SECOND])


@pytest.mark.deep
def test_a_day_of_weather_is_in_the_iceberg_table_value_by_value(running: Running, second: Runs) -> None:
    """It begins once its weather is published."""
    run_behind(running, LAKE)
    reader = {**running.stack.services()["postgres"]["reader"], "dbname": WEATHER_LAKE}
    assert scanned(reader, "weather.observations", "observed_at, origin") == expected_observations([SECOND])


def run_behind(running: Running, name: str) -> None:
    """The second day through a DAG that reads what another has published."""
    shutil.copytree(ROOT / "include" / "pipelines" / name, running.pipelines / name)
    running.parse()
    running.api.await_dag(name)
    running.api.unpause(name)
    backfill(running, SECOND, name)


def test_a_broken_record_lies_in_quarantine_as_it_came_with_its_rule_and_its_place_in_the_source(
    running: Running, first: Runs
) -> None:
    assert_quarantined(running)


@pytest.mark.deep
def test_a_record_that_breaks_a_rule_lies_in_quarantine_too(running: Running, second: Runs) -> None:
    assert_quarantined(running)


def assert_quarantined(running: Running) -> None:
    """The broken records of the days that have run are in quarantine byte for byte, each with its rule and its place."""
    rules = {
        b"N81449": "malformed",
        b"N712JB": "expect_column_values_to_be_in_set(origin)",
    }
    source = {(r.key, r.value): f"flights:{r.partition}:{r.offset}" for r in read_topic(running.bootstrap, "flights")}
    found = []
    for record in read_topic(running.bootstrap, "fencepost.nyc_flights.quarantine"):
        headers = {name: (value or b"").decode() for name, value in record.headers}
        place, rule = headers["fencepost-source"], headers["fencepost-rule"]
        found.append((record.timestamp, record.key, record.value, rule, place))
    days = days_run(running, FLIGHTS)
    assert sorted(found) == [
        (round(at.timestamp() * 1000), key, value, rules[key], source[key, value])
        for at, key, value in BROKEN
        if at.date() in days
    ]


@pytest.mark.deep
def test_a_flight_passes_once_the_transform_is_mended_and_its_day_is_replayed_from_the_ui(
    running: Running, second: Runs
) -> None:
    """The line is README's own. What stays broken is tried again, and stays in quarantine."""
    transform = running.pipelines / "nyc_flights" / "transform.py"
    text = transform.read_text()
    begin = "    return (\n        flights.join("
    assert text.count(begin) == 1
    transform.write_text(text.replace(begin, f"    {mending_line()}\n{begin}"))
    start = start_of(SECOND)
    running.end_backfill("nyc_flights")
    running.api.backfill("nyc_flights", start, start, reprocess="completed", conf={"replay": True})
    running.end_backfill("nyc_flights")
    [run] = running.api.await_intervals("nyc_flights", [start], timeout=300)
    assert run["state"] == "success"
    plan, advance = (running.api.xcom("nyc_flights", run["dag_run_id"], task) for task in ("plan", "advance"))
    assert (advance["details"]["adds_to"], advance["details"]["rows"], advance["details"]["quarantined"]) == (1, 1, {})
    flights = read_topic(running.bootstrap, "flight_delays")
    fixed = [
        json.loads(record.value or b"")
        for record in flights
        if (b"fencepost-batch", plan["batch"].encode()) in [(n.encode(), v) for n, v in record.headers]
    ]
    assert [(flight["carrier"], flight["flight"], flight["origin"]) for flight in fixed] == [("B6", 1987, "JFK")]
    assert len(flights) == len(expected_records(days_run(running, FLIGHTS))) + 1


def mending_line() -> str:
    """The line of code that README tells a reader to add to the transform."""
    [line] = [one.strip() for one in (ROOT / "README.md").read_text().splitlines() if "regexp_replace" in one]
    return line
