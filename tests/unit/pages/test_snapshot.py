"""What the pages know of a pipeline is what the ledger's own rules say."""

from __future__ import annotations

import random
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.model import Batch, Decision, HistoryEntry, OffsetRange, Outcome, State
from fencepost.pages.cards import card_of
from fencepost.pages.trend import Lag, trend
from fencepost.protocol.awaiting import Awaiting, AwaitingReason, awaiting_reason
from fencepost.protocol.decisions import in_state, record_withdrawn
from fencepost.protocol.frontier import frontier, holding_back
from fencepost.protocol.view import OVER, View
from makers import reading

from .ledgers import HOUR, PARTITIONS, batch, hour, ledger, quarantining, replaying, taken

NOW = hour(5).end
PIPELINE: Any = SimpleNamespace(name="orders")


def undetermined(written: Batch) -> Batch:
    """The same, judged without a result."""
    verdict = batch(0, State.REJECTED).verdict
    assert verdict is not None
    return written.model_copy(update={"verdict": verdict.model_copy(update={"outcome": Outcome.UNDETERMINED})})


def judged_as(outcome: Outcome, state: State) -> Batch:
    """Hour 1 in that state, after that verdict."""
    rejected = batch(1, State.REJECTED)
    assert rejected.verdict is not None
    return rejected.model_copy(
        update={"state": state, "verdict": rejected.verdict.model_copy(update={"outcome": outcome})}
    )


def at(judged: Batch, moment: datetime) -> Batch:
    """The same, judged at that moment."""
    assert judged.verdict is not None
    history = (*judged.history[:-1], judged.history[-1].model_copy(update={"at": moment}))
    verdict = judged.verdict.model_copy(update={"judged_at": moment})
    return judged.model_copy(update={"verdict": verdict, "history": history})


# States of an interval's revisions, in order.
REVISIONS = [
    *[(State.PUBLISHED,)] * 8,
    *((state,) for state in State if state not in OVER),
    (State.SUPERSEDED, State.PUBLISHED),
    (State.SUPERSEDED, State.REJECTED),
    (State.PUBLISHED, State.PLANNED),
    (State.PUBLISHED, State.REJECTED),
    (State.SUPERSEDED, State.SKIPPED),
]


def test_an_empty_ledger_has_no_rows_and_no_frontier() -> None:
    snapshot = taken([])
    assert (snapshot.rows, snapshot.frontier, snapshot.frontier_time, snapshot.hole) == ((), {}, None, None)


def test_the_rejected_interval_before_published_ones_is_the_hole_and_those_after_it_wait() -> None:
    snapshot = taken(ledger(6, {2: State.REJECTED}))
    assert [row.key for row in snapshot.rows if row.holds_back] == [str(hour(2))]
    assert [row.key for row in snapshot.rows if row.waits] == [str(hour(n)) for n in (3, 4, 5)]
    assert (snapshot.passed, snapshot.frontier_time) == (2, hour(1).end)


def test_a_published_revision_counts_while_a_newer_one_is_under_way() -> None:
    (row,) = taken([batch(0), batch(0, State.PLANNED, revision=2)]).rows
    assert (row.batch.revision, row.newest.revision, len(row.revisions.all)) == (1, 2, 2)


def any_revisions(chance: random.Random, number: int) -> list[Batch]:
    """One to three revisions of an hour, as the ledger's transitions leave them: at most one of them is not settled."""
    rows = chance.choice([0, 400])
    last = chance.choice([State.PUBLISHED] * 3 + [s for s in State if s not in OVER])
    older = [chance.choice([State.PUBLISHED, State.SKIPPED, State.SUPERSEDED]) for _ in range(chance.randrange(3))]
    return [batch(number, state, revision, rows) for revision, state in enumerate([*older, last], start=1)]


