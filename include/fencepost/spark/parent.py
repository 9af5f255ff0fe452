"""Ties a process to the process that started it. So neither a job nor its JVM continues unnoticed."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1


def tie_to_parent(signal_number: int) -> None:
    """Makes the kernel send this process a signal when its parent ends. The signal number 0 removes the tie.

    See prctl(2), PR_SET_PDEATHSIG. The parent is the thread that created this process. Only Linux has this call.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


@contextmanager
def tied_to_parent() -> Iterator[None]:
    """Ties this process to its parent while the block runs. A task that outlives its supervisor would continue
    unnoticed.
    """
    tie_to_parent(signal.SIGTERM)
    try:
        yield
    finally:
        tie_to_parent(0)
