"""Finds why a table has refused a publication, in words without any data of a row.

A name in the server's error is shown only if the catalogue has it, because a trigger may put any text there.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.outputs.postgres.table_checks import Reference, references
from fencepost.postgres.connection import Session, StatementFailed
from fencepost.postgres.sqlstates import description

RESTRICTED, DUPLICATE, CHECK_VIOLATION = "23001", "23505", "23514"


@dataclass(frozen=True)
class Refusal:
    """The reason for a refusal, with SQLSTATE, column and constraint. `of_rows` says that the table refuses the batch's
    rows themselves.
    """

    why: str
    of_rows: bool = True


@dataclass(frozen=True)
class _Names:
    """The names in an error that the catalogue has too, and facts about the table in the error."""

    oid: int
    column: str = ""
    constraint: str = ""
    table: str = ""
    key: str = ""  # the partition key of a partitioned table without a default partition
    bounds: str = ""  # the bounds of a partition


def refusal_of(
    tx: Session, oid: int, failed: StatementFailed, *, removing: bool, record: str = "", is_current: bool = False
) -> Refusal:
    """Returns why the table with this oid has refused rows of the batch. With `removing`, it has refused to remove the
    rows that the batch replaces, or of a current table (`is_current`) keys. `record` names the record of the refused row.

    A refused removal is not about the batch's rows (`of_rows`), because none of them are in the table yet. A missing
    partition is not about the rows either. An error of a deferred reference is about the rows, because the table would
    accept rows with the value that others refer to.
    """
    names = _names(tx, oid, failed)
    referring = next((one for one in references(tx, oid) if (names.oid, names.constraint) in one.parts), None)
    named = [f"SQLSTATE {failed.sqlstate}"]
    if names.column:
        named.append(f"column {names.column}")
    if names.constraint:
        named.append(f"constraint {referring.name if referring else names.constraint}")
    detail = f" ({', '.join(named)}){f', of {record}' if record else ''}"
    if is_current and (removing or failed.sqlstate == DUPLICATE):
        return Refusal(f"{_key(referring, removing=removing)}{detail}", of_rows=False)
    if removing:
        return Refusal(f"{_removal(referring)}{detail}{f': {referring.cure}' if referring else ''}", of_rows=False)
    is_of_bounds = failed.sqlstate == CHECK_VIOLATION and not failed.constraint
    if is_of_bounds and names.key:
        why = f"no partition of {names.table}, which is partitioned by {names.key}, takes a row of the batch{detail}"
        return Refusal(f"{why}: create the missing partition, or a DEFAULT one", of_rows=False)
    if is_of_bounds and names.bounds:
        return Refusal(f"a row outside of {names.table}, a partition with the bounds {names.bounds}{detail}")
    return Refusal(f"{_copy(failed, referring)}{detail}")


def _removal(referring: Reference | None) -> str:
    if referring is not None:
        return f"rows of table {referring.table} refer to rows that the batch replaces, so these cannot be removed"
    return "a trigger, a rule or a constraint of the table does not let the batch remove the rows that it replaces"


def _key(referring: Reference | None, *, removing: bool) -> str:
    if not removing:
        return "it has a row that the publications did not write: somebody else writes to it"
    if referring is not None:
        return (
            f"rows of table {referring.table} refer to a key that the batch deletes, so it stays until they are removed"
        )
    return "a trigger, a rule or a constraint does not let the batch delete a key"


def _copy(failed: StatementFailed, referring: Reference | None) -> str:
    if referring is None or referring.is_own or failed.sqlstate[:2] != "23":
        return description(failed.sqlstate)
    if failed.sqlstate == RESTRICTED:  # is never deferred to the end, when the batch's rows are there
        return f"a trigger removes or changes a row that rows of table {referring.table} refer to by a foreign key"
    absence = "the batch does not have" if referring.deferred else "the table would not have"
    return f"rows of table {referring.table} refer to a value that {absence}"


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
            return _Names(oid)
        of = found[0][0]
    ((column, constraint, table, key, bounds),) = tx.run(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attname::text = $2 "
        "AND attnum > 0), EXISTS (SELECT 1 FROM pg_catalog.pg_constraint WHERE conname::text = $3 AND conrelid IN "
        "(c.oid, 0)) OR EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = "
        "i.indexrelid WHERE i.indrelid = c.oid AND x.relname::text = $3), "
        "format('%I.%I', n.nspname, c.relname), "
        "coalesce((SELECT pg_get_partkeydef(c.oid) FROM pg_catalog.pg_partitioned_table WHERE partrelid = c.oid AND "
        "partdefid = 0), ''), coalesce(pg_get_expr(c.relpartbound, c.oid), '') "
        "FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE c.oid = $1::bigint::oid",
        of,
        failed.column,
        failed.constraint,
    )
    is_named = bool(failed.table)
    return _Names(
        of,
        failed.column if column else "",
        failed.constraint if constraint else "",
        f"table {table}",
        key if is_named else "",
        bounds if is_named else "",
    )
