"""Announcements: whoever crashes, is fenced or comes late, each decision is announced once, and readers have what counts.

Each mutation is searched within bounds in which all rules together find nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fencepost.model import Batch, State
from fencepost.protocol.announcement import Announcement, counting
from fencepost.protocol.announcing import AnnouncedChange, announced_changes
from fencepost.protocol.view import View
from model.announcements import DAY, Rules, of
from model.search import explore

RUN = ("plan", "advance", "reprocess")
TWINS, ADDED, EMPTY, RENEWED = (
    "twins, a skip and a reprocess",
    "records are replayed and reprocessed",
    "an interval without records is published, withdrawn and planned again",
    "the ledger is created again while a coordinator of the old one is at work",
)
BOUNDS: dict[str, dict[str, Any]] = {
    TWINS: {"operations": (*RUN, "skip"), "revisions": 3},
    ADDED: {"operations": (*RUN, "replay"), "revisions": 4},
    EMPTY: {"operations": (*RUN, "skip", "withdraw", "replay"), "revisions": 3, "offsets": 0},
    RENEWED: {"operations": (*RUN, "skip"), "renewal": True},
}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_each_decision_is_announced_once_and_readers_have_what_counts(bounds: str) -> None:
    found = explore(of(BOUNDS[bounds]))
    print(f"\n{bounds}: {found}")  # noqa: T201
    assert found.complete
    assert found.fault is None, str(found)


def of_advance_alone(view: View, records: Sequence[Batch], operation: str) -> tuple[AnnouncedChange, ...]:
    """Mutation: the step advance announces; nobody thinks of a skip."""
    return announced_changes(view, records) if operation == "advance" else ()


def each_withdrawn_alone(view: View, records: Sequence[Batch], operation: str) -> tuple[AnnouncedChange, ...]:
    """Mutation: a withdrawal of several revisions is announced for each."""
    return tuple(one for batch in records for one in announced_changes(view, [batch]))


def of_every_record(view: View, records: Sequence[Batch], operation: str) -> tuple[AnnouncedChange, ...]:
    """Mutation: whether the batch has come into its state with this change is not asked."""
    return announced_changes(View(), records)


def without_what_it_replaces(view: View, records: Sequence[Batch], operation: str) -> tuple[AnnouncedChange, ...]:
    """Mutation: what counts no more is not named."""
    return tuple(replace(one, replaces=()) for one in announced_changes(view, records))


def without_additions(view: View, records: Sequence[Batch], operation: str) -> tuple[AnnouncedChange, ...]:
    """Mutation: the additions to what is replaced are not named."""
    found = announced_changes(view, records)
    added = {b.revision for b in records if b.adds_to is not None}
    return tuple(replace(one, replaces=tuple(r for r in one.replaces if r not in added)) for one in found)


def what_is_published(view: View, operation: str) -> tuple[AnnouncedChange, ...]:
    """Mutation: who finds a batch published, as after a commit whose answer was lost, announces it."""
    last = view.last(DAY)
    done = operation == "advance" and last is not None and last.state is State.PUBLISHED
    return announced_changes(View(), [last]) if done and last is not None else ()


def by_name(said: Announcement, counts: Iterable[Announcement]) -> bool:
    """Mutation: a reader goes by the batch's name alone."""
    return said.batch in {one.batch for one in counts}


def the_last_of_each_interval(announced: Iterable[Announcement]) -> list[Announcement]:
    """Mutation: a reader takes an addition for a revision."""
    return counting(one.model_copy(update={"adds_to": None}) for one in announced)


def what_was_published_last(announced: Iterable[Announcement]) -> list[Announcement]:
    """Mutation: a reader passes over withdrawals."""
    return counting(one for one in announced if one.state != "withdrawn")


MUTATIONS: dict[str, tuple[Rules, str, str]] = {
    "a fenced coordinator commits": (Rules(fenced_by_init=False), TWINS, "announced twice"),
    "a zombie of the old ledger commits": (Rules(fenced_by_init=False), RENEWED, ""),
    "it is announced before it is recorded": (Rules(together="says"), TWINS, "not recorded"),
    "it is announced after it is recorded": (Rules(together="records"), TWINS, "not announced"),
    "who finds it published announces it again": (Rules(finds=what_is_published), TWINS, "announced twice"),
    "a skip is forgotten": (Rules(announced_changes=of_advance_alone), TWINS, "not announced"),
    "each withdrawn revision is announced": (Rules(announced_changes=each_withdrawn_alone), EMPTY, "not recorded"),
    "what it replaces is not named": (Rules(announced_changes=without_what_it_replaces), TWINS, "not recorded"),
    "additions are not named": (Rules(announced_changes=without_additions), ADDED, "not recorded"),
    "a reader goes by the name alone": (Rules(counts=by_name), RENEWED, "read wrongly"),
    "a reader takes an addition for a revision": (Rules(counting=the_last_of_each_interval), ADDED, "read wrongly"),
    "a reader passes over withdrawals": (Rules(counting=what_was_published_last), EMPTY, "read wrongly"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_rule_taken_out_is_found(mutation: str) -> None:
    rules, bounds, kind = MUTATIONS[mutation]
    found = explore(of(BOUNDS[bounds], rules))
    assert found.fault is not None, f"{mutation}: nothing was found in {found}"
    assert found.fault.kind == kind or not kind, str(found)
