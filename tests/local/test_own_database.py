"""A database for a pipeline of one's own on the local PostgreSQL: what the documented line leaves, and what it refuses."""

from __future__ import annotations

import stat
from pathlib import Path

import psycopg2
import pytest
import yaml
from typer.testing import CliRunner

from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.outputs.iceberg.catalog import catalog_of
from fencepost.postgres.connection import asking
from fencepost_stack.errors import LocalStackError
from fencepost_stack.own_database import catalog_settings, check_name, settings
from fencepost_stack.postgres import Postgres
from rigs.postgres_server import PASSWORD, PostgresServer, query

SCHEMA = {"topic": "orders", "schema": {"n": "int"}}


@pytest.fixture
def server(postgres: PostgresServer) -> Postgres:
    return postgres._server


def test_the_section_that_it_prints_logs_a_pipeline_in_where_the_server_is_now(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = server.make_database("paid_orders")
    assert stat.S_IMODE(Path(login["passfile"]).stat().st_mode) == 0o600
    section = settings(login)
    assert Path(login["passfile"]).read_text().strip().rpartition(":")[2] not in section
    monkeypatch.setenv("REPORTING_HOST", "127.0.0.1")
    monkeypatch.setenv("REPORTING_PORT", str(server.port))
    folder = tmp_path / "paid_orders"
    folder.mkdir()
    output = {"kind": "postgres", "table": "paid_orders"}
    rest = {"source": SCHEMA, "output": output, "schedule": {"start": "2026-01-01"}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(rest) + "kafka: {bootstrap.servers: 'k:9092'}\n" + section)
    (folder / "transform.sql").write_text("SELECT n FROM {source}")
    (folder / "expectations.yaml").write_text("expectations: []")
    with asking(load_pipeline(folder)) as tx:
        assert tx.run("SELECT current_user::text, current_database()::text") == [("paid_orders", "paid_orders")]
        assert tx.run("SELECT has_schema_privilege('public', 'CREATE')") == [(True,)]


def test_the_section_of_a_catalog_that_it_prints_opens_the_catalog(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = server.make_database("paid_lake")
    section = catalog_settings(login, tmp_path / "warehouse" / "paid_lake")
    assert Path(login["passfile"]).read_text().strip().rpartition(":")[2] not in section
    monkeypatch.setenv("REPORTING_PORT", str(server.port))
    folder = tmp_path / "paid_lake"
    folder.mkdir()
    output = {"kind": "iceberg", "table": "shop.paid_orders"}
    rest = {"source": SCHEMA, "output": output, "schedule": {"start": "2026-01-01"}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(rest) + "kafka: {bootstrap.servers: 'k:9092'}\n" + section)
    (folder / "transform.sql").write_text("SELECT n FROM {source}")
    (folder / "expectations.yaml").write_text("expectations: []")
    catalog = catalog_of(load_pipeline(folder))
    catalog.create_namespace("shop")
    assert query(login, "select namespace from iceberg_namespace_properties") == [("shop",)]


def test_made_again_it_keeps_tables_and_password_and_its_user_may_do_nothing_elsewhere(server: Postgres) -> None:
    login = server.make_database("returns")
    query(login, "create table kept as select 1 as n")
    assert server.make_database("returns") == login
    assert query(login, "select n from kept") == [(1,)]
    for other in ("airflow", "postgres", "reporting", "weather_lake"):
        with pytest.raises(psycopg2.OperationalError, match=r"no password supplied|permission denied"):
            query(login | {"dbname": other}, "select 1")
        password = Path(login["passfile"]).read_text().strip().rpartition(":")[2]
        with pytest.raises(psycopg2.OperationalError, match="permission denied"):
            query(login | {"dbname": other, "password": password}, "select 1")
    with pytest.raises(psycopg2.OperationalError, match="permission denied"):
        query(server.reader | {"dbname": "returns", "password": PASSWORD}, "select 1")
    Path(login["passfile"]).unlink()
    assert query(server.make_database("returns"), "select n from kept") == [(1,)], "with another password"


TAKEN = ("postgres", "airflow", "reporting", "nyc_delays", "weather_lake", "nyc_weather_lake", "reader")


@pytest.mark.parametrize("name", [*TAKEN, "pg_mine", "My", "a-b", "", "a" * 64])
def test_a_name_that_the_stack_uses_or_that_no_database_takes_unquoted_is_refused(name: str) -> None:
    with pytest.raises(LocalStackError, match=rf"^--database {name}: .*Give another name"):
        check_name(name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--database", "reader"), "Give another name"),
        (("--only", "kafka", "--database", "mine"), "starts no PostgreSQL"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_starts(
    options: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("fencepost_stack.commands.start_stack")
    refused = CliRunner().invoke(app, ["up", *options])
    assert (refused.exit_code, words in refused.stderr) == (LocalStackError.exit_code, True)
