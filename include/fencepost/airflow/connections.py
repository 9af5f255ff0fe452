"""Looks up the Airflow connections of a pipeline or a reader. Tasks, callbacks and the API server (for the pages) use
this module.

The order is Airflow's own: the secrets backend, the environment, and then Airflow's database, which a task reads
through Airflow's API. With teams, Airflow knows a task's team, but the API server has to name the team. No connection
is looked up while a DAG file is parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from fencepost.config.client_config import ClientConfig
from fencepost.config.connections import AnyConfig, resolved, secrets_of
from fencepost.config.services.connection import Connection
from fencepost.errors import AccessDenied, ConnectionNotFound


def with_connections(config: AnyConfig) -> AnyConfig:
    """Returns the pipeline or reader with the settings of its connections, which are looked up now. A pipeline or
    reader without connections is returned unchanged.

    Airflow masks each secret in the logs of this task and of all processes that it starts. Airflow's own masks do not cover
    `ssl.key.pem`, `basic.auth.user.info` and the lines of a key.

    Raises:
        ConnectionNotFound: Airflow has no connection of that name, or its secrets backend does not answer. Airflow does
            not distinguish these cases.
        AccessDenied: Airflow does not let this task read the connection.
        SettingsError: the connection has no valid settings for this section.
    """
    if not config.all_connections or config.resolved:
        return config
    whole, _ = resolved(config, lambda name: _look_up(name, BaseHook.get_connection))
    mask(whole)
    return whole


def mask(config: ClientConfig) -> None:
    """Makes Airflow mask the secrets in these settings."""
    for secret in secrets_of(config):
        mask_secret(secret)


class ServerConnections:
    """Looks up a team's connections and the connections of all teams, in a process with Airflow's database, such as the
    API server.
    """

    def team_of(self, dag_id: str) -> str | None:
        """Returns the team that the DAG's bundle belongs to. Returns None without teams, or for a DAG that Airflow does
        not know.
        """
        return team_of(dag_id)

    def look_up(self, name: str, team: str | None) -> Connection:
        """Returns the connection that `with_connections` uses in a task of that team."""

        def ask(name: str) -> Any:
            from airflow.models.connection import Connection as ServerConnection

            return ServerConnection.get_connection_from_secrets(name, team_name=team)

        return _look_up(name, ask)

    def mask(self, pipeline: ClientConfig) -> None:
        mask(pipeline)


def team_of(dag_id: str) -> str | None:
    """Returns the team of a DAG from Airflow's database, or None without teams."""
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    from airflow.models.dag import DagModel

    team: str | None = DagModel.get_team_name(dag_id)
    return team


def _look_up(name: str, ask: Callable[[str], Any]) -> Connection:
    try:
        return plain(name, ask(name))
    except AirflowNotFoundException:
        raise ConnectionNotFound(
            f"Airflow has no connection {name!r}, or the secrets backend that has it does not answer. Add it in "
            f"Airflow's UI, in the secrets backend, or as AIRFLOW_CONN_{name.upper()} where tasks run; then run "
            "again."
        ) from None
    except PermissionError:
        raise AccessDenied(
            f"Airflow does not let this task have the connection {name!r}. Grant it, and run again."
        ) from None


def plain(name: str, found: Any) -> Connection:
    """Returns an Airflow connection of any class, as plain values."""
    return Connection(
        id=name,
        host=found.host,
        schema=found.schema,
        login=found.login,
        password=found.password,
        port=found.port,
        extra=found.extra,
    )
