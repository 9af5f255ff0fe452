"""The database that the demo's table is in: who may do what there, and the question that the demo ends with."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from fencepost_stack import demo, reporting
from fencepost_stack.postgres import binaries
from rigs.postgres_server import PASSWORD, PostgresServer, query

MADE = "create table delays_by_hour (airline text, flights integer, departed integer, delay_minutes bigint)"
FILLED = "insert into delays_by_hour values ('JetBlue', 2, 2, 25), ('JetBlue', 1, 0, 0), ('Delta', 1, 1, -3)"


@pytest.fixture
def writer(postgres: PostgresServer) -> Iterator[dict[str, str]]:
    """The login of who writes there; it has made a table with rows."""
    login = {name: postgres.reader[name] for name in ("host", "port", "dbname")}
    login |= {"user": reporting.WRITER, "password": PASSWORD}
    query(login, MADE)
    query(login, FILLED)
    yield login
    query(login, "drop table delays_by_hour")


def test_the_demo_ends_with_a_question_to_the_table_its_answer_and_where_to_ask_more(
    postgres: PostgresServer, writer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.out, "width", 120)
    with demo.out.capture() as captured:
        demo._show_answer(postgres.reader)
    text = captured.get()
    cells = [
        [c.strip() for c in line.strip("│┃").replace("┃", "│").split("│")]
        for line in text.splitlines()
        if line[:1] in "│┃"
    ]
    assert cells == [["airline", "flights", "minutes_late"], ["JetBlue", "3", "12.5"], ["Delta", "1", "-3.0"]]
    command = text.strip().splitlines()[-1].removeprefix("ask it yourself: ")
    shell = ["bash", "-c", f'{command} -At -c "$0"', demo.QUESTION]
    asked = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert asked.stdout.splitlines() == ["JetBlue|3|12.5", "Delta|1|-3.0"]
    assert PASSWORD not in text


def test_the_reader_may_read_what_the_writer_makes_and_neither_may_do_more(
    postgres: PostgresServer, writer: dict[str, str]
) -> None:
    reader = postgres.reader
    assert stat.S_IMODE(Path(reader["passfile"]).stat().st_mode) == 0o600
    for refused in ("delete from delays_by_hour", "create table mine ()", "create temporary table mine ()"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            query(reader, refused)
    for refused in ("create database mine", "create role mine", "create schema mine"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            query(writer, refused)
    for login in (reader, writer):
        for database in ("airflow", "postgres"):
            with pytest.raises(psycopg2.OperationalError, match="permission denied"):
                query(login | {"password": PASSWORD, "dbname": database}, "select 1")


def test_made_again_it_has_the_passwords_of_now_and_keeps_its_tables(
    postgres: PostgresServer, writer: dict[str, str]
) -> None:
    def ensure(password: str) -> None:
        passwords = {reporting.WRITER: password, reporting.READER: PASSWORD}
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
