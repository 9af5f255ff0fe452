"""What a run's note says."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.airflow.run_note import told


def result(step: str, message: str) -> dict[str, Any]:
    return {"step": step, "batch": "p/i/1", "revision": 1, "state": "published", "changed": False, "message": message}


@pytest.mark.parametrize(
    ("conf", "seen"),
    [({}, "reprocess=false"), ({"reprocess": True}, "reprocess=true"), ({"x": "<b>"}, "reprocess=false")],
)
def test_the_last_steps_message_and_the_params(conf: dict[str, Any], seen: str) -> None:
    results = {"plan": result("plan", "planned"), "advance": result("advance", "already published, revision 1")}
    assert told(results, conf) == f"advance: already published, revision 1. Params the run saw: {seen}."


def test_a_run_that_stopped_tells_the_last_step_that_ended_well() -> None:
    assert told({"plan": result("plan", "planned"), "write": None}, {}).startswith("plan: planned.")


def test_what_is_no_steps_result_is_passed_over() -> None:
    assert told({"plan": result("plan", "planned"), "decide": {"choice": None}}, {}).startswith("plan: planned")
