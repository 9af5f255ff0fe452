"""Scheduled runs beside a backfill, and their deadlines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fencepost_stack.airflow_api import await_value

from .conftest import Running

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(700)]

NAME = "both"
BEFORE_MIDNIGHT = timedelta(minutes=4)  # in which the runs would end on a day after that on which they began


@pytest.fixture(scope="module")
def days() -> list[datetime]:
    """The last three days, which stay the last three while the runs go on."""

    def last_three() -> list[datetime] | None:
        now = datetime.now(UTC)
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return [today - timedelta(days=n) for n in (3, 2, 1)] if (now + BEFORE_MIDNIGHT).day == now.day else None

    return await_value(last_three, "midnight to be over", BEFORE_MIDNIGHT.total_seconds() + 5)


@pytest.fixture(scope="module")
def runs(running: Running, days: list[datetime]) -> list[dict[str, Any]]:
    """A backfill of two days, begun while the DAG was paused, and the scheduled run of yesterday; no records in any."""
    running.add(NAME, start=days[0], end=None, deadline_minutes=0.01)
    running.api.await_dag(NAME)
    running.api.backfill(NAME, days[0], days[1], max_active_runs=2)
    assert [r["state"] for r in running.api.dag_runs(NAME)] == ["queued"] * 2, "the DAG is paused"
    running.api.unpause(NAME)
    return running.api.await_intervals(NAME, days)


def test_a_backfill_of_a_paused_dag_waits_and_then_goes_before_the_scheduled_run(
    running: Running, runs: list[dict[str, Any]], days: list[datetime]
) -> None:
    assert [(r["run_type"], r["state"]) for r in runs] == [
        ("backfill", "success"),
        ("backfill", "success"),
        ("scheduled", "success"),
    ]
    plans = [running.task(r, "plan")["end_date"] for r in runs]
    assert plans == sorted(plans), "each plan waits for the earlier ones, whoever started them"
    assert [b.interval.start for b in sorted(running.ledger(NAME), key=lambda b: b.known_lease)] == days


def test_a_scheduled_run_that_is_late_raises_airflows_alert_and_a_backfill_does_not(
    running: Running, page: Page, runs: list[dict[str, Any]], days: list[datetime]
) -> None:
    today = days[2] + timedelta(days=1)
    (deadline,) = running.deadlines(NAME)
    assert deadline["dag_run_id"] == runs[2]["dag_run_id"]
    assert datetime.fromisoformat(deadline["deadline_time"]) == today + timedelta(seconds=0.6)
    await_value(lambda: running.deadlines(NAME)[0]["missed"] or None, "the deadline to be missed", 60)
    said = await_value(lambda: running.callback_log(runs[2]), "the callback's log", 120)
    assert f"pipeline {NAME}, interval {days[2].isoformat()} to {today.isoformat()}: not published by" in said
    page.goto(f"{running.api.url}/dags/{NAME}/runs/{runs[2]['dag_run_id']}")
    expect(page.get_by_text("Deadline", exact=False).first).to_be_visible()
