"""However a Spark task ends, its JVM, its Python driver and its workers end with it, before the next attempt begins."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from fencepost_stack.airflow_api import await_value

from .conftest import Running

pytestmark = [pytest.mark.deep, pytest.mark.stack, pytest.mark.timeout(400)]

SOON = 10.0  # seconds


@pytest.fixture(scope="module")
def notes(running: Running, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """What the sleepy pipelines wrote down. The second starts its Spark while the first sleeps, as do the backfills."""
    folder = tmp_path_factory.mktemp("notes")
    running.add_sleepy("timed_out", folder / "timed_out", sleeps=1, in_worker=False, timeout_minutes=1, retries=0)
    running.add_sleepy("killed", folder / "killed", sleeps=2, in_worker=True)
    running.backfill("timed_out", 1, 1)
    asleep(folder / "timed_out", 1)
    running.backfill("killed", 1, 1)
    request.getfixturevalue("backfills")
    return folder


def asleep(notes: Path, attempt: int, timeout: float = 120) -> dict[str, int]:
    """The pids of an attempt's processes by name, once it sleeps."""
    await_value(lambda: (notes / f"{attempt}.asleep").exists() or None, f"attempt {attempt} to sleep", timeout)
    return {file.stem: int(file.read_text()) for file in notes.glob(f"{attempt}-*.pid")}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def survivors(processes: dict[str, int], timeout: float = SOON) -> list[str]:
    """Who still lives after that time."""
    deadline = time.monotonic() + timeout
    while left := [name for name, pid in processes.items() if lives(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.1)
    return []


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_task_that_times_out_takes_its_spark_job_along(running: Running, notes: Path) -> None:
    processes = asleep(notes / "timed_out", 1)
    assert set(processes) == {"1-jvm", "1-driver"}
    run = running.api.dag_runs("timed_out")[0]
    running.api.await_task("timed_out", run["dag_run_id"], "write", {"failed"}, timeout=90)
    assert survivors(processes) == []
    assert "AirflowTaskTimeout" in running.whole_log(run, "write")


def test_a_task_killed_outright_takes_its_spark_job_along(running: Running, notes: Path) -> None:
    processes = asleep(notes / "killed", 1)
    assert set(processes) == {"1-jvm", "1-driver", "1-daemon", "1-worker"}
    os.kill(parent(processes["1-jvm"]), signal.SIGKILL)
    assert survivors(processes) == []


def test_a_task_whose_supervisor_is_killed_takes_its_spark_job_along(running: Running, notes: Path) -> None:
    processes = asleep(notes / "killed", 2)
    assert (notes / "killed" / "2.began").read_text() == ""
    task = parent(processes["2-jvm"])
    os.kill(parent(task), signal.SIGKILL)
    assert survivors({"task": task, **processes}) == []
