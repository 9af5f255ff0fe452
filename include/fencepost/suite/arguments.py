"""The arguments of every expectation type. There is a model for each form, and the catalogue names each type's model.

Arguments are checked when a suite is loaded, so the gate and the rules of severity `quarantine` get the same arguments.
Great Expectations accepts many mistakes as expectations that any batch passes: a missing regex, an empty list, `value:
0.5` records, `column_index: 0`. In this module a check that cannot fail is a mistake, and so is a check that no batch
can pass.
"""

from __future__ import annotations

import math
import re
import warnings
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, JsonValue, PlainValidator, model_validator

from fencepost.model import Frozen
from fencepost.suite.numbers import exact_number, number_of, shown
from fencepost.suite.regexes import check_regex

LONGEST_TEXT = 2**31 - 1  # characters of a Spark text
LARGEST_COUNT = 2**63 - 1
# A time for trying formats. Its day exists in every year, and no two of its parts are equal.
SOME_MOMENT = datetime(2003, 11, 23, 17, 36, 49, 123_456, tzinfo=UTC)
# Classes that other types inherit from, such as DataType, are left out, because every column is one.
SPARK_TYPES = tuple(
    """ArrayType BinaryType BooleanType ByteType CalendarIntervalType CharType DateType DayTimeIntervalType DecimalType
    DoubleType FloatType IntegerType LongType MapType NullType ShortType StringType StructType TimestampNTZType TimestampType
    VarcharType VariantType YearMonthIntervalType""".split()
)
# No output format gives a column of one of these.
COLUMN_TYPES = set(SPARK_TYPES) - set(
    "CalendarIntervalType CharType DayTimeIntervalType NullType VarcharType VariantType YearMonthIntervalType".split()
)
T = TypeVar("T")


def moment_of(text: str) -> datetime:
    """Returns a date or time in ISO 8601, in UTC if the text names no zone. Raises ValueError if the text is neither."""
    if re.search(r"[.,][0-9]{6}[0-9]*[1-9]", text):
        raise ValueError("it has digits below the microsecond")
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text that is not empty")
    return text


