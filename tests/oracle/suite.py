"""Expectations as their names say, in pandas: Great Expectations itself takes minutes for a year of days."""

from __future__ import annotations

from typing import Any

import pandas as pd


def holds(kind: str, kwargs: dict[str, Any], frame: pd.DataFrame) -> bool:
    """Whether a day's rows are as expected."""
    if condition := kwargs.get("row_condition"):
        frame = frame.query(condition.replace("=", "==").replace("NOT ", "not "))
    if kind == "expect_table_row_count_to_be_between":
        return bool(kwargs["min_value"] <= len(frame) <= kwargs["max_value"])
    if kind == "expect_compound_columns_to_be_unique":
        return not frame.duplicated(kwargs["column_list"]).any()
    if kind == "expect_column_pair_values_a_to_be_greater_than_b":
        both = frame[[kwargs["column_A"], kwargs["column_B"]]].dropna()
        return bool((both[kwargs["column_A"]] >= both[kwargs["column_B"]]).all())
    column = frame[kwargs["column"]]
    if kind == "expect_column_values_to_not_be_null":
        return bool(column.notna().mean() >= kwargs.get("mostly", 1))
    given = column.dropna()
    if kind == "expect_column_distinct_values_to_contain_set":
        return set(given) >= set(kwargs["value_set"])
    if kind == "expect_column_distinct_values_to_equal_set":
        return set(given) == set(kwargs["value_set"])
    if kind == "expect_column_values_to_be_in_set":
        return bool(given.isin(kwargs["value_set"]).all())
    if kind == "expect_column_values_to_be_between":
        return bool(given.between(kwargs["min_value"], kwargs["max_value"]).all())
    if kind == "expect_column_median_to_be_between":
        return bool(kwargs["min_value"] <= given.median() <= kwargs["max_value"])
    raise NotImplementedError(kind)
