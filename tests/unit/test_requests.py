"""A request for a reprocess or a replay is carried out once, however often the run that has it is cleared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.model import Batch, State
from fencepost.protocol.decisions import answer_to, record_answer
from fencepost.protocol.planning import Neighbours, SourceFacts, decide_plan, decide_replay, moves_here
from fencepost.protocol.replay import CurrentSources
from fencepost.protocol.view import OVER, PASSED, View
from makers import a_batch, a_day, a_plan, a_receipt, a_topic, a_written, task_blocks, the_facts

DAY = a_day(0)
SOURCES = CurrentSources(frozenset({"in"}))
ASKED, ANEW = "backfill 7 of 2026-01-05T09:30:00+00:00", "backfill 8 of 2026-01-06T09:30:00+00:00"
SOURCE = SourceFacts(topic="in", topic_id="in-1", earliest=(0,), stable=(10,), by_start=(0,), by_end=(5,))


def reprocessed(view: View, request: str | None) -> tuple[Batch, ...]:
    facts = replace(the_facts(neighbours=Neighbours(), source=SOURCE), neighbours=Neighbours.of(view, DAY, ["in"]))
    return decide_plan(view, DAY, facts, reprocess=True, request=request)


def view_of(*batches: Batch) -> View:
    return View.of([batch.model_copy(update={"lease": number}) for number, batch in enumerate(batches)])


def a_revision(state: State, revision: int = 1, *requests: str) -> Batch:
    (first,) = reprocessed(View(), None)
    return a_batch(state, revision=revision, plan=first.plan, requests=requests)


def test_the_revision_that_is_planned_for_a_request_records_it() -> None:
    (planned,) = reprocessed(view_of(a_revision(State.PUBLISHED)), ASKED)
    assert (planned.revision, planned.requests) == (2, (ASKED,))
    assert ASKED in planned.history[0].note


def test_the_first_revision_of_an_interval_answers_a_request_too() -> None:
    (planned,) = reprocessed(View(), ASKED)
    assert (planned.revision, planned.requests, planned.history[0].note) == (1, (ASKED,), "")


@pytest.mark.parametrize("state", sorted({*PASSED, State.REJECTED, State.SUPERSEDED}))
def test_a_request_that_was_answered_plans_nothing_whatever_became_of_its_revision(state: State) -> None:
    after = [a_revision(State.PUBLISHED, 3)] if state in OVER else []
    view = view_of(a_revision(State.PUBLISHED), a_revision(state, 2, ASKED), *after)
    assert reprocessed(view, ASKED) == ()
    assert answer_to(view, DAY, ASKED) == view.known(DAY).all[1]
    (again,) = reprocessed(view, ANEW)[:1]
    assert (again.revision, again.requests) == (3 + len(after), (ANEW,)), "another request is carried out"
    assert reprocessed(view, None), "and one without a name, of a command"


def test_an_interval_that_was_withdrawn_is_planned_anew_by_the_same_request() -> None:
    (planned,) = reprocessed(view_of(a_revision(State.WITHDRAWN, 1, ASKED)), ASKED)
    assert planned.revision == 2


def test_a_revision_under_way_answers_the_requests_that_find_it() -> None:
    """It was planned by a command or another backfill; the run of the request finishes it."""
    view = view_of(a_revision(State.PUBLISHED), a_revision(State.WRITTEN, 2, ASKED))
    assert reprocessed(view, ANEW) == ()
    (taken_over,) = record_answer(view, DAY, ANEW)
    assert (taken_over.revision, taken_over.requests, taken_over.state) == (2, (ASKED, ANEW), State.WRITTEN)
    assert record_answer(view.updated([taken_over]), DAY, ANEW) == ()


def test_a_revision_that_is_being_published_answers_no_later_request() -> None:
    view = view_of(a_revision(State.PUBLISHED), a_revision(State.PUBLISHING, 2))
    assert record_answer(view, DAY, ASKED) == ()


def test_a_replay_is_carried_out_once_for_each_request() -> None:
    quarantine = {"quarantine": a_topic(0, topic="quarantine"), "tasks": task_blocks(1, 1)}
    written = a_written(
        a_receipt(0, 0, 5),
        a_receipt(1, 0, 3, "quarantine"),
        quarantine=a_topic(3, topic="quarantine"),
        malformed=3,
    )
    base = a_batch(State.PUBLISHED, plan=a_plan((0, 10)).model_copy(update=quarantine), written=written)
    facts = the_facts(neighbours=Neighbours(), source=None, link=base, quarantine=a_topic(3, topic="quarantine"))
    (addition,) = decide_replay(View.of([base]), DAY, "p", SOURCES, facts, request=ASKED)
    assert (addition.adds_to, addition.requests) == (1, (ASKED,))
    skipped = addition.model_copy(update={"state": State.SKIPPED, "lease": 1})
    view = View.of([base, skipped])
    assert decide_replay(view, DAY, "p", SOURCES, facts, request=ASKED) == ()
    (again,) = decide_replay(view, DAY, "p", SOURCES, facts, request=ANEW)
    assert (again.revision, again.requests) == (3, (ANEW,))


@pytest.mark.parametrize(("cluster", "moves"), [("new", True), ("third", False)])
def test_a_request_that_says_that_the_pipeline_has_moved_means_one_cluster(cluster: str, moves: bool) -> None:
    plan = a_plan((0, 5)).model_copy(update={"cluster_id": "new"})
    view = view_of(a_batch(State.PUBLISHED, plan=plan, requests=(ASKED,)))
    assert moves_here(view, cluster, ASKED) is moves
    assert moves_here(view, cluster, ANEW)
    assert moves_here(view, cluster, None)
