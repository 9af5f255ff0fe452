"""Tells the other commands the addresses of the local services that run."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fencepost_stack.state_folder import StateFolder


def use_stack() -> None:
    """Sets KAFKA_BOOTSTRAP, SCHEMA_REGISTRY_URL, REPORTING_HOST and FENCEPOST_AIRFLOW_URL, the last two with their
    logins. The variables name the services that run on this machine.

    A variable that is set already does not change.
    """
    names = {"KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL", "REPORTING_HOST", "FENCEPOST_AIRFLOW_URL"}
    missing = names - os.environ.keys()
    if not missing or not StateFolder.default().services_file.exists():
        return
    from fencepost_stack.airflow import SPARK
    from fencepost_stack.stack import SERVICES, Stack

    services = Stack().services()
    kafka, registry, postgres, airflow = (services[name] for name in SERVICES)
    if kafka["running"]:
        os.environ.setdefault("KAFKA_BOOTSTRAP", kafka["bootstrap"])
    if registry["running"]:
        os.environ.setdefault("SCHEMA_REGISTRY_URL", registry["url"])
    # A login goes with its address: another server is not told this one's password.
    if postgres["running"] and not {"REPORTING_HOST", "REPORTING_PORT"} & os.environ.keys():
        _set(postgres["reporting"])
    if airflow["running"] and "FENCEPOST_AIRFLOW_URL" in missing:
        of_login = {"URL": "url", "USER": "username", "PASSWORD": "password"}
        _set({f"FENCEPOST_AIRFLOW_{name}": airflow[key] for name, key in of_login.items()})
        _set({"AIRFLOW_CONN_SPARK_DEFAULT": SPARK})


def _set(values: Mapping[str, str]) -> None:
    """Sets the variables that are not set yet."""
    for name, value in values.items():
        os.environ.setdefault(name, value)
