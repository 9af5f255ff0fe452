"""What each type that judges single records says of one, as one Spark expression: true if it fails, null if it is not judged.

The write step asks it of the transform's rows (severity `quarantine`), and the gate of the records that are read back. So a rule
and the gate cannot differ. Columns are those of `columns.py`: NaN is null.

| a check sees | it says |
|---|---|
| a null, or a NaN, in the column | nothing; only `to_not_be_null` and `to_be_null` judge it |
| a null in one of two columns | the record fails, unless `ignore_row_if` leaves it out |
| an expression that is null | nothing, like a CHECK constraint of SQL |
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

Arguments = Mapping[str, Any]
Condition = Callable[["Sequence[Column]", Arguments], "Column"]
LARGEST_LONG = 2**63 - 1


def is_null(columns: Sequence[Column], _: Arguments) -> Column:
    return columns[0].isNull()


def is_known(columns: Sequence[Column], _: Arguments) -> Column:
    return columns[0].isNotNull()


def not_in_set(columns: Sequence[Column], kwargs: Arguments) -> Column:
    return ~columns[0].isin(kwargs["value_set"])


def in_set(columns: Sequence[Column], kwargs: Arguments) -> Column:
    return columns[0].isin(kwargs["value_set"])


def outside(columns: Sequence[Column], kwargs: Arguments) -> Column:
    return _outside(columns[0], kwargs)


def matches_not(columns: Sequence[Column], kwargs: Arguments) -> Column:
    return ~columns[0].rlike(kwargs["regex"])


def matches(columns: Sequence[Column], kwargs: Arguments) -> Column:
    return columns[0].rlike(kwargs["regex"])


def matches_too_few(columns: Sequence[Column], kwargs: Arguments) -> Column:
    """It matches none of the patterns, or not all of them under `match_on: all`."""
    together = operator.and_ if kwargs.get("match_on") == "all" else operator.or_
    return ~_found(columns[0], kwargs["regex_list"], together)


def matches_some(columns: Sequence[Column], kwargs: Arguments) -> Column:
    return _found(columns[0], kwargs["regex_list"], operator.or_)


def length_outside(columns: Sequence[Column], kwargs: Arguments) -> Column:
    from pyspark.sql import functions as F

    return _outside(F.length(columns[0]), kwargs)


def length_differs(columns: Sequence[Column], kwargs: Arguments) -> Column:
    from pyspark.sql import functions as F

    return F.length(columns[0]) != F.lit(kwargs["value"])


def is_no_json(columns: Sequence[Column], _: Arguments) -> Column:
    return ~_by_python(columns[0], _is_json)


def is_no_time(columns: Sequence[Column], kwargs: Arguments) -> Column:
    return ~_by_python(columns[0], functools.partial(_is_time, template=kwargs["strftime_format"]))


def differs(columns: Sequence[Column], kwargs: Arguments) -> Column:
    left, right = columns
    return _of_pair(columns, kwargs, left.eqNullSafe(right))


def is_not_greater(columns: Sequence[Column], kwargs: Arguments) -> Column:
    left, right = columns
    return _of_pair(columns, kwargs, left >= right if kwargs.get("or_equal") else left > right)


def sum_differs(columns: Sequence[Column], kwargs: Arguments) -> Column:
    """Of integers, exactly: their sum in a long may overflow."""
    from pyspark.sql import functions as F

    total: Column = functools.reduce(operator.add, [column.cast("decimal(20,0)") for column in columns])
    wanted = kwargs["sum_total"]
    differs = total != F.lit(Decimal(int(wanted))) if _is_whole(wanted) else F.lit(True)
    return F.when(total.isNotNull(), differs)


def does_not_hold(columns: Sequence[Column], _: Arguments) -> Column:
    """Of the values of an expression."""
    return ~columns[0]


def unique_key(columns: Sequence[Column], kwargs: Arguments) -> Column:
    """What has to differ from record to record; null for one that is not judged."""
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


def _outside(column: Column, kwargs: Arguments) -> Column:
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    sides = []
    if low is not None:
        sides.append(column <= _bound(low) if kwargs.get("strict_min") else column < _bound(low))
    if high is not None:
        sides.append(column >= _bound(high) if kwargs.get("strict_max") else column > _bound(high))
    beyond: Column = functools.reduce(operator.or_, sides)
    return beyond


def _bound(value: float) -> Column:
    """A whole number stays one: as a double it would be compared with an integer's nearest double."""
    from pyspark.sql import functions as F

    return F.lit(int(value) if _is_whole(value) and abs(value) <= LARGEST_LONG else float(value))


def _is_whole(value: float) -> bool:
    return float(value).is_integer() and abs(value) < 1e30


def _found(column: Column, patterns: Sequence[str], together: Callable[[Any, Any], Any]) -> Column:
    found: Column = functools.reduce(together, [column.rlike(pattern) for pattern in patterns])
    return found


def _of_pair(columns: Sequence[Column], kwargs: Arguments, fits: Column) -> Column:
    """A null equals only a null, and is greater than nothing."""
    from pyspark.sql import functions as F

    left, right = columns
    left_out = left.isNull() & right.isNull()
    if kwargs.get("ignore_row_if") == "either_value_is_missing":
        left_out = left.isNull() | right.isNull()
    return F.when(~left_out, ~F.coalesce(fits, F.lit(False)))


def _by_python(column: Column, holds: Callable[[str], bool]) -> Column:
    from pyspark.sql import functions as F

    def or_null(text: str | None) -> bool | None:
        return None if text is None else holds(text)

    return F.udf(or_null, "boolean", useArrow=False)(column)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_time(text: str, template: str) -> bool:
    try:
        datetime.strptime(text, template)  # noqa: DTZ007
    except ValueError:
        return False
    return True
