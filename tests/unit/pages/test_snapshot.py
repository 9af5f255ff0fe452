"""What the pages know of a pipeline is what the ledger's own rules say."""

from __future__ import annotations

import random

from fencepost.model import Decision, Event, State
from fencepost.pages.snapshot import take
from fencepost.transitions import WITHDRAW, View, frontier, holding_back, moved, taken_out

from .ledgers import batch, hour, ledger


def test_an_empty_ledger_has_no_rows_and_no_frontier() -> None:
    snapshot = take("orders", [])
    assert (snapshot.rows, snapshot.frontier, snapshot.frontier_time, snapshot.hole) == ((), {}, None, None)


def test_the_rejected_interval_before_published_ones_is_the_hole_and_those_after_it_wait() -> None:
    snapshot = take("orders", ledger(6, {2: State.REJECTED}))
    assert [row.key for row in snapshot.rows if row.holds_back] == [str(hour(2))]
    assert [row.key for row in snapshot.rows if row.waits] == [str(hour(n)) for n in (3, 4, 5)]
    assert (snapshot.passed, snapshot.frontier_time) == (2, hour(1).end)


def test_a_published_revision_counts_while_a_newer_one_is_under_way() -> None:
    (row,) = take("orders", [batch(0), batch(0, State.PLANNED, revision=2)]).rows
    assert (row.batch.revision, row.newest.revision, len(row.revisions)) == (1, 2, 2)


def test_the_frontier_and_the_hole_are_those_of_the_ledgers_rules_for_any_ledger() -> None:
    chance = random.Random(7)
    for _ in range(60):
        states = {n: chance.choice([State.PUBLISHED] * 4 + list(State)) for n in range(12)}
        batches = [batch(n, states[n], rows=chance.choice([0, 400])) for n in range(12)]
        chance.shuffle(batches)
        view, snapshot = View.of(batches), take("orders", batches)
        assert snapshot.frontier == frontier(view)
        assert snapshot.hole == holding_back(view)
        assert [row.batch for row in snapshot.rows] == [view.effective(i) for i in view.intervals]
        if not any(row.batch.plan.is_empty for row in snapshot.rows) and snapshot.passed:
            last = snapshot.rows[snapshot.first + snapshot.passed - 1].batch
            assert snapshot.frontier == {r.partition: r.end for r in last.plan.ranges}


def test_an_interval_planned_further_back_later_is_not_counted_by_the_frontier() -> None:
    early = batch(0, State.PLANNED).model_copy(update={"lease": 99})
    snapshot = take("orders", [early, *ledger(4)[1:]])
    assert (snapshot.first, snapshot.passed, snapshot.hole) == (1, 3, None)


def test_an_interval_passed_when_its_first_revision_was_published_not_when_the_last_was() -> None:
    first = batch(0)
    second = batch(0, revision=2)
    late = second.history[-1].at.replace(year=2030)
    second = second.model_copy(update={"history": (Event(state=State.PUBLISHED, at=late),)})
    (row,) = take("orders", [moved(first, State.SUPERSEDED, late, ""), second]).rows
    assert row.passed_at == first.history[-1].at


def test_the_pass_rate_is_that_of_the_verdict_and_missing_without_one() -> None:
    good, bad, open_ = take("orders", ledger(3, {1: State.REJECTED, 2: State.PLANNED})).rows
    assert (good.pass_rate, bad.pass_rate, open_.pass_rate) == (100.0, 75.0, None)


def test_an_interval_that_was_withdrawn_breaks_no_run() -> None:
    decision = Decision(action=WITHDRAW, by="ann", reason="a typing error", decided_at=batch(0).plan.planned_at)
    snapshot = take("orders", [*ledger(3), taken_out(batch(3, State.PLANNED), decision), batch(4)])
    assert (snapshot.passed, snapshot.hole) == (5, None)
