"""Quarantine rules in the write step: each expectation of a single row as one Spark expression.

On the transform's result a rule gives the answer that the gate gives on the records written from it, with either engine.
`tests/integration/quality/test_quarantine_rules.py` compares the three, row by row. The write step does not use Great
Expectations: it takes seconds to import, and counts rows where each row has to be sent one way or the other.

| a rule sees | its answer |
|---|---|
| a null, or a NaN, in the column | none, so the row is written; only `to_not_be_null` and `to_be_null` judge it |
| a null in one of two columns | the row fails, unless `ignore_row_if` leaves it out |
| an expression that is null | none, like a CHECK constraint of SQL |
| a row that its `row_condition` leaves out | none |
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.errors import SettingsError
from fencepost.quality.columns import column_kinds, condition_error, holds, prepared_column
from fencepost.quality.prepare import NotEvaluable, Prepared, prepare
from fencepost.quality.suite import Declared

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame


def rule_names(rules: Sequence[Declared]) -> tuple[str, ...]:
    """The name of each rule in headers and counts: its title, with a number if several have the same."""
    seen: dict[str, int] = {}
    names = []
    for rule in rules:
        seen[rule.title] = number = seen.get(rule.title, 0) + 1
        names.append(rule.title if number == 1 else f"{rule.title} #{number}")
    return tuple(names)


def reason_of(rule: Declared) -> str:
    """Why a row that fails the rule is in quarantine, for a person."""
    return rule.description or rule.title


def first_failed(frame: DataFrame, rules: Sequence[Declared], file: Path) -> Column:
    """The position of the first rule that a row of the frame fails; null if it fails none. `file` is the suite's.

    The frame has the columns of the output's value and no others.

    Raises:
        SettingsError: a rule cannot be evaluated on the frame's columns.
    """
    from pyspark.sql import functions as F

    kinds = column_kinds(frame)
    types = {f.name: f.dataType for f in frame.schema.fields}
    failed = []
    for number, rule in enumerate(rules):
        try:
            one = prepare(rule, kinds, "auto")
            for name, sql in (("row_condition", one.condition), ("expression", one.expression)):
                if sql and (error := condition_error(frame, sql, name)):
                    raise NotEvaluable(error)
        except NotEvaluable as error:
            raise SettingsError(f"{file}: expectations.{rule.index}: {rule.title}: {error}.") from None
        columns = [prepared_column(name, types[name], may_be_invalid=_is_lookup(one)) for name in one.columns]
        failed.append(F.when(_fails(one, columns), F.lit(number)))
    return F.coalesce(*failed) if failed else F.lit(None).cast("int")


def _is_lookup(one: Prepared) -> bool:
    """Whether the rule looks for a value in a set where no text that is made valid could be: each of those has a U+FFFD."""
    values = one.for_spark.get("value_set")
    return isinstance(values, list) and not any("\ufffd" in str(value) for value in values)


def _fails(one: Prepared, columns: Sequence[Column]) -> Column:
    """Whether a row fails; null means no."""
    from pyspark.sql import functions as F

    if one.expression is not None:
        fails = ~F.expr(one.expression).cast("boolean")
    elif len(columns) == 1:
        fails = _fails_value(one.declared.type, columns[0], one.for_spark)
    else:
        fails = _fails_pair(one, *columns)
    return fails if one.condition is None else holds(one.condition) & fails


def _fails_value(kind: str, column: Column, kwargs: Mapping[str, Any]) -> Column:
    """Whether one value fails; null for a null, unless the check is about nulls."""
    match kind:
        case "expect_column_values_to_not_be_null":
            return column.isNull()
        case "expect_column_values_to_be_null":
            return column.isNotNull()
        case "expect_column_values_to_be_in_set":
            return ~column.isin(kwargs["value_set"])
        case "expect_column_values_to_not_be_in_set":
            return column.isin(kwargs["value_set"])
        case "expect_column_values_to_be_between":
            return _outside(column, kwargs)
        case "expect_column_values_to_match_regex":
            return ~column.rlike(kwargs["regex"])
        case "expect_column_values_to_not_match_regex":
            return column.rlike(kwargs["regex"])
        case "expect_column_values_to_match_regex_list":
            together = operator.and_ if kwargs.get("match_on") == "all" else operator.or_
            return ~_matches(column, kwargs["regex_list"], together)
        case "expect_column_values_to_not_match_regex_list":
            return _matches(column, kwargs["regex_list"], operator.or_)
        case "expect_column_value_lengths_to_be_between":
            return _outside(_length(column), kwargs)
        case "expect_column_value_lengths_to_equal":
            differs: Column = _length(column) != float(kwargs["value"])
            return differs
    raise AssertionError(kind)


def _outside(column: Column, kwargs: Mapping[str, Any]) -> Column:
    """Bounds are doubles, as in Great Expectations: an integer beyond 2**53 is compared as a double."""
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    sides = []
    if low is not None:
        sides.append(column <= float(low) if kwargs.get("strict_min") else column < float(low))
    if high is not None:
        sides.append(column >= float(high) if kwargs.get("strict_max") else column > float(high))
    outside: Column = functools.reduce(operator.or_, sides)
    return outside


def _matches(column: Column, patterns: Sequence[str], together: Callable[[Any, Any], Any]) -> Column:
    found: Column = functools.reduce(together, [column.rlike(pattern) for pattern in patterns])
    return found


def _length(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.length(column)


def _fails_pair(one: Prepared, left: Column, right: Column) -> Column:
    """Whether two values of a row fail: a null equals only a null, and is greater than nothing."""
    from pyspark.sql import functions as F

    kwargs = one.for_spark
    if one.declared.type == "expect_column_pair_values_to_be_equal":
        fits = left.eqNullSafe(right)
    else:
        fits = F.coalesce(left >= right if kwargs.get("or_equal") else left > right, F.lit(False))
    left_out = left.isNull() & right.isNull()
    if kwargs.get("ignore_row_if") == "either_value_is_missing":
        left_out = left.isNull() | right.isNull()
    fails: Column = ~left_out & ~fits
    return fails
