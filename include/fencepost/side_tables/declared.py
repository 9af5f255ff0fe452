"""The declared columns of a side table, as Spark's types. Spark itself parses such a text only in a running JVM, and the
doctor reads side tables without one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T

from fencepost.config.sql_types import SqlType, parse_sql_type

SIMPLE: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}


def declared_columns(types: Mapping[str, str]) -> T.StructType:
    """Returns the columns with these Spark SQL types, which `is_sql_type` accepts."""
    return T.StructType([T.StructField(name, _spark_type(parse_sql_type(kind))) for name, kind in types.items()])


def _spark_type(kind: SqlType) -> T.DataType:
    parts = [_spark_type(part) for part in kind.parts]
    if kind.name == "array":
        return T.ArrayType(parts[0])
    if kind.name == "map":
        return T.MapType(T.StringType(), parts[0])
    if kind.name == "struct":
        return T.StructType([T.StructField(name, part) for name, part in zip(kind.fields, parts, strict=True)])
    if kind.name == "decimal":
        return T.DecimalType(kind.precision, kind.scale)
    return SIMPLE[kind.name]
