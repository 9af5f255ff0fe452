"""Decides how the columns of a query in PostgreSQL are read, and converts their values to Spark's types. A value is
converted exactly or not at all. Pure.

The driver has no type of Arrow for some types of PostgreSQL, and a wrong one for others: a money is an integer of cents,
an array of two dimensions is a list of one. So each type that is read is named here, and texts are made by the server.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

NATURAL: Mapping[str, t.DataType] = {
    "int2": t.ShortType(),
    "int4": t.IntegerType(),
    "int8": t.LongType(),
    "float4": t.FloatType(),
    "float8": t.DoubleType(),
    "bool": t.BooleanType(),
    "bytea": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestampNTZType(),
    "timestamptz": t.TimestampType(),
    "uuid": t.StringType(),
    "json": t.StringType(),
    "jsonb": t.StringType(),
}
NUMERIC = "numeric"
WHOLE = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
# The types of PostgreSQL whose values may be read as a Spark type, if all of them fit.
FITTING: Mapping[type[t.DataType], tuple[str, ...]] = {
    **dict.fromkeys(WHOLE, ("int2", "int4", "int8", NUMERIC)),
    t.DecimalType: ("int2", "int4", "int8", NUMERIC),
    t.FloatType: ("int2", "float4"),
    t.DoubleType: ("int2", "int4", "int8", "float4", "float8"),
    t.BooleanType: ("bool",),
    t.BinaryType: ("bytea",),
    t.DateType: ("date",),
    t.TimestampType: ("timestamptz",),
    t.TimestampNTZType: ("timestamp",),
}
MODIFIER_OFFSET = 4  # a modifier of numeric is precision and scale, and 4
MOST_DIGITS = 38
# Spark's functions know the years 1 to 9999. Beyond them are PostgreSQL's infinity and years BC, too.
FIRST_DAY, LAST_DAY = datetime.date.min.toordinal() - 719_163, datetime.date.max.toordinal() - 719_163
MICROSECONDS = 86_400_000_000  # of a day


class Unreadable(Exception):
    """The query's rows cannot be read. The text says why and what to do, as whole sentences, without values."""


@dataclass(frozen=True)
class QueryColumn:
    """A column of the query. `kind` is PostgreSQL's name of its type, or of an array's elements. `wanted` is the type in
    Spark.
    """

    name: str
    kind: str
    is_array: bool
    wanted: t.DataType

    @property
    def type(self) -> str:
        """Returns PostgreSQL's name of the column's type."""
        return f"{self.kind}[]" if self.is_array else self.kind

    def value(self, name: str) -> str:
        """Returns the expression that reads the column, which has this name in the statement. A value that the driver has
        no type for is read as the server's text.
        """
        inner = self.wanted.elementType if isinstance(self.wanted, t.ArrayType) else self.wanted
        if isinstance(inner, t.DecimalType) or (isinstance(inner, WHOLE) and self.kind == NUMERIC):
            return f"{name}::text[]" if self.is_array else f"trim_scale({name}::numeric)::text"
        if isinstance(inner, t.StringType):
            return f"{name}::text[]" if isinstance(self.wanted, t.ArrayType) else f"{name}::text"
        return name


def columns_of(found: pa.Schema, declared: t.StructType) -> list[QueryColumn]:
    """Returns the columns of the query, with the declared types, or with the types that follow from PostgreSQL's if none
    are declared. `found` has the query's columns as the driver describes them.

    Raises:
        Unreadable: the query does not return the declared columns, or a column has a type that is not read.
    """
    if not len(found):
        raise Unreadable("the query returns no columns. Give a SELECT statement.")
    if declared.fields:
        _check_names(found.names, declared.fieldNames())
    return [_column(field, declared[field.name].dataType if declared.fields else None) for field in found]


def _check_names(found: list[str], declared: list[str]) -> None:
    if missing := [name for name in declared if name not in found]:
        raise Unreadable(
            f"the query returns no column {missing[0]!r}, which schema declares. It returns {', '.join(found)}. PostgreSQL "
            "changes a name without double quotes to lower case. Correct schema or the query."
        )
    if others := [name for name in found if name not in declared]:
        raise Unreadable(
            f"the query returns column {others[0]!r}, which schema does not declare. Declare it, or leave it out of the query."
        )
    if twice := [name for name in declared if found.count(name) > 1]:
        raise Unreadable(f"the query returns column {twice[0]!r} more than once. Give each column a name of its own.")


def _column(field: pa.Field, wanted: t.DataType | None) -> QueryColumn:
    kind, is_array = _kind_of(field)
    if wanted is None:
        inner = _natural(field.name, kind, is_array, _modifier(field))
        return QueryColumn(field.name, kind, is_array, t.ArrayType(inner) if is_array else inner)
    column = QueryColumn(field.name, kind, is_array, wanted)
    if isinstance(wanted, t.StringType):
        return column
    inner = wanted.elementType if is_array and isinstance(wanted, t.ArrayType) else wanted
    fits = isinstance(inner, t.StringType) if is_array else False
    if isinstance(wanted, t.ArrayType) == is_array and (fits or kind in FITTING.get(type(inner), ())):
        return column
    raise Unreadable(
        f"column {field.name} is {column.type}, which is not read as {wanted.simpleString()}. {_advice(column)}"
    )


def _advice(column: QueryColumn) -> str:
    if column.kind == "timestamp" and isinstance(column.wanted, t.TimestampType):
        return f"Declare timestamp_ntz, or write {column.name} AT TIME ZONE 'UTC' in the query if its times are in UTC."
    return "Declare another type, or cast the column in the query, where rounding is yours to choose."


