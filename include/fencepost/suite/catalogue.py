"""The catalogue of expectation types. Each entry has the type's arguments and columns, and what Spark evaluates for it.

`tests/integration/quality/test_answers.py` has cases for each type, and `test_great_expectations_agrees.py` compares
each type with Great Expectations' own engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fencepost.suite import arguments as a
from fencepost.suite import conditions as c
from fencepost.suite import figures as f
from fencepost.suite.conditions import Condition
from fencepost.suite.figures import Figure


class Kind(StrEnum):
    """The kind of a column's values once they are prepared for Great Expectations (see `columns.py`)."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    NUMBER = "number"  # a double
    BOOLEAN = "boolean"
    TEXT = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"


class Scope(StrEnum):
    """The subject of an expectation: records, a column, the number of records, or the columns' names and types."""

    RECORD = "record"  # each value of one column
    RECORDS = "records"  # each record's values in several columns
    COLUMN = "column"  # one number or set drawn from a column
    TABLE = "table"  # the number of records
    SCHEMA = "schema"  # names and Spark types of the columns; needs no record


class OfNone(StrEnum):
    """The value of a column's or table's metric in a batch without records."""

    NUMBER = "number"  # 0, a result like any other
    SET = "set"  # the empty set
    NOTHING = "nothing"  # not defined: a minimum, a mean, a share of 0


