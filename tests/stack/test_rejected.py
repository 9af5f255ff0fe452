"""A rejected batch, and the two mends that an operator makes by clearing a task. Decisions: `test_decision.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fencepost.model import Batch, State
from kafka_tools import group_offsets, read_all

from .conftest import STRICT, Running, day

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

SUITE, TRANSFORM = "mended_suite", "mended_transform"
MENDED = STRICT.replace("[v0, v2]", "[v0, v1, v2]")
WITHOUT_THE_SECOND = "def transform(frame): return frame.where(\"value <> 'v1'\").selectExpr('_key', 'value')"

Run = dict[str, Any]


def rejected(running: Running, name: str) -> Run:
    """The red run of a pipeline, of three records."""
    running.add(name, expectations=STRICT, records=3)
    running.backfill(name, 1, 1)
    (run,) = running.api.await_intervals(name, [day(1)])
    return run


@pytest.fixture(scope="module")
def run(running: Running) -> Run:
    """The run whose suite will be mended."""
    return rejected(running, SUITE)


def test_the_run_is_red_at_validate_and_says_why_and_where_the_report_is(
    running: Running, page: Page, run: Run
) -> None:
    assert run["state"] == "failed"
    tasks = {t["task_id"]: t for t in running.api.task_instances(SUITE, run["dag_run_id"])}
    assert (tasks["write"]["state"], tasks["validate"]["state"]) == ("success", "failed")
    assert tasks["validate"]["try_number"] == 1, "a retry would not mend it, so there is none"
    assert group_offsets(running.bootstrap, SUITE, f"{SUITE}-in", [0]) == {}
    (batch,) = running.ledger(SUITE)
    assert batch.state is State.REJECTED
    assert batch.verdict is not None
    report = json.loads(Path(batch.verdict.report).with_suffix(".json").read_text())
    (failed,) = report["evaluation"]["checks"]
    assert [(row["topic"], row["offset"]) for row in failed["sample"]] == [(f"fencepost.{SUITE}.staging", 1)]
    assert read_all(running.bootstrap, f"{SUITE}-out") == [], "no reader sees a rejected batch"
    said = running.whole_log(run, "validate")
    assert "expect_column_values_to_be_in_set(value)" in said
    assert batch.verdict.report in said
    assert "spark-submit" in running.whole_log(run, "write")
    assert "spark-submit" not in said, "the job of the write has judged"
    link = f"{running.api.url}/dags/{SUITE}/runs/"
    assert link in said
    page.goto(link + said.partition(link)[2].split("run-report")[0] + "run-report")
    shown = page.frame_locator('iframe[title="Report"]').frame_locator('iframe[title="Report"]')
    expect(shown.get_by_role("heading", name="Rejected")).to_be_visible()


def cleared(running: Running, run: Run, task_id: str) -> list[Batch]:
    """Clear a task and what follows; the ledger when the run is through."""
    running.api.clear(run["dag_id"], run["dag_run_id"], [task_id])
    assert running.api.await_run(run["dag_id"], run["dag_run_id"])["state"] == "success"
    return running.ledger(run["dag_id"])


def test_a_mended_suite_judges_again_what_is_written_and_writes_nothing(running: Running, run: Run) -> None:
    before = read_all(running.bootstrap, f"fencepost.{SUITE}.staging")
    (running.pipelines / SUITE / "expectations.yaml").write_text(MENDED)
    (batch,) = cleared(running, run, "validate")
    assert (batch.state, batch.revision) == (State.PUBLISHED, 1)
    assert group_offsets(running.bootstrap, SUITE, f"{SUITE}-in", [0]) == {0: 3}
    assert read_all(running.bootstrap, f"fencepost.{SUITE}.staging") == before
    assert [r.value for r in read_all(running.bootstrap, f"{SUITE}-out")] == [b"v0", b"v1", b"v2"]


def test_a_mended_transform_writes_a_second_revision_of_the_same_input(
    running: Running,
) -> None:
    run = rejected(running, TRANSFORM)
    (running.pipelines / TRANSFORM / "transform.py").write_text(WITHOUT_THE_SECOND)
    first, second = cleared(running, run, "write")
    assert (first.state, second.state, second.revision) == (State.SUPERSEDED, State.PUBLISHED, 2)
    assert second.plan.sources == first.plan.sources
    written = [r.value for r in read_all(running.bootstrap, f"{TRANSFORM}-out") if r.batch == str(second.id)]
    assert written == [b"v0", b"v2"]
