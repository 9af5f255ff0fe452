"""What spark-submit runs, without Spark: order of work, outcome file, exit code."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.connections import with_settings
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, SettingsError, WriteFailed
from fencepost.model import Interval, StepResult
from fencepost.steps import jobs
from fencepost.steps.handover import handed_over
from fencepost.steps.jobs import JobOutcome, main

ROOT = Path(__file__).resolve().parents[2]


class FakeSession:
    """A session that is stopped last, badly."""

    def __init__(self, outcome: Path) -> None:
        self.outcome = outcome
        self.told_before_stop = False

    def stop(self) -> None:
        self.told_before_stop = self.outcome.exists()
        raise RuntimeError("the JVM is gone")


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """As they were: a job sets those of its process, and this one has other tests."""
    loggers = [logging.getLogger(name) for name in ("fencepost", "fencepost.kafka.librdkafka", "py4j")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture
def outcome_file(tmp_path: Path) -> Path:
    return tmp_path / "outcome.json"


@pytest.fixture
def session(outcome_file: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession(outcome_file)
    monkeypatch.setattr("fencepost.spark.session.build_session", lambda pipeline, step: session)
    monkeypatch.setattr(jobs, "tie_to_parent", lambda number: None)
    monkeypatch.setattr(jobs, "load_for_judging", lambda pipeline: None)
    return session


@pytest.fixture
def arguments(pipeline: Pipeline, interval: Interval, outcome_file: Path) -> list[str]:
    return [
        *("--folder", str(pipeline.folder)),
        *("--start", interval.start.isoformat()),
        *("--end", interval.end.isoformat()),
        *("--outcome", str(outcome_file)),
    ]


def test_the_result_is_on_disk_before_the_session_is_stopped(
    session: FakeSession,
    arguments: list[str],
    outcome_file: Path,
    result: StepResult,
    interval: Interval,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr("fencepost.steps.write.write_batch", lambda *args, **_: seen.append(args) or result)
    monkeypatch.setattr("fencepost.steps.validate.judge_what_was_written", lambda *args: None)
    assert main(["write", *arguments]) == 0
    assert seen[0][0] is session
    assert seen[0][2] == interval
    assert session.told_before_stop
    outcome = JobOutcome.read(outcome_file)
    assert outcome is not None
    assert outcome.result == result


def test_what_was_written_is_judged_once_the_result_is_on_disk(
    session: FakeSession,
    arguments: list[str],
    outcome_file: Path,
    result: StepResult,
    interval: Interval,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[tuple[object, ...]] = []

    def judge(*args: object) -> None:
        judged.append((outcome_file.exists(), session.told_before_stop, args[0], *args[2:]))

    monkeypatch.setattr("fencepost.steps.write.write_batch", lambda *_, **__: result)
    monkeypatch.setattr("fencepost.steps.validate.judge_what_was_written", judge)
    assert main(["write", *arguments]) == 0
    assert judged == [(True, False, session, interval, result.batch)]


@pytest.mark.parametrize("step", ["write", "validate", "advance"])
def test_nothing_is_judged_after_another_step_or_one_that_failed(
    step: Any, session: FakeSession, arguments: list[str], result: StepResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[object] = []

    def answer(*args: object, **kwargs: object) -> StepResult:
        if step == "write":
            raise WriteFailed("an executor died")
        return result

    monkeypatch.setattr(f"fencepost.steps.{step}.{step}_batch", answer)
    monkeypatch.setattr("fencepost.steps.validate.judge_what_was_written", lambda *args: judged.append(args))
    assert main([step, *arguments]) == (3 if step == "write" else 0)
    assert judged == []


def test_an_error_of_ours_ends_with_its_exit_code_and_message(
    session: FakeSession, arguments: list[str], outcome_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*args: object, **_: object) -> StepResult:
        raise BatchRejected("carriers are not known")

    monkeypatch.setattr("fencepost.steps.validate.validate_batch", reject)
    assert main(["validate", *arguments]) == 1
    assert JobOutcome.read(outcome_file) == JobOutcome(
        status="error", error="BatchRejected", retriable=False, exit_code=1, message="carriers are not known"
    )


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_defect_is_terminal_and_shows_data_only_to_who_asks(
    level: str,
    session: FakeSession,
    arguments: list[str],
    outcome_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*args: object, **_: object) -> StepResult:
        raise ValueError("a passenger's name")

    monkeypatch.setattr("fencepost.steps.write.write_batch", fail)
    monkeypatch.setenv("FENCEPOST_LOG", level)
    assert main(["write", *arguments]) == 4
    outcome = JobOutcome.read(outcome_file)
    assert outcome is not None
    assert not outcome.retriable
    assert "passenger" not in outcome.message
    assert ("passenger" in caplog.text) == (level == "DEBUG")


def test_a_pipeline_that_cannot_be_read_is_an_outcome_too(
    session: FakeSession, arguments: list[str], outcome_file: Path, pipeline: Pipeline
) -> None:
    (pipeline.folder / "pipeline.yaml").write_text("{}")
    assert main(["write", *arguments]) == SettingsError.exit_code
    outcome = JobOutcome.read(outcome_file)
    assert outcome is not None
    assert outcome.error == "SettingsError"


def test_a_job_that_wrote_nothing_has_no_outcome(outcome_file: Path) -> None:
    assert JobOutcome.read(outcome_file) is None


def test_a_tied_process_ends_with_its_parent() -> None:
    child = (
        "from fencepost.spark.parent import tie_to_parent; import time;"
        "tie_to_parent(15); print('tied', flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE);"
            "print(p.stdout.readline().decode().strip(), p.pid, flush=True); p.wait()",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        said, pid = parent.stdout.readline().split()
    assert said == "tied"
    parent.kill()
    parent.wait()
    assert gone(int(pid))


def test_spark_submit_refuses_to_start_for_a_task_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "spark-submit").write_text(f"#!/bin/bash\ntouch {tmp_path}/ran\n")
    (tmp_path / "spark-submit").chmod(0o755)
    env = os.environ | {"PYSPARK_PYTHON": str(tmp_path / "python"), "FENCEPOST_PARENT": "1"}
    script = [str(ROOT / "spark_jobs" / "spark-submit.sh"), "--master", "local"]
    assert subprocess.run(script, env=env, check=False).returncode == 143
    assert not (tmp_path / "ran").exists()
    assert subprocess.run(script, env=env | {"FENCEPOST_PARENT": str(os.getpid())}, check=False).returncode == 0
    assert (tmp_path / "ran").exists()


def gone(pid: int, timeout: float = 5.0) -> bool:
    """Whether a process ends in time. A zombie that nobody waits for has ended."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


