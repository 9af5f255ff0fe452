"""Spark's types by their names, without a Spark."""

from __future__ import annotations

import re

from pyspark.sql import types as t

PLAIN: dict[str, t.DataType] = {
    "tinyint": t.ByteType(),
    "smallint": t.ShortType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "boolean": t.BooleanType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
    "timestamp_ntz": t.TimestampNTZType(),
    "void": t.NullType(),
    "interval day to second": t.DayTimeIntervalType(),
    "variant": t.VariantType(),
    "time(6)": t.TimeType(),
}


def columns(**kinds: str) -> t.StructType:
    """Columns by their types."""
    return t.StructType([t.StructField(name, spark_type(kind)) for name, kind in kinds.items()])


def spark_type(text: str) -> t.DataType:
    """The type of this name, as `DataType.simpleString` gives it."""
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", text):
        return t.DecimalType(int(decimal[1]), int(decimal[2]))
    if nested := re.fullmatch(r"(array|map|struct)<(.*)>", text):
        parts = _parts(nested[2])
        if nested[1] == "array":
            return t.ArrayType(spark_type(parts[0]))
        if nested[1] == "map":
            return t.MapType(spark_type(parts[0]), spark_type(parts[1]))
        named = [part.split(":", 1) for part in parts]
        return t.StructType([t.StructField(name, spark_type(kind)) for name, kind in named])
    return PLAIN[text]


def _parts(text: str) -> list[str]:
    """The text between commas that are in no brackets."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return found
