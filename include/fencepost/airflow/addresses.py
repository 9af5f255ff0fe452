"""Composes addresses of pages in Airflow's UI, for messages and notifications.

The setting `[api] base_url` has the UI's address. Without that setting no link is made, because the link would lead to
the reader's own machine.
"""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk.configuration import conf


def run_address(dag_id: str, run_id: str) -> str:
    """Returns the address of a DAG run's page. It is empty if the UI's address is not known."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}/dags/{dag_id}/runs/{quote(run_id)}" if base else ""


def report_address(dag_id: str, run_id: str) -> str:
    """Returns the address of the page with the report of the run's batch. The page is the plugin's tab of the DAG run.
    The address is empty if the UI's address is not known.
    """
    page = run_address(dag_id, run_id)
    return f"{page}/plugin/run-report" if page else ""


def run_place(dag_id: str, run_id: str) -> str:
    """Returns the address of a DAG run's page, or how to find the page in the UI."""
    return run_address(dag_id, run_id) or f"See run {run_id} of DAG {dag_id} in Airflow."


def report_place(dag_id: str, run_id: str) -> str:
    """Returns the address of the page with the report, or how to find the page in the UI."""
    return report_address(dag_id, run_id) or f"See tab Report of run {run_id} of DAG {dag_id} in Airflow."
