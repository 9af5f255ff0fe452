"""Checks that Spark's driver can start, that the master answers, and that executors have the driver's Python and
packages.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.findings import Finding, error, ok, skipped
from fencepost.spark.master import check_master, is_local
from fencepost.spark.probe import NOT_FOUND
from fencepost.spark.submit import check_java, connector_folder, private_folder

CONNECT = 5.0  # seconds
JOB = 180.0  # seconds for the small job, executors' start included
Versions = dict[str, str]
WITHOUT_JOB = "a small job compares the executors' Python and packages; --spark-job runs it."


def check_spark_driver() -> Finding:
    """Checks that this machine has Java, the connector's jars and a private folder."""
    check_java()
    folder = connector_folder()
    private_folder()
    return ok(f"Java is installed, and the jars are in {folder}")


def check_spark_master(master: str) -> Finding:
    """Checks that the master is valid, and that its address accepts connections. `local` and YARN have no address."""
    check_master(master, "FENCEPOST_SPARK_MASTER, or Airflow's connection,")
    addresses = _addresses(master)
    if not addresses:
        return ok(f"{master} has no address to try")
    refused = []
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), CONNECT):
                return ok(f"{master} accepts connections")
        except OSError as raised:
            refused.append(f"{host}:{port}: {raised.strerror or type(raised).__name__}")
    return error(
        f"Spark's master {master} accepts no connection ({'; '.join(refused)}).",
        "Start it, or correct FENCEPOST_SPARK_MASTER or the host of Airflow's connection spark_default.",
        kind=SettingsError,
    )


def _addresses(master: str) -> list[tuple[str, int]]:
    """Returns the hosts and ports in `spark://a:7077,b:7077` or `k8s://https://host:port`."""
    if master.startswith("k8s://"):
        url = urlsplit(master.removeprefix("k8s://") if "://" in master[6:] else f"https://{master[6:]}")
        return [(url.hostname, url.port or {"http": 80}.get(url.scheme, 443))] if url.hostname else []
    if master.startswith("spark://"):
        parts = [urlsplit(f"//{part}") for part in master.removeprefix("spark://").split(",")]
        return [(part.hostname, part.port or 7077) for part in parts if part.hostname]
    return []


def check_spark_executors(
    pipeline: Pipeline, master: str, run_job: bool | None = None, limit: float = JOB
) -> list[Finding]:
    """Checks that executors start, and have the driver's Python and packages. By default the job runs only on a master
    of other machines.
    """
    if not (run_job if run_job is not None else not is_local(master)):
        return [ok("the driver's own Python and packages")] if is_local(master) else [skipped(WITHOUT_JOB)]
    answer = _probe(pipeline, master, limit)
    if isinstance(answer, str):
        return [error(answer, "Read the logs of the master and the workers; FENCEPOST_LOG=DEBUG shows the driver's.")]
    driver, executors = answer
    return list(compare(driver, executors)) or [
        ok(f"{', '.join(sorted(executors))}: the same Python and packages as the driver")
    ]


def compare(driver: Mapping[str, str], executors: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Yields how the software of executors, by host, differs from the driver's. Pure."""
    for host, has in sorted(executors.items()):
        differs = [
            f"{name} {has.get(name, NOT_FOUND)}, driver {version}"
            for name, version in driver.items()
            if has.get(name) != version
        ]
        if differs:
            yield error(
                f"The executors on {host} have other software than the driver: {'; '.join(differs)}.",
                f"Install the driver's versions (requirements.txt) there, for the Python that executors start: {python_there()}.",
                kind=SettingsError,
            )


def python_there() -> str:
    """Returns the Python that executors start. Executors start `PYSPARK_PYTHON`, or otherwise the driver's Python."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable


PYTHON_MISMATCH = re.compile(r"PYTHON_VERSION_MISMATCH|Python in worker has different version")


def _probe(pipeline: Pipeline, master: str, limit: float) -> tuple[Versions, dict[str, Versions]] | str:
    """Returns the versions of the driver, and of the executors by host. If the small job failed, it returns the reason.

    The job runs in its own process group, and this function ends the group.
    """
    command = [sys.executable, "-m", "fencepost.spark.probe", pipeline.name]
    environment = {**os.environ, "FENCEPOST_SPARK_MASTER": master, "FENCEPOST_PIPELINES": str(pipeline.folder.parent)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        try:
            output, words = job.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return (
                f"A small job on {master} did not end within {limit:.0f} s: no worker is alive, no worker has a free core or "
                "enough memory, or executors cannot reach the driver."
            )
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    if job.returncode == 0:
        answer = json.loads(output.splitlines()[-1])
        return answer["driver"], answer["executors"]
    if PYTHON_MISMATCH.search(words):
        mine = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"The executors of {master} have another version of Python than the driver's {mine}, which PySpark refuses. They "
            f"start {python_there()}."
        )
    last = output.splitlines()[-1] if output.strip() else f"exit code {job.returncode}"
    return f"A small job on {master} failed: {last}"
