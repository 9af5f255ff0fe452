"""Staged records as rows to publish: what of them is published."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from fencepost.kafka.staged import _rows, binary, hashes
from fencepost.outputs.postgres import commit

BYTES = st.none() | st.binary(max_size=70)
NAMES = st.sampled_from(["a", "ünïcode", ""])
HEADERS = st.lists(st.tuples(NAMES, BYTES), max_size=3)


@dataclass
class Message:
    """As confluent-kafka gives one."""

    place: int
    its_key: bytes | None
    its_value: bytes | None
    its_headers: Any

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.its_value

    def headers(self) -> Any:
        return self.its_headers

    def partition(self) -> int:
        return self.place


@given(st.lists(st.tuples(BYTES, BYTES, HEADERS, st.none() | st.integers(1, 2**40)), min_size=1))
def test_rows_are_the_records_without_what_is_fenceposts(rows: list[Any]) -> None:
    messages: list[Any] = []
    for n, (key, value, headers, stamp) in enumerate(rows):
        stamps = [] if stamp is None else [("fencepost-timestamp", str(stamp).encode())]
        messages.append(Message(n, key, value, [*headers, *stamps] or None))
    found = _rows(messages)
    found.validate(full=True)
    assert found.column("partition").to_pylist() == [*range(len(rows))]
    assert found.column("key").to_pylist() == [row[0] for row in rows]
    assert found.column("value").to_pylist() == [row[1] for row in rows]
    stamps = [row[3] for row in rows]
    assert ("timestamp" in found.schema.names) == any(stamps), "without it, each is published with the time of the copy"
    if any(stamps):
        assert found.column("timestamp").to_pylist() == stamps
    headers = (
        [[(h["key"], h["value"]) for h in one] for one in found.column("headers").to_pylist()]
        if ("headers" in found.schema.names)
        else [[] for _ in rows]
    )
    assert headers == [row[2] for row in rows]


@given(st.lists(st.tuples(BYTES, BYTES)))
def test_the_hash_is_a_chain_of_xxh64_as_spark_has_it(records: list[tuple[bytes | None, bytes | None]]) -> None:
    """That Spark's is this very chain, each staged batch shows: `integration/test_staged.py` compares both sums."""
    wanted = []
    for key, value in records:
        found = 42
        for part in (key, value, struct.pack("<i", (key is None) + 2 * (value is None))):
            found = found if part is None else xxhash.xxh64_intdigest(part, found)
        wanted.append(found)
    keys, values = [key for key, _ in records], [value for _, value in records]
    assert hashes(keys, values).view(np.uint64).tolist() == wanted


@given(st.lists(BYTES))
def test_a_binary_column_holds_what_it_was_given(values: list[bytes | None]) -> None:
    column = binary(values)
    column.validate(full=True)
    assert column.type == pa.large_binary()
    assert column.to_pylist() == values


@given(st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=4))
def test_a_row_of_the_copy_is_traced_to_its_record_in_whatever_order_partitions_came(batches: list[list[int]]) -> None:
    """By its partition, and its number among the batch's records there: that is the same in each reading."""
    messages = [[Message(place, b"", b"", None) for place in places] for places in batches]
    read: Any = lambda *_: map(_rows, messages)  # noqa: E731
    of_nothing: Any = SimpleNamespace(
        cluster=SimpleNamespace(settings=None), pipeline=SimpleNamespace(group=""), of=lambda values: values
    )
    batch: Any = SimpleNamespace(require_written=None, output_ranges=lambda _: ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "read_staged", read)
        staged = commit.StagedRows(of_nothing, batch)
        list(staged.batches(of_nothing))
    places = [place for one in batches for place in one]
    wanted = [(place, places[:n].count(place)) for n, place in enumerate(places)]
    assert [staged.place(n + 1) for n in range(len(places))] == wanted
    assert staged.place(0) is staged.place(len(places) + 1) is None
