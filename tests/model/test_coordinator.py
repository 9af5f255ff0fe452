"""The coordinator's transitions: runs, retries and operators at once never leave a hole, and each rule is needed.

Each mutation is searched beside the same bounds with all rules, which has to find nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from fencepost.model import Batch, Decision, Interval, PartitionId, Receipt, State
from fencepost.outputs.topic.publication import begin_publication, opening_marks, record_copied
from fencepost.outputs.topic.values import TopicPublication
from fencepost.protocol.decisions import decide_skip, free_lane
from fencepost.protocol.frontier import frontier
from fencepost.protocol.marks import MarkState
from fencepost.protocol.obstacle import AbandonedPublication
from fencepost.protocol.view import PASSED, Revisions, View
from makers import publish_prepared
from model.coordinator import BOTH, Coordinator, Rows, Rules, replay_of
from model.product import a_receipt
from model.search import DEEP, Search, cases, explore, without_way_out

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
    "a staged interval, every step and operator, staged records are deleted": {
        "intervals": 1,
        "parts": 1,
        "deletion": True,
    },
    "a staged interval is copied in two parts, staged records are deleted": {
        "intervals": 1,
        "parts": 2,
        "operations": (*RUN, "skip"),
        "outcomes": ("passed",),
        "deletion": True,
    },
    "the output refuses a copy for good; it is skipped, reprocessed, or written again": {
        "intervals": 1,
        "parts": 1,
        "operations": (*RUN, "skip", "reprocess"),
        "outcomes": ("passed",),
        "refusal": True,
    },
    "the output refuses one of two parts for a while, and settings change": {
        "intervals": 1,
        "parts": 2,
        "operations": (*RUN, "skip"),
        "outcomes": ("passed",),
        "refusal": True,
        "fixing": True,
        "settings_change": True,
    },
    "marks of a copy are lost, and it may be refused": {
        "intervals": 1,
        "parts": 2,
        "operations": (*RUN, "skip", "reprocess"),
        "outcomes": ("passed",),
        "refusal": True,
        "losing": True,
    },
    "marks of a copy without headers are lost": {
        "intervals": 1,
        "parts": 1,
        "operations": (*RUN, "reprocess"),
        "outcomes": ("passed",),
        "losing": True,
        "headers": False,
    },
    "facts are gathered apart": {
        "intervals": 1,
        "parts": 1,
        "operations": (*RUN, "reprocess"),
        "outcomes": ("passed",),
        "apart": True,
    },
    "two staged intervals are published side by side": {
        "intervals": 2,
        "parts": 1,
        "operations": RUN,
        "revisions": 1,
        "outcomes": ("passed",),
    },
    "a quarantined record is replayed, twice and at once, and reprocessed": {
        "intervals": 1,
        "revisions": 3,
        "operations": (*RUN, "reprocess", "replay"),
        "outcomes": ("passed",),
    },
    "two intervals' quarantined records are replayed one after another": {
        "intervals": 2,
        "processes": 1,
        "operations": (*RUN, "replay"),
        "outcomes": ("passed",),
    },
    "rows that are quarantined one by one are replayed": {
        "intervals": 1,
        "revisions": 3,
        "operations": (*RUN, "replay"),
        "outcomes": ("passed",),
        "results": True,
    },
    "a staged interval's quarantined record is replayed": {
        "intervals": 1,
        "revisions": 3,
        "parts": 1,
        "operations": (*RUN, "replay"),
        "outcomes": ("passed",),
    },
}
COSTLY = {
    "two intervals are skipped and reprocessed, group offsets expire",
    "two intervals' quarantined records are replayed one after another",
}
DEEPER: dict[str, dict[str, Any]] = {
    "a quarantined record is replayed, reprocessed, rejected and skipped while settings change": {
        "intervals": 1,
        "revisions": 3,
        "operations": (*RUN, "skip", "reprocess", "replay"),
        "settings_change": True,
    },
    "two intervals' quarantined records are replayed": {
        "intervals": 2,
        "operations": (*RUN, "replay"),
        "outcomes": ("passed",),
    },
    "an interval without records is published, withdrawn and planned again": {
        "intervals": 2,
        "records": 1,
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


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_nothing_is_published_wrongly_and_the_frontier_has_no_hole(bounds: str) -> None:
    """The same search goes back from the states where all is published, or waits for an operator: no state is stuck."""
    found = _unbroken(bounds)
    assert found.fault is None, found
    assert found.complete


def over_holes(view: View) -> dict[PartitionId, int]:
    """Mutation: the frontier is the end of the last interval that was published, whatever lies before it."""
    passed = [b for b in map(view.in_force, view.intervals) if b is not None and b.state in PASSED]
    return {part.partition_id: part.end for b in passed for part in b.plan.ranges}


def skips_what_is_being_published(
    view: View, interval: Interval, decision: Decision, given_up: AbandonedPublication | None = None
) -> tuple[Batch, ...]:
    """Mutation: whether readers may see it is not asked."""
    as_written = [b.model_copy(update={"state": State.WRITTEN}) for b in view.all() if b.state is State.PUBLISHING]
    return decide_skip(view.updated(as_written), interval, decision)


def in_the_first_lane(*given: Any) -> TopicPublication:
    """Mutation: who else is in a lane is not asked."""
    return begin_publication(*given).model_copy(update={"lane": 0})


def whatever_was_copied(
    view: View, interval: Interval, revision: int, lease: int, receipts: Sequence[Receipt], *rest: Any
) -> tuple[Batch, ...]:
    """Mutation: receipts are counted, and not compared with what was written."""
    whole = [a_receipt(r.task, r.lease) for r in receipts]
    return record_copied(view, interval, revision, lease, whole, *rest)


def of_the_batch_always(view: View, when: Interval, gather: Any) -> tuple[Batch, ...]:
    """Mutation: a replay takes what the batch quarantined, whatever earlier additions have taken of it."""
    earlier = tuple(b for b in view.known(when).all if b.adds_to is None or b.state is not State.PUBLISHED)
    batches = replay_of(View({**view.revisions, when: Revisions.of(earlier)}), when, gather)
    last = view.known(when).all[-1].revision
    return tuple(b.model_copy(update={"revision": last + 1}) if b.lease is None else b for b in batches)


def beside_what_is_under_way(view: View, when: Interval, gather: Any) -> tuple[Batch, ...]:
    """Mutation: whether a new revision of the batch is under way is not asked."""
    settled = [
        b.model_copy(update={"state": State.SKIPPED}) if b.state is State.WRITTEN and b.adds_to is None else b
        for b in view.known(when).all
    ]
    batches = replay_of(View({**view.revisions, when: Revisions.of(settled)}), when, gather)
    if not batches or settled[-1] == view.known(when).last:
        return batches
    aside = view.known(when).all[-1].model_copy(update={"state": State.SUPERSEDED})
    return (*batches, aside)


def without_its_additions(*given: Any) -> tuple[Batch, ...]:
    """Mutation: a new revision supersedes the batch alone, and additions to that stay published."""
    return tuple(b for b in publish_prepared(*given) if b.adds_to is None or b.state is not State.SUPERSEDED)


def whatever_was_prepared(
    view: View, interval: Interval, now: datetime, decision: Decision | None, beginning: Any, read: View
) -> tuple[Batch, ...]:
    """Mutation: whether the batch to publish is the one that was prepared is not asked."""
    return publish_prepared(view, interval, now, decision, beginning)


def of_additions_too(view: View) -> Mapping[PartitionId, int]:
    """Mutation: an addition is taken for its interval's batch."""
    return frontier(View.of(known.last.model_copy(update={"adds_to": None}) for known in view.revisions.values()))


