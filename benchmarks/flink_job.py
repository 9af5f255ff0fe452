"""What runs in Flink's environment: settings on the first line of stdin, then a job a line; an answer on stdout for each.

A job is a list of SQL statements, run one after another; an empty list collects garbage. All run in one mini cluster, as in a
session cluster. The process ends with its standard input, or with the first error, whose traceback is on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from pyflink.common import Configuration
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    """Answers get a descriptor of their own: the JVM may print on stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    jvm = get_gateway().jvm
    cluster = start_cluster(jvm, settings)
    try:
        address = cluster.getRestAddress().get()
        configuration = Configuration()
        for name, value in settings.items():
            configuration.set_string(name, value)
        configuration.set_string("execution.target", "remote")
        configuration.set_string("rest.address", address.getHost())
        configuration.set_string("rest.port", str(address.getPort()))
        batch = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration).build()
        tables = TableEnvironment.create(batch)
        for line in sys.stdin:
            statements = json.loads(line)
            for statement in statements:
                tables.execute_sql(statement).wait()
            if not statements:
                jvm.System.gc()
            print("done", file=answers, flush=True)
    finally:
        cluster.close()


def start_cluster(jvm: Any, settings: Mapping[str, str]) -> Any:
    """A mini cluster in PyFlink's JVM, with as many slots as the parallelism."""
    own = jvm.org.apache.flink.configuration.Configuration()
    for name, value in {**settings, "rest.port": "0"}.items():
        own.setString(name, value)
    package = jvm.org.apache.flink.runtime.minicluster
    builder = package.MiniClusterConfiguration.Builder().setConfiguration(own)
    slots = int(settings["parallelism.default"])
    cluster = package.MiniCluster(builder.setNumTaskManagers(1).setNumSlotsPerTaskManager(slots).build())
    cluster.start()
    return cluster


if __name__ == "__main__":
    main()
