"""Format `avro`: Confluent's five bytes (0, and a schema's id in four), then one Avro value.

`avro_decoder.py` decodes, in executors. Spark encodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from fencepost.formats.avro_decoder import Reader
from fencepost.formats.avro_schema import (
    NAME,
    Field,
    Incompatible,
    check_holdable,
    is_struct_of_members,
    parse,
    render,
    to_json,
    union_members,
)
from fencepost.formats.avro_schema import Avro as Schema
from fencepost.formats.avro_values import DAY
from fencepost.formats.format import (
    BadSchema,
    Declared,
    Encoded,
    Reference,
    Unfit,
    check_written_names,
    decoded_first,
    framing_of,
    header,
    read_rows,
    taken_names,
)
from fencepost.model import ReadSchemas, RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from fencepost.formats.rows import Decoder

    Check = Callable[[Column], Column]

MOST_BRANCHES = 63  # of a union: their numbers take one byte


def check_readable(reader: Schema, *, columns: bool) -> None:
    """Check that Spark holds every value of a schema, and with `columns` that its fields can be a transform's columns.

    Raises:
        BadSchema: names the field and the reason.
    """
    check_holdable(reader)
    if not columns:
        return
    if reader.kind != "record":
        raise BadSchema(f"its values are of type {reader.says()}, and only a record has columns")
    if taken := taken_names(one.name for one in reader.fields):
        raise BadSchema(f"{', '.join(taken)}: the transform's source has a column of that name already")


class Avro:
    """Implements `RegistryFormat`."""

    has_registry = True
    schema_type = "AVRO"

    def check_columns(self, columns: Collection[str]) -> None:
        if columns:
            raise ValueError("format avro takes no schema: it comes from the schema registry")

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        from pyspark.sql.types import StructType

        fields = to_spark(parse(declared.frozen.reader.text))
        assert isinstance(fields, StructType), "`check_readable` refuses others"
        return read_rows(raw, fields, kept, _maker(fields, declared.frozen, whole=False))

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        from pyspark.sql import functions as F

        assert schema is not None
        whole = F.struct(*(F.col(f"`{name}`") for name in fields.fieldNames()))
        return encode(whole, fields, schema)

    def said(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
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
        decoded = decoded_first(frame, found, _maker(found, schemas, whole=False), keep=None)
        bad = F.raise_error(F.concat(F.lit("a record of the output is malformed: "), "_malformed")).cast("boolean")
        sound = decoded if why else decoded.where(F.when(F.isnull("_malformed"), F.lit(True)).otherwise(bad))
        reason = [F.col("_malformed").alias(why)] if why else []
        types = {f.name: f.dataType for f in found.fields}
        columns = [_as_given(F.col(f"`{f.name}`"), types[f.name], f.dataType).alias(f.name) for f in fields.fields]
        return sound.select(*columns, *(F.col(f"`{name}`") for name in frame.columns[1:]), *reason)

    def reader(self, text: str, references: Sequence[Reference], declared: Collection[str], *, columns: bool) -> str:
        parsed = parse(text, _texts(references))
        check_readable(parsed, columns=columns)
        return render(parsed)

    def writer(self, text: str, references: Sequence[Reference], reader: str) -> str:
        found = parse(text, _texts(references))
        Reader(found, parse(reader))
        return render(found)

    def written(self, text: str, references: Sequence[Reference], *, columns: bool) -> str:
        parsed = parse(text, _texts(references))
        check_holdable(parsed)
        if columns:
            check_written_names(one.name for branch in parsed.others for one in branch.fields)
        return render(parsed)

    def fields(self, schema: RegisteredSchema) -> list[str]:
        return [one.name for one in parse(schema.text).fields]

    def check_fits(self, kind: DataType, schema: RegisteredSchema) -> None:
        fit_of(kind, parse(schema.text), "", outermost=True)

    def derive(self, kind: DataType, name: str, like: str | None) -> str:
        named = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
        return render(_distinct(_derived(kind, named, None if like is None else parse(like), ""), {}))

    def difference(self, new: str, old: str) -> str:
        said, later, earlier = [], parse(new), parse(old)
        for one, other, what in (
            (earlier, later, "the new cannot read the old"),
            (later, earlier, "the old cannot read the new"),
        ):
            try:
                Reader(one, other)
            except Incompatible as error:
                said.append(f"{what} ({error})")
        return ", ".join(said)


def _texts(references: Sequence[Reference]) -> list[str]:
    """Each once, behind those that it needs. Avro knows types by their own names, wherever a reference is from."""
    found: dict[str, None] = {}
    for one in references:
        found |= dict.fromkeys([*_texts(one.references), one.text])
    return list(found)


def _as_given(column: Column, found: DataType, wanted: DataType) -> Column:
    """A column that was read back, with the type that the transform gave it: narrower, or with fields in another order."""
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


def _maker(fields: StructType, schemas: ReadSchemas, *, whole: bool) -> Callable[[], Decoder]:
    from pyspark.sql.pandas.types import to_arrow_schema

    from fencepost.formats.avro_rows import AvroDecoder

    writers = {writer.id: writer.text for writer in schemas.writers}
    return partial(AvroDecoder, to_arrow_schema(fields), framing_of(schemas), schemas.reader.text, writers, whole=whole)


def decode(frame: DataFrame, raw: str, into: str, schemas: ReadSchemas) -> DataFrame:
    """The frame with the values in the binary column `raw` as the column `into`, and `<into>_malformed`: why there is none.

    A null is neither a value nor malformed. A record with an id that the schemas do not know fails the job, with `UNKNOWN_ID`.
    The frame has no column `_tombstone` or `_malformed`.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    fields = StructType([StructField(into, to_spark(parse(schemas.reader.text)))])
    others = [F.col(f"`{name}`") for name in frame.columns if name != raw]
    found = decoded_first(
        frame.select(F.col(f"`{raw}`"), *others), fields, _maker(fields, schemas, whole=True), keep=raw
    )
    names = [F.col(f"`{name}`") for name in frame.columns]
    return found.select(*names, F.col(f"`{into}`"), F.col("_malformed").alias(f"{into}_malformed"))