ANY = frozenset(Kind)
EXACT = frozenset({Kind.INTEGER, Kind.DECIMAL})
NUMBERS = EXACT | {Kind.NUMBER}
ORDERED = NUMBERS | {Kind.DATE, Kind.TIMESTAMP}
TEXT = frozenset({Kind.TEXT, Kind.DECIMAL})  # for a decimal, its digits


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The catalogue's entry for one type.

    `arguments` is the model of what a suite may give, `kinds` the kinds of columns it accepts, and `values` the
    arguments in the column's own units. `alike` says that all columns have to be of one kind. Integers and decimals
    count as one kind.

    `fails` is the condition on a single record, and `row_by_row` says that severity `quarantine` may use it. `unique`
    says that the type compares records with each other. `figure` is computed from a column. `gathering.py` gathers sets
    of a column's values, and the column's most common values. A COLUMN check fails on a column without any value. With
    `holds_for_none` the check passes on such a column, and with `counts` the check is evaluated. `of_none` is its
    metric on a batch without records. A check whose metric is undefined on such a batch does not fail.
    """

    arguments: type[a.Arguments]
    scope: Scope
    kinds: frozenset[Kind] = ANY
    values: tuple[str, ...] = ()
    alike: bool = False
    fails: Condition | None = None
    row_by_row: bool = False
    unique: bool = False
    figure: Figure | None = None
    holds_for_none: bool = False
    counts: bool = False
    of_none: OfNone = OfNone.NOTHING


BOUNDS = ("min_value", "max_value")
SET = ("value_set",)
RANGES = ("quantile_ranges",)

EXPRESSION = "expect_expression_to_be_true"  # Fencepost's own: a condition in Spark SQL, which Spark evaluates

KNOWN: dict[str, Entry] = {
    EXPRESSION: Entry(fails=c.does_not_hold, arguments=a.Expression, scope=Scope.RECORDS, row_by_row=True),
    "expect_column_values_to_not_be_null": Entry(
        fails=c.is_null, arguments=a.EachValue, scope=Scope.RECORD, row_by_row=True
    ),
    "expect_column_values_to_be_null": Entry(
        fails=c.is_known, arguments=a.EachValue, scope=Scope.RECORD, row_by_row=True
    ),
    "expect_column_values_to_be_in_set": Entry(
        fails=c.not_in_set, arguments=a.ValueInSet, scope=Scope.RECORD, values=SET, row_by_row=True
    ),
    "expect_column_values_to_not_be_in_set": Entry(
        fails=c.in_set, arguments=a.ValueInSet, scope=Scope.RECORD, values=SET, row_by_row=True
    ),
    "expect_column_values_to_be_between": Entry(
        fails=c.outside, arguments=a.ValueBetween, scope=Scope.RECORD, kinds=ORDERED, values=BOUNDS, row_by_row=True
    ),
    "expect_column_values_to_be_unique": Entry(unique=True, arguments=a.EachValue, scope=Scope.RECORD),
    "expect_column_values_to_match_regex": Entry(
        fails=c.matches_not, arguments=a.ValueMatches, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_not_match_regex": Entry(
        fails=c.matches, arguments=a.ValueMatches, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_match_regex_list": Entry(
        fails=c.matches_too_few, arguments=a.ValueMatchesSome, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_not_match_regex_list": Entry(
        fails=c.matches_some, arguments=a.ValueMatchesNone, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_values_to_match_strftime_format": Entry(
        fails=c.is_no_time, arguments=a.ValueIsTime, scope=Scope.RECORD, kinds=TEXT
    ),
    "expect_column_values_to_be_json_parseable": Entry(
        fails=c.is_no_json, arguments=a.EachValue, scope=Scope.RECORD, kinds=TEXT
    ),
    "expect_column_value_lengths_to_be_between": Entry(
        fails=c.length_outside, arguments=a.LengthBetween, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_value_lengths_to_equal": Entry(
        fails=c.length_differs, arguments=a.LengthEquals, scope=Scope.RECORD, kinds=TEXT, row_by_row=True
    ),
    "expect_column_pair_values_to_be_equal": Entry(
        fails=c.differs, arguments=a.Pair, scope=Scope.RECORDS, alike=True, row_by_row=True
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": Entry(
        fails=c.is_not_greater, arguments=a.Greater, scope=Scope.RECORDS, kinds=ORDERED, alike=True, row_by_row=True
    ),
    "expect_compound_columns_to_be_unique": Entry(unique=True, arguments=a.CompoundUnique, scope=Scope.RECORDS),
    "expect_multicolumn_sum_to_equal": Entry(
        fails=c.sum_differs, arguments=a.SumEquals, scope=Scope.RECORDS, kinds=EXACT
    ),
    "expect_column_min_to_be_between": Entry(
        figure=f.LOWEST, arguments=a.ColumnBetween, scope=Scope.COLUMN, kinds=ORDERED, values=BOUNDS
    ),
    "expect_column_max_to_be_between": Entry(
        figure=f.HIGHEST, arguments=a.ColumnBetween, scope=Scope.COLUMN, kinds=ORDERED, values=BOUNDS
    ),
    "expect_column_mean_to_be_between": Entry(
        figure=f.MEAN, arguments=a.FigureBetween, scope=Scope.COLUMN, kinds=NUMBERS, values=BOUNDS
    ),
    "expect_column_sum_to_be_between": Entry(
        figure=f.TOTAL, arguments=a.FigureBetween, scope=Scope.COLUMN, kinds=NUMBERS, values=BOUNDS
    ),
    "expect_column_stdev_to_be_between": Entry(
        figure=f.SPREAD, arguments=a.SpreadBetween, scope=Scope.COLUMN, kinds=NUMBERS, values=BOUNDS
    ),
    "expect_column_median_to_be_between": Entry(
        figure=f.MEDIAN, arguments=a.FigureBetween, scope=Scope.COLUMN, kinds=NUMBERS, values=BOUNDS
    ),
    "expect_column_quantile_values_to_be_between": Entry(
        figure=f.QUANTILES, arguments=a.Quantiles, scope=Scope.COLUMN, kinds=NUMBERS, values=RANGES
    ),
    "expect_column_distinct_values_to_be_in_set": Entry(
        arguments=a.DistinctValuesInSet, scope=Scope.COLUMN, values=SET, holds_for_none=True, of_none=OfNone.SET
    ),
    "expect_column_distinct_values_to_equal_set": Entry(
        arguments=a.DistinctValues, scope=Scope.COLUMN, values=SET, of_none=OfNone.SET
    ),
    "expect_column_distinct_values_to_contain_set": Entry(
        arguments=a.DistinctValues, scope=Scope.COLUMN, values=SET, of_none=OfNone.SET
    ),
    "expect_column_most_common_value_to_be_in_set": Entry(arguments=a.MostCommonValue, scope=Scope.COLUMN, values=SET),
    "expect_column_unique_value_count_to_be_between": Entry(
        figure=f.DISTINCT, arguments=a.CountBetween, scope=Scope.COLUMN, counts=True, of_none=OfNone.NUMBER
    ),
    "expect_column_proportion_of_unique_values_to_be_between": Entry(
        figure=f.SHARE_DISTINCT, arguments=a.ShareBetween, scope=Scope.COLUMN
    ),
    "expect_column_proportion_of_non_null_values_to_be_between": Entry(
        figure=f.SHARE_KNOWN, arguments=a.ShareBetween, scope=Scope.COLUMN, counts=True
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

ROW_BY_ROW = frozenset(name for name, entry in KNOWN.items() if entry.row_by_row)  # what severity `quarantine` may use

# Types of Great Expectations that people ask for and that cannot be used: why, and what to use instead.
REFUSED: dict[str, str] = {
    "expect_column_values_to_match_like_pattern": "Great Expectations has it for SQL only; use a regex",
    "expect_column_values_to_match_like_pattern_list": "Great Expectations has it for SQL only; use a regex list",
    "expect_column_values_to_not_match_like_pattern": "Great Expectations has it for SQL only; use a regex",
    "expect_column_values_to_not_match_like_pattern_list": "Great Expectations has it for SQL only; use a regex list",
    "expect_column_values_to_be_dateutil_parseable": "use a strftime format or a regex",
    "expect_column_values_to_be_increasing": (
        "a batch's records have an order only within a partition; compare two columns of one record instead"
    ),
    "expect_column_values_to_be_decreasing": (
        "a batch's records have an order only within a partition; compare two columns of one record instead"
    ),
}


def arguments_of(name: str) -> type[a.Arguments]:
    """Returns the arguments that a type takes."""
    entry = KNOWN.get(name)
    return entry.arguments if entry else HISTORY.get(name, a.Unknown)
