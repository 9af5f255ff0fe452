"""The client of Airflow's API does, on a running Airflow, what the demo and other tests need of it."""

from datetime import UTC, datetime

import pytest

from fencepost_stack.airflow_api import StackAirflow, await_value
from fencepost_stack.errors import LocalStackError
from fencepost_stack.stack import Stack
from local.local_stack import DAG_ID

pytestmark = [pytest.mark.deep, pytest.mark.stack]

DAYS = [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2)]


def test_a_backfill_runs_each_day_and_a_cleared_task_runs_again(stack: Stack) -> None:
    with StackAirflow.of_stack(stack.state) as api:
        api.await_dag(DAG_ID)
        api.unpause(DAG_ID)
        backfill = api.backfill(DAG_ID, DAYS[0], DAYS[-1], conf={"asked": "for"})
        runs = api.await_intervals(DAG_ID, DAYS)
        assert [run["state"] for run in runs] == ["success", "success"]
        assert api.await_backfill(backfill["id"])["completed_at"]

        run_id = runs[0]["dag_run_id"]
        assert api.xcom(DAG_ID, run_id, "say") == "2013-01-01"
        assert "day 2013-01-01 {'asked': 'for'}" in api.task_log(DAG_ID, run_id, "say")

        assert [task["task_id"] for task in api.clear(DAG_ID, run_id, ["say"])] == ["say"]
        assert api.await_run(DAG_ID, run_id)["state"] == "success"
        assert [(t["task_id"], t["state"], t["try_number"]) for t in api.task_instances(DAG_ID, run_id)] == [
            ("say", "success", 2)
        ]


def test_a_pool_is_made_once_and_resized(stack: Stack) -> None:
    with StackAirflow.of_stack(stack.state) as api:
        for slots in (1, 1, 2):
            api.ensure_pool("fencepost_test", slots)
            assert [pool["slots"] for pool in api.pools() if pool["name"] == "fencepost_test"] == [slots]


def test_a_broken_file_dropped_in_shows_as_an_import_error_and_in_the_wait(stack: Stack) -> None:
    broken = stack.folders.dags / "broken.py"
    broken.write_text("from airflow.sdk import dag\nraise ValueError('a broken pipeline')\n")
    try:
        with StackAirflow.of_stack(stack.state) as api:
            await_value(lambda: api.import_errors() or None, "the import error to show", 60.0)
            with pytest.raises(LocalStackError, match=r"(?s)DAG broken.*ValueError: a broken pipeline"):
                api.await_dag("broken", timeout=0.0)
    finally:
        broken.unlink()
