"""Encode: turns a transform's result into keys and values, and parses them back into columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from fencepost.config.output_settings import RecordSettings
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS, KEY_FORMATS, Encoded, Unfit
from fencepost.formats.framing import HEADER, header
from fencepost.formats.json import minus_zero_check
from fencepost.formats.quoting import column_named
from fencepost.model import NO_SCHEMAS, Schemas
from fencepost.rows.decode import HEADERS, as_list
from fencepost.rows.transform import value_schema

PLACES = ("_topic", "_partition", "_offset")  # of the source record, in the order of records
UNFIT, UNFIT_END = "fencepost: a row does not fit: ", " :fencepost"


def if_fit(frame: DataFrame, value: Column, unfit: Column) -> Column:
    """Returns the value of a row that fits. For a row that does not fit, evaluating the column raises an error. The
    error names the field, and the source record if the DataFrame has its coordinates.
    """
    known = [F.col(name) for name in PLACES if name in frame.columns]
    where = F.concat_ws(":", *(place.cast("string") for place in known))
    row = F.concat(F.lit(" (source record "), where, F.lit(")")) if "_offset" in frame.columns else F.lit("")
    said = F.concat(F.lit(UNFIT), unfit, F.coalesce(row, F.lit("")), F.lit(UNFIT_END))
    return F.when(unfit.isNull(), value).otherwise(F.raise_error(said))


def output_columns(frame: DataFrame, pipeline: Pipeline, schemas: Schemas | None) -> dict[str, Column]:
    """Returns the columns of the records for a transform's result. The columns are `key` and `value` (binary,
    nullable), and `timestamp` (milliseconds) and `headers` if the pipeline names columns for them.

    If rows may not fit the output's schema, the column `unfit` has the reason why a row does not fit, or null. The
    value of a row that does not fit is null.

    Raises:
        SettingsError: a column that the pipeline names is missing, or has the wrong type.
    """
    schemas = schemas or NO_SCHEMAS
    output = pipeline.output.records
    for role in ("key", "timestamp", "headers", "tombstone"):
        name = getattr(output, role)
        if name is not None and name not in frame.columns:
            raise SettingsError(
                f"{pipeline.folder / 'pipeline.yaml'}: output.{role}: {pipeline.transform_file.name} gives no column {name!r}. "
                f"Its columns are {', '.join(frame.columns)}."
            )
    fields = value_schema(pipeline, frame)
    try:
        value = FORMATS[output.format].write(frame, fields, schemas.output)
        key = _key(frame, output, schemas)
    except Unfit as error:
        raise SettingsError(f"{pipeline.transform_file}: {error}") from None
    of_value = _unless_tombstone(frame, pipeline)
    found = {"key": key.data, "value": of_value(value.data), **_kept(frame, output, pipeline)}
    problems = [] if value.unfit is None else [of_value(value.unfit)]
    problems += [] if key.unfit is None else [F.concat(F.lit("key "), key.unfit)]
    if not output.keeps_minus_zero:
        nested = [f for f in fields.fields if isinstance(f.dataType, ArrayType | MapType | StructType)]
        zeros = [(f.name, minus_zero_check(f.dataType, f.name)) for f in nested]
        problems += [of_value(check(column_named(name))) for name, check in zeros if check is not None]
    if not output.takes_tombstones and "_tombstone" in frame.columns:
        problems.append(F.when(F.col("_tombstone"), F.lit("it is a tombstone, which a table cannot store")))
    return found | ({"unfit": F.coalesce(*problems)} if problems else {})


def _key(frame: DataFrame, output: RecordSettings, schemas: Schemas) -> Encoded:
    if output.key is None:
        return Encoded(F.lit(None).cast("binary"))
    return KEY_FORMATS[output.key_format].write_key(frame, output.key, schemas.output_key)


def written_columns(frame: DataFrame, pipeline: Pipeline) -> dict[str, Column]:
    """Returns the columns of a transform's result as a reader of its records gets them. All columns of a tombstone are
    null.

    Raises:
        SettingsError: the result has no column for the value.
    """
    said = FORMATS[pipeline.output.records.format].written_columns(frame, value_schema(pipeline, frame))
    of_value = _unless_tombstone(frame, pipeline)
    return {name: of_value(column).alias(name) for name, column in said.items()}


def _unless_tombstone(frame: DataFrame, pipeline: Pipeline) -> Callable[[Column], Column]:
    """Returns a function that makes a column null for tombstones: rows in which `_tombstone` is true, or the column that
    `output.tombstone` names.
    """
    named = pipeline.output.records.tombstone
    if named is not None and not isinstance(frame.schema[named].dataType, BooleanType):
        raise SettingsError(
            f"{pipeline.transform_file}: column {named!r}, which output.tombstone names, is of type "
            f"{frame.schema[named].dataType.simpleString()}; it says whether a key is deleted, so cast it to boolean."
        )
    found = [name for name in dict.fromkeys(("_tombstone", named)) if name in frame.columns]
    if not found:
        return lambda column: column
    alive = reduce(and_, (~F.coalesce(column_named(name), F.lit(False)) for name in found))
    return lambda column: F.when(alive, column)


def _kept(frame: DataFrame, output: RecordSettings, pipeline: Pipeline) -> dict[str, Column]:
    kept: dict[str, Column] = {}
    if output.timestamp:
        kind = frame.schema[output.timestamp].dataType
        if not isinstance(kind, TimestampType):
            raise SettingsError(
                f"{pipeline.transform_file}: column {output.timestamp!r}, which output.timestamp names, is of type "
                f"{kind.simpleString()}; a record's timestamp comes from a column of type timestamp."
            )
        kept["timestamp"] = F.unix_millis(column_named(output.timestamp))
    if output.headers:
        kind = frame.schema[output.headers].dataType
        if not _are_headers(kind):
            raise SettingsError(
                f"{pipeline.transform_file}: column {output.headers!r}, which output.headers names, is of type "
                f"{kind.simpleString()}; a record's headers come from a column of type array<struct<key:string,value:binary>>."
            )
        kept["headers"] = as_list(column_named(output.headers).cast(HEADERS))
    return kept


def _are_headers(kind: DataType) -> bool:
    """Returns whether a column is an array of structs of a name and a value, in this order. Values may be text."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    types = [field.dataType for field in kind.elementType.fields]
    return len(types) == 2 and isinstance(types[0], StringType) and isinstance(types[1], BinaryType | StringType)


