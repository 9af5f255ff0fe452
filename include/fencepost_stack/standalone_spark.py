"""Runs a standalone Spark cluster. A master and two workers are separate processes, all on 127.0.0.1.

Drivers, master and executors authenticate each other by a secret, and encrypt their traffic and their files. The secret
is in `spark-defaults.conf`, which only its owner can read. Spark finds that file by SPARK_CONF_DIR.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark

from fencepost_stack.ports import LOOPBACK, any_free_port, is_free
from fencepost_stack.processes import Process, await_ready, spawn
from fencepost_stack.state_folder import write_private

MASTER = "master"
WORKERS = ("worker-1", "worker-2")
CORES, MEMORY = 2, "1200m"  # of a worker
STOP_GRACE = 15.0  # seconds
ENCRYPTED: dict[str, str] = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
# Jobs are not submitted to the master by REST: its server knows no secret, so that a master with one does not start beside it.
NO_REST = {"spark.master.rest.enabled": "false"}
# A job gets one executor on each of two workers, so that two jobs fit beside each other.
SHARED: dict[str, str] = {"spark.cores.max": "2", "spark.executor.cores": "1"}
ON_ONE_MACHINE: dict[str, str] = {
    "spark.executor.memory": "512m",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}


class StandaloneSpark:
    """The cluster on one folder."""

    names = (MASTER, *WORKERS)
    hosts: Mapping[str, str] = {}  # of workers that are not at 127.0.0.1

    def __init__(
        self, folder: Path, secret: str, *, logs: Path | None = None, processes: Mapping[str, Process] | None = None
    ) -> None:
        """Creates the object. `processes` were started on this folder by an earlier command."""
        self.folder = folder
        self.logs = logs or folder
        self.processes: dict[str, Process] = dict(processes or {})
        self._secret = secret
        self._ports: dict[str, int] = _read(folder / "ports.json")

    @property
    def master(self) -> str:
        """Returns the master's address for Spark: `spark://...`."""
        return f"spark://{LOOPBACK}:{self._ports['port']}"

    @property
    def url(self) -> str:
        """Returns the master's page."""
        return f"http://{LOOPBACK}:{self._ports['page']}"

    def environment(self) -> dict[str, str]:
        """Returns what a driver needs besides the master's address: settings, and an address to listen on."""
        return {"SPARK_CONF_DIR": str(self.folder / "conf"), "SPARK_LOCAL_IP": LOOPBACK}

    def prepare(self) -> None:
        """Writes the settings and chooses the ports."""
        conf = self.folder / "conf"
        conf.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_settings(conf / "spark-defaults.conf", ON_ONE_MACHINE, self._secret)
        if not any(process.alive() for process in self.processes.values()):
            self._ports = {name: self._port(name) for name in ("port", "page")}
            write_private(self.folder / "ports.json", json.dumps(self._ports))

    def launch(self, name: str) -> Process:
        """Starts the master or a worker without waiting for it."""
        at = ["--host", self.hosts.get(name, LOOPBACK)]
        environment = {**os.environ, **self.environment(), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
        environment |= {"SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
        if name == MASTER:
            command = [
                "master.Master",
                *at,
                "--port",
                str(self._ports["port"]),
                "--webui-port",
                str(self._ports["page"]),
            ]
        else:
            own = self.folder / name
            shutil.rmtree(own, ignore_errors=True)  # what executors of an earlier start left
            own.mkdir(mode=0o700)
            environment["SPARK_LOCAL_DIRS"] = str(own / "local")
            size = ["--cores", str(CORES), "--memory", MEMORY]
            command = ["worker.Worker", *at, "--webui-port", "0", *size, "--work-dir", str(own / "work"), self.master]
        binary = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
        self.processes[name] = spawn(
            [str(binary), f"org.apache.spark.deploy.{command[0]}", *command[1:]],
            env=environment,
            log=self.log(name),
            cwd=self.folder,
        )
        return self.processes[name]

    def log(self, name: str) -> Path:
        return self.logs / f"spark-{name}.log"

    def await_ready(self, timeout: float = 90.0) -> None:
        """Waits until both workers have registered. Raises ServiceFailed with the log's tail of a process that ended."""

        def ready() -> bool:
            for name, process in self.processes.items():
                if not process.alive():
                    await_ready(f"Spark's {name}", process, self.log(name), lambda: False, 0.0)
            return self.healthy()

        await_ready("Spark", self.processes[MASTER], self.log(MASTER), ready, timeout)

    def healthy(self) -> bool:
        """Returns whether the master serves and counts both workers."""
        alive = all(name in self.processes and self.processes[name].alive() for name in self.names)
        return alive and self.state().get("aliveworkers") == len(WORKERS)

    def state(self) -> dict[str, Any]:
        """Returns the master's report about workers and applications. It is empty if the master does not answer."""
        import httpx  # every command would wait a tenth of a second for it

        try:
            return dict(httpx.get(f"{self.url}/json/", timeout=5.0, trust_env=False).raise_for_status().json())
        except (httpx.HTTPError, ValueError):
            return {}

    def _port(self, name: str) -> int:
        """Returns the port that was used before, if it is free."""
        before = self._ports.get(name)
        return before if before and is_free(before) else any_free_port()


def write_settings(file: Path, settings: Mapping[str, str], secret: str) -> None:
    """Writes Spark's settings for master, workers and drivers. The settings include the secret that all share, and what
    a secret needs.
    """
    lines = {**ENCRYPTED, **NO_REST, **SHARED, **settings, "spark.authenticate.secret": secret}
    write_private(file, "".join(f"{name} {value}\n" for name, value in lines.items()))


def _read(file: Path) -> dict[str, int]:
    return dict(json.loads(file.read_text())) if file.exists() else {}
