"""The store's rows about current tables, in `fencepost_tables`. A current table's row has what it was computed from."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fencepost.errors import TableRefused
from fencepost.outputs.postgres.bookkeeping import Bookkeeping, RegisteredTable, current_of
from fencepost.outputs.postgres.identifiers import BOOKKEEPING_TABLES, quoted
from fencepost.outputs.table.current import RegisteredCurrent
from fencepost.outputs.table.pipeline_table import Owner, check_owner


@dataclass(frozen=True)
class CurrentRow:
    """The row of a current table."""

    name: str
    owner: Owner
    registered: RegisteredCurrent


def lock_rows(history: Bookkeeping, configured: str | None, application_name: str) -> list[CurrentRow]:
    """Locks the rows of the current tables of an output table, and of the table that `output.current` names. Returns the
    rows as they are then, in order of their names.

    The same statement gives the session this `application_name`, so a session that holds the lock always has it.
    """
    found = history.session.run(
        "SELECT name, pipeline, cluster, oid, current, set_config('application_name', $3, true) FROM (SELECT name, pipeline, "
        f"cluster, oid, current::text AS current FROM {_tables(history)} WHERE current->>'history' = $1 OR (name = $2 AND "
        "current IS NOT NULL) ORDER BY name FOR UPDATE) AS locked",
        history.table,
        configured or "",
        application_name,
    )
    return [
        CurrentRow(name, Owner(pipeline, cluster), current_of(oid, current))
        for name, pipeline, cluster, oid, current, _ in found
    ]


def rows_of(history: Bookkeeping) -> list[CurrentRow]:
    """Returns the committed rows of the current tables of an output table."""
    found = history.session.run(
        f"SELECT name, pipeline, cluster, oid, current::text FROM {_tables(history)} WHERE current->>'history' = $1 "
        "ORDER BY name",
        history.table,
    )
    return [CurrentRow(name, Owner(*owner), current_of(oid, current)) for name, *owner, oid, current in found]


def reserve(current: Bookkeeping, owner: Owner, history: str, *, moved: bool = False) -> None:
    """Registers a current table of the output table `history`, even before it exists, unless it is registered.

    `moved` says that the pipeline may take the table over from its other cluster.

    Raises:
        TableRefused: the table belongs to another pipeline, or is an output table.
        AnotherCluster: it belongs to the pipeline on another cluster.
    """
    known = current.registered()
    if known is None:
        current.session.run(
            f"INSERT INTO {_tables(current)} (name, pipeline, cluster, current) VALUES ($1, $2, $3, $4::jsonb) "
            "ON CONFLICT (name) DO NOTHING",
            current.table,
            *owner,
            json.dumps({"history": history}),
        )
        known = current.registered()
        assert known is not None, "its row is there"
    if moved and known.owner.pipeline == owner.pipeline and known.owner != owner:
        current.session.run(f"UPDATE {_tables(current)} SET cluster = $1 WHERE name = $2", owner.cluster, current.table)
        known = RegisteredTable(known.oid, owner, known.current)
    check_reserved(current.table, owner, known)


def check_reserved(table: str, owner: Owner, known: RegisteredTable | None) -> None:
    """Checks that a current table belongs to this owner. `known` is its row, or None if it has none. Raises the errors of
    `reserve`.
    """
    check_owner(table, owner, known.owner if known is not None else None, "output.current")
    if known is not None and known.current is None:
        raise TableRefused(f"table {table} is an output table of this pipeline. Name another output.current.table.")


def record(current: Bookkeeping, registered: RegisteredCurrent) -> None:
    """Records what a current table was computed from, and whether it is stale. Its row has to be locked."""
    basis = registered.basis
    said = {"history": basis.history, "history_oid": basis.history_oid, "digest": basis.digest}
    said |= {"stale": registered.stale} if registered.stale else {}
    current.session.run(
        f"UPDATE {_tables(current)} SET oid = $1::bigint, current = $2::jsonb WHERE name = $3",
        basis.oid,
        json.dumps(said),
        current.table,
    )


def _tables(of: Bookkeeping) -> str:
    return quoted(of.schema, BOOKKEEPING_TABLES[0])
