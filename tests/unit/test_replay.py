"""A replay adds to a published interval what passes now of its quarantine: no record twice, and nothing else is touched."""

from __future__ import annotations

import pytest

from fencepost.errors import Superseded, TransitionRefused
from fencepost.model import Batch, Interval, Outcome, Replayed, State, Tally
from fencepost.outputs.topic.publication import validated_ends
from fencepost.protocol.decisions import (
    decide_skip,
    decide_withdraw,
    record_planned,
    record_written,
    standing_plan,
)
from fencepost.protocol.frontier import frontier, holding_back
from fencepost.protocol.replay import CurrentSources, left_to_replay, link_to_replay, replayed
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import View
from fencepost.quality.history import history_of
from fencepost.reading.validated import announced_batches
from makers import (
    NOW,
    a_batch,
    a_day,
    a_decision,
    a_plan,
    a_publication,
    a_receipt,
    a_source,
    a_topic,
    a_verdict,
    a_written,
    an_announcement,
    counted,
    publish_prepared,
    task_blocks,
)

DAY = a_day(0)
DECISION = a_decision("replay")
SOURCES = CurrentSources(frozenset({"in"}))


def a_base(state: State = State.PUBLISHED, left: int = 3, revision: int = 1, **changes: object) -> Batch:
    """A batch of day 0 that read offsets 0 to 9 and sent so many records to quarantine, at its topic's beginning."""
    return a_link(state, left, revision, a_plan((0, 10)), **changes)


def an_addition(
    state: State = State.PUBLISHED, left: int = 1, revision: int = 2, adds_to: int = 1, **changes: object
) -> Batch:
    """An addition to the batch, that replays records at the beginning of the quarantine topic."""
    link = Replayed(batch="p/x/1", tally=Tally(rows=3), attempt=revision)
    plan = a_plan(inputs=(a_source((0, 3), topic="quarantine"),), replays=link, malformed_tasks=1)
    return a_link(state, left, revision, plan, adds_to=adds_to, **changes)


def a_link(state: State, left: int, revision: int, plan: object, **changes: object) -> Batch:
    values = {"quarantine": a_topic(0, topic="quarantine"), "tasks": task_blocks(1, 1)}
    plan = plan.model_copy(update=values)  # type: ignore[attr-defined]
    receipts = [a_receipt(0, revision, 5)]
    if left:
        receipts.append(a_receipt(1, revision, left, "quarantine"))
    written = a_written(*receipts, quarantine=a_topic(left, topic="quarantine"), malformed=left)
    done = state is not State.PLANNED
    return a_batch(
        state,
        **{
            "revision": revision,
            "lease": revision,
            "plan": plan,
            "written": written if done else None,
            "verdict": a_verdict(Outcome.PASSED) if done else None,
            **changes,
        },
    )


def link_of(*batches: Batch, interval: Interval = DAY) -> Batch | None:
    return link_to_replay(View.of(batches), interval, "p", SOURCES)


def test_what_is_left_is_what_the_newest_published_link_quarantined() -> None:
    base, first, second = a_base(), an_addition(), an_addition(left=0, revision=3)
    assert link_of(base) == base
    assert link_of(base, first) == first
    assert link_of(base, first, an_addition(State.SKIPPED, revision=3)) == first
    assert link_of(base, first, an_addition(State.REJECTED, revision=3)) == first
    assert link_of(base, first, second) is None, "nothing is left"
    assert replayed(base) == Replayed(batch=str(base.id), tally=Tally(rows=3, fingerprint=3 * 7919), attempt=2)
    assert replayed(first).attempt == 3


@pytest.mark.parametrize("state", [State.PLANNED, State.WRITTEN, State.PUBLISHING])
def test_an_addition_under_way_is_kept_so_that_two_requests_make_one(state: State) -> None:
    assert link_of(a_base(), an_addition(state)) is None


def test_results_of_a_transform_are_left_to_replay_too() -> None:
    base = a_base(left=3)
    assert base.written is not None
    results = base.model_copy(
        update={"written": counted(base.written, malformed=0).model_copy(update={"result_rows": 3})}
    )
    assert left_to_replay(results) == 3
    assert link_of(results) == results
    assert results.written is not None
    assert results.written.bypassed == 3


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], r"was never planned.*`fencepost run p"),
        (
            [a_base(State.PLANNED)],
            r"is planned: only a published interval's records can be replayed.*`fencepost run .*finishes it",
        ),
        ([a_base(State.REJECTED)], r"is rejected: only.*`fencepost run"),
        ([a_base(State.SKIPPED)], r"is skipped: only.*`fencepost run .*--reprocess"),
        ([a_base(State.PUBLISHING, publication=a_publication())], r"is publishing: only.*`fencepost run"),
        ([a_base(), a_base(State.WRITTEN, revision=2)], r"/2, a new revision of the interval, is written.*finishes it"),
        ([a_base(), an_addition(), a_base(State.REJECTED, revision=3)], r"/3, a new revision .* is rejected"),
    ],
)
def test_what_is_not_published_or_about_to_be_replaced_is_not_replayed(batches: list[Batch], words: str) -> None:
    with pytest.raises(TransitionRefused, match=words):
        link_of(*batches)


def planned_by(view: View, adds_to: int | None = None) -> dict[int, State]:
    """The states by revision, of what a plan records."""
    records = record_planned(view, DAY, "p", a_plan((0, 10)), "", adds_to=adds_to)
    return {b.revision: b.state for b in records}


