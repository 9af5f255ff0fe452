"""The main job through Airflow's own scheduler: the demo's pipeline against the truth, and a suite that fails."""

from __future__ import annotations

import json
import shutil
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fencepost.local.broken_flights import BROKEN
from fencepost.local.flights import load_flights
from fencepost.local.nycflights import days_between
from oracle.flights_truth import expected_records
from oracle.reader import compare, read_topic

from .conftest import ROOT, Running

NEW_YORK = ZoneInfo("America/New_York")
DAYS = days_between(date(2013, 1, 1), date(2013, 1, 3))


@pytest.fixture(scope="module")
def flights(running: Running) -> list[dict[str, Any]]:
    """Three days of flights, and some broken records, through the DAG; the runs."""
    load_flights(running.bootstrap, days=DAYS, broken=True)
    shutil.copytree(ROOT / "include" / "pipelines" / "nyc_flights", running.pipelines / "nyc_flights")
    running.api.await_dag("nyc_flights")
    running.api.unpause("nyc_flights")
    starts = [datetime(d.year, d.month, d.day, tzinfo=NEW_YORK) for d in DAYS]
    running.api.backfill("nyc_flights", starts[0], starts[-1], max_active_runs=3)
    return running.api.await_intervals("nyc_flights", starts, timeout=700)


def test_three_days_of_flights_are_in_the_output_record_for_record(
    running: Running, flights: list[dict[str, Any]]
) -> None:
    assert [run["state"] for run in flights] == ["success"] * 3
    differences = compare(expected_records(DAYS), read_topic(running.bootstrap, "flight_delays"))
    assert differences == []


def test_the_broken_records_lie_in_quarantine_as_they_came_each_with_its_rule_and_its_place_in_the_source(
    running: Running, flights: list[dict[str, Any]]
) -> None:
    rules = {
        b"N81449": "malformed",
        b"N712JB": "expect_column_values_to_be_in_set(origin)",
        b"N674DL": "expect_column_values_to_be_between(dep_delay)",
        b"N579AA": "malformed",
    }
    source = {(r.key, r.value): f"flights:{r.partition}:{r.offset}" for r in read_topic(running.bootstrap, "flights")}
    found = []
    for record in read_topic(running.bootstrap, "fencepost.nyc_flights.quarantine"):
        headers = {name: (value or b"").decode() for name, value in record.headers}
        place, rule = headers["fencepost-source"], headers["fencepost-rule"]
        found.append((record.timestamp, record.key, record.value, rule, place))
    assert sorted(found) == [
        (round(at.timestamp() * 1000), key, value, rules[key], source[key, value]) for at, key, value in BROKEN
    ]


def test_what_tasks_hand_on_is_small_and_tells_rows_and_verdict(
    running: Running, flights: list[dict[str, Any]]
) -> None:
    handed = {
        task: running.api.xcom("nyc_flights", flights[0]["dag_run_id"], task)
        for task in ("plan", "write", "validate", "advance")
    }
    details = handed["write"]["details"]
    assert (details["rows_in"], details["rows"], details["quarantined"]) == (843, 842, {"malformed": 1})
    assert handed["validate"]["details"]["verdict"] == "passed"
    assert Path(handed["validate"]["details"]["report"]).read_text().startswith("<!DOCTYPE html>")
    assert all(len(json.dumps(value)) < 2000 for value in handed.values())


def test_a_flight_passes_once_the_transform_is_mended_and_its_day_is_replayed_from_the_ui(
    running: Running, flights: list[dict[str, Any]]
) -> None:
    """The line is README's own. What stays broken is tried again, and stays in quarantine."""
    transform = running.pipelines / "nyc_flights" / "transform.py"
    text = transform.read_text()
    begin = "    spark = flights.sparkSession\n"
    assert text.count(begin) == 1
    transform.write_text(text.replace(begin, f"    {mending_line()}\n{begin}"))
    start = datetime(2013, 1, 2, tzinfo=NEW_YORK)
    running.end_backfill("nyc_flights")
    running.api.backfill("nyc_flights", start, start, reprocess="completed", conf={"replay": True})
    running.end_backfill("nyc_flights")
    [run] = running.api.await_intervals("nyc_flights", [start], timeout=300)
    assert run["state"] == "success"
    plan, advance = (running.api.xcom("nyc_flights", run["dag_run_id"], task) for task in ("plan", "advance"))
    assert (advance["details"]["adds_to"], advance["details"]["rows"], advance["details"]["quarantined"]) == (1, 1, {})
    mended = [
        json.loads(record.value or b"")
        for record in read_topic(running.bootstrap, "flight_delays")
        if (b"fencepost-batch", plan["batch"].encode()) in [(n.encode(), v) for n, v in record.headers]
    ]
    assert [(flight["carrier"], flight["flight"], flight["origin"]) for flight in mended] == [("B6", 1987, "JFK")]
    assert len(read_topic(running.bootstrap, "flight_delays")) == len(expected_records(DAYS)) + 1


def mending_line() -> str:
    """The line of code that README tells a reader to add to the transform."""
    [line] = [one.strip() for one in (ROOT / "README.md").read_text().splitlines() if "regexp_replace" in one]
    return line