def to_spark(kind: Schema) -> DataType:
    """Spark's type of a schema's values. All within it may be null, as in declared types."""
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
    """A column of this type as header and value; a null stays null.

    Raises:
        Unfit: names the field of the schema, or the column, that does not fit, and the fix.
    """
    from pyspark.sql import functions as F

    parsed = parse(schema.text)
    fit = fit_of(kind, parsed, "", outermost=True)
    whole = F.concat(F.lit(bytearray(header(schema.id))), _bytes_of(fit, parsed)(column))
    data = F.when(column.isNotNull(), whole)
    if fit.problem is None:
        return Encoded(data)
    unfit = F.when(column.isNotNull(), fit.problem(column))
    return Encoded(F.when(unfit.isNull(), data), unfit)


@dataclass(frozen=True)
class Fit:
    """How a column of one type becomes a value of a schema, and the text that says why a row's value does not.

    `convert` makes what Spark's `to_avro` takes. It writes no union of several types, so what has one in it is put together here,
    from its parts: `data` gives its bytes.
    """

    convert: Check
    problem: Check | None = None
    data: Check | None = None


def _bytes_of(fit: Fit, schema: Schema) -> Check:
    """The bytes of a value that is not null, or of one whose schema has null."""
    from pyspark.sql.avro.functions import to_avro

    return fit.data or (lambda c: to_avro(fit.convert(c), json.dumps(to_json(schema))))


def _same(column: Column) -> Column:
    return column


# Spark's types, by the names that they have in schemas, that hold in each Avro type without a loss.
INTEGERS = ("byte", "short", "integer")
PLAIN = {
    ("boolean", None): ("boolean",),
    ("int", None): INTEGERS,
    ("int", "date"): ("date",),
    ("int", "time-millis"): INTEGERS,
    ("long", None): (*INTEGERS, "long"),
    ("long", "time-micros"): (*INTEGERS, "long"),
    ("long", "timestamp-nanos"): (*INTEGERS, "long"),
    ("long", "local-timestamp-nanos"): (*INTEGERS, "long"),
    ("long", "timestamp-millis"): ("timestamp",),
    ("long", "timestamp-micros"): ("timestamp",),
    ("long", "local-timestamp-millis"): ("timestamp_ntz",),
    ("long", "local-timestamp-micros"): ("timestamp_ntz",),
    ("float", None): ("float",),
    ("double", None): (*INTEGERS, "float", "double"),
    ("bytes", None): ("binary",),
    ("string", None): ("string",),
    ("string", "uuid"): ("string",),
    ("enum", None): ("string",),
    ("fixed", None): ("binary",),
    ("fixed", "uuid"): ("binary",),
    ("fixed", "duration"): ("binary",),
}
UUID = r"^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"


