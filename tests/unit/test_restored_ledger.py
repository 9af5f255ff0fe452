"""A ledger that was restored from a copy counts leases from the beginning: what was planned in it still comes last."""

from __future__ import annotations

import pytest

from fencepost.model import Batch, State
from fencepost.transitions import View, frontier, validated_ends
from unit.pages.ledgers import batch, hour


def planned_in(topic: str, lease: int, made: Batch) -> Batch:
    """The batch, planned in that ledger topic."""
    plan = made.plan.model_copy(update={"ledger_topic_id": topic})
    return made.model_copy(update={"lease": lease, "plan": plan})


OLD = [planned_in("L1", 500, batch(0)), planned_in("L1", 700, batch(1, State.REJECTED))]
# It was planned when the topic was lost: its record, copied, has a low offset.
COPIED = [planned_in("L1", 3, batch(2, State.SUPERSEDED)), planned_in("L2", 5, batch(2, revision=2))]
AFTER = [planned_in("L2", 9, batch(3))]


@pytest.mark.parametrize("behind", [[], COPIED, COPIED + AFTER, AFTER])
def test_the_frontier_does_not_pass_what_was_rejected_before_the_ledger_was_restored(behind: list[Batch]) -> None:
    view = View.of([*OLD, *behind])
    assert view.anchor == hour(0)
    assert frontier(view) == frontier(View.of(OLD)) == dict.fromkeys(range(4), 100)
    assert validated_ends(view) == validated_ends(View.of(OLD))


def test_the_newest_plan_is_the_restored_ledgers_whatever_its_lease() -> None:
    """Its output topic is the one that validated offsets are of."""
    made = planned_in("L2", 2, batch(1))
    moved_on = made.model_copy(update={"plan": made.plan.model_copy(update={"output_topic_id": "anew"})})
    assert validated_ends(View.of([OLD[0], moved_on])) == dict.fromkeys(range(4), 200)


def test_plans_of_an_early_fencepost_name_no_ledger_and_come_first() -> None:
    view = View.of([planned_in("", 40, batch(1)), planned_in("", 50, batch(0)), planned_in("L1", 60, batch(2))])
    assert view.anchor == hour(1)