def test_the_job_takes_the_settings_of_its_connections_from_the_task(
    session: FakeSession,
    arguments: list[str],
    outcome_file: Path,
    result: StepResult,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once: a job that comes to an empty pipe tells that its task has ended."""
    file = pipeline.folder / "pipeline.yaml"
    file.write_text(file.read_text().replace('bootstrap.servers: "127.0.0.1:1"', "connection: kafka_prod"))
    named = load_pipeline(pipeline.folder)
    whole = with_settings(named, {"kafka": {"sasl.username": "etl"}})
    seen: list[Pipeline] = []
    monkeypatch.setattr(
        "fencepost.steps.write.write_batch", lambda _, pipeline, *__, **___: seen.append(pipeline) or result
    )
    monkeypatch.setattr("fencepost.steps.validate.judge_what_was_written", lambda *args: seen.append(args[1]))
    pipe = outcome_file.with_name("settings")
    with handed_over(whole, pipe):
        assert main(["write", *arguments, "--settings", str(pipe)]) == 0
    assert seen == [whole, whole]
    os.mkfifo(pipe)
    assert main(["write", *arguments, "--settings", str(pipe)]) == 3
    outcome = JobOutcome.read(outcome_file)
    assert outcome is not None
    assert (outcome.error, outcome.retriable) == ("DriverDied", True)
