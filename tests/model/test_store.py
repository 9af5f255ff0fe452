"""A publication to a table: whatever crashes, stalls and comes late, the table has what the ledger says, or that is noticed.

Each mutation is searched within bounds in which all rules together find nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.model import Batch, TablePublication
from fencepost.protocol.store import Held, Standing, revisions_after, standing_of
from model.search import DEEP, cases, explore, without_way_out
from model.store import Rules, of

BOUNDS: dict[str, dict[str, Any]] = {
    "two revisions, two attempts": {},
    "a revision without rows": {"rows": (1, 0)},
    "additions": {"rows": (1, 1, 1), "additions": True},
    "data are refused": {"events": frozenset({"refuses"})},
    "the table is made anew": {"events": frozenset({"made anew"})},
    "the store is restored": {"rows": (1, 1), "events": frozenset({"store copy"}), "additions": True},
    "the ledger is restored from a copy": {"events": frozenset({"ledger copy", "reads before"})},
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
    "data are refused, the table is made anew, the store is restored": {
        "events": frozenset({"refuses", "made anew", "store copy"}),
        "additions": True,
    },
    "data are refused, the table is made anew, the ledger is restored": {
        "events": frozenset({"refuses", "made anew", "ledger copy"}),
        "additions": True,
    },
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_the_table_has_what_the_ledger_says_or_that_is_noticed(bounds: str) -> None:
    found = without_way_out(of({**BOUNDS, **DEEPER}[bounds]))
    print(f"\n{bounds}: {found}")  # noqa: T201
    assert found.complete
    assert found.fault is None, str(found)


def any_lease(held: Held, publication: TablePublication) -> Standing:
    found = standing_of(held, publication)
    return Standing.OPEN if found is Standing.OVERTAKEN else found


def never_closed(held: Held, publication: TablePublication) -> Standing:
    found = standing_of(held, publication)
    return Standing.OPEN if found is Standing.CLOSED else found


def never_done(held: Held, publication: TablePublication) -> Standing:
    found = standing_of(held, publication)
    return Standing.OPEN if found is Standing.DONE else found


def forgets_what_it_adds_to(held: Held, batch: Batch, identity: str) -> tuple[int, ...]:
    return (batch.revision,)


MUTATIONS: dict[str, tuple[Rules, str]] = {
    "giving up writes nothing": (Rules(closes=False), "two revisions, two attempts"),
    "a closed publication may commit": (Rules(standing=never_closed), "two revisions, two attempts"),
    "an older lease may commit": (Rules(standing=any_lease), "the ledger is restored from a copy"),
    "a committed publication is given up": (Rules(standing=never_done), "two revisions, two attempts"),
    "who asks does not wait for the lock": (Rules(under_lock=False, closes=False), "two revisions, two attempts"),
    "a publication goes to whatever table has the name": (Rules(same_table=False), "the table is made anew"),
    "the ledger is not read under the lock": (Rules(reads_ledger=False), "the store is restored"),
    "an addition removes its batch": (Rules(removes_own=False), "additions"),
    "a revision removes its own rows only": (Rules(removes_all=False), "two revisions, two attempts"),
    "a revision without rows leaves the table alone": (Rules(without_rows=False), "a revision without rows"),
    "a refusal counts though another attempt has committed": (Rules(closes_open=False), "data are refused"),
    "an addition needs nothing": (Rules(missing=lambda *_: ()), "the store is restored"),
    "an addition forgets its batch": (Rules(after=forgets_what_it_adds_to), "additions"),
    "any ledger takes over": (
        Rules(takes_over=lambda standing, *_: standing in {Standing.OPEN, Standing.FOREIGN}),
        "the ledger is restored from a copy",
    ),
    "where the two differ is not looked for": (Rules(differs=lambda *_: ()), "the table is made anew"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_rule_taken_out_is_found(mutation: str) -> None:
    assert revisions_after is Rules().after
    rules, bounds = MUTATIONS[mutation]
    found = explore(of(BOUNDS[bounds], rules))
    if found.fault is None:
        found = without_way_out(of(BOUNDS[bounds], rules))
    assert found.fault is not None, f"{mutation}: nothing was found in {found}"
