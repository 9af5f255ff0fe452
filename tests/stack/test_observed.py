"""What a real run tells others of a batch that is rejected and then mended: a channel, metrics, lineage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost_stack.airflow_api import await_value

from .conftest import CHANNEL_TOKEN, OBSERVED, STRICT, Running, day

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

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


@pytest.fixture(scope="module")
def run(running: Running) -> dict[str, Any]:
    """The run of three records, of which one made its suite reject the batch, after the suite was mended."""
    running.add(OBSERVED, expectations=STRICT, records=3, more=MORE)
    running.backfill(OBSERVED, 1, 1)
    (run,) = running.api.await_intervals(OBSERVED, [day(1)])
    assert run["state"] == "failed"
    (running.pipelines / OBSERVED / "expectations.yaml").write_text(STRICT.replace("[v0, v2]", "[v0, v1, v2]"))
    running.api.clear(OBSERVED, run["dag_run_id"], ["validate"])
    assert running.api.await_run(OBSERVED, run["dag_run_id"])["state"] == "success"
    return run


def test_the_channel_hears_of_the_rejection_and_of_the_recovery_once_each(
    running: Running, run: dict[str, Any]
) -> None:
    texts = [json.loads(body)["text"] for body in running.told.channel.bodies]
    assert [text.split()[0] for text in texts] == ["rejected", "recovered"]
    assert "expect_column_values_to_be_in_set(value) (1 of 3 records)" in texts[0]
    assert "published with 3 records" in texts[1]
    assert f"{running.api.url}/dags/{OBSERVED}/runs/" in texts[0]
    running.api.clear(OBSERVED, run["dag_run_id"], ["advance"])
    assert running.api.await_run(OBSERVED, run["dag_run_id"])["state"] == "success"
    assert len(running.told.channel.bodies) == 2, "it is noted in the state store of the asset"


def test_metrics_have_the_figures_of_each_step(running: Running, run: dict[str, Any]) -> None:
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


def test_lineage_has_the_datasets_of_each_task_and_no_secret(running: Running, run: dict[str, Any]) -> None:
    text = running.told.lineage.read_text()
    events = [json.loads(line) for line in text.splitlines()]
    ends = {(e["job"]["name"].rpartition(".")[2], e["eventType"]): e for e in events if e["eventType"] != "START"}
    advanced = ends["advance", "COMPLETE"]
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
        assert not any(secret in file.read_text() for file in logs(running, run))


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


def logs(running: Running, run: dict[str, Any]) -> list[Path]:
    found = [file for file in (running.logs / f"dag_id={OBSERVED}").rglob("*.log") if file.is_file()]
    assert found
    return found
