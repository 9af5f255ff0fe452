"""The main job through Airflow's own scheduler: the demo's pipeline against the truth, and a suite that fails."""

from __future__ import annotations

import json
import shutil
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fencepost.local.flights import load_flights
from fencepost.local.nycflights import days_between
from oracle.flights_truth import expected_records
from oracle.reader import compare, read_topic

from .conftest import ROOT, Running

NEW_YORK = ZoneInfo("America/New_York")
DAYS = days_between(date(2013, 1, 1), date(2013, 1, 3))


@pytest.fixture(scope="module")
def flights(running: Running) -> list[dict[str, Any]]:
    """Three days of flights through the DAG; the runs."""
    load_flights(running.bootstrap, days=DAYS)
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


def test_what_tasks_hand_on_is_small_and_tells_rows_and_verdict(
    running: Running, flights: list[dict[str, Any]]
) -> None:
    handed = {
        task: running.api.xcom("nyc_flights", flights[0]["dag_run_id"], task)
        for task in ("plan", "write", "validate", "advance")
    }
    assert handed["write"]["details"]["rows_in"] == handed["write"]["details"]["rows"] == 842
    assert handed["validate"]["details"]["verdict"] == "passed"
    assert Path(handed["validate"]["details"]["report"]).read_text().startswith("<!DOCTYPE html>")
    assert all(len(json.dumps(value)) < 2000 for value in handed.values())
