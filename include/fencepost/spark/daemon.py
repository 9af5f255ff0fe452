"""The process that Spark forks its Python workers from, with everything imported that they need.

A worker of a small batch lives for a second, and would spend most of it on imports. `spark.python.daemon.module` names this
module where the package is installed for the workers, which is so on this machine. On a cluster Spark brings it to a worker
only after its fork.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import fencepost.spark.writer  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # so that a worker's collector leaves the shared pages alone
    daemon.manager()  # type: ignore[no-untyped-call]
