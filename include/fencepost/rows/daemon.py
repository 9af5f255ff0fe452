"""Spark forks its Python workers from this process, which has imported everything that they need.

A worker of a small batch lives for a second, and imports would take most of that time. `spark.python.daemon.module`
names this module if the package is installed for the workers, as on one machine. On a cluster Spark brings the package
to a worker only after the fork.
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
    """Runs a worker and returns its exit code. It prints no traceback if the JVM closes the connection, because a JVM
    that cancels a task while the task's worker starts closes the connection.
    """
    try:
        return int(worker(sock, authenticated))  # type: ignore[no-untyped-call]
    except EOFError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker_or_nothing
    gc.freeze()  # so that a worker's collector leaves the shared pages alone
    daemon.manager()  # type: ignore[no-untyped-call]
