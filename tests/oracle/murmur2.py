"""Kafka's placing of keys, written from the algorithm's description: 32-bit MurmurHash2, seed 0x9747b28c."""

from __future__ import annotations

MASK = 0xFFFFFFFF
M = 0x5BD1E995


def murmur2(key: bytes) -> int:
    """The hash as Java's `Utils.murmur2` gives it: a signed 32-bit number."""
    h = (0x9747B28C ^ len(key)) & MASK
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * M & MASK
        k = (k ^ k >> 24) * M & MASK
        h = (h * M & MASK) ^ k
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * M & MASK
    h = (h ^ h >> 13) * M & MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_of(key: bytes, partitions: int) -> int:
    """Where Kafka's Java client puts a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
