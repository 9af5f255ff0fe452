"""All tests in three pytest processes: those that start an Airflow wait half of their time, and the others some of theirs.

python tests/side_by_side.py [arguments of one ordinary pytest]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [str(Path(sys.executable).with_name("pytest"))]
STACK, STEPS = ["tests/stack", "tests/local"], ["tests/integration"]
PARTS = {"stack": STACK, "steps": STEPS, "rest": ["tests", *(f"--ignore={folder}" for folder in (*STACK, *STEPS))]}
SLOWEST = "--durations=25"


def begin(name: str, arguments: Sequence[str]) -> tuple[subprocess.Popen[bytes], Thread]:
    """One of the processes, and the thread that shows its lines with its name in front."""
    environment = {**os.environ, "PY_COLORS": "1"} if sys.stdout.isatty() else None
    # In a session of its own: Ctrl-C comes to it once, from here, or it would not clean up to the end.
    process = subprocess.Popen(
        [*PYTEST, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )

    def show() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(f"{name:5} | ".encode() + line)
            sys.stdout.buffer.flush()

    thread = Thread(target=show, daemon=True)
    thread.start()
    return process, thread


def main(arguments: list[str]) -> int:
    """The worst of the exit codes. Interrupted, it ends all and waits until they have cleaned up."""
    if arguments:
        os.chdir(ROOT)
        os.execv(PYTEST[0], [*PYTEST, *arguments])  # noqa: S606  # its place is taken, so nothing is between it and Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun = [begin(name, [*part, SLOWEST]) for name, part in PARTS.items()]
    try:
        codes = [process.wait() for process, _ in begun]
    except KeyboardInterrupt:
        for process, _ in begun:
            process.send_signal(signal.SIGINT)
        codes = [process.wait() or 130 for process, _ in begun]
    for _, thread in begun:
        thread.join(timeout=10)  # a process that it left behind could hold its output open
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
