"""The coordinator's transitions: runs, retries and operators at once never leave a hole, and each rule is needed.

Each mutation is searched beside the same bounds with all rules, which has to find nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from fencepost.protocol.frontier import Place
from fencepost.protocol.view import PASSED, View
from model.coordinator import Coordinator, Rules
from model.search import DEEP, Search, explore, without_way_out

RUN = ("plan", "write", "validate", "advance")
ALL = ("passed", "rejected", "undetermined")

BOUNDS: dict[str, dict[str, Any]] = {
    "one interval, every step and operator, settings change, batches age": {
        "intervals": 1,
        "settings_change": True,
        "ageing": True,
        "outcomes": ALL,
    },
    "two intervals share a lane while settings change": {
        "intervals": 2,
        "operations": RUN,
        "settings_change": True,
        "outcomes": ("passed",),
    },
    "two intervals are skipped and reprocessed, group offsets expire": {
        "intervals": 2,
        "processes": 1,
        "operations": (*RUN, "skip", "reprocess"),
        "outcomes": ("passed",),
        "group_expiry": True,
    },
    "two intervals side by side in two lanes, two source partitions": {
        "intervals": 2,
        "operations": (*RUN, "skip"),
        "revisions": 1,
        "lanes": 2,
        "partitions": 2,
        "outcomes": ("passed",),
    },
    "intervals without records are published and withdrawn": {
        "intervals": 3,
        "records": 2,
        "processes": 1,
        "operations": (*RUN, "withdraw"),
        "revisions": 1,
        "outcomes": ("passed",),
    },
    "three intervals in any order, two source partitions": {
        "intervals": 3,
        "processes": 1,
        "operations": (*RUN, "skip"),
        "revisions": 1,
        "partitions": 2,
        "outcomes": ("passed",),
    },
}
DEEPER: dict[str, dict[str, Any]] = {
    "intervals without records are published, withdrawn and planned again": {
        "intervals": 3,
        "records": 2,
        "processes": 1,
        "operations": (*RUN, "withdraw"),
        "outcomes": ("passed",),
    },
    "one interval, three revisions": {
        "intervals": 1,
        "revisions": 3,
        "settings_change": True,
        "ageing": True,
    },
    "one interval, three processes": {"intervals": 1, "processes": 3, "settings_change": True},
    "two intervals, two processes, skip and publish": {
        "intervals": 2,
        "revisions": 1,
        "operations": (*RUN, "skip", "publish"),
        "outcomes": ALL,
    },
    "three intervals, two processes, two lanes": {
        "intervals": 3,
        "revisions": 1,
        "lanes": 2,
        "operations": RUN,
        "outcomes": ("passed",),
    },
}


@pytest.mark.parametrize("bounds", [*BOUNDS, *(DEEPER if DEEP else ())])
def test_nothing_is_published_wrongly_and_the_frontier_has_no_hole(bounds: str) -> None:
    """The same search goes back from the states where all is published, or waits for an operator: no state is stuck."""
    found = _unbroken(bounds)
    assert found.fault is None, found
    assert found.complete


def over_holes(view: View) -> dict[Place, int]:
    """Mutation: the frontier is the end of the last interval that was published, whatever lies before it."""
    passed = [b for b in map(view.effective, view.intervals) if b is not None and b.state in PASSED]
    return {("in", part.partition): part.end for b in passed for part in b.plan.source.ranges}


SHARED = "two intervals share a lane while settings change"
SINGLE = "one interval, every step and operator, settings change, batches age"


@pytest.mark.parametrize(
    ("bounds", "rules", "kind"),
    [
        pytest.param(SHARED, Rules(frontier=over_holes), "hole", id="the frontier is moved over a hole"),
        pytest.param(SHARED, Rules(read_after_init=False), "lane shared", id="the ledger is read before init"),
        pytest.param(SHARED, Rules(fenced_by_init=False), "lane shared", id="a fenced coordinator commits"),
        pytest.param(
            SINGLE, Rules(decide_revision_again=False), "unasked", id="a revision is decided on what was read before"
        ),
    ],
)
def test_a_rule_taken_out_is_missed(bounds: str, rules: Rules, kind: str) -> None:
    assert _unbroken(bounds).fault is None
    found = explore(Coordinator(rules, **BOUNDS[bounds]))
    assert found.fault is not None, found
    assert found.fault.kind == kind, found
    assert len(found.trace) > 4, "a rule is missed only when several steps meet"


@cache
def _unbroken(bounds: str) -> Search:
    found = without_way_out(Coordinator(**{**BOUNDS, **DEEPER}[bounds]))
    print(f"coordinator, {bounds}: {found}")  # noqa: T201  # `make model` shows it
    return found
