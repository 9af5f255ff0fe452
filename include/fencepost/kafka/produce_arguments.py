"""Turns Arrow columns into arguments of librdkafka's `rd_kafka_produceva`. The arguments refer to the columns by
address, and cover a whole Arrow batch.

A record's arguments are a row of `rd_kafka_vu_t`, which is a type and a union with its value. librdkafka copies the
values (`MSG_F_COPY`), so the columns have to live only until the call returns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.errors import RecordRefused
from fencepost.model import BATCH_HEADER, TIMESTAMP_HEADER

# rd_kafka_vtype_t
RKT, PARTITION, VALUE, KEY, MSGFLAGS, TIMESTAMP, HEADER = 2, 3, 4, 5, 7, 8, 9
MSG_F_COPY = 2
# rd_kafka_vu_t: `first` and `second` are the union's first two words, an address and a size, or a number. A header takes
# three: name, value and size.
VU = np.dtype(
    {
        "names": ["vtype", "first", "second", "third"],
        "formats": ["i4", "u8", "u8", "i8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": 72,
    }
)
Addresses = npt.NDArray[np.uint64]

_EMPTY = ctypes.create_string_buffer(1)  # the address of an empty value, which is not null


def addresses(column: pa.Array) -> tuple[Addresses, Addresses]:
    """Returns the address and the size in bytes of each value of a binary or string column. The address and the size of
    a null are 0.
    """
    large = column.type in (pa.large_binary(), pa.large_string())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    base = data.address if data is not None and data.size else ctypes.addressof(_EMPTY)
    starts = (ends[:-1].astype(np.uint64) + np.uint64(base)).astype(np.uint64)
    sizes = np.diff(ends).astype(np.uint64)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        starts[nulls] = 0
        sizes[nulls] = 0
    return starts, sizes


@dataclass(frozen=True)
class ProduceArguments:
    """The arguments of records in order. Record i has `counts[i]` arguments, from address `starts[i]` on.

    `held` keeps the columns alive, because the arguments have their addresses.
    """

    starts: list[int]
    counts: list[int]
    held: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.starts)


def arguments_of(
    rows: pa.RecordBatch,
    topic: int,
    *,
    partition: int | None = None,
    header: tuple[str, bytes] | None = None,
    staging_timestamp: int | None = None,
) -> ProduceArguments:
    """Returns the arguments that produce these rows to a topic. `topic` is the address of librdkafka's topic.

    The columns are key and value (binary; a null key means no key, and a null value a tombstone). Optional columns are
    timestamp (milliseconds, above 0; null means the current time), headers (list of name and value) and partition.
    `header` comes last and replaces a row's headers of the same name. Staged rows have no `header`. The timestamp of a
    staged row is `staging_timestamp` (milliseconds). If a row has a timestamp of its own, the last header holds it.
    Headers with Fencepost's names are left out.

    Raises:
        RecordRefused: librdkafka would send another timestamp or header than the row has.
    """
    count = len(rows)
    fixed: list[tuple[int, Any, Any]] = [
        (RKT, topic, 0),
        (MSGFLAGS, MSG_F_COPY, 0),
        (VALUE, *addresses(rows.column("value"))),
        (KEY, *addresses(rows.column("key"))),
    ]
    if partition is not None:
        fixed.append((PARTITION, partition, 0))
    if "partition" in rows.schema.names:
        fixed.append((PARTITION, rows.column("partition").to_numpy().astype(np.uint64), 0))
    own = rows.column("timestamp") if "timestamp" in rows.schema.names else None
    millis = None if own is None else _timestamps(own)
    stamps, reserved = None, [header[0]] if header else []
    if staging_timestamp is not None:
        fixed.append((TIMESTAMP, staging_timestamp, 0))
        stamps, reserved = own, [BATCH_HEADER, TIMESTAMP_HEADER]
    elif millis is not None:
        fixed.append((TIMESTAMP, millis, 0))
    kept = _Headers.of(rows.column("headers"), reserved) if "headers" in rows.schema.names else None
    per_row = len(fixed) + (header is not None) + (kept.lengths if kept else np.zeros(count, dtype=np.int64))
    if stamps is not None:
        stamped = stamps.is_valid().to_numpy(zero_copy_only=False)
        per_row = per_row + stamped
    ends = np.cumsum(per_row)
    table = np.zeros(int(ends[-1]) if count else 0, dtype=VU)
    first = ends - per_row
    for column, (kind, one, two) in enumerate(fixed):
        place = first + column
        table["vtype"][place], table["first"][place], table["second"][place] = kind, one, two
    held: list[object] = [rows, table]
    if kept:
        _set_headers(table, kept.places(first + len(fixed)), kept.names, kept.values, kept.sizes)
        held.append(kept)
    if stamps is not None:
        text, named = stamps.drop_null().cast(pa.string()), ctypes.create_string_buffer(TIMESTAMP_HEADER.encode())
        at, sizes = addresses(text)
        _set_headers(table, (ends - 1)[stamped], ctypes.addressof(named), at, sizes)
        held += [text, named]
    if header is not None:
        name, value = ctypes.create_string_buffer(header[0].encode()), ctypes.create_string_buffer(header[1])
        _set_headers(table, ends - 1, ctypes.addressof(name), ctypes.addressof(value), len(header[1]))
        held += [name, value]
    starts = first.astype(np.uint64) * np.uint64(VU.itemsize) + np.uint64(table.ctypes.data)
    return ProduceArguments(starts.tolist(), per_row.tolist(), tuple(held))


def _timestamps(column: pa.Array) -> Addresses:
    """Returns timestamps in milliseconds for librdkafka. No row may have the timestamp 0, because librdkafka takes it
    for the current time.
    """
    earliest = pc.min(column).as_py()
    if earliest is not None and earliest <= 0:
        raise RecordRefused(
            "output.timestamp: a row's timestamp is 1970-01-01T00:00:00Z or earlier, but librdkafka reads 0 as the "
            "present time, and Kafka reads -1 as no timestamp. In the transform, make the timestamp null to get the "
            "time of writing to the output, or leave such rows out."
        )
    millis: Addresses = pc.fill_null(column, 0).to_numpy().view(np.uint64)
    return millis


def _header_name(name: bytes) -> Any:
    """Returns a header's name for librdkafka, which reads it up to the first NUL."""
    try:
        if "\0" not in name.decode():
            return ctypes.create_string_buffer(name)
        reason = "contains a NUL character, where librdkafka would cut it"
    except UnicodeDecodeError:
        reason = "is not UTF-8, which Kafka requires"
    raise RecordRefused(f"output.headers: a header's name {reason}. Fix the transform.")


