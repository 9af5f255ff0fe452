"""A staged batch on its way to its output: what may happen to it, and what operators are told meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.errors import FactsOutdated, FencepostError, NotRecorded, Superseded, TransitionRefused
from fencepost.model import Batch, OffsetRange, Outcome, Receipt, State, Tally
from fencepost.outputs.topic.publication import CopyBeginning, opening_marks, record_copied, validated_ends
from fencepost.outputs.topic.values import TopicPublication
from fencepost.protocol.advice import next_task, what_next
from fencepost.protocol.awaiting import AwaitingReason, awaiting_reason
from fencepost.protocol.decisions import (
    PreparedBatch,
    batch_to_judge,
    decide_publish,
    decide_skip,
    decide_withdraw,
    record_planned,
    record_verdict,
    standing_plan,
)
from fencepost.protocol.frontier import frontier
from fencepost.protocol.marks import MarkState, compare_mark
from fencepost.protocol.obstacle import AbandonedPublication
from fencepost.protocol.publication import record_refused
from fencepost.protocol.view import View
from makers import (
    DAY,
    NOW,
    a_batch,
    a_day,
    a_decision,
    a_plan,
    a_publication,
    a_receipt,
    a_topic,
    a_verdict,
    a_written,
    publish_prepared,
    staged,
)

ROWS = 5
MEGABYTE = 1_000_000
HELD = a_topic(20, topic="out")


def of(
    state: State, number: int = 0, lease: int = 0, outcome: Outcome | None = Outcome.PASSED, **changes: Any
) -> Batch:
    """A staged batch of five rows, in two partitions of its staging topic."""
    written = a_written(a_receipt(lease=lease, rows=ROWS), output=a_topic(3, 4, topic="out"))
    made = a_batch(
        state,
        interval=a_day(number),
        lease=lease,
        plan=a_plan((number, number + 1)),
        written=written,
        verdict=outcome and a_verdict(outcome),
    )
    if state is State.PUBLISHING:
        changes.setdefault("publication", a_publication())
    return staged(made, **changes)


BEGINNING = CopyBeginning(HELD, "ledger-1", MEGABYTE)


def copied(view: View, *receipts: Receipt, lease: int = 7, revision: int = 1) -> tuple[Batch, ...]:
    return record_copied(view, a_day(0), revision, lease, receipts, a_topic(30, topic="out"), 1.5, NOW)


WHOLE = a_receipt(0, 7, rows=ROWS)


def test_a_passed_staged_batch_begins_to_be_published_and_moves_nothing() -> None:
    view = View.of([of(State.WRITTEN)])
    (after,) = publish_prepared(view, a_day(0), NOW, None, BEGINNING)
    assert after.state is State.PUBLISHING
    assert after.publication == TopicPublication(
        lane=0, ledger="ledger-1", tasks=1, atomic=True, begun=HELD, begun_at=NOW
    )
    assert after.history[-1].note == "in one transaction"
    begun = View.of([after])
    assert (frontier(begun), validated_ends(begun)) == ({("in", 0): 0}, {})
    assert publish_prepared(begun, a_day(0), NOW, None, BEGINNING) == (), "done once"


def test_a_batch_that_was_not_prepared_is_not_published() -> None:
    """The ledger may have changed since the topics and the output were checked. They were checked for one batch."""
    passed = a_verdict(Outcome.PASSED)
    direct = a_batch(State.WRITTEN, revision=2, written=a_written(a_receipt(rows=ROWS)), verdict=passed)
    for batch in (of(State.WRITTEN, revision=2), direct):
        view = View.of([batch])
        other = batch.id.model_copy(update={"revision": 1})
        for prepared in (None, PreparedBatch(other, BEGINNING)):
            with pytest.raises(FactsOutdated, match=f"batch {batch.id} became the one to publish"):
                decide_publish(view, a_day(0), NOW, None, prepared)
        assert decide_publish(view, a_day(0), NOW, None, PreparedBatch(batch.id, BEGINNING))
    with pytest.raises(NotRecorded, match="is staged"):
        decide_publish(View.of([of(State.WRITTEN)]), a_day(0), NOW, None, PreparedBatch(of(State.WRITTEN).id))


@pytest.mark.parametrize(("bytes_", "tasks"), [(MEGABYTE, 1), (MEGABYTE + 1, 2)])
def test_a_batch_above_the_limit_is_copied_by_staging_partition(bytes_: int, tasks: int) -> None:
    batch = of(State.WRITTEN)
    assert batch.written is not None
    topics = {"staging": batch.written.tally.model_copy(update={"bytes": bytes_})}
    large = batch.model_copy(update={"written": batch.written.model_copy(update={"topics": topics})})
    found = BEGINNING.publication(View(), large, NOW)
    assert (found.tasks, found.atomic) == (tasks, tasks == 1)


def test_an_operators_decision_on_a_rejected_batch_is_kept() -> None:
    decision = a_decision("publish")
    view = View.of([of(State.REJECTED, outcome=Outcome.REJECTED)])
    with pytest.raises(TransitionRefused):
        publish_prepared(view, a_day(0), NOW, None, BEGINNING)
    (after,) = publish_prepared(view, a_day(0), NOW, decision, BEGINNING)
    assert (after.state, after.decision) == (State.PUBLISHING, decision)


def test_a_staged_batch_without_records_is_published_at_once() -> None:
    empty = staged(
        a_batch(
            State.WRITTEN, written=a_written(a_receipt(rows=0)), verdict=a_verdict(Outcome.PASSED), plan=a_plan((0, 1))
        )
    )
    view = View.of([empty])
    (after,) = publish_prepared(view, a_day(0), NOW, None, BEGINNING)
    assert (after.state, after.publication) == (State.PUBLISHED, None)
    assert [r.length for r in after.published_ranges] == [0], "read_validated reads nothing there"
    assert validated_ends(View.of([after])) == {}, "the ends it was written to are those of another topic"


ASIDE = a_topic(9, topic="bad")


def with_quarantine(rows: int, aside: int) -> Batch:
    """A staged batch, passed, with so many rows and so many records in quarantine."""
    receipt = a_receipt(rows=rows)
    both = receipt.model_copy(
        update={"topics": {**receipt.topics, "bad": Tally(rows=aside, fingerprint=aside, bytes=10**9)}}
    )
    made = a_batch(
        State.WRITTEN,
        plan=a_plan((0, 1), quarantine=a_topic(4, topic="bad")),
        written=a_written(both, output=a_topic(rows, topic="out"), quarantine=ASIDE),
        verdict=a_verdict(Outcome.PASSED),
    )
    return staged(made)


def test_only_staged_rows_are_published_and_only_they_count_for_how() -> None:
    batch = with_quarantine(ROWS, 3)
    assert batch.written is not None
    assert (batch.written.rows, batch.written.quarantined_tally.rows, batch.written.quarantined) == (
        5,
        3,
        {"malformed": 3},
    )
    assert [(r.start, r.end) for r in batch.quarantine_ranges(batch.written)] == [(4, 9)]
    (begun,) = publish_prepared(View.of([batch]), a_day(0), NOW, None, BEGINNING)
    assert begun.publication is not None
    assert begun.publication.atomic, "a gigabyte in quarantine is not copied"
    leased = begun.model_copy(update={"publication": begun.publication.model_copy(update={"lease": 7, "ledger": ""})})
    (done,) = copied(View.of([leased]), WHOLE)
    assert done.state is State.PUBLISHED
    with pytest.raises(TransitionRefused, match="does not hold the records that were written"):
        copied(View.of([leased]), a_receipt(0, 7, rows=ROWS + 3))


def test_a_staged_batch_of_which_all_went_to_quarantine_is_published_at_once() -> None:
    (after,) = publish_prepared(View.of([with_quarantine(0, 3)]), a_day(0), NOW, None, BEGINNING)
    assert (after.state, after.publication) == (State.PUBLISHED, None)
    assert [r.length for r in after.published_ranges] == [0]


def test_batches_that_are_published_at_once_have_lanes_of_their_own() -> None:
    """A lane is held until all of its marks are complete; how many there are is bounded by how many are published at once."""
    held = [of(State.PUBLISHING, n, n, publication=a_publication(lane=lane)) for n, lane in enumerate((0, 2))]
    done = of(State.PUBLISHED, 2, 2, publication=a_publication(lane=1))
    assert BEGINNING.publication(View.of([*held, done]), of(State.WRITTEN, 3), NOW).lane == 1
    assert BEGINNING.publication(View.of([done]), of(State.WRITTEN, 3), NOW).lane == 0


def test_a_whole_copy_is_recorded_and_moves_the_frontier() -> None:
    older = of(State.PUBLISHED, publication=a_publication(ended=a_topic(9, topic="out")))
    newer = of(State.PUBLISHING, lease=1, revision=2)
    done, gone = copied(View.of([older, newer]), WHOLE, revision=2)
    assert (done.state, gone.state) == (State.PUBLISHED, State.SUPERSEDED)
    assert done.published_ranges == (OffsetRange(topic="out", partition=0, start=0, end=30),)
    after = View.of([gone, done])
    assert (frontier(after), validated_ends(after)) == ({("in", 0): 1}, {("out", 0): 30})
    assert copied(after, WHOLE, revision=2) == (), "another attempt was faster"


@pytest.mark.parametrize(
    ("receipts", "said"),
    [
        ((), "do not cover"),
        ((a_receipt(0, 6, rows=ROWS),), "do not cover"),
        ((a_receipt(0, 7, rows=ROWS, ledger="x"),), "do not cover"),
        ((WHOLE, WHOLE), "do not cover"),
        ((a_receipt(0, 7, rows=ROWS - 1),), "does not hold the records"),
        ((a_receipt(0, 7, rows=0),), "does not hold the records"),
        ((a_receipt(0, 7, rows=ROWS, topic="staging"),), "does not hold the records"),
    ],
)
def test_a_copy_that_is_not_the_batch_is_not_published(receipts: tuple[Receipt, ...], said: str) -> None:
    with pytest.raises(TransitionRefused, match=said):
        copied(View.of([of(State.PUBLISHING)]), *receipts)


def test_a_late_attempt_of_a_publication_that_was_given_up_records_nothing() -> None:
    given_up = of(State.SUPERSEDED, publication=a_publication())
    again = a_batch(State.PLANNED, revision=2, lease=9)
    with pytest.raises(Superseded):
        copied(View.of([given_up, again]), WHOLE)
    again = of(State.PUBLISHING, publication=a_publication(lease=8))
    with pytest.raises(Superseded):
        copied(View.of([again]), WHOLE)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (lambda view: decide_skip(view, a_day(0), a_decision("skip")), "is being published and can be finished"),
        (lambda view: decide_withdraw(view, a_day(0), a_decision("withdraw")), "is being published"),
    ],
)
def test_an_operator_cannot_take_back_what_readers_may_see(asked: Callable[[View], object], word: str) -> None:
    with pytest.raises(TransitionRefused, match=word) as refused:
        asked(View.of([of(State.PUBLISHING)]))
    assert "p/" in str(refused.value)


def test_everybody_else_finds_it_under_way() -> None:
    batch = of(State.PUBLISHING)
    view = View.of([batch])
    assert standing_plan(view, a_day(0), reprocess=True) == batch, "a reprocess keeps it; it is finished first"
    assert batch_to_judge(view, a_day(0)) == batch
    assert record_verdict(view, a_day(0), 1, a_verdict(Outcome.REJECTED, 2)) == (), (
        "a slower validation decides nothing"
    )
    assert publish_prepared(view, a_day(0), NOW, a_decision("publish"), BEGINNING) == ()
    assert next_task(batch) == "advance"
    assert "finishes its publication" in what_next(batch)
    assert awaiting_reason(batch) is None
    assert awaiting_reason(batch, NOW + DAY, DAY / 2) is AwaitingReason.STUCK


def test_it_gives_way_to_a_new_revision_only_when_it_was_given_up() -> None:
    batch = of(State.PUBLISHING)
    view = View.of([batch])
    (fresh,) = record_planned(view, a_day(0), "p", a_plan((0, 1)), "asked")
    assert fresh.revision == 2
    given_up = AbandonedPublication(lease=7, seen=2)
    assert record_planned(
        view, a_day(0), "p", a_plan((0, 1)), "asked", given_up=AbandonedPublication(lease=6, seen=2)
    ) == (fresh,), "another publication was given up"
    fresh, gone = record_planned(view, a_day(0), "p", a_plan((0, 1)), "its records are gone", given_up=given_up)
    assert gone.state is State.SUPERSEDED
    assert gone.history[-1].note == (
        "by revision 2; given up during its publication; readers may have seen 2 of its 5 records"
    )


def test_an_operator_skips_or_reprocesses_what_was_given_up_and_no_other_publication() -> None:
    batch = of(State.PUBLISHING)
    view, given_up = View.of([batch]), AbandonedPublication(lease=7, seen=2)
    assert standing_plan(view, a_day(0), True, given_up) is None
    assert standing_plan(view, a_day(0), False, given_up) == batch, "nobody asked"
    assert standing_plan(view, a_day(0), True, AbandonedPublication(lease=6, seen=2)) == batch
    (skipped,) = decide_skip(view, a_day(0), a_decision("skip"), given_up)
    assert skipped.state is State.SKIPPED
    assert skipped.history[-1].note.endswith(
        "given up during its publication; readers may have seen 2 of its 5 records"
    )
    with pytest.raises(TransitionRefused):
        decide_skip(view, a_day(0), a_decision("skip"), AbandonedPublication(lease=6, seen=2))
    fresh, _ = record_planned(view, a_day(0), "p", a_plan((0, 1)), "asked", given_up=given_up)
    again = View.of([batch.model_copy(update={"state": State.SUPERSEDED}), fresh])
    assert standing_plan(again, a_day(0), True, given_up) == fresh, "a request that is retried makes one revision"


def test_a_refusal_is_recorded_once_and_does_not_outlive_a_copy() -> None:
    batch = of(State.PUBLISHING)
    (refused,) = record_refused(View.of([batch]), a_day(0), 1, 7, "too large.", NOW)
    assert (refused.state, refused.history[-1].note) == (State.PUBLISHING, "Kafka refused the copy: too large.")
    assert awaiting_reason(refused) is AwaitingReason.REFUSED
    assert "too large." in what_next(refused)
    view = View.of([refused])
    assert record_refused(view, a_day(0), 1, 7, "too large.", NOW) == ()
    assert record_refused(view, a_day(0), 1, 6, "another's", NOW) == ()
    (done,) = copied(view, WHOLE)
    assert done.publication is not None
    assert done.publication.refused == ""
    assert record_refused(View.of([done]), a_day(0), 1, 7, "late", NOW) == ()


def test_a_publication_begins_with_marks_that_stand_in_the_way_of_earlier_ones_and_not_in_its_own() -> None:
    """So a mark that is missing later was lost."""
    earlier = of(State.PUBLISHED, publication=a_publication(5, ledger="ledger-1"))
    elsewhere = of(State.SUPERSEDED, 1, publication=a_publication(90, ledger="ledger-0"))
    later = of(State.PUBLISHING, 2, publication=a_publication(9, ledger="ledger-1"))
    view = View.of([earlier, elsewhere, later])
    for publication in (a_publication(None, ledger="ledger-1", tasks=2), a_publication(9, ledger="ledger-1", tasks=2)):
        marks = opening_marks(view, publication)
        assert [(m.task, m.rows) for m in marks] == [(0, 0), (1, 0)]
        own = publication.lease or 10
        assert compare_mark(marks[0], own, "ledger-1", opened=True) is MarkState.WRITE
        assert compare_mark(marks[0], 5, "ledger-1", opened=True) in (MarkState.DONE, MarkState.SUPERSEDED)
    assert compare_mark(None, 9, "ledger-1", opened=True) is MarkState.LOST
    assert compare_mark(None, 9, "ledger-1") is MarkState.WRITE


@pytest.mark.parametrize("state", [s for s in State if s is not State.PUBLISHING])
def test_only_a_publication_under_way_has_a_lease_that_the_ledger_fills_in(state: State) -> None:
    """The codec's part: a record's own offset is the lease of what it begins, and of nothing else."""
    from types import SimpleNamespace

    from fencepost.ledger.codec import read_record, record_key, write_record
    from fencepost.ledger.ledger import is_lease_unknown

    pipeline: Any = SimpleNamespace(name="p", ledger_topic="ledger")
    begun = of(State.PUBLISHING, publication=a_publication(None))
    assert is_lease_unknown(begun)
    found = read_record(record_key(begun), write_record(begun), 41, pipeline)
    assert found.publication is not None
    assert (found.lease, found.publication.lease) == (0, 41)
    known = of(state, publication=a_publication(41))
    assert read_record(record_key(known), write_record(known), 50, pipeline) == known
    damaged = of(state, publication=a_publication(None))
    with pytest.raises(FencepostError, match="damaged in publication"):
        read_record(record_key(damaged), write_record(damaged), 50, pipeline)
