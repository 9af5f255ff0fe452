"""Rows of one source record stay together: all for the output, or one for quarantine and the others withheld."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fencepost.errors import SettingsError
from fencepost.model import Layout
from fencepost.rows.collect import withheld_here
from fencepost.rows.quarantine_headers import QUARANTINED
from fencepost.rows.whole_records import OFFSET, PARTITION, RULE, TOPIC, WITHHELD, whole_records

SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        QUARANTINED: pa.string(),
        TOPIC: pa.string(),
        PARTITION: pa.int32(),
        OFFSET: pa.int64(),
        RULE: pa.int32(),
    }
)
Place = tuple[str, int, int]
Row = tuple[Place | None, int | None]  # its record's place, if it is known, and the rule that it fails, or None


def batches(rows: list[Row], sizes: Iterator[int]) -> Iterator[pa.RecordBatch]:
    made = [
        {
            "key": b"%d" % number,
            QUARANTINED: None if rule is None else f"rule {rule}",
            TOPIC: place[0] if place else None,
            PARTITION: place[1] if place else None,
            OFFSET: place[2] if place else None,
            RULE: rule,
        }
        for number, (place, rule) in enumerate(rows)
    ]
    while made:
        size = next(sizes)
        yield pa.RecordBatch.from_pylist(made[:size], SCHEMA)
        made = made[size:]


def withheld(rows: list[Row], sizes: Iterator[int]) -> list[bool]:
    found: list[dict[str, Any]] = []
    for batch in whole_records(batches(rows, sizes)):
        assert batch.schema.names == ["key", QUARANTINED, WITHHELD]
        found += batch.to_pylist()
    assert [int(one["key"]) for one in found] == list(range(len(rows))), "all rows, in order"
    return [one[WITHHELD] for one in found]


def expected(rows: list[Row]) -> list[bool]:
    """By the definition: of a record with failed rows, all but the first with the lowest rule."""
    answer = []
    for number, (place, _) in enumerate(rows):
        failed = [(rule, n) for n, (other, rule) in enumerate(rows) if other == place and rule is not None]
        answer.append(place is not None and bool(failed) and min(failed)[1] != number)
    return answer


def test_of_a_record_with_failed_rows_one_is_kept_wherever_the_batches_end() -> None:
    chance = random.Random(1)
    for _ in range(300):
        rows: list[Row] = []
        for offset in range(chance.randint(0, 6)):
            place = None if chance.random() < 0.2 else (chance.choice("ab"), chance.randint(0, 1), offset)
            rows += [(place, chance.choice([None, None, 0, 1, 2])) for _ in range(chance.randint(1, 5))]
        most = chance.randint(1, 5)
        sizes = iter(lambda most=most: chance.randint(0, most), None)  # type: ignore[misc]
        assert withheld(rows, sizes) == expected(rows), rows  # type: ignore[arg-type]


def test_records_in_another_order_are_no_reason_to_refuse_them() -> None:
    """A replay reads records of several source partitions."""
    rows: list[Row] = [(("in", 1, 5), None), (("in", 0, 5), 0), (("in", 0, 5), None), (("in", 0, 3), 1)]
    assert withheld(rows, iter([3, 3])) == [False, False, True, False]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_records_of_two_topics_with_the_same_partition_and_offset_are_two_records(size: int) -> None:
    rows: list[Row] = [(("b", 0, 5), None), (("b", 0, 5), None), (("a", 0, 5), 0), (("a", 0, 5), None)]
    assert withheld(rows, iter([size] * 4)) == [False, False, False, True]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_record_whose_rows_are_apart_is_refused(size: int) -> None:
    rows: list[Row] = [(("in", 0, 5), None), (("in", 0, 6), None), (None, None), (None, None), (("in", 0, 5), 0)]
    with pytest.raises(
        SettingsError,
        match="between the rows of the record at topic in, partition 0, offset 5 there are rows of another record",
    ):
        withheld(rows, iter([size] * 5))


def test_of_all_rows_at_once_the_layout_says_whether_a_records_rows_follow_each_other() -> None:
    first, others = ("in", 0, 5), [("in", 0, 6), ("in", 1, 5), ("other", 0, 5)]
    rows: list[Row] = [
        (first, None),
        (None, 1),
        (others[0], 1),
        (first, 0),
        (others[1], None),
        (first, 0),
        (others[2], None),
    ]
    table = pa.Table.from_batches(list(batches(rows, iter([4, 3]))))
    assert withheld_here(table, Layout.OUTPUT) == [True, False, False, False, False, True, False]
    with pytest.raises(SettingsError, match="the rows of the record at topic in, partition 0, offset 5"):
        withheld_here(table, Layout.SOURCE)
    in_order = table.take([2, 0, 3, 5])
    assert withheld_here(in_order, Layout.SOURCE) == [False, True, False, True]
    assert withheld_here(table.drop_columns([OFFSET]), Layout.SOURCE) == [False] * len(rows)
    assert withheld_here(table.slice(0, 0), Layout.OUTPUT) == []


def test_rows_that_bring_no_places_stay_as_they_are() -> None:
    plain = pa.RecordBatch.from_pylist([{"key": b"1"}], pa.schema({"key": pa.binary()}))
    assert list(whole_records(iter([plain]))) == [plain]
    assert list(whole_records(iter([]))) == []
