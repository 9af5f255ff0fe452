"""A pipeline's sources change: which plans are refused, where each topic begins, and what is replayed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.errors import FactsOutdated, SourcesChanged
from fencepost.model import MALFORMED, Batch, Interval, Layout, OffsetRange, Replayed, State, Tally, UnreadRange
from fencepost.protocol.frontier import accounted_for, frontier
from fencepost.protocol.planning import (
    Neighbours,
    SourceFacts,
    check_source_topics,
    decide_plan,
    new_source_begins,
    sources_confirmed,
    unfinished_of,
)
from fencepost.protocol.ranges import frozen_ranges, range_starts
from fencepost.protocol.replay import CurrentSources, can_be_replayed, check_reads, left_to_replay, link_to_replay
from fencepost.protocol.unread import unread, unread_at_plan
from fencepost.protocol.view import View
from fencepost.steps import advance
from makers import a_batch, a_day, a_plan, a_publication, a_receipt, a_source, a_topic, a_written, planned, the_facts

Ranges = dict[str, tuple[int, int]]  # of partition 0, by topic


def a_reader(day: int, ranges: Ranges, state: State = State.PUBLISHED, lease: int = 0, **changes: object) -> Batch:
    """A batch of the day that reads these ranges."""
    inputs = tuple(a_source(ends, topic=topic) for topic, ends in ranges.items())
    plan = a_plan(inputs=inputs, layout=Layout.OUTPUT)
    return a_batch(state, **{"interval": a_day(day), "lease": lease or day, "plan": plan, **changes})


def checked(view: View, day: int, reads: str, *, confirmed: bool = False) -> None:
    near = Neighbours.of(view, a_day(day), reads)
    check_source_topics(view, a_day(day), "p", near, tuple(reads), confirmed=confirmed)


def refusal(view: View, day: int, reads: str, *, confirmed: bool = False) -> str:
    with pytest.raises(SourcesChanged) as refused:
        checked(view, day, reads, confirmed=confirmed)
    return str(refused.value)


BOTH = View.of([a_reader(0, {"a": (0, 5), "b": (10, 12)})])


def test_only_a_pipeline_that_has_all_topics_of_a_batch_plans_it_again() -> None:
    assert refusal(BOTH, 0, "ac", confirmed=True) == (
        "pipeline p reads topics a, c, and batch p/20260101T000000Z-20260102T000000Z/1 was planned with topic b. Nothing was "
        "planned for interval 20260101T000000Z-20260102T000000Z. Only a pipeline that has all sources of a batch can plan it "
        "again: add the source, or leave the interval as it is."
    )
    checked(BOTH, 0, "abc")


def test_only_a_pipeline_that_has_all_topics_of_a_planned_interval_plans_one_before_it() -> None:
    """Otherwise what lies between two planned intervals in the other topic would be in none."""
    late = View.of([a_reader(2, {"a": (0, 5), "b": (10, 12)})])
    assert refusal(late, 1, "a", confirmed=True).endswith(
        "and batch p/20260103T000000Z-20260104T000000Z/1 was planned with topic b. Nothing was planned for interval "
        "20260102T000000Z-20260103T000000Z. Only a pipeline that has all sources of a batch can plan an interval before it: "
        "add the source, or leave the interval as it is."
    )
    checked(late, 1, "abc")
    assert Neighbours.of(late, a_day(1), "abc").topics("abc") == ("a", "b"), "c belongs to later intervals"


def test_a_change_is_confirmed_by_a_person() -> None:
    assert refusal(BOTH, 1, "ac") == (
        "pipeline p reads topics a, c, and the newest interval 20260101T000000Z-20260102T000000Z was planned with topics a, b. "
        "Added: c. Left out: b. Nothing was planned. If a topic in pipeline.yaml is wrong, correct it. If the sources have "
        "changed, confirm it once: "
        "`fencepost run p --start 2026-01-02T00:00:00Z --end 2026-01-03T00:00:00Z --sources-changed`, or the parameter "
        "sources_changed of a backfill in Airflow. A new topic is read from 2026-01-02 00:00 UTC on, and a topic that returns "
        "from the end of its last range on."
    )
    for reads in ("a", "b", "abc", "c"):
        assert "confirm it once" in refusal(BOTH, 1, reads)
        checked(BOTH, 1, reads, confirmed=True)
    checked(BOTH, 1, "ba")
    checked(View(), 1, "ab")


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (State.PLANNED, "publish this batch with the former ones, or skip it, or withdraw it, and run again."),
        (State.REJECTED, "publish this batch with the former ones, or skip it, or withdraw it, and run again."),
        (State.PUBLISHING, "publish this batch with the former ones, or skip it, and run again."),
    ],
)
def test_a_topic_does_not_leave_before_its_batches_are_finished(state: State, advice: str) -> None:
    publication = {"publication": a_publication()} if state is State.PUBLISHING else {}
    view = View.of([a_reader(0, {"a": (0, 5), "b": (10, 10)}, state, **publication)])
    assert refusal(view, 1, "ac", confirmed=True) == (
        f"pipeline p reads topics a, c, and batch p/20260101T000000Z-20260102T000000Z/1 of an interval that reads topic b is "
        f"{state}. Nothing was planned. If a topic in pipeline.yaml is wrong, correct it. If the sources have changed, {advice}"
    )


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        pytest.param([a_reader(0, {"b": (0, 1)}, State.SKIPPED)], None, id="skipped"),
        pytest.param([a_reader(0, {"b": (1, 1)}, State.PLANNED)], None, id="without offsets"),
        pytest.param([a_reader(0, {"a": (0, 1)}, State.PLANNED)], None, id="of a topic that stays"),
        pytest.param([a_reader(0, {"b": (0, 1)}, State.WITHDRAWN)], None, id="withdrawn"),
        pytest.param([a_reader(0, {"b": (0, 1)}, State.WRITTEN)], (0, 1), id="written"),
        pytest.param(
            [a_reader(0, {"b": (0, 1)}), a_reader(0, {"b": (0, 1)}, State.PLANNED, 9, revision=2)],
            (0, 2),
            id="a new revision of a published batch",
        ),
        pytest.param(
            [a_reader(0, {"b": (0, 1)}), a_reader(0, {"q": (0, 1)}, State.REJECTED, 9, revision=2, adds_to=1)],
            (0, 2),
            id="an addition",
        ),
        pytest.param(
            [a_reader(0, {"a": (0, 2), "b": (1, 1)}, State.PLANNED)],
            (0, 1),
            id="with offsets of another topic alone: no pipeline without the topic can write it",
        ),
        pytest.param(
            [a_reader(0, {"b": (0, 1)}, State.REJECTED), a_reader(1, {"a": (0, 1)})],
            (0, 1),
            id="of a topic that left before",
        ),
    ],
)
def test_the_batch_that_a_topic_has_to_wait_for(batches: list[Batch], found: tuple[int, int] | None) -> None:
    batch = unfinished_of(View.of(batches), ("a",))
    assert (batch and (batch.interval, batch.revision)) == (found and (a_day(found[0]), found[1]))


def test_a_request_confirms_one_set_of_topics() -> None:
    """A backfill's request has many intervals. Those before others have fewer topics than the pipeline reads."""
    late = a_reader(0, {"a": (0, 1)}, requests=("backfill 7",))
    newest = a_reader(1, {"a": (1, 2), "b": (0, 1)}, State.WITHDRAWN, requests=("backfill 7",))
    addition = a_reader(0, {"q": (0, 1)}, revision=2, adds_to=1, lease=9, requests=("backfill 7",))
    view = View.of([late, newest, addition])
    assert sources_confirmed(view, "ab", "backfill 7")
    assert not sources_confirmed(view, "ac", "backfill 7")
    assert sources_confirmed(view, "ac", "backfill 8")
    assert sources_confirmed(view, "ac", None)


