"""The batch as Great Expectations sees it: the same values, of few kinds, on both engines.

| Spark type | becomes | so that |
|---|---|---|
| byte, short, int, long | long | one integer type |
| float | double, by its decimal text | 0.1 as float is 0.1, as it is in the record's JSON |
| double | double, NaN as null | NaN is a missing value on both engines |
| decimal up to 15 digits | double | it fits exactly, and compares with bounds as written |
| wider decimal | text | no digit is lost; compare it in the transform |
| date | days since 1970 | bounds are numbers on both engines; reports show dates again |
| timestamp (without zone: as if UTC) | microseconds since 1970 | likewise |
| string, binary | string of valid UTF-8 | invalid bytes become U+FFFD, as in the record's JSON |
| array, map, struct | their JSON | likewise |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fencepost.quality.catalogue import Kind

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

COORDINATES = ("_topic", "_partition", "_offset", "_key")
HASH = "_hash"  # of key and value, if the batch is compared with its receipts
NONE: Mapping[str, str] = {}
EXACT_DIGITS = 15  # decimals of so many digits survive a double
EXACT_INTEGER = 2**53  # integers up to this survive a double


def column_kinds(frame: DataFrame) -> dict[str, Kind]:
    """The value columns of a frame, in order, with the kind that each becomes."""
    return {f.name: _kind(f.dataType) for f in frame.schema.fields if f.name not in (*COORDINATES, HASH)}


def prepared_frame(
    frame: DataFrame, columns: Iterable[str], conditions: Mapping[str, str], expressions: Mapping[str, str] = NONE
) -> DataFrame:
    """Coordinates, hash, the checked columns, one boolean column per row_condition (name: Spark SQL), and one per expression,
    which may be null.

    Spark always evaluates conditions and expressions, on the transform's own columns, whichever engine judges.
    """
    from pyspark.sql import functions as F

    types = {f.name: f.dataType for f in frame.schema.fields}
    return frame.select(
        *(F.col(name) for name in (*COORDINATES, HASH) if name in types),
        *(prepared_column(name, types[name]).alias(name) for name in columns),
        *(holds(sql).alias(n) for n, sql in conditions.items()),
        *(F.expr(sql).cast("boolean").alias(n) for n, sql in expressions.items()),
    )


def holds(condition: str) -> Column:
    """Whether a row_condition holds; a null means no."""
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))


def condition_error(frame: DataFrame, sql: str, name: str = "row_condition") -> str | None:
    """Why Spark cannot take `sql`, an argument of that name, as a condition on the frame's records, or None."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # PySpark logs what it raises, with the JVM's whole stack. A plain logger with that name would fail PySpark's next call.
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
    if isinstance(data_type, T.DecimalType) and data_type.precision <= EXACT_DIGITS:
        return Kind.NUMBER
    if isinstance(data_type, T.BooleanType):
        return Kind.BOOLEAN
    if isinstance(data_type, T.DateType):
        return Kind.DATE
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return Kind.TIMESTAMP
    return Kind.TEXT


def prepared_column(name: str, data_type: DataType, *, may_be_invalid: bool = False) -> Column:
    """A column of a frame, converted by the table above. `may_be_invalid`: text that is no UTF-8 stays as it is."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    column = F.col(f"`{name}`")
    kind = _kind(data_type)
    if kind is Kind.INTEGER:
        return column.cast("bigint")
    if kind is Kind.NUMBER:
        number = column.cast("string").cast("double") if isinstance(data_type, T.FloatType) else column.cast("double")
        return F.when(~F.isnan(number), number)
    if kind is Kind.BOOLEAN:
        return column
    if kind is Kind.DATE:
        return F.unix_date(column).cast("bigint")
    if kind is Kind.TIMESTAMP:
        if isinstance(data_type, T.TimestampNTZType):
            column = F.convert_timezone(F.lit("UTC"), F.current_timezone(), column).cast("timestamp")
        return F.unix_micros(column)
    if isinstance(data_type, T.ArrayType | T.MapType | T.StructType):
        return F.to_json(column)
    text = column.cast("string")
    return text if may_be_invalid else F.make_valid_utf8(text)


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """The checked columns of an Arrow table as pandas columns whose nulls never turn into another value or type.

    Integers with nulls become doubles if that is exact, else Python's own integers. A comparison with a null is False, as in
    Spark's null-safe `==`, and never pandas' NA, which no count would include.
    """
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            columns[name] = column.to_pandas().astype(pd.StringDtype("pyarrow", na_value=np.nan))
        elif pa.types.is_integer(column.type) and column.null_count:
            ends = pc.min_max(column).as_py()
            exact = all(end is None or abs(end) <= EXACT_INTEGER for end in ends.values())
            columns[name] = (
                column.cast(pa.float64()).to_pandas() if exact else column.to_pandas(integer_object_nulls=True)
            )
        else:
            columns[name] = column.to_pandas()
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))
