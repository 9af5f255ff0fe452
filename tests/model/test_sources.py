"""Several sources: each record of a topic is in one interval while the topic comes, goes and returns.

Each mutation is searched beside the same bounds with all rules, which has to find nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.model import Batch, Interval
from fencepost.protocol.planning import Neighbours, check_source_topics, new_source_begins
from fencepost.protocol.ranges import range_starts
from fencepost.protocol.view import View
from model.search import DEEP, Search, cases, explore
from model.sources import TOPICS, Rules, Sources

ANCHORS, BOUND_ALIKE = View.anchors.func, Neighbours.bound_alike  # type: ignore[attr-defined]

BOUNDS: dict[str, dict[str, Any]] = {
    "a source comes, goes and returns": {"intervals": 3, "records": 1},
    "a source comes, goes and returns, two records": {"intervals": 3, "records": 2, "arrives": "b", "finishing": False},
    "a source takes the place of another": {"intervals": 2, "records": 2, "settings": ("a", "b")},
    "intervals are planned again": {"intervals": 2, "records": 2, "arrives": "b", "revisions": 2},
    "intervals are withdrawn": {"intervals": 2, "records": 1, "arrives": "b", "withdrawals": True},
    "a partition is added": {"intervals": 3, "records": 1, "arrives": "b", "partitions": 2, "finishing": False},
    "records expire": {"intervals": 2, "records": 2, "arrives": "b", "expiry": 1, "revisions": 2},
}
COSTLY = {"intervals are withdrawn", "records expire"}
DEEPER: dict[str, dict[str, Any]] = {
    "four intervals": {"intervals": 4, "records": 1, "arrives": "b"},
    # With `revisions: 0` what was withdrawn is not planned again; two intervals are (in BOUNDS).
    "three intervals are withdrawn": {
        "intervals": 3,
        "records": 1,
        "revisions": 0,
        "arrives": "b",
        "withdrawals": True,
    },
}
# For mutations alone: what is searched stops at the fault, and the whole would take hours.
WIDE: dict[str, dict[str, Any]] = {
    "three intervals are withdrawn, two records": {
        "intervals": 3,
        "records": 2,
        "arrives": "b",
        "withdrawals": True,
    },
    "facts are gathered apart": {"intervals": 3, "records": 1, "arrives": "b", "withdrawals": True, "apart": True},
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_every_record_of_a_topic_is_in_one_interval(bounds: str) -> None:
    found = _unbroken(bounds)
    assert found.fault is None, found
    assert found.complete


def from_the_beginning(interval: Interval, near: Neighbours, topic: str) -> datetime | None:
    """Mutation: a new topic is read from its beginning."""
    return new_source_begins(interval, near, topic) if near.before is None else None


def by_timestamps_alone(interval: Interval, near: Neighbours, topic: str) -> datetime | None:
    """Mutation: a topic that the preceding interval does not read is a new one."""
    if near.before is None or topic in near.before.plan.source_topics:
        return new_source_begins(interval, near, topic)
    return near.before.interval.end


def as_it_is_given(
    topic: str, before: Batch | None, after: Batch | None, stable: Sequence[int], by_start: Sequence[int | None] | None
) -> list[int]:
    """Mutation, with the one above: the timestamps count, although the topic has a last range."""
    return range_starts(topic, before if by_start is None else None, after, stable, by_start)


def from_whenever_it_is_planned(interval: Interval, near: Neighbours, topic: str) -> datetime | None:
    """Mutation: an interval that is planned before a topic's first range begins by timestamps, too."""
    if topic in near.readers or near.before is None:
        return new_source_begins(interval, near, topic)
    return near.before.interval.end


def all_of_the_pipelines(near: Neighbours, pipelines: Iterable[str]) -> tuple[str, ...]:
    """Mutation: an interval reads what the pipeline reads, although the interval after it does not."""
    return tuple(one for one in pipelines if near.own is None or one in near.own.plan.source_topics)


def without_readers(gathered: Neighbours, now: Neighbours) -> bool:
    """Mutation: the neighbours that read a topic are not compared."""
    near = (Neighbours(one.own, one.before, one.after) for one in (gathered, now))
    return BOUND_ALIKE(*near)


