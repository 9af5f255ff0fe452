"""A small job that reports the Python and packages of the executors: `python -m fencepost.spark.probe PIPELINE`.

The job prints one line of JSON, with the versions of the driver and the versions of the executors by host. With exit
code 1 it prints the error.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata

from fencepost.config.software import COMPUTING

PACKAGES = (*COMPUTING, "pydantic", "xxhash")  # packages that decide a batch, and others that the write's tasks import
NOT_FOUND = "missing"


def versions(_: Iterable[int] = ()) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields this machine's name, and the versions of its Python and packages."""
    found = {"Python": ".".join(map(str, sys.version_info[:2]))}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = NOT_FOUND
    yield socket.gethostname(), found


def main(name: str) -> int:
    """Runs the job with the pipeline's settings, on the master of `fencepost run`, and prints the result."""
    from fencepost.config.loading import find_pipeline
    from fencepost.spark.diagnosis import unexpected
    from fencepost.spark.parent import tie_to_parent
    from fencepost.spark.session import build_session

    tie_to_parent(signal.SIGTERM)  # a doctor that is interrupted leaves no job behind
    try:
        spark = build_session(find_pipeline(name), "doctor")
        tasks = max(2, spark.sparkContext.defaultParallelism)
        executors = dict(spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(versions).collect())
        spark.stop()
    except Exception as error:
        sys.stderr.write(str(error))  # for the parent alone, which searches for PySpark's own message
        sys.stdout.write(f"{unexpected(error, 'the small job')}\n")
        return 1
    sys.stdout.write(json.dumps({"driver": dict(versions())[socket.gethostname()], "executors": executors}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
