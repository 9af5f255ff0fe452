"""What the other commands know of this machine: the addresses of the local services that run."""

from __future__ import annotations

import os

from fencepost_stack.state_folder import StateFolder


def use_stack() -> None:
    """Set KAFKA_BOOTSTRAP, SCHEMA_REGISTRY_URL and FENCEPOST_AIRFLOW_URL, with its login, to the services that run here.

    A variable that is set already stays as it is.
    """
    missing = {"KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL", "FENCEPOST_AIRFLOW_URL"} - os.environ.keys()
    if not missing or not StateFolder.default().services_file.exists():
        return
    from fencepost_stack.airflow import SPARK
    from fencepost_stack.stack import Stack

    services = Stack().services()
    kafka, registry, airflow = (services[name] for name in ("kafka", "schema-registry", "airflow"))
    if kafka["running"]:
        os.environ.setdefault("KAFKA_BOOTSTRAP", kafka["bootstrap"])
    if registry["running"]:
        os.environ.setdefault("SCHEMA_REGISTRY_URL", registry["url"])
    if airflow["running"] and "FENCEPOST_AIRFLOW_URL" in missing:
        # All three together: another Airflow is not told this one's password.
        os.environ["FENCEPOST_AIRFLOW_URL"] = airflow["url"]
        os.environ["FENCEPOST_AIRFLOW_USER"] = airflow["username"]
        os.environ["FENCEPOST_AIRFLOW_PASSWORD"] = airflow["password"]
        os.environ.setdefault("AIRFLOW_CONN_SPARK_DEFAULT", SPARK)
