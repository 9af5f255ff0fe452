"""The arguments of every expectation type, one model for each form of question; the catalogue names each type's.

They are checked when a suite is loaded, so the gate and the rules of severity `quarantine` get the same ones. Great Expectations
takes many mistakes for a question that any batch passes: a missing regex, an empty list, `value: 0.5` records, `column_index: 0`.
Here a check that could not fail is a mistake. So is one that no batch could pass.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, JsonValue, PlainValidator, model_validator

from fencepost.model import Frozen

EXACT = 2**53  # Great Expectations compares doubles, and integers up to this survive one
# What Java's regexes have, and Python's lack or read otherwise: only Java can say whether such a pattern is valid.
JAVAS_OWN = re.compile(
    r"\\[pPhHRQEGXkze]|\\x\{|&&|\[[^]]*\[|.\(\?[a-zA-Z-]+\)|\(\?[imsx-]*[duU]|\(\?<[a-zA-Z]|[*+?}]\+", re.DOTALL
)
# Classes that other types inherit from, such as DataType, are left out: every column is one.
SPARK_TYPES = tuple(
    """ArrayType BinaryType BooleanType ByteType CalendarIntervalType CharType DateType DayTimeIntervalType DecimalType
    DoubleType FloatType IntegerType LongType MapType NullType ShortType StringType StructType TimestampNTZType TimestampType
    VarcharType VariantType YearMonthIntervalType""".split()
)
T = TypeVar("T")


def moment_of(text: str) -> datetime:
    """A date or time in ISO 8601, in UTC if it names no zone; ValueError if it is none."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text that is not empty")
    return text


def _regex(pattern: str) -> str:
    if not pattern:
        raise ValueError("expected a regex that is not empty: an empty one matches everything")
    if "(?P" in pattern:
        raise ValueError(
            f"regex {pattern!r}: Spark reads a regex as Java does, and a named group is (?<name>...) there"
        )
    try:
        if not JAVAS_OWN.search(pattern):
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"regex {pattern!r} is not valid: {error}") from None
    return pattern


def _strftime(template: str) -> str:
    try:
        datetime.strptime(datetime.now(UTC).strftime(template), template)  # noqa: DTZ007
    except ValueError as error:
        raise ValueError(f"cannot parse a time: {error}") from None
    return template


def _exact(value: object) -> object:
    if isinstance(value, int) and abs(value) > EXACT:
        raise ValueError(f"beyond 2**53, where Great Expectations cannot compare exactly; write {float(value)!r}")
    return value


def _bound(value: object) -> float | datetime:
    if isinstance(value, str):
        try:
            return moment_of(value)
        except ValueError:
            pass
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _exact(value)
        return float(value)
    raise ValueError("expected a number, or a date or time in ISO 8601")


def _value(value: object) -> object:
    # On Spark `x IN (..., NULL)` is never false, so every unexpected value would pass.
    if not isinstance(value, str | int | float | bool):
        raise ValueError("expected text, number, boolean or date; set checks skip nulls anyway")  # noqa: TRY004
    return value


def _spark_type(name: str) -> str:
    if name not in SPARK_TYPES:
        raise ValueError(f"not the name of a Spark type; allowed are {', '.join(SPARK_TYPES)}")
    return name


