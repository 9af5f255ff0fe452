"""PostgreSQL for the cases that write into a table: a server of the run's own, and a database for each side."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

from fencepost_stack.credentials import Credentials
from fencepost_stack.ports import LOOPBACK, any_free_port
from fencepost_stack.postgres import SUPERUSER, Postgres

PASSWORD = "of-a-bench"  # noqa: S105  # nobody else reaches it


class Store:
    """The server, started. Both sides commit durably: the local stack's Airflow does without."""

    def __init__(self, folder: Path) -> None:
        names = Credentials.__slots__  # type: ignore[attr-defined]
        folder.parent.chmod(0o755)  # the server's user passes through it
        self._port, self._numbers = any_free_port(), count(1)
        self._server = Postgres(
            folder, self._port, Credentials(**dict.fromkeys(names, PASSWORD)), folder.parent / "postgres.log"
        )
        self._server.start()

    def database(self) -> dict[str, str]:
        """A new database; the settings of its owner."""
        name = f"bench{next(self._numbers)}"
        durable = "ALTER ROLE {} SET synchronous_commit = on"
        for text in ("CREATE ROLE {} LOGIN PASSWORD %s", durable, "CREATE DATABASE {0} OWNER {0}"):
            statement = sql.SQL(text).format(sql.Identifier(name))
            self.query(self._login("postgres", SUPERUSER), statement, (PASSWORD,) if "%s" in text else None)
        return self._login(name, name)

    def query(self, settings: dict[str, str], text: Any, values: Any = None) -> list[tuple[Any, ...]]:
        """The rows of a statement; none where it gives none."""
        with closing(psycopg2.connect(**settings)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(text, values)
                return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        """End it."""
        self._server.stop()

    def _login(self, dbname: str, user: str) -> dict[str, str]:
        return {"host": LOOPBACK, "port": str(self._port), "dbname": dbname, "user": user, "password": PASSWORD}
