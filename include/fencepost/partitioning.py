"""Key to partition, as Kafka's Java client does it: murmur2 of the key's bytes, made positive, modulo partitions.

Used by layout `output`, whose shuffle must agree with the broker's clients; layout `source` leaves it to librdkafka's
`murmur2_random`. The algorithm is Austin Appleby's MurmurHash2 with the seed of Kafka's `Utils.murmur2`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED = np.uint32(0x9747B28C)
M = np.uint32(0x5BD1E995)
U32 = np.uint32

Hashes = npt.NDArray[np.uint32]


def murmur2(keys: pa.BinaryArray) -> Hashes:
    """murmur2 of each key, as unsigned 32-bit numbers; a null key hashes like an empty one.

    All keys advance together, four bytes a turn, so the cost is one pass of numpy per four bytes of the longest key.
    """
    starts, lengths, data = _bytes_of(keys)
    h: Hashes = SEED ^ lengths.astype(U32)
    with np.errstate(over="ignore"):
        words = lengths // 4
        for turn in range(int(words.max(initial=0))):
            rows = np.flatnonzero(words > turn)
            at = starts[rows] + 4 * turn
            k = _little_endian(data, at, 4) * M
            k = (k ^ (k >> U32(24))) * M
            h[rows] = (h[rows] * M) ^ k
        for rest in (1, 2, 3):
            rows = np.flatnonzero(lengths % 4 == rest)
            tail = _little_endian(data, starts[rows] + 4 * words[rows], rest)
            h[rows] = (h[rows] ^ tail) * M
        h = (h ^ (h >> U32(13))) * M
        return h ^ (h >> U32(15))


def partition_of(keys: pa.BinaryArray, partitions: int) -> npt.NDArray[np.int32]:
    """The output partition of each key."""
    positive = murmur2(keys) & U32(0x7FFFFFFF)
    return (positive % U32(partitions)).astype(np.int32)


def _bytes_of(
    keys: pa.BinaryArray,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each key's bytes start, how many there are, and the bytes."""
    keys = keys.fill_null(b"") if keys.null_count else keys
    wide = keys.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    buffer = wide.buffers()[2]
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None else np.zeros(0, dtype=np.uint8)
    return offsets[:-1], offsets[1:] - offsets[:-1], data


def _little_endian(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int) -> Hashes:
    word: Hashes = np.zeros(len(at), dtype=U32)
    for i in range(width):
        word |= data[at + i].astype(U32) << U32(8 * i)
    return word
