"""A publication to a table: whatever crashes, stalls and comes late, the table has what the ledger says, or that is noticed.

Each mutation is searched within bounds in which all rules together find nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from fencepost.model import Batch
from fencepost.outputs.postgres.values import PostgresPublication
from fencepost.outputs.table.revisions import (
    Committed,
    IntervalRow,
    TableStanding,
    differing,
    missing_for,
    revisions_after,
    rows_of,
    standing_of,
)
from fencepost.protocol.view import View
from model.search import DEEP, cases, explore, without_way_out
from model.store import Rules, of

BOUNDS: dict[str, dict[str, Any]] = {
    "two revisions, two attempts": {},
    "a revision without rows": {"rows": (1, 0)},
    "additions": {"rows": (1, 1, 1), "additions": True},
    "data are refused": {"events": frozenset({"refuses"})},
    "the table is created again": {"events": frozenset({"created again"})},
    "the store is restored": {"rows": (1, 1), "events": frozenset({"store copy"}), "additions": True},
    "the ledger is restored from a copy": {"events": frozenset({"ledger copy", "reads before"})},
    "the table keeps what is deleted": {"events": frozenset({"keeps"})},
    "a twin on another cluster": {"rows": (1,), "events": frozenset({"twin", "moved"})},
    "the key is lost": {"events": frozenset({"loses its key"})},
    "the table is restored alone": {"rows": (1, 1), "events": frozenset({"table copy"}), "additions": True},
}
COSTLY = {"additions", "the store is restored"}
DEEPER: dict[str, dict[str, Any]] = {
    "three revisions, three attempts": {"rows": (1, 0, 1), "places": 3},
    "three revisions, the store is restored": {
        "rows": (1, 1, 1),
        "events": frozenset({"store copy"}),
        "additions": True,
    },
    "three revisions, the ledger is restored": {
        "rows": (1, 1, 1),
        "events": frozenset({"ledger copy"}),
        "additions": True,
    },
    "the ledger and the store are restored": {"rows": (1, 1), "events": frozenset({"ledger copy", "store copy"})},
    "data are refused, the table keeps what is deleted, is restored alone and created again": {
        "events": frozenset({"refuses", "keeps", "table copy", "created again"}),
        "additions": True,
    },
    "a twin on another cluster, the ledger is restored": {"events": frozenset({"twin", "moved", "ledger copy"})},
    "data are refused, the table is created again, the store is restored": {
        "events": frozenset({"refuses", "created again", "store copy"}),
        "additions": True,
    },
    "data are refused, the table is created again, the ledger is restored": {
        "events": frozenset({"refuses", "created again", "ledger copy"}),
        "additions": True,
    },
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_the_table_has_what_the_ledger_says_or_that_is_noticed(bounds: str) -> None:
    found = without_way_out(of({**BOUNDS, **DEEPER}[bounds]))
    print(f"\n{bounds}: {found}")  # noqa: T201
    assert found.complete
    assert found.fault is None, str(found)


def any_lease(held: IntervalRow, publication: PostgresPublication) -> TableStanding:
    found = standing_of(held, publication)
    return TableStanding.OPEN if found is TableStanding.OVERTAKEN else found


def never_closed(held: IntervalRow, publication: PostgresPublication) -> TableStanding:
    found = standing_of(held, publication)
    return TableStanding.OPEN if found is TableStanding.CLOSED else found


def never_done(held: IntervalRow, publication: PostgresPublication) -> TableStanding:
    found = standing_of(held, publication)
    return TableStanding.OPEN if found is TableStanding.DONE else found


def forgets_what_it_adds_to(held: IntervalRow, batch: Batch) -> dict[int, Committed]:
    return {batch.revision: revisions_after(held, batch)[batch.revision]}


def by_the_row_alone(view: View, batch: Batch, held: IntervalRow, counted: Mapping[int, int]) -> tuple[int, ...]:
    return missing_for(view, batch, held, rows_of(held.revisions))


def by_number_alone(
    view: View, table: str, held: Mapping[datetime, IntervalRow], filled: Collection[datetime]
) -> tuple[Batch, ...]:
    """As if each revision in the table were of the publication that the ledger has of it."""
    known = {
        batch.revision: (batch.publication.ledger, batch.publication.require_lease)
        for batch in view.all()
        if batch.publication is not None
    }
    same = {
        start: replace(
            row,
            revisions={
                n: Committed(one.rows, *known.get(n, (one.ledger, one.lease))) for n, one in row.revisions.items()
            },
        )
        for start, row in held.items()
    }
    return differing(view, table, same, filled)


MUTATIONS: dict[str, tuple[Rules, str]] = {
    "giving up writes nothing": (Rules(closes=False), "two revisions, two attempts"),
    "a closed publication may commit": (Rules(standing=never_closed), "two revisions, two attempts"),
    "an older lease may commit": (Rules(standing=any_lease), "the ledger is restored from a copy"),
    "a committed publication is given up": (Rules(standing=never_done), "two revisions, two attempts"),
    "who asks does not wait for the lock": (Rules(under_lock=False, closes=False), "two revisions, two attempts"),
    "the ledger is not read under the lock": (Rules(reads_ledger=False), "the store is restored"),
    "an addition removes its batch": (Rules(removes_own=False, counts_all=False), "additions"),
    "a revision removes its own rows only": (Rules(removes_all=False, counts_all=False), "two revisions, two attempts"),
    "a revision without rows leaves the table alone": (Rules(without_rows=False), "a revision without rows"),
    "a refusal counts though another attempt has committed": (Rules(closes_open=False), "data are refused"),
    "an addition needs nothing": (Rules(missing=lambda *_: ()), "the store is restored"),
    "an addition forgets its batch": (Rules(after=forgets_what_it_adds_to, counts_all=False), "additions"),
    "only the own revision is counted": (Rules(counts_all=False), "the table keeps what is deleted"),
    "a table of locks without its key is used": (Rules(needs_key=False), "the key is lost"),
    "a twin on another cluster takes the table over": (Rules(one_cluster=False), "a twin on another cluster"),
    "revisions are compared by number alone": (Rules(differs=by_number_alone), "a twin on another cluster"),
    "an addition asks the row and not the table": (
        Rules(missing=by_the_row_alone, counts_all=False),
        "the table is restored alone",
    ),
    "the rows of the table are not counted": (Rules(recounts=False), "the table is restored alone"),
    "any ledger takes over": (
        Rules(takes_over=lambda standing, *_: standing in {TableStanding.OPEN, TableStanding.FOREIGN}),
        "the ledger is restored from a copy",
    ),
    "where the two differ is not looked for": (Rules(differs=lambda *_: ()), "the table is created again"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_rule_taken_out_is_found(mutation: str) -> None:
    assert revisions_after is Rules().after
    rules, bounds = MUTATIONS[mutation]
    found = explore(of(BOUNDS[bounds], rules))
    if found.fault is None:
        found = without_way_out(of(BOUNDS[bounds], rules))
    assert found.fault is not None, f"{mutation}: nothing was found in {found}"
