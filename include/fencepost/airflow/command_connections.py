"""Looks up a pipeline's connections for a command in the places where Airflow looks, and reports where each was found.

The order is Airflow's own: the secrets backend of its settings, the environment, and its database if this machine has
Airflow's settings. A command may not use the API that tasks use. With teams, the database says which team the
pipeline's DAG belongs to. Without the team a command has only the connections that belong to no team.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow.configuration import conf, ensure_secrets_loaded
from airflow.secrets.environment_variables import EnvironmentVariablesBackend
from airflow.secrets.metastore import MetastoreBackend
from sqlalchemy.engine import make_url

from fencepost.airflow.connections import plain, team_of
from fencepost.config.connections import resolved
from fencepost.config.pipeline import Pipeline
from fencepost.config.services.connection import Connection, ConnectionSettings
from fencepost.errors import ConnectionNotFound, SettingsError

DATABASE = ("database", "sql_alchemy_conn")
NO_DATABASE = (
    "not in Airflow's database, whose settings this machine does not have (AIRFLOW__DATABASE__SQL_ALCHEMY_CONN, or airflow.cfg "
    "in AIRFLOW_HOME)"
)


def resolve_for_command(
    pipeline: Pipeline, tell: Callable[[str], None]
) -> tuple[Pipeline, dict[str, ConnectionSettings]]:
    """Returns the pipeline with the settings of its connections, and the settings that each connection gave. `tell` is
    called with the place where each was found.

    Raises:
        ConnectionNotFound: no place has a connection. The message has the places that were asked, and their answers.
        SettingsError: Airflow's settings on this machine, or the connection's settings, cannot be used.
    """
    team = _team(pipeline)
    return resolved(pipeline, lambda name: _look_up(name, team, tell))


def _team(pipeline: Pipeline) -> str | None:
    """Returns the team of the pipeline's DAG, or None if this machine cannot know it."""
    if not _has_database():
        return None
    try:
        return team_of(pipeline.name)
    except Exception as error:  # the error's text may quote the database's address with a password
        raise ConnectionNotFound(
            f"Airflow's database does not say which team DAG {pipeline.name} belongs to ({type(error).__name__}), "
            "and a team may have connections of its own. Make the database reachable from here; then run again."
        ) from None


def _look_up(name: str, team: str | None, tell: Callable[[str], None]) -> Connection:
    asked: list[str] = []
    for backend in _backends():
        place = _place(backend, name)
        if isinstance(backend, MetastoreBackend) and not _has_database():
            asked.append(NO_DATABASE)
            continue
        try:
            found = backend.get_connection(conn_id=name, **({"team_name": team} if team is not None else {}))
        except Exception as error:  # the error's text may quote what it read
            asked.append(f"{place}: it does not answer ({type(error).__name__})")
            continue
        if found is not None:
            tell(f"connection {name}: from {place}")
            return plain(name, found)
        asked.append(f"{place}: not there")
    raise ConnectionNotFound(
        f"there is no connection {name!r} where Airflow would look from here: {'; '.join(asked)}. Set "
        f"AIRFLOW_CONN_{name.upper()}, or give this machine Airflow's settings; then run again."
    )


def _backends() -> Iterator[Any]:
    try:
        yield from ensure_secrets_loaded()
    except Exception as error:
        raise SettingsError(
            f"Airflow's secrets backend cannot be loaded here ({type(error).__name__}). Correct [secrets] backend and "
            "backend_kwargs in Airflow's settings on this machine, or install the provider that they name."
        ) from None


def _place(backend: Any, name: str) -> str:
    if isinstance(backend, EnvironmentVariablesBackend):
        return f"the environment (AIRFLOW_CONN_{name.upper()})"
    if isinstance(backend, MetastoreBackend):
        where = "this machine's Airflow"
        with suppress(Exception):
            where = make_url(conf.get(*DATABASE)).render_as_string(hide_password=True)
        return f"Airflow's database ({where})"
    return f"the secrets backend {type(backend).__module__}.{type(backend).__name__}"


def _has_database() -> bool:
    """Returns whether Airflow's settings on this machine name a database, or the default database exists."""
    try:
        named = conf.get(*DATABASE)
    except Exception:  # a command or a secrets backend that the settings name has failed
        return True
    if named != conf.get_default_value(*DATABASE):
        return True
    file = make_url(named).database
    return file is not None and Path(file).is_file()
