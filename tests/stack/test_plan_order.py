"""Runs that hold no place in the order of plans, and one that does: cancelled, made by hand, marked as failed."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Running, day

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(600)]

NAME = "turns"


def pause(running: Running, *, is_paused: bool) -> None:
    running.api.call("PATCH", f"/dags/{NAME}", {"is_paused": is_paused}, update_mask="is_paused")


def never_begun(running: Running, number: int, behavior: str) -> dict[str, Any]:
    """The queued run of a backfill of one day whose runs do not begin, since the DAG is paused; with the backfill's id."""
    pause(running, is_paused=True)
    body = {
        "dag_id": NAME,
        "from_date": day(number).isoformat(),
        "to_date": day(number).isoformat(),
        "reprocess_behavior": behavior,
        "max_active_runs": 1,
    }
    backfill_id = running.api.call("POST", "/backfills", body)["id"]
    run = next(r for r in running.api.dag_runs(NAME) if r["data_interval_start"].startswith(f"2026-01-{number:02}"))
    assert run["state"] == "queued"
    return run | {"backfill_id": backfill_id}


def cancel(running: Running, backfill_id: int) -> None:
    """End a backfill, if it does not say already that it is over."""
    running.ask(f"/backfills/{backfill_id}/cancel")


def backfilled(running: Running, number: int, behavior: str = "none") -> dict[str, Any]:
    """The ended run of a day, by a backfill that is over."""
    backfill_id = running.backfill(NAME, number, number, reprocess_behavior=behavior)
    (run,) = running.api.await_intervals(NAME, [day(number)])
    cancel(running, backfill_id)
    return run


def test_a_run_that_cannot_plan_or_need_not_holds_no_later_one_and_one_that_was_marked_as_failed_does(
    running: Running,
) -> None:
    running.add(NAME)
    assert backfilled(running, 1)["state"] == "success"
    stuck = never_begun(running, 1, "completed")
    cancel(running, stuck["backfill_id"])
    running.api.clear(NAME, stuck["dag_run_id"], ["plan"])
    by_hand = {
        "dag_run_id": "by-hand",
        "logical_date": day(2).isoformat(),
        "data_interval_start": day(2).isoformat(),
        "data_interval_end": day(3).isoformat(),
    }
    running.api.call("POST", f"/dags/{NAME}/dagRuns", by_hand)

    third = backfilled(running, 3)
    assert third["state"] == "success", running.last_log(third, "plan")
    assert running.api.await_run(NAME, "by-hand")["state"] == "failed"
    states = {run["dag_run_id"]: run["state"] for run in running.api.dag_runs(NAME)}
    assert states[stuck["dag_run_id"]] == "queued", "it stays so for ever: its backfill is over"

    marked = never_begun(running, 5, "none")
    running.api.call("PATCH", f"/dags/{NAME}/dagRuns/{marked['dag_run_id']}", {"state": "failed"}, update_mask="state")
    assert running.task(marked, "plan")["state"] == "skipped"
    cancel(running, marked["backfill_id"])
    sixth = backfilled(running, 6)
    assert sixth["state"] == "failed"
    said = running.last_log(sixth, "plan")
    assert f"the plan of the earlier run {marked['dag_run_id']} was skipped" in said
    assert "Start a backfill of its interval with the reprocess behaviour failed" in said

    assert backfilled(running, 5, "failed")["state"] == "success"
    assert backfilled(running, 6, "failed")["state"] == "success"
    planned = sorted(running.ledger(NAME), key=lambda batch: batch.require_lease)
    assert [batch.interval.start.day for batch in planned] == [1, 3, 5, 6]
