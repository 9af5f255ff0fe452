"""What a plan freezes beside its ranges: the moment by which a batch's staged records are known."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import makers
from fencepost.model import Batch, State
from fencepost.protocol.planning import Neighbours, SourceFacts, decide_plan
from fencepost.protocol.view import View

FACTS = makers.the_facts(
    neighbours=Neighbours(),
    source=SourceFacts(topic="in", topic_id="in-1", earliest=(0,), stable=(10,), by_start=(0,), by_end=(5,)),
    staging=makers.a_topic(0, topic="staging"),
)


def planned(clocks: list[tuple[int, int]]) -> list[Batch]:
    """Batches planned one after another: of which day, and when. Each is rejected, so a day's next one is a revision of it."""
    batches: dict[str, Batch] = {}
    for lease, (number, clock) in enumerate(clocks):
        view, when = View.of([*batches.values()]), makers.a_day(number)
        facts = replace(FACTS, neighbours=Neighbours.of(view, when, ["in"]), clock=FACTS.clock + clock)
        for batch in decide_plan(view, when, facts, reprocess=True):
            if batch.lease is None:
                batch = batch.model_copy(update={"lease": lease, "state": State.REJECTED})
            batches[str(batch.id)] = batch
    return [*batches.values()]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2)), max_size=8))
def test_no_two_batches_are_staged_at_the_same_millisecond_whatever_the_clock_does(
    clocks: list[tuple[int, int]],
) -> None:
    """It may stand still and go back. Nothing is staged further ahead of it than there are batches."""
    batches = planned(clocks)
    assert len(batches) == len(clocks), "each a batch of its own"
    moments = [batch.require_staging_timestamp for batch in batches]
    assert len({*moments}) == len(moments)
    assert all(-2 <= moment - FACTS.clock <= 2 + len(moments) for moment in moments)


def test_what_is_not_staged_has_no_such_moment() -> None:
    (batch,) = decide_plan(View.of([]), makers.a_day(0), replace(FACTS, staging=None), reprocess=False)
    assert batch.plan.staging_timestamp is None
