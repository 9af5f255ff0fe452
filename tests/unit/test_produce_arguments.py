"""What librdkafka would find at the addresses it is given is what the Arrow columns hold, value by value."""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import RecordRefused
from fencepost.kafka.produce_arguments import (
    HEADER,
    KEY,
    MSG_F_COPY,
    MSGFLAGS,
    PARTITION,
    RKT,
    TIMESTAMP,
    VALUE,
    VU,
    ProduceArguments,
    arguments_of,
)

BYTES = st.none() | st.binary(max_size=9)
NAMES = st.sampled_from(["a", "fencepost-batch", "fencepost-timestamp", "ünïcode", ""])
HEADERS = st.none() | st.lists(st.tuples(NAMES, BYTES), max_size=3)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.none() | st.integers(1, 2**40), HEADERS), max_size=12)
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def bytes_at(address: int, size: int) -> bytes | None:
    return ctypes.string_at(address, size) if address else None


def read_back(arguments: ProduceArguments) -> list[dict[Any, Any]]:
    """Each record's arguments by type, read from memory as rdkafka.h lays them out; headers as a list."""
    found = []
    for start, count in zip(arguments.starts, arguments.counts, strict=True):
        record: dict[Any, Any] = {"headers": []}
        for place in range(start, start + count * VU.itemsize, VU.itemsize):
            kind = ctypes.c_int.from_address(place).value
            first, second = (ctypes.c_uint64.from_address(place + at).value for at in (8, 16))
            if kind == HEADER:
                size = ctypes.c_int64.from_address(place + 24).value
                record["headers"].append((ctypes.string_at(first).decode(), bytes_at(second, size)))
            else:
                assert kind not in record
                record[kind] = bytes_at(first, second) if kind in (VALUE, KEY) else first
        found.append(record)
    return found


@given(ROWS, st.booleans(), st.none() | st.integers(0, 2**31 - 1), st.integers(0, 5), st.booleans())
def test_addresses_lead_to_the_columns_values(
    rows: list[Any], whole: bool, partition: int | None, first: int, large: bool
) -> None:
    """Nulls and empty values differ, slices begin where they begin, our header comes last and replaces its like."""
    kind = pa.large_binary() if large else pa.binary()
    columns: dict[str, pa.Array] = {
        "key": pa.array([row[0] for row in rows], kind),
        "value": pa.array([row[1] for row in rows], kind),
    }
    if whole:
        headers = [None if row[3] is None else [{"key": k, "value": v} for k, v in row[3]] for row in rows]
        columns |= {
            "timestamp": pa.array([row[2] for row in rows], pa.int64()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    batch = pa.RecordBatch.from_pydict(columns).slice(first)
    own = ("fencepost-batch", b"p/2026/1")
    arguments = arguments_of(batch, 4711, partition=partition, header=own)
    expected = []
    for key, value, timestamp, kept in rows[first:]:
        record: dict[Any, Any] = {RKT: 4711, MSGFLAGS: MSG_F_COPY, VALUE: value, KEY: key}
        others = [(k, v) for k, v in kept or [] if k != own[0]] if whole else []
        record["headers"] = [*others, own]
        if partition is not None:
            record[PARTITION] = partition
        if whole:
            record[TIMESTAMP] = timestamp or 0
        expected.append(record)
    assert read_back(arguments) == expected


def test_without_a_header_of_ours_there_is_none() -> None:
    columns = {"key": pa.array([b"k"], pa.binary()), "value": pa.array([b"v"], pa.binary())}
    (record,) = read_back(arguments_of(pa.RecordBatch.from_pydict(columns), 1))
    assert record == {RKT: 1, MSGFLAGS: MSG_F_COPY, VALUE: b"v", KEY: b"k", "headers": []}


def one_row(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": pa.array([b"k"]), "value": pa.array([b"v"]), **columns})


def names_of(*names: bytes | None) -> pa.Array:
    """A row's headers; any bytes may be a name, as they may in a string of Spark's."""
    headers = pa.StructArray.from_arrays(
        [pa.array(names, pa.binary()).cast(pa.string(), safe=False), pa.array([b"v"] * len(names))], ["key", "value"]
    )
    return pa.ListArray.from_arrays([0, len(names)], headers)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "a header has no name"),
        (b"se\0cret", "contains a NUL character, where librdkafka would cut it"),
        (b"fencepost-batch\0", "contains a NUL character"),
        (b"\0", "contains a NUL character"),
        (b"secret\xff", "is not UTF-8"),
        (b"\xed\xa0\x80secret", "is not UTF-8"),
    ],
)
def test_a_header_that_would_arrive_under_another_name_is_refused(name: bytes | None, words: str) -> None:
    """The name is a record's content, and not told."""
    with pytest.raises(RecordRefused, match=words) as raised:
        arguments_of(one_row(headers=names_of(b"a", name, "ünïcode".encode())), 1, header=("fencepost-batch", b"own"))
    assert "cret" not in str(raised.value).replace(words, "")


@pytest.mark.parametrize("timestamp", [0, -1, -2, -(2**40), -(2**63)])
def test_a_timestamp_that_librdkafka_would_take_for_another_is_refused(timestamp: int) -> None:
    times = pa.array([1, None, timestamp], pa.int64())
    rows = pa.RecordBatch.from_pydict({"key": pa.array([b"k"] * 3), "value": pa.array([b"v"] * 3), "timestamp": times})
    with pytest.raises(RecordRefused, match="1970-01-01T00:00:00Z or earlier"):
        arguments_of(rows, 1)
    assert len(arguments_of(rows.slice(0, 2), 1)) == 2


@given(ROWS, st.integers(0, 5))
def test_a_staged_row_has_its_batchs_timestamp_and_its_own_in_a_header(rows: list[Any], first: int) -> None:
    """One without a timestamp has no such header. Headers of Fencepost's names that the row brings are left out."""
    headers = [None if row[3] is None else [{"key": k, "value": v} for k, v in row[3]] for row in rows]
    columns = {
        "partition": pa.array(range(len(rows)), pa.int64()),
        "key": pa.array([row[0] for row in rows], pa.binary()),
        "value": pa.array([row[1] for row in rows], pa.binary()),
        "timestamp": pa.array([row[2] for row in rows], pa.int64()),
        "headers": pa.array(headers, HEADERS_TYPE),
    }
    batch = pa.RecordBatch.from_pydict(columns).slice(first)
    found = read_back(arguments_of(batch, 99, staging_timestamp=1_700_000_000_123))
    for n, (record, row) in enumerate(zip(found, rows[first:], strict=True), start=first):
        kept = [header for header in row[3] or [] if header[0] not in {"fencepost-batch", "fencepost-timestamp"}]
        own = [("fencepost-timestamp", str(row[2]).encode())] if row[2] is not None else []
        assert record["headers"] == [*kept, *own]
        assert record[TIMESTAMP] == 1_700_000_000_123
        assert record[PARTITION] == n
