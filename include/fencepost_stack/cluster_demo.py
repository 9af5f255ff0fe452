"""Runs `fencepost cluster`, the demo on a cluster. A broker and a Spark worker are killed half-way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from fencepost_stack.cluster_stack import ClusterStack
from fencepost_stack.commands import Progress, errors_shown
from fencepost_stack.demo import DAYS, load, out, play

VICTIMS = (("kafka", "broker-2"), ("spark", "worker-2"))


class Strike:
    """Kills the victims once, when a task writes and every worker has an executor."""

    def __init__(self, stack: ClusterStack) -> None:
        self._stack = stack
        self.done = False

    def __call__(self, running: Sequence[str]) -> None:
        """Gets the labels of the tasks that run now."""
        if self.done or not any(label.endswith(" write") for label in running):
            return
        workers = self._stack.spark.state().get("workers", [])
        if not all(worker["coresused"] for worker in workers if worker["state"] == "ALIVE"):
            return
        self.done = True
        for service, name in VICTIMS:
            self._stack.kill(service, name)
            out.print(f"  [red]✗[/] {'Kafka' if service == 'kafka' else 'Spark'}'s {name} killed")


def cluster(*, start_only: bool, days: int) -> None:
    """Starts the cluster, runs the demo on it, kills the victims, and starts them again."""
    with errors_shown():
        out.print("[bold]1[/] Services: three brokers, two Spark workers, Airflow")
        stack = ClusterStack()
        services = _start(stack)
        if not start_only:
            strike = Strike(stack)
            loaded = partial(load, stack.kafka.admin_settings(), services["schema-registry"]["url"])
            play(services, loaded, strike, DAYS[:days])
            if strike.done:
                out.print("What was killed is started again:")
                _start(ClusterStack())
        out.print(f"For a shell on this cluster: source {os.path.relpath(stack.environment_file)}", soft_wrap=True)
        out.print("Services stay up; `make down` stops them.")


def _start(stack: ClusterStack) -> dict[str, Any]:
    progress = Progress()
    try:
        return stack.up(report=progress)
    finally:
        progress.end()
