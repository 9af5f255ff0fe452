"""A standalone Spark cluster of two workers, each on a loopback address of its own.

Spark starts no speculative twin on the host that runs the task already, so `local-cluster` never shows one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from fencepost.local.ports import any_free_port
from waiting import await_true

HOME = Path(pyspark.__file__).parent


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Start it, give its master's address, and end it and all it started."""
    port = any_free_port()
    master = f"spark://127.0.0.1:{port}"
    started = [_start(folder, "master", "master.Master", "--host", "127.0.0.1", "--port", str(port))]
    try:
        for number in (2, 3):
            host = f"127.0.0.{number}"
            options = ("--host", host, "--cores", "2", "--memory", "1g", "--work-dir", str(folder / host), master)
            started.append(_start(folder, host, "worker.Worker", *options))
        log = folder / "master.log"
        await_true(lambda: log.read_text().count("Registering worker") == 2, "both workers to be registered", 60)
        yield master
    finally:
        for process in reversed(started):  # a worker ends its executors
            process.terminate()
        for process in started:
            process.wait(30)


def _start(folder: Path, name: str, what: str, *options: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--webui-port", "0", *options],
            env=environment,
            stdout=log,
            stderr=log,
        )
