"""Staged records as rows to publish: read by offsets, with the hash that Spark gives them.

No array is built with `pa.array` here: it would load pandas, which takes longer than the copy of a small batch.
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
    """Yields the batch's records of these ranges of its staging topic, with read_committed, in the order of each
    partition.

    Columns: partition, key, value, hash, and where any row has one: timestamp (the row's own), headers.

    Raises:
        FencepostError: Kafka does not give all offsets of the ranges.
    """
    yield from _as_rows(_staged(settings, group, ranges, batch))


def offset_of_staged(settings: ClientSettings, group: str, part: OffsetRange, batch: Batch, number: int) -> int | None:
    """Returns the offset of one of the batch's records in this range of its staging topic, by its number from 0, or
    None if it is deleted.

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
    """As `read_staged`, from the output that the batch was copied to. Its records are found by their header."""
    own = (BATCH_HEADER, batch.encode())
    yield from _as_rows(_read(settings, group, ranges, batch, lambda message: own in (message.headers() or ())))


def _read(
    settings: ClientSettings,
    group: str,
    ranges: Sequence[OffsetRange],
    batch: str,
    is_own: Callable[[Message], bool],
) -> Generator[list[Message]]:
    """Yields the batch's own messages, as they come: in the order of each partition."""
    doing = f"batch {batch}: reading its records in {describe_topics(ranges)}"
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
    """Returns a binary column; None is a null."""
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

    Spark's xxhash64 is XXH64 with seed 42, and each argument's hash is the seed of the next argument; a null passes its seed on.
    The last argument says which of the two are null, as a 32-bit number.
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
    """XXH64 of 32-bit numbers, each with its own seed. Sums and products are modulo 2**64."""
    mixed: npt.NDArray[np.uint64] = (seeds + P5 + np.uint64(4)) ^ (numbers * P1)
    mixed = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) * P2 + P3
    mixed = (mixed ^ (mixed >> np.uint64(33))) * P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * P3
    mixed ^= mixed >> np.uint64(32)
    return mixed
