"""A look back: whatever became of earlier intervals, a batch gets again what they consumed, and each pair is in one result.

Each mutation is searched beside the same bounds with all rules, which has to find nothing.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from fencepost.model import Interval, OffsetRange, State
from fencepost.protocol.look_back import ranges_before
from fencepost.protocol.planning import look_back as look_back_of_a_batch
from fencepost.protocol.view import Revisions, View
from makers import DAY
from model.look_back import LookBack, Rules
from model.search import DEEP, Search, cases, explore

ORDERS = "three intervals in any order, a move"
GAPS = "three intervals in any order, a longer look back"
STATES = "two intervals, two moves"
EXPIRES = "records expire between revisions"
BOUNDS: dict[str, dict[str, Any]] = {
    ORDERS: {"records": (1, 1), "moves": 1},
    GAPS: {"moves": 0, "lookback": (2, 1)},
    STATES: {"intervals": 2, "records": (1, 1), "lookback": (1, 1), "moves": 2},
    EXPIRES: {"intervals": 2, "records": (2, 0), "expiry": 1, "moves": 2},
    "four intervals in any order": {"intervals": 4, "moves": 0, "lookback": (2, 1)},
    "a source is added": {"records": (1, 2), "added": True, "moves": 0},
    "one side looks back": {"lookback": (None, 2), "moves": 0},
    "three intervals in any order, two moves": {"records": (1, 1), "moves": 2, "lookback": (1, 1)},
    "three intervals, three records": {"moves": 1},
}
COSTLY = {"three intervals in any order, two moves", "three intervals, three records"}
DEEPER: dict[str, dict[str, Any]] = {
    "four intervals, a move": {"intervals": 4, "records": (1, 1), "moves": 1, "lookback": (1, 2)},
    "a source is added, records expire": {"records": (2, 1), "added": True, "expiry": 1, "moves": 1},
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_a_batch_looks_back_at_what_earlier_intervals_consumed(bounds: str) -> None:
    found = _unbroken(bounds)
    assert found.fault is None, found
    assert found.complete


def without_skipped(view: View, *asked: Any) -> tuple[OffsetRange, ...]:
    """Mutation: a skipped batch's records are no partners."""
    kept = {i: known for i, known in view.revisions.items() if known.in_force.state is not State.SKIPPED}
    return ranges_before(View(kept), *asked)


def of_last_revisions(view: View, *asked: Any) -> tuple[OffsetRange, ...]:
    """Mutation: what an interval's last revision reads counts, which has lost what expired."""
    last = {i: Revisions((known.last_batch,)) for i, known in view.revisions.items()}
    return ranges_before(View(last), *asked)


def of_first_revisions(view: View, *asked: Any) -> tuple[OffsetRange, ...]:
    """Mutation: what an interval's first revision read counts, though it was withdrawn and planned again."""
    first = {i: Revisions(known.batches[:1]) for i, known in view.revisions.items() if not known.is_withdrawn}
    still = {
        i: Revisions((known.batches[0].model_copy(update={"state": State.PLANNED}),)) for i, known in first.items()
    }
    return ranges_before(View(still), *asked)


def at_the_border(
    view: View, covered: Interval, topic: str, lookback: timedelta, partitions: int
) -> tuple[OffsetRange, ...]:
    """Mutation: an interval that ends exactly so long before is looked back at."""
    return ranges_before(view, covered, topic, lookback + timedelta.resolution, partitions)


def with_its_own(
    view: View, covered: Interval, topic: str, lookback: timedelta, partitions: int
) -> tuple[OffsetRange, ...]:
    """Mutation: a batch looks back at its own interval too, which a reprocess finds in the ledger."""
    ahead = Interval(start=covered.end, end=covered.end + DAY)
    return ranges_before(view, ahead, topic, lookback + (covered.end - covered.start), partitions)


def from_its_own_start(view: View, covered: Interval, facts: Any, source: Any) -> Any:
    """Mutation: the time is counted from the interval's start, and not from that of what the batch covers."""
    return look_back_of_a_batch(view, Interval(start=covered.end - DAY, end=covered.end), facts, source)


def at_any_time(*asked: Any) -> None:
    """Mutation: an interval with records is planned before a later one."""


MUTATIONS: dict[str, tuple[str, Rules, str]] = {
    "the state of a batch is asked": (ORDERS, Rules(before=without_skipped), "missed"),
    "the last revision's ranges count": (EXPIRES, Rules(before=of_last_revisions), "missed"),
    "the ranges of a withdrawn revision count": (STATES, Rules(before=of_first_revisions), "missed"),
    "an interval at the border counts": (GAPS, Rules(before=at_the_border), "too much"),
    "a batch looks back at itself": (STATES, Rules(before=with_its_own), "overlaps"),
    "the time is counted from the interval's start": (GAPS, Rules(of_batch=from_its_own_start), "missed"),
    "an interval with records comes before a later one": (GAPS, Rules(late=at_any_time), "no pair"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_rule_taken_out_is_found(mutation: str) -> None:
    bounds, rules, kind = MUTATIONS[mutation]
    assert _unbroken(bounds).fault is None
    found = explore(LookBack(rules, **BOUNDS[bounds]))
    assert found.fault is not None, found
    assert found.fault.kind == kind, found


def test_every_rule_is_taken_out() -> None:
    taken = {n for _, rules, _ in MUTATIONS.values() for n, rule in vars(rules).items() if rule != vars(Rules())[n]}
    assert taken == {*vars(Rules())}


@cache
def _unbroken(bounds: str) -> Search:
    found = explore(LookBack(**{**BOUNDS, **DEEPER}[bounds]))
    print(f"look back, {bounds}: {found}")  # noqa: T201  # `make model` shows it
    return found
