"""A rejected batch, the two fixes that an operator makes by clearing a task, and what a channel, metrics and lineage are told.

Decisions: `test_decision.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fencepost.model import Batch, State
from fencepost_stack.airflow_api import await_value
from kafka_tools import Record, group_offsets, read_all

from .conftest import CHANNEL_TOKEN, OBSERVED, STRICT, Running, day

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

TRANSFORM = "mended_transform"
MENDED = STRICT.replace("[v0, v2]", "[v0, v1, v2]")
WITHOUT_THE_SECOND = "def transform(frame): return frame.where(\"value <> 'v1'\").selectExpr('_key', 'value')"

SECRET = "leak-me-not"
SLACK = "airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier"
MORE = f"""
notify:
  - on: [rejected, failed, recovered]
    notifier: {SLACK}
    kwargs: {{slack_webhook_conn_id: channel, text: "{{{{ fencepost.event }}}} {{{{ fencepost.text }}}}"}}
    backfills: true
postgres: {{host: db, dbname: d, user: u, password: {SECRET}}}
lineage: {{kafka: kafka.example.com:9092}}
"""
SOURCE, OUTPUT = (("kafka://kafka.example.com:9092", f"{OBSERVED}-{side}") for side in ("in", "out"))
STAGING = f"fencepost.{OBSERVED}.staging"

Run = dict[str, Any]


def rejected(running: Running, name: str, more: str = "") -> Run:
    """The red run of a pipeline, of three records."""
    running.add(name, expectations=STRICT, records=3, more=more)
    running.backfill(name, 1, 1)
    (run,) = running.api.await_intervals(name, [day(1)])
    return run


@pytest.fixture(scope="module")
def run(running: Running) -> Run:
    """The run whose suite will be fixed."""
    return rejected(running, OBSERVED, MORE)


def test_the_run_is_red_at_validate_and_says_why_and_where_the_report_is(
    running: Running, page: Page, run: Run
) -> None:
    assert run["state"] == "failed"
    tasks = {t["task_id"]: t for t in running.api.task_instances(OBSERVED, run["dag_run_id"])}
    assert (tasks["write"]["state"], tasks["validate"]["state"]) == ("success", "failed")
    assert tasks["validate"]["try_number"] == 1, "a retry would not fix it, so there is none"
    assert group_offsets(running.bootstrap, OBSERVED, f"{OBSERVED}-in", [0]) == {}
    (batch,) = running.ledger(OBSERVED)
    assert batch.state is State.REJECTED
    assert batch.verdict is not None
    report = json.loads(Path(batch.verdict.report).with_suffix(".json").read_text())
    (failed,) = report["evaluation"]["checks"]
    assert [(row["topic"], row["offset"]) for row in failed["sample"]] == [(STAGING, 1)]
    assert read_all(running.bootstrap, f"{OBSERVED}-out") == [], "no reader sees a rejected batch"
    said = running.whole_log(run, "validate")
    assert "expect_column_values_to_be_in_set(value)" in said
    assert batch.verdict.report in said
    assert "spark-submit" in running.whole_log(run, "write")
    assert "spark-submit" not in said, "the job of the write has judged"
    link = f"{running.api.url}/dags/{OBSERVED}/runs/"
    assert link in said
    page.goto(link + said.partition(link)[2].split("run-report")[0] + "run-report")
    shown = page.frame_locator('iframe[title="Report"]').frame_locator('iframe[title="Report"]')
    expect(shown.get_by_role("heading", name="Rejected")).to_be_visible()


def cleared(running: Running, run: Run, task_id: str) -> list[Batch]:
    """Clear a task and what follows; the ledger when the run is through."""
    running.api.clear(run["dag_id"], run["dag_run_id"], [task_id])
    assert running.api.await_run(run["dag_id"], run["dag_run_id"])["state"] == "success"
    return running.ledger(run["dag_id"])


@pytest.fixture(scope="module")
def staged(running: Running, run: Run) -> list[Record]:
    """What the red run has staged."""
    return read_all(running.bootstrap, STAGING)


@pytest.fixture(scope="module")
def fixed(running: Running, run: Run, staged: list[Record]) -> Run:
    """The same run after its suite was fixed."""
    (running.pipelines / OBSERVED / "expectations.yaml").write_text(MENDED)
    cleared(running, run, "validate")
    return run


def test_a_mended_suite_judges_again_what_is_written_and_writes_nothing(
    running: Running, staged: list[Record], fixed: Run
) -> None:
    (batch,) = running.ledger(OBSERVED)
    assert (batch.state, batch.revision) == (State.PUBLISHED, 1)
    assert group_offsets(running.bootstrap, OBSERVED, f"{OBSERVED}-in", [0]) == {0: 3}
    assert read_all(running.bootstrap, STAGING) == staged
    assert [r.value for r in read_all(running.bootstrap, f"{OBSERVED}-out")] == [b"v0", b"v1", b"v2"]


def test_a_mended_transform_writes_a_second_revision_of_the_same_input(
    running: Running,
) -> None:
    run = rejected(running, TRANSFORM)
    (running.pipelines / TRANSFORM / "transform.py").write_text(WITHOUT_THE_SECOND)
    first, second = cleared(running, run, "write")
    assert (first.state, second.state, second.revision) == (State.SUPERSEDED, State.PUBLISHED, 2)
    assert second.plan.inputs == first.plan.inputs
    written = [r.value for r in read_all(running.bootstrap, f"{TRANSFORM}-out") if r.batch == str(second.id)]
    assert written == [b"v0", b"v2"]


def test_the_channel_hears_of_the_rejection_and_of_the_recovery_once_each(running: Running, fixed: Run) -> None:
    texts = running.told_of(OBSERVED)
    assert [text.split()[0] for text in texts] == ["rejected", "recovered"]
    assert "expect_column_values_to_be_in_set(value) (1 of 3 records)" in texts[0]
    assert "published with 3 records" in texts[1]
    assert f"{running.api.url}/dags/{OBSERVED}/runs/" in texts[0]
    running.api.clear(OBSERVED, fixed["dag_run_id"], ["advance"])
    assert running.api.await_run(OBSERVED, fixed["dag_run_id"])["state"] == "success"
    assert running.told_of(OBSERVED) == texts, "it is noted in the state store of the asset"


def test_metrics_have_the_figures_of_each_step(running: Running, fixed: Run) -> None:
    prefix, found = f"airflow.fencepost.{OBSERVED}.", list[str]()

    def all_came() -> bool | None:
        found.extend(line.removeprefix(prefix) for line in running.told.metrics.lines(1, 1) if line.startswith(prefix))
        return expected <= set(found) or None

    expected = {"rows_read:3|c", "rows_written:3|c", "rows_quarantined:0|c", "lag_records:0|g"}
    expected |= {"verdicts.rejected:1|c", "verdicts.passed:1|c", "verdict_passed:0|g", "verdict_passed:1|g"}
    expected |= {f"frontier_timestamp_seconds:{day(2).timestamp()}|g"}
    await_value(all_came, "all figures", 30)
    assert {line.split(":")[0] for line in found if "seconds." in line} >= {
        "step_seconds.write",
        "step_seconds.advance",
    }
    assert found.count("rows_written:3|c") == 1, "a run that found its work done tells nothing"


def test_lineage_has_the_datasets_of_each_task_and_no_secret(running: Running, fixed: Run) -> None:
    text = running.told.lineage.read_text()
    events = [json.loads(line) for line in text.splitlines()]
    ends = {(e["job"]["name"].rpartition(".")[2], e["eventType"]): e for e in events if e["eventType"] != "START"}
    assert ("advance", "COMPLETE") in ends
    advanced = next(e for e in events if e["job"]["name"].endswith(".advance") and e["outputs"])
    assert (names(advanced["inputs"]), names(advanced["outputs"])) == ([SOURCE], [OUTPUT])
    assert advanced["run"]["facets"]["fencepost_batch"]["rows"] == 3
    assert names(ends["write", "COMPLETE"]["inputs"]) == [SOURCE]
    for kind, success in (("FAIL", False), ("COMPLETE", True)):
        (judged,) = ends["validate", kind]["inputs"]
        assert (judged["namespace"], judged["name"]) == OUTPUT
        (assertion,) = judged["inputFacets"]["dataQualityAssertions"]["assertions"]
        assert (assertion["success"], assertion["column"]) == (success, "value")
    assert "pipeline" in json.dumps(ends["write", "COMPLETE"]["run"]["facets"]["airflow"]["task"]), "the whole task"
    for secret in (SECRET, CHANNEL_TOKEN):
        assert secret not in text
        assert not any(secret in file.read_text() for file in logs(running))


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


def logs(running: Running) -> list[Path]:
    found = [file for file in (running.logs / f"dag_id={OBSERVED}").rglob("*.log") if file.is_file()]
    assert found
    return found