def in_the_first_replay_lane(view: View, but_for: Batch | None) -> str:
    """Mutation: whether another addition is planned in it is not asked."""
    return "replay-0"


def among_the_batches(view: View, *given: Any) -> str:
    """Mutation: an addition takes a lane of the batches, of which there is one."""
    additions = [b.model_copy(update={"adds_to": None}) for b in view.all()]
    return free_lane(View.of(additions), 1, given[-1])


def nothing_stands_in_the_way(view: View, publication: TopicPublication) -> tuple[Receipt, ...]:
    """Mutation: the marks that a publication begins with forget who was in its lane before."""
    return tuple(r.model_copy(update={"lease": 0}) for r in opening_marks(view, publication))


def beside_its_quarantine(taken: Rows, passing: Rows, results: bool) -> tuple[Rows, Rows]:
    """Mutation: rows that pass are published, although another row of their record sends it to quarantine."""
    return passing, frozenset() if passing == taken else taken


def kept_though_published(taken: Rows, passing: Rows, results: bool) -> tuple[Rows, Rows]:
    """Mutation: results are published, and carried over too."""
    return passing, taken


def dropped_once_judged(taken: Rows, passing: Rows, results: bool) -> tuple[Rows, Rows]:
    """Mutation: results that fail are not quarantined again."""
    return passing, taken - passing if taken == BOTH else frozenset()


