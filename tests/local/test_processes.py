"""Only what we started is ever signalled, and all of it is."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from fencepost_stack.errors import ServiceFailed
from fencepost_stack.processes import Process, await_ready, family, spawn, stop


def until(condition: Callable[[], bool], limit: float = 10.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def start(tmp_path: Path, code: str) -> Process:
    """A Python process; its output is in `log`."""
    return spawn([sys.executable, "-c", code], env=os.environ, log=tmp_path / "log", cwd=tmp_path)


def number_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_a_stranger_with_a_recorded_pid_is_not_signalled(tmp_path: Path) -> None:
    stranger = start(tmp_path, "import time; time.sleep(60)")
    recorded = replace(stranger, started=stranger.started - 1, mark="another")
    try:
        assert not recorded.alive()
        stop([recorded], grace=0.0)
        assert stranger.alive()
    finally:
        stop([stranger])


def test_a_record_of_an_earlier_boot_is_nobody(tmp_path: Path) -> None:
    process = start(tmp_path, "import time; time.sleep(60)")
    try:
        stop([replace(process, boot="another boot")], grace=0.0)
        assert process.alive()
    finally:
        stop([process])


FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(0)
"""


def test_a_process_whose_first_thread_has_ended_lives_until_the_last_one_has(tmp_path: Path) -> None:
    """As a JVM that is ending. It shows as a zombie, and still holds its files and ports."""
    process = start(tmp_path, FIRST_THREAD_ENDS)
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    try:
        assert process.alive()
    finally:
        stop([process], grace=0.0)
    assert not process.alive()
    assert process.exit_code() is not None


def test_stop_ends_a_process_that_ignores_sigterm(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    process = start(tmp_path, code)
    until(lambda: "ready" in (tmp_path / "log").read_text())
    stop([process], grace=0.2)
    assert not process.alive()
    assert process.exit_code() == -signal.SIGKILL


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("daemon.pid", "w") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(60)
"""


def test_stop_ends_a_daemon_that_left_session_and_parent(tmp_path: Path) -> None:
    leader = start(tmp_path, DAEMON)
    daemon = Process.of(number_in(tmp_path / "daemon.pid"))
    assert daemon is not None
    stop([leader], grace=0.5)
    assert not leader.alive()
    assert not daemon.alive()


def test_stop_ends_children_of_a_leader_that_was_killed(tmp_path: Path) -> None:
    leader = start(tmp_path, DAEMON)
    daemon = Process.of(number_in(tmp_path / "daemon.pid"))
    assert daemon is not None
    os.kill(leader.pid, signal.SIGKILL)
    until(lambda: not leader.alive())
    stop([leader], grace=0.5)
    assert not daemon.alive()


RENAMED = """
import os, time
from setproctitle import setproctitle
if os.fork() == 0:
    setproctitle("renamed " + "x" * 2000)
    with open("renamed.pid", "w") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(60)
os.wait()
"""


def test_a_renamed_child_of_a_killed_leader_is_found(tmp_path: Path) -> None:
    """Setting a title overwrites the environment, and the mark with it: Airflow's workers do so."""
    leader = start(tmp_path, RENAMED)
    child = Process.of(number_in(tmp_path / "renamed.pid"))
    assert child is not None
    os.kill(leader.pid, signal.SIGKILL)
    until(lambda: not leader.alive())
    assert child.pid in {process.pid for process in family([leader])}
    stop([leader], grace=0.5)
    assert not child.alive()


def test_the_error_of_a_failed_start_holds_exit_code_and_log(tmp_path: Path) -> None:
    process = start(tmp_path, "import sys; print('the reason'); sys.exit(7)")
    with pytest.raises(ServiceFailed, match=r"(?s)Thing ended with exit code 7 while starting.*the reason"):
        await_ready("Thing", process, tmp_path / "log", lambda: False, 10.0)


def test_the_error_of_a_start_that_takes_too_long_holds_the_log(tmp_path: Path) -> None:
    process = start(tmp_path, "import time; print('still busy', flush=True); time.sleep(60)")
    until(lambda: "busy" in (tmp_path / "log").read_text())
    with pytest.raises(ServiceFailed, match=r"(?s)Thing was not ready within 0 s.*still busy"):
        await_ready("Thing", process, tmp_path / "log", lambda: False, 0.1)
    stop([process])
