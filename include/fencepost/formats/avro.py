"""Format `avro`: a value is Confluent's header of five bytes (0, then a schema's id in four bytes), followed by one
Avro value.

`avro_decoder.py` decodes, in executors. Spark encodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_fit import bytes_of, derive, fit_whole
from fencepost.formats.avro_schema import AvroType as Schema
from fencepost.formats.avro_schema import (
    Incompatible,
    check_holdable,
    check_names,
    is_struct_of_members,
    parse,
    render,
    union_members,
)
from fencepost.formats.format import (
    BadSchema,
    Declared,
    Encoded,
    SchemaReference,
    check_written_names,
    decoded_first,
    framing_of,
    read_rows,
    taken_names,
)
from fencepost.formats.framing import header
from fencepost.model import ReadSchemas, RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from fencepost.formats.rows import Decoder


def check_readable(reader: Schema, *, columns: bool) -> None:
    """Checks that a Spark type holds every value of a schema, and with `columns` that the schema's fields can be a
    transform's columns.

    Raises:
        BadSchema: names the field and the reason.
    """
    try:
        check_holdable(reader)
    except BadSchema as error:
        setting = "source.subject" if columns else "source.key_subject"
        raise BadSchema(
            f"{error}. A schema without this field can read the records: register a record schema of the same name without the "
            f"field, under a subject of your own, and set {setting} to this subject"
        ) from None
    if not columns:
        return
    if reader.kind != "record":
        raise BadSchema(f"its values are of type {reader.describe()}, and only a record has columns")
    if taken := taken_names(one.name for one in reader.fields):
        raise BadSchema(f"{', '.join(taken)}: the transform's source already has a column of that name")


class Avro:
    """Implements `RegistryFormat` and `RegistryKeyFormat`."""

    has_registry = True
    schema_type = "AVRO"

    def check_columns(self, columns: Collection[str]) -> None:
        if columns:
            raise ValueError("format avro takes no schema: it comes from the schema registry")

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        from pyspark.sql.types import StructType

        fields = to_spark(parse(declared.frozen.reader.text))
        assert isinstance(fields, StructType), "`check_readable` refuses others"
        return read_rows(raw, fields, kept, decoder_of(fields, declared.frozen, whole=False))

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        from pyspark.sql import functions as F

        assert schema is not None
        whole = F.struct(*(F.col(f"`{name}`") for name in fields.fieldNames()))
        return encode(whole, fields, schema)

    def written_columns(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
        from pyspark.sql import functions as F

        return {name: F.col(f"`{name}`") for name in fields.fieldNames()}

    def parse(
        self,
        raw: DataFrame,
        fields: StructType,
        beside: Sequence[Column],
        schema: RegisteredSchema | None,
        why: str | None = None,
    ) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        assert schema is not None
        found = to_spark(parse(schema.text))
        assert isinstance(found, StructType), "a transform's result is written as a record"
        frame = raw.select("value", *beside)
        schemas = ReadSchemas(reader=schema, writers=(schema,))
        decoded = decoded_first(frame, found, decoder_of(found, schemas, whole=False), keep=None)
        types = {f.name: f.dataType for f in found.fields}
        of = {f.name: (F.col(f"`{f.name}`"), types[f.name], f.dataType) for f in fields.fields}
        others = [F.col(f"`{name}`") for name in frame.columns[1:]]
        if why is None:
            bad = F.raise_error(F.concat(F.lit("a record of the output is malformed: "), "_malformed")).cast("boolean")
            sound = decoded.where(F.when(F.isnull("_malformed"), F.lit(True)).otherwise(bad))
            return sound.select(*(_as_given(*one).alias(name) for name, one in of.items()), *others)
        said = F.lit(": the column's type, which is narrower now, does not hold the value")
        lost = [F.when(_loses(*one), F.concat(F.lit(name), said)) for name, one in of.items()]
        checked = decoded.withColumn(why, F.coalesce("_malformed", *lost))
        fits = F.isnull(why)
        columns = [F.when(fits, _as_given(*one)).alias(name) for name, one in of.items()]
        return checked.select(*columns, *others, why)

    def read_key(self, frame: DataFrame, raw: str, into: str, schemas: ReadSchemas) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructField, StructType

        fields = StructType([StructField(into, to_spark(parse(schemas.reader.text)))])
        names = [F.col(f"`{name}`") for name in frame.columns]
        others = [F.col(f"`{name}`") for name in frame.columns if name != raw]
        keyed = frame.select(F.col(f"`{raw}`"), *others)
        found = decoded_first(keyed, fields, decoder_of(fields, schemas, whole=True), keep=raw)
        return found.select(*names, F.col(f"`{into}`"), F.col("_malformed").alias(f"{into}_malformed"))

    def write_key(self, frame: DataFrame, name: str, schema: RegisteredSchema | None) -> Encoded:
        from pyspark.sql import functions as F

        assert schema is not None
        return encode(F.col(f"`{name}`"), frame.schema[name].dataType, schema)

    def reader(
        self, text: str, references: Sequence[SchemaReference], declared: Collection[str], *, columns: bool
    ) -> str:
        parsed = parse(text, _texts(references))
        check_readable(parsed, columns=columns)
        return render(parsed)

    def writer(self, text: str, references: Sequence[SchemaReference], reader: str) -> str:
        found = parse(text, _texts(references))
        AvroReader(found, parse(reader))
        return render(found)

    def written(self, text: str, references: Sequence[SchemaReference], *, columns: bool) -> str:
        parsed = parse(text, _texts(references))
        check_holdable(parsed)
        check_names(parsed)
        if columns:
            check_written_names(one.name for branch in parsed.others for one in branch.fields)
        return render(parsed)

    def fields(self, schema: RegisteredSchema) -> list[str]:
        return [one.name for one in parse(schema.text).fields]

    def check_fits(self, kind: DataType, schema: RegisteredSchema) -> None:
        fit_whole(kind, parse(schema.text))

    def derive(self, kind: DataType, name: str, like: str | None) -> str:
        named = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
        return render(derive(kind, named, None if like is None else parse(like)))

    def difference(self, new: str, old: str) -> str:
        said, later, earlier = [], parse(new), parse(old)
        for one, other, what in (
            (earlier, later, "the new schema cannot read records of the old schema"),
            (later, earlier, "the old schema cannot read records of the new schema"),
        ):
            try:
                AvroReader(one, other)
            except Incompatible as error:
                said.append(f"{what} ({error})")
        return ", ".join(said)


def _texts(references: Sequence[SchemaReference]) -> list[str]:
    """Returns each schema text once, after the texts that it refers to. Avro knows types by their full names, whatever
    the reference is called.
    """
    found: dict[str, None] = {}
    for one in references:
        found |= dict.fromkeys([*_texts(one.references), one.text])
    return list(found)


def _as_given(column: Column, found: DataType, wanted: DataType) -> Column:
    """Returns a column that was read back, cast to the type that the transform gave it. The transform's type is
    narrower, or has its fields in another order.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, NullType, StructType

    if isinstance(wanted, NullType):
        return F.lit(None)
    if found.simpleString() == wanted.simpleString():
        return column
    if isinstance(wanted, StructType) and isinstance(found, StructType):
        types = {f.name: f.dataType for f in found.fields}
        parts = [_as_given(column[f.name], types[f.name], f.dataType).alias(f.name) for f in wanted.fields]
        return F.when(column.isNotNull(), F.struct(*parts))
    if isinstance(wanted, ArrayType) and isinstance(found, ArrayType):
        item, as_item = found.elementType, wanted.elementType
        return F.transform(column, lambda c: _as_given(c, item, as_item))
    if isinstance(wanted, MapType) and isinstance(found, MapType):
        value, as_value = found.valueType, wanted.valueType
        return F.transform_values(column, lambda _, v: _as_given(v, value, as_value))
    return column.cast(wanted)


