"""What awaits a person is found whatever an older revision of the interval says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fencepost.model import Batch, Decision, Outcome, State
from fencepost.protocol.advice import what_next
from fencepost.protocol.awaiting import Awaiting, AwaitingReason
from fencepost.protocol.decisions import decide_skip, record_planned, record_verdict, record_withdrawn
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import View
from makers import publish_prepared
from unit.pages.ledgers import batch, hour, taken

PATIENCE = timedelta(hours=4)
SOON, LATE = hour(1).end, hour(9).end


def verdict(outcome: Outcome, made: Batch) -> Batch:
    """The batch with a verdict, in whatever state."""
    told = batch(0, State.REJECTED).verdict
    assert told is not None
    return made.model_copy(update={"verdict": told.model_copy(update={"outcome": outcome})})


WRITTEN = batch(1, State.WRITTEN, revision=2)
SECONDS = {
    "rejected": (batch(1, State.REJECTED, revision=2), AwaitingReason.REJECTED, AwaitingReason.REJECTED),
    "undetermined": (verdict(Outcome.UNDETERMINED, WRITTEN), AwaitingReason.UNDETERMINED, AwaitingReason.UNDETERMINED),
    "rejected, then undetermined": (
        verdict(Outcome.UNDETERMINED, batch(1, State.REJECTED, revision=2)),
        AwaitingReason.REJECTED,
        AwaitingReason.REJECTED,
    ),
    "planned": (batch(1, State.PLANNED, revision=2), None, AwaitingReason.STUCK),
    "written": (WRITTEN, None, AwaitingReason.STUCK),
    "passed": (verdict(Outcome.PASSED, WRITTEN), None, AwaitingReason.STUCK),
    "published": (batch(1, revision=2), None, None),
    "skipped": (batch(1, State.SKIPPED, revision=2), None, None),
}


@pytest.mark.parametrize("older", [State.PUBLISHED, State.SKIPPED, State.SUPERSEDED, None])
@pytest.mark.parametrize("name", SECONDS)
def test_the_newest_revision_says_whether_somebody_has_to_act(name: str, older: State | None) -> None:
    newest, soon, late = SECONDS[name]
    first = [] if older is None else [batch(1, older)]
    view = View.of([batch(0), *first, newest, batch(2)])
    counts = first[0] if first and older is not State.SUPERSEDED else None
    for now, need in ((SOON, soon), (LATE, late)):
        assert snapshot_of(view).awaiting(now, PATIENCE) == ((Awaiting(newest, need, counts),) if need else ())


@pytest.mark.parametrize("name", SECONDS)
def test_an_interval_that_was_withdrawn_awaits_nobody(name: str) -> None:
    decision = Decision(action="withdraw", by="ann", reason="a typing error", decided_at=SOON)
    withdrawn = record_withdrawn(SECONDS[name][0], decision)
    assert taken([batch(0), withdrawn]).awaiting(LATE, PATIENCE) == ()
    assert taken([batch(0), withdrawn]).unfinished == ()


def test_everything_that_awaits_is_listed_in_order_of_time() -> None:
    view = View.of([batch(3, State.REJECTED), batch(0), batch(1, State.REJECTED), batch(2)])
    assert [one.batch.interval for one in snapshot_of(view).awaiting()] == [hour(1), hour(3)]


@pytest.mark.parametrize(
    ("older", "newest", "says"),
    [
        (
            batch(1),
            batch(1, State.REJECTED, revision=2),
            "revision 2 was rejected; revision 1 stays published until revision 2 is published",
        ),
        (
            batch(1, State.SKIPPED),
            SECONDS["undetermined"][0],
            "revision 2 could not be judged; revision 1 stays skipped until revision 2 is published",
        ),
        (
            batch(1, State.SUPERSEDED),
            batch(1, State.PLANNED, revision=2),
            "revision 2 is stuck: planned, and unchanged since 2026-01-01 02:01 UTC",
        ),
    ],
)
def test_it_says_what_happened_and_what_stays(older: Batch, newest: Batch, says: str) -> None:
    (found,) = taken([older, newest]).awaiting(LATE, PATIENCE)
    assert found.description == says


def test_what_the_advice_says_of_skip_and_publish_is_what_they_do_beside_a_published_revision() -> None:
    first, second = batch(1), batch(1, State.REJECTED, revision=2)
    said = what_next(second, first)
    assert "publishes it in place of revision 1" in said
    assert "leaves revision 1 published" in said
    decision = batch(0, State.SKIPPED).decision
    assert decision is not None
    view = View.of([first, second])
    left = View.of([first, *decide_skip(view, hour(1), decision)])
    assert left.in_force(hour(1)) == first
    after = View.of([first, second, *publish_prepared(view, hour(1), LATE, decision)])
    assert [b.state for b in after.known(hour(1)).all] == [State.SUPERSEDED, State.PUBLISHED]
    assert snapshot_of(left).awaiting(LATE, PATIENCE) == snapshot_of(after).awaiting(LATE, PATIENCE) == ()


def test_a_reprocess_awaits_nobody_until_it_is_judged_and_then_a_person_at_once() -> None:
    """Through the ledger's own transitions, as a run makes them."""
    first = batch(1)
    (fresh,) = record_planned(View.of([first]), hour(1), "orders", first.plan, "reprocess was requested")
    view = View.of([first, fresh.model_copy(update={"lease": 99})])
    assert snapshot_of(view).awaiting(SOON, PATIENCE) == ()
    written = fresh.model_copy(update={"state": State.WRITTEN, "written": first.written, "lease": 99})
    bad = batch(1, State.REJECTED).verdict
    assert bad is not None
    (rejected,) = record_verdict(View.of([first, written]), hour(1), 2, bad)
    (found,) = taken([first, rejected]).awaiting(SOON, PATIENCE)
    assert (found.reason, found.in_force) == (AwaitingReason.REJECTED, first)
