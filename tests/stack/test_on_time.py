"""Scheduled runs beside a backfill, and their deadlines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fencepost_stack.airflow_api import await_value
from kafka_tools import produce

from .conftest import PLAIN, Running

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(700)]

NAME, LATE = "both", "delayed"
BROKEN = "def transform(frame): raise ValueError('not fixed yet')"
MORE = """
notify:
  - on: [late, recovered]
    notifier: airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier
    kwargs: {slack_webhook_conn_id: channel, text: "{{ fencepost.event }} {{ fencepost.text }}"}
"""
TO_BE_MADE = timedelta(minutes=2)  # in which Airflow parses the DAG and makes the run
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
    assert [b.interval.start for b in sorted(running.ledger(NAME), key=lambda b: b.require_lease)] == days


def test_neither_a_run_that_catches_up_nor_a_backfill_has_a_deadline(
    running: Running, runs: list[dict[str, Any]]
) -> None:
    assert running.deadlines(NAME) == []


def test_a_run_that_misses_its_deadline_raises_airflows_alert_and_the_channel_hears_of_both_ends(
    running: Running, page: Page, days: list[datetime]
) -> None:
    """The triggerer tells of it, and notes that in the state store of the asset, by which the run knows that it recovers."""
    today = days[2] + timedelta(days=1)
    after = datetime.now(UTC) - today + TO_BE_MADE
    running.add(
        LATE, BROKEN, start=days[2], end=None, retries=0, deadline_minutes=after.total_seconds() / 60, more=MORE
    )
    running.api.await_dag(LATE)
    noon = round((days[2] + timedelta(hours=12)).timestamp() * 1000)
    produce(running.bootstrap, f"{LATE}-in", [(b"k", b"v0", 0, noon)])
    running.api.unpause(LATE)
    (run,) = running.api.await_intervals(LATE, [days[2]])
    assert run["state"] == "failed"
    (deadline,) = running.deadlines(LATE)
    assert deadline["dag_run_id"] == run["dag_run_id"]
    assert abs(datetime.fromisoformat(deadline["deadline_time"]) - today - after) < timedelta(seconds=1)
    await_value(lambda: running.deadlines(LATE)[0]["missed"] or None, "the deadline to be missed", 240)
    said = f"pipeline {LATE}, interval {days[2].isoformat()} to {today.isoformat()}: not published by"
    await_value(lambda: running.said("triggerer", said), "the triggerer to tell of it", 120)
    await_value(lambda: running.told_of(LATE) or None, "the channel to hear of it", 60)
    page.goto(f"{running.api.url}/dags/{LATE}/runs/{run['dag_run_id']}")
    expect(page.get_by_text("Deadline", exact=False).first).to_be_visible()

    (running.pipelines / LATE / "transform.py").write_text(PLAIN)
    running.api.clear(LATE, run["dag_run_id"], ["write"])
    assert running.api.await_run(LATE, run["dag_run_id"])["state"] == "success", running.last_log(run, "write")
    assert [text.split()[0] for text in running.told_of(LATE)] == ["late", "recovered"]