def _loses(column: Column, found: DataType, wanted: DataType) -> Column:
    """Returns whether `_as_given` would fail for a row's value, or change it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, NullType, StructType

    if isinstance(wanted, NullType):
        return column.isNotNull()
    if found.simpleString() == wanted.simpleString():
        return F.lit(False)
    if isinstance(wanted, StructType) and isinstance(found, StructType):
        types = {f.name: f.dataType for f in found.fields}
        parts = [_loses(column[f.name], types[f.name], f.dataType) for f in wanted.fields]
        return reduce(lambda a, b: a | b, parts, F.lit(False))
    if isinstance(wanted, ArrayType) and isinstance(found, ArrayType):
        item, as_item = found.elementType, wanted.elementType
        return F.coalesce(F.exists(column, lambda c: _loses(c, item, as_item)), F.lit(False))
    if isinstance(wanted, MapType) and isinstance(found, MapType):
        value, as_value = found.valueType, wanted.valueType
        return F.coalesce(F.exists(F.map_values(column), lambda v: _loses(v, value, as_value)), F.lit(False))
    return ~column.eqNullSafe(column.try_cast(wanted).cast(found))


def decoder_of(fields: StructType, schemas: ReadSchemas, *, whole: bool) -> Callable[[], Decoder]:
    """Returns a function that creates a decoder of values. The decoded columns are the `fields` of the reader's schema.
    With `whole` the only field is the value itself.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from fencepost.formats.avro_rows import AvroDecoder

    writers = {writer.id: writer.text for writer in schemas.writers}
    return partial(AvroDecoder, to_arrow_schema(fields), framing_of(schemas), schemas.reader.text, writers, whole=whole)


