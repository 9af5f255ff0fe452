"""Partitions of two topics that have the same number are two partitions: in ranges, frontier, unread offsets and obstacles."""

from __future__ import annotations

import pytest

from fencepost.doctor.limits import to_be_written
from fencepost.errors import TopicRecreated
from fencepost.model import Batch, Layout, State, UnreadRange, by_partition
from fencepost.protocol.frontier import accounted_for, by_topic, frontier
from fencepost.protocol.obstacle import SourceState, sources_obstacle
from fencepost.protocol.ranges import frozen_ranges, range_starts, without_expired
from fencepost.protocol.unread import unread
from fencepost.protocol.view import View
from makers import a_batch, a_day, a_plan, a_source, a_written


def reading(state: State, day: int, a: tuple[int, int], b: tuple[int, int], lease: int = 0) -> Batch:
    """A batch that reads partition 0 of topics `a` and `b`, where they had offsets from 2 and 3 on."""
    before = (("a", 2, a[0]), ("b", 3, b[0])) if lease == 0 else ()
    parts = [UnreadRange(topic=topic, partition=0, start=start, end=end) for topic, start, end in before]
    inputs = tuple(
        a_source(ends, topic=topic, unread=tuple(part for part in parts if part.topic == topic))
        for topic, ends in (("a", a), ("b", b))
    )
    plan = a_plan(inputs=inputs, layout=Layout.OUTPUT)
    return a_batch(state, interval=a_day(day), lease=lease, plan=plan, written=a_written())


FIRST = reading(State.PUBLISHED, 0, (10, 15), (100, 102))
SECOND = reading(State.PLANNED, 1, (15, 15), (102, 109), lease=1)
VIEW = View.of([FIRST, SECOND])


def test_the_frontier_stands_in_each_of_them() -> None:
    assert frontier(VIEW) == accounted_for(VIEW) == {("a", 0): 15, ("b", 0): 102}
    assert by_topic(frontier(VIEW)) == {"a": {"0": 15}, "b": {"0": 102}}


def test_the_next_range_of_each_begins_where_its_own_last_one_ended() -> None:
    assert [range_starts(topic, FIRST, None, [200], None) for topic in "abc"] == [[15], [102], [0]]
    found = [frozen_ranges(a_day(0), topic, [0], SECOND, [200], [None]) for topic in "ab"]
    assert [(part.topic, part.partition, part.start, part.end) for (part,) in found] == [
        ("a", 0, 0, 15),
        ("b", 0, 0, 102),
    ]


def test_what_expired_in_one_is_not_lost_in_the_other() -> None:
    left, lost = without_expired(FIRST.plan.ranges, by_partition("a", [12]) | by_partition("b", [50]))
    assert [(part.topic, part.start, part.end) for part in left] == [("a", 12, 15), ("b", 100, 102)]
    assert [(part.topic, part.start, part.end) for part in lost] == [("a", 10, 12)]


def test_what_no_batch_reads_is_told_of_each() -> None:
    assert unread(VIEW).by_topic == {"a": {"0": (2, 10)}, "b": {"0": (3, 100)}}
    assert unread(VIEW).still_in(by_partition("a", [10]) | by_partition("b", [90])).by_topic == {"b": {"0": (90, 100)}}
    for topic, offsets in (("a", 8), ("b", 97)):
        assert f"{offsets} offsets of topic {topic} lie before the first range" in unread(VIEW).description


def test_what_is_to_be_written_of_each_begins_at_its_own_planned_range() -> None:
    assert [to_be_written(VIEW, topic) for topic in "ab"] == [{0: 15}, {0: 102}]


def test_an_interval_that_one_of_them_left_room_in_is_not_starved() -> None:
    empty = reading(State.PLANNED, 0, (15, 15), (100, 100), lease=2)
    assert View.of([empty, SECOND]).starved_by(a_day(0)) is None
    full = reading(State.PLANNED, 0, (15, 15), (102, 102), lease=2)
    assert View.of([full, SECOND]).starved_by(a_day(0)) == SECOND


@pytest.mark.parametrize(("remade", "told"), [("a", "source topic a was"), ("b", "source topic b was"), ("", None)])
def test_each_has_to_be_the_topic_that_was_planned(remade: str, told: str | None) -> None:
    found = {topic: SourceState(topic, f"{topic}-{2 if topic == remade else 1}", 1) for topic in "ab"}
    stopped = sources_obstacle(SECOND, found)
    assert (stopped is None) if told is None else (stopped is not None and told in stopped.why)
    assert stopped is None or stopped.kind is TopicRecreated