def fit_of(kind: DataType, schema: Schema, path: str, *, outermost: bool = False) -> Fit:
    """How values of Spark's type become values of the schema.

    Raises:
        Unfit: not every value of the type is one of the schema, whatever the row.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType

    if schema.kind == "union":
        if len(schema.others) > 1:
            return _fit_of_union(kind, schema, path)
        if not schema.others:
            return _null(kind, path)
        if not schema.nullable:
            return fit_of(kind, schema.others[0], path)
        if isinstance(kind, NullType):
            return _always_null(schema)
        inner = _fit_of_value(kind, schema.others[0], path)
        if (problem := inner.problem) is not None:
            inner = replace(inner, problem=lambda c: F.when(c.isNotNull(), problem(c)))
        return (
            inner
            if inner.data is None
            else replace(inner, data=_branches(schema, {id(schema.others[0]): (_same, inner)}))
        )
    if schema.kind == "null":
        return _null(kind, path)
    inner = _fit_of_value(kind, schema, path)
    if outermost:
        return inner
    missing = F.lit(f"{path}: null, and its type is {schema.says()}")
    rest = inner.problem or (lambda c: F.lit(None).cast("string"))
    return replace(inner, problem=lambda c: F.when(c.isNull(), missing).otherwise(rest(c)))


def _fit_of_union(kind: DataType, schema: Schema, path: str) -> Fit:
    """A union of several types, as Spark reads it: a struct with a column for each, of which one is set."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if not is_struct_of_members(schema):
        widest = next(branch for branch in schema.others if branch.kind in ("long", "double"))
        fit = fit_of(kind, Schema("union", branches=(Schema("null"), widest)) if schema.nullable else widest, path)
        return replace(fit, data=_branches(schema, {id(widest): (_same, fit)}))
    members = union_members(schema)
    if len(schema.branches) > MOST_BRANCHES:
        raise Unfit(f"field {path}: a union of more than {MOST_BRANCHES} types is read, and not written.")
    if not isinstance(kind, StructType) or kind.fieldNames() != list(members):
        raise Unfit(
            f"field {path}: the transform gives {kind.simpleString()}, and a union of {schema.says()} is a struct of "
            f"{', '.join(members)}, in this order."
        )
    fits = {name: _fit_of_value(kind[name].dataType, branch, f"{path}.{name}") for name, branch in members.items()}

    def problem(column: Column) -> Column:
        number = reduce(lambda a, b: a + b, [column[name].isNotNull().cast("int") for name in members])
        fewest = 0 if schema.nullable else 1
        several = F.when(
            ~F.coalesce(number, F.lit(0)).between(fewest, 1), F.lit(f"{path}: not one of {', '.join(members)} is set")
        )
        inner = [F.when(column[n].isNotNull(), f.problem(column[n])) for n, f in fits.items() if f.problem is not None]
        return F.coalesce(several, *inner)

    taken = {id(branch): ((lambda c, n=name: c[n]), fits[name]) for name, branch in members.items()}
    return Fit(_same, problem, _branches(schema, taken))


def _branches(schema: Schema, taken: Mapping[int, tuple[Check, Fit]]) -> Check:
    """The bytes of a union: its type's number, and the value of that type. Null where no type's value is set and it has none.

    `taken` gives, by the identity of a type in the union, where its value is and how it is written.
    """
    from pyspark.sql import functions as F

    def data(column: Column) -> Column:
        found = F.lit(None).cast("binary")
        for number, branch in enumerate(schema.branches):
            index = F.lit(bytearray([2 * number]))
            if branch.kind == "null":
                found = F.coalesce(found, index)
        for number, branch in enumerate(schema.branches):
            if id(branch) in taken:
                of, fit = taken[id(branch)]
                whole = F.concat(F.lit(bytearray([2 * number])), _bytes_of(fit, branch)(of(column)))
                found = F.when(of(column).isNotNull(), whole).otherwise(found)
        return found

    return data


def _always_null(schema: Schema) -> Fit:
    """For a union with null, where there is no column, or one of no type: `to_avro` takes neither."""
    from pyspark.sql import functions as F

    number = next(number for number, branch in enumerate(schema.branches) if branch.kind == "null")
    return Fit(_same, data=lambda _: F.lit(bytearray([2 * number])))


def _null(kind: DataType, path: str) -> Fit:
    from pyspark.sql.types import NullType

    if isinstance(kind, NullType):
        return Fit(_same)
    raise _misfit(kind, Schema("null"), path)


