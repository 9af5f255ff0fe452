"""The wheel in an Airflow that somebody else has: a fresh environment outside the checkout, with what the wheel asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

CHECKOUT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).with_name("uv"))
FOR_THE_CHECKOUT = {"fencepost_stack/setup.sh"}

DAG_FILE = """
from fencepost.airflow import build_dags

globals().update(build_dags())
"""
PIPELINE = {
    "pipeline.yaml": """
source: {topic: in, format: bytes}
output: {topic: out, format: bytes}
schedule: {cron: "0 0 * * *", timezone: America/New_York, start: 2026-03-01T00:00:00-05:00}
kafka: {bootstrap.servers: "127.0.0.1:1"}
quality: {ask_operator_minutes: 5}
""",
    "transform.sql": "SELECT _key, value FROM {source}",
    "expectations.yaml": "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: value}}]",
}
# Run in the fresh environment. Airflow's own commands, and its own way from a file of DAGs to what its scheduler sees.
PROBE = """
import contextlib, io, json

from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag
from airflow.plugins_manager import get_import_errors
from airflow.serialization.serialized_objects import DagSerialization
from fastapi.testclient import TestClient


def airflow(*command):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        arguments = get_parser().parse_args([*command, "--output", "json"])
        arguments.func(arguments)
    return json.loads(said.getvalue())


def next_interval(dag):
    run = DagSerialization.from_dict(DagSerialization.to_dict(dag)).next_dagrun_info(last_automated_run_info=None)
    return [run.data_interval.start.isoformat(), run.data_interval.end.isoformat()]


def files(task):
    # Airflow renders a task's template fields before it runs.
    task.render_template_fields({})
    return {"application": task.application, "spark_binary": task._spark_binary}


import fencepost
from fencepost import paths, provider_info
from fencepost.airflow.plugin import FencepostPlugin
from fencepost.airflow.timetable import IntervalTimetable

bag = DagBag()
tasks = {task.task_id: task for dag in bag.dags.values() for task in dag.tasks}
pages = TestClient(FencepostPlugin.fastapi_apps[0]["app"])
no_page = pages.get("/nothing")
print(json.dumps({
    "package": fencepost.__file__,
    "providers": {row["package_name"]: row["version"] for row in airflow("providers", "list")},
    "provider": provider_info.get_provider_info(),
    "plugins": {row["name"]: row for row in airflow("plugins")},
    "plugin errors": get_import_errors(),
    "dags": {name: dag.fileloc for name, dag in bag.dags.items()},
    "dag errors": bag.import_errors,
    "timetables": [isinstance(dag.timetable, IntervalTimetable) for dag in bag.dags.values()],
    "intervals": [next_interval(dag) for dag in bag.dags.values()],
    "scripts": {name: files(task) for name, task in tasks.items() if hasattr(task, "application")},
    "assets": {name: pages.get(f"/static/{name}").status_code for name in ("pages.css", "pages.js", "icon.svg")},
    "no page": [no_page.status_code, no_page.headers["content-type"], no_page.text],
    "state": str(paths.state_folder()),
}))
"""


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command outside the checkout, for a user without settings of Fencepost's, in a home of their own."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    home = {"HOME": str(folder), "AIRFLOW_HOME": str(folder / "airflow")}
    quiet = {"AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
    return subprocess.run(
        command, cwd=folder, env={**environment, **home, **quiet}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(CHECKOUT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def stack_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(CHECKOUT / "include", tmp_path_factory.mktemp("dist"))


def _build(project: Path, folder: Path) -> Path:
    """A wheel built from the checkout, offline: the build needs no package but uv."""
    subprocess.run([UV, "build", "--quiet", "--offline", "--wheel", "--out-dir", folder, project], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.parametrize(("which", "package"), [("wheel", "fencepost"), ("stack_wheel", "fencepost_stack")])
def test_a_wheel_holds_its_package_with_its_data_and_nothing_else(
    which: str, package: str, request: pytest.FixtureRequest
) -> None:
    """So the product's has no launcher of Kafka in it."""
    with zipfile.ZipFile(request.getfixturevalue(which)) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/") and ".dist-info/" not in name}
    folder = CHECKOUT / "include"
    files = {path.relative_to(folder) for path in (folder / package).rglob("*") if path.is_file()}
    assert names == {str(path) for path in files if "__pycache__" not in path.parts} - FOR_THE_CHECKOUT


