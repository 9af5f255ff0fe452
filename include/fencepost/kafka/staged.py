"""Reads staged records as rows to publish, by their offsets, with the hash that Spark gives them.

This module builds no array with `pa.array`, because that would load pandas. Loading pandas takes longer than copying a
small batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from confluent_kafka import Message

from fencepost.garbage_collector import without_collector
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.offsets import messages_of
from fencepost.model import BATCH_HEADER, TIMESTAMP_HEADER, Batch, OffsetRange, describe_topics

Header = tuple[str, bytes | None]


def read_staged(
    settings: ClientSettings, group: str, ranges: Sequence[OffsetRange], batch: Batch
) -> Generator[pa.RecordBatch]:
    """Yields the batch's records in these ranges of its staging topic. It reads with read_committed, in the order of
    each partition.

    The columns are partition, key, value and hash. If any row has them, timestamp (the row's own) and headers follow.

    Raises:
        FencepostError: Kafka does not give all offsets of the ranges.
    """
    yield from _as_rows(_staged(settings, group, ranges, batch))


def offset_of_staged(settings: ClientSettings, group: str, part: OffsetRange, batch: Batch, number: int) -> int | None:
    """Returns the offset of one of the batch's records in this range of its staging topic, or None if the record is
    deleted. Records are numbered from 0.

    In each partition the batch's records always have the same order.

    Raises:
        FencepostError: as `read_staged`.
    """
    with closing(_staged(settings, group, [part], batch)) as found:
        for messages in found:
            if number < len(messages):
                return messages[number].offset()
            number -= len(messages)
    return None


def _staged(
    settings: ClientSettings, group: str, ranges: Sequence[OffsetRange], batch: Batch
) -> Generator[list[Message]]:
    own = batch.require_staging_timestamp
    return _read(settings, group, ranges, str(batch.id), lambda message: message.timestamp()[1] == own)


def read_published(
    settings: ClientSettings, group: str, ranges: Sequence[OffsetRange], batch: str
) -> Generator[pa.RecordBatch]:
    """Yields the rows of `read_staged` from the output topic that the batch was copied to. In the output topic the
    batch's records have a header with the batch's name.
    """
    own = (BATCH_HEADER, batch.encode())
    yield from _as_rows(_read(settings, group, ranges, batch, lambda message: own in (message.headers() or ())))


def _read(
    settings: ClientSettings,
    group: str,
    ranges: Sequence[OffsetRange],
    batch: str,
    is_own: Callable[[Message], bool],
) -> Generator[list[Message]]:
    """Yields the batch's own messages as they arrive, in the order of each partition."""
    doing = f"batch {batch}: reading its records in {describe_topics(part.topic for part in ranges)}"
    with without_collector():  # the collector would walk over every message again and again, for half of the time
        for messages in messages_of(settings, group, ranges, doing):
            if own := [message for message in messages if is_own(message)]:
                yield own


def _as_rows(read: Generator[list[Message]]) -> Generator[pa.RecordBatch]:
    with closing(read) as found:
        yield from map(_rows, found)


def _rows(messages: Sequence[Message]) -> pa.RecordBatch:
    count = len(messages)
    keys: list[Any] = [message.key() for message in messages]
    values: list[Any] = [message.value() for message in messages]
    columns = {
        "partition": _numbers(np.fromiter((message.partition() or 0 for message in messages), np.int64, count)),
        "key": binary(keys),
        "value": binary(values),
        "hash": _numbers(hashes(keys, values)),
    }
    headers: list[list[Header]] = [message.headers() or [] for message in messages]  # type: ignore[misc]
    if any(headers):
        stamps = [found[-1][1] if found and found[-1][0] == TIMESTAMP_HEADER else None for found in headers]
        others = [found if stamp is None else found[:-1] for found, stamp in zip(headers, stamps, strict=True)]
        if any(stamps):
            known = np.fromiter((stamp is not None for stamp in stamps), np.bool_, count)
            columns["timestamp"] = _numbers(np.fromiter((int(stamp or 0) for stamp in stamps), np.int64, count), known)
        if any(others):
            columns["headers"] = _lists(others)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def binary(values: Sequence[bytes | None]) -> pa.Array:
    """Returns a binary column. A None in the values is a null in the column."""
    count = len(values)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter((len(v) if v else 0 for v in values), np.int64, count), out=offsets[1:])
    valid = np.fromiter((v is not None for v in values), np.bool_, count)
    data = pa.py_buffer(b"".join(filter(None, values)))
    return pa.Array.from_buffers(pa.large_binary(), count, [_mask(valid), pa.py_buffer(offsets), data])


def _numbers(values: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    mask = None if valid is None else _mask(valid)
    return pa.Array.from_buffers(pa.int64(), len(values), [mask, pa.py_buffer(values)])


def _mask(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Returns the bitmap of values that are not null, in Arrow's form."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _lists(headers: Sequence[Sequence[Header]]) -> pa.Array:
    """Returns a column of headers in the form that the writers have."""
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum([len(one) for one in headers], out=offsets[1:])
    flat = [header for one in headers for header in one]
    names = binary([name.encode() for name, _ in flat]).cast(pa.large_string())
    pairs = pa.StructArray.from_arrays([names, binary([value for _, value in flat])], ["key", "value"])
    kind = pa.list_(pairs.type)
    return pa.Array.from_buffers(kind, len(headers), [None, pa.py_buffer(offsets)], children=[pairs])


def hashes(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> npt.NDArray[np.int64]:
    """Returns the value of `spark.fingerprint.fingerprint_hash` for these records.

    Spark's xxhash64 is XXH64 with seed 42. Each argument's hash is the seed of the next argument, and a null passes its
    seed on. The last argument is a 32-bit number that says which of key and value are null.
    """
    digest, chained, nulls = xxhash.xxh64_intdigest, [], bytearray()
    for key, value in zip(keys, values, strict=True):
        found = 42 if key is None else digest(key, 42)
        chained.append(found if value is None else digest(value, found))
        nulls.append((key is None) + 2 * (value is None))
    return _hash_of_ints(np.frombuffer(nulls, np.uint8).astype(np.uint64), np.array(chained, np.uint64)).view(np.int64)


P1, P2, P3, P5 = (
    np.uint64(n) for n in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
)


def _hash_of_ints(numbers: npt.NDArray[np.uint64], seeds: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Returns XXH64 of 32-bit numbers, each with its own seed. Sums and products are modulo 2**64."""
    mixed: npt.NDArray[np.uint64] = (seeds + P5 + np.uint64(4)) ^ (numbers * P1)
    mixed = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) * P2 + P3
    mixed = (mixed ^ (mixed >> np.uint64(33))) * P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * P3
    mixed ^= mixed >> np.uint64(32)
    return mixed
