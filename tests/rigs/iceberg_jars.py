"""The jars of Iceberg: its runtime for Spark, and what its REST catalog needs beside the Hadoop client of PySpark.

Only tests use them, and download them when they are missing. `python -m rigs.iceberg_jars` pins them again (`make pins`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from fencepost.jars import JarsError, JarSet
from fencepost_stack.jars import ensure
from fencepost_stack.pins import Dependency, Wanted, renew
from fencepost_stack.state_folder import StateFolder

LOCK = Path(__file__).with_name("jars.lock")
RUNTIME, CATALOG = JarSet("iceberg-spark-runtime", LOCK), JarSet("iceberg-rest-catalog", LOCK)
ICEBERG, JETTY = "1.11.0", "12.1.5"
WANTED = (
    Wanted(RUNTIME, (Dependency("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", ICEBERG, transitive=False),)),
    Wanted(
        CATALOG,
        (
            Dependency("org.apache.iceberg", "iceberg-core", ICEBERG, classifiers=("tests",)),
            Dependency("org.eclipse.jetty", "jetty-server", JETTY),
            Dependency("org.eclipse.jetty.ee10", "jetty-ee10-servlet", JETTY),
            Dependency("org.postgresql", "postgresql", "42.7.14"),
            Dependency("org.slf4j", "slf4j-simple", "2.0.17"),
        ),
    ),
)


def folder_of(jar_set: JarSet) -> Path:
    """The folder that has the jars of a set; they are downloaded where they are missing."""
    state = StateFolder.default()
    ensure(state, [jar_set])
    return state.jars / jar_set.name


def spark_runtime() -> Path:
    """The jar that makes a Spark session read and write Iceberg's tables."""
    (name,) = RUNTIME.jars()
    return folder_of(RUNTIME) / name


if __name__ == "__main__":
    try:
        renew(WANTED)
    except JarsError as error:
        sys.exit(f"pins: {error}")
