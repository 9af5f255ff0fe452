"""The rights in PostgreSQL that a pipeline's table needs. `fencepost acls` and the doctor use this one list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fencepost.outputs.postgres.identifiers import BOOKKEEPING_TABLES, quoted

OUTPUT = ("SELECT", "INSERT", "DELETE")
BOOKKEEPING = ("SELECT", "INSERT", "UPDATE")


def needed_rights(table: str) -> Iterator[tuple[str, str, str]]:
    """Yields each right with the kind and the name of its object. Names of tables are quoted, and the schema's name is
    not.
    """
    schema, name = table.split(".", 1)
    yield "USAGE", "SCHEMA", schema
    for right in OUTPUT:
        yield right, "TABLE", quoted(schema, name)
    for own in BOOKKEEPING_TABLES:
        for right in BOOKKEEPING:
            yield right, "TABLE", quoted(schema, own)


def grants(table: str, role: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the statements that grant a role and a reader the rights that they need. Each group of statements has its
    purpose.
    """
    schema = table.split(".", 1)[0]
    to = quoted(role)

    def on(rights: Iterator[tuple[str, str, str]]) -> Iterator[str]:
        for (what, named), rows in groupby(rights, key=lambda right: right[1:]):
            place = quoted(named) if what == "SCHEMA" else named
            yield f"GRANT {', '.join(row[0] for row in rows)} ON {what} {place} TO {to};"

    yield "needed, in the database of the table", list(on(needed_rights(table)))
    yield (
        "needed only while tables are missing; not needed if you create them yourself",
        [f"GRANT CREATE ON SCHEMA {quoted(schema)} TO {to};"],
    )
    yield grants_of_reader(table)


def grants_of_reader(table: str) -> tuple[str, list[str]]:
    """Returns the statements that grant a reader the rights that it needs, with their purpose."""
    schema, name = table.split(".", 1)
    return (
        "for a reader of the table, in the place of READER",
        [
            f"GRANT USAGE ON SCHEMA {quoted(schema)} TO READER;",
            f"GRANT SELECT ON TABLE {quoted(schema, name)}, {quoted(schema, BOOKKEEPING_TABLES[1])} TO READER;",
        ],
    )
