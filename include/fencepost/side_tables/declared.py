"""The declared columns of a side table, as Spark's types. Spark itself parses such a text only in a running JVM, and the
doctor reads side tables without one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from fencepost.config.sql_types import SqlType, parse_sql_type

SIMPLE: Mapping[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}


def declared_columns(types: Mapping[str, str]) -> StructType:
    """Returns the columns with these Spark SQL types, which `is_sql_type` accepts."""
    return StructType([StructField(name, _spark_type(parse_sql_type(kind))) for name, kind in types.items()])


def _spark_type(kind: SqlType) -> DataType:
    parts = [_spark_type(part) for part in kind.parts]
    if kind.name == "array":
        return ArrayType(parts[0])
    if kind.name == "map":
        return MapType(StringType(), parts[0])
    if kind.name == "struct":
        return StructType([StructField(name, part) for name, part in zip(kind.fields, parts, strict=True)])
    if kind.name == "decimal":
        return DecimalType(kind.precision, kind.scale)
    return SIMPLE[kind.name]
