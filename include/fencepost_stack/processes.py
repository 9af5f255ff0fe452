"""Manages processes that outlive the command that started them, and never mistakes them for others.

A pid alone does not identify a process, because the kernel reuses it. A process is identified by its pid, the clock
tick of its start, and the boot. A signal goes only to a process with all three. This works on Linux only.
"""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from fencepost.jars import log_tail
from fencepost_stack.errors import ServiceFailed

# Descendants inherit it, so that one whose parents are all gone is still known as ours.
MARK = "FENCEPOST_PROCESS_MARK"
LOG_LIMIT = 20 * 1024 * 1024  # bytes; a longer log is set aside as `.old` at the next start
POLL = 0.05  # seconds

# Our own children, to reap them and to know their exit codes while this interpreter lives.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class Process:
    """The identity of a process. `started` is in seconds since boot. The descendants of the process inherit `mark`."""

    pid: int
    started: float
    boot: str
    mark: str = ""

    @classmethod
    def of(cls, pid: int, mark: str = "") -> "Process | None":
        """Returns the process that has this pid now. Returns None if there is none, or if it is a zombie."""
        fields = _look(pid)
        return None if fields is None else cls(pid, fields.started, _boot(), mark)

    @classmethod
    def load(cls, record: Mapping[str, Any]) -> "Process":
        """Returns the process from the output of `dump`."""
        return cls(int(record["pid"]), float(record["started"]), str(record["boot"]), str(record["mark"]))

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    def alive(self) -> bool:
        """Returns whether this process, or one of its threads, still runs. A zombie does not run."""
        if self.exit_code() is not None:
            return False
        fields = _look(self.pid)
        return fields is not None and fields.started == self.started and self.boot == _boot()

    def exit_code(self) -> int | None:
        """Returns the exit code of the process if it has ended and is a child of this interpreter, otherwise None."""
        child = _children.get(self.pid)
        return None if child is None else child.poll()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to exactly this process. Does nothing if it has ended."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def spawn(args: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path) -> Process:
    """Starts a process in its own session, so that neither the terminal nor the caller ends it. The output of the
    process goes to `log`.
    """
    mark = secrets.token_hex(8)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_name(log.name + ".old"))
    with log.open("ab") as out:
        child = subprocess.Popen(
            args,
            env={**env, MARK: mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    process = Process.of(child.pid, mark)
    # This also tells a process that ended at once from a later owner of its pid.
    return process or Process(child.pid, -1, _boot(), mark)


def family(leaders: Iterable[Process]) -> set[Process]:
    """Returns the living processes among the leaders and their descendants, found by session, mark and parent.

    While the leader lives, the session alone identifies its descendants. After the leader's death its pid may belong to
    another process. So a member of the session must then also have the mark, or an environment that a process title has
    overwritten, as Airflow's workers have.
    """
    table = {pid: fields for pid in psutil.pids() if (fields := _look(pid)) is not None}
    ours: set[int] = set()
    for leader in leaders:
        if leader.boot != _boot():
            continue
        alive = leader.alive()
        if alive:
            ours.add(leader.pid)
        for pid, fields in table.items():
            if fields.started < leader.started:
                continue
            if alive and fields.session == leader.pid:
                ours.add(pid)
            elif leader.mark:
                environment = _environment(pid)
                wiped = fields.session == leader.pid and environment == {}
                if wiped or (environment or {}).get(MARK) == leader.mark:
                    ours.add(pid)
    while more := {pid for pid, fields in table.items() if fields.parent in ours} - ours:
        ours |= more
    ours.discard(os.getpid())
    return {Process(pid, table[pid].started, _boot()) for pid in ours if pid in table}


def stop(leaders: Sequence[Process], *, number: signal.Signals = signal.SIGTERM, grace: float = 20.0) -> None:
    """Ends the leaders and all their descendants. Returns when no process is left.

    1. send `number` to the leaders, and give them `grace` seconds to end their own children first;
    2. send SIGTERM to the rest, and wait three seconds;
    3. send SIGKILL. Raises ServiceFailed if that does not help either.
    """
    known = family(leaders)
    for leader in leaders:
        leader.send(number)
    known |= _await_end(leaders, leaders, grace)
    for stronger, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        left = [process for process in known | family(leaders) if process.alive()]
        for process in left:
            process.send(stronger)
        known |= _await_end(left, leaders, patience)
    left = [process for process in known if process.alive()]
    if left:
        raise ServiceFailed(f"processes {', '.join(str(p.pid) for p in left)} do not end, not even by SIGKILL.")


def _await_end(these: Sequence[Process], leaders: Sequence[Process], limit: float) -> set[Process]:
    """Waits until `these` have ended, for at most `limit` seconds. Returns the family members that were seen while it
    waited.
    """
    deadline = time.monotonic() + limit
    seen: set[Process] = set()
    while any(process.alive() for process in these) and time.monotonic() < deadline:
        seen |= family(leaders)
        time.sleep(POLL)
    return seen


def await_ready(name: str, process: Process, log: Path, ready: Callable[[], bool], timeout: float) -> None:
    """Polls `ready` until it holds. Raises ServiceFailed with the log's tail if the process ends or time is up."""
    deadline = time.monotonic() + timeout
    while not ready():
        if not process.alive():
            code = process.exit_code()
            how = "" if code is None else f" with exit code {code}"
            raise ServiceFailed(f"{name} ended{how} while starting. {log} ends with:\n{log_tail(log)}")
        if time.monotonic() > deadline:
            raise ServiceFailed(f"{name} was not ready within {timeout:.0f} s. {log} ends with:\n{log_tail(log)}")
        time.sleep(POLL)


class Service:
    """A service of one process, which an earlier command may have started. As a context manager it starts the service
    and stops it at the end.
    """

    ready_within: float  # seconds
    stop_grace: float  # seconds

    def __init__(self, process: Process | None = None) -> None:
        self.process = process

    @property
    def pid(self) -> int | None:
        """Returns the pid of the service while it runs."""
        return self.process.pid if self.process is not None and self.process.alive() else None

    def launch(self) -> Process:
        """Starts the service without waiting for it."""
        raise NotImplementedError

    def await_ready(self, timeout: float | None = None) -> None:
        """Waits until the service answers. Raises ServiceFailed with the log's tail."""
        raise NotImplementedError

    def start(self, timeout: float | None = None) -> None:
        """Starts the service and waits until it answers a real request. If it raises ServiceFailed, nothing runs any
        more.
        """
        self.launch()
        try:
            self.await_ready(timeout)
        except BaseException:
            self.kill()
            raise

    def stop(self, grace: float | None = None) -> None:
        """Shuts the service down, and kills it with SIGKILL after `grace` seconds. Does nothing if it is down."""
        if self.process is not None:
            stop([self.process], grace=grace or self.stop_grace)
            self.process = None

    def kill(self) -> None:
        """Kills the process with SIGKILL, like the death of a machine. The data stay."""
        if self.process is not None:
            stop([self.process], number=signal.SIGKILL)
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@dataclass(frozen=True, slots=True)
class _Seen:
    parent: int
    session: int
    started: float


def _look(pid: int) -> _Seen | None:
    """Returns the identity and parent of a process. Returns None if it is a zombie, or if there is no such process."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            ended = process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
            # Of a JVM that ends, the first thread is gone before those that hold its files and ports.
            if ended and process.num_threads() <= 1:
                return None
            # Not the time of day, which may be set: subtract what psutil adds to the kernel's count.
            started = round(process.create_time() - psutil.boot_time(), 2)
            return _Seen(parent=process.ppid(), session=os.getsid(pid), started=started)
    except (psutil.Error, OSError):
        return None


def _environment(pid: int) -> dict[str, str] | None:
    """Returns the environment that a process started with. The environment is empty if the process overwrote it, and
    None if it may not be read.
    """
    try:
        return dict(psutil.Process(pid).environ())
    except (psutil.Error, OSError):
        return None


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
