"""Counts in texts for people: a number with its thousands separators, and its noun; and the first of many things."""

from __future__ import annotations

from collections.abc import Sequence


def count_of(number: int, one: str, more: str = "") -> str:
    """`1 record`, `4,456 records`. `one` and `more` may say more than a noun: `count_of(2, "row fails", "rows fail")`."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def first_of(texts: Sequence[str], most: int) -> str:
    """Returns the first `most` texts, and how many more there are: `one; two; and 3 more`."""
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {more:,} more" if more > 0 else "")
