"""The process that Spark forks its Python workers from, with everything imported that they need.

A worker of a small batch lives for a second, and would spend most of it on imports. `spark.python.daemon.module` names this
module where the package is installed for the workers, which is so on this machine. On a cluster Spark brings it to a worker
only after its fork.
"""

from __future__ import annotations

import gc
from typing import Any

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import fencepost.rows.writer  # noqa: F401

worker = daemon.worker


def worker_or_nothing(sock: Any, authenticated: bool) -> int:
    """A worker's exit code. The JVM hangs up on one that it has just asked for if the task was cancelled meanwhile: that is no
    traceback on stderr."""
    try:
        return int(worker(sock, authenticated))  # type: ignore[no-untyped-call]
    except EOFError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker_or_nothing
    gc.freeze()  # so that a worker's collector leaves the shared pages alone
    daemon.manager()  # type: ignore[no-untyped-call]
