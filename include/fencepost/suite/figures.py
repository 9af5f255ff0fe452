"""What Great Expectations asks about a column as a whole, as Spark's aggregates, by the names of its metrics.

Sums of integers and decimals are exact, however large they become and in whichever order they are added, and so are means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column

Arguments = Mapping[str, Any]
EXACTLY = 2**31 - 1  # the accuracy with which Spark keeps every value


class Figure(NamedTuple):
    """A figure drawn from a column's values.

    `aggregates` of the values, which are null where there is none. From these, after the numbers of records and of values,
    `metrics` makes what Great Expectations asks for; it is called only if there is a value. `exact`: the aggregates take decimals
    where the column has integers or decimals.
    """

    aggregates: Callable[[Column, Arguments], list[Column]]
    metrics: Callable[..., dict[str, Any]]
    exact: bool = False


def lowest(values: Column, _: Arguments) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.min(values)]


def highest(values: Column, _: Arguments) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.max(values)]


def total(values: Column, _: Arguments) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.sum(values)]


def spread(values: Column, _: Arguments) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.stddev_samp(values)]


def median(values: Column, _: Arguments) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.median(values)]


def at_ranks(values: Column, kwargs: Arguments) -> list[Column]:
    """The value at rank ceil(q * n), as a double; at rank 1 for q = 0."""
    from pyspark.sql import functions as F

    wanted = [float(q) for q in kwargs["quantile_ranges"]["quantiles"]]
    return [F.percentile_approx(values.cast("double"), wanted, EXACTLY)]


def distinct(values: Column, _: Arguments) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.count_distinct(values)]


def nothing(_values: Column, _: Arguments) -> list[Column]:
    return []


def total_of(found: Any) -> float:
    """An exact integer stays one; a decimal becomes the nearest double, as its bounds are those nearest to their texts."""
    if not isinstance(found, Decimal):
        return float(found)
    return int(found) if found == found.to_integral_value() else float(found)


def mean_of(found: Any, values: int) -> float:
    return float(Fraction(found) / values) if isinstance(found, Decimal) else float(found / values)


LOWEST = Figure(lowest, lambda _rows, _values, low: {"column.min": low})
HIGHEST = Figure(highest, lambda _rows, _values, high: {"column.max": high})
TOTAL = Figure(total, lambda _rows, _values, found: {"column.sum": total_of(found)}, exact=True)
MEAN = Figure(total, lambda _rows, values, found: {"column.mean": mean_of(found, values)}, exact=True)
SPREAD = Figure(spread, lambda _rows, _values, found: {"column.standard_deviation": found})
MEDIAN = Figure(median, lambda _rows, _values, found: {"column.median": found})
QUANTILES = Figure(at_ranks, lambda _rows, _values, found: {"column.quantile_values": found})
DISTINCT = Figure(distinct, lambda _rows, _values, found: {"column.distinct_values.count": found})
SHARE_DISTINCT = Figure(distinct, lambda _rows, values, found: {"column.unique_proportion": found / values})
SHARE_KNOWN = Figure(nothing, lambda rows, values: {"column.non_null_proportion": values / rows if rows else 0})
