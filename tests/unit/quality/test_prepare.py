"""From a declaration to what is asked; most refusals are among the cases of the integration test."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.quality.prepare import NotEvaluable, prepare, shown
from fencepost.suite.catalogue import Kind
from fencepost.suite.declared import DeclaredExpectation

KINDS = {
    "n": Kind.INTEGER,
    "x": Kind.NUMBER,
    "flag": Kind.BOOLEAN,
    "name": Kind.TEXT,
    "day": Kind.DATE,
    "at": Kind.TIMESTAMP,
    "dotted.name": Kind.TEXT,
}
V = "expect_column_values_to_"


def ready(type_: str, /, **kwargs: Any) -> Any:
    return prepare(DeclaredExpectation(index=0, type=type_, kwargs=kwargs), KINDS)


def refusal(type_: str, /, **kwargs: Any) -> str:
    with pytest.raises(NotEvaluable) as error:
        ready(type_, **kwargs)
    return str(error.value)


def test_times_become_numbers_and_back() -> None:
    days = ready(f"{V}be_between", column="day", min_value="2013-01-02", max_value="2013-01-03").kwargs
    assert [shown(days[k], Kind.DATE) for k in ("min_value", "max_value")] == ["2013-01-02", "2013-01-03"]
    moments = ready(
        f"{V}be_in_set",
        column="at",
        value_set=["2013-01-01T05:00:00.000001+02:00", "2013-01-01", "1969-12-31T23:59:59"],
    ).kwargs
    assert [shown(v, Kind.TIMESTAMP) for v in moments["value_set"]] == [
        "2013-01-01T03:00:00.000001Z",
        "2013-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
    ]
    assert shown(10**18, Kind.DATE) == 10**18


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n", "1"),
        ("n", True),
        ("n", 1.5),
        ("x", "1"),
        ("flag", 1),
        ("name", 1),
        ("day", "today"),
        ("day", 3),
        ("at", 3),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(column: str, value: Any) -> None:
    assert f"value_set: {value!r} is not a {KINDS[column]}, but column {column} is" in refusal(
        f"{V}be_in_set", column=column, value_set=[value]
    )


def test_an_unknown_type_is_named_with_close_ones() -> None:
    assert f"did you mean {V}be_in_set" in refusal(f"{V}be_in_sett", column="n", value_set=[1])


def test_a_type_that_cannot_be_had_names_the_way_out() -> None:
    assert "use a regex" in refusal(f"{V}match_like_pattern", column="name", like_pattern="A%")
    assert "strftime format or a regex" in refusal(f"{V}be_dateutil_parseable", column="name")
    assert "docs/expectations.md lists the types" in refusal("expect_zzz", column="x")


def test_a_column_that_is_not_there_is_named_with_a_close_one() -> None:
    assert refusal(f"{V}not_be_null", column="nam") == "there is no column nam; did you mean name?"
    assert "there are n, x, flag" in refusal(f"{V}not_be_null", column="zzz")
    assert "only letters, digits and _ are allowed" in refusal(f"{V}not_be_null", column="dotted.name")


def test_row_conditions_stay_out_of_the_arguments() -> None:
    one = ready(f"{V}not_be_null", column="n", row_condition="x > 3")
    assert (one.condition, one.kwargs) == ("x > 3", {"column": "n"})


def test_the_first_position_is_one_that_great_expectations_looks_at() -> None:
    """It takes 0 for no position at all."""
    assert ready("expect_column_to_exist", column="n", column_index=0).kwargs["column_index"] == -len(KINDS)
    assert ready("expect_column_to_exist", column="n", column_index=1).kwargs["column_index"] == 1


@pytest.mark.parametrize("kind", ["expect_column_values_to_be_between", "expect_column_max_to_be_between"])
def test_a_bound_that_no_double_reaches_is_refused(kind: str) -> None:
    """As a double it would be infinite, and no value lies beyond it."""
    assert "no double of column x lies beyond '1e400'" in refusal(kind, column="x", max_value="1e400")
    ranges = {"quantiles": [0.5], "value_ranges": [["-1e400", 1]]}
    assert "'-1e400'" in refusal("expect_column_quantile_values_to_be_between", column="x", quantile_ranges=ranges)
    assert ready(kind, column="n", max_value="1e400").kwargs["max_value"] == 10**400