def test_a_topic_begins_where_the_preceding_interval_ends_or_its_own_last_range() -> None:
    view = View.of([a_reader(0, {"a": (0, 5), "b": (10, 12)}), a_reader(2, {"a": (5, 9)})])
    newest = Neighbours.of(view, a_day(4), "abc")
    assert newest.readers == {"a": view.last(a_day(2)), "b": view.last(a_day(0))}
    assert new_source_begins(a_day(4), newest, "c") == a_day(2).end
    assert new_source_begins(a_day(4), newest, "a") is new_source_begins(a_day(4), newest, "b") is None
    assert range_starts("b", newest.readers["b"], None, [99, 99], None) == [12, 0], (
        "a younger partition from its beginning"
    )
    first = Neighbours.of(View(), a_day(4), "abc")
    assert new_source_begins(a_day(4), first, "c") == a_day(4).start


def test_an_interval_that_is_planned_before_a_topics_first_range_reads_nothing_of_it() -> None:
    view = View.of([a_reader(0, {"a": (0, 5)}), a_reader(3, {"a": (5, 9), "b": (10, 12)})])
    near = Neighbours.of(view, a_day(2), "ab")
    assert (near.topics("ab"), new_source_begins(a_day(2), near, "b")) == (("a", "b"), None)
    starts = range_starts("b", None, near.after, [99, 99], None)
    assert starts == [10, 0]
    parts = frozen_ranges(a_day(2), "b", starts, near.after, [99, 99], [50, 50])
    assert [(part.start, part.end) for part in parts] == [(10, 10), (0, 0)]


