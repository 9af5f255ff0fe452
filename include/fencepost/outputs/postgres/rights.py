"""The rights in PostgreSQL that a pipeline's table needs. `fencepost acls` and the doctor use this one list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fencepost.outputs.postgres.identifiers import BOOKKEEPING_TABLES, quoted

OUTPUT = ("SELECT", "INSERT", "DELETE")
CURRENT = ("SELECT", "INSERT", "UPDATE", "DELETE")
BOOKKEEPING = ("SELECT", "INSERT", "UPDATE")


def needed_rights(table: str, current: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Yields each right with the kind and the name of its object. Names of tables are quoted, and the schema's name is
    not. The database of the table has no name. `current` is its current table, which needs temporary tables.
    """
    schema, name = table.split(".", 1)
    yield "USAGE", "SCHEMA", schema
    for right in OUTPUT:
        yield right, "TABLE", quoted(schema, name)
    if current is not None:
        for right in CURRENT:
            yield right, "TABLE", quoted(*current.split(".", 1))
        yield "TEMPORARY", "DATABASE", ""
    for own in BOOKKEEPING_TABLES:
        for right in BOOKKEEPING:
            yield right, "TABLE", quoted(schema, own)


def grant_of_temporary(database: str, role: str) -> str:
    """Returns the statement that lets a role create temporary tables, which a publication converts values in."""
    return f"GRANT TEMPORARY ON DATABASE {quoted(database)} TO {quoted(role)}"


def grants(table: str, role: str, database: str, current: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yields the statements that grant a role and a reader the rights that they need, in this database. Each group of
    statements has its purpose.
    """
    schema = table.split(".", 1)[0]
    to = quoted(role)

    def on(rights: Iterator[tuple[str, str, str]]) -> Iterator[str]:
        for (what, named), rows in groupby(rights, key=lambda right: right[1:]):
            place = {"SCHEMA": quoted(named), "DATABASE": quoted(database)}.get(what, named)
            yield f"GRANT {', '.join(row[0] for row in rows)} ON {what} {place} TO {to};"

    yield "needed, in the database of the table", list(on(needed_rights(table, current)))
    yield (
        "needed only while tables are missing; not needed if you create them yourself",
        [f"GRANT CREATE ON SCHEMA {quoted(schema)} TO {to};"],
    )
    if current is None:  # a current table needs it in any case
        yield (
            "needed only if a column's type is converted, such as uuid or varchar(n); by default every user has this right",
            [f"{grant_of_temporary(database, role)};"],
        )
    yield grants_of_reader(table, current)


def grants_of_reader(table: str, current: str | None = None) -> tuple[str, list[str]]:
    """Returns the statements that grant a reader the rights that it needs, with their purpose."""
    schema = table.split(".", 1)[0]
    tables = [quoted(*one.split(".", 1)) for one in (table, current) if one is not None]
    tables.append(quoted(schema, BOOKKEEPING_TABLES[1]))
    return (
        "for a reader of the table, in the place of READER",
        [
            f"GRANT USAGE ON SCHEMA {quoted(schema)} TO READER;",
            f"GRANT SELECT ON TABLE {', '.join(tables)} TO READER;",
        ],
    )
