"""The expectation types proven to give one answer on pandas and on Spark, and the columns and arguments of each.

Great Expectations' engines differ in many small ways (nulls in comparisons, regex dialects, type names, quantiles).
Under `quality.engine: auto` the batch's size decides the engine, so only types in this list are evaluated.
`tests/integration/quality/test_same_answer_on_both_engines.py` has a case for each.
"""

from __future__ import annotations

from enum import StrEnum

from fencepost.model import Frozen


class Kind(StrEnum):
    """The kind of a column's values once they are prepared for Great Expectations (see `columns.py`)."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"


class Scope(StrEnum):
    """What an expectation looks at."""

    RECORD = "record"  # each value of one column
    RECORDS = "records"  # each record's values in several columns
    COLUMN = "column"  # one number or set drawn from a column
    TABLE = "table"  # the number of records
    SCHEMA = "schema"  # names and Spark types of the columns; needs no record


class OfNone(StrEnum):
    """The value of a column's or table's metric in a batch without records."""

    NUMBER = "number"  # 0, an answer like any other
    SET = "set"  # the empty set
    NOTHING = "nothing"  # not defined: a minimum, a mean, a share of 0


ANY = frozenset(Kind)
NUMBERS = frozenset({Kind.INTEGER, Kind.NUMBER})
ORDERED = NUMBERS | {Kind.DATE, Kind.TIMESTAMP}
TEXT = frozenset({Kind.TEXT})


class Entry(Frozen):
    """What is known about one type.

    `kinds`: the kinds of column it takes. `values`: the arguments in the column's own units. `nulls`: it judges nulls too.
    `alike`: all columns have to be of one kind. `ignore_row_if`: the settings on which both engines agree; the first one is
    the default (None: it has to be declared). If there is no value at all, a COLUMN check passes with `holds_for_none`, is
    evaluated as usual with `counts`, and fails otherwise. `of_none`: its metric on a batch without records; a check whose
    metric is undefined there does not fail.
    """

    scope: Scope
    kinds: frozenset[Kind] = ANY
    values: tuple[str, ...] = ()
    nulls: bool = False
    alike: bool = False
    ignore_row_if: tuple[str | None, ...] = ()
    holds_for_none: bool = False
    counts: bool = False
    of_none: OfNone = OfNone.NOTHING


BOUNDS = ("min_value", "max_value")
EITHER_OR_BOTH = ("both_values_are_missing", "either_value_is_missing")
ANY_OR_ALL = ("all_values_are_missing", "any_value_is_missing", "never")
SET = ("value_set",)

PROVEN: dict[str, Entry] = {
    "expect_column_values_to_not_be_null": Entry(scope=Scope.RECORD, nulls=True),
    "expect_column_values_to_be_null": Entry(scope=Scope.RECORD, nulls=True),
    "expect_column_values_to_be_in_set": Entry(scope=Scope.RECORD, values=SET),
    "expect_column_values_to_not_be_in_set": Entry(scope=Scope.RECORD, values=SET),
    "expect_column_values_to_be_between": Entry(scope=Scope.RECORD, kinds=ORDERED, values=BOUNDS),
    "expect_column_values_to_be_unique": Entry(scope=Scope.RECORD),
    "expect_column_values_to_match_regex": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_values_to_not_match_regex": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_values_to_match_regex_list": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_values_to_not_match_regex_list": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_values_to_match_strftime_format": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_values_to_be_json_parseable": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_value_lengths_to_be_between": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_value_lengths_to_equal": Entry(scope=Scope.RECORD, kinds=TEXT),
    "expect_column_pair_values_to_be_equal": Entry(scope=Scope.RECORDS, alike=True, ignore_row_if=EITHER_OR_BOTH),
    "expect_column_pair_values_a_to_be_greater_than_b": Entry(
        scope=Scope.RECORDS, kinds=ORDERED, alike=True, ignore_row_if=EITHER_OR_BOTH
    ),
    "expect_compound_columns_to_be_unique": Entry(scope=Scope.RECORDS, ignore_row_if=ANY_OR_ALL),
    "expect_multicolumn_sum_to_equal": Entry(
        scope=Scope.RECORDS, kinds=frozenset({Kind.INTEGER}), ignore_row_if=(None, "any_value_is_missing")
    ),
    "expect_column_min_to_be_between": Entry(scope=Scope.COLUMN, kinds=ORDERED, values=BOUNDS),
    "expect_column_max_to_be_between": Entry(scope=Scope.COLUMN, kinds=ORDERED, values=BOUNDS),
    "expect_column_mean_to_be_between": Entry(scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_sum_to_be_between": Entry(scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_stdev_to_be_between": Entry(scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_median_to_be_between": Entry(scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_quantile_values_to_be_between": Entry(scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_distinct_values_to_be_in_set": Entry(
        scope=Scope.COLUMN, values=SET, holds_for_none=True, of_none=OfNone.SET
    ),
    "expect_column_distinct_values_to_equal_set": Entry(scope=Scope.COLUMN, values=SET, of_none=OfNone.SET),
    "expect_column_distinct_values_to_contain_set": Entry(scope=Scope.COLUMN, values=SET, of_none=OfNone.SET),
    "expect_column_most_common_value_to_be_in_set": Entry(scope=Scope.COLUMN, values=SET),
    "expect_column_unique_value_count_to_be_between": Entry(scope=Scope.COLUMN, counts=True, of_none=OfNone.NUMBER),
    "expect_column_proportion_of_unique_values_to_be_between": Entry(scope=Scope.COLUMN),
    "expect_column_proportion_of_non_null_values_to_be_between": Entry(scope=Scope.COLUMN, counts=True),
    "expect_table_row_count_to_be_between": Entry(scope=Scope.TABLE, of_none=OfNone.NUMBER),
    "expect_table_row_count_to_equal": Entry(scope=Scope.TABLE, of_none=OfNone.NUMBER),
    "expect_column_to_exist": Entry(scope=Scope.SCHEMA),
    "expect_column_values_to_be_of_type": Entry(scope=Scope.SCHEMA),
    "expect_column_values_to_be_in_type_list": Entry(scope=Scope.SCHEMA),
    "expect_table_columns_to_match_set": Entry(scope=Scope.SCHEMA),
    "expect_table_columns_to_match_ordered_list": Entry(scope=Scope.SCHEMA),
    "expect_table_column_count_to_be_between": Entry(scope=Scope.SCHEMA),
    "expect_table_column_count_to_equal": Entry(scope=Scope.SCHEMA),
}

# Types of Great Expectations that one engine lacks, or on which the two give different answers.
ONE_ENGINE_ONLY: dict[str, str] = {
    "expect_column_values_to_match_like_pattern": "Great Expectations has it for SQL only; use a regex",
    "expect_column_values_to_match_like_pattern_list": "Great Expectations has it for SQL only; use a regex list",
    "expect_column_values_to_not_match_like_pattern": "Great Expectations has it for SQL only; use a regex",
    "expect_column_values_to_not_match_like_pattern_list": ("Great Expectations has it for SQL only; use a regex list"),
    "expect_column_values_to_be_dateutil_parseable": (
        "it does not exist on Spark; use a strftime format or a regex, or set quality.engine: pandas"
    ),
    "expect_column_values_to_be_increasing": (
        "a batch's records have an order only within a partition; compare two columns of one record instead"
    ),
    "expect_column_values_to_be_decreasing": (
        "a batch's records have an order only within a partition; compare two columns of one record instead"
    ),
}
