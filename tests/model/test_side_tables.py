"""Side tables: whatever changes, whoever reads, dies or comes late, a batch is made with one content of each table.

Each mutation is searched beside the same bounds with all rules, which has to find nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fencepost.model import Batch, Interval, SideTableState
from fencepost.protocol.decisions import own_revision
from fencepost.protocol.revision import CurrentInputs, differing_tables, revision_reason
from fencepost.protocol.view import View
from makers import planned
from model.search import DEEP, Search, cases, without_way_out
from model.side_tables import Rules, of

ALONE = "one driver after another, and a table that changes twice"
PAIR = "two drivers read a table that changes"
TWO = "two drivers read two tables, one of which changes"
BOUNDS: dict[str, dict[str, Any]] = {
    ALONE: {"places": 1, "changes": 2},
    PAIR: {"changes": 1},
    TWO: {"changes": 1, "tables": 2},
    "each attempt compares the committed rows": {"changes": 1, "compares": True},
    "a replay, one driver after another": {"places": 1, "changes": 1, "operations": ("replay",)},
    "a replay": {"changes": 1, "operations": ("replay",)},
    "a reprocess": {"changes": 1, "operations": ("reprocess",)},
    "the table changes there and back": {"changes": 2},
}
COSTLY = {"a replay", "a reprocess", "the table changes there and back"}
DEEPER: dict[str, dict[str, Any]] = {
    "three drivers": {"changes": 1, "places": 3},
    "two tables change": {"changes": 2, "tables": 2},
    "a replay and a reprocess": {"changes": 1, "operations": ("replay", "reprocess"), "revisions": 4},
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_a_batch_is_made_with_one_content_of_each_table(bounds: str) -> None:
    found = _unbroken(bounds)
    assert found.fault is None, found
    assert found.complete


def the_last_counts(
    view: View, interval: Interval, revision: int, found: tuple[SideTableState, ...]
) -> tuple[Batch, ...]:
    """Mutation: an attempt records what it has read over what another one has recorded."""
    batch = own_revision(view, interval, revision)
    return () if batch.plan.tables == found else (planned(batch, tables=found),)


def first_table_alone(recorded: tuple[SideTableState, ...], read: tuple[SideTableState, ...]) -> tuple[str, ...]:
    """Mutation: of several tables one is compared."""
    return differing_tables(recorded[:1], read[:1])


def no_reason(batch: Batch, found: CurrentInputs) -> str | None:
    """Mutation: an attempt that has read other contents than the recorded ones asks for no revision."""
    return revision_reason(batch, replace(found, tables=()))


MUTATIONS: dict[str, tuple[str, Rules, str]] = {
    "the contents are recorded after the write": (PAIR, Rules(records_first=False), "mixed"),
    "the contents are recorded after the write, and compared": (PAIR, Rules(records_first=False), "recorded otherwise"),
    "the last to record counts": (PAIR, Rules(record=the_last_counts), "mixed"),
    "other contents are written all the same": (ALONE, Rules(differing=lambda *_: ()), "mixed"),
    "of two tables one is compared": (TWO, Rules(differing=first_table_alone), "mixed"),
    "other contents are no reason for a revision": (ALONE, Rules(reason=no_reason), "stuck"),
    "tables are not read if one mark is there": (ALONE, Rules(all_marks=False), "empty"),
    "tables are read though all marks are there": (ALONE, Rules(finishes_unread=False), "revised"),
    "a new revision keeps the recorded contents": (ALONE, Rules(read_anew=False), "endless"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_rule_taken_out_is_found(mutation: str) -> None:
    bounds, rules, kind = MUTATIONS[mutation]
    assert _unbroken(bounds).fault is None
    found = without_way_out(of({**BOUNDS[bounds], "checks_record": kind != "mixed"}, rules))
    assert found.fault is not None, found
    assert found.fault.kind == kind, found
    assert len(found.trace) > 5, "a rule is missed only when several steps meet"


def test_every_rule_is_taken_out() -> None:
    taken = {n for _, rules, _ in MUTATIONS.values() for n, rule in vars(rules).items() if rule != vars(Rules())[n]}
    assert taken == {*vars(Rules())}


@cache
def _unbroken(bounds: str) -> Search:
    found = without_way_out(of({**BOUNDS, **DEEPER}[bounds]))
    print(f"side tables, {bounds}: {found}")  # noqa: T201  # `make model` shows it
    return found
