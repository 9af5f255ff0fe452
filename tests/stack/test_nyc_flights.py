"""The main job through Airflow's own scheduler: the demo's pipeline against the truth, and a suite that fails."""

from __future__ import annotations

import json
import shutil
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fencepost.ledger import Ledger
from fencepost.local.flights import load_flights
from fencepost.local.nycflights import days_between
from fencepost.model import Batch, State
from fencepost.settings import load_pipeline
from kafka_tools import group_offsets, read_all
from oracle.flights_truth import expected_records
from oracle.reader import compare, read_topic

from .conftest import ROOT, STRICT, Running, day

NEW_YORK = ZoneInfo("America/New_York")
DAYS = days_between(date(2013, 1, 1), date(2013, 1, 3))

MENDED = STRICT.replace("[v0, v2]", "[v0, v1, v2]")


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


def test_a_failed_suite_stops_the_offsets_and_a_mended_one_lets_them_go(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", running.bootstrap)
    running.add("strict", "def transform(frame):\n    return frame\n", records=3)
    folder = running.pipelines / "strict"
    (folder / "expectations.yaml").write_text(STRICT)
    running.backfill("strict", 1, 1)
    (run,) = running.api.await_intervals("strict", [day(1)])

    def latest() -> Batch:
        (batch,) = Ledger(load_pipeline(folder)).read().all()
        return batch

    tasks = {t["task_id"]: t for t in running.api.task_instances("strict", run["dag_run_id"])}
    assert (tasks["write"]["state"], tasks["validate"]["state"]) == ("success", "failed")
    assert tasks["validate"]["try_number"] == 1, "a retry would not mend it, so there is none"
    assert group_offsets(running.bootstrap, "strict", "strict-in", [0]) == {}
    batch = latest()
    assert batch.state is State.REJECTED
    assert batch.verdict is not None
    report = json.loads(Path(batch.verdict.report).with_suffix(".json").read_text())
    (failed,) = report["evaluation"]["checks"]
    assert [(row["topic"], row["offset"]) for row in failed["sample"]] == [("strict-out", 1)]
    assert batch.verdict.report in running.whole_log(run, "validate")
    before = read_all(running.bootstrap, "strict-out")

    (folder / "expectations.yaml").write_text(MENDED)
    running.api.clear("strict", run["dag_run_id"], ["validate"])
    running.api.await_task("strict", run["dag_run_id"], "advance", ["success", "failed", "upstream_failed"])
    batch = latest()
    assert (batch.state, batch.revision) == (State.PUBLISHED, 1)
    assert group_offsets(running.bootstrap, "strict", "strict-in", [0]) == {0: 3}
    assert read_all(running.bootstrap, "strict-out") == before, "judging again writes nothing"
