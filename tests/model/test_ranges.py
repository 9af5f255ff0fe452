"""The frozen ranges: every record is in one interval, however it arrives and in whatever order intervals are planned.

Each mutation is searched beside the same bounds with all rules, which has to find nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from fencepost.model import Batch, Decision, Interval, OffsetRange, State
from fencepost.protocol.decisions import decide_withdraw, record_withdrawn
from fencepost.protocol.planning import Neighbours
from fencepost.protocol.ranges import frozen_ranges
from fencepost.protocol.view import PASSED, View
from model.ranges import Ranges, Rules
from model.search import DEEP, Search, cases, explore

BOUNDS: dict[str, dict[str, Any]] = {
    "three intervals in any order, records and transactions between the questions": {"intervals": 3, "records": 2},
    "two intervals, three records": {"intervals": 2, "records": 3},
    "three intervals, three records": {"intervals": 3, "records": 3, "transactions": False, "racing": False},
    "a partition is added": {"intervals": 2, "records": 2, "partitions": 2},
    "a partition is added to three intervals": {
        "intervals": 3,
        "records": 2,
        "partitions": 2,
        "transactions": False,
        "racing": False,
    },
    "intervals that do not touch": {"intervals": 2, "records": 2, "gaps": True},
    "intervals are withdrawn": {
        "intervals": 2,
        "records": 2,
        "transactions": False,
        "racing": False,
        "withdrawals": True,
    },
    "facts are gathered apart, and a partition is added": {
        "intervals": 4,
        "records": 1,
        "partitions": 2,
        "transactions": False,
        "racing": False,
        "writing": False,
        "apart": True,
    },
    "records expire between three revisions": {
        "intervals": 2,
        "records": 2,
        "expiry": 2,
        "revisions": 3,
        "transactions": False,
        "racing": False,
        "writing": False,
    },
}
COSTLY = {
    "facts are gathered apart, and a partition is added",
    "records expire between three revisions",
}
DEEPER: dict[str, dict[str, Any]] = {
    "three intervals, three records and transactions": {"intervals": 3, "records": 3, "racing": False},
    "two intervals, four records": {"intervals": 2, "records": 4, "transactions": False},
    "records expire in transactions too": {"intervals": 2, "records": 2, "expiry": 2, "revisions": 3, "racing": False},
    # With `revisions: 0` what was withdrawn is not planned again; two intervals are (in BOUNDS, and below).
    "three intervals are withdrawn": {
        "intervals": 3,
        "records": 2,
        "revisions": 0,
        "racing": False,
        "withdrawals": True,
    },
    "three intervals are withdrawn, and records expire": {
        "intervals": 3,
        "records": 2,
        "revisions": 0,
        "expiry": 1,
        "transactions": False,
        "racing": False,
        "withdrawals": True,
    },
    "intervals are withdrawn, and a partition is added": {
        "intervals": 2,
        "records": 2,
        "partitions": 2,
        "transactions": False,
        "racing": False,
        "withdrawals": True,
    },
    "intervals are withdrawn, and records expire": {
        "intervals": 2,
        "records": 3,
        "expiry": 1,
        "transactions": False,
        "racing": False,
        "withdrawals": True,
    },
    "records expire and a partition is added": {
        "intervals": 2,
        "records": 2,
        "partitions": 2,
        "expiry": 1,
        "revisions": 2,
        "transactions": False,
    },
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_every_record_is_in_one_interval(bounds: str) -> None:
    found = _unbroken(bounds)
    assert found.fault is None, found
    assert found.complete


def the_next_interval_is_not_minded(
    interval: Interval,
    topic: str,
    starts: Sequence[int],
    after: Batch | None,
    stable: Sequence[int],
    by_end: Sequence[int | None],
) -> tuple[OffsetRange, ...]:
    """Mutation: an interval planned after a later one ends by time alone."""
    return frozen_ranges(interval, topic, starts, None, stable, by_end)


def from_the_end_of_now(
    topic: str,
    before: Batch | None,
    after: Batch | None,
    stable: Sequence[int],
    by_start: Sequence[int | None] | None,
) -> list[int]:
    """Mutation: an interval starts where the source ends when it is planned."""
    return list(stable)


def whatever_the_broker_knows(batch: Batch, topic: str, topic_id: str, partitions: int) -> None:
    """Mutation: a plan takes the partitions that it knows for all there are."""


def whoever_they_are(gathered: Neighbours, now: Neighbours) -> bool:
    """Mutation: facts count, whatever was planned since they were gathered."""
    return True


def alike_where_it_was_known(gathered: Neighbours, now: Neighbours) -> bool:
    """Mutation: neighbours count as the same that bound the ranges alike in the partitions that were known."""
    if (gathered.own, now.own) != (None, None) or gathered.after != now.after:
        return gathered.bound_alike(now) if gathered.own is not None else False
    if gathered.before is None or now.before is None:
        return gathered.before is now.before
    before, after = gathered.before.plan.ranges, now.before.plan.ranges
    return all(one.end == two.end for one, two in zip(before, after, strict=False))


TWO = "two intervals, three records"
ADDED = "a partition is added to three intervals"
APART = "facts are gathered apart, and a partition is added"


@pytest.mark.parametrize(
    ("bounds", "rules", "kinds"),
    [
        pytest.param(TWO, Rules(frozen=False), {"doubled", "lost"}, id="ranges are computed again on a retry"),
        pytest.param(
            ADDED,
            Rules(same_source=whatever_the_broker_knows),
            {"doubled"},
            id="a partition that neighbours have is unknown",
        ),
        pytest.param(
            APART,
            Rules(bound_alike=whoever_they_are),
            {"doubled", "lost"},
            id="a plan is decided of what was known before its neighbour was planned",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            APART,
            Rules(bound_alike=alike_where_it_was_known),
            {"doubled"},
            id="a plan knows fewer partitions than its neighbour, which was planned meanwhile",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            TWO, Rules(end_is_last_stable=False), {"lost"}, id="the end is the high watermark, open transactions in it"
        ),
        pytest.param(
            TWO, Rules(ranges=the_next_interval_is_not_minded), {"doubled", "lost"}, id="neighbours are not minded"
        ),
        pytest.param(TWO, Rules(starts=from_the_end_of_now), {"lost"}, id="an interval starts at the end of now"),
    ],
)
def test_a_rule_taken_out_is_missed(bounds: str, rules: Rules, kinds: set[str]) -> None:
    assert _unbroken(bounds).fault is None
    found = explore(Ranges(rules, **BOUNDS[bounds]))
    assert found.fault is not None, found
    assert found.fault.kind in kinds, found


def whatever_was_published(view: View, interval: Interval, decision: Decision) -> tuple[Batch, ...]:
    """Mutation: what was published or skipped with records is withdrawn."""
    passed = [b for b in view.known(interval).all if b.state in PASSED]
    if passed and not passed[-1].plan.is_empty and view.after(interval) is None:
        return (record_withdrawn(passed[-1], decision),)
    return decide_withdraw(view, interval, decision)


def whatever_lies_behind(view: View, interval: Interval, decision: Decision) -> tuple[Batch, ...]:
    """Mutation: what has records is withdrawn though a later interval begins where it ends."""
    latest = view.known(interval).all[-1]
    if latest.state is State.PLANNED:
        return (record_withdrawn(latest, decision),)
    return decide_withdraw(view, interval, decision)


WITHDRAWN = "intervals are withdrawn"


@pytest.mark.parametrize(
    ("rule", "kind", "intervals"), [(whatever_was_published, "doubled", 2), (whatever_lies_behind, "lost", 3)]
)
def test_what_has_records_is_not_withdrawn_at_will(rule: Any, kind: str, intervals: int) -> None:
    """`make model` searches three intervals with all rules too, which takes long."""
    assert _unbroken(WITHDRAWN).fault is None
    found = explore(Ranges(Rules(withdrawn=rule), **{**BOUNDS[WITHDRAWN], "intervals": intervals}))
    assert found.fault is not None, found
    assert found.fault.kind == kind, found


@cache
def _unbroken(bounds: str) -> Search:
    found = explore(Ranges(**{**BOUNDS, **DEEPER}[bounds]))
    print(f"ranges, {bounds}: {found}")  # noqa: T201  # `make model` shows it
    return found
