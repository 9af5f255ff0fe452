"""Makes the databases of the demo's tables: `reporting` with the tables of `nyc_delays` and `nyc_airport_hours`, and
`weather_lake` with the Iceberg catalog of `nyc_weather_lake`. Each has a role that writes there, and one role reads in both.
The roles have no other right in the server.

A writer creates its tables itself, so it may create tables in the schema. The reader may read the writers' tables.
Airflow's database is closed to all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

from fencepost_stack.state_folder import write_private

REPORTING, WEATHER_LAKE = "reporting", "weather_lake"
WRITERS = {REPORTING: "nyc_delays", WEATHER_LAKE: "nyc_weather_lake"}  # the role that writes, by database
READER = "reader"

Connect = Callable[[str], Any]  # a superuser's connection to the database of that name


def ensure_reporting(connect: Connect, passwords: Mapping[str, str]) -> None:
    """Makes the databases and the roles that are missing. Gives the roles these passwords and their rights. It is
    idempotent.
    """
    with closing(connect("postgres")) as connection:
        connection.autocommit = True  # CREATE DATABASE refuses to run in a transaction
        with connection.cursor() as cursor:
            for role, password in passwords.items():
                cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
                word = "CREATE" if cursor.fetchone() is None else "ALTER"
                cursor.execute(sql.SQL(word + " ROLE {} LOGIN PASSWORD %s").format(sql.Identifier(role)), (password,))
            for name in WRITERS:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
                if cursor.fetchone() is None:
                    cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            for other in ("airflow", "postgres"):
                cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(other)))
    for name, role in WRITERS.items():
        database, writer, reader = (sql.Identifier(one) for one in (name, role, READER))
        with closing(connect(name)) as connection, connection, connection.cursor() as cursor:
            for text in (
                "REVOKE ALL ON DATABASE {database} FROM PUBLIC",
                "GRANT CONNECT ON DATABASE {database} TO {writer}, {reader}",
                "REVOKE ALL ON SCHEMA public FROM PUBLIC",
                "GRANT USAGE, CREATE ON SCHEMA public TO {writer}",
                "GRANT USAGE ON SCHEMA public TO {reader}",
                "ALTER DEFAULT PRIVILEGES FOR ROLE {writer} IN SCHEMA public GRANT SELECT ON TABLES TO {reader}",
            ):
                cursor.execute(sql.SQL(text).format(database=database, writer=writer, reader=reader))


def variables(host: str, port: int, passwords: Mapping[str, str], warehouse: Path) -> dict[str, str]:
    """Returns what the pipelines with these tables read from the environment. `passwords` are those of the writers, by
    role, and `warehouse` is the folder of all warehouses.
    """
    return {
        "REPORTING_HOST": host,
        "REPORTING_PORT": str(port),
        "REPORTING_PASSWORD": passwords[WRITERS[REPORTING]],
        "LAKE_PASSWORD": passwords[WRITERS[WEATHER_LAKE]],
        "LAKE_WAREHOUSE": (warehouse / WEATHER_LAKE).absolute().as_uri(),
    }


def reader_login(host: str, port: int, passfile: Path) -> dict[str, str]:
    """Returns the reader's login in libpq's names. The login's password is in the file."""
    return {"host": host, "port": str(port), "dbname": REPORTING, "user": READER, "passfile": str(passfile)}


def write_passfile(login: Mapping[str, str], password: str) -> None:
    """Writes the password file whose path is in `login`, for both databases. Only its owner can read it."""
    place = ":".join((login["host"], login["port"], "*", login["user"]))
    write_private(Path(login["passfile"]), f"{place}:{password}\n")


def query(login: Mapping[str, str], text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Returns the columns and rows of a query as the reader."""
    with closing(psycopg2.connect(**login)) as connection, connection.cursor() as cursor:
        cursor.execute(text)
        return [column.name for column in cursor.description], cursor.fetchall()


def psql(login: Mapping[str, str], programs: Path) -> str:
    """Returns the command that opens PostgreSQL's own shell with this login."""
    program, passfile = (os.path.relpath(path) for path in (programs / "psql", login["passfile"]))
    return f"PGPASSFILE={passfile} {program} -h {login['host']} -p {login['port']} -U {login['user']} {login['dbname']}"