def test_the_frontier_and_the_hole_are_those_of_the_ledgers_rules_for_any_ledger() -> None:
    chance = random.Random(7)
    several = 0
    for _ in range(60):
        batches = [b for n in range(12) for b in any_revisions(chance, n)]
        chance.shuffle(batches)
        view, snapshot = View.of(batches), taken(batches)
        assert snapshot.frontier == frontier(view)
        assert (snapshot.hole.batch if snapshot.hole else None) == holding_back(view)
        assert [row.batch for row in snapshot.rows] == [view.in_force(i) for i in view.intervals]
        assert [row.newest for row in snapshot.rows] == [view.last(i) for i in view.intervals]
        found = {i: awaits for i, r in view.in_order if (awaits := awaiting_reason(r.last, NOW, HOUR)) is not None}
        assert {one.batch.interval: one.reason for one in snapshot.awaiting(NOW, HOUR)} == found
        if not any(row.batch.plan.is_empty for row in snapshot.rows) and snapshot.passed:
            last = snapshot.rows[snapshot.first + snapshot.passed - 1].batch
            assert snapshot.frontier == {r.partition_id: r.end for r in last.plan.ranges}
        several += sum(row.batch.state is State.SKIPPED and row.newest is not row.batch for row in snapshot.rows)
    assert several > 5, "skipped intervals that are written again were among them"


def test_a_skipped_interval_counts_as_skipped_while_it_is_written_again() -> None:
    skipped = batch(1, State.SKIPPED)
    snapshot = taken([batch(0), skipped, batch(1, State.PLANNED, revision=2), batch(2)])
    assert snapshot.rows[1].batch == skipped
    assert (snapshot.passed, snapshot.hole) == (3, None)


@pytest.mark.parametrize(
    "rejected", [batch(1, State.REJECTED, revision=2), undetermined(batch(1, State.WRITTEN, revision=2))]
)
def test_a_reprocess_that_did_not_pass_is_the_intervals_news_in_counts_and_trend(rejected: Batch) -> None:
    again = at(rejected, hour(9).end)
    snapshot = taken([*ledger(3), again])
    row = snapshot.rows[1]
    assert (row.batch.revision, row.telling, row.pass_rate) == (
        1,
        again,
        None if again.state is State.WRITTEN else 75.0,
    )
    assert snapshot.last_judged == again
    assert snapshot.is_last_verdict_final is False
    assert snapshot.counts == {State.PUBLISHED: 3, again.state: 1}
    card = card_of(PIPELINE, snapshot, None, 30)
    assert (card.good, card.judged, card.last) == (2, 3, again)
    assert str(card.verdicts).count('class="v-passed"') == 2
    assert [p.lag for p in trend(snapshot, 30)] == [Lag(0, 0)] * 3, "what is published stays passed"


@pytest.mark.parametrize(
    ("last", "settled"),
    [
        (judged_as(Outcome.PASSED, State.WRITTEN), True),
        (batch(1, State.PUBLISHED), True),
        (batch(1, State.REJECTED), False),
        (judged_as(Outcome.PASSED, State.REJECTED), False),  # by its table
        (judged_as(Outcome.UNDETERMINED, State.WRITTEN), False),
        (judged_as(Outcome.REJECTED, State.PUBLISHED), True),
        (judged_as(Outcome.REJECTED, State.PUBLISHING), True),
        (judged_as(Outcome.REJECTED, State.SKIPPED), True),
        (judged_as(Outcome.REJECTED, State.WITHDRAWN), True),
        (judged_as(Outcome.REJECTED, State.SUPERSEDED), False),
        (judged_as(Outcome.PASSED, State.SUPERSEDED), True),
    ],
)
def test_the_last_verdict_is_settled_where_it_passed_or_a_person_has_decided(last: Batch, settled: bool) -> None:
    assert taken([*ledger(1), last]).is_last_verdict_final is settled


def test_what_is_not_judged_yet_leaves_the_last_verdict_as_it_is() -> None:
    rejected = judged_as(Outcome.REJECTED, State.REJECTED)
    assert taken([*ledger(1), rejected, batch(2, State.PLANNED)]).is_last_verdict_final is False
    assert taken([batch(0, State.PLANNED)]).is_last_verdict_final is None


