"""A current table: whatever is published at once, crashes, stops and comes late, it has the newest row of each key, or is stale.

Each mutation is searched within bounds in which all rules together find nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from model.current import Planned, Rules, of
from model.search import DEEP, explore, without_way_out

# Batches of (key, order, gone). Intervals are numbered from 0; a batch's number is its revision and its lease.
APART = (Planned(0, ((0, 2, False),)), Planned(1, ((0, 1, False),)), Planned(1, ((0, 3, True),)))
REMOVES = (Planned(0, ((0, 1, False),)), Planned(1, ((0, 2, False), (1, 2, False))), Planned(1, ()))
REPLAY = (Planned(0, ((0, 5, False),)), Planned(0, ((0, 3, False),), adds=True), Planned(1, ((0, 4, True),)))
TWO_KEYS = (Planned(0, ((0, 1, False), (1, 1, False))), Planned(1, ((0, 2, True),)), Planned(0, ((1, 3, False),)))
BOUNDS: dict[str, dict[str, Any]] = {
    "two intervals at once, keys out of order": {"batches": APART, "places": 3},
    "a reprocess removes a key": {"batches": REMOVES},
    "a replay of an older row": {"batches": REPLAY},
    "a holder is stopped": {"batches": APART, "events": frozenset({"stops"})},
    "a publication is given up": {"batches": APART, "events": frozenset({"gives up", "stops"})},
    "the history is emptied": {"batches": TWO_KEYS, "events": frozenset({"emptied"})},
    "the history lacks rows of an interval": {"batches": TWO_KEYS, "events": frozenset({"partly emptied"})},
    "settings change": {"batches": APART, "events": frozenset({"settings"})},
    "the current table is swapped": {"batches": REMOVES, "events": frozenset({"swapped"})},
    "a batch is published without the setting": {"batches": REMOVES, "events": frozenset({"without"})},
}
DEEPER: dict[str, dict[str, Any]] = {
    "three attempts, settings change and a holder is stopped": {
        "batches": APART,
        "places": 3,
        "events": frozenset({"settings", "stops"}),
    },
    "everything happens to two keys": {
        "batches": TWO_KEYS,
        "events": frozenset({"emptied", "swapped", "without", "settings", "gives up", "stops"}),
    },
}


@pytest.mark.parametrize("bounds", [*BOUNDS, *(DEEPER if DEEP else ())])
def test_the_current_table_has_the_newest_rows_or_is_stale(bounds: str) -> None:
    found = without_way_out(of({**BOUNDS, **DEEPER}[bounds]))
    print(f"\n{bounds}: {found}")  # noqa: T201
    assert found.complete
    assert found.fault is None, str(found)


MUTATIONS: dict[str, tuple[Rules, str]] = {
    "two compute at once": (Rules(locks=False), "a reprocess removes a key"),
    "the lock and the computation are one statement": (Rules(own_statement=False), "a reprocess removes a key"),
    "the lock is taken in a weaker form first": (Rules(weaker_first=True), "a reprocess removes a key"),
    "only a holder of the same interval is ended": (Rules(ends_any=False), "a holder is stopped"),
    "keys of removed rows are not computed": (Rules(removed_keys=False), "a reprocess removes a key"),
    "keys of new rows are not computed": (Rules(brought_keys=False), "a reprocess removes a key"),
    "the newest row is by revision": (Rules(by_order=False), "a replay of an older row"),
    "a stale table is written to": (Rules(heeds_stale=False), "a batch is published without the setting"),
    "another table or other settings do not matter": (Rules(heeds_basis=False), "the current table is swapped"),
    "intervals without rows do not matter": (Rules(looks_for_others=False), "the history is emptied"),
    "rows that the interval lacks do not matter": (Rules(looks_for_own=False), "the history lacks rows of an interval"),
    "a publication without the setting marks nothing": (
        Rules(marks_without=False),
        "a batch is published without the setting",
    ),
    "a rebuild takes no lock": (Rules(rebuild_locks=False), "settings change"),
    "a rebuild takes what is there for all": (Rules(rebuild_refuses=False), "the history is emptied"),
    "an attempt does not compare the interval's row": (Rules(heeds_row=False), "a publication is given up"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_rule_taken_out_is_found(mutation: str) -> None:
    rules, bounds = MUTATIONS[mutation]
    found = explore(of(BOUNDS[bounds], rules))
    if found.fault is None:
        found = without_way_out(of(BOUNDS[bounds], rules))
    assert found.fault is not None, f"{mutation}: nothing was found in {found}"


def test_every_rule_is_taken_out_once() -> None:
    taken = [
        name
        for rules, _ in MUTATIONS.values()
        for name in vars(Rules())
        if getattr(rules, name) != getattr(Rules(), name)
    ]
    assert sorted(taken) == sorted(vars(Rules()))
