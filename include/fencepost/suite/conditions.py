"""Builds the Spark expression that says whether a single record fails a type. The expression is true if the record
fails, and null if the record is not judged.

The write step evaluates the expression on the transform's rows (severity `quarantine`), and the gate evaluates it on
the records that are read back. So a rule and the gate cannot differ. The columns are those of `columns.py`, where NaN
is null. Integers, decimals, days and times are compared exactly (`grid.py`), and doubles are compared as doubles.

| in the record | result |
|---|---|
| a null, or a NaN, in the column | not judged; only `to_not_be_null` and `to_be_null` judge it |
| a null in one of two columns | the record fails, unless `ignore_row_if` leaves it out |
| an expression that is null | not judged, as in a CHECK constraint of SQL |
"""

from __future__ import annotations

import functools
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.suite.grid import Grid

if TYPE_CHECKING:
    from pyspark.sql import Column

Arguments = Mapping[str, Any]
Condition = Callable[["Sequence[Operand]", Arguments], "Column"]
LENGTHS = Grid.of_bits(32)
DIGITS = 38  # of Spark's largest decimal
DIGITS_OF_DOUBLE = 15  # decimals with this many digits survive a conversion to double


class Operand(NamedTuple):
    """A prepared column, and the grid of the values that it can have. Doubles, texts and booleans have no grid."""

    column: Column
    grid: Grid | None = None


def is_null(columns: Sequence[Operand], _: Arguments) -> Column:
    return columns[0].column.isNull()


def is_known(columns: Sequence[Operand], _: Arguments) -> Column:
    return columns[0].column.isNotNull()


