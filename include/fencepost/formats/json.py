"""Format `json`: the value is one object whose fields are the columns, or Debezium's envelope around such an object.
`json_decoder.py` decides what fits a declared type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from fencepost.formats.declared import Declared
from fencepost.formats.fit import each, first_of, name_twice, of_field, same
from fencepost.formats.format import LONGEST_NAME, Encoded, Unfit, enveloped, read_rows
from fencepost.formats.quoting import column_named, quoted
from fencepost.formats.written_names import fields_as_written, packed_as_written, written_name
from fencepost.model import RegisteredSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from fencepost.formats.fit import Check
    from fencepost.formats.framing import Framing
    from fencepost.formats.rows import Decoder

JSON_OUT = {
    "ignoreNullFields": "false",
    # Spark's own formats stop at milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
JSON_BACK = {
    "mode": "FAILFAST",
    # A text may be as long as Kafka allows. The default is twenty million characters.
    "maxStringLen": str(2**31 - 1),
}
# The column of values that are not JSON. No field has this name, because names with a NUL are refused. A setting of Spark
# could make a column of the value this column, which is read as null.
CORRUPT = "\0corrupt"


class Json:
    """Implements `Format`."""

    has_registry = False

    def check_columns(self, declared: Declared) -> None:
        if not declared.types and not declared.fields:
            raise ValueError("format json needs a schema: a mapping of field name to Spark SQL type")

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        return read_json(raw, fields_of(declared.types), declared.required, kept, declared)

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        from pyspark.sql import functions as F

        check_sayable(fields)
        packed = packed_as_written(fields)
        data, problem = F.to_json(packed, JSON_OUT).cast("binary"), check_of(fields_as_written(fields), "")
        if problem is None:
            return Encoded(data)
        unfit = problem(packed)
        return Encoded(F.when(unfit.isNull(), data), unfit)

    def written_columns(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:

        return {name: column_named(name) for name in fields.fieldNames()}

    def parse(
        self,
        raw: DataFrame,
        fields: StructType,
        beside: Sequence[Column],
        schema: RegisteredSchema | None,
        why: str | None = None,
    ) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        types, reason = fields_as_written(fields), list["Column"]()
        options, value = JSON_BACK | {"columnNameOfCorruptRecord": CORRUPT}, F.col("_json")
        if why is not None:
            types = StructType([*types.fields, StructField(CORRUPT, StringType())])
            options |= {"mode": "PERMISSIVE"}
            broken = F.lit("not a JSON object with fields of the output's types")
            reason = [F.when(value[CORRUPT].isNotNull(), broken).alias(why)]
        parsed = raw.withColumn("_json", F.from_json(F.col("value").cast("string"), types, options))
        return parsed.select(*(value[written_name(f)].alias(f.name) for f in fields.fields), *beside, *reason)


def fields_of(types: Mapping[str, str]) -> StructType:
    """Returns the struct of fields with these Spark SQL types."""
    from pyspark.sql.types import StructType

    declared = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
    return cast("StructType", StructType.fromDDL(declared)) if types else StructType([])


def read_json(
    raw: DataFrame,
    columns: StructType,
    required: Collection[str],
    kept: Sequence[str],
    declared: Declared,
    framing: Framing | None = None,
) -> DataFrame:
    """Returns the result of `Format.read` for JSON objects with these columns. With `framing` the objects have a header."""
    from pyspark.sql.pandas.types import to_arrow_schema

    whole = columns if declared.envelope is None else enveloped(columns)
    return read_rows(raw, whole, kept, json_decoder(to_arrow_schema(whole), required, declared, framing))


def json_decoder(
    schema: pa.Schema, required: Collection[str], declared: Declared, framing: Framing | None = None
) -> Callable[[], Decoder]:
    """Returns what makes the decoder of JSON objects with these columns. With an envelope its columns are the last."""
    from fencepost.formats.json_decoder import JsonDecoder
    from fencepost.formats.json_envelope import JsonEnvelopeDecoder

    if declared.envelope is None:
        return partial(JsonDecoder, schema, required, framing, declared.fields, declared.only)
    return partial(JsonEnvelopeDecoder, schema, required, framing, declared.fields, declared.envelope)


def check_sayable(fields: StructType) -> None:
    """Checks that JSON can express these columns.

    Raises:
        Unfit: JSON cannot express a column. The text has the fix.
    """
    for field in fields.fields:
        if what := unsayable(field.dataType):
            raise Unfit(f"column {field.name!r} has {what}, which JSON cannot express. Rename or cast it.")


def check_of(kind: DataType, path: str) -> Check | None:
    """Returns the check of values of this type, or None if JSON can express every value. The check gives the reason why
    JSON cannot express a row's value so that it is read back unchanged, or null.

    Spark replaces bytes that are not UTF-8, so two texts may become the same text. Spark writes years that no reader
    accepts. It also writes NaN as a text, and an object with a name twice. A source of this format calls both
    malformed.
    """
    from pyspark.sql import functions as F

    return _within(kind, path, _leaf_check, lambda at: [name_twice(at), each(name_check(at), F.map_keys)])


def minus_zero_check(kind: DataType, path: str) -> Check | None:
    """Returns the check of values for PostgreSQL's `jsonb`, which does not keep the minus of a 0."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DoubleType, FloatType

    def of_leaf(kind: DataType, at: str) -> Check | None:
        if not isinstance(kind, FloatType | DoubleType):
            return None
        said = F.lit(f"{at}: -0.0, and jsonb has no minus for 0; add 0.0 to it")
        return lambda c: F.when((c == 0) & (c.cast("string") == "-0.0"), said)

    return _within(kind, path, of_leaf, lambda _: [])