def any_copy_is_the_first(mark: int | None, lease: int) -> MarkState:
    """Mutation: the mark is not read."""
    return MarkState.WRITE


STAGED = "a staged interval, every step and operator, staged records are deleted"
PARTS = "a staged interval is copied in two parts, staged records are deleted"
MENDED = "the output refuses one of two parts for a while, and settings change"
LOST = "marks of a copy are lost, and it may be refused"
HEADERLESS = "marks of a copy without headers are lost"
BESIDE = "two staged intervals are published side by side"
RESULTS = "rows that are quarantined one by one are replayed"
REPLAYED = "a quarantined record is replayed, twice and at once, and reprocessed"
TWO_REPLAYED = "two intervals' quarantined records are replayed one after another"
APART = "facts are gathered apart"
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
        pytest.param(
            STAGED, Rules(decide_before_copy=False), "unjudged", id="a staged batch is copied before that is decided"
        ),
        pytest.param(
            STAGED, Rules(skip=skips_what_is_being_published), "unjudged", id="what is being published can be skipped"
        ),
        pytest.param(STAGED, Rules(standing=any_copy_is_the_first), "doubled", id="the copy does not read its mark"),
        pytest.param(STAGED, Rules(close=False), "unjudged", id="a publication is given up without marks"),
        pytest.param(MENDED, Rules(close=False), "unjudged", id="a refused publication is dropped without marks"),
        pytest.param(LOST, Rules(look=False), "doubled", id="a mark that is lost is taken for nothing copied"),
        pytest.param(
            HEADERLESS, Rules(ask_headers=False), "doubled", id="the output is asked where nothing has a header"
        ),
        pytest.param(
            STAGED,
            Rules(opening=nothing_stands_in_the_way),
            "doubled",
            id="a publication's first marks let an earlier one go on",
        ),
        pytest.param(
            PARTS, Rules(record=whatever_was_copied), "published wrongly", id="the copy's receipts are not compared"
        ),
        pytest.param(
            APART,
            Rules(publish=whatever_was_prepared),
            "unchecked",
            id="a publication is prepared for one batch and begins for another",
        ),
        pytest.param(BESIDE, Rules(begin=in_the_first_lane), "lane shared", id="a publishing lane is shared"),
        pytest.param(
            REPLAYED,
            Rules(replay=of_the_batch_always),
            "left though published",
            id="a replay does not follow earlier additions",
        ),
        pytest.param(
            REPLAYED, Rules(publish=without_its_additions), "published wrongly", id="additions outlive their batch"
        ),
        pytest.param(
            REPLAYED,
            Rules(replay=beside_what_is_under_way),
            "unasked",
            id="an addition pushes aside a new revision of the batch",
        ),
        pytest.param(
            TWO_REPLAYED,
            Rules(replay_lane=in_the_first_replay_lane),
            "lane shared",
            marks=pytest.mark.deep,
            id="additions share a lane",
        ),
        pytest.param(
            TWO_REPLAYED,
            Rules(free_lane=among_the_batches, replay_lane=among_the_batches),
            "held up",
            marks=pytest.mark.deep,
            id="an addition holds a lane of the batches",
        ),
        pytest.param(
            REPLAYED,
            Rules(routed=beside_its_quarantine),
            "left though published",
            id="a record is quarantined beside rows of it that are published",
        ),
        pytest.param(
            RESULTS,
            Rules(routed=kept_though_published),
            "left though published",
            id="results are carried over and published",
        ),
        pytest.param(
            RESULTS,
            Rules(routed=dropped_once_judged),
            "lost from quarantine",
            id="results that fail are not quarantined again",
        ),
        pytest.param(
            REPLAYED, Rules(frontier=of_additions_too), "moved by an addition", id="an addition moves the frontier"
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
