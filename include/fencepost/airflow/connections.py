"""Looks connections up in Airflow, a pipeline's and a reader's: in a task, in a callback, and in the API server for the pages.

Airflow's own order holds: the secrets backend, the environment, and then Airflow's database, which a task asks through Airflow's
API. Nothing is looked up while a DAG's file is parsed.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from fencepost.config.asker import Asker
from fencepost.config.connections import Connection, Who, resolved, secrets_of
from fencepost.errors import AccessDenied, ConnectionNotFound


def with_connections(asker: Who) -> Who:
    """The pipeline, or its reader, with the settings of its connections, looked up now; the same if it names none.

    Airflow masks each value that no message may show, in the logs of this task and of all that it starts. Airflow's own masks
    leave out `ssl.key.pem` and `basic.auth.user.info`, and the lines of a key.

    Raises:
        ConnectionNotFound: Airflow has none of that name, or its secrets backend does not answer: it says the same of both.
        AccessDenied: Airflow does not let this task have it.
        SettingsError: what it holds is no settings for this section.
    """
    if not asker.connections or asker.resolved:
        return asker
    whole, _ = resolved(asker, _look_up)
    mask(whole)
    return whole


def mask(asker: Asker) -> None:
    """Have Airflow mask the secrets in these settings."""
    for secret in secrets_of(asker):
        mask_secret(secret)


def _look_up(name: str) -> Connection:
    try:
        return plain(name, BaseHook.get_connection(name))
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
