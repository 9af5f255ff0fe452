"""Counts for people: one way to write them."""

from __future__ import annotations

import pytest

from fencepost.counts import count_of


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (-1, ("byte",), "-1 bytes"),
        (4456, ("offset",), "4,456 offsets"),
        (1, ("batch", "batches"), "1 batch"),
        (1_000_000, ("batch is", "batches are"), "1,000,000 batches are"),
    ],
)
def test_a_count_has_separators_and_a_noun_that_agrees(number: int, words: tuple[str, ...], text: str) -> None:
    assert count_of(number, *words) == text
