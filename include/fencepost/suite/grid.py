"""The grid of a column whose values are whole numbers of one unit: integers, days, microseconds or decimals.

A bound, or a member of a set, is converted to the grid before Spark compares it. So two values of one type are compared
exactly. A bound between two values becomes the next value inside the bounds. A member between two values equals no
value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Grid:
    """The multiples of ten to the power of `-scale`, from `low` to `high`. A decimal has `precision` digits."""

    precision: int
    scale: int
    low: int
    high: int

    @classmethod
    def of_bits(cls, bits: int) -> Grid:
        """Returns the integers of this many bits."""
        return cls(len(str(2 ** (bits - 1))), 0, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @classmethod
    def of_decimal(cls, precision: int, scale: int) -> Grid:
        """Returns the values of a decimal type."""
        return cls(precision, scale, 1 - 10**precision, 10**precision - 1)

    def at_or_above(self, bound: Decimal | int, *, strict: bool) -> int:
        """Returns the first value at a bound or above it. With `strict` it returns the first value above the bound."""
        units = Fraction(bound) * Fraction(10**self.scale)
        return math.floor(units) + 1 if strict else math.ceil(units)

    def at_or_below(self, bound: Decimal | int, *, strict: bool) -> int:
        """Returns the last value at a bound or below it. With `strict` it returns the last value below the bound."""
        units = Fraction(bound) * Fraction(10**self.scale)
        return math.ceil(units) - 1 if strict else math.floor(units)

    def member(self, value: Decimal | int) -> int | None:
        """Returns the value in units, or None if the column cannot have the value."""
        units = Fraction(value) * 10**self.scale
        return int(units) if units.denominator == 1 and self.low <= units <= self.high else None

    def literal(self, units: int) -> Column:
        """Returns a value as a Spark literal of the type that a column of this grid is compared with."""
        from pyspark.sql import functions as F

        if not self.scale and self.high < 2**63:
            return F.lit(units)
        return F.lit(Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -self.scale)))
