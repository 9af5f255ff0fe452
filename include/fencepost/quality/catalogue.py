"""The expectation types proven to give one answer on pandas and on Spark, and the columns and arguments of each.

Great Expectations' engines differ in many small ways (nulls in comparisons, regex dialects, type names, quantiles).
Under `quality.engine: auto` the batch's size decides the engine, so only types in this list are evaluated.
`tests/integration/quality/test_same_answer_on_both_engines.py` has a case for each.
"""

from __future__ import annotations

from enum import StrEnum

from fencepost.model import Frozen
from fencepost.quality import arguments as a


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

    `arguments`: what a suite may give it. `kinds`: the kinds of column it takes. `values`: the arguments in the column's own
    units. `nulls`: it judges nulls too. `row_by_row`: its answer for a row does not depend on other rows. `alike`: all columns
    have to be of one kind. If there is no value at all, a COLUMN check passes with `holds_for_none`, is evaluated as usual with
    `counts`, and fails otherwise. `of_none`: its metric on a batch without records; a check whose metric is undefined there does
    not fail.
    """

    arguments: type[a.Arguments]
    scope: Scope
    kinds: frozenset[Kind] = ANY
    values: tuple[str, ...] = ()
    nulls: bool = False
    row_by_row: bool = False
    alike: bool = False
    holds_for_none: bool = False
    counts: bool = False
    of_none: OfNone = OfNone.NOTHING


BOUNDS = ("min_value", "max_value")
SET = ("value_set",)

EXPRESSION = "expect_expression_to_be_true"  # Fencepost's own: a condition in Spark SQL, which Spark evaluates

PROVEN: dict[str, Entry] = {
    EXPRESSION: Entry(arguments=a.Expression, scope=Scope.RECORDS, row_by_row=True),
    "expect_column_values_to_not_be_null": Entry(
        arguments=a.EachValue, scope=Scope.RECORD, nulls=True, row_by_row=True
    ),
    "expect_column_values_to_be_null": Entry(arguments=a.EachValue, scope=Scope.RECORD, nulls=True, row_by_row=True),
    "expect_column_values_to_be_in_set": Entry(arguments=a.ValueInSet, scope=Scope.RECORD, values=SET, row_by_row=True),
    "expect_column_values_to_not_be_in_set": Entry(
        arguments=a.ValueInSet, scope=Scope.RECORD, values=SET, row_by_row=True
    ),
    "expect_column_values_to_be_between": Entry(
        arguments=a.ValueBetween, scope=Scope.RECORD, kinds=ORDERED, values=BOUNDS, row_by_row=True
    ),
    "expect_column_values_to_be_unique": Entry(arguments=a.EachValue, scope=Scope.RECORD),
    "expect_column_values_to_match_regex": Entry(
        arguments=a.ValueMatches, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_not_match_regex": Entry(
        arguments=a.ValueMatches, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_match_regex_list": Entry(
        arguments=a.ValueMatchesSome, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_not_match_regex_list": Entry(
        arguments=a.ValueMatchesNone, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_match_strftime_format": Entry(arguments=a.ValueIsTime, scope=Scope.RECORD, kinds=TEXT),
    "expect_column_values_to_be_json_parseable": Entry(arguments=a.EachValue, scope=Scope.RECORD, kinds=TEXT),
    "expect_column_value_lengths_to_be_between": Entry(
        arguments=a.LengthBetween, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_value_lengths_to_equal": Entry(
        arguments=a.LengthEquals, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_pair_values_to_be_equal": Entry(arguments=a.Pair, scope=Scope.RECORDS, alike=True, row_by_row=True),
    "expect_column_pair_values_a_to_be_greater_than_b": Entry(
        arguments=a.Greater, scope=Scope.RECORDS, kinds=ORDERED, alike=True, row_by_row=True
    ),
    "expect_compound_columns_to_be_unique": Entry(arguments=a.CompoundUnique, scope=Scope.RECORDS),
    "expect_multicolumn_sum_to_equal": Entry(
        arguments=a.SumEquals, scope=Scope.RECORDS, kinds=frozenset({Kind.INTEGER})
    ),
    "expect_column_min_to_be_between": Entry(
        arguments=a.ColumnBetween, scope=Scope.COLUMN, kinds=ORDERED, values=BOUNDS
    ),
    "expect_column_max_to_be_between": Entry(
        arguments=a.ColumnBetween, scope=Scope.COLUMN, kinds=ORDERED, values=BOUNDS
    ),
    "expect_column_mean_to_be_between": Entry(arguments=a.FigureBetween, scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_sum_to_be_between": Entry(arguments=a.FigureBetween, scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_stdev_to_be_between": Entry(arguments=a.SpreadBetween, scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_median_to_be_between": Entry(arguments=a.FigureBetween, scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_quantile_values_to_be_between": Entry(arguments=a.Quantiles, scope=Scope.COLUMN, kinds=NUMBERS),
    "expect_column_distinct_values_to_be_in_set": Entry(
        arguments=a.DistinctValues, scope=Scope.COLUMN, values=SET, holds_for_none=True, of_none=OfNone.SET
    ),
    "expect_column_distinct_values_to_equal_set": Entry(
        arguments=a.DistinctValues, scope=Scope.COLUMN, values=SET, of_none=OfNone.SET
    ),
    "expect_column_distinct_values_to_contain_set": Entry(
        arguments=a.DistinctValues, scope=Scope.COLUMN, values=SET, of_none=OfNone.SET
    ),
    "expect_column_most_common_value_to_be_in_set": Entry(arguments=a.MostCommonValue, scope=Scope.COLUMN, values=SET),
    "expect_column_unique_value_count_to_be_between": Entry(
        arguments=a.CountBetween, scope=Scope.COLUMN, counts=True, of_none=OfNone.NUMBER
    ),
    "expect_column_proportion_of_unique_values_to_be_between": Entry(arguments=a.ShareBetween, scope=Scope.COLUMN),
    "expect_column_proportion_of_non_null_values_to_be_between": Entry(
        arguments=a.ShareBetween, scope=Scope.COLUMN, counts=True
    ),
    "expect_table_row_count_to_be_between": Entry(arguments=a.RowsBetween, scope=Scope.TABLE, of_none=OfNone.NUMBER),
    "expect_table_row_count_to_equal": Entry(arguments=a.RowsEqual, scope=Scope.TABLE, of_none=OfNone.NUMBER),
    "expect_column_to_exist": Entry(arguments=a.ColumnExists, scope=Scope.SCHEMA),
    "expect_column_values_to_be_of_type": Entry(arguments=a.ColumnOfType, scope=Scope.SCHEMA),
    "expect_column_values_to_be_in_type_list": Entry(arguments=a.ColumnOfSomeType, scope=Scope.SCHEMA),
    "expect_table_columns_to_match_set": Entry(arguments=a.ColumnsMatchSet, scope=Scope.SCHEMA),
    "expect_table_columns_to_match_ordered_list": Entry(arguments=a.ColumnsMatchList, scope=Scope.SCHEMA),
    "expect_table_column_count_to_be_between": Entry(arguments=a.ColumnsBetween, scope=Scope.SCHEMA),
    "expect_table_column_count_to_equal": Entry(arguments=a.ColumnsEqual, scope=Scope.SCHEMA),
}

VOLUME, FRESHNESS = "expect_batch_volume_like_history", "expect_batch_freshness_like_history"
# Fencepost's own types, which compare the batch with earlier ones. Great Expectations evaluates all others.
HISTORY: dict[str, type[a.Limits]] = {VOLUME: a.VolumeLimits, FRESHNESS: a.FreshnessLimits}

ROW_BY_ROW = frozenset(name for name, entry in PROVEN.items() if entry.row_by_row)  # what severity `quarantine` may use

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


def arguments_of(name: str) -> type[a.Arguments]:
    """The arguments that a type takes."""
    entry = PROVEN.get(name)
    return entry.arguments if entry else HISTORY.get(name, a.Unproven)