def not_in_set(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    return ~is_member(columns[0], kwargs["value_set"])


def in_set(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    return is_member(columns[0], kwargs["value_set"])


def outside(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    return _outside(columns[0], kwargs)


def matches_not(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    return ~columns[0].column.rlike(kwargs["regex"])


def matches(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    return columns[0].column.rlike(kwargs["regex"])


def matches_too_few(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    """Returns whether the value matches none of the patterns. Under `match_on: all` it returns whether the value fails
    to match one of them.
    """
    together = operator.and_ if kwargs.get("match_on") == "all" else operator.or_
    return ~_found(columns[0].column, kwargs["regex_list"], together)


def matches_some(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    return _found(columns[0].column, kwargs["regex_list"], operator.or_)


def length_outside(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    from pyspark.sql import functions as F

    return _outside(Operand(F.length(columns[0].column), LENGTHS), kwargs)


def length_differs(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    from pyspark.sql import functions as F

    return ~is_member(Operand(F.length(columns[0].column), LENGTHS), [kwargs["value"]])


def is_no_json(columns: Sequence[Operand], _: Arguments) -> Column:
    return ~_by_python(columns[0].column, _is_json)


def is_no_time(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    return ~_by_python(columns[0].column, functools.partial(_is_time, template=kwargs["strftime_format"]))


def differs(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    left, right = _comparable(columns)
    return _of_pair(columns, kwargs, left.eqNullSafe(right))


def is_not_greater(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    left, right = _comparable(columns)
    return _of_pair(columns, kwargs, left >= right if kwargs.get("or_equal") else left > right)


def sum_differs(columns: Sequence[Operand], kwargs: Arguments) -> Column:
    """Returns whether the exact sum of integers and decimals differs from the expected sum. Spark adds them in a
    decimal if that has enough digits, and otherwise Python adds them.
    """
    from pyspark.sql import functions as F

    grids = [grid for _, grid in columns if grid is not None]
    scale = max(grid.scale for grid in grids)
    precision = max(grid.precision - grid.scale for grid in grids) + scale + len(str(len(columns)))
    if precision >= DIGITS:
        wanted = kwargs["sum_total"]
        return F.udf(functools.partial(_sum_differs, wanted=wanted), "boolean", useArrow=False)(
            F.array(*(column.cast("string") for column, _ in columns))
        )
    kind, grid = f"decimal({precision},{scale})", Grid.of_decimal(precision, scale)
    total: Column = functools.reduce(
        lambda left, right: (left + right).cast(kind), [column.cast(kind) for column, _ in columns]
    )
    return ~is_member(Operand(total, grid), [kwargs["sum_total"]])


def does_not_hold(columns: Sequence[Operand], _: Arguments) -> Column:
    """Returns whether the value of an expression is false."""
    return ~columns[0].column


def unique_key(columns: Sequence[Column], kwargs: Arguments) -> Column:
    """Returns the key that has to differ between records. The key is null for a record that is not judged."""
    from pyspark.sql import functions as F

    if len(columns) == 1 and "column_list" not in kwargs:
        return columns[0]
    key, missing = F.struct(*columns), [column.isNull() for column in columns]
    match kwargs.get("ignore_row_if", "all_values_are_missing"):
        case "never":
            return key
        case "any_value_is_missing":
            return F.when(~functools.reduce(operator.or_, missing), key)
        case _:
            return F.when(~functools.reduce(operator.and_, missing), key)


def is_member(operand: Operand, values: Sequence[Any]) -> Column:
    """Returns whether a value is one of `values`, or null if it is null. A member that the column cannot have equals no
    value.
    """
    from pyspark.sql import functions as F

    column, grid = operand
    if grid is not None:
        units = [grid.member(value) for value in values]
        members: list[Any] = [grid.literal(unit) for unit in units if unit is not None]
    else:
        members = [value for value in values if not isinstance(value, float) or math.isfinite(value)]
    return column.isin(members) if members else F.when(column.isNotNull(), F.lit(False))


def _outside(operand: Operand, kwargs: Arguments) -> Column:
    """Returns whether a value is outside one of the two bounds, or null if it is null."""
    from pyspark.sql import functions as F

    column, grid = operand
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    strict_low, strict_high = bool(kwargs.get("strict_min")), bool(kwargs.get("strict_max"))
    sides = []
    if grid is not None:
        least = grid.low if low is None else grid.at_or_above(low, strict=strict_low)
        most = grid.high if high is None else grid.at_or_below(high, strict=strict_high)
        if least > grid.high or most < grid.low:
            return F.when(column.isNotNull(), F.lit(True))
        sides += [column < grid.literal(least)] if least > grid.low else []
        sides += [column > grid.literal(most)] if most < grid.high else []
    else:
        sides += [] if low is None else [column <= F.lit(low) if strict_low else column < F.lit(low)]
        sides += [] if high is None else [column >= F.lit(high) if strict_high else column > F.lit(high)]
    if not sides:
        return F.when(column.isNotNull(), F.lit(False))
    beyond: Column = functools.reduce(operator.or_, sides)
    return beyond


def _comparable(columns: Sequence[Operand]) -> list[Column]:
    """Returns the two columns in a form in which Spark compares them exactly."""
    from pyspark.sql import functions as F

    grids = [grid for _, grid in columns]
    if None in grids:  # a decimal beside a double is compared as a double
        return [column.cast("double") if grid is not None else column for column, grid in columns]
    known = [grid for grid in grids if grid is not None]
    scale = max(grid.scale for grid in known)
    if max(grid.precision - grid.scale for grid in known) + scale <= DIGITS:
        return [column for column, _ in columns]
    return [
        F.when(
            column.isNotNull(),
            F.struct(F.floor(column).cast("decimal(38,0)"), F.pmod(column, F.lit(1)).cast(f"decimal(38,{scale})")),
        )
        for column, _ in columns
    ]


def _found(column: Column, patterns: Sequence[str], together: Callable[[Any, Any], Any]) -> Column:
    found: Column = functools.reduce(together, [column.rlike(pattern) for pattern in patterns])
    return found


def _of_pair(columns: Sequence[Operand], kwargs: Arguments, fits: Column) -> Column:
    """Returns the comparison of two columns. A null equals only a null, and is greater than no value."""
    from pyspark.sql import functions as F

    (left, _), (right, _) = columns
    left_out = left.isNull() & right.isNull()
    if kwargs.get("ignore_row_if") == "either_value_is_missing":
        left_out = left.isNull() | right.isNull()
    return F.when(~left_out, ~F.coalesce(fits, F.lit(False)))


def _by_python(column: Column, holds: Callable[[str], bool]) -> Column:
    from pyspark.sql import functions as F

    def or_null(text: str | None) -> bool | None:
        return None if text is None else holds(text)

    return F.udf(or_null, "boolean", useArrow=False)(column)


def _sum_differs(texts: Sequence[str | None], wanted: Decimal) -> bool | None:
    with localcontext(prec=2_000):
        return None if None in texts else sum(Decimal(text) for text in texts if text is not None) != wanted


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_time(text: str, template: str) -> bool:
    """Returns whether Python parses the text by the format. A format without a year is tried with a leap year, so that it
    accepts 29 February. Python itself assumes 1900, which had none, and warns of that since 3.13.
    """
    if any(directive in "YyGcx" for directive in re.findall("%(.)", template, re.DOTALL)):
        return _parses(text, template)
    return _parses(f"2000/{text}", f"%Y/{template}")


def _parses(text: str, template: str) -> bool:
    try:
        datetime.strptime(text, template)  # noqa: DTZ007
    except ValueError:
        return False
    return True
