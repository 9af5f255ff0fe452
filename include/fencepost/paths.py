"""The folders of DAGs, pipelines, reports, jars and state.

In a checkout of the repository these folders are in the checkout. If the package is installed, the user's files are in
Airflow's home, and the state is in the user's state folder. An environment variable overrides each folder. This module
imports nothing else of the package, so set-up can use it.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def checkout_of(package: Path) -> Path | None:
    """Returns the repository that has this package as `include/fencepost`, or None if the package is installed."""
    root = package.parent.parent
    return root if package == root / "include" / "fencepost" and (root / "pyproject.toml").is_file() else None


CHECKOUT = checkout_of(PACKAGE)


def state_folder() -> Path:
    """Returns `FENCEPOST_STATE`, or `.fencepost` in the checkout, or `fencepost` in the user's state folder. The path
    is absolute.

    The user's state folder is `XDG_STATE_HOME`, or `~/.local/state`.
    """
    if named := named_folder("FENCEPOST_STATE"):
        return named
    if CHECKOUT:
        return CHECKOUT / ".fencepost"
    return (named_folder("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fencepost"


def jars_folder() -> Path:
    """Returns `FENCEPOST_JARS`, or the folder for jars in the state folder."""
    return named_folder("FENCEPOST_JARS") or state_folder() / "jars"


def connector_folder() -> Path:
    """Returns `FENCEPOST_SPARK_JARS`, or the folder where set-up puts the Kafka connector's jars."""
    return named_folder("FENCEPOST_SPARK_JARS") or jars_folder() / "spark"


def reports_folder() -> Path:
    """Returns `FENCEPOST_REPORTS`, or the folder for reports in the state folder."""
    return named_folder("FENCEPOST_REPORTS") or state_folder() / "reports"


def pipelines_folder() -> Path:
    """Returns `FENCEPOST_PIPELINES`, or `include/pipelines` in the checkout, or `pipelines` in Airflow's home."""
    return named_folder("FENCEPOST_PIPELINES") or _folder_of_user("include/pipelines")


def dags_folder() -> Path:
    """Returns the DAGs of the local stack: `FENCEPOST_DAGS`, or `dags` in the checkout or in Airflow's home."""
    return named_folder("FENCEPOST_DAGS") or _folder_of_user("dags")


def plugins_folder() -> Path:
    """Returns your plugins for the local stack: `FENCEPOST_PLUGINS`, or `plugins` in the checkout or in Airflow's home."""
    return named_folder("FENCEPOST_PLUGINS") or _folder_of_user("plugins")


def _folder_of_user(in_checkout: str) -> Path:
    if CHECKOUT:
        return CHECKOUT / in_checkout
    return (named_folder("AIRFLOW_HOME") or Path.home() / "airflow") / Path(in_checkout).name


def named_folder(variable: str) -> Path | None:
    """Returns the absolute path of the folder that an environment variable names, or None if the variable is not set."""
    value = os.environ.get(variable)
    return Path(value).expanduser().absolute() if value else None
