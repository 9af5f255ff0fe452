"""Flink in an environment of its own beside this one: its installation and its processes. `flink_sql.py` has the job."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from fencepost.jars import JarSet, download, is_there, log_tail
from fencepost_stack.state_folder import StateFolder

REQUIREMENTS = Path(__file__).with_name("flink-requirements.txt")
PYTHON = "3.11"  # that these are for: PyFlink has no packages for 3.13
SCRIPT = Path(__file__).with_name("flink_job.py")
CONNECTOR = JarSet("flink", Path(__file__).with_name("flink-jars.lock"))
TIMEOUT = 900.0  # seconds for a new process and its job
ENDS = 30.0  # seconds after the last job


def install(state: StateFolder) -> Path:
    """The Python of Flink's environment; made when there is none of these versions.

    Raises:
        JarsError: the connector could not be fetched, or is another than the pinned one.
        RuntimeError: the packages could not be installed, or there is no Python for them.
    """
    folder = state.root / "flink"
    folder.mkdir(parents=True, exist_ok=True)
    jars = state.jars / CONNECTOR.name
    if not is_there(CONNECTOR, jars):
        download(CONNECTOR, jars)
    python, stamp = folder / "venv" / "bin" / "python", folder / "stamp"
    wanted = hashlib.sha256(f"{folder} {PYTHON}\n{REQUIREMENTS.read_text()}".encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)
        uv = [sys.executable, "-m", "uv"]
        _run([*uv, "venv", "--quiet", "--clear", "--no-python-downloads", "--python", PYTHON, str(folder / "venv")])
        hashed = ["--require-hashes", "--requirement", str(REQUIREMENTS)]
        builds = ["--preview-features", "build-dependency-hashes", "--require-build-hashes"]
        builds += ["--build-constraints", str(REQUIREMENTS)]
        _run([*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *hashed, *builds])
        stamp.write_text(wanted)
    # Where Flink's documents put a connector. On the class path it is loaded once, and not again for every job.
    (lib,) = (folder / "venv").glob("lib/python*/site-packages/pyflink/lib")
    for jar in jars.glob("*.jar"):
        link = lib / jar.name
        link.unlink(missing_ok=True)
        link.symlink_to(jar.resolve())
    return python


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Flink's environment could not be made: {' '.join(command[:5])}: {done.stderr[-2000:]}")


class Flink:
    """How to run Flink's jobs, in a session or each in a new process. Its logs and temporary files go to `folder`."""

    def __init__(self, python: Path, folder: Path, parallelism: int) -> None:
        folder.mkdir()
        self.log = folder / "flink.log"
        self._command = [str(python), str(SCRIPT)]
        # Without these two the cluster's own ports would be open to the network.
        here = {
            "jobmanager.bind-host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
        }
        self._settings = json.dumps({"parallelism.default": str(parallelism), "rest.address": "127.0.0.1", **here})
        self._environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "FLINK"))
            },
            "FLINK_LOG_DIR": str(folder),
            "TMPDIR": str(folder),
            "JVM_ARGS": f"-Djava.io.tmpdir={folder}",
        }

    def run_once(self, statements: Sequence[str]) -> None:
        """The job in a new process.

        Raises:
            RuntimeError: it failed; the message ends with the log.
        """
        lines = f"{self._settings}\n{json.dumps(statements)}\n"
        with self.log.open("a") as log:
            done = subprocess.run(
                self._command,
                input=lines,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                timeout=TIMEOUT,
                check=False,
            )
        if done.returncode or done.stdout.split() != ["done"]:
            raise RuntimeError(f"Flink's job failed with exit code {done.returncode}:\n{log_tail(self.log)}")

    def session(self) -> Session:
        """A process for many jobs. It starts at the beginning of a `with` block, and is gone at the end."""
        return Session(self._command, self._settings, self._environment, self.log)


class Session:
    """A Python process, its JVM and the mini cluster in that."""

    def __init__(self, command: Sequence[str], settings: str, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("a") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True, env=environment
            )
        self._say(settings)

    @property
    def pid(self) -> int:
        """The driver's Python process."""
        return self._process.pid

    @property
    def jvm_pid(self) -> int:
        """Its JVM."""
        (jvm,) = (p for p in psutil.Process(self.pid).children() if p.name() == "java")
        return int(jvm.pid)

    def run(self, statements: Sequence[str]) -> None:
        """A job, or without statements the collection of what the last one left.

        Raises:
            RuntimeError: it failed; the message ends with the log.
        """
        assert self._process.stdout is not None
        self._say(json.dumps(statements))
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"Flink's job failed:\n{log_tail(self._log)}")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the missing answer tells
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        family = [psutil.Process(self.pid)] if self._process.poll() is None else []
        family += [child for process in family for child in process.children(recursive=True)]
        with suppress(BrokenPipeError):
            self._process.stdin.close()  # the process ends with it, and the JVM with the process
        _, left = psutil.wait_procs(family, ENDS)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process.stdout.close()
