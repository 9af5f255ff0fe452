"""Records in and out: source bytes to the columns a transform sees, and its result to keys and values.

A format is a pair of functions in `READERS` and `WRITERS`; Avro would be a third entry in each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.errors import SettingsError
from fencepost.json_records import decoding
from fencepost.settings import Output, Pipeline, Source
from fencepost.spark import fingerprint_hash, value_schema

NOT_NULL = re.compile(r"\s+not\s+null$", re.IGNORECASE)
JSON_OUT = {
    "ignoreNullFields": "false",
    # Spark's own formats stop at milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def read_source(raw: DataFrame, source: Source) -> tuple[DataFrame, Column]:
    """The connector's rows with what a transform sees, and the condition under which a row is malformed.

    Columns: the declared fields (json) or `value` (bytes), and `_key`, `_topic`, `_partition`, `_offset`,
    `_timestamp`, `_tombstone`, and `_headers` when the source asks for them. A null value is a tombstone, not
    malformed: its fields are null. `_malformed` says why a record is, or is null.
    """
    return READERS[source.format](raw, source), F.col("_malformed").isNotNull()


def _read_json(raw: DataFrame, source: Source) -> DataFrame:
    ddl = ", ".join(f"`{name}` {NOT_NULL.sub('', kind)}" for name, kind in source.columns.items())
    fields = cast("StructType", StructType.fromDDL(ddl))
    required = [name for name, kind in source.columns.items() if NOT_NULL.search(kind)]
    read = raw.select("value", *_kept_columns(source))
    others = [StructField(f"_{f.name}", f.dataType) for f in read.schema.fields[1:]]
    added = [StructField("_tombstone", BooleanType()), StructField("_malformed", StringType())]
    decode = decoding(to_arrow_schema(fields), required)
    return read.mapInArrow(decode, StructType([*fields.fields, *others, *added]))


def _read_bytes(raw: DataFrame, source: Source) -> DataFrame:
    others = [F.col(name).alias(f"_{name}") for name in _kept_columns(source)]
    tombstone, never = F.col("value").isNull().alias("_tombstone"), F.lit(None).cast("string").alias("_malformed")
    return raw.select("value", *others, tombstone, never)


def _kept_columns(source: Source) -> list[str]:
    return ["key", "topic", "partition", "offset", "timestamp", *(["headers"] if source.headers else [])]


def to_records(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """A transform's result as records: key, value (binary, nullable), hash (long), and where the pipeline keeps them
    timestamp (milliseconds) and headers.

    Raises:
        SettingsError: a column the pipeline names is not in the result, or cannot serve.
    """
    output = pipeline.output
    for role in ("key", "timestamp", "headers"):
        name = getattr(output, role)
        if name is not None and name not in frame.columns:
            raise SettingsError(
                f"{pipeline.folder / 'pipeline.yaml'}: output.{role}: {pipeline.transform_file.name} gives no column {name!r}; "
                f"it gives {', '.join(frame.columns)}."
            )
    value = WRITERS[output.format](frame, pipeline)
    if "_tombstone" in frame.columns:
        value = F.when(~F.coalesce(F.col("_tombstone"), F.lit(False)), value)
    key = _as_bytes(frame, output.key, pipeline) if output.key else F.lit(None).cast("binary")
    columns = [key.alias("key"), value.alias("value"), *_kept(frame, output, pipeline)]
    order = [F.col(c) for c in ("_partition", "_offset") if c in frame.columns]
    records = frame.select(*columns, *order)
    return records.select("*", F.expr(fingerprint_hash()).alias("hash"))


def _write_json(frame: DataFrame, pipeline: Pipeline) -> Column:
    schema = value_schema(pipeline, frame)
    for field in schema.fields:
        if what := _unsayable(field.dataType):
            raise SettingsError(
                f"{pipeline.transform_file}: column {field.name!r} has {what}, which JSON cannot say. Rename or cast it."
            )
    packed = F.struct(*(F.col(f"`{name}`") for name in schema.fieldNames()))
    return F.to_json(packed, JSON_OUT).cast("binary")


def _unsayable(kind: DataType) -> str | None:
    """What in this type Spark would write as JSON that says something else: keys in their internal form, doubled names."""
    if isinstance(kind, ArrayType):
        return _unsayable(kind.elementType)
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType | NumericType | BooleanType):
            return f"a map with keys of type {kind.keyType.simpleString()}"
        return _unsayable(kind.valueType)
    if isinstance(kind, StructType):
        if len(set(kind.fieldNames())) < len(kind.fields):
            return "a struct in which a name is there twice"
        return next((what for f in kind.fields if (what := _unsayable(f.dataType))), None)
    return None


def _write_bytes(frame: DataFrame, pipeline: Pipeline) -> Column:
    if "value" not in frame.columns:
        raise SettingsError(f"{pipeline.transform_file}: output format bytes needs a column named value.")
    return _as_bytes(frame, "value", pipeline)


def _as_bytes(frame: DataFrame, name: str, pipeline: Pipeline) -> Column:
    """Binary as it is; anything with one text form by its text in UTF-8."""
    kind: DataType = frame.schema[name].dataType
    if isinstance(kind, BinaryType):
        return F.col(f"`{name}`")
    if kind.typeName() in {"array", "map", "struct", "void"}:
        raise SettingsError(
            f"{pipeline.transform_file}: column {name!r} is of type {kind.simpleString()}; a record's bytes come from a "
            "binary, string or simple column."
        )
    return F.col(f"`{name}`").cast("string").cast("binary")


def _kept(frame: DataFrame, output: Output, pipeline: Pipeline) -> list[Column]:
    kept = []
    if output.timestamp:
        kind = frame.schema[output.timestamp].dataType
        if not isinstance(kind, TimestampType):
            raise SettingsError(
                f"{pipeline.transform_file}: column {output.timestamp!r}, which output.timestamp names, is of type "
                f"{kind.simpleString()}; a record's timestamp comes from a column of type timestamp."
            )
        kept.append(F.unix_millis(F.col(f"`{output.timestamp}`")).alias("timestamp"))
    if output.headers:
        kind = frame.schema[output.headers].dataType
        if not _are_headers(kind):
            raise SettingsError(
                f"{pipeline.transform_file}: column {output.headers!r}, which output.headers names, is of type "
                f"{kind.simpleString()}; a record's headers come from a column of type array<struct<key:string,value:binary>>."
            )
        kept.append(F.col(f"`{output.headers}`").cast(HEADERS).alias("headers"))
    return kept


def _are_headers(kind: DataType) -> bool:
    """Whether a column holds names and values, in this order; values may be text."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    types = [field.dataType for field in kind.elementType.fields]
    return len(types) == 2 and isinstance(types[0], StringType) and isinstance(types[1], BinaryType | StringType)


def parse_output(raw: DataFrame, pipeline: Pipeline, schema: StructType) -> DataFrame:
    """The output's records as the suite sees them: the value's fields with the types the transform gave them.

    Beside them the record's coordinates, and its hash where `raw` has it, under names that begin with `_`.
    """
    kept = ("key", "topic", "partition", "offset", "hash")
    coordinates = [F.col(name).alias(f"_{name}") for name in kept if name in raw.columns]
    if pipeline.output.format == "bytes":
        return raw.select("value", *coordinates)
    parsed = raw.withColumn("_json", F.from_json(F.col("value").cast("string"), schema, {"mode": "FAILFAST"}))
    return parsed.select(*(F.col(f"_json.`{f.name}`").alias(f.name) for f in schema.fields), *coordinates)


READERS: dict[str, Callable[[DataFrame, Source], DataFrame]] = {"json": _read_json, "bytes": _read_bytes}
WRITERS: dict[str, Callable[[DataFrame, Pipeline], Column]] = {"json": _write_json, "bytes": _write_bytes}
