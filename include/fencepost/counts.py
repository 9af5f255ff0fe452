"""Counts in texts for people: a number with its thousands separators, and its noun."""

from __future__ import annotations


def count_of(number: int, one: str, more: str = "") -> str:
    """`1 record`, `4,456 records`. `one` and `more` may say more than a noun: `count_of(2, "row fails", "rows fail")`."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"
