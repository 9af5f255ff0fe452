"""What Great Expectations says of a figure between bounds is what the exact numbers say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from fencepost.quality.gathering import Answer
from fencepost.quality.judging import boolean, judge_records
from fencepost.quality.prepare import prepare
from fencepost.suite.catalogue import BOUNDS, KNOWN, Kind
from fencepost.suite.declared import DeclaredExpectation
from fencepost.suite.figures import SHARE_DISTINCT, SHARE_KNOWN, SPREAD, Root

DRAWN = sorted(
    name for name, entry in KNOWN.items() if entry.figure and set(BOUNDS) <= set(entry.arguments.model_fields)
)


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_compared_with_each_bound_on_either_side_of_it(name: str) -> None:
    """Counts too, whose bounds Great Expectations takes as whole numbers."""
    shares = KNOWN[name].figure in (SHARE_DISTINCT, SHARE_KNOWN)
    figure = Fraction(1, 2) if shares else Root(Fraction(25)) if KNOWN[name].figure is SPREAD else 5
    below, exact, above = (0.4, 0.5, 0.6) if shares else (4, 5, 6)
    asked = [
        ({"min_value": below}, True),
        ({"min_value": exact}, True),
        ({"min_value": exact, "strict_min": True}, False),
        ({"min_value": above}, False),
        ({"max_value": below}, False),
        ({"max_value": exact}, True),
        ({"max_value": exact, "strict_max": True}, False),
        ({"max_value": above}, True),
        ({"max_value": above, "strict_max": True}, True),
        ({"min_value": below, "max_value": above}, True),
        ({"min_value": above, "max_value": above + 1}, False),
        ({"min_value": below - 0.25 if shares else 3, "max_value": below}, False),
    ]
    ready = [
        prepare(DeclaredExpectation(index=i, type=name, kwargs={"column": "n", **kwargs}), {"n": Kind.INTEGER})
        for i, (kwargs, _) in enumerate(asked)
    ]
    found = judge_records(ready, {i: Answer(10, 10, figure=figure) for i in range(len(asked))})
    assert [(kwargs, found[i].success, found[i].error) for i, (kwargs, _) in enumerate(asked)] == [
        (kwargs, holds, "") for kwargs, holds in asked
    ]


MAX, QUANTILES = "expect_column_max_to_be_between", "expect_column_quantile_values_to_be_between"
RANGES = {"quantiles": [0.5, 0.9], "value_ranges": [[1, 5], [None, 9]]}


@pytest.mark.parametrize(
    ("name", "kwargs", "figure", "holds"),
    [
        (MAX, {"max_value": 2**53}, 2**53 + 1, False),
        (MAX, {"min_value": 2**53, "strict_min": True}, 2**53 + 1, True),
        (QUANTILES, {"quantile_ranges": RANGES}, [5, 9], True),
        (QUANTILES, {"quantile_ranges": RANGES}, [5, 10], False),
    ],
)
def test_an_answer_that_the_exact_figure_contradicts_is_none(
    monkeypatch: pytest.MonkeyPatch, name: str, kwargs: dict[str, Any], figure: Any, holds: bool
) -> None:
    one = prepare(DeclaredExpectation(index=0, type=name, kwargs={"column": "n", **kwargs}), {"n": Kind.INTEGER})
    answers = {0: Answer(10, 10, figure=figure)}
    assert judge_records([one], answers)[0].success is holds
    monkeypatch.setattr("fencepost.quality.judging.boolean", lambda success: not boolean(success))
    found = judge_records([one], answers)[0]
    assert found.success is None
    assert (
        found.error
        == f"Great Expectations answered {not holds}, but {holds} follows from the figure and its exact bounds"
    )
