"""Format `avro`: a value is Confluent's header of five bytes (0, then a schema's id in four bytes), followed by one
Avro value. The value's record is the row, or Debezium's envelope of the row.

`avro_decoder.py` decodes, in executors. Spark encodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from fencepost.formats.avro_declared import as_declared, check_settings, columns_of
from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_envelope import envelope_of, names_table, read_as, row_of
from fencepost.formats.avro_fit import bytes_of, derive, fit_whole
from fencepost.formats.avro_schema import (
    MOST_DIGITS,
    NAME,
    AvroField,
    Incompatible,
    check_holdable,
    check_writable,
    is_struct_of_members,
    parse,
    record_names,
    render,
    union_members,
    without_connects_types,
)
from fencepost.formats.avro_schema import AvroType as Schema
from fencepost.formats.column_names import without_case
from fencepost.formats.declared import NOTHING_DECLARED, Declared
from fencepost.formats.format import (
    OURS,
    BadSchema,
    Encoded,
    SchemaReference,
    check_written_names,
    decoded_first,
    enveloped,
    framing_of,
    malformed_key,
    read_rows,
    taken_names,
)
from fencepost.formats.framing import header
from fencepost.formats.quoting import column_named
from fencepost.formats.written_names import as_written, fields_as_written, packed_as_written, written_name
from fencepost.model import ReadSchemas, RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from fencepost.formats.rows import Decoder


def check_readable(reader: Schema, declared: Declared | None) -> None:
    """Checks that a Spark type holds every value of a schema, and that the schema's fields can be a transform's columns, as
    they are declared. If `declared` is None, the whole value is one column.

    Raises:
        BadSchema: names the field and the reason.
    """
    if declared is None:
        _check_holdable(reader, "", "source.key_subject")
        return
    if reader.kind != "record":
        raise BadSchema(f"its values are of type {reader.describe()}, and only a record has columns")
    reader = as_declared(reader, declared)
    for one in reader.fields:
        _check_holdable(one.type, one.name, "source.subject")
    _check_column_names(reader, declared)


def _check_holdable(kind: Schema, path: str, setting: str) -> None:
    try:
        check_holdable(kind, path)
    except BadSchema as error:
        raise BadSchema(
            f"{error}. A schema without this field can read the records: register a record schema of the same name without the "
            f"field, under a subject of your own, and set {setting} to this subject"
        ) from None


def _check_column_names(reader: Schema, declared: Declared) -> None:
    known = dict[str, str]()  # by the name as Spark compares it
    for name, one in zip(columns_of(reader, declared), reader.fields, strict=True):
        if name == one.name and not NAME.fullmatch(name):
            raise BadSchema(f"{name!r}: a column's name may have letters, digits and _ only{_way_on(one)}")
        if taken := taken_names([name], declared.envelope):
            raise BadSchema(f"{taken[0]}: the transform's source already has a column of that name{_way_on(one)}")
        if (other := known.setdefault(without_case(name), one.name)) != one.name:
            raise BadSchema(f"fields {other} and {one.name} would have the same column to Spark{_way_on(one)}")


def _way_on(one: AvroField) -> str:
    """Returns how a field gets a column of another name."""
    return f". Give the field a column's name, as source.schema: {{a_name: {{field: {json.dumps(one.name)}}}}}"


class Avro:
    """Implements `RegistryFormat` and `RegistryKeyFormat`."""

    has_registry = True
    schema_type = "AVRO"

    def check_columns(self, declared: Declared) -> None:
        check_settings(declared)

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        fields = columns_in_spark(declared)
        return read_rows(raw, fields, kept, decoder_of(fields, declared.frozen, declared))

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:

        assert schema is not None
        return encode(packed_as_written(fields), fields_as_written(fields), schema)

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
        from pyspark.sql.types import StructField, StructType

        assert schema is not None
        found = to_spark(parse(schema.text))
        assert isinstance(found, StructType), "a transform's result is written as a record"
        frame = raw.select("value", *beside)
        schemas = ReadSchemas(reader=schema, writers=(schema,))
        # Under names of their own, because a field may be named as a column beside.
        apart = StructType([StructField(f"{OURS}_{n}", f.dataType) for n, f in enumerate(found.fields)])
        decoded = decoded_first(frame, apart, decoder_of(found, schemas), keep=None)
        read = dict(zip(found.fieldNames(), apart.fields, strict=True))
        of = {
            f.name: (column_named(one.name), one.dataType, f.dataType)
            for f in fields.fields
            for one in (read[written_name(f)],)
        }
        others = [column_named(name) for name in frame.columns[1:]]
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

    def read_key(self, frame: DataFrame, raw: str, into: str, declared: Declared) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructField, StructType

        fields = StructType([StructField(into, to_spark(parse(declared.frozen.reader.text)))])
        check_key_types(fields[into].dataType, declared)
        names = [column_named(name) for name in frame.columns]
        others = [column_named(name) for name in frame.columns if name != raw]
        keyed = frame.select(column_named(raw), *others)
        found = decoded_first(keyed, fields, decoder_of(fields, declared.frozen, None), keep=raw)
        columns = {
            name: column_named(into).getField(declared.field_of(name)) for name in (*declared.types, *declared.fields)
        }
        has_key = column_named(into).isNotNull()
        missing = [
            F.when(has_key & columns[name].isNull(), F.lit(f"{declared.field_of(name)}: null, and declared not null"))
            for name in declared.required
        ]
        why = F.coalesce("_malformed", *missing).alias(malformed_key(into))
        parts = [column.alias(f"{into}_{name}") for name, column in columns.items()]
        return found.select(*names, column_named(into), *parts, why)

    def write_key(self, frame: DataFrame, name: str, schema: RegisteredSchema | None) -> Encoded:

        assert schema is not None
        return encode(column_named(name), frame.schema[name].dataType, schema)

    def record_types(self, text: str) -> frozenset[str]:
        return record_names(text)

    def reader(self, text: str, references: Sequence[SchemaReference], declared: Declared, *, columns: bool) -> str:
        parsed = parse(text, texts_of(references))
        if not columns:
            check_readable(parsed, None)
        elif declared.envelope is not None:
            parsed = envelope_of(parsed)
            check_readable(row_of(parsed), declared)
        else:
            parsed = record_for(parsed, declared.names) if declared.names else parsed
            check_readable(parsed, declared)
        return render(parsed)

    def writer(self, text: str, references: Sequence[SchemaReference], reader: str, declared: Declared) -> str:
        found = parse(text, texts_of(references))
        try:
            AvroReader(found, parse(reader), declared.names)
        except Incompatible:
            if not (
                declared.envelope is not None and declared.envelope.captured_table is not None and names_table(found)
            ):
                raise  # else each record says whether it is of the table
        return render(found)

    def written(
        self, text: str, references: Sequence[SchemaReference], *, columns: bool, mapped: Collection[str] = ()
    ) -> str:
        parsed = parse(text, texts_of(references))
        check_holdable(parsed)
        check_writable(parsed)
        if columns:
            check_written_names({one.name for branch in parsed.others for one in branch.fields} - {*mapped})
        return render(without_connects_types(parsed))

    def fields(self, schema: RegisteredSchema, declared: Declared) -> list[str]:
        parsed = parse(schema.text)
        return [one.name for one in (parsed if declared.envelope is None else row_of(parsed)).fields]

    def check_fits(self, kind: DataType, schema: RegisteredSchema) -> None:
        fit_whole(as_written(kind), parse(schema.text))

    def derive(self, kind: DataType, name: str, like: str | None) -> str:
        named = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
        return render(derive(as_written(kind), named, None if like is None else parse(like)))

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


def texts_of(references: Sequence[SchemaReference]) -> list[str]:
    """Returns each schema text once, after the texts that it refers to. Avro knows types by their full names, whatever
    the reference is called.
    """
    found: dict[str, None] = {}
    for one in references:
        found |= dict.fromkeys([*texts_of(one.references), one.text])
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


def check_key_types(kind: DataType, declared: Declared) -> None:
    """Checks that the declared fields of keys have the types of the key's schema.

    Raises:
        BadSchema: names the field and both types.
    """
    from pyspark.sql.types import StructType

    from fencepost.formats.json import fields_of

    known = {f.name: f.dataType.simpleString() for f in kind.fields} if isinstance(kind, StructType) else {}
    for one in fields_of(declared.types):
        name, wanted = declared.field_of(one.name), one.dataType.simpleString()
        if name not in known:
            raise BadSchema(f"source.key: the key's schema has no field {name}")
        if known[name] != wanted:
            raise BadSchema(f"source.key: {one.name} is declared {wanted}, and the key's schema has {known[name]}")


def record_for(parsed: Schema, only: Collection[str]) -> Schema:
    """Returns the record of a subject's schema that records of these names are read as. In a union it is the first of them.

    Raises:
        BadSchema: the schema has no such record, or the record does not read all of these names.
    """
    branches = parsed.branches or (parsed,)
    known = {branch.name: branch for branch in branches if branch.kind == "record"}
    if parsed.kind == "union" and (missing := [name for name in only if name not in known]):
        raise BadSchema(f"source.only names {', '.join(missing)}, and the schema's records are {', '.join(known)}")
    found = next((known[name] for name in only if name in known), parsed)
    simple = [name for name in only if name.rpartition(".")[2] != found.simple_name and name not in found.aliases]
    if found.kind != "record" or simple:
        raise BadSchema(
            f"source.only names {', '.join(simple or only)}, and {found.describe()} does not read that: it has neither "
            "this name nor such an alias"
        )
    return found


def columns_in_spark(declared: Declared) -> StructType:
    """Returns the columns of a transform's source that come from the value."""
    from pyspark.sql.types import StructField, StructType

    reader = read_as(parse(declared.frozen.reader.text), declared)
    row = reader if declared.envelope is None else row_of(reader)
    named = zip(columns_of(row, declared), row.fields, strict=True)
    fields = StructType([StructField(name, to_spark(one.type)) for name, one in named])
    return fields if declared.envelope is None else enveloped(fields)


