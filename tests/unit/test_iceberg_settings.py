"""The section `output` of a pipeline with an Iceberg table: its name, the rights that it needs, and its name in lineage."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fencepost.config.reader import Reader
from fencepost.config.sections import Lineage
from fencepost.outputs.iceberg.settings import IcebergSettings

OUTPUT = IcebergSettings(kind="iceberg", table="weather.observations")
REST = {"type": "rest", "uri": "https://catalog/", "credential": "hunter2"}
SQL = {
    "type": "sql",
    "uri": "postgresql://db:5432/lake",
    "user": 'e"tl',
    "password": "hunter2",
    "warehouse": "s3://bucket/w",
}


def config(iceberg: dict[str, str]) -> Reader:
    return Reader.model_validate({"name": "weather", "iceberg": iceberg})


@pytest.mark.parametrize("table", ["observations", ".observations", "weather.", "a/b.c", "a..b", "a.b\n", ""])
def test_a_table_without_a_namespace_or_with_a_name_that_is_none_is_refused(table: str) -> None:
    with pytest.raises(ValidationError, match="not a table with its namespace"):
        IcebergSettings(kind="iceberg", table=table)


def test_a_namespace_may_have_several_parts() -> None:
    assert IcebergSettings(kind="iceberg", table="a.b.c").name == "a.b.c"


def test_a_sql_catalog_grants_rights_on_its_two_tables() -> None:
    assert OUTPUT.grants(config(SQL), reader=False) == [
        (
            "needed, in the catalog's database",
            ['GRANT SELECT, INSERT, UPDATE ON iceberg_tables, iceberg_namespace_properties TO "e""tl";'],
        ),
        (
            "needed only while the catalog's tables are missing; not needed if somebody else creates them",
            ['GRANT CREATE ON SCHEMA public TO "e""tl";'],
        ),
        (
            "needed, in the store of the files, unless the catalog vends credentials",
            [
                f"{right} the files of table weather.observations in s3://bucket/w"
                for right in ("read", "write", "delete")
            ],
        ),
    ]
    assert OUTPUT.grants(config(SQL), reader=True) == [
        (
            "for a reader, in the catalog's database",
            ["GRANT SELECT ON iceberg_tables, iceberg_namespace_properties TO READER;"],
        ),
        (
            "for a reader, in the store of the files, unless the catalog vends credentials",
            ["read the files of table weather.observations in s3://bucket/w"],
        ),
    ]


@pytest.mark.parametrize("reader", [False, True])
def test_the_rights_in_a_rest_catalog_are_in_words_and_show_no_secret(reader: bool) -> None:
    found: Any = OUTPUT.grants(config(REST), reader=reader)
    words = [statement for _, statements in found for statement in statements]
    assert "load table weather.observations" in words
    assert ("create namespace weather" in words) is not reader
    assert any(one.startswith("commit to table") for one in words) is not reader
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("uri", "lineage", "namespace"),
    [
        ("postgresql://db:5433/lake", Lineage(), "postgres://db:5433"),
        ("postgresql://db/lake", Lineage(), "postgres://db:5432"),
        ("postgresql://db/lake", Lineage(postgres="db.example.com:1"), "postgres://db.example.com:1"),
    ],
)
def test_lineage_names_a_sql_catalog_as_a_database(uri: str, lineage: Lineage, namespace: str) -> None:
    assert OUTPUT.lineage_name(config(SQL | {"uri": uri}), lineage) == (namespace, "lake.weather.observations")


def test_lineage_names_a_rest_catalog_by_its_address() -> None:
    assert OUTPUT.lineage_name(config(REST), Lineage()) == ("https://catalog", "weather.observations")
