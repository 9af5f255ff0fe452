"""A standalone Spark cluster of two workers, each on a loopback address of its own.

Spark starts no speculative twin on the host that runs the task already, so `local-cluster` never shows one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from fencepost_stack.ports import any_free_port
from waiting import await_true

HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.2", "127.0.0.3")


class SparkCluster:
    """A master and its workers, by host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = any_free_port()
        self.master = f"spark://127.0.0.1:{port}"
        options = ("--host", "127.0.0.1", "--port", str(port))
        self.processes = {"master": _start(folder, "master", "master.Master", *options)}

    def start(self, host: str) -> None:
        """Start a worker, and wait until the master knows it."""
        before = self._registered()
        options = ("--host", host, "--cores", "2", "--memory", "1g", "--work-dir", str(self.folder / host), self.master)
        self.processes[host] = _start(self.folder, host, "worker.Worker", *options)
        await_true(lambda: self._registered() > before, f"worker {host} to be registered", 60)

    def kill(self, host: str) -> None:
        """End a worker and its executors at once, as with their machine."""
        worker = psutil.Process(self.processes[host].pid)
        for process in (worker, *worker.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.processes[host].wait(30)

    def end(self) -> None:
        """End it and all it started."""
        for process in reversed(self.processes.values()):  # a worker ends its executors
            process.terminate()
        for process in self.processes.values():
            process.wait(30)

    def _registered(self) -> int:
        return (self.folder / "master.log").read_text().count("Registering worker")


@contextmanager
def running_spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Start it, and end it and all it started."""
    cluster = SparkCluster(folder)
    try:
        for host in HOSTS:
            cluster.start(host)
        yield cluster
    finally:
        cluster.end()


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Its master's address."""
    with running_spark_cluster(folder) as cluster:
        yield cluster.master


def _start(folder: Path, name: str, what: str, *options: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.master.rest.enabled=false"  # it would listen on one port for all
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--webui-port", "0", *options],
            env=environment,
            stdout=log,
            stderr=log,
        )
