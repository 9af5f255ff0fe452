"""A command that is told to end while Spark runs: Ctrl-C in a terminal, and SIGTERM."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from conftest import at
from fencepost.config.pipeline import Pipeline
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from waiting import await_true

FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
DAY = ("--start", "2026-01-01", "--end", "2026-01-02")
# Spark's workers stand still until they are let go.
WAITS = """
import time
from pathlib import Path

FOLDER = Path(__file__).parent

def wait(batches):
    (FOLDER / "running").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.05)
    yield from batches

def transform(frame):
    return frame.select("_key", "n").mapInPandas(wait, "_key binary, n int")
"""


class InTerminal:
    """A command in a terminal of its own: a session with a foreground process group, as a shell starts it."""

    def __init__(self, *arguments: str, output: Path | None = None, **environment: str) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job has it ignored
            if output is not None:
                os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
            os.execvpe(FENCEPOST, (FENCEPOST, *arguments), {**os.environ, "TERM": "dumb", **environment})  # noqa: S606
        self.process = psutil.Process(self.pid)

    def family(self) -> list[psutil.Process]:
        """Spark's JVM, and the workers that it started."""
        return self.process.children(recursive=True)

    def press_ctrl_c(self) -> None:
        """The terminal sends SIGINT to all of its foreground process group, the JVM among it."""
        os.write(self.terminal, b"\x03")

    def end(self) -> tuple[int, str]:
        """The exit code, and all that it said on the terminal; it has left no process behind."""
        said, family = b"", self.family()
        with suppress(OSError):  # a terminal that nobody holds any more
            while chunk := os.read(self.terminal, 65_536):
                said += chunk
        os.close(self.terminal)
        _, status = os.waitpid(self.pid, 0)
        await_true(lambda: not any(map(is_alive, family)), "Spark's processes to end", 30)
        return os.waitstatus_to_exitcode(status), said.decode().replace("\r\n", "\n").replace("^C", "")


def is_jvm(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in process.cmdline())
    return False


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def pipeline(broker: Broker, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Six records on each of two days."""
    made = make_pipeline(WAITS)
    create_topic(broker.bootstrap, made.source.topic, 2)
    for number in (1, 2):
        rows = [(b"a", {"n": n}, n % 2, at(number)) for n in range(6)]
        produce(broker.bootstrap, made.source.topic, rows)
    produce(broker.bootstrap, made.source.topic, [(b"z", {"n": 0}, p, at(3)) for p in (0, 1)])
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(made.folder.parent))
    return made


def at_work(pipeline: Pipeline, *arguments: str, output: Path | None = None) -> InTerminal:
    """The command, once Spark's workers are in the transform."""
    (pipeline.folder / "running").unlink(missing_ok=True)
    command = InTerminal(arguments[0], pipeline.name, *arguments[1:], output=output)
    await_true((pipeline.folder / "running").exists, "Spark's workers to run")
    return command


def test_a_run_that_gets_ctrl_c_in_spark_says_what_is_left_and_the_next_one_finishes_it(
    broker: Broker, pipeline: Pipeline
) -> None:
    command = at_work(pipeline, "run", *DAY)
    command.press_ctrl_c()
    code, said = command.end()
    assert code == 130
    planned, *others = said.strip().splitlines()
    assert planned.startswith("plan ")
    assert others == [
        "starting Spark",
        "writing",
        "interrupted. Of 2026-01-01 00:00 to 2026-01-02 00:00 UTC, write, validate and advance are left. What is done stays "
        "done. Run the same command again to continue.",
    ]
    assert [b.state for b in Ledger(pipeline).read().all()] == [State.PLANNED]
    (pipeline.folder / "go").touch()
    code, said = InTerminal("run", pipeline.name, *DAY).end()
    assert code == 0, said
    assert [
        r.json["n"] for r in sorted(read_all(broker.bootstrap, pipeline.output.topic), key=lambda r: r.json["n"])
    ] == [*range(6)]


@pytest.mark.deep
def test_told_to_end_by_sigterm_it_prints_one_document_and_ends_with_the_code_of_that_signal(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    command = at_work(pipeline, "run", *DAY, "--json", output=tmp_path / "json")
    os.killpg(command.pid, signal.SIGTERM)
    code, said = command.end()
    document = json.loads((tmp_path / "json").read_text())
    assert (code, document["exit_code"], document["error"]["type"]) == (143, 143, "Interrupted")
    assert [step["step"] for step in document["steps"]] == ["plan"]
    assert document["error"]["message"] in said


@pytest.mark.deep
def test_each_says_where_it_stopped(pipeline: Pipeline) -> None:
    command = at_work(pipeline, "run", "--start", "2026-01-01", "--end", "2026-01-03", "--each")
    command.press_ctrl_c()
    code, said = command.end()
    assert code == 130
    assert said.strip().splitlines()[-1] == (
        "interrupted. The command stopped at 2026-01-01 00:00 to 2026-01-02 00:00 UTC. 0 of 2 intervals are done. Run the "
        "same command again to continue."
    )


@pytest.mark.deep
def test_a_trial_has_changed_nothing(broker: Broker, pipeline: Pipeline, tmp_path: Path) -> None:
    command = at_work(pipeline, "try", "--json", output=tmp_path / "json")
    command.press_ctrl_c()
    code, said = command.end()
    document = json.loads((tmp_path / "json").read_text())
    assert (code, document["exit_code"]) == (130, 130)
    assert said.strip().splitlines()[-1] == "interrupted. Nothing was changed. Run the same command again."
    assert not Ledger(pipeline).exists()


@pytest.mark.deep
def test_a_doctor_leaves_no_job_behind(pipeline: Pipeline) -> None:
    command = InTerminal("doctor", pipeline.name, "--spark-job")
    await_true(lambda: any(map(is_jvm, command.family())), "the small job's JVM")
    command.press_ctrl_c()
    code, said = command.end()
    assert code == 130
    assert said.strip().splitlines()[-1] == "interrupted. Nothing was changed. Run the same command again."
