"""A SQL catalog on a real PostgreSQL: what its login may do, and what a missing right says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from fencepost.config.reader import Reader
from fencepost.errors import AccessDenied, LoginRefused
from fencepost.outputs.iceberg.catalog import catalog_of, load, translated
from fencepost.outputs.iceberg.rights import grants
from rigs.postgres_server import PASSWORD, PostgresServer
from waiting import await_true

TABLE = "weather.observations"
SCHEMA = Schema(NestedField(1, "n", IntegerType(), required=False))


@pytest.fixture
def owner(postgres: PostgresServer, tmp_path: Path) -> dict[str, str]:
    """The settings of the owner of a new database."""
    database = postgres.database()
    postgres.run("revoke create on schema public from public", dbname=database["dbname"])
    return {
        "type": "sql",
        "uri": "postgresql://{host}:{port}/{dbname}".format(**database),
        "user": database["user"],
        "password": database["password"],
        "warehouse": tmp_path.as_uri(),
    }


@pytest.fixture
def other(postgres: PostgresServer, owner: dict[str, str]) -> dict[str, str]:
    """The settings of a user who has no right there."""
    return owner | {"user": postgres.database()["user"]}


def config(settings: dict[str, str]) -> Reader:
    return Reader.model_validate({"name": "weather", "iceberg": settings})


def run(postgres: PostgresServer, settings: dict[str, str], statements: list[str]) -> None:
    for statement in statements:
        postgres.run(statement, dbname=settings["uri"].rpartition("/")[2])


def create(settings: dict[str, str], name: str = TABLE) -> Any:
    found = config(settings)
    catalog = catalog_of(found)
    with translated(found):
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        return catalog.create_table(name, SCHEMA)


def test_the_catalogs_tables_are_created_by_who_may_and_used_by_who_has_the_printed_rights(
    postgres: PostgresServer, owner: dict[str, str], other: dict[str, str]
) -> None:
    with pytest.raises(AccessDenied, match="lacks a right"):
        catalog_of(config(other))
    create(owner)
    catalog = catalog_of(config(other))
    with pytest.raises(AccessDenied, match=r"`fencepost acls` prints what it needs"):
        load(config(other), catalog, TABLE)
    (_, needed), *_ = grants(TABLE, other, reader=False)
    run(postgres, owner, needed)
    table = create(other, "weather.more")
    with table.transaction() as transaction:
        transaction.set_properties({"a": "b"})
    found = load(config(other), catalog_of(config(other)), "weather.more")
    assert found is not None
    assert found.properties["a"] == "b"


def test_a_reader_needs_the_printed_rights_only(
    postgres: PostgresServer, owner: dict[str, str], other: dict[str, str]
) -> None:
    create(owner)
    (_, needed), *_ = grants(TABLE, other, reader=True)
    run(postgres, owner, [one.replace("READER", other["user"]) for one in needed])
    assert load(config(other), catalog_of(config(other)), TABLE) is not None
    with pytest.raises(AccessDenied):
        create(other, "weather.more")


def test_a_wrong_password_is_a_refused_login(owner: dict[str, str]) -> None:
    with pytest.raises(LoginRefused) as raised:
        catalog_of(config(owner | {"password": "hunter2"}))
    assert "hunter2" not in str(raised.value)
    assert PASSWORD not in str(raised.value)


def test_nothing_stays_open_in_the_database(postgres: PostgresServer, owner: dict[str, str]) -> None:
    create(owner)
    catalog = catalog_of(config(owner))
    assert catalog.table_exists(TABLE)
    asked = "select count(*) from pg_stat_activity where usename = %s"
    await_true(lambda: postgres.run(asked, values=(owner["user"],)) == [(0,)], "the end of each session", 30)