def _misfit(kind: DataType, schema: Schema, path: str) -> Unfit:
    return Unfit(
        f"field {path or 'value'}: the transform gives {kind.simpleString()}, which does not fit in {schema.says()}. Cast it."
    )


def _fit_of_value(kind: DataType, schema: Schema, path: str) -> Fit:
    """For a value that is not null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    if schema.kind == "record" and isinstance(kind, StructType):
        return _fit_of_record(kind, schema, path)
    if schema.kind == "array" and isinstance(kind, ArrayType) and schema.items:
        inner = fit_of(kind.elementType, schema.items, f"{path}[]")
        return _each(inner, path, lambda c, each: F.transform(c, each), lambda c: c)
    if schema.kind == "map" and isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and schema.items:
        inner = fit_of(kind.valueType, schema.items, f"{path}{{}}")
        return _each(inner, path, lambda c, each: F.transform_values(c, lambda _, v: each(v)), F.map_values)
    if schema.logical == "decimal" and isinstance(kind, DecimalType):
        if kind.scale > schema.scale or kind.precision - kind.scale > schema.precision - schema.scale:
            raise _misfit(kind, schema, path)
        return Fit(lambda c: c.cast(DecimalType(schema.precision, schema.scale)))
    if kind.typeName().split("(")[0] not in PLAIN.get((schema.kind, schema.logical), ()):
        raise _misfit(kind, schema, path)
    convert = {"int": "int", "long": "bigint", "double": "double"}.get(schema.kind)
    as_is = convert is None or (schema.logical or "").startswith(("date", "timestamp-m", "local-timestamp-m"))
    return Fit(_same if as_is else lambda c: c.cast(str(convert)), _row_check(schema, path))


def _row_check(schema: Schema, path: str) -> Check | None:
    """What only a row shows."""
    from pyspark.sql import functions as F

    def unless(fits: Check, why: str) -> Check:
        return lambda c: F.when(~fits(c), F.lit(f"{path}: {why}"))

    if schema.logical in ("timestamp-millis", "local-timestamp-millis"):
        why = f"a time with microseconds, and its type is {schema.says()}; cut it with date_trunc('MILLISECOND', …)"
        return unless(lambda c: F.unix_micros(c.cast("timestamp")) % 1000 == 0, why)
    if schema.kind == "enum":
        return unless(lambda c: c.isin(*schema.symbols), f"none of the symbols of {schema.says()}")
    if schema.logical == "uuid" and schema.kind == "string":
        return unless(lambda c: F.rlike(c, F.lit(UUID)), "not a UUID")
    if (end := DAY.get(schema.logical or "")) is not None:
        return unless(lambda c: c.between(0, end - 1), "not a time of day")
    if schema.kind == "string":
        return unless(F.is_valid_utf8, "text that is not UTF-8")
    if schema.kind == "fixed":
        return unless(lambda c: F.length(c) == schema.size, f"not {schema.size} bytes long, as {schema.says()} is")
    return None


def _each(inner: Fit, path: str, convert: Callable[[Column, Check], Column], values: Check) -> Fit:
    """How a column of several values becomes what it is, of values that become what `inner` says."""
    from pyspark.sql import functions as F

    if inner.data is not None:
        raise Unfit(f"field {path}: a union of several types within an array or a map is read, and not written.")

    def problem(column: Column) -> Column:
        assert inner.problem is not None
        return F.get(F.filter(F.transform(values(column), inner.problem), lambda text: text.isNotNull()), F.lit(0))

    as_is = inner.convert is _same
    return Fit(_same if as_is else lambda c: convert(c, inner.convert), problem if inner.problem else None)


def _fit_of_record(kind: StructType, schema: Schema, path: str) -> Fit:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    given = {f.name: f.dataType for f in kind.fields}
    wanted = {one.name: one for one in schema.fields}
    dot = f"{path}." if path else ""
    if unknown := [name for name in given if name not in wanted]:
        raise Unfit(
            f"the transform gives {', '.join(dot + name for name in unknown)}, which no field is for. Leave it out, give it a "
            "name that begins with _, or register a version of the schema with it."
        )
    fits: dict[str, Fit] = {}
    for name, one in wanted.items():
        if name in given:
            fits[name] = fit_of(given[name], one.type, dot + name)
        elif one.default is not None or not one.type.nullable:  # a default other than null
            raise Unfit(
                f"the transform gives no {dot + name}, which is of type {one.type.says()}. Add it to the result."
            )
        else:
            fits[name] = _always_null(one.type)

    def found(column: Column, name: str) -> Column:
        return fits[name].convert(column[name]).alias(name)

    def convert(column: Column) -> Column:
        return F.when(column.isNotNull(), F.struct(*(found(column, name) for name in wanted)))

    def data(column: Column) -> Column:
        """A record's bytes are its fields', one after another: those without such a union together, for speed."""
        pieces, run = [], list[Field]()
        for one in (*schema.fields, None):
            apart = one is None or fits[one.name].data is not None
            if apart and run:
                part = Schema("record", name="_part", fields=tuple(run))
                pieces.append(to_avro(F.struct(*(found(column, f.name) for f in run)), json.dumps(to_json(part))))
                run = []
            if one is not None and apart:
                pieces.append(_bytes_of(fits[one.name], one.type)(column[one.name]))
            elif one is not None:
                run.append(one)
        return F.concat(*pieces)

    checks = [(name, fit.problem) for name, fit in fits.items() if fit.problem is not None]
    problem: Check | None = None
    if checks:
        problem = lambda column: F.coalesce(*(problem(column[name]) for name, problem in checks))  # noqa: E731
    return Fit(convert, problem, data if any(fit.data for fit in fits.values()) else None)


DERIVED = {
    "boolean": Schema("boolean"),
    "byte": Schema("int"),
    "short": Schema("int"),
    "integer": Schema("int"),
    "long": Schema("long"),
    "float": Schema("float"),
    "double": Schema("double"),
    "string": Schema("string"),
    "binary": Schema("bytes"),
    "void": Schema("null"),
    "date": Schema("int", "date"),
    "timestamp": Schema("long", "timestamp-micros"),
    "timestamp_ntz": Schema("long", "local-timestamp-micros"),
}


def _derived(kind: DataType, name: str, like: Schema | None, path: str) -> Schema:
    """For a value that is not null."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        before = like if like is not None and like.kind == "record" else None
        name, known = before.name if before else name, {f.name: f for f in before.fields} if before else {}
        fields = []
        for f in kind.fields:
            at = f"{path}.{f.name}" if path else f.name
            if not NAME.fullmatch(f.name):
                raise Unfit(f"column {at}: its name is none in Avro. Rename it.")
            fields.append(_derived_field(f.name, f.dataType, f.nullable, f"{name}_{f.name}", known.get(f.name), at))
        return Schema("record", name=name, fields=tuple(fields))
    if isinstance(kind, ArrayType):
        items = like.items if like is not None and like.kind == "array" else None
        return Schema("array", items=_nullable(kind.elementType, kind.containsNull, name, items, f"{path}[]"))
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        values = like.items if like is not None and like.kind == "map" else None
        return Schema("map", items=_nullable(kind.valueType, kind.valueContainsNull, name, values, f"{path}{{}}"))
    if isinstance(kind, DecimalType):
        return Schema("bytes", "decimal", kind.precision, kind.scale)
    if (simple := DERIVED.get(kind.typeName().split("(")[0])) is None:
        raise Unfit(f"column {path}: Avro has no type for {kind.simpleString()}. Cast it.")
    return simple


