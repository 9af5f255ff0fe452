"""Asset events of a real Airflow, and what a reader gets by them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from fencepost import read_validated
from fencepost.cli.app import app
from fencepost.errors import Superseded
from kafka_tools import read_all

from .conftest import PLAIN, STRICT, Running, day

pytestmark = [pytest.mark.deep, pytest.mark.stack]


def events_of(running: Running, name: str) -> list[dict[str, Any]]:
    """Of tasks and of commands, in order of time."""
    told = running.api.call("GET", "/assets/events", limit=100, order_by="timestamp")["asset_events"]
    return [event for event in told if event["uri"] == f"fencepost://{name}/{name}-out"]


def test_publishing_emits_one_event_that_reads_exactly_what_was_published_and_a_no_op_none(
    running: Running, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", running.bootstrap)
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(running.pipelines))
    running.add("told", PLAIN, records=5)
    running.backfill("told", 1, 1)
    (run,) = running.api.await_intervals("told", [day(1)])
    assert run["state"] == "success"
    (event,) = events_of(running, "told")
    extra = event["extra"]
    assert (extra["state"], extra["revision"], extra["rows"]) == ("published", 1, 5)
    assert [r.json for r in read_all(running.bootstrap, "fencepost.told.published")] == [extra], (
        "event and record are one"
    )
    found = read_validated(spark, extra).select("value", "_partition", "_offset").collect()
    assert sorted(bytes(row[0]) for row in found) == sorted(
        r.value or b"" for r in read_all(running.bootstrap, "told-out")
    )
    assert all(extra["ranges"][str(row[1])][0] <= row[2] < extra["ranges"][str(row[1])][1] for row in found)

    running.api.clear("told", run["dag_run_id"], ["plan"])
    assert running.api.await_run("told", run["dag_run_id"])["state"] == "success"
    assert [e["extra"]["batch"] for e in events_of(running, "told")] == [extra["batch"]], "a no-op tells nothing"
    with pytest.raises(Superseded, match="not announced"):
        read_validated(spark, {**extra, "batch": extra["batch"][:-1] + "2"})


def test_a_rejected_batch_is_told_once_it_is_published_by_command_and_a_task_that_finds_it_tells_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = running.stack.services()["airflow"]
    monkeypatch.setenv("KAFKA_BOOTSTRAP", running.bootstrap)
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(running.pipelines))
    monkeypatch.setenv("FENCEPOST_AIRFLOW_URL", user["url"])
    monkeypatch.setenv("FENCEPOST_AIRFLOW_USER", user["username"])
    monkeypatch.setenv("FENCEPOST_AIRFLOW_PASSWORD", user["password"])
    running.add("by_command", PLAIN, records=5)
    running.backfill("by_command", 1, 1)
    running.end_backfill("by_command")
    running.produce("by_command", 2, [b"v0", b"v1"])
    (running.pipelines / "by_command" / "expectations.yaml").write_text(STRICT)
    running.backfill("by_command", 2, 2)
    first, second = running.api.await_intervals("by_command", [day(1), day(2)])
    assert (first["state"], second["state"]) == ("success", "failed")
    assert len(events_of(running, "by_command")) == 1

    times = ("--start", day(2).isoformat(), "--end", day(3).isoformat(), "--reason", "it is right")
    done = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["publish", "by_command", *times], catch_exceptions=False)
    assert done.stderr.strip().splitlines()[-1] == f"event     emitted the asset event to Airflow at {user['url']}"
    by_task, commanded = (event["extra"] for event in events_of(running, "by_command"))
    assert commanded.pop("from_rest_api") is True
    assert commanded.keys() == by_task.keys()
    assert (by_task["decided_by_person"], commanded["decided_by_person"]) == (False, True)
    assert datetime.fromisoformat(commanded["interval"]["start"]) == day(2)

    running.api.clear("by_command", second["dag_run_id"], ["validate"])
    assert running.api.await_run("by_command", second["dag_run_id"])["state"] == "success"
    assert running.task(second, "advance")["state"] == "success"
    assert len(events_of(running, "by_command")) == 2