def the_source(topic: str, **changes: object) -> SourceFacts:
    facts = SourceFacts(topic=topic, topic_id=f"{topic}-1", earliest=(0,), stable=(20,), by_end=(None,))
    return replace(facts, **changes)  # type: ignore[arg-type]


def test_a_topic_that_left_does_not_make_the_facts_of_an_interval_before_outdated() -> None:
    """Found by reading: the readers of all the pipeline's topics were compared with those of the interval's topics."""
    view = View.of([a_reader(0, {"a": (0, 5), "b": (10, 12)}), a_reader(2, {"a": (5, 9)})])
    near = Neighbours.of(view, a_day(1), "ab")
    facts = the_facts(neighbours=near, source=the_source("a"), reads=("a", "b"))
    (batch,) = decide_plan(view, a_day(1), facts, reprocess=False)
    assert [(part.topic, part.start, part.end) for part in batch.plan.ranges] == [("a", 5, 5)]
    other = View.of([a_reader(0, {"a": (0, 5), "b": (10, 14)}), a_reader(2, {"a": (5, 9)})])
    with pytest.raises(FactsOutdated):
        decide_plan(other, a_day(1), facts, reprocess=False)


def test_a_plan_is_refused_with_facts_that_were_gathered_before_the_sources_changed() -> None:
    near = Neighbours.of(View(), a_day(1), "a")
    facts = the_facts(neighbours=near, source=the_source("a", by_start=(0,)))
    with pytest.raises(SourcesChanged, match="confirm it once"):
        decide_plan(BOTH, a_day(1), facts, reprocess=False)


BEFORE = UnreadRange(topic="b", partition=0, start=4, end=10, last_timestamp=-1)
LATER = planned(
    a_reader(3, {"a": (5, 9)}), inputs=(a_source((5, 9), topic="a"), a_source((10, 12), topic="b", unread=(BEFORE,)))
)


def test_what_lies_before_the_first_range_of_a_topic_that_came_later_is_in_no_interval() -> None:
    view = View.of([a_reader(0, {"a": (0, 5)}), LATER])
    (found,) = unread(view).topics
    assert (found.topic, found.offsets, found.is_new, found.start) == ("b", 6, True, a_day(3).start)
    assert unread_at_plan(LATER).offsets == 6
    assert unread(view).advice("p") == (
        "No batch of this pipeline can read those of topic b: the earlier intervals were planned without it. A pipeline of "
        "another name can"
    )
    covering = planned(LATER, also_covers=Interval(start=a_day(1).start, end=a_day(3).start))
    (found,) = unread(View.of([a_reader(0, {"a": (0, 5)}), covering])).topics
    assert found.start == a_day(1).start, "it also covers the days that nobody planned"


def test_the_frontier_of_each_topic_begins_at_the_interval_that_was_planned_first_with_it() -> None:
    """Found by the model: the interval that was planned first left, and an offset of another topic was unexplained."""
    batches = [
        a_reader(0, {"a": (0, 0)}, lease=1),
        a_reader(2, {"a": (0, 0), "b": (7, 7)}, State.PLANNED, 2),
        a_reader(1, {"a": (0, 0), "b": (7, 7)}, lease=3),
    ]
    view = View.of(batches)
    assert view.anchors == {"a": a_day(0), "b": a_day(2)}
    assert frontier(view) == {("a", 0): 0}
    without = View.of([batches[0].model_copy(update={"state": State.WITHDRAWN}), *batches[1:]])
    assert without.anchors == {"a": a_day(2), "b": a_day(2)}
    assert accounted_for(without) == {("a", 0): 0}


def test_a_topic_that_begins_earlier_when_its_first_interval_is_planned_again_moves_no_offset_back() -> None:
    withdrawn = a_reader(2, {"a": (0, 0), "b": (8, 9)}, State.WITHDRAWN, 2)
    again = a_reader(2, {"a": (0, 0), "b": (3, 9)}, State.PLANNED, 4, revision=2)
    view = View.of([a_reader(0, {"a": (0, 0)}, lease=1), withdrawn, again])
    assert frontier(view)["b", 0] == accounted_for(view)["b", 0] == 8


