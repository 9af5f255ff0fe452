"""Reads the Iceberg table of `nyc_weather_lake` as `reader`, by pyiceberg and DuckDB, without Fencepost."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

from pyiceberg.catalog.sql import SqlCatalog

from fencepost_stack.reporting import WEATHER_LAKE

CATALOG = "lake"  # its name in the rows of its tables, which is the one that Fencepost gives it
TABLE = "weather.observations"
VIEW = "observations"  # the table's name in questions


def query(login: Mapping[str, str], text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Returns the columns and rows of a query. `login` is the reader's, in libpq's names."""
    table = SqlCatalog(CATALOG, uri=_uri(login)).load_table(TABLE)
    with closing(table.scan().to_duckdb(VIEW)) as session:
        found = session.sql(text)
        return list(found.columns), found.fetchall()


def shell(login: Mapping[str, str]) -> str:
    """Returns the command that opens Python with a function `ask`, and shows five rows by it."""
    uri = _uri({**login, "passfile": os.path.relpath(login["passfile"])})
    lines = (
        "from pyiceberg.catalog.sql import SqlCatalog",
        f'ask = SqlCatalog("{CATALOG}", uri="{uri}").load_table("{TABLE}").scan().to_duckdb("{VIEW}").sql',
        f'print(ask("FROM {VIEW} LIMIT 5"))',
    )
    return shlex.join([os.path.relpath(sys.executable), "-ic", "; ".join(lines)])


def _uri(login: Mapping[str, str]) -> str:
    """Returns the catalog's address for SQLAlchemy, with the path of the password file."""
    place = f"{login['user']}@{login['host']}:{login['port']}/{WEATHER_LAKE}"
    return f"postgresql+psycopg2://{place}?passfile={quote(login['passfile'])}"
