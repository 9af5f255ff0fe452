"""What Airflow itself makes of the DAGs: order of plans, refused runs, broken pipelines, no-ops."""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import Any

import pytest

from fencepost.cli.airflow_api import AirflowRefused
from fencepost_stack.airflow_api import await_value

from .conftest import Running, day

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def backfilled(running: Running, backfills: int) -> list[dict[str, Any]]:
    """The ended runs of `ordered`, the earliest first."""
    running.end_backfill("ordered")
    return running.api.dag_runs("ordered")


def test_plans_of_runs_that_go_on_together_keep_the_order_of_their_intervals(
    running: Running, backfilled: list[dict[str, Any]]
) -> None:
    plans = [running.task(run, "plan") for run in backfilled]
    assert [plan["state"] for plan in plans] == ["success"] * 3
    ends = [datetime.fromisoformat(plan["end_date"]) for plan in plans]
    assert ends == sorted(ends)
    together = datetime.fromisoformat(backfilled[2]["start_date"])
    assert together < ends[0], "they did not go on together, so nothing is shown"


def test_a_published_interval_run_again_is_a_no_op_that_says_so(
    running: Running, backfilled: list[dict[str, Any]]
) -> None:
    assert [run["state"] for run in backfilled] == ["success"] * 3
    first = backfilled[0]
    run_id = first["dag_run_id"]
    running.backfill("ordered", 1, 1, reprocess_behavior="completed")
    running.end_backfill("ordered")
    assert running.api.await_run("ordered", run_id)["state"] == "success"
    assert "already published, revision 1" in running.last_log(first, "plan")
    results = [running.api.xcom("ordered", run_id, task) for task in ("plan", "write", "validate", "advance")]
    assert [(r["changed"], r["revision"], r["state"]) for r in results] == [(False, 1, "published")] * 4


@pytest.mark.timeout(900)
def test_a_backfill_writes_again_once_however_often_its_run_is_cleared(
    running: Running, backfilled: list[dict[str, Any]]
) -> None:
    """Airflow keeps the parameters with the run. Each backfill is a request of its own."""
    run_id, names = backfilled[1]["dag_run_id"], list[str]()
    for revision in (2, 3):
        number = running.backfill("ordered", 2, 2, reprocess_behavior="completed", dag_run_conf={"reprocess": True})
        ended = f"/backfills/{number}"  # not cancelled, or Airflow would not start its run again
        await_value(lambda path=ended: running.api.call("GET", path)["completed_at"], f"backfill {number} to end", 300)
        asked = running.api.call("GET", f"/dags/ordered/dagRuns/{run_id}")["conf"]
        assert asked["request"].startswith(f"backfill {number} of ")
        assert running.api.xcom("ordered", run_id, "advance")["revision"] == revision
        names.append(asked["request"])
    running.api.clear("ordered", run_id, ["plan"])
    assert running.api.await_run("ordered", run_id)["state"] == "success"
    found = running.api.xcom("ordered", run_id, "plan")
    assert (found["changed"], found["revision"]) == (False, 3)
    assert f"revision 3 answers the request {names[1]} for reprocess" in found["message"]


def test_a_backfill_that_runs_backwards_is_refused_by_name(running: Running, backfilled: list[dict[str, Any]]) -> None:
    first, second = running.api.await_intervals("backwards", [day(5), day(6)], timeout=180)
    plans = running.task(first, "plan"), running.task(second, "plan")
    assert [plan["state"] for plan in plans] == ["success", "failed"]
    assert plans[1]["try_number"] == 1  # waiting takes no retry
    assert "A backfill cannot run backwards" in running.whole_log(second, "plan")


@pytest.mark.parametrize(
    "asked",
    [
        {"logical_date": None},
        {"logical_date": day(9).isoformat()},
        {"logical_date": day(9).isoformat(), "dag_run_id": "x"},
    ],
)
def test_a_manual_run_is_refused(running: Running, backfilled: list[dict[str, Any]], asked: dict[str, Any]) -> None:
    runs = running.api.dag_runs("ordered")
    with pytest.raises(AirflowRefused, match="take no manual runs") as refused:
        running.api.call("POST", "/dags/ordered/dagRuns", asked)
    assert refused.value.status == 400
    assert running.api.dag_runs("ordered") == runs


def test_a_broken_pipeline_is_an_import_error_and_leaves_the_others_schedulable(
    running: Running, backfilled: list[dict[str, Any]]
) -> None:
    broken = running.pipelines / "broken"
    broken.mkdir()
    (broken / "pipeline.yaml").write_text("source: {topic: flights, fromat: json}\n")
    error = await_value(lambda: next(iter(running.api.import_errors()), None), "the import error", 120)
    assert error["filename"] == "fencepost_broken_pipelines.py"
    assert "broken/pipeline.yaml: source.fromat: unknown field; allowed here are topic, format" in error["stack_trace"]
    dag = running.api.dag("ordered")
    assert dag is not None
    assert (dag["has_import_errors"], dag["is_stale"]) == (False, False)
    shutil.rmtree(broken)
    await_value(lambda: True if not running.api.import_errors() else None, "the import error to go", 120)
