"""A pipeline in a Git bundle, whose login is a connection in Airflow's database: it runs, and is fixed by a commit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from conftest import EXPECTATIONS as NO_NULLS
from kafka_tools import create_topic, read_all

from .conftest import PLAIN, Running, Site, day

pytestmark = [pytest.mark.deep, pytest.mark.stack]

DAG_FILE = """
from pathlib import Path

from fencepost.airflow import build_dags

globals().update(build_dags(folder=Path(__file__).parent / "pipelines", default_args={"owner": "team"}))
"""
PIPELINE_YAML = """
source: {topic: bundled-in, format: bytes}
output: {topic: bundled-out, format: bytes, key: _key, partitions: 1}
schedule: {start: 2026-01-01, end: 2026-02-01, catchup: false, retries: 0, timeout_minutes: 5}
spark: {spark.driver.memory: 512m}
kafka: {connection: kafka_of_the_team, client.id: bundled}
airflow: {tags: [of-the-bundle]}
"""
BROKEN = "def transform(frame): raise ValueError('not fixed yet')"
LEAK = "hunter2-of-the-team"  # a password that a cluster without a login does not ask for


def git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=etl", "-c", "user.email=etl@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)


def commit(repository: Path, message: str, **files: str) -> None:
    for name, content in files.items():
        file = repository / "dags" / name.replace("__", "/").replace("_yaml", ".yaml").replace("_py", ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    git(repository, "add", "--all")
    git(repository, "commit", "--message", message)


def test_a_pipeline_of_a_bundle_logs_in_by_a_connection_and_is_mended_by_a_commit(running: Running) -> None:
    """The cleared task runs in the new version, though its run began in the old one. The pages know it by its DAG alone."""
    extra = {"bootstrap.servers": running.bootstrap, "group.id": "reports", "sasl.password": LEAK}
    body = {"connection_id": "kafka_of_the_team", "conn_type": "kafka", "extra": json.dumps(extra)}
    running.api.call("POST", "/connections", body)
    create_topic(running.bootstrap, "bundled-in", 1)
    running.produce("bundled", 1, [b"v0", b"v1", b"v2"])
    files = {
        "team_dags_py": DAG_FILE,
        "pipelines__bundled__pipeline_yaml": PIPELINE_YAML,
        "pipelines__bundled__transform_py": BROKEN,
        "pipelines__bundled__expectations_yaml": NO_NULLS.replace("column: n", "column: value"),
    }
    commit(running.repository, "a pipeline", **files)
    running.backfill("bundled", 1, 1)
    (run,) = running.api.await_intervals("bundled", [day(1)])
    assert run["state"] == "failed"
    assert running.task(run, "plan")["state"] == "success", running.last_log(run, "plan")
    assert "ValueError in transform.py, line 1" in running.last_log(run, "write")

    commit(running.repository, "fixed", pipelines__bundled__transform_py=PLAIN)
    running.api.clear("bundled", run["dag_run_id"], ["write"])
    assert running.api.await_run("bundled", run["dag_run_id"])["state"] == "success", running.last_log(run, "write")
    assert sorted(r.value or b"" for r in read_all(running.bootstrap, "bundled-out")) == [b"v0", b"v1", b"v2"]
    (dag_run,) = running.api.dag_runs("bundled")
    assert dag_run["bundle_version"] is None
    assert {"of-the-bundle", "fencepost"} <= {tag["name"] for tag in running.api.await_dag("bundled")["tags"]}

    page = Site(running, [run]).get("/fencepost/pipelines/bundled", "admin")
    assert page.status_code == 200, page.text
    assert "1–1 of 1 intervals" in page.text  # noqa: RUF001 - as the page has it
    assert "published" in page.text
    logs = "".join(running.whole_log(run, task) for task in ("plan", "write", "validate", "advance"))
    assert LEAK not in logs + page.text
    assert "bundled/" in logs, "what is no secret is not masked: client.id is the DAG's id"
    assert LEAK not in json.dumps(running.api.call("GET", "/dags/bundled/details"))
