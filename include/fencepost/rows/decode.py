"""Decode: turns the connector's rows into source records with the columns that a transform sees."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.config.sections import Source
from fencepost.config.sql_types import is_required, without_not_null
from fencepost.formats import FORMATS, REGISTRY_KEY_FORMATS, Declared
from fencepost.model import NO_SCHEMAS, Schemas

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
# The columns of Spark's Kafka connector.
CONNECTOR = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
# A source record as it is in Kafka, which quarantine keeps. Its headers are text in the form of `in_text`.
RECORD = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", StringType()),
    ]
)

DECODED_KEY = "fencepost_key"


def read_source(
    raw: DataFrame,
    source: Source,
    schemas: Schemas | None = None,
    *,
    record: bool = False,
    beside: Sequence[str] = (),
) -> DataFrame:
    """Decodes the connector's rows into the columns that a transform sees, and `_malformed`. `_malformed` has the
    reason why a record is malformed, or null.

    The columns are the value's fields (json, json_schema, avro) or `value` (bytes), and `_key`, `_topic`, `_partition`,
    `_offset`, `_timestamp` and `_tombstone`. `_headers` follows if the source's settings ask for it. A record with a
    null value is a tombstone and not malformed. The fields of a tombstone are null. `record` adds the columns that
    `with_record` needs, and then `raw` has to have headers. `schemas` are the schemas in the batch's plan. The columns
    `beside` are kept under names with `_` in front.
    """
    schemas = schemas or NO_SCHEMAS
    kept = ["key", "topic", "partition", "offset", "timestamp"]
    kept += ["headers"] if source.headers else []
    kept += [*(["value", "record"] if record else []), *beside]
    types = {name: without_not_null(kind) for name, kind in source.columns.items()}
    required = [name for name, kind in source.columns.items() if is_required(kind)]
    if record:
        raw = raw.withColumn("record", in_text(F.col("headers")))
    if source.headers:
        raw = raw.withColumn("headers", as_list(F.col("headers")))
    keys = REGISTRY_KEY_FORMATS.get(source.key_format)
    if keys is not None:  # first, because a value in bytes is smaller than its fields
        assert schemas.source_key is not None, "a plan of such a pipeline freezes it"
        raw = keys.read_key(raw, "key", DECODED_KEY, schemas.source_key)
        kept += [DECODED_KEY, f"{DECODED_KEY}_malformed"]
    frame = FORMATS[source.format].read(raw, Declared(types, required, schemas.source), kept)
    if source.headers:  # null again for a record without headers, as in the connector
        frame = frame.withColumn("_headers", F.when(F.size("_headers") > 0, F.col("_headers")))
    if keys is not None:
        frame = _with_decoded_key(with_record(frame))  # the record keeps the key's bytes
    return frame


def is_malformed() -> Column:
    """Returns whether a record in the result of `read_source` is malformed."""
    return F.col("_malformed").isNotNull()


def refused_tombstone(source: Source) -> Column:
    """Returns whether a record in the result of `read_source` is a tombstone that the settings do not give to a
    transform. A malformed record is no tombstone.
    """
    return F.lit(False) if source.tombstones == "pass" else F.col("_tombstone") & F.col("_malformed").isNull()


def with_record(frame: DataFrame, *without: str) -> DataFrame:
    """Returns the result of `read_source` without the named columns. The parts of `_record`, if the frame has them,
    become one struct, `RECORD`.

    Call it after the rows of the source are counted. In this order Spark builds the struct only for the rows that need
    it. An observing node takes whole rows, so Spark would otherwise build the struct for every row.
    """
    columns = {name: F.col(f"`{name}`") for name in frame.columns if name not in without}
    if columns.pop("_value", None) is not None:
        beside = [F.col(f"_{name}").alias(name) for name in RECORD.fieldNames() if name != "headers"]
        columns["_record"] = F.struct(*beside, F.col("_record").alias("headers"))
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def _with_decoded_key(frame: DataFrame) -> DataFrame:
    """Returns the DataFrame with `_key` decoded by the key's schema. If the key is malformed, `_key` and the fields are
    null.
    """
    decoded, bad = F.col(f"_{DECODED_KEY}"), F.col(f"_{DECODED_KEY}_malformed")
    why = F.coalesce("_malformed", F.concat(F.lit("key: "), bad))
    kept = {"_record", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_tombstone"}
    columns = {name: F.col(f"`{name}`") for name in frame.columns if not name.startswith(f"_{DECODED_KEY}")}
    columns = {name: c if name in kept else F.when(bad.isNull(), c) for name, c in columns.items()}
    columns |= {"_key": decoded, "_malformed": why}
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def no_headers() -> Column:
    """Returns an empty list of headers."""
    return F.array().cast(HEADERS)


def in_text(headers: Column) -> Column:
    """Returns the headers as JSON, with names and values in base64. The result is null if there are no headers.

    The headers are one text column, because a nested column costs time for every row on the way to Python. Names are in
    base64 because JSON would change text that is not UTF-8.
    """
    in_binary = headers.cast("array<struct<key:binary,value:binary>>")
    return F.when(F.size(headers) > 0, F.to_json(in_binary))


def as_list(headers: Column) -> Column:
    """Returns the headers, or an empty list instead of null, for a column that goes to Python.

    After each row Spark takes the size of the Arrow batch, and Arrow then walks back over all null lists before that
    row (`ListVector.setValueCount` in Arrow's Java). With nulls the time would grow with the square of the number of
    rows.
    """
    return F.coalesce(headers, no_headers())
