"""Makes a database for a user's own pipeline. A role owns it, and has no other right in the server.

A libpq password file beside the server's data has the password, so no setting and no variable has it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from psycopg2 import sql

from fencepost_stack.errors import LocalStackError
from fencepost_stack.ports import LOOPBACK
from fencepost_stack.reporting import READER, WRITERS
from fencepost_stack.state_folder import write_private

TAKEN = {"airflow", "postgres", "template0", "template1", READER, *WRITERS, *WRITERS.values()}
NAME = re.compile(r"(?!pg_)[a-z][a-z0-9_]{0,62}")

Connect = Callable[[str], Any]  # a superuser's connection to the database of that name


def check_name(name: str) -> None:
    """Raises LocalStackError if no database on this server can have this name."""
    if name in TAKEN or not NAME.fullmatch(name):
        why = (
            "the local stack uses it"
            if name in TAKEN
            else "it has to be small letters, digits and _, and begin with a letter"
        )
        raise LocalStackError(f"--database {name}: {why}. Give another name, such as the pipeline's.")


def ensure_own_database(connect: Connect, name: str, passfile: Path) -> None:
    """Creates the database and its owner if they are missing, and sets the owner's password from the file. It is
    idempotent.
    """
    made, password = sql.Identifier(name), _password(name, passfile)
    with closing(connect("postgres")) as connection:
        connection.autocommit = True  # CREATE DATABASE refuses to run in a transaction
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,))
            word = "CREATE" if cursor.fetchone() is None else "ALTER"
            cursor.execute(sql.SQL(word + " ROLE {} LOGIN PASSWORD %s").format(made), (password,))
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(made, made))
            cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(made))


def own_login(host: str, port: int, name: str, passfile: Path) -> dict[str, str]:
    """Returns the owner's login in libpq's names. The login's password is in the file."""
    return {"host": host, "port": str(port), "dbname": name, "user": name, "passfile": str(passfile)}


HOST, PORT = f"${{REPORTING_HOST:-{LOOPBACK}}}", "${REPORTING_PORT:-5432}"


def settings(login: Mapping[str, str]) -> str:
    """Returns the section of pipeline.yaml with this login. The section is correct wherever the local server is when
    the pipeline runs.
    """
    return _section("postgres", {**login, "host": HOST, "port": PORT})


def catalog_settings(login: Mapping[str, str], warehouse: Path) -> str:
    """Returns the section of pipeline.yaml with an Iceberg catalog in this database. `warehouse` is the folder of its
    files.
    """
    own = {name: login[name] for name in ("user", "passfile")}
    uri = f"postgresql://{HOST}:{PORT}/{login['dbname']}"
    return _section("iceberg", {"type": "sql", "uri": uri, **own, "warehouse": warehouse.as_uri()})


def _section(name: str, values: Mapping[str, str]) -> str:
    return f"{name}:\n" + "".join(f"  {setting}: {value}\n" for setting, value in values.items())


def _password(name: str, passfile: Path) -> str:
    """Returns the password in the file. If there is none, it makes a new password and the file. The password is only
    for this machine's address.
    """
    place = f"{LOOPBACK}:*:{name}:{name}:"
    known = passfile.read_text() if passfile.exists() else ""
    if known.startswith(place):
        return known.removeprefix(place).strip()
    password = secrets.token_hex(16)
    passfile.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(passfile, f"{place}{password}\n")
    return password