def _set_headers(table: npt.NDArray[np.void], places: Any, name: Any, value: Any, size: Any) -> None:
    table["vtype"][places] = HEADER
    table["first"][places], table["second"][places], table["third"][places] = name, value, size


@dataclass(frozen=True)
class _Headers:
    """The headers of rows, one row after the other. `lengths` has the number of headers of each row. The other columns
    have one entry for each header.
    """

    lengths: npt.NDArray[np.int64]
    names: Addresses
    values: Addresses
    sizes: Addresses
    held: tuple[object, ...]

    @classmethod
    def of(cls, column: pa.Array, reserved: Sequence[str]) -> _Headers:
        """Returns the column's headers, without those that have a reserved name."""
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
        rows = np.repeat(np.arange(len(column)), lengths)
        flat = column.flatten()
        names, values = pc.struct_field(flat, "key"), pc.struct_field(flat, "value")
        if names.null_count:
            raise RecordRefused("output.headers: a header has no name, but Kafka requires one. Fix the transform.")
        for name in reserved:
            others = pc.not_equal(names, name)
            names, values = names.filter(others), values.filter(others)
            rows = rows[others.to_numpy(zero_copy_only=False)]
        distinct = names.cast(pa.binary()).dictionary_encode()
        texts = [_header_name(name) for name in distinct.dictionary.to_pylist()]
        known = np.array([ctypes.addressof(text) for text in texts], dtype=np.uint64)
        at, sizes = addresses(values)
        return cls(
            lengths=np.bincount(rows, minlength=len(column)).astype(np.int64),
            names=known[distinct.indices.to_numpy()],
            values=at,
            sizes=sizes,
            held=(texts, values),
        )

    def places(self, first: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns each header's position in the table. The headers of row i begin at `first[i]`."""
        before = np.cumsum(self.lengths) - self.lengths
        return np.repeat(first - before, self.lengths) + np.arange(len(self.names))
