"""Addresses in Airflow's UI, for messages and notifications."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk.configuration import conf


def run_address(dag_id: str, run_id: str) -> str:
    """A DAG run's page."""
    base = conf.get("api", "base_url", fallback="http://localhost:8080/").rstrip("/")
    return f"{base}/dags/{dag_id}/runs/{quote(run_id)}"


def report_address(dag_id: str, run_id: str) -> str:
    """The page with the report of the run's batch: the plugin's tab of a DAG run."""
    return f"{run_address(dag_id, run_id)}/plugin/run-report"
