"""When a batch is planned: at a moment of its own, by which its staged records are known."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

import makers
from fencepost.model import Batch, Layout
from fencepost.protocol.planning import Facts, Neighbours, SourceFacts, decide_plan
from fencepost.protocol.view import View

FACTS = Facts(
    pipeline="p",
    neighbours=Neighbours(),
    source=SourceFacts(topic="in", topic_id="in-1", earliest=(0,), stable=(10,), by_start=(0,), by_end=(5,)),
    output=makers.an_output(0),
    staging=makers.an_output(0, topic="staging"),
    quarantine=None,
    ledger_topic_id="ledger-0",
    layout=Layout.SOURCE,
    lanes=64,
    accept_loss=True,
    quarantines_malformed=False,
    digests={},
    software="fencepost 1",
    output_format="json",
    schemas=None,
    now=makers.NOW,
)


def planned_at(moments: list[datetime]) -> list[Batch]:
    """A batch for each, planned one after another, each of another interval."""
    batches: list[Batch] = []
    for number, now in enumerate(moments, start=1):
        view, when = View.of(batches), makers.a_day(number)
        near = Neighbours.of(view, when)
        (batch,) = decide_plan(view, when, replace(FACTS, neighbours=near, now=now), reprocess=False)
        batches.append(batch.model_copy(update={"lease": number}))
    return batches


@settings(deadline=None)
@given(st.lists(st.integers(-3000, 3000), max_size=8))
def test_no_two_batches_are_staged_at_the_same_millisecond_whatever_the_clock_does(microseconds: list[int]) -> None:
    """It may stand still and go back. Nobody is planned further ahead of it than there are others."""
    moments = [makers.NOW + timedelta(microseconds=n) for n in microseconds]
    plans = [batch.plan for batch in planned_at(moments)]
    assert len({plan.staged_at for plan in plans}) == len(plans)
    for now, plan in zip(moments, plans, strict=True):
        assert timedelta(milliseconds=-1) < plan.planned_at - now <= timedelta(milliseconds=len(plans))
        assert plan.staged_at == plan.planned_at.timestamp() * 1000, "nothing finer than Kafka's timestamps"
