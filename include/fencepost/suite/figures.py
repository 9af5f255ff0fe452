"""Computes what a type asks about a column as a whole: Spark's aggregates, and the figure that follows from them.

Figures of integers and decimals are exact, however large they become and in whichever order their values are added.
Exact figures are integers, decimals, or fractions of these. Figures of doubles are Spark's, as doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.suite.conditions import Operand
from fencepost.suite.grid import Grid
from fencepost.suite.numbers import exact_number

if TYPE_CHECKING:
    from pyspark.sql import Column

Arguments = Mapping[str, Any]
ROOM = 10  # digits by which a sum in Spark may be longer than what it adds
LIMB = 10  # digits of a part of a number that has no room
DIGITS = 38  # digits of Spark's largest decimal


class Figure(NamedTuple):
    """A figure of a column's values, with Great Expectations' name for it.

    `aggregates` builds Spark's aggregates of the values. Nulls do not count. `drawn` computes the figure from the
    aggregates, from the numbers of records and of values, and from the column's grid. `drawn` is called only if there
    is a value. `ranked` says that the figure consists of values at given ranks. `key` maps numbers to other numbers
    that compare in the same way. `added` says that for doubles the figure depends on the order in which Spark adds
    them.
    """

    metric: str
    drawn: Callable[..., Any]
    aggregates: Callable[[Operand], list[Column]] = lambda _: []
    ranked: bool = False
    key: Callable[[Any], Any] = lambda number: number
    added: bool = False


class Root(NamedTuple):
    """The exact square root of a fraction. Roots are compared by their squares."""

    square: Fraction

    @property
    def nearest(self) -> float:
        """Returns the root as a double."""
        with localcontext(prec=60):
            return float((Decimal(self.square.numerator) / Decimal(self.square.denominator)).sqrt())


def _lowest(values: Operand) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.min(values.column)]


def _highest(values: Operand) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.max(values.column)]


def _distinct(values: Operand) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.count_distinct(values.column)]


def _parts(values: Operand, room: int) -> list[Column]:
    """Returns the values in parts whose sums Spark can hold, the highest part first. There is one part, or there are
    parts of ten digits each.
    """
    from pyspark.sql import functions as F

    column, grid = values
    assert grid is not None, "of integers and decimals"
    if grid.precision <= room:
        return [column.cast(f"decimal({grid.precision},{grid.scale})")]
    # In any notation the digits before an exponent are those of the number in its own units.
    digits = F.lpad(F.translate(F.substring_index(column.cast("string"), "E", 1), "-.", ""), LIMB * _limbs(grid), "0")
    limbs = [F.substring(digits, LIMB * n + 1, LIMB).cast("decimal(10,0)") for n in range(_limbs(grid))]
    return [F.when(column < 0, -limb).otherwise(limb) for limb in limbs]


def _limbs(grid: Grid) -> int:
    """Returns the number of parts of a value. If all digits are after the point, Spark writes a zero before the point."""
    return math.ceil(max(grid.precision, grid.scale + 1) / LIMB)


def _weights(grid: Grid, room: int) -> list[Fraction]:
    """Returns the factor by which each part of a number counts."""
    if grid.precision <= room:
        return [Fraction(1)]
    return [Fraction(10 ** (LIMB * n), 10**grid.scale) for n in reversed(range(_limbs(grid)))]


def _sums(values: Operand) -> list[Column]:
    from pyspark.sql import functions as F

    if values.grid is None:
        return [F.sum(values.column)]
    return [F.sum(part) for part in _parts(values, DIGITS - ROOM)]


def _total(grid: Grid | None, sums: Sequence[Any]) -> Fraction | float:
    if grid is None:
        return float(sums[0])
    weights = _weights(grid, DIGITS - ROOM)
    return sum((weight * Fraction(part) for weight, part in zip(weights, sums, strict=True)), Fraction(0))


def _mean(grid: Grid | None, values: int, sums: Sequence[Any]) -> Fraction | float:
    return _total(grid, sums) / values


SQUARED = (DIGITS - ROOM) // 2 - 1  # digits whose square fits


def _squares(values: Operand) -> list[Column]:
    from pyspark.sql import functions as F

    if values.grid is None:
        return [F.stddev_samp(values.column)]
    parts = _parts(values, SQUARED)
    return [*_sums(values), *(F.sum(parts[i] * parts[j]) for i in range(len(parts)) for j in range(i, len(parts)))]


def _deviation(grid: Grid | None, values: int, found: Sequence[Any]) -> Root | float | None:
    """Returns the standard deviation of the sample, or None for one value."""
    if values < 2:
        return None
    if grid is None:
        return None if found[0] is None else float(found[0])
    count = len(_weights(grid, DIGITS - ROOM))
    total, products = Fraction(_total(grid, found[:count])), iter(found[count:])
    weights = _weights(grid, SQUARED)
    squares = Fraction(0)
    for i, left in enumerate(weights):
        for j in range(i, len(weights)):
            squares += (1 if i == j else 2) * left * weights[j] * Fraction(next(products))
    return Root((values * squares - total * total) / (values * (values - 1)))


def _squared(number: Any) -> Any:
    """Returns the square of a deviation or of its bound. A negative bound gives a negative number."""
    if isinstance(number, Root):
        return number.square
    if isinstance(number, float):
        return number
    square = Fraction(number) ** 2
    return -square if number < 0 else square


def _middle(two: Sequence[Any]) -> Any:
    low, high = two
    if isinstance(low, float):
        return low if low == high else low / 2 + high / 2
    return (Fraction(low) + Fraction(high)) / 2


def ranks_of(figure: Figure, kwargs: Arguments) -> list[tuple[int, int, int]]:
    """Returns the ranks of the values that a figure needs, among n values in order, from 1. Each rank is given as `(a,
    b, c)`, which means `(a * n + b) div c`, and is at least 1.
    """
    if figure is MEDIAN:
        return [(1, 1, 2), (1, 2, 2)]
    shares = [Fraction(exact_number(q)) for q in kwargs["quantile_ranges"]["quantiles"]]
    return [(q.numerator, q.denominator - 1, q.denominator) for q in shares]


LOWEST = Figure("column.min", lambda _rows, _values, _grid, low: low, _lowest)
HIGHEST = Figure("column.max", lambda _rows, _values, _grid, high: high, _highest)
TOTAL = Figure("column.sum", lambda _rows, _values, grid, *sums: _total(grid, sums), _sums, added=True)
MEAN = Figure("column.mean", lambda _rows, values, grid, *sums: _mean(grid, values, sums), _sums, added=True)
SPREAD = Figure(
    "column.standard_deviation",
    lambda _rows, values, grid, *found: _deviation(grid, values, found),
    _squares,
    key=_squared,
    added=True,
)
MEDIAN = Figure("column.median", lambda _rows, _values, _grid, two: _middle(two), ranked=True)
QUANTILES = Figure("column.quantile_values", lambda _rows, _values, _grid, found: list(found), ranked=True)
DISTINCT = Figure("column.distinct_values.count", lambda _rows, _values, _grid, found: found, _distinct)
SHARE_DISTINCT = Figure(
    "column.unique_proportion", lambda _rows, values, _grid, found: Fraction(found, values), _distinct
)
SHARE_KNOWN = Figure("column.non_null_proportion", lambda rows, values, _grid: Fraction(values, rows) if rows else 0)
