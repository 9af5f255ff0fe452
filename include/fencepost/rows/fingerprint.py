"""Counts and fingerprints records with Spark, so that they can be compared with receipts."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F


def fingerprint_hash() -> str:
    """Returns the SQL of the 64-bit hash of a record's key and value. A null and an empty value have different hashes."""
    return "xxhash64(key, value, CASE WHEN key IS NULL THEN 1 ELSE 0 END + CASE WHEN value IS NULL THEN 2 ELSE 0 END)"


def rows_and_fingerprint(frame: DataFrame) -> tuple[int, int]:
    """Returns the number of records, and the sum of their hashes modulo 2**64."""
    return count_and_sum(frame.select(F.expr(fingerprint_hash()).alias("hash")), "hash")


def count_and_sum(frame: DataFrame, hashes: str) -> tuple[int, int]:
    """Returns the number of rows, and the sum of a column of hashes modulo 2**64. The high and the low halves of the
    hashes are summed separately, so the sums do not overflow.
    """
    row = frame.agg(*counting(hashes)).head()
    assert row is not None
    return counts_of(row)


def counting(hashes: str) -> list[Column]:
    """Returns aggregates for the number of rows and the sum of a column of hashes. `counts_of` computes both from their
    result.
    """
    return [
        F.count("*").alias("rows"),
        F.sum(F.expr(f"{hashes} & 4294967295")).alias("low"),
        F.sum(F.expr(f"shiftrightunsigned({hashes}, 32)")).alias("high"),
    ]


def counts_of(row: Row) -> tuple[int, int]:
    """Returns the number of rows and the sum of their hashes modulo 2**64. `row` is the result of the aggregates of
    `counting`.
    """
    return int(row["rows"]), (int(row["low"] or 0) + (int(row["high"] or 0) << 32)) % 2**64
