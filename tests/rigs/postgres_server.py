"""A PostgreSQL server of the tests' own, on 127.0.0.1, with a database and a role for each who asks."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg2
from psycopg2 import sql

from fencepost_stack.credentials import Credentials
from fencepost_stack.ports import LOOPBACK, any_free_port
from fencepost_stack.postgres import SUPERUSER, Postgres

PASSWORD = "only-for-tests"
numbers = count(1)


class PostgresServer:
    """The server; `database` makes a database that its owner, a role without other rights, may use."""

    def __init__(self, folder: Path) -> None:
        names = Credentials.__slots__  # type: ignore[attr-defined]
        self.port = any_free_port()
        self._server = Postgres(folder, self.port, Credentials(**dict.fromkeys(names, PASSWORD)), folder / "log")

    def __enter__(self) -> Self:
        self._server.folder.mkdir(parents=True, exist_ok=True)
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def kill(self) -> None:
        """End the server and all of its sessions at once, as a crash does, and start it again."""
        process = self._server.process
        assert process is not None
        if process.alive():
            os.kill(
                process.pid, signal.SIGQUIT
            )  # an immediate shutdown: nothing is flushed, and the next start recovers
        await_end(process.pid)
        self._server.process = None
        self._server.start()

    def decode_logically(self) -> None:
        """Have the server write what logical decoding needs; it is started again for that."""
        self.run("alter system set wal_level = 'logical'")
        self._server.stop()
        self._server.start()

    def said(self) -> str:
        """The server's log."""
        return self._server.log.read_text(errors="replace")

    def own(self, folder: Path) -> None:
        """Make a folder that the server may write to."""
        folder.mkdir(mode=0o700)
        owner = self._server.data.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)

    @property
    def reader(self) -> dict[str, str]:
        """The login of who reads the tables of the demo."""
        return self._server.reader

    def database(self) -> dict[str, str]:
        """A new database; the settings of its owner, as `postgres:` in pipeline.yaml has them."""
        name = f"t{next(numbers)}"
        made = sql.Identifier(name)
        self.run("create role {} login password %s", [made], (PASSWORD,))
        self.run("create database {} owner {}", [made, made])
        return {"host": LOOPBACK, "port": str(self.port), "dbname": name, "user": name, "password": PASSWORD}

    def run(
        self, text: str, names: Sequence[sql.Composable] = (), values: Sequence[Any] = (), dbname: str = "postgres"
    ) -> Any:
        """What a statement of the superuser's gives; None where it gives no rows."""
        return query(self.superuser(dbname), text, values, names)

    def superuser(self, dbname: str) -> dict[str, str]:
        """The settings of the superuser."""
        return {"host": LOOPBACK, "port": str(self.port), "dbname": dbname, "user": SUPERUSER, "password": PASSWORD}


def query(
    settings: dict[str, str], text: str, values: Sequence[Any] = (), names: Sequence[sql.Composable] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a statement, committed at once; none where it gives none."""
    with closing(psycopg2.connect(**settings)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(text).format(*names) if names else text, values or None)
            return cursor.fetchall() if cursor.description else []


def await_end(pid: int) -> None:
    """Wait until a process has ended."""
    import psutil

    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=30)
