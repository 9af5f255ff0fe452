"""Records in and out: source bytes to a transform's columns, its result to keys and values, and those back to columns."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.config.pipeline import Output, Pipeline, Source
from fencepost.config.sql_types import is_required, without_not_null
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS, Unfit
from fencepost.formats.bytes import as_bytes
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.transform import value_schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
# A source record as it is in Kafka: what quarantine keeps of it.
RECORD = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)


def read_source(raw: DataFrame, source: Source, *, record: bool = False) -> tuple[DataFrame, Column]:
    """The connector's rows with the columns that a transform sees, and the condition that marks a row as malformed.

    Columns: the declared fields (json) or `value` (bytes), and `_key`, `_topic`, `_partition`, `_offset`,
    `_timestamp`, `_tombstone`, and `_headers` if the source asks for them. A null value is a tombstone, not
    malformed; its fields are null. `_malformed` says why a record is malformed, or is null. `record` adds the column
    `_record`, the whole source record as `RECORD`; `raw` then needs its headers.
    """
    headers = source.headers or record
    kept = ["key", "topic", "partition", "offset", "timestamp"]
    kept += ["headers"] if headers else []
    kept += ["value"] if record else []
    types = {name: without_not_null(kind) for name, kind in source.columns.items()}
    required = [name for name, kind in source.columns.items() if is_required(kind)]
    if headers:
        raw = raw.withColumn("headers", as_list(F.col("headers")))
    frame = FORMATS[source.format].read(raw, types, required, kept)
    if headers:  # null again where there are none, as the connector has it
        frame = frame.withColumn("_headers", F.when(F.size("_headers") > 0, F.col("_headers")))
    if record:
        whole = F.struct(*(F.col(f"_{name}").alias(name) for name in RECORD.fieldNames()))
        frame = frame.withColumn("_record", whole).drop("_value", *([] if source.headers else ["_headers"]))
    return frame, F.col("_malformed").isNotNull()


def no_headers() -> Column:
    """An empty list of headers."""
    return F.array().cast(HEADERS)


def as_list(headers: Column) -> Column:
    """The headers, or an empty list where they are null, for a column that goes to Python.

    Spark takes the size of an Arrow batch after each of its rows, and for that walks back over all null lists before it: the
    time would grow with the square of the batch's rows (`ListVector.setValueCount` of Arrow's Java).
    """
    return F.coalesce(headers, no_headers())


def to_records(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """A transform's result as records: key, value (binary, nullable) and hash (long), and timestamp (milliseconds) and
    headers if the pipeline names columns for them.

    Raises:
        SettingsError: a column that the pipeline names is missing, or has the wrong type.
    """
    columns = [column.alias(name) for name, column in output_columns(frame, pipeline).items()]
    order = [F.col(c) for c in ("_partition", "_offset") if c in frame.columns]
    records = frame.select(*columns, *order)
    return records.select("*", F.expr(fingerprint_hash()).alias("hash"))


def output_columns(frame: DataFrame, pipeline: Pipeline) -> dict[str, Column]:
    """A transform's result as the columns of its records, without the hash.

    Raises:
        SettingsError: as above.
    """
    output = pipeline.output
    for role in ("key", "timestamp", "headers"):
        name = getattr(output, role)
        if name is not None and name not in frame.columns:
            raise SettingsError(
                f"{pipeline.folder / 'pipeline.yaml'}: output.{role}: {pipeline.transform_file.name} gives no column {name!r}; "
                f"it gives {', '.join(frame.columns)}."
            )
    fields = value_schema(pipeline, frame)
    try:
        value = FORMATS[output.format].write(frame, fields)
        key = as_bytes(frame, output.key) if output.key else F.lit(None).cast("binary")
    except Unfit as error:
        raise SettingsError(f"{pipeline.transform_file}: {error}") from None
    return {"key": key, "value": _unless_tombstone(frame, value), **_kept(frame, output, pipeline)}


def said_columns(frame: DataFrame, pipeline: Pipeline) -> dict[str, Column]:
    """The columns of a transform's result as a reader of its records gets them back; all null for a tombstone.

    Raises:
        SettingsError: the result has none.
    """
    said = FORMATS[pipeline.output.format].said(frame, value_schema(pipeline, frame))
    return {name: _unless_tombstone(frame, column).alias(name) for name, column in said.items()}


def _unless_tombstone(frame: DataFrame, column: Column) -> Column:
    if "_tombstone" not in frame.columns:
        return column
    return F.when(~F.coalesce(F.col("_tombstone"), F.lit(False)), column)


def _kept(frame: DataFrame, output: Output, pipeline: Pipeline) -> dict[str, Column]:
    kept: dict[str, Column] = {}
    if output.timestamp:
        kind = frame.schema[output.timestamp].dataType
        if not isinstance(kind, TimestampType):
            raise SettingsError(
                f"{pipeline.transform_file}: column {output.timestamp!r}, which output.timestamp names, is of type "
                f"{kind.simpleString()}; a record's timestamp comes from a column of type timestamp."
            )
        kept["timestamp"] = F.unix_millis(F.col(f"`{output.timestamp}`"))
    if output.headers:
        kind = frame.schema[output.headers].dataType
        if not _are_headers(kind):
            raise SettingsError(
                f"{pipeline.transform_file}: column {output.headers!r}, which output.headers names, is of type "
                f"{kind.simpleString()}; a record's headers come from a column of type array<struct<key:string,value:binary>>."
            )
        kept["headers"] = as_list(F.col(f"`{output.headers}`").cast(HEADERS))
    return kept


def _are_headers(kind: DataType) -> bool:
    """Whether a column holds structs of a name and a value, in this order; values may be text."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    types = [field.dataType for field in kind.elementType.fields]
    return len(types) == 2 and isinstance(types[0], StringType) and isinstance(types[1], BinaryType | StringType)


def parse_output(raw: DataFrame, pipeline: Pipeline, schema: StructType) -> DataFrame:
    """The output's records as the suite sees them: the value's fields, with the types that the transform gave them.

    The record's coordinates come with them, and its hash if `raw` has it, under names that begin with `_`.
    """
    kept = ("key", "topic", "partition", "offset", "hash")
    coordinates = [F.col(name).alias(f"_{name}") for name in kept if name in raw.columns]
    return FORMATS[pipeline.output.format].parse(raw, schema, coordinates)
