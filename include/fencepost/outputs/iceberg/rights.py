"""The rights that an Iceberg table needs, in its catalog and in its warehouse, for `fencepost acls`.

Each catalog has its own way to grant rights, so those of a REST catalog are in words. A SQL catalog is two tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.config.services.iceberg import SQL

CATALOG_TABLES = ("iceberg_tables", "iceberg_namespace_properties")  # pyiceberg's, in the schema of the login
READER = "READER"

Group = tuple[str, list[str]]


def grants(table: str, settings: Mapping[str, str], *, reader: bool) -> list[Group]:
    """Returns the rights by their use, for the pipeline's login or for a reader's. `settings` are those of the catalog."""
    catalog = _of_sql(settings, reader=reader) if settings["type"] == SQL else _of_rest(table, reader=reader)
    return [*catalog, _of_files(table, settings, reader=reader)]


def _of_sql(settings: Mapping[str, str], *, reader: bool) -> list[Group]:
    tables = ", ".join(CATALOG_TABLES)
    if reader:
        return [("for a reader, in the catalog's database", [f"GRANT SELECT ON {tables} TO {READER};"])]
    user = '"' + settings["user"].replace('"', '""') + '"'
    return [
        ("needed, in the catalog's database", [f"GRANT SELECT, INSERT, UPDATE ON {tables} TO {user};"]),
        (
            "needed only while the catalog's tables are missing; not needed if somebody else creates them",
            [f"GRANT CREATE ON SCHEMA public TO {user};"],
        ),
    ]


def _of_rest(table: str, *, reader: bool) -> list[Group]:
    namespace = table.rpartition(".")[0]
    if reader:
        return [("for a reader, in the catalog", [f"load table {table}"])]
    return [
        (
            "needed, in the catalog",
            [f"load table {table}", f"commit to table {table}: snapshots, tags, properties, columns"],
        ),
        (
            "needed only while they are missing; not needed if somebody else creates them",
            [f"create namespace {namespace}", f"create a table in namespace {namespace}"],
        ),
    ]


def _of_files(table: str, settings: Mapping[str, str], *, reader: bool) -> Group:
    """Returns the rights to the table's files. A catalog that vends credentials has these rights itself."""
    place = f"the files of table {table} in {settings.get('warehouse') or 'the warehouse'}"
    who = "for a reader, " if reader else "needed, "
    rights = ["read"] if reader else ["read", "write", "delete"]
    named = f"{who}in the store of the files, unless the catalog vends credentials"
    return named, [f"{right} {place}" for right in rights]