def parse_output(raw: DataFrame, written_as: str, schema: StructType, schemas: Schemas | None = None) -> DataFrame:
    """Parses the output's records into the columns that the suite judges: the value's fields, with the types that the
    transform gave them.

    `written_as` is the format and `schemas` are the schemas in the plan of these records, because the pipeline may have
    others now. The result also has the records' coordinates, and their hashes if `raw` has them, under names that begin
    with `_`.
    """
    kept = ("key", "topic", "partition", "offset", "hash")
    coordinates = [F.col(name).alias(f"_{name}") for name in kept if name in raw.columns]
    return FORMATS[written_as].parse(raw, schema, coordinates, (schemas or NO_SCHEMAS).output)


def parse_results(frame: DataFrame, value: str, pipeline: Pipeline, schema: StructType, schemas: Schemas) -> DataFrame:
    """Parses the binary column `value` as values of the output's records. The fields of these values come before the
    frame's columns. `_unparsed` comes after them, with the reason why a value cannot be parsed, or null.

    Rows with a null value have neither fields nor a reason.
    """
    written_with, given = schemas.output, F.col(value)
    names, other = [F.col(name) for name in frame.columns], F.lit(None).cast("string")
    if written_with is not None:
        ours = F.substring(given, 1, HEADER) == F.lit(bytearray(header(written_with.id)))
        other = F.when(
            given.isNotNull() & ~ours, F.lit(f"not written with schema id {written_with.id}, as the output is")
        )
        given = F.when(ours, given)
    parsed = FORMATS[pipeline.output.records.format].parse(
        frame.withColumn("value", given), schema, [*names, other.alias("_other")], written_with, "_unparsed"
    )
    fields = [column_named(name) for name in schema.fieldNames()]
    return parsed.select(*fields, *names, F.coalesce("_other", "_unparsed").alias("_unparsed"))