def test_a_reprocess_under_way_changes_no_count() -> None:
    snapshot = taken([*ledger(3), batch(1, State.PLANNED, revision=2)])
    card = card_of(PIPELINE, snapshot, None, 30)
    assert (card.good, card.judged) == (3, 3)
    assert snapshot.awaiting(hour(1).end, HOUR) == ()


def test_a_revision_whose_run_failed_awaits_a_person_at_once_and_one_that_nobody_moves_after_a_while() -> None:
    planned = batch(1, State.PLANNED, revision=2)
    snapshot = taken([*ledger(3), planned])
    (stopped,) = snapshot.awaiting(hour(1).end, HOUR, {hour(1)})
    (late,) = snapshot.awaiting(hour(9).end, HOUR)
    assert stopped == late == Awaiting(planned, AwaitingReason.STUCK, batch(1))


def test_an_interval_planned_further_back_later_is_not_counted_by_the_frontier() -> None:
    early = batch(0, State.PLANNED).model_copy(update={"lease": 99})
    snapshot = taken([early, *ledger(4)[1:]])
    assert (snapshot.first, snapshot.passed, snapshot.hole) == (1, 3, None)


def test_an_interval_passed_when_its_first_revision_was_published_not_when_the_last_was() -> None:
    first = batch(0)
    second = batch(0, revision=2)
    late = second.history[-1].at.replace(year=2030)
    second = second.model_copy(update={"history": (HistoryEntry(state=State.PUBLISHED, at=late),)})
    (row,) = taken([in_state(first, State.SUPERSEDED, late, ""), second]).rows
    assert row.passed_at == first.history[-1].at


def test_the_pass_rate_is_that_of_the_verdict_and_missing_without_one() -> None:
    good, bad, open_ = taken(ledger(3, {1: State.REJECTED, 2: State.PLANNED})).rows
    assert (good.pass_rate, bad.pass_rate, open_.pass_rate) == (100.0, 75.0, None)


def test_an_interval_that_was_withdrawn_breaks_no_run() -> None:
    decision = Decision(action="withdraw", by="ann", reason="a typing error", decided_at=batch(0).plan.planned_at)
    snapshot = taken([*ledger(3), record_withdrawn(batch(3, State.PLANNED), decision), batch(4)])
    assert (snapshot.passed, snapshot.hole) == (5, None)


def test_the_frontier_the_hole_and_who_waits_follow_from_what_passed_and_what_is_empty() -> None:
    """Worked out here again, in other words than the ledger's: by interval and partition, from states and ranges alone."""
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
                OffsetRange(topic="orders-in", partition=p, start=starts[n][p], end=starts[n][p] + lengths[n][p])
                for p in range(PARTITIONS)
            )
            for revision, state in enumerate(revisions[n], start=1):
                made = batch(n, state, revision=revision)
                lease = made.require_lease + (1000 if n < anchor else 0)
                batches.append(reading(made, ranges).model_copy(update={"lease": lease}))
        chance.shuffle(batches)
        snapshot = taken(batches)

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
        assert snapshot.frontier == {("orders-in", p): end for p, end in expected.items()}
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


def test_an_addition_moves_no_row_and_awaits_a_person_only_while_it_is_not_done() -> None:
    base = quarantining(batch(0), 12)
    plain = taken([base, batch(1)])
    for state in (s for s in State if s is not State.WITHDRAWN):
        snapshot = taken([base, replaying(base, 2, rows=8, left=4, state=state), batch(1)])
        row = snapshot.rows[0]
        assert (snapshot.frontier, snapshot.passed, row.batch) == (plain.frontier, plain.passed, base)
        done = state in {State.PUBLISHED, State.SKIPPED}
        assert (row.newer is None) is done
        assert (row in snapshot.unfinished) is not done
        assert State.SKIPPED not in row.states or not done
        assert row.replayed == ((12, 8) if state is State.PUBLISHED else None)
        assert sum(row.left_in_quarantine.values()) == (4 if state is State.PUBLISHED else 12)
