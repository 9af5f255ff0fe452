"""`fencepost demo` and `fencepost cluster`: the whole product on this machine, with real flights and weather."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.errors import NeedsOperator
from fencepost.paths import CHECKOUT


def demo() -> None:
    """Start everything, load real flights, run three days through Airflow, and show the results.

    `fencepost services` shows what runs then, and `fencepost down` stops it.

    Example: fencepost demo
    """
    _check_checkout("demo")
    from fencepost_stack.demo import demo as run_demo

    run_demo()


def cluster(
    start_only: Annotated[bool, typer.Option("--start-only", help="Start the cluster, and run nothing on it.")] = False,
    days: Annotated[int, typer.Option(min=1, max=3, help="How many days to run.")] = 3,
) -> None:
    """Run the demo on a secured cluster of this machine, while a broker and a Spark worker are killed.

    Three Kafka brokers (three replicas, two in sync, TLS, SCRAM, ACLs, a user for each pipeline), a Spark master with two
    workers, a schema registry, PostgreSQL and Airflow. All of it is apart from `up` and `demo`, with topics, DAG runs and
    logins of its own. What was killed is started again at the end. `fencepost services` shows it, `fencepost down` stops it.

    Example: fencepost cluster --days 1
    """
    _check_checkout("cluster")
    from fencepost_stack.cluster_demo import cluster as run_cluster

    run_cluster(start_only=start_only, days=days)


def _check_checkout(target: str) -> None:
    if CHECKOUT is None:
        raise NeedsOperator(
            f"the repository has the demo's pipelines and DAGs, the package does not. Run `make {target}` in a checkout."
        )