def a_link(results: int = 3, unreadable: int = 0) -> Batch:
    """A published batch that reads two topics and sent five records to quarantine: results that failed, and malformed ones."""
    receipts = (a_receipt(0, 0, 5), a_receipt(1, 0, 5, "quarantine"))
    written = a_written(*receipts, quarantine=a_topic(5, topic="quarantine"), unreadable_results=unreadable)
    written = written.model_copy(update={"rules": {"positive": results}})
    return planned(
        a_reader(0, {"a": (0, 5), "b": (10, 12)}, written=written), quarantine=a_topic(0, topic="quarantine")
    )


def test_a_pipeline_that_joins_sources_replays_results_alone() -> None:
    link = a_link()
    assert link.require_written.quarantined[MALFORMED] == 2
    assert (left_to_replay(link), left_to_replay(link, results_only=True)) == (5, 3)
    assert left_to_replay(a_link(unreadable=1), results_only=True) == 4, "a result that cannot be read is a result"
    assert left_to_replay(a_link(results=0), results_only=True) == 0
    assert left_to_replay(a_reader(0, {"a": (0, 1)}, State.PLANNED)) == 0
    view, reads = View.of([a_link(results=0)]), CurrentSources(frozenset("ab"))
    assert link_to_replay(view, a_day(0), "p", reads) == view.last(a_day(0))
    assert link_to_replay(view, a_day(0), "p", CurrentSources(frozenset("ab"), results_only=True)) is None
    assert can_be_replayed(view, a_day(0), reads)
    assert not can_be_replayed(view, a_day(0), replace(reads, results_only=True))


def test_records_of_a_topic_that_the_pipeline_no_longer_reads_are_not_replayed() -> None:
    view = View.of([a_link()])
    check_reads(view, a_day(0), "abc")
    with pytest.raises(SourcesChanged) as refused:
        check_reads(view, a_day(0), "a")
    assert str(refused.value) == (
        "batch p/20260101T000000Z-20260102T000000Z/1 was planned with topic b, which the pipeline no longer reads, so its "
        "quarantined records cannot be replayed. Add the source to pipeline.yaml to replay them."
    )
    assert not can_be_replayed(view, a_day(0), CurrentSources(frozenset("a")))
    with pytest.raises(SourcesChanged):
        link_to_replay(view, a_day(0), "p", CurrentSources(frozenset("a")))


def test_an_addition_under_way_is_no_reader_of_its_quarantine_topic() -> None:
    """Its interval's topics are those of the batch it adds to."""
    replays = Replayed(batch="p/x/1", tally=Tally(rows=3), attempt=2)
    addition = a_reader(0, {"quarantine": (0, 3)}, State.PLANNED, 9, revision=2, adds_to=1)
    addition = planned(addition, replays=replays)
    view = View.of([a_link(), addition])
    assert view.newest == view.last_batch(a_day(0))
    assert view.before(a_day(1), "quarantine") is None
    assert set(view.anchors) == {"a", "b"}


def test_records_that_expired_while_a_topic_was_away_are_lost_and_named() -> None:
    view = View.of([a_reader(0, {"a": (0, 5), "b": (10, 12)}), a_reader(1, {"a": (5, 9)})])
    near = Neighbours.of(view, a_day(2), "ab")
    sources = (the_source("a"), the_source("b", earliest=(15,)))
    facts = the_facts(neighbours=near, reads=("a", "b"), sources_changed=True)
    facts = replace(facts, sources=tuple(replace(one, accept_loss=True) for one in sources))
    (batch,) = decide_plan(view, a_day(2), facts, reprocess=False)
    assert batch.plan.lost == (OffsetRange(topic="b", partition=0, start=12, end=15),)
    assert [(part.topic, part.start, part.end) for part in batch.plan.ranges] == [("a", 9, 20), ("b", 15, 20)]


@pytest.mark.parametrize(
    ("reads", "moved"), [("ab", [("a", 5), ("b", 12)]), ("a", [("a", 5)]), ("abc", [("a", 5), ("b", 12)])]
)
def test_group_offsets_move_in_topics_that_both_the_newest_interval_and_the_pipeline_read(
    reads: str, moved: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that left may be deleted before the next interval is planned, and its offset would fail the commit."""
    pipeline = SimpleNamespace(group="p", source_topics=dict.fromkeys(reads))
    deployment: Any = SimpleNamespace(pipeline=pipeline)
    monkeypatch.setattr(advance, "output_of", lambda _: SimpleNamespace(offsets=None))
    moves = advance._offsets_to_move(deployment, BOTH, {"p": {}})
    assert [(one.topic, one.offset) for one in moves["p"]] == moved
