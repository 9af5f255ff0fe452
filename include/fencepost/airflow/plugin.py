"""Airflow's plugin. The plugin adds pages and links in Airflow's UI, notes on runs, names of requests, the timetable
and deadlines.

The package registers the plugin by the entry point `airflow.plugins`. All of Airflow's processes import it, so it
imports nothing heavy. The pages' application is loaded at its first request.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from fencepost.airflow import run_note, run_request
from fencepost.airflow.connections import ServerConnections
from fencepost.airflow.deadline import IntervalEnd
from fencepost.airflow.timetable import IntervalTimetable
from fencepost.pages import LazyApp

MOUNT = "/fencepost"
# If the UI has a base path, the pages have it too.
BASE = urlparse(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + MOUNT


def _view(name: str, destination: str, route: str, path: str) -> dict[str, Any]:
    """Returns a view in the UI that shows one of the pages. The UI replaces {DAG_ID} and similar names by ids."""
    icons = {"icon": f"{BASE}/static/icon.svg", "icon_dark_mode": f"{BASE}/static/icon-dark.svg"}
    return {"name": name, "destination": destination, "url_route": route, "href": f"{BASE}{path}", **icons}


class FencepostPlugin(AirflowPlugin):
    """Adds the pages as an application of the API server, the views that show the pages, and the classes that the
    scheduler needs.
    """

    name = "fencepost"
    timetables = [IntervalTimetable]
    listeners = [run_note, run_request]
    deadline_references = [IntervalEnd]
    fastapi_apps = [{"app": LazyApp(ServerConnections()), "url_prefix": MOUNT, "name": "Fencepost"}]
    external_views = [
        _view("Data quality", "nav", "data-quality", "/") | {"nav_top_level": True},
        _view("Batches", "dag", "batches", "/pipelines/{DAG_ID}"),
        _view("Report", "dag_run", "run-report", "/runs/{DAG_ID}/{RUN_ID}"),
        _view("Report", "task_instance", "task-report", "/runs/{DAG_ID}/{RUN_ID}?task={TASK_ID}"),
    ]
