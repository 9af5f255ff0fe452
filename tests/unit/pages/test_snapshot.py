"""What the pages know of a pipeline is what the ledger's own rules say."""

from __future__ import annotations

import random

from fencepost.model import Event, OffsetRange, State
from fencepost.pages.snapshot import take
from fencepost.transitions import View, frontier, holding_back, moved

from .ledgers import PARTITIONS, batch, hour, ledger

# States of an interval's revisions, in order.
REVISIONS = [
    *[(State.PUBLISHED,)] * 8,
    *((state,) for state in State if state is not State.SUPERSEDED),
    (State.SUPERSEDED, State.PUBLISHED),
    (State.SUPERSEDED, State.REJECTED),
    (State.PUBLISHED, State.PLANNED),
    (State.PUBLISHED, State.REJECTED),
    (State.SUPERSEDED, State.SKIPPED),
]


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


def test_the_frontier_the_hole_and_who_waits_follow_from_what_passed_and_what_is_empty() -> None:
    """Worked out here anew, in other words than the ledger's: by interval and partition, from states and ranges alone."""
    chance = random.Random(11)
    seen = dict.fromkeys(["hole", "waits", "partitions apart", "nothing passed"], 0)
    for _ in range(200):
        hours = range(8)
        anchor = chance.choice([0, 0, 2])
        lengths = [[chance.choice([0, 7]) if chance.random() < 0.4 else 100 for _ in range(PARTITIONS)] for _ in hours]
        starts = [[sum(lengths[m][p] for m in range(n)) for p in range(PARTITIONS)] for n in hours]
        revisions = {n: chance.choice(REVISIONS) for n in hours}
        batches = []
        for n in hours:
            ranges = tuple(
                OffsetRange(partition=p, start=starts[n][p], end=starts[n][p] + lengths[n][p])
                for p in range(PARTITIONS)
            )
            for revision, state in enumerate(revisions[n], start=1):
                made = batch(n, state, revision=revision)
                plan = made.plan.model_copy(update={"ranges": ranges})
                lease = made.known_lease + (1000 if n < anchor else 0)
                batches.append(made.model_copy(update={"plan": plan, "lease": lease}))
        chance.shuffle(batches)
        snapshot = take("orders", batches)

        run = range(anchor, len(hours))
        passed = [State.PUBLISHED in revisions[n] or revisions[n][-1] is State.SKIPPED for n in hours]
        expected = {}
        for p in range(PARTITIONS):
            stops = [n for n in run if lengths[n][p] and not passed[n]]
            before = [n for n in run if passed[n] and n < min(stops, default=len(hours))]
            if before:
                expected[p] = starts[before[-1]][p] + lengths[before[-1]][p]
            elif stops:
                expected[p] = starts[anchor][p]
        assert snapshot.frontier == expected
        stops = [n for n in run if any(lengths[n]) and not passed[n]]
        waits = [n for n in run if passed[n] and stops and n > stops[0]]
        assert [row.key for row in snapshot.rows if row.waits] == [str(hour(n)) for n in waits]
        hole = stops[:1] if stops and (any(passed[stops[0] :]) or revisions[stops[0]][-1] is State.REJECTED) else []
        assert [row.key for row in snapshot.rows if row.holds_back] == [str(hour(n)) for n in hole]
        through = [n for n in run if passed[n] and n not in waits]
        assert snapshot.frontier_time == (hour(through[-1]).end if through else hour(anchor).start)
        seen["hole"] += bool(hole)
        seen["waits"] += bool(waits)
        beyond = [p for p in expected if stops and expected[p] > starts[stops[0]][p] + lengths[stops[0]][p]]
        seen["partitions apart"] += bool(beyond)
        seen["nothing passed"] += not through
    assert min(seen.values()) > 5, seen
