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

from fencepost.config.source import Source
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS, READ_KEY_FORMATS, REGISTRY_KEY_FORMATS, BadSchema, ReadKeyFormat
from fencepost.formats.format import malformed_key
from fencepost.formats.framing import ExcludedKind
from fencepost.formats.json_key_decoder import null_key
from fencepost.formats.quoting import column_named
from fencepost.model import NO_SCHEMAS, ReadSchemas, Schemas

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
MALFORMED_KEY = malformed_key(DECODED_KEY)
# Columns that do not depend on the key.
NO_FIELDS = frozenset("_value _record _topic _partition _offset _timestamp _headers _tombstone _excluded".split())


def read_source(
    raw: DataFrame,
    source: Source,
    schemas: Schemas | None = None,
    *,
    record: bool = False,
    beside: Sequence[str] = (),
) -> DataFrame:
    """Decodes the connector's rows into the columns that a transform sees, `_malformed` and `_excluded`. `_malformed` has the
    reason why a record is malformed, and `_excluded` the kind of a record that the source does not read. Otherwise they are
    null.

    The columns are the value's fields (json, json_schema, avro) or `value` (bytes), and `_key`, the key's fields, `_topic`,
    `_partition`, `_offset`, `_timestamp` and `_tombstone`. `_headers` follows if the source's settings ask for it. A record
    with a null value is a tombstone and not malformed. The value's fields are null for a tombstone. `record` adds the columns
    that `with_record` needs, and then `raw` has to have headers. `schemas` are the schemas in the batch's plan. The
    columns `beside` are kept under names with `_` in front.
    """
    found = (schemas or NO_SCHEMAS).of(source.topic)
    kept = ["key", "topic", "partition", "offset", "timestamp"]
    kept += ["headers"] if source.headers else []
    kept += [*(["value", "record"] if record else []), *beside]
    keys = READ_KEY_FORMATS.get(source.key_format)
    if record:
        raw = raw.withColumn("record", in_text(F.col("headers")))
    if source.headers:
        raw = raw.withColumn("headers", as_list(F.col("headers")))
    if keys is not None:  # first, because a value in bytes is smaller than its fields
        before = set(raw.columns)
        raw = _with_key(raw, source, keys, found.key)
        kept += [name for name in raw.columns if name not in before]
    frame = FORMATS[source.format].read(raw, source.declared.under(found.value), kept)
    if source.headers:  # null again for a record without headers, as in the connector
        frame = frame.withColumn("_headers", F.when(F.size("_headers") > 0, F.col("_headers")))
    if keys is not None:
        if source.key_format in REGISTRY_KEY_FORMATS:
            frame = with_record(frame)  # the record keeps the key's bytes
        frame = _with_decoded_key(frame, [f"_{name}" for name in beside])
    return frame


def is_malformed() -> Column:
    """Returns whether a record in the result of `read_source` is malformed."""
    return F.col("_malformed").isNotNull()


def is_excluded() -> Column:
    """Returns whether the source does not read a record in the result of `read_source`. Such a record is not malformed."""
    return F.col("_excluded").isNotNull()


def is_truncation() -> Column:
    """Returns whether a record in the result of `read_source` is a truncation of the source table."""
    return F.coalesce(F.col("_excluded") == ExcludedKind.TRUNCATIONS.value, F.lit(False))


def refused_tombstone(source: Source) -> Column:
    """Returns whether a record in the result of `read_source` is a tombstone that the settings do not give to a
    transform. A malformed record and an excluded record are no tombstones.
    """
    if source.tombstones == "pass":
        return F.lit(False)
    return F.col("_tombstone") & F.col("_malformed").isNull() & F.col("_excluded").isNull()


def with_record(frame: DataFrame, *without: str) -> DataFrame:
    """Returns the result of `read_source` without the named columns. The parts of `_record`, if the frame has them,
    become one struct, `RECORD`.

    Call it after the rows of the source are counted. In this order Spark builds the struct only for the rows that need
    it. An observing node takes whole rows, so Spark would otherwise build the struct for every row.
    """
    columns = {name: column_named(name) for name in frame.columns if name not in without}
    if columns.pop("_value", None) is not None:
        beside = [F.col(f"_{name}").alias(name) for name in RECORD.fieldNames() if name != "headers"]
        columns["_record"] = F.struct(*beside, F.col("_record").alias("headers"))
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def _with_key(raw: DataFrame, source: Source, keys: ReadKeyFormat, schemas: ReadSchemas | None) -> DataFrame:
    """Returns the connector's rows with the decoded keys.

    Raises:
        SettingsError: a field is declared with another type than the key's schema has.
    """
    declared = source.declared_key.under(schemas)
    try:
        found = keys.read_key(raw, "key", DECODED_KEY, declared)
    except BadSchema as error:
        raise SettingsError(f"topic {source.topic}: {error}. Declare the schema's type.") from None
    if not declared.required:
        return found
    no_key = F.when(F.isnull("key"), F.lit(null_key(declared.field_of(declared.required[0]))))
    return found.withColumn(MALFORMED_KEY, F.coalesce(MALFORMED_KEY, no_key))


def _with_decoded_key(frame: DataFrame, beside: Sequence[str]) -> DataFrame:
    """Returns the DataFrame with the fields of the key behind `_key`. If the format has a registry, `_key` is the decoded
    key. If the key is malformed, these and the value's fields are null.
    """
    bad, decoded = F.col(f"_{MALFORMED_KEY}"), f"_{DECODED_KEY}"
    columns = dict[str, Column]()
    for name in frame.columns:
        if name == "_key":
            columns[name] = F.when(bad.isNull(), F.col(decoded)) if decoded in frame.columns else F.col(name)
            fields = [one for one in frame.columns if one.startswith(f"{decoded}_")]
            columns |= {f"_key{one.removeprefix(decoded)}": F.when(bad.isNull(), column_named(one)) for one in fields}
        elif name in NO_FIELDS or name in beside:
            columns[name] = column_named(name)
        elif not name.startswith((decoded, f"_{MALFORMED_KEY}")):
            columns[name] = F.when(bad.isNull(), column_named(name))
    columns["_malformed"] = F.when(F.isnull("_excluded"), F.coalesce("_malformed", F.concat(F.lit("key: "), bad)))
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