def _distinct(kind: Schema, known: dict[str, Schema]) -> Schema:
    """The type, with another name for each within it whose name another type has: names made of columns' names may meet."""
    name, number = kind.name, 2
    while name and known.setdefault(name, kind) != kind:
        name, number = f"{kind.name}_{number}", number + 1
    return replace(
        kind,
        name=name,
        fields=tuple(replace(one, type=_distinct(one.type, known)) for one in kind.fields),
        items=None if kind.items is None else _distinct(kind.items, known),
        branches=tuple(_distinct(branch, known) for branch in kind.branches),
    )


def _derived_field(name: str, kind: DataType, nullable: bool, full: str, like: Field | None, path: str) -> Field:
    if like is not None:
        try:
            fit_of(kind, like.type, path)
        except Unfit:
            pass
        else:
            return like
    found = _nullable(kind, nullable, full, like.type if like else None, path)
    aliases = like.aliases if like else ()
    return Field(name, found, aliases, None) if found.nullable else Field(name, found, aliases)


def _nullable(kind: DataType, nullable: bool, name: str, like: Schema | None, path: str) -> Schema:
    before = like.others[0] if like is not None and len(like.others) == 1 else None
    found = _derived(kind, name, before, path)
    return Schema("union", branches=(Schema("null"), found)) if nullable and found.kind != "null" else found