def _kind_of(field: pa.Field) -> tuple[str, bool]:
    """Returns PostgreSQL's name of a column's type, or of an array's elements, and whether it is an array. Types of texts
    and enums are all `text`. The name of a user's own type that the driver does not know is as the driver gives it.
    """
    is_array = pa.types.is_list(field.type)
    inner = field.type.value_type if is_array else field.type
    named = (field.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
    if pa.types.is_string(inner):
        return "text", is_array
    return named.removeprefix("_") if is_array else named, is_array


def _modifier(field: pa.Field) -> int:
    return int((field.metadata or {}).get(b"POSTGRESQL:typmod", b"-1"))


def _natural(name: str, kind: str, is_array: bool, modifier: int) -> t.DataType:
    """Returns the type in Spark of a column, or of an array's elements, that is not declared."""
    if kind == "text":
        return t.StringType()
    if kind == NUMERIC:
        return _decimal(name, is_array, modifier)
    if kind in NATURAL:
        return NATURAL[kind]
    raise Unreadable(
        f"column {name} is {kind}{'[]' if is_array else ''}, which is not read. Cast it in the query, for example to text: "
        f"{name}::text."
    )


def _decimal(name: str, is_array: bool, modifier: int) -> t.DecimalType:
    if is_array or modifier < 0:
        example = f"{name}::numeric(18, 2)[]" if is_array else f"{name}::numeric(18, 2)"
        raise Unreadable(
            f"column {name} is {NUMERIC}{'[]' if is_array else ''}, and the query does not say with how many digits. Declare all "
            f"columns in schema, this one for example as {'array<decimal(18, 2)>' if is_array else 'decimal(18, 2)'}"
            f"{'' if is_array else f', or cast it in the query: {example}'}."
        )
    packed = modifier - MODIFIER_OFFSET
    precision, scale = packed >> 16 & 0xFFFF, (packed & 0x7FF ^ 0x400) - 0x400
    digits = max(precision - scale, 0) + max(scale, 0)
    if digits > MOST_DIGITS:
        raise Unreadable(
            f"column {name} is numeric({precision}, {scale}), and a decimal of Spark has at most {MOST_DIGITS} digits. Declare a "
            "smaller one in schema, which all values have to fit, or cast it in the query."
        )
    return t.DecimalType(digits, max(scale, 0))


def converted(batch: pa.RecordBatch, columns: list[QueryColumn], before: int) -> pa.RecordBatch:
    """Returns rows with the types of `columns`. After the columns, `batch` has one for each array that says whether it has
    several dimensions. `before` is the number of rows before these.

    Raises:
        Unreadable: names the column and the row of the first value that does not fit.
    """
    arrays = [column for column in columns if column.is_array]
    for column, several in zip(arrays, batch.columns[len(columns) :], strict=True):
        if (row := pc.index(several, True).as_py()) >= 0:
            raise Unreadable(
                f"column {column.name}, row {before + row + 1:,}: an array of several dimensions, which is not read. Unnest it "
                "in the query."
            )
    values = [_converted(column, values, before) for column, values in zip(columns, batch.columns, strict=False)]
    return pa.RecordBatch.from_arrays(values, [column.name for column in columns])


def _converted(column: QueryColumn, values: pa.Array, before: int) -> pa.Array:
    kind = to_arrow_type(column.wanted, timestamp_utc=True)

    def as_wanted(some: pa.Array) -> pa.Array | None:
        try:
            found = some.cast(kind)
        except pa.ArrowInvalid:  # its text quotes the value
            return None
        return found if _within_years(found) else None

    if (found := as_wanted(values)) is not None:
        return found
    row = _first_bad(values, lambda some: as_wanted(some) is not None)
    raise Unreadable(
        f"column {column.name}, row {before + row + 1:,}: a value of type {column.type} that {column.wanted.simpleString()} "
        f"cannot hold exactly{_beyond(column.wanted)}. Correct the row, declare another type, or change the query."
    )


def _beyond(wanted: t.DataType) -> str:
    inner = wanted.elementType if isinstance(wanted, t.ArrayType) else wanted
    if isinstance(inner, t.DateType | t.TimestampType | t.TimestampNTZType):
        return ", such as infinity, or a year before 1 or after 9999"
    return ", such as NaN, or one with more digits" if isinstance(inner, t.DecimalType) else ""


def _within_years(values: pa.Array) -> bool:
    if pa.types.is_list(values.type):
        values = values.flatten()
    if not pa.types.is_date32(values.type) and not pa.types.is_timestamp(values.type):
        return True
    is_date = pa.types.is_date32(values.type)
    numbers = values.cast(pa.int32() if is_date else pa.int64())
    first, last = (FIRST_DAY, LAST_DAY) if is_date else (FIRST_DAY * MICROSECONDS, (LAST_DAY + 1) * MICROSECONDS - 1)
    least, most = pc.min_max(numbers).as_py().values()
    return least is None or (least >= first and most <= last)


def _first_bad(values: pa.Array, fits: Callable[[pa.Array], bool]) -> int:
    """Returns the index of the first value that does not fit, of values of which one does not."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        part = values.take(pa.array(range(low, middle)))  # a cast of a slice of lists casts the values of all of them
        low, high = (middle, high) if fits(part) else (low, middle)
    return low


def selection(columns: list[QueryColumn], names: list[str]) -> Iterator[str]:
    """Yields the expressions of a SELECT that reads the columns, which have these names in the statement. After them it
    yields, for each array, whether it has several dimensions.
    """
    for column, name in zip(columns, names, strict=True):
        yield column.value(name)
    for column, name in zip(columns, names, strict=True):
        if column.is_array:
            yield f"coalesce(array_ndims({name}), 1) > 1"