def to_spark(kind: Schema) -> DataType:
    """Returns Spark's type of a schema's values. Everything within it may be null, as in declared types."""
    from pyspark.sql import types as T

    if kind.logical == "decimal":
        return T.DecimalType(kind.precision, kind.scale)
    if kind.kind == "record":
        return T.StructType([T.StructField(one.name, to_spark(one.type)) for one in kind.fields])
    if kind.kind == "union" and is_struct_of_members(kind):
        return T.StructType([T.StructField(name, to_spark(branch)) for name, branch in union_members(kind).items()])
    if kind.kind == "union":
        widest = next((branch for branch in kind.others if branch.kind in ("long", "double")), None)
        return to_spark(widest or (kind.others or kind.branches)[0])
    if kind.kind == "array" and kind.items:
        return T.ArrayType(to_spark(kind.items))
    if kind.kind == "map" and kind.items:
        return T.MapType(T.StringType(), to_spark(kind.items))
    simple = {
        "null": T.NullType(),
        "boolean": T.BooleanType(),
        "int": T.IntegerType(),
        "long": T.LongType(),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "bytes": T.BinaryType(),
        "fixed": T.BinaryType(),
        "string": T.StringType(),
        "enum": T.StringType(),
    }
    times = {
        "date": T.DateType(),
        "timestamp-millis": T.TimestampType(),
        "timestamp-micros": T.TimestampType(),
        "local-timestamp-millis": T.TimestampNTZType(),
        "local-timestamp-micros": T.TimestampNTZType(),
    }
    return times.get(kind.logical or "", simple[kind.kind])


def encode(column: Column, kind: DataType, schema: RegisteredSchema) -> Encoded:
    """Returns a column of this type as header and value. Null stays null.

    Raises:
        Unfit: names the field of the schema, or the column, that does not fit, and the fix.
    """
    from pyspark.sql import functions as F

    parsed = parse(schema.text)
    fit = fit_whole(kind, parsed)
    whole = F.concat(F.lit(bytearray(header(schema.id))), bytes_of(fit, parsed)(column))
    data = F.when(column.isNotNull(), whole)
    if fit.problem is None:
        return Encoded(data)
    unfit = F.when(column.isNotNull(), fit.problem(column))
    return Encoded(F.when(unfit.isNull(), data), unfit)
