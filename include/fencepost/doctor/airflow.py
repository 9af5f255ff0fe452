"""Checks what the pipelines' DAGs need in Airflow, with its REST API. The caller passes the connection to the API."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from fencepost.config.sections import DEFAULT_CONNECTION, DEFAULT_POOL
from fencepost.findings import Finding, error, ok, warning
from fencepost.spark.master import master_of


class AirflowAnswers(Protocol):
    """The requests of these checks. Each answer is the JSON of Airflow's API, or None if Airflow has nothing of that
    name.
    """

    def pool(self, name: str) -> dict[str, Any] | None: ...
    def connection(self, name: str) -> dict[str, Any] | None: ...
    def dag(self, dag_id: str) -> dict[str, Any] | None: ...
    def import_errors(self) -> list[dict[str, Any]]: ...
    def health(self) -> dict[str, Any]: ...


def check_airflow_pool(airflow: AirflowAnswers, name: str = DEFAULT_POOL) -> Finding:
    """Checks that the pool for Spark jobs exists and has slots. Airflow never schedules a task whose pool does not
    exist.
    """
    pool = airflow.pool(name)
    make = f"airflow pools set {name} 2 'Spark jobs of all pipelines that may run at once'"
    if pool is None:
        return error(
            f"Airflow has no pool {name}, so it never schedules write, validate and advance.",
            "Create it, on a machine that can reach Airflow's database.",
            "python -m fencepost.airflow" if name == DEFAULT_POOL else make,
        )
    if not pool["slots"]:
        return error(
            f"Airflow's pool {name} has no slots, so write, validate and advance stay queued.",
            "Give it a slot for each Spark job that may run at once.",
            make,
        )
    return ok(f"pool {name} has {pool['slots']} slots")


def check_airflow_connection(airflow: AirflowAnswers, name: str = DEFAULT_CONNECTION) -> Finding:
    """Checks that Airflow has the connection with Spark's master. The API does not show connections in the environment."""
    found = airflow.connection(name)
    variable = f"AIRFLOW_CONN_{name.upper()}"
    cure = f'Add it in the UI, or set {variable}, such as to {{"conn_type": "spark", "host": "local[2]"}}.'
    if found is None:
        if variable in os.environ:
            return ok(f"connection {name} is in the environment")
        return warning(
            f"Airflow's database has no connection {name}. Write would fail, unless the workers have it in their "
            "environment or in a secrets backend, which Airflow's API does not show.",
            cure,
        )
    if not found.get("host"):
        return error(f"Airflow's connection {name} has no host, so Spark's master is unknown.", cure)
    if extra_of(found).get("deploy-mode") == "cluster":
        return error(
            f"Airflow's connection {name} has deploy-mode cluster, and only client works. In cluster mode a driver could outlive "
            "its task.",
            "Remove deploy-mode from the connection's extra.",
        )
    return ok(f"connection {name} names {urlsplit(found['host']).hostname or found['host']}")


def check_airflow_triggerer(airflow: AirflowAnswers, names: Sequence[str]) -> Finding:
    """Checks that a triggerer runs if these pipelines have a deadline. The triggerer reports missed deadlines."""
    if not names:
        return ok("no pipeline has a deadline")
    if (airflow.health().get("triggerer") or {}).get("status") != "healthy":
        return warning(
            f"Airflow runs no triggerer, so missed deadlines of {', '.join(names)} are not reported "
            "(schedule.deadline_minutes).",
            "Start a triggerer beside the scheduler, with the environment of the workers.",
            "airflow triggerer",
        )
    return ok("a triggerer runs")


def masters(airflow: AirflowAnswers, name: str = DEFAULT_CONNECTION) -> list[str]:
    """Returns Spark's master in Airflow's connection. There is none if the API does not show the connection."""
    try:
        found = airflow.connection(name)
    except Exception:  # another check reports it
        return []
    if not found or not found.get("host"):
        return []
    return [master_of(found.get("conn_type"), found["host"], found.get("port"))]


def extra_of(connection: dict[str, Any]) -> dict[str, Any]:
    """Returns the extra of a connection. It is empty if the extra is not a JSON object."""
    try:
        extra = json.loads(connection.get("extra") or "{}")
    except ValueError:
        return {}
    return extra if isinstance(extra, dict) else {}


def check_airflow_dag(airflow: AirflowAnswers, pipeline: str) -> Iterator[Finding]:
    """Checks that the pipeline's DAG exists and is not paused."""
    dag = airflow.dag(pipeline)
    if dag is None or dag.get("is_stale"):
        files = sorted({str(one["filename"]) for one in airflow.import_errors()})
        broken = f" Files with import errors: {', '.join(files)}." if files else ""
        yield error(
            f"Airflow has no DAG {pipeline}.{broken}",
            "See the import errors in Airflow's UI, and check that its DAG processor has FENCEPOST_PIPELINES and dags/.",
        )
    elif dag.get("is_paused"):
        yield warning(
            f"DAG {pipeline} is paused: nothing is scheduled.", "Unpause it.", f"airflow dags unpause {pipeline}"
        )
    else:
        yield ok(f"DAG {pipeline} is not paused")
