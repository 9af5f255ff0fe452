"""Looks connections up in Airflow, a pipeline's and a reader's: in a task, in a callback, and in the API server for the pages.

Airflow's own order holds: the secrets backend, the environment, and then Airflow's database, which a task asks through Airflow's
API. With teams, Airflow knows a task's team, and the API server has to say it. Nothing is looked up while a DAG's file is parsed.
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
    """The pipeline, or its reader, with the settings of its connections, looked up now; the same if it names none.

    Airflow masks each value that no message may show, in the logs of this task and of all that it starts. Airflow's own masks
    leave out `ssl.key.pem` and `basic.auth.user.info`, and the lines of a key.

    Raises:
        ConnectionNotFound: Airflow has none of that name, or its secrets backend does not answer: it says the same of both.
        AccessDenied: Airflow does not let this task have it.
        SettingsError: what it holds is no settings for this section.
    """
    if not config.connections or config.resolved:
        return config
    whole, _ = resolved(config, lambda name: _look_up(name, BaseHook.get_connection))
    mask(whole)
    return whole


def mask(config: ClientConfig) -> None:
    """Have Airflow mask the secrets in these settings."""
    for secret in secrets_of(config):
        mask_secret(secret)


class ServerConnections:
    """Airflow's connections in a process that has its database, such as the API server: those of a team, and everybody's."""

    def team_of(self, dag_id: str) -> str | None:
        """The team that the DAG's bundle belongs to; None without teams, or of a DAG that Airflow does not know."""
        return team_of(dag_id)

    def look_up(self, name: str, team: str | None) -> Connection:
        """The connection, as `with_connections` has it for a task of that team."""

        def ask(name: str) -> Any:
            from airflow.models.connection import Connection as ServerConnection

            return ServerConnection.get_connection_from_secrets(name, team_name=team)

        return _look_up(name, ask)

    def mask(self, pipeline: ClientConfig) -> None:
        """As `mask`."""
        mask(pipeline)


def team_of(dag_id: str) -> str | None:
    """The team of a DAG, from Airflow's database; None without teams."""
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
            f"Airflow has no connection {name!r}, or the secrets backend that has it does not answer. Add it in Airflow's UI, in "
            f"the secrets backend, or as AIRFLOW_CONN_{name.upper()} where tasks run; then run again."
        ) from None
    except PermissionError:
        raise AccessDenied(
            f"Airflow does not let this task have the connection {name!r}: grant it, and run again."
        ) from None


def plain(name: str, found: Any) -> Connection:
    """A connection of Airflow's, whichever of its classes it has, as plain values."""
    return Connection(
        id=name,
        host=found.host,
        schema=found.schema,
        login=found.login,
        password=found.password,
        port=found.port,
        extra=found.extra,
    )