def test_an_airflow_that_a_team_has_gets_dags_plugin_timetable_and_templates(
    wheel: Path, stack_wheel: Path, tmp_path: Path
) -> None:
    """Nothing is there but the wheel, what it depends on, one file of DAGs and a pipeline's folder."""
    python = _install(wheel, tmp_path)
    pipeline = tmp_path / "airflow" / "pipelines" / "counted"
    dags = tmp_path / "airflow" / "dags"
    for folder in (pipeline, dags):
        folder.mkdir(parents=True)
    (dags / "fencepost.py").write_text(DAG_FILE)
    for name, text in PIPELINE.items():
        (pipeline / name).write_text(text)

    done = run([python, "-c", PROBE], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    installed = Path(found["package"]).parent
    assert installed.is_relative_to(tmp_path)
    assert (found["dag errors"], found["plugin errors"]) == ({}, {})
    assert found["dags"] == {"counted": str(dags / "fencepost.py")}
    assert found["timetables"] == [True]
    assert found["intervals"] == [["2026-03-01T05:00:00+00:00", "2026-03-02T05:00:00+00:00"]]
    plugin = found["plugins"]["fencepost"]
    assert plugin["source"].startswith("fencepost==")  # the entry point's, not a folder's
    assert plugin["timetables"] == ["fencepost.airflow.timetable.IntervalTimetable"]
    assert plugin["listeners"] == ["fencepost.airflow.run_note", "fencepost.airflow.run_request"]
    assert {view["url_route"] for view in plugin["external_views"]} == {
        *("data-quality", "batches", "run-report", "task-report")
    }
    assert found["providers"]["fencepost"] == found["provider"]["versions"][0]
    jobs = installed / "airflow" / "spark_jobs"
    assert found["scripts"] == {
        task: {"application": str(jobs / "run_step.py"), "spark_binary": str(jobs / "spark-submit.sh")}
        for task in ("write", "write_again", "validate", "validate_again", "advance")
    }
    assert set(found["assets"].values()) == {200}
    assert found["no page"][:2] == [404, "text/html; charset=utf-8"]
    assert "/static/pages.css" in found["no page"][2]  # the templates' own page
    assert found["state"] == str(tmp_path / ".local" / "state" / "fencepost")

    # As the operator submits a job; this one only says its arguments.
    submit = ["env", f"PYSPARK_PYTHON={python}", jobs / "spark-submit.sh", "--master", "local[1]"]
    submitted = run([*submit, jobs / "run_step.py", "--help"], tmp_path)
    assert (submitted.returncode, submitted.stdout.split()[:2]) == (0, ["usage:", "run_step.py"]), submitted.stderr

    command = python.with_name("fencepost")
    listed = run([command, "pipelines"], tmp_path)
    assert (listed.returncode, listed.stdout.split()[:4]) == (0, ["counted", "in", "→", "out"]), listed.stderr
    alone = run([command, "up"], tmp_path)
    assert (alone.returncode, "No such command 'up'" in alone.stderr) == (2, True), alone.stderr

    _pip_install(python, stack_wheel)
    beside = run([command, "services"], tmp_path)
    assert (beside.returncode, "No service is running" in beside.stderr) == (1, True), beside.stderr


def _install(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel and what it depends on, in the versions of requirements.txt; its Python.

    Set-up has left all of it in uv's cache. Only where that was emptied since, the registry is asked, as in set-up.
    """
    python = folder / "venv" / "bin" / "python"
    base = sys._base_executable  # type: ignore[attr-defined]
    subprocess.run([UV, "venv", "--quiet", "--offline", "--python", base, folder / "venv"], check=True)
    _pip_install(python, wheel)
    return python


def _pip_install(python: Path, wheel: Path) -> None:
    pins = CHECKOUT / "requirements.txt"
    install = [UV, "pip", "install", "--quiet", "--python", python, "--constraint", pins, wheel]
    if subprocess.run([*install, "--offline"], check=False).returncode != 0:
        subprocess.run(install, check=True)
