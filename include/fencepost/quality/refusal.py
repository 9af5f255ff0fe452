"""Finds why an expectation cannot be evaluated on a batch's columns, or why no value could fail it. Only the columns'
types decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fencepost.quality.columns import grid_of
from fencepost.quality.prepare import Prepared
from fencepost.quality.sql import sql_refusal
from fencepost.suite.conditions import DIGITS_OF_DOUBLE
from fencepost.suite.figures import SPREAD, TOTAL
from fencepost.suite.grid import Grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

FIRST_DAY, LAST_DAY, DAY = -719_162, 2_932_896, 86_400_000_000  # 0001-01-01, 9999-12-31, and microseconds


def refusal(frame: DataFrame, one: Prepared) -> str | None:
    """Returns why Spark cannot evaluate an expectation on the frame's records, or why no record could fail it. Returns
    None if there is no such reason. It starts no job.
    """
    types = {field.name: field.dataType for field in frame.schema.fields}
    if error := sql_refusal(frame, one):
        return error
    grids = [grid_of(types[name]) for name in one.columns] if one.entry.alike else []
    if None in grids and any(grid is not None and grid.precision > DIGITS_OF_DOUBLE for grid in grids):
        both = " and ".join(one.columns)
        return f"it compares {both}, a double and a decimal that no double can hold. Cast one of them in the transform"
    if {"min_value", "max_value"} <= one.kwargs.keys() and one.entry.values and one.entry.figure not in (TOTAL, SPREAD):
        (name,) = one.columns
        if (grid := _widest(types[name])) is not None and _covers(grid, one.kwargs):
            return f"every value passes: a column of {types[name].simpleString()} has no value outside the bounds"
    return next((error for regex in one.regexes if (error := regex_error(frame, regex))), None)


def _widest(data_type: DataType) -> Grid | None:
    """Returns the grid of all values that a column of that type can have, as prepared. Dates and times are limited to
    the years 1 to 9999.
    """
    from pyspark.sql import types as T

    for kind, bits in ((T.ByteType, 8), (T.ShortType, 16), (T.IntegerType, 32)):
        if isinstance(data_type, kind):
            return Grid.of_bits(bits)
    if isinstance(data_type, T.DateType):
        return Grid(7, 0, FIRST_DAY, LAST_DAY)
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return Grid(18, 0, FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1)
    return grid_of(data_type)


def _covers(grid: Grid, kwargs: Mapping[str, Any]) -> bool:
    least = grid.at_or_above(kwargs["min_value"], strict=bool(kwargs.get("strict_min")))
    return (
        least <= grid.low and grid.at_or_below(kwargs["max_value"], strict=bool(kwargs.get("strict_max"))) >= grid.high
    )


def regex_error(frame: DataFrame, regex: str) -> str | None:
    """Returns why Java, and so Spark, cannot compile the regex, or None if it can. It starts no job."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    jvm: Any = frame.sparkSession._jvm
    try:
        jvm.java.util.regex.Pattern.compile(regex)
    except (PySparkException, Py4JError) as error:
        return f"regex {regex!r} is not valid: {str(error).splitlines()[0]}"
    return None
