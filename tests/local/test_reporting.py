"""The databases that the demo's tables are in: who may do what there, and the questions that the demo ends with."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from fencepost_stack import demo, reporting, weather_lake
from fencepost_stack.postgres import binaries
from rigs.postgres_server import PASSWORD, PostgresServer, query

MADE = "create table delays_by_hour (airline text, flights integer, departed integer, delay_minutes bigint)"
FILLED = "insert into delays_by_hour values ('JetBlue', 2, 2, 25), ('JetBlue', 1, 0, 0), ('Delta', 1, 1, -3)"
HOURS = "create table airport_hours (flights integer, departed integer, delay_minutes bigint, wind_kmh numeric(4, 1))"
WINDY = "insert into airport_hours values (2, 2, 25, 9.9), (3, 2, 3, 0.0), (1, 1, -3, 20.0), (4, 4, 2, null)"
OBSERVED = {"origin": ["LGA", "EWR", "LGA"], "temp_c": [1.0, None, 2.5], "wind_kmh": [10.0, 20.4, 12.6]}
# A question to each database that has rows, and what its reader may not do.
IN_BOTH = [
    (reporting.REPORTING, "select airline from delays_by_hour", "delete from delays_by_hour"),
    (reporting.WEATHER_LAKE, "select table_name from iceberg_tables", "delete from iceberg_tables"),
]


def login_of(postgres: PostgresServer, database: str) -> dict[str, str]:
    """The login of who writes in a database."""
    place = {name: postgres.reader[name] for name in ("host", "port")}
    return place | {"dbname": database, "user": reporting.WRITERS[database], "password": PASSWORD}


@pytest.fixture
def writer(postgres: PostgresServer) -> Iterator[dict[str, str]]:
    """The login of who writes the delays; it has made a table with rows."""
    login = login_of(postgres, reporting.REPORTING)
    query(login, MADE)
    query(login, FILLED)
    yield login
    query(login, "drop table delays_by_hour")


@pytest.fixture
def lake(postgres: PostgresServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The login of who writes the lake; it has made a catalog, and a table with rows."""
    login = login_of(postgres, reporting.WEATHER_LAKE)
    uri = "postgresql+psycopg2://{user}:{password}@{host}:{port}/{dbname}".format(**login)
    catalog = SqlCatalog(weather_lake.CATALOG, uri=uri, warehouse=tmp_path.as_uri())
    catalog.create_namespace("weather")
    rows = pa.table(OBSERVED)
    catalog.create_table("weather.observations", rows.schema).append(rows)
    yield login
    catalog.destroy_tables()


def shown(postgres: PostgresServer, pipeline: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[list[str]], str]:
    """The cells of the answer that the demo shows, and the command for other questions."""
    monkeypatch.setattr(demo.out, "width", 120)
    with demo.out.capture() as captured:
        demo._show_answer(pipeline, demo.TABLES[pipeline], postgres.reader)
    text = captured.get()
    assert text.startswith(f"The table of {pipeline}:\n{demo.TABLES[pipeline].question};\n")
    assert PASSWORD not in text
    cells = [
        [c.strip() for c in line.strip("│┃").replace("┃", "│").split("│")]
        for line in text.splitlines()
        if line[:1] in "│┃"
    ]
    return cells, text.strip().splitlines()[-1].removeprefix("ask it yourself: ")


def test_the_demo_ends_with_a_question_to_the_table_its_answer_and_where_to_ask_more(
    postgres: PostgresServer, writer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, command = shown(postgres, demo.DELAYS, monkeypatch)
    assert cells == [["airline", "flights", "minutes_late"], ["JetBlue", "3", "12.5"], ["Delta", "1", "-3.0"]]
    shell = ["bash", "-c", f'{command} -At -c "$0"', demo.TABLES[demo.DELAYS].question]
    asked = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert asked.stdout.splitlines() == ["JetBlue|3|12.5", "Delta|1|-3.0"]


def test_and_with_one_to_the_table_of_airport_hours(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    login = login_of(postgres, reporting.REPORTING)
    query(login, HOURS)
    query(login, WINDY)
    cells, _ = shown(postgres, demo.HOURS, monkeypatch)
    query(login, "drop table airport_hours")
    assert cells == [
        ["wind_kmh_from", "flights", "minutes_late"],
        ["0", "5", "7.0"],
        ["20", "1", "-3.0"],
        ["None", "4", "0.5"],
    ]


def test_and_with_one_to_the_iceberg_table(
    postgres: PostgresServer, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, command = shown(postgres, demo.LAKE, monkeypatch)
    assert cells == [
        ["airport", "hours", "mean_celsius", "strongest_wind_kmh"],
        ["EWR", "1", "None", "20.0"],
        ["LGA", "2", "1.8", "13.0"],
    ]
    more = 'print(ask("SELECT sum(wind_kmh) FROM observations").fetchall())\n'
    asked = subprocess.run(["bash", "-c", command], input=more, capture_output=True, text=True, check=True)
    assert "20.4" in asked.stdout, "it shows some rows by itself"
    assert asked.stdout.splitlines()[-1] == "[(43.0,)]"


@pytest.mark.parametrize(("database", "reading", "deleting"), IN_BOTH)
def test_the_reader_may_read_what_the_writer_makes_and_neither_may_do_more(
    postgres: PostgresServer, writer: dict[str, str], lake: dict[str, str], database: str, reading: str, deleting: str
) -> None:
    reader: dict[str, Any] = {**postgres.reader, "dbname": database}
    assert stat.S_IMODE(Path(reader["passfile"]).stat().st_mode) == 0o600
    assert query(reader, reading)
    for refused in (deleting, "create table mine ()", "create temporary table mine ()"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            query(reader, refused)
    own = login_of(postgres, database)
    for refused in ("create database mine", "create role mine", "create schema mine"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            query(own, refused)
    others = {"airflow", "postgres"}
    for login, closed in ((reader, others), (own, others | reporting.WRITERS.keys() - {database})):
        for other in closed:
            with pytest.raises(psycopg2.OperationalError, match="permission denied"):
                query(login | {"password": PASSWORD, "dbname": other}, "select 1")


def test_made_again_it_has_the_passwords_of_now_and_keeps_its_tables(
    postgres: PostgresServer, writer: dict[str, str]
) -> None:
    def ensure(password: str) -> None:
        passwords = {reporting.WRITERS[reporting.REPORTING]: password, reporting.READER: PASSWORD}
        reporting.ensure_reporting(lambda name: psycopg2.connect(**postgres.superuser(name)), passwords)

    ensure("another")
    try:
        assert query(writer | {"password": "another"}, "select count(*) from delays_by_hour") == [(3,)]
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            query(writer, "select 1")
    finally:
        ensure(PASSWORD)


def test_the_command_has_no_password(postgres: PostgresServer) -> None:
    command = reporting.psql(postgres.reader, binaries())
    assert command.endswith(f"-h 127.0.0.1 -p {postgres.port} -U reader reporting")
    assert PASSWORD not in command
