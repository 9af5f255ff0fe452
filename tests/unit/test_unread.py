"""Offsets before the first range: counted as the ledger stands, whatever is planned, withdrawn or deleted afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from fencepost.config.source import Source
from fencepost.kafka.cluster import Topic
from fencepost.model import Batch, Interval, OffsetRange, State, TopicInput, UnreadRange, by_partition
from fencepost.protocol.announcing import history
from fencepost.protocol.planning import Neighbours, SourceFacts, decide_plan
from fencepost.protocol.unread import Unread, UnreadOf, unread, unread_at_plan
from fencepost.protocol.view import View
from fencepost.steps import plan as steps_plan
from makers import a_batch, a_day, a_plan, a_source, a_written, the_facts

SECONDS = 1_767_225_600  # of 2026-01-01, where Kafka expects milliseconds


def plan(batches: list[Batch], number: int, source: SourceFacts) -> Batch:
    """The plan of a day by the product's own decision."""
    view = View.of(batches)
    facts = the_facts(neighbours=Neighbours.of(view, a_day(number), ["in"]), source=source)
    planned = [b for b in decide_plan(view, a_day(number), facts, reprocess=True) if b.lease is None]
    return planned[-1].model_copy(update={"lease": len(batches), "state": State.REJECTED})


def source(begins: tuple[int, ...], starts: tuple[int | None, ...], **changes: object) -> SourceFacts:
    """A topic that begins there and ends at 200, where the day's first records are at `starts`."""
    ends = (200,) * len(begins)
    facts = SourceFacts(topic="in", topic_id="in-1", earliest=begins, stable=ends, by_start=starts, by_end=ends)
    return replace(facts, **changes)  # type: ignore[arg-type]


def counted(batches: list[Batch]) -> list[tuple[int, int, int]]:
    return [(part.partition, part.start, part.end) for part in unread(View.of(batches)).ranges]


def test_the_first_plan_freezes_what_lies_before_its_ranges_and_how_the_last_of_it_is_stamped() -> None:
    first = plan([], 5, source((10, 0, 7), (100, 0, None), last_timestamps={("in", 0): SECONDS, ("in", 2): -1}))
    assert first.plan.inputs[0].unread == (
        UnreadRange(topic="in", partition=0, start=10, end=100, last_timestamp=SECONDS),
        UnreadRange(topic="in", partition=2, start=7, end=200, last_timestamp=-1),
    )
    assert unread_at_plan(first).offsets == 90 + 193
    assert counted([first]) == [(0, 10, 100), (2, 7, 200)]
    second = plan([first], 6, source((10, 0, 7), (100, 0, None)))
    assert second.plan.unread == ()
    assert counted([first, second]) == [(0, 10, 100), (2, 7, 200)]


def test_an_earlier_interval_that_is_planned_afterwards_takes_some_of_them() -> None:
    first = plan([], 5, source((10,), (100,), last_timestamps={("in", 0): SECONDS}))
    earlier = plan([first], 4, source((10,), (60,), last_timestamps={("in", 0): -1}))
    assert (earlier.plan.ranges[0].start, earlier.plan.ranges[0].end) == (60, 100)
    assert counted([first, earlier]) == [(0, 10, 60)]
    assert unread(View.of([first, earlier])).ranges[0].last_timestamp == -1
    whole = plan([first, earlier], 3, source((10,), (10,)))
    assert counted([first, earlier, whole]) == []
    withdrawn = whole.model_copy(update={"state": State.WITHDRAWN})
    assert counted([first, earlier, withdrawn]) == [(0, 10, 60)]


def test_what_lay_before_a_first_interval_that_is_withdrawn_is_still_unread() -> None:
    """It had no record, or it could not be withdrawn. The second one was planned behind it, and knows of nothing before."""
    first = plan([], 5, replace(source((10,), (100,)), stable=(100,), by_end=(100,)))
    second = plan([first], 6, source((10,), (100,)))
    assert (first.plan.offsets, second.plan.offsets, second.plan.unread) == (0, 100, ())
    assert counted([first, second]) == [(0, 10, 100)]
    assert counted([first.model_copy(update={"state": State.WITHDRAWN}), second]) == [(0, 10, 100)]


def test_a_reprocess_of_the_first_interval_keeps_what_was_frozen() -> None:
    first = plan([], 5, source((10,), (100,), last_timestamps={("in", 0): SECONDS}))
    again = plan([first], 5, source((50,), (100,)))
    assert (again.revision, again.plan.unread) == (2, first.plan.unread)
    assert counted([first, again]) == [(0, 10, 100)]


def test_a_partition_that_was_added_later_is_read_from_its_beginning() -> None:
    first = plan([], 5, source((10,), (100,)))
    second = plan([first], 6, source((10, 0), (None, None)))
    assert second.plan.ranges[1].start == 0
    assert counted([first, second]) == [(0, 10, 100)]


