"""What a table has refused of a publication, in words that hold nothing of a row.

The names in the server's error are shown where the catalogue has them: a trigger may put anything there.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.outputs.connection import Session, StatementFailed
from fencepost.outputs.sqlstates import NO_PARTITION, description
from fencepost.outputs.table_checks import Reference, references


@dataclass(frozen=True)
class Refusal:
    """Why, with SQLSTATE, column and constraint. `of_rows`: it is the batch's rows that the table does not take."""

    why: str
    of_rows: bool = True


@dataclass(frozen=True)
class _Names:
    """The names of an error that the catalogue has. `is_partitioned`: its table is, and so has no rows of its own."""

    column: str = ""
    constraint: str = ""
    is_partitioned: bool = False


def refusal_of(tx: Session, oid: int, failed: StatementFailed, *, removing: bool) -> Refusal:
    """What the table with this oid has refused: rows of the batch, or that rows which it replaces are removed (`removing`).

    That a row may not be removed is never about the batch's rows: it has none there yet. A reference that is checked at the end
    of the transaction is about them: with the value that others refer to, the table would take them.
    """
    names = _names(tx, oid, failed)
    referring = next((one for one in references(tx, oid) if names.constraint in one.names), None)
    named = [f"SQLSTATE {failed.sqlstate}"]
    if names.column:
        named.append(f"column {names.column}")
    if names.constraint:
        named.append(f"constraint {referring.name if referring else names.constraint}")
    what = _removal(referring) if removing else _copy(failed, names, referring)
    why = f"{what} ({', '.join(named)})"
    if removing:
        return Refusal(f"{why}{f': {referring.cure}' if referring else ''}", of_rows=False)
    return Refusal(why, of_rows=what != NO_PARTITION)


def _removal(referring: Reference | None) -> str:
    if referring is not None:
        return f"rows of table {referring.table} refer to rows that the batch replaces, so these cannot be removed"
    return "a trigger, a rule or a constraint of the table forbids that the rows which the batch replaces are removed"


def _copy(failed: StatementFailed, names: _Names, referring: Reference | None) -> str:
    if failed.sqlstate == "23514" and names.is_partitioned and not failed.constraint:
        return NO_PARTITION
    if referring is not None and failed.sqlstate[:2] == "23":
        return f"rows of table {referring.table} refer to a value that the batch does not have"
    return description(failed.sqlstate)


def _names(tx: Session, oid: int, failed: StatementFailed) -> _Names:
    of = oid
    if failed.table:
        found = tx.run(
            "SELECT c.oid::bigint FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE n.nspname::text = $1 AND c.relname::text = $2",
            failed.schema,
            failed.table,
        )
        if not found:
            return _Names()
        of = found[0][0]
    ((column, constraint, is_partitioned),) = tx.run(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = $1::bigint::oid AND attname::text = $2 "
        "AND attnum > 0), EXISTS (SELECT 1 FROM pg_catalog.pg_constraint WHERE conname::text = $3 AND conrelid IN "
        "($1::bigint::oid, 0)) OR EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = "
        "i.indexrelid WHERE i.indrelid = $1::bigint::oid AND c.relname::text = $3), "
        "(SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = $1::bigint::oid) AND $4 <> ''",
        of,
        failed.column,
        failed.constraint,
        failed.table,
    )
    return _Names(failed.column if column else "", failed.constraint if constraint else "", bool(is_partitioned))