def decoder_of(
    fields: StructType, schemas: ReadSchemas, declared: Declared | None = NOTHING_DECLARED
) -> Callable[[], Decoder]:
    """Returns a function that creates a decoder of values. The decoded columns are the `fields` of the reader's schema, as
    they are declared. If `declared` is None, the only field is the value itself.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from fencepost.formats.avro_envelope_rows import AvroEnvelopeDecoder
    from fencepost.formats.avro_rows import AvroDecoder

    enveloped = declared is not None and declared.envelope is not None
    writers = {writer.id: writer.text for writer in schemas.writers}
    make = AvroEnvelopeDecoder if enveloped else AvroDecoder
    return partial(make, to_arrow_schema(fields), framing_of(schemas), schemas.reader.text, writers, declared)


def to_spark(kind: Schema) -> DataType:
    """Returns Spark's type of a schema's values. Everything within it may be null, as in declared types."""
    from pyspark.sql import types as T

    if kind.logical == "decimal":
        return T.DecimalType(min(kind.precision, MOST_DIGITS), kind.scale)
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
        "io.debezium.time.Date": T.DateType(),
        "io.debezium.time.Timestamp": T.TimestampNTZType(),
        "io.debezium.time.MicroTimestamp": T.TimestampNTZType(),
        "io.debezium.time.NanoTimestamp": T.TimestampNTZType(),
        "io.debezium.time.ZonedTimestamp": T.TimestampType(),
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
