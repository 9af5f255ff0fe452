"""Converts a batch's columns to the form in which expectations are evaluated. The values are the same, but they have
few kinds of types.

| Spark type | becomes | so that |
|---|---|---|
| byte, short, int, long | long | one integer type |
| float | double, by its decimal text | 0.1 as float is 0.1, as it is in the record's JSON |
| double | double, NaN as null | NaN is a missing value |
| decimal | itself | no digit is lost |
| date | days since 1970 | bounds are numbers; reports show dates again |
| timestamp (without zone: as if UTC) | microseconds since 1970 | likewise |
| string, binary | text, byte by byte | two values are equal if their bytes are; a report shows what is not UTF-8 as U+FFFD |
| array, map, struct | their JSON, with every field, and times to the microsecond | two values differ if their texts do |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fencepost.formats.quoting import column_named
from fencepost.suite.catalogue import TEXT, Kind
from fencepost.suite.conditions import Operand
from fencepost.suite.grid import Grid

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from fencepost.quality.prepare import Prepared

COORDINATES = ("_topic", "_partition", "_offset", "_key")
HASH = "_hash"  # of key and value, if the batch is compared with its receipts
JSON = {
    "ignoreNullFields": "false",
    # Spark's own formats stop at milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


def column_kinds(frame: DataFrame) -> dict[str, Kind]:
    """Returns the value columns of a frame, in order, with the kind that each becomes."""
    return {f.name: _kind(f.dataType) for f in frame.schema.fields if f.name not in (*COORDINATES, HASH)}


def holds(condition: str) -> Column:
    """Returns whether a row_condition holds. Null counts as false."""
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))


def fails(one: Prepared, types: Mapping[str, DataType]) -> Column:
    """Returns whether a record fails an expectation about single records. The result is null if the record is not
    judged.

    `types` are the types of the frame's columns. The write step evaluates this column on the transform's rows for rules of
    severity `quarantine`, and the gate evaluates it on the records that it reads back.
    """
    from pyspark.sql import functions as F

    assert one.entry.fails is not None, "an expectation about single records"
    columns = [operand(name, types[name]) for name in one.columns]
    if one.expression is not None:
        columns = [Operand(F.expr(one.expression).cast("boolean"))]
    elif one.entry.kinds is TEXT:
        columns = [Operand(column.cast("string")) for column, _ in columns]
    return where_holds(one, one.entry.fails(columns, one.kwargs))


def where_holds(one: Prepared, column: Column) -> Column:
    """Returns the column where the expectation's row_condition holds, and null elsewhere."""
    from pyspark.sql import functions as F

    return column if one.condition is None else F.when(holds(one.condition), column)


def condition_error(frame: DataFrame, sql: str, name: str = "row_condition") -> str | None:
    """Returns why Spark cannot use `sql` as a condition on the frame's records, or None if it can. `name` is the
    argument's name.
    """
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # PySpark logs each exception with the JVM's whole stack. A plain logger of that name would break PySpark's next
    # call.
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    log.disabled, before = True, log.disabled
    try:
        frame.where(sql).schema  # noqa: B018 - analysed now, run never
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        return f"{name} {sql!r} is not valid Spark SQL here: {first}"
    finally:
        log.disabled = before
    return None


def _kind(data_type: DataType) -> Kind:
    from pyspark.sql import types as T

    if isinstance(data_type, T.ByteType | T.ShortType | T.IntegerType | T.LongType):
        return Kind.INTEGER
    if isinstance(data_type, T.FloatType | T.DoubleType):
        return Kind.NUMBER
    if isinstance(data_type, T.DecimalType):
        return Kind.DECIMAL
    if isinstance(data_type, T.BooleanType):
        return Kind.BOOLEAN
    if isinstance(data_type, T.DateType):
        return Kind.DATE
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return Kind.TIMESTAMP
    return Kind.TEXT


def prepared_column(name: str, data_type: DataType) -> Column:
    """Returns a column of a frame, converted as in this module's table."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    column = column_named(name)
    kind = _kind(data_type)
    if kind is Kind.INTEGER:
        return column.cast("bigint")
    if kind is Kind.NUMBER:
        number = column.cast("string").cast("double") if isinstance(data_type, T.FloatType) else column.cast("double")
        return F.when(~F.isnan(number), number)
    if kind in (Kind.BOOLEAN, Kind.DECIMAL):
        return column
    if kind is Kind.DATE:
        return F.unix_date(column).cast("bigint")
    if kind is Kind.TIMESTAMP:
        if isinstance(data_type, T.TimestampNTZType):
            column = F.convert_timezone(F.lit("UTC"), F.current_timezone(), column).cast("timestamp")
        return F.unix_micros(column)
    if isinstance(data_type, T.ArrayType | T.MapType | T.StructType):
        return F.to_json(column, JSON)
    return column.cast("string")


def key_column(name: str, data_type: DataType) -> Column:
    """Returns a prepared column in which equal values are identical. For example, 0.0 and -0.0 become one value."""
    prepared = prepared_column(name, data_type)
    return prepared + 0.0 if _kind(data_type) is Kind.NUMBER else prepared


def operand(name: str, data_type: DataType) -> Operand:
    """Returns a prepared column with the values that it can have."""
    return Operand(prepared_column(name, data_type), grid_of(data_type))


def grid_of(data_type: DataType) -> Grid | None:
    """Returns the grid of the values that a prepared column of that type can have. Returns None for doubles, booleans
    and texts.
    """
    from pyspark.sql.types import DecimalType

    if isinstance(data_type, DecimalType):
        return Grid.of_decimal(data_type.precision, data_type.scale)
    return Grid.of_bits(64) if _kind(data_type) in (Kind.INTEGER, Kind.DATE, Kind.TIMESTAMP) else None