class TopicThatGrows:
    """A ledger and its cluster, where the topic has got a second partition since the facts were gathered."""

    def __init__(self) -> None:
        self.cluster, self.pipeline = (
            self,
            SimpleNamespace(group="p", source_topics={"in": Source(topic="in", format="bytes")}),
        )

    def describe(self, name: str) -> Topic:
        return Topic(name, "in-1", 2)

    def earliest(self, topic: Topic) -> list[int]:
        return [10] * topic.partitions

    def last_stable(self, topic: Topic) -> list[int]:
        return [200] * topic.partitions


def test_a_partition_that_is_added_while_the_first_interval_is_planned_does_not_stop_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps_plan, "source_facts", lambda *_: source((10,), (10,)))
    monkeypatch.setattr(steps_plan, "_facts", lambda *arguments: arguments[2])
    facts: object = steps_plan.facts_of_plan(TopicThatGrows(), Neighbours(), a_day(5), None)  # type: ignore[arg-type]
    assert facts == (source((10,), (10,)),)


def test_what_retention_deletes_is_not_unread() -> None:
    found = unread(View.of([plan([], 5, source((10, 0), (100, 40)))]))
    assert found.offsets == 130
    assert found.still_in(by_partition("in", [60, 40])).by_topic == {"in": {"0": (60, 100)}}
    assert found.still_in(by_partition("in", [100, 200])).description == ""
    assert found.still_in(by_partition("in", [60])).by_topic == {"in": {"0": (60, 100)}}, (
        "a topic that was created again has fewer partitions"
    )
    assert unread(View.of([])) == Unread()


NOW = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timestamp", "said"),
    [
        (
            SECONDS,
            "partition 0: 90, the last record with timestamp 1767225600, 1970-01-21 10:53 UTC: seconds taken for milliseconds?",
        ),
        (-1, "partition 0: 90, the last record without a timestamp"),
        (0, "the last record with timestamp 0, 1970-01-01 00:00 UTC"),
        (SECONDS * 1000 - 1000, "the last record with timestamp 1767225599000, 2025-12-31 23:59 UTC)"),
        (SECONDS * 1_000_000, "in the year 57971: microseconds taken for milliseconds?"),
        (None, "(partition 0: 90)"),
    ],
)
def test_the_reason_names_how_the_last_record_is_stamped(timestamp: int | None, said: str) -> None:
    part = UnreadRange(topic="in", partition=0, start=10, end=100, last_timestamp=timestamp)
    found = Unread((UnreadOf(a_day(0).start, NOW, (part,)),))
    assert said in found.reason
    assert found.description.startswith(
        "90 offsets of topic in lie before the first range, and no batch reads them. Each of their records is older "
        "than 2026-01-01 00:00 UTC, from when on the pipeline reads the topic, has no timestamp, or is dated ahead of the clock"
    )
    assert "`fencepost run p --start 1970-01-01T00:00:00Z --end 2026-01-01T00:00:00Z` reads them" in found.advice("p")


def test_a_pipeline_that_looks_back_is_not_told_to_read_them_before_its_first_interval() -> None:
    """`TransitionRefused` would answer that command. The first interval is empty, so it looks back at nothing itself."""
    again = TopicInput(topic="in", topic_id="in-1", ranges=())
    empty = plan([], 5, source((10,), (100,), by_end=(100,)))
    second = plan([empty], 6, source((10,), (100,)))
    looking = second.model_copy(update={"plan": second.plan.model_copy(update={"looked_back": (again,)})})
    advice = unread(View.of([empty, looking])).advice("p")
    assert advice == (
        "No batch of this pipeline can read those of topic in: it looks back, and the first interval was planned without "
        "them. A pipeline of another name can, if its first interval is an earlier one"
    )


def test_a_reason_lists_five_partitions() -> None:
    parts = tuple(UnreadRange(topic="in", partition=p, start=0, end=1) for p in range(7))
    assert Unread((UnreadOf(NOW, NOW, parts),)).reason.endswith("partition 4: 1; and 2 more partitions)")


def test_it_is_announced_with_the_first_interval_and_not_with_its_withdrawal() -> None:
    part = UnreadRange(topic="in", partition=1, start=0, end=100, last_timestamp=-1)
    inputs = (a_source((0, 5), (100, 100), unread=(part,)),)
    batch = a_batch(State.PUBLISHED, plan=a_plan(inputs=inputs), written=a_written())
    (told,) = history(View.of([batch]), "cluster")
    assert told.unread is not None
    assert (told.unread.offsets, told.unread.ranges) == (100, {"in": {"1": (0, 100)}})
    assert "the last record without a timestamp" in told.unread.reason
    assert told.of(told.json_value) == told
    withdrawn = a_batch(State.WITHDRAWN, plan=a_plan(inputs=inputs))
    assert [one.unread for one in history(View.of([withdrawn]), "cluster")] == [None]


def test_ranges_that_are_lost_are_not_unread() -> None:
    lost = (OffsetRange(topic="in", partition=0, start=0, end=60),)
    batch = a_batch(
        interval=Interval(start=NOW, end=a_day(9).end), plan=a_plan(inputs=(a_source((60, 90), lost=lost),))
    )
    assert counted([batch]) == []
