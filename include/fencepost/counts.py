"""Writes counts for people, with thousands separators and a noun, and lists the first of many texts."""

from __future__ import annotations

from collections.abc import Sequence


def count_of(number: int, one: str, more: str = "") -> str:
    """Returns a count with its noun, such as `1 record` or `4,456 records`. `one` and `more` may have more words than a
    noun: `count_of(2, "row fails", "rows fail")`.
    """
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def first_of(texts: Sequence[str], most: int) -> str:
    """Returns the first `most` texts, and the number of the others: `one; two; and 3 more`."""
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {more:,} more" if more > 0 else "")