def _strftime(template: str) -> str:
    """Refuses a format by which Python cannot parse a time. The format is tried with a time whose day exists in every
    year.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a day without a year is ambiguous
            datetime.strptime(SOME_MOMENT.strftime(template), template)  # noqa: DTZ007
    except (ValueError, LookupError, OverflowError, re.error) as error:
        raise ValueError(f"cannot parse a time: {error}") from None
    return template


def _bound(value: object) -> Decimal | datetime:
    number = number_of(value)
    if number is not None:
        return number
    if isinstance(value, str):
        try:
            return moment_of(value)
        except ValueError:
            pass
    raise ValueError("expected a number, or a date or time in ISO 8601")


def _quantile(value: Decimal) -> Decimal:
    if value != round(value, 15):
        raise ValueError("expected a share with up to fifteen digits after its point")
    return value


def _value(value: object) -> object:
    # In Spark `x IN (..., NULL)` is never false, so every unexpected value would pass.
    if not isinstance(value, str | int | float | bool):
        raise ValueError("expected text, number, boolean or date; set checks skip nulls anyway")  # noqa: TRY004
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected a finite number")
    return value


def _not_both(values: list[JsonValue]) -> list[JsonValue]:
    if {type(value) for value in values} == {bool} and len(set(map(bool, values))) == 2:
        raise ValueError("it has both booleans, and every boolean is one of them")
    return values


def _spark_type(name: str) -> str:
    if name not in SPARK_TYPES:
        raise ValueError(f"not the name of a Spark type; allowed are {', '.join(SPARK_TYPES)}")
    return name


def _not_all(names: list[str]) -> list[str]:
    if set(names) >= COLUMN_TYPES:
        raise ValueError("every type that a column has is listed, so every column passes")
    return names


def _two_or_more(names: list[str]) -> list[str]:
    if len(names) < 2:
        raise ValueError("expected two columns or more; for one column, use the check of its values")
    return names


def _each_once(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("a name is listed twice")
    return names


Text = Annotated[str, AfterValidator(_not_blank)]
Regex = Annotated[str, AfterValidator(check_regex)]
Whole = Annotated[int, Field(ge=0)]
Number = Annotated[Decimal, BeforeValidator(exact_number)]
Proportion = Annotated[Number, Field(ge=0, le=1)]
Bound = Annotated[Decimal | datetime, PlainValidator(_bound)]  # in the column's own units
Mostly = Annotated[Number, Field(gt=0, le=1)]
Values = Annotated[list[Annotated[JsonValue, AfterValidator(_value)]], Field(min_length=1)]
SomeValues = Annotated[Values, AfterValidator(_not_both)]
Regexes = Annotated[list[Regex], Field(min_length=1)]
Names = Annotated[list[Text], Field(min_length=1), AfterValidator(_each_once)]
SeveralNames = Annotated[Names, AfterValidator(_two_or_more)]
SparkType = Annotated[str, AfterValidator(_spark_type)]


class Arguments(Frozen):
    """The base of all arguments. It refuses unknown arguments, and values that look similar but have another type
    (`"no"`, 1.0 for a count).
    """

    model_config = ConfigDict(strict=True)


class Filtered(Arguments):
    """An expectation about the records for which `row_condition` holds. A `row_condition` is Spark SQL."""

    row_condition: Text | None = None


class Unknown(Filtered):
    """An unknown type. The check of the whole suite refuses it. This model only refuses empty arguments."""

    model_config = ConfigDict(extra="allow")

    mostly: Mostly = Decimal(1)

    @model_validator(mode="after")
    def _nothing_is_empty(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value in ("", [], {}):
                raise ValueError(f"{name} is empty; give a value, or leave the argument out")
        return self


class Bounds(Arguments, Generic[T]):
    """A figure between two bounds, one of which may be omitted. The figure itself is between `least` and `most`. A
    bound above `largest` is a mistake.
    """

    least: ClassVar[int | None] = None
    most: ClassVar[int | None] = None
    largest: ClassVar[int | None] = None

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
            raise ValueError("strict_min needs min_value, and strict_max needs max_value")
        if low is not None and high is not None and type(low) is not type(high):
            raise ValueError("min_value and max_value are a number and a time; give two of one kind")
        bottom, top = self.least if low is None else low, self.most if high is None else high
        if bottom is not None and top is not None and (bottom > top or (bottom == top and (strict_low or strict_high))):
            raise ValueError(f"no value lies between {_said(bottom)} and {_said(top)}")
        below = low is not None and (self.least is None or low > self.least or strict_low)
        top = self.largest if self.most is None else self.most
        above = high is not None and (top is None or high < top or (high == top and strict_high))
        if not below and not above:
            limits = f"{self.least:g} or more" if self.most is None else f"from {self.least:g} to {self.most:g}"
            raise ValueError(f"every value passes: this figure is always {limits}")
        return self


def _said(bound: Any) -> Any:
    number = shown(bound)
    return float(number) if isinstance(bound, Decimal) and abs(bound) < 10**15 else number


class StrictBounds(Bounds[T], Generic[T]):
    """Two bounds, each of which a value may have to differ from (`strict_min`, `strict_max`)."""

    strict_min: bool = False
    strict_max: bool = False


class OfColumn(Filtered):
    """An expectation about one column."""

    column: Text


class EachValue(OfColumn):
    """An expectation about each value of a column that is not null. At least the share `mostly` of the values has to
    pass.
    """

    mostly: Mostly = Decimal(1)


class ValueInSet(EachValue):
    value_set: SomeValues


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
    largest = LONGEST_TEXT


class LengthEquals(EachValue):
    value: Annotated[Whole, Field(le=LONGEST_TEXT)]


class Expression(Filtered):
    """A condition in Spark SQL on each record."""

    expression: Text
    mostly: Mostly = Decimal(1)


class Pair(Filtered):
    """An expectation about two columns of each record."""

    column_A: Text  # noqa: N815
    column_B: Text  # noqa: N815
    ignore_row_if: Literal["both_values_are_missing", "either_value_is_missing"] = "both_values_are_missing"
    mostly: Mostly = Decimal(1)

    @model_validator(mode="after")
    def _two_columns(self) -> Self:
        if self.column_A == self.column_B:
            raise ValueError(f"column_A and column_B are both {self.column_A}")
        return self


class Greater(Pair):
    or_equal: bool = False


class CompoundUnique(Filtered):
    column_list: SeveralNames
    ignore_row_if: Literal["all_values_are_missing", "any_value_is_missing", "never"] = "all_values_are_missing"
    mostly: Mostly = Decimal(1)


class SumEquals(Filtered):
    """The sum over the columns of each record. A sum with a null is null, unlike the default of Great Expectations."""

    column_list: SeveralNames
    sum_total: Number
    ignore_row_if: Literal["any_value_is_missing"]
    mostly: Mostly = Decimal(1)


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
    largest = LARGEST_COUNT


class QuantileRanges(Arguments):
    """Quantiles, each with the bounds of its value. One of the two bounds may be null."""

    quantiles: Annotated[list[Annotated[Proportion, AfterValidator(_quantile)]], Field(min_length=1)]
    value_ranges: list[Annotated[list[Number | None], Field(min_length=2, max_length=2)]]

    @model_validator(mode="after")
    def _a_range_for_each(self) -> Self:
        if len(self.value_ranges) != len(self.quantiles):
            raise ValueError(
                f"each quantile needs one value_range: there are {len(self.quantiles)} quantiles and "
                f"{len(self.value_ranges)} value_ranges"
            )
        for low, high in self.value_ranges:
            if low is None and high is None:
                raise ValueError("a range has no bound, so every value passes")
            if low is not None and high is not None and low > high:
                raise ValueError(f"no value lies in the range from {_said(low)} to {_said(high)}")
        return self


class Quantiles(OfColumn):
    quantile_ranges: QuantileRanges


class DistinctValues(OfColumn):
    value_set: Values


class DistinctValuesInSet(OfColumn):
    value_set: SomeValues


class MostCommonValue(DistinctValuesInSet):
    ties_okay: bool = False


class RowsBetween(Filtered, StrictBounds[Whole]):
    least = 0
    largest = LARGEST_COUNT


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
    type_list: Annotated[list[SparkType], Field(min_length=1), AfterValidator(_not_all)]


class ColumnsMatchSet(Arguments):
    column_set: Names
    exact_match: bool = True


class ColumnsMatchList(Arguments):
    column_list: Names


class ColumnsBetween(Bounds[Whole]):
    least = 0
    largest = LARGEST_COUNT


class ColumnsEqual(Arguments):
    value: Whole


class Limits(Arguments):
    """The limits of a comparison with the newest `batches` that were published earlier (`history.py`).

    A limit of a hundred spreads, of the whole median, or of ten years is a mistake, because no batch could be so far
    from the others.
    """

    batches: int = Field(default=30, ge=2, le=1000)
    at_least: int = Field(default=7, ge=2, le=1000)
    spreads: Annotated[Number, Field(gt=0, le=100)] = Decimal(5)

    @model_validator(mode="after")
    def _can_be_judged(self) -> Self:
        if self.at_least > self.batches:
            raise ValueError(f"at_least ({self.at_least}) is above batches ({self.batches}): nothing would be judged")
        return self


class VolumeLimits(Limits):
    """`tolerance` is a share of the median. With a tolerance of 1, even a batch without records would be as large as
    usual.
    """

    tolerance: Annotated[Number, Field(ge=0, lt=1)] = Decimal("0.1")


class FreshnessLimits(Limits):
    """`tolerance_seconds` are added to the median."""

    tolerance_seconds: Annotated[Number, Field(ge=0, le=10 * 366 * 86_400)] = Decimal(300)
