"""Suggested bounds: they hold for what they were drawn from, and nothing is suggested of what only grows."""

from __future__ import annotations

import math

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.preview.suggest import MOST_VALUES, OFTEN, BatchFigures, Suggestion, bounds, drawn, grows
from fencepost.suite.catalogue import Kind

NUMBERS = st.lists(st.floats(-1e12, 1e12, allow_nan=False), min_size=7, max_size=40)


@given(NUMBERS, st.booleans())
@example([0.0] * 6 + [5e-324], False)
def test_bounds_hold_for_every_figure_that_they_were_drawn_from(seen: list[float], whole: bool) -> None:
    low, high = bounds(seen, whole=whole)
    assert low <= min(seen)
    assert max(seen) <= high
    if min(seen) >= 0:
        assert low >= 0
    if whole:
        assert float(low).is_integer()
        assert float(high).is_integer()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=7, max_size=40))
def test_bounds_of_whole_numbers_hold_to_the_last_digit(seen: list[int]) -> None:
    """A double has 53 of their 64 bits, so they are whole numbers and no doubles: a suite compares them as they are written."""
    low, high = bounds(seen, whole=True)
    assert low <= min(seen)
    assert max(seen) <= high
    assert all(isinstance(bound, int) for bound in (low, high))


def test_one_odd_batch_widens_a_bound_to_itself_and_no_further() -> None:
    assert bounds([10, 11, 10, 9, 10, 11, 90], whole=True) == (6, 90)


def test_what_only_grows_or_only_falls_is_known_by_its_batches() -> None:
    assert grows([1, 11, 21], [9, 19, 29])
    assert grows([21, 11, 1], [29, 19, 9])
    assert not grows([1, 9, 21], [9, 19, 29]), "two batches share a value"
    assert not grows([1, 1], [1, 1])


def figures(**changes: list[float]) -> list[BatchFigures]:
    """Seven batches of 100 rows."""
    found = [BatchFigures(rows=100, nulls={"c": 0}) for _ in range(7)]
    for name, values in changes.items():
        for one, value in zip(found, values, strict=True):
            getattr(one, name)["c"] = value
    return found


def types(found: list[BatchFigures], kind: Kind) -> dict[str, Suggestion]:
    return {one.type: one for one in drawn(found, {"c": kind})}


def test_nulls_are_bounded_by_their_share_and_a_column_that_may_be_all_null_by_nothing() -> None:
    not_null = "expect_column_values_to_not_be_null"
    assert types(figures(), Kind.DATE)[not_null].kwargs == {"column": "c"}
    some = types(figures(nulls=[10, 11, 12, 10, 11, 12, 11]), Kind.DATE)[not_null]
    mostly = some.kwargs["mostly"]
    assert isinstance(mostly, float)
    assert 0.8 <= mostly <= 0.88
    assert not_null not in types(figures(nulls=[100, 0, 0, 0, 0, 0, 0]), Kind.DATE)


def test_a_set_is_suggested_of_few_texts_that_are_each_often_there() -> None:
    in_set = "expect_column_values_to_be_in_set"
    often = figures()
    for one in often:
        one.times["c"] = {"a": 50, "b": 50}
    assert types(often, Kind.TEXT)[in_set].kwargs["value_set"] == ["a", "b"]
    often[0].times["c"] = {"rare": OFTEN - 1}
    assert in_set not in types(often, Kind.TEXT)
    for one in often:
        one.times["c"] = {str(n): OFTEN for n in range(MOST_VALUES + 1)}
    assert in_set not in types(often, Kind.TEXT)


def test_an_entry_is_one_that_the_suite_takes_whatever_its_texts() -> None:
    odd = 'say "hi": {it} #1\nnew\u2028line'
    one = Suggestion(
        type="expect_column_values_to_be_in_set", kwargs={"column": "c", "value_set": [odd]}, description=odd
    )
    (entry,) = yaml.safe_load(f"expectations:\n{one.yaml}")["expectations"]
    assert entry["kwargs"] == {"column": "c", "value_set": [odd]}
    assert entry["description"] == odd
    assert not math.isnan(bounds([0.0] * 7)[0])