def _within(
    kind: DataType,
    path: str,
    of_leaf: Callable[[DataType, str], Check | None],
    of_map: Callable[[str], Sequence[Check | None]],
) -> Check | None:
    """Returns a check of a value and everything within it. `of_leaf` gives the checks of simple values, and `of_map`
    the checks of maps.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return each(_within(kind.elementType, f"{path}[]", of_leaf, of_map), same)
    if isinstance(kind, MapType):
        values = each(_within(kind.valueType, f"{path}{{}}", of_leaf, of_map), F.map_values)
        return first_of([*of_map(path), values])
    if isinstance(kind, StructType):
        dot = f"{path}." if path else ""
        return first_of([of_field(_within(f.dataType, f"{dot}{f.name}", of_leaf, of_map), f.name) for f in kind.fields])
    return of_leaf(kind, path)


def _leaf_check(kind: DataType, path: str) -> Check | None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, DoubleType, FloatType, StringType, TimestampNTZType, TimestampType

    if isinstance(kind, FloatType | DoubleType):
        no_number = F.lit(f"{path}: JSON has no NaN and no Infinity")
        return lambda c: F.when(F.isnan(c) | (F.abs(c) == float("inf")), no_number)
    if isinstance(kind, StringType):
        return lambda c: F.when(~F.is_valid_utf8(c), F.lit(f"{path}: text that is not UTF-8"))
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return lambda c: F.when(~F.year(c).between(1, 9999), F.lit(f"{path}: not within the years 1 to 9999"))
    return None


def name_check(path: str) -> Check:
    """Returns the check of a map's keys. The check gives the reason why a key is not a JSON name that Spark reads back,
    or null.
    """
    from pyspark.sql import functions as F

    too_long = F.lit(f"{path}: a name of more than {LONGEST_NAME:,} bytes")
    bad = F.lit(f"{path}: a name that is not UTF-8")
    return lambda c: F.when(F.octet_length(c) > LONGEST_NAME, too_long).when(~F.is_valid_utf8(c), bad)


def unsayable(kind: DataType) -> str | None:
    """Describes the part of a type that Spark's JSON would distort, or that Spark could not read back. Returns None if
    there is no such part.
    """
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType, TimeType, VariantType

    if isinstance(kind, TimeType):
        return "a time without a day"
    if isinstance(kind, VariantType):
        return "a variant"
    if isinstance(kind, ArrayType):
        return unsayable(kind.elementType)
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            return f"a map with keys of type {kind.keyType.simpleString()}"
        return unsayable(kind.valueType)
    if isinstance(kind, StructType):
        if len(set(kind.fieldNames())) < len(kind.fields):
            return "a struct with a duplicate name"
        return next((what for f in kind.fields if (what := unsayable(f.dataType))), None)
    return None
