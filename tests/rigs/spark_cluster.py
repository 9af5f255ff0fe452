"""The Spark cluster of `make cluster`, with each worker at a loopback address of its own: workers can be killed.

Spark starts no speculative twin on the host that runs the task already, so `local-cluster` never shows one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

import pytest

from fencepost_stack.processes import family, stop
from fencepost_stack.standalone_spark import STOP_GRACE, WORKERS, StandaloneSpark
from waiting import await_true

READY = 180.0  # seconds, on a machine that does other work as well


class SparkCluster(StandaloneSpark):
    """A master and its workers, which stay where they are when they are started again."""

    hosts = dict(zip(WORKERS, ("127.0.0.2", "127.0.0.3"), strict=True))  # noqa: RUF012  # read only

    def environment(self) -> dict[str, str]:
        """What a step needs to run on it."""
        return {**super().environment(), "FENCEPOST_SPARK_MASTER": self.master}

    def start(self, worker: str) -> None:
        """Start a worker, and wait until the master counts both."""
        self.launch(worker)
        await_true(self.healthy, f"{worker} to be registered", READY)

    def kill(self, worker: str) -> None:
        """End a worker and its executors at once, as with their machine; wait until the master knows."""
        for process in family([self.processes[worker]]):
            process.send(SIGKILL)
        await_true(lambda: self.state().get("aliveworkers") != len(WORKERS), f"the master to miss {worker}", READY)


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Start it, and end it and all it started. Steps that begin meanwhile run on it."""
    cluster = SparkCluster(folder, secrets.token_hex(24))
    cluster.prepare()
    try:
        for name in cluster.names:
            cluster.launch(name)
        cluster.await_ready(READY)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cluster.environment().items():
                patch.setenv(name, value)
            yield cluster
    finally:
        stop(list(cluster.processes.values()), grace=STOP_GRACE)