def test_an_addition_replaces_an_unfinished_addition_and_never_the_batch() -> None:
    rejected = View.of([a_base(), an_addition(State.REJECTED)])
    assert planned_by(rejected, adds_to=1) == {3: State.PLANNED, 2: State.SUPERSEDED}
    assert planned_by(View.of([a_base()]), adds_to=1) == {2: State.PLANNED}
    assert planned_by(View.of([a_base(), an_addition()]), adds_to=1) == {3: State.PLANNED}


def test_publishing_an_addition_supersedes_nothing_and_a_new_revision_supersedes_batch_and_additions() -> None:
    written = View.of([a_base(), an_addition(), an_addition(State.WRITTEN, revision=3)])
    assert {b.revision: b.state for b in publish_prepared(written, DAY, NOW)} == {3: State.PUBLISHED}
    skipped = an_addition(State.SKIPPED, revision=3)
    again = View.of([a_base(), an_addition(), skipped, a_base(State.WRITTEN, revision=4)])
    assert {b.revision: b.state for b in publish_prepared(again, DAY, NOW)} == {
        4: State.PUBLISHED,
        1: State.SUPERSEDED,
        2: State.SUPERSEDED,
        3: State.SUPERSEDED,
    }


@pytest.mark.parametrize("state", [s for s in State if s is not State.WITHDRAWN])
def test_an_addition_is_never_the_batch_of_its_interval(state: State) -> None:
    """Neither for the frontier and what counts, nor for the ranges of neighbours, nor for the gate's history."""
    base, addition = a_base(), an_addition(state, publication=a_publication() if state is State.PUBLISHING else None)
    later = a_batch(State.PLANNED, interval=a_day(1), lease=9, plan=a_plan((10, 20)))
    alone, view = View.of([base, later]), View.of([base, addition, later])
    assert view.last(DAY) == addition
    assert view.in_force(DAY) == view.last_batch(DAY) == view.range_owner(DAY) == view.before(a_day(1)) == base
    assert view.run == alone.run
    assert frontier(view) == frontier(alone) == {("in", 0): 10}
    assert validated_ends(view) == validated_ends(alone)
    assert holding_back(view) == holding_back(alone)
    assert view.known(DAY).additions_in_force == ((addition,) if state is State.PUBLISHED else ())
    assert base.written is not None
    assert len(history_of(later, base.written, view.all()).before) == 1


def test_a_run_finishes_an_addition_and_reprocess_replaces_it_by_a_new_revision_of_the_batch() -> None:
    for state in (State.PLANNED, State.WRITTEN, State.REJECTED):
        view = View.of([a_base(), an_addition(state)])
        assert standing_plan(view, DAY, reprocess=False) == view.last(DAY)
        assert standing_plan(view, DAY, reprocess=True) is None
        assert planned_by(view) == {3: State.PLANNED, 2: State.SUPERSEDED}
    publishing = View.of([a_base(), an_addition(State.PUBLISHING, publication=a_publication())])
    assert standing_plan(publishing, DAY, reprocess=True) == publishing.last(DAY), "readers may see it already"


def test_an_addition_is_skipped_alone_and_not_withdrawn() -> None:
    view = View.of([a_base(), an_addition(State.REJECTED)])
    (skipped,) = decide_skip(view, DAY, a_decision("skip"))
    assert (skipped.revision, skipped.state) == (2, State.SKIPPED)
    assert frontier(view.updated([skipped])) == frontier(view)
    with pytest.raises(
        TransitionRefused,
        match=r"is an addition to the published revision 1.*`fencepost skip .* drops the addition alone",
    ):
        decide_withdraw(view, DAY, a_decision("withdraw"))
    with pytest.raises(TransitionRefused, match=r"/2, an addition to revision 1, is skipped.*`fencepost replay"):
        publish_prepared(view.updated([skipped]), DAY, NOW, a_decision("publish"))


def test_a_rejected_addition_awaits_a_person_who_is_told_what_each_command_does_to_it() -> None:
    rejected = an_addition(State.REJECTED, verdict=a_verdict(Outcome.REJECTED))
    (found,) = snapshot_of(View.of([a_base(), rejected])).awaiting()
    assert found.description == "revision 2 was rejected; revision 1, which it adds to, stays published"
    assert "adds it to revision 1 as it is" in found.advice
    assert "drops this addition and leaves revision 1 as it is" in found.advice


def test_an_addition_is_written_when_what_fails_again_is_committed_too() -> None:
    view = View.of([a_base(), an_addition(State.PLANNED)])
    result = an_addition(State.WRITTEN).written
    assert result is not None
    receipts = [a_receipt(0, 2, 5), a_receipt(1, 2, topic="quarantine")]
    (done,) = record_written(view, DAY, 2, result, receipts)
    assert (done.state, done.adds_to) == (State.WRITTEN, 1)
    with pytest.raises(TransitionRefused, match=r"2 task-partitions, missing \[1\]"):
        record_written(view, DAY, 2, result, receipts[:1])
    results = counted(result, malformed=0).model_copy(update={"result_rows": 1})
    with pytest.raises(TransitionRefused, match=r"2 task-partitions, missing \[1\]"):
        record_written(view, DAY, 2, results, receipts[:1])


def test_readers_get_an_addition_by_its_own_event_and_no_addition_stands_for_its_batch() -> None:
    base, addition, renewed, again = (
        an_announcement(batch=f"p/{DAY}/{n}", revision=n, adds_to=adds_to)
        for n, adds_to in ((1, None), (2, 1), (3, None), (4, 3))
    )
    assert announced_batches([addition, base], [base, addition]) == [base, addition]
    assert announced_batches([addition], [base, addition]) == [addition]
    told = [base, addition, renewed, again]
    assert announced_batches([base, again, renewed], told) == [renewed, again]
    with pytest.raises(Superseded, match=r"batch p/.*/1 is superseded"):
        announced_batches([base, again], told)
