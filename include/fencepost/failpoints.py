"""Named places where a test can make a process die, stall or fail. Off unless `FENCEPOST_FAILPOINTS` is set.

`FENCEPOST_FAILPOINTS` is a comma-separated list of `name[#task][@nth]=action`, for example `write.committed#1=kill`, or
`write.rows#0@3=stop` for the third time that a process passes the place. Each entry takes effect once in all processes together:
in the first that creates its file in `FENCEPOST_FAILPOINT_DIR`, so a retry passes. The file has the pid of that process. Actions:
`kill` (SIGKILL this process), `kill-parent` (SIGKILL also the nearest Java parent, the executor's JVM), `stop` (SIGSTOP this
process, which a test resumes), `raise` (RuntimeError).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

_visits: Counter[str] = Counter()


def _nothing(name: str, task: int | None = None) -> None:
    """Does nothing, because failpoints are off."""


def _strike(name: str, task: int | None = None) -> None:
    for entry in os.environ["FENCEPOST_FAILPOINTS"].split(","):
        place, _, action = entry.strip().partition("=")
        place, _, nth = place.partition("@")
        wanted, _, number = place.partition("#")
        if wanted != name or (number and number != str(task)):
            continue
        _visits[place] += 1
        if (nth and int(nth) != _visits[place]) or not _first(entry.strip()):
            continue
        if action == "raise":
            raise RuntimeError(f"failpoint {entry}")
        if action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif action == "kill-parent":
            os.kill(_jvm(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            raise ValueError(f"failpoint {entry!r}: actions are kill, kill-parent, stop and raise")


def _first(entry: str) -> bool:
    file = Path(os.environ["FENCEPOST_FAILPOINT_DIR"]) / entry.replace("/", "_")
    try:
        with file.open("x") as made:
            made.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _jvm() -> int:
    """Returns the nearest ancestor that is a Java process."""
    import psutil

    return int(next(process.pid for process in psutil.Process().parents() if process.name() == "java"))


reached: Callable[..., None] = _strike if os.environ.get("FENCEPOST_FAILPOINTS") else _nothing