def nothing_is_unfinished(view: View, reads: Collection[str]) -> Batch | None:
    """Mutation: a source may leave at any time."""
    return None


def whoever_confirmed(*arguments: Any, confirmed: bool) -> None:
    """Mutation: sources change without a person's word."""
    check_source_topics(*arguments, confirmed=True)


def whatever_follows(view: View, interval: Interval, pipeline: str, near: Neighbours, *rest: Any, **more: Any) -> None:
    """Mutation: a pipeline without a source of the following interval plans the interval before it."""
    if near.own is not None or near.after is None:
        check_source_topics(view, interval, pipeline, near, *rest, **more)


def whatever_was_planned(
    view: View, interval: Interval, pipeline: str, near: Neighbours, *rest: Any, **more: Any
) -> None:
    """Mutation: a pipeline without a source of an interval plans it again."""
    if near.own is None:
        check_source_topics(view, interval, pipeline, near, *rest, **more)


def every_topic(view: View) -> Any:
    """Mutation: the group's offsets move in all topics, also those that no interval reads any more."""
    return SimpleNamespace(plan=SimpleNamespace(source_topics=tuple(TOPICS)))


def one_for_all(view: View) -> dict[str, Interval]:
    """Mutation: the frontier of each topic begins at the interval that was planned first."""
    return {topic: view.anchor for topic in ANCHORS(view) if view.anchor}


COMES = "a source comes, goes and returns"
TWO = "a source comes, goes and returns, two records"
WITHDRAWN = "three intervals are withdrawn, two records"
APART = "facts are gathered apart"


@pytest.mark.parametrize(
    ("bounds", "rules", "kinds"),
    [
        pytest.param(TWO, Rules(begins=from_the_beginning), {"early"}, id="a new topic is read from its beginning"),
        pytest.param(
            TWO,
            Rules(begins=by_timestamps_alone, starts=as_it_is_given),
            {"lost", "doubled"},
            id="a topic that returns begins by timestamps",
        ),
        pytest.param(
            WITHDRAWN,
            Rules(begins=from_whenever_it_is_planned),
            {"early"},
            id="what is planned before a topic's first range reads it",
            marks=pytest.mark.deep,
        ),
        pytest.param(TWO, Rules(topics=all_of_the_pipelines), {"early"}, id="the interval that follows is not minded"),
        pytest.param(
            APART,
            Rules(bound_alike=without_readers),
            {"early", "lost"},
            id="who read a topic last is not compared",
            marks=pytest.mark.deep,
        ),
        pytest.param(COMES, Rules(unfinished=nothing_is_unfinished), {"passed by"}, id="a source leaves at any time"),
        pytest.param(COMES, Rules(checked=whoever_confirmed), {"unconfirmed"}, id="a change is not confirmed"),
        pytest.param(
            TWO, Rules(checked=whatever_follows), {"lost"}, id="an interval is planned without a topic of the next one"
        ),
        pytest.param(
            "intervals are planned again",
            Rules(checked=whatever_was_planned),
            {"changed"},
            id="an interval is planned again without one of its topics",
        ),
        pytest.param(COMES, Rules(newest=every_topic), {"moved"}, id="offsets move in topics that are not read"),
        pytest.param(
            WITHDRAWN,
            Rules(anchors=one_for_all),
            {"ahead", "moved"},
            id="all topics have one anchor",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_a_rule_taken_out_is_missed(bounds: str, rules: Rules, kinds: set[str]) -> None:
    if bounds not in WIDE:
        assert _unbroken(bounds).fault is None
    found = explore(Sources(rules, **{**BOUNDS, **WIDE}[bounds]))
    assert found.fault is not None, found
    assert found.fault.kind in kinds, found


@cache
def _unbroken(bounds: str) -> Search:
    found = explore(Sources(**{**BOUNDS, **DEEPER}[bounds]))
    print(f"sources, {bounds}: {found}")  # noqa: T201  # `make model` shows it
    return found
