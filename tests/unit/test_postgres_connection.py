"""Which servers a table may be on, and what is kept of their errors, with a server that is a fake: none is that old."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi
from pydantic import SecretStr

from fencepost.config.client_config import ClientConfig
from fencepost.doctor.run_check import run_check
from fencepost.errors import TableRefused
from fencepost.findings import Level
from fencepost.outputs.postgres.doctor import check_postgres
from fencepost.outputs.postgres.output import PostgresTable
from fencepost.postgres.connection import StatementFailed, _errors, session

SETTINGS = {"host": "db", "dbname": "reporting", "user": "writer", "password": "secret"}


class Server:
    """A server of that version, and the statements that it was asked."""

    def __init__(self, version: int) -> None:
        self.version, self.asked = version, list[str]()
        self.description: Any = None

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def execute(self, statement: str, values: object = None) -> None:
        self.asked.append(statement)
        self.description = ["a column"] if statement.startswith("SELECT") else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [("on", self.version)]

    def close(self) -> None:
        pass


def pipeline() -> Any:
    secrets = {name: SecretStr(value) for name, value in SETTINGS.items()}
    return ClientConfig(name="orders", resolved=True, postgres=secrets)


@pytest.mark.parametrize(("version", "name"), [(130_099, "13"), (90_624, "9"), (100_000, "10")])
def test_a_server_that_is_too_old_is_refused_by_name_before_anything_is_made_there(
    monkeypatch: pytest.MonkeyPatch, version: int, name: str
) -> None:
    server = Server(version)
    monkeypatch.setattr(dbapi, "connect", lambda _: server)
    why = f"database reporting: the server is PostgreSQL {name}, and a table needs version 14 or later"
    deployment: Any = SimpleNamespace(pipeline=pipeline(), cluster=SimpleNamespace(id="here"))
    with pytest.raises(TableRefused, match=rf"pipeline orders: .*{why}.* Nothing was planned"):
        PostgresTable(deployment, "public.orders").prepare()
    (found,) = run_check(check_postgres, SimpleNamespace(pipeline=pipeline()))
    assert (found.level, why in found.found) == (Level.ERROR, True)
    assert not [statement for statement in server.asked if statement.startswith(("CREATE", "INSERT"))]


def test_the_oldest_server_that_will_do_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbapi, "connect", lambda _: Server(140_000))
    with session(pipeline()) as tx:
        assert tx.run("SELECT 1")


@pytest.mark.parametrize(
    ("context", "row"),
    [
        ("COPY numbers, line 7", 7),
        ("COPY numbers, line 7, column name", 7),
        ("COPY a table, line 3, line 7", 7),
        ("PL/pgSQL function refuse() line 3 at RAISE\nCOPY numbers, line 7", 7),
        (
            'COPY numbers, line 12\nSQL statement "insert"\nPL/pgSQL function f() line 3 at EXECUTE\nCOPY numbers, line 7',
            7,
        ),
        ("SQL statement \"select '\nCOPY numbers, line 12'\"\nPL/pgSQL function f() line 3 at EXECUTE", 0),
        ("PL/pgSQL function f() line 3 at RAISE", 0),
        ("", 0),
    ],
)
def test_the_row_of_a_copy_is_told_by_the_outermost_line_of_the_context_alone(context: str, row: int) -> None:
    """A trigger runs inside the copy, and what it runs may say anything above that line."""
    details = [("PG_DIAG_CONTEXT", context.encode())]
    error = dbapi.ProgrammingError("secret", status_code=1, sqlstate="23514", details=details)
    with pytest.raises(StatementFailed) as raised, _errors("here"):
        raise error
    assert raised.value.row == row
    assert "secret" not in str(vars(raised.value))