def _each_once(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("a name is listed twice")
    return names


Text = Annotated[str, AfterValidator(_not_blank)]
Regex = Annotated[str, AfterValidator(_regex)]
Whole = Annotated[int, Field(ge=0)]
Number = Annotated[float, BeforeValidator(_exact)]
Proportion = Annotated[float, Field(ge=0, le=1)]
Bound = Annotated[float | datetime, PlainValidator(_bound)]  # in the column's own units
Mostly = Annotated[float, Field(gt=0, le=1)]
Values = Annotated[list[Annotated[JsonValue, AfterValidator(_value)]], Field(min_length=1)]
Regexes = Annotated[list[Regex], Field(min_length=1)]
Names = Annotated[list[Text], Field(min_length=1), AfterValidator(_each_once)]
SparkType = Annotated[str, AfterValidator(_spark_type)]


class Arguments(Frozen):
    """Base: no unknown argument, and no value that is only like the one meant (`"no"`, 1.0 for a count)."""

    model_config = ConfigDict(strict=True)


class Filtered(Arguments):
    """About the records for which `row_condition`, Spark SQL, holds."""

    row_condition: Text | None = None


class Unknown(Filtered):
    """A type that is not known, which is told when the suite is checked as a whole: nothing may be empty."""

    model_config = ConfigDict(extra="allow")

    mostly: Mostly = 1

    @model_validator(mode="after")
    def _nothing_is_empty(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value in ("", [], {}):
                raise ValueError(f"{name} is empty; give a value, or leave the argument out")
        return self


class Bounds(Arguments, Generic[T]):
    """A figure between two bounds, of which one may be left out. The figure itself lies between `least` and `most`."""

    least: ClassVar[float | None] = None
    most: ClassVar[float | None] = None

    min_value: T | None = None
    max_value: T | None = None

    @model_validator(mode="after")
    def _something_is_inside_and_something_outside(self) -> Self:
        low: Any = self.min_value
        high: Any = self.max_value
        strict_low, strict_high = getattr(self, "strict_min", False), getattr(self, "strict_max", False)
        if low is None and high is None:
            raise ValueError("min_value or max_value is required; without them every value passes")
        if (strict_low and low is None) or (strict_high and high is None):
            raise ValueError("strict_min is about min_value, and strict_max about max_value, which is missing")
        if low is not None and high is not None and type(low) is not type(high):
            raise ValueError("min_value and max_value are a number and a time; give two of one kind")
        bottom, top = self.least if low is None else low, self.most if high is None else high
        if bottom is not None and top is not None and (bottom > top or (bottom == top and (strict_low or strict_high))):
            raise ValueError(f"no value lies between {bottom} and {top}")
        below = low is not None and (self.least is None or low > self.least or strict_low)
        above = high is not None and (self.most is None or high < self.most or strict_high)
        if not below and not above:
            limits = f"{self.least:g} or more" if self.most is None else f"from {self.least:g} to {self.most:g}"
            raise ValueError(f"every value passes: this figure is always {limits}")
        return self


class StrictBounds(Bounds[T], Generic[T]):
    """Bounds that may be left out themselves."""

    strict_min: bool = False
    strict_max: bool = False


class OfColumn(Filtered):
    """About one column."""

    column: Text


class EachValue(OfColumn):
    """About each value of a column that is not null; at least the share `mostly` of them holds."""

    mostly: Mostly = 1


class ValueInSet(EachValue):
    value_set: Values


class ValueBetween(EachValue, StrictBounds[Bound]):
    pass


class ValueMatches(EachValue):
    regex: Regex


class ValueMatchesNone(EachValue):
    regex_list: Regexes


class ValueMatchesSome(ValueMatchesNone):
    match_on: Literal["any", "all"] = "any"


class ValueIsTime(EachValue):
    strftime_format: Annotated[Text, AfterValidator(_strftime)]


class LengthBetween(EachValue, StrictBounds[Whole]):
    least = 0


class LengthEquals(EachValue):
    value: Whole


class Expression(Filtered):
    """A condition of Spark SQL on each record."""

    expression: Text
    mostly: Mostly = 1


class Pair(Filtered):
    """Two columns of each record."""

    column_A: Text  # noqa: N815
    column_B: Text  # noqa: N815
    ignore_row_if: Literal["both_values_are_missing", "either_value_is_missing"] = "both_values_are_missing"
    mostly: Mostly = 1

    @model_validator(mode="after")
    def _two_columns(self) -> Self:
        if self.column_A == self.column_B:
            raise ValueError(f"column_A and column_B are both {self.column_A}")
        return self


class Greater(Pair):
    or_equal: bool = False


class CompoundUnique(Filtered):
    column_list: Names
    ignore_row_if: Literal["all_values_are_missing", "any_value_is_missing", "never"] = "all_values_are_missing"
    mostly: Mostly = 1


class SumEquals(Filtered):
    """The sum over the columns of each record. A sum with a null is none, which is not the default of Great Expectations."""

    column_list: Names
    sum_total: Number
    ignore_row_if: Literal["any_value_is_missing"]
    mostly: Mostly = 1


class ColumnBetween(OfColumn, StrictBounds[Bound]):
    """A figure in the column's own units."""


class FigureBetween(OfColumn, StrictBounds[Number]):
    pass


class SpreadBetween(FigureBetween):
    least = 0


class ShareBetween(OfColumn, StrictBounds[Proportion]):
    least = 0
    most = 1


class CountBetween(OfColumn, StrictBounds[Whole]):
    least = 0


class QuantileRanges(Arguments):
    """Each quantile with the bounds of its value, of which one may be null."""

    quantiles: Annotated[list[Proportion], Field(min_length=1)]
    value_ranges: list[Annotated[list[Number | None], Field(min_length=2, max_length=2)]]

    @model_validator(mode="after")
    def _a_range_for_each(self) -> Self:
        if len(self.value_ranges) != len(self.quantiles):
            raise ValueError(f"{len(self.quantiles)} quantiles with {len(self.value_ranges)} value_ranges")
        for low, high in self.value_ranges:
            if low is None and high is None:
                raise ValueError("a range has no bound, so every value passes")
            if low is not None and high is not None and low > high:
                raise ValueError(f"no value lies in the range from {low} to {high}")
        return self


class Quantiles(OfColumn):
    quantile_ranges: QuantileRanges


class DistinctValues(OfColumn):
    value_set: Values


class MostCommonValue(DistinctValues):
    ties_okay: bool = False


class RowsBetween(Filtered, StrictBounds[Whole]):
    least = 0


class RowsEqual(Filtered):
    value: Whole


class ColumnExists(Arguments):
    """A column by its name, and by its position from 0 if that is given."""

    column: Text
    column_index: Whole | None = None


class ColumnOfType(Arguments):
    column: Text
    type_: SparkType


class ColumnOfSomeType(Arguments):
    column: Text
    type_list: Annotated[list[SparkType], Field(min_length=1)]


class ColumnsMatchSet(Arguments):
    column_set: Names
    exact_match: bool = True


class ColumnsMatchList(Arguments):
    column_list: Names


class ColumnsBetween(Bounds[Whole]):
    least = 0


class ColumnsEqual(Arguments):
    value: Whole


class Limits(Arguments):
    """How a batch is compared with the newest `batches` published before it; see `history.py`."""

    batches: int = Field(default=30, ge=2, le=1000)
    at_least: int = Field(default=7, ge=2, le=1000)
    spreads: float = Field(default=5, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _can_be_judged(self) -> Self:
        if self.at_least > self.batches:
            raise ValueError(f"at_least ({self.at_least}) is above batches ({self.batches}): nothing would be judged")
        return self


class VolumeLimits(Limits):
    """`tolerance` is a share of the median."""

    tolerance: float = Field(default=0.1, ge=0, allow_inf_nan=False)


class FreshnessLimits(Limits):
    """`tolerance_seconds` are added to the median."""

    tolerance_seconds: float = Field(default=300, ge=0, allow_inf_nan=False)
