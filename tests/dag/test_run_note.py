"""What a run's note says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.airflow import build_dag, run_note
from fencepost.airflow.run_note import final_note, running_note
from fencepost.config.pipeline import Pipeline


def result(step: str, message: str) -> dict[str, Any]:
    return {"step": step, "batch": "p/i/1", "revision": 1, "state": "published", "changed": False, "message": message}


SEEN = "Params the run saw: reprocess=false."
WELL = dict.fromkeys(("plan", "write", "validate", "advance"), "success")


@pytest.mark.parametrize(
    ("conf", "seen"),
    [
        ({}, "reprocess=false"),
        ({"reprocess": True}, "reprocess=true"),
        ({"replay": True}, "reprocess=false, replay=true"),
        (
            {"another_cluster": True, "sources_changed": True},
            "reprocess=false, another_cluster=true, sources_changed=true",
        ),
        ({"sources_changed": False, "request": "backfill 3"}, "reprocess=false"),
        ({"x": "<b>"}, "reprocess=false"),
    ],
)
def test_the_last_steps_message_and_the_params(conf: dict[str, Any], seen: str) -> None:
    results = {"plan": result("plan", "planned"), "advance": result("advance", "already published, revision 1")}
    assert final_note(results, WELL, conf) == f"advance: already published, revision 1. Params the run saw: {seen}."
    assert running_note(conf) == f"running. Params the run saw: {seen}."


def test_a_run_that_stopped_tells_what_failed_and_the_last_step_that_ended_well() -> None:
    states = {"plan": "success", "write": "failed", "validate": "upstream_failed"}
    assert final_note({"plan": result("plan", "planned")}, states, {}) == f"write failed. Before, plan: planned. {SEEN}"
    assert final_note({}, {"plan": "failed"}, {}) == f"plan failed. {SEEN}"


def test_what_a_step_said_the_time_before_is_not_told_again() -> None:
    """A run that published revision 1 is cleared; its second validate is rejected, and advance does not run."""
    results = {
        "plan": result("plan", "planned revision 2"),
        "write": result("write", "3 rows"),
        "advance": result("advance", "published revision 1"),
    }
    states = {"plan": "success", "write": "success", "validate": "failed", "advance": "upstream_failed"}
    assert final_note(results, states, {}) == f"validate failed. Before, write: 3 rows. {SEEN}"


def test_a_rejection_that_a_person_decided_about_is_behind_the_run() -> None:
    results = {"plan": result("plan", "p"), "advance": result("advance", "published revision 2")}
    states = {"plan": "success", "validate": "failed", "decide": "success", "advance": "success"}
    assert final_note(results, states, {}) == f"advance: published revision 2. {SEEN}"


def test_where_results_are_kept_elsewhere_the_note_tells_which_step_was_the_last() -> None:
    """As by an XCom backend on object storage: Airflow's database has the address alone."""
    elsewhere = dict.fromkeys(WELL, "s3://xcom/counted/run/some-id")
    assert final_note(elsewhere, WELL, {}) == f"advance succeeded. {SEEN}"
    assert final_note({}, WELL, {}) == f"advance succeeded. {SEEN}"
    states = {"plan": "success", "write": "failed", "validate": "upstream_failed"}
    assert final_note(elsewhere, states, {}) == f"write failed. Before, plan succeeded. {SEEN}"
    assert final_note({}, {}, {}) == f"nothing was done. {SEEN}"


def test_what_is_no_steps_result_is_passed_over() -> None:
    results = {"plan": result("plan", "planned"), "decide": {"choice": None}}
    assert final_note(results, {"plan": "success", "decide": "success"}, {}).startswith("plan: planned")


@pytest.mark.parametrize(
    ("note", "after"),
    [
        (None, "Fencepost: running. Params the run saw: reprocess=true."),
        (
            "Fencepost: advance: published revision 1. Params the run saw: reprocess=false.",
            "Fencepost: running. Params the run saw: reprocess=true.",
        ),
        ("look at this", "look at this"),
    ],
)
def test_a_note_is_renewed_when_a_run_begins_unless_somebody_wrote_it(
    pipeline: Pipeline, note: str | None, after: str
) -> None:
    run: Any = SimpleNamespace(dag=build_dag(pipeline), note=note, conf={"reprocess": True})
    run_note.on_dag_run_running(run, "started")
    assert run.note == after


def test_the_run_of_another_dag_gets_no_note() -> None:
    run: Any = SimpleNamespace(dag=SimpleNamespace(timetable=object()), note=None, conf={})
    run_note.on_dag_run_running(run, "started")
    assert run.note is None
