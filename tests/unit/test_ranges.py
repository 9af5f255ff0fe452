"""The pure functions that freeze ranges, on sources of any shape: no hole, no overlap, and expired offsets are told."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from fencepost.model import Batch, Interval, OffsetRange, by_partition
from fencepost.protocol.ranges import frozen_ranges, range_starts, without_expired
from makers import a_batch, a_plan, a_source
from makers import a_day as day

DAYS = 6
# A source partition: the day of each record, in any order; records arrive between one plan and the next.
SOURCES = st.lists(st.lists(st.integers(0, DAYS), max_size=12), min_size=1, max_size=3)


def batch_of(number: int, ranges: tuple[OffsetRange, ...], lost: tuple[OffsetRange, ...] = ()) -> Batch:
    """A planned batch of that day."""
    return a_batch(interval=day(number), plan=a_plan(inputs=(a_source(ranges=ranges, lost=lost),)))


def first_at_or_after(records: list[int], number: int, start: int = 0) -> int | None:
    """The first record from `start` on of that day or later."""
    return next((o for o in range(start, len(records)) if records[o] >= number), None)


def plan(source: list[list[int]], number: int, planned: dict[int, Batch]) -> Batch:
    """Plan a day between those planned already, as `freeze` does."""
    before = planned[max(n for n in planned if n < number)] if any(n < number for n in planned) else None
    after = planned[min(n for n in planned if n > number)] if any(n > number for n in planned) else None
    stable = [len(records) for records in source]
    by_start = None if before else [first_at_or_after(records, number) for records in source]
    starts = range_starts("in", before, after, stable, by_start)
    by_end = [first_at_or_after(r, number + 1, s) for r, s in zip(source, starts, strict=True)]
    return batch_of(number, frozen_ranges(day(number), "in", starts, after, stable, by_end))


@given(SOURCES, st.permutations(range(DAYS)), st.data())
def test_days_planned_in_any_order_while_the_source_grows_touch_and_do_not_overlap(
    source: list[list[int]], order: list[int], data: st.DataObject
) -> None:
    planned: dict[int, Batch] = {}
    seen = [0] * len(source)
    for number in order:
        seen = [data.draw(st.integers(n, len(records))) for n, records in zip(seen, source, strict=True)]
        planned[number] = plan([r[:n] for r, n in zip(source, seen, strict=True)], number, planned)
    for p in range(len(source)):
        ranges = [planned[number].plan.ranges[p] for number in range(DAYS)]
        for left, right in itertools.pairwise(ranges):
            assert left.end == right.start


def test_a_partition_that_a_later_plan_does_not_know_is_left_to_the_newest_interval() -> None:
    """Day 2 was planned by a broker that knew one of two partitions; the second one is read from its beginning, once."""
    source = [[0, 1, 2], [0, 0, 3]]
    planned = {2: plan(source[:1], 2, {})}
    for number in (1, 0, 3):
        planned[number] = plan(source, number, planned)
    second = {n: batch.plan.ranges[1] for n, batch in planned.items() if n != 2}
    assert {n: (r.start, r.end) for n, r in second.items()} == {0: (0, 0), 1: (0, 0), 3: (0, 3)}


@given(SOURCES, st.lists(st.integers(0, DAYS - 1), unique=True, min_size=1))
def test_days_left_out_leave_no_hole_after_the_first_plan_and_no_overlap_anywhere(
    source: list[list[int]], order: list[int]
) -> None:
    planned: dict[int, Batch] = {}
    for number in order:
        planned[number] = plan(source, number, planned)
    for p in range(len(source)):
        ranges = [(number, planned[number].plan.ranges[p]) for number in sorted(planned)]
        for (_, left), (number, right) in itertools.pairwise(ranges):
            assert left.end <= right.start
            if number > order[0]:
                assert left.end == right.start


@given(SOURCES)
def test_records_in_order_of_time_fall_in_their_own_day(source: list[list[int]]) -> None:
    source = [sorted(records) for records in source]
    planned: dict[int, Batch] = {}
    for number in range(DAYS):
        planned[number] = plan(source, number, planned)
        for records, part in zip(source, planned[number].plan.ranges, strict=True):
            assert all(records[o] == number for o in range(part.start, part.end))


@given(SOURCES, st.integers(1, DAYS - 1), st.booleans())
def test_a_younger_partition_is_read_from_its_beginning_by_the_newest_day(
    source: list[list[int]], newest: int, between: bool
) -> None:
    """A day planned between two that did not know the partition leaves it to the newest one."""
    old = source[:1]
    planned = {0: plan(old, 0, {})}
    if between and newest > 1:
        planned[newest - 1] = plan(old, newest - 1, planned)
        if newest > 2:
            planned[1] = plan(source, 1, planned)
            assert all(part.length == 0 for part in planned[1].plan.ranges[1:])
    last = plan(source, newest, planned)
    assert all(part.start == 0 for part in last.plan.ranges[1:])


def test_an_intervals_name_has_four_digits_of_year_whatever_the_year() -> None:
    """The ledger's reader knows its keys by that."""
    first = Interval.of(datetime(1, 1, 1, tzinfo=UTC), datetime(999, 1, 1, tzinfo=UTC))
    assert str(first) == "00010101T000000Z-09990101T000000Z"


RANGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3).map(
    lambda pairs: tuple(OffsetRange(topic="in", partition=p, start=s, end=s + n) for p, (s, n) in enumerate(pairs))
)


@given(RANGES, st.data())
def test_what_is_left_and_what_expired_are_the_whole_range_and_share_nothing(
    ranges: tuple[OffsetRange, ...], data: st.DataObject
) -> None:
    earliest = [data.draw(st.integers(0, 20)) for _ in ranges]
    left, lost = without_expired(ranges, by_partition("in", earliest))
    assert len(left) == len(ranges)
    gone = {part.partition: part for part in lost}
    for whole, part in zip(ranges, left, strict=True):
        missing = gone.get(whole.partition, whole.model_copy(update={"end": whole.start}))
        assert (missing.start, missing.end, part.end) == (whole.start, part.start, whole.end)
        assert part.length == 0 or part.start >= earliest[whole.partition]
        assert missing.length == 0 or missing.end <= earliest[whole.partition]


@given(RANGES, st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_a_day_planned_before_one_that_expired_bit_by_bit_ends_where_that_one_once_began(
    ranges: tuple[OffsetRange, ...], earliest: list[int]
) -> None:
    """Found by the model: the bound was where the second loss began, so both days claimed the first."""
    left, lost = ranges, ()
    for first in sorted(earliest):
        left, more = without_expired(left, by_partition("in", [first] * len(ranges)))
        lost = (*lost, *more)
    after = batch_of(2, left, lost)
    stable = [part.end for part in ranges]
    starts = range_starts("in", None, after, stable, [0] * len(ranges))
    found = frozen_ranges(day(1), "in", starts, after, stable, [None] * len(ranges))
    assert [part.end for part in found] == [part.start for part in ranges]
