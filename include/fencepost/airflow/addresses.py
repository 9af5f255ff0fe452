"""Addresses of pages in Airflow's UI, for messages and notifications, if this Airflow's settings have the UI's address.

`[api] base_url` has it. Without that setting no link is made, because it would lead to the reader's own machine.
"""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk.configuration import conf


def run_address(dag_id: str, run_id: str) -> str:
    """A DAG run's page; empty if the UI's address is not known."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}/dags/{dag_id}/runs/{quote(run_id)}" if base else ""


def report_address(dag_id: str, run_id: str) -> str:
    """The page with the report of the run's batch: the plugin's tab of a DAG run. Empty if the UI's address is not known."""
    page = run_address(dag_id, run_id)
    return f"{page}/plugin/run-report" if page else ""


def run_place(dag_id: str, run_id: str) -> str:
    """A DAG run's page, for a person: its address, or else how to find it in the UI."""
    return run_address(dag_id, run_id) or f"See run {run_id} of DAG {dag_id} in Airflow."


def report_place(dag_id: str, run_id: str) -> str:
    """Returns the page with the report, for a person: its address, or else how to find it in the UI."""
    return report_address(dag_id, run_id) or f"See tab Report of run {run_id} of DAG {dag_id} in Airflow."
