"""Format `json_schema`: a value is Confluent's header of five bytes (0, then a schema's id in four bytes), followed by
one JSON object. The object is the row, or Debezium's envelope of the row.

The reader's schema declares the types, as pipeline.yaml does for format `json`. The schema that a record was written
with has no effect. A written row is valid against the output's schema in its types, `required` and `enum`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fencepost.formats.declared import Declared
from fencepost.formats.format import (
    BadSchema,
    Encoded,
    SchemaReference,
    Unfit,
    check_written_names,
    framing_of,
    taken_names,
)
from fencepost.formats.framing import HEADER, header
from fencepost.formats.json import JSON_OUT, Json, fields_of, read_json
from fencepost.formats.json_fit import WALK, fit_object
from fencepost.formats.json_schema import (
    DRAFT,
    NoColumn,
    Property,
    check_names,
    parse,
    parse_row,
    render,
    title_of,
    to_json,
)
from fencepost.formats.json_schema import JsonType as Schema
from fencepost.formats.quoting import column_named
from fencepost.formats.written_names import as_written, fields_as_written, packed_as_written, written_name
from fencepost.model import RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


SPARK_NAMES = {"date-time": "timestamp", "number": "double", "integer": "bigint"}  # where they differ from the kind


class JsonSchema:
    """Implements `RegistryFormat`."""

    has_registry = True
    schema_type = "JSON"

    def check_columns(self, declared: Declared) -> None:
        """Accepts every declared column. A declared column has its declared type instead of the type in the schema."""

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        from pyspark.sql.types import StructField, StructType

        schemas = declared.frozen
        reader = parse(schemas.reader.text)
        properties = {one.name: one for one in reader.properties}
        columns = {column: properties[name] for column, name in declared.with_registered_types(properties)}
        own = [StructField(column, to_spark(one.type)) for column, one in columns.items()]
        required = [column for column, one in columns.items() if one.required and not one.type.nullable]
        fields = StructType([*own, *fields_of(declared.types).fields])
        return read_json(raw, fields, [*required, *declared.required], kept, declared, framing_of(schemas))

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        from pyspark.sql import functions as F

        assert schema is not None
        parsed = parse(schema.text)
        written = fields_as_written(fields)
        problem = fit_object(written, parsed)
        kept, left_out = _by_nulls(written, parsed)
        columns = {written_name(f): column_named(f.name) for f in fields.fields}
        parts = [({name: columns[name] for name in names}, nulls) for names, nulls in ((kept, True), (left_out, False))]
        texts = [_json(part, nulls) for part, nulls in parts if part]
        text = texts[0] if len(texts) == 1 else _joined(texts)
        data = F.concat(F.lit(bytearray(header(schema.id))), text.cast("binary"))
        if problem is None:
            return Encoded(data)
        unfit = problem(packed_as_written(fields))
        return Encoded(F.when(unfit.isNull(), data), unfit)

    def written_columns(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
        return Json().written_columns(frame, fields)

    def parse(
        self,
        raw: DataFrame,
        fields: StructType,
        beside: Sequence[Column],
        schema: RegisteredSchema | None,
        why: str | None = None,
    ) -> DataFrame:
        from pyspark.sql import functions as F

        assert schema is not None
        value = F.col("value")
        ours = F.substring(value, 1, HEADER) == F.lit(bytearray(header(schema.id)))
        bad = F.raise_error(F.lit(f"a record of the output does not begin with schema id {schema.id}"))
        payload = F.when(value.isNull() | ours, F.expr(f"substring(value, {HEADER + 1})")).otherwise(bad)
        return Json().parse(raw.withColumn("value", payload), fields, beside, None, why)

    def record_types(self, text: str) -> frozenset[str]:
        return frozenset([title_of(text)])

    def reader(self, text: str, references: Sequence[SchemaReference], declared: Declared, *, columns: bool) -> str:
        if declared.names and (title := title_of(text)) not in declared.names:
            raise BadSchema(f"source.only names {', '.join(declared.names)}, and the schema's title is {title}")
        read = parse if declared.envelope is None else parse_row
        try:
            found = read(text, references, _fields_with_types(declared))
        except NoColumn as error:
            raise BadSchema(
                f"{error}. Declare the type of the outermost field that contains this under source.schema; string "
                "takes any value as its text"
            ) from None
        _check_object(found)
        _check_columns(found, declared)
        return render(found)

    def writer(self, text: str, references: Sequence[SchemaReference], reader: str, declared: Declared) -> str:
        return ""  # the reader's schema decides

    def written(
        self, text: str, references: Sequence[SchemaReference], *, columns: bool, mapped: Collection[str] = ()
    ) -> str:
        found = parse(text, references)
        _check_object(found)
        names = [one.name for one in found.properties]
        check_names([name for name in names if name or name not in mapped], "#/properties")
        check_written_names(set(names) - {*mapped})
        _check_writable(found, "#")
        return render(found)

    def fields(self, schema: RegisteredSchema, declared: Declared) -> list[str]:
        return [one.name for one in parse(schema.text).properties]

    def check_fits(self, kind: DataType, schema: RegisteredSchema) -> None:
        from pyspark.sql.types import StructType

        assert isinstance(kind, StructType), "a value: keys cannot have this format"
        parsed, written = parse(schema.text), fields_as_written(kind)
        fit_object(written, parsed)
        _by_nulls(written, parsed)

    def derive(self, kind: DataType, name: str, like: str | None) -> str:
        import json

        found = to_json(WALK.derive(as_written(kind), None if like is None else parse(like)))
        return json.dumps({"$schema": DRAFT, "title": name, **found}, ensure_ascii=False)

    def difference(self, new: str, old: str) -> str:
        later, earlier = ({one.name: one for one in parse(text).properties} for text in (new, old))
        said = [f"{name} is gone" for name in earlier if name not in later]
        said += [f"{name} is new" for name in later if name not in earlier]
        said += [
            f"{name} is {later[name].type.describe()}, and was {earlier[name].type.describe()}"
            if later[name].type.describe() != earlier[name].type.describe()
            else f"{name} is another {later[name].type.describe()}"
            for name in later
            if name in earlier and later[name] != earlier[name]
        ]
        return "; ".join(said)


def _fields_with_types(declared: Declared) -> set[str]:
    """Returns the fields whose types are declared. The schema's types of these do not matter."""
    untyped = {one.name for column, one in declared.fields.items() if column not in declared.types}
    return {declared.field_of(column) for column in declared.types} - untyped


def _check_columns(found: Schema, declared: Declared) -> None:
    """Checks the columns that a reader's schema and the settings give.

    Raises:
        BadSchema: names a column that cannot be, and the way on.
    """
    properties = {one.name: one for one in found.properties}
    names = [*(column for column, _ in declared.with_registered_types(properties)), *declared.types]
    for column, one in declared.fields.items():
        if column in declared.types:
            continue
        if one.name not in properties:
            raise BadSchema(
                f"#/properties: it has no {one.name!r}, and source.schema.{column} has no type. Declare the type, or name "
                "another field"
            )
        if one.encoding is not None:
            try:
                one.encoding.check(SPARK_NAMES.get(kind := properties[one.name].type.kind, kind))
            except ValueError as error:
                raise BadSchema(f"source.schema.{column}: {error}") from None
    if not names:
        raise BadSchema("#/properties: it has none, and a transform needs columns")
    way_on = "Read the property in a column of another name: under source.schema, `other_name: {field: %s}`"
    if twice := [name for name in properties if names.count(name) > 1]:
        raise BadSchema(
            f"#/properties: source.schema reads another field in column {twice[0]}. {way_on % repr(twice[0])}"
        )
    if taken := taken_names(names, declared.envelope):
        own = next(name for name in names if taken_names([name], declared.envelope))
        raise BadSchema(f"#/properties: the transform's source already has {', '.join(taken)}. {way_on % repr(own)}")
    try:
        check_names(names, "#/properties and source.schema")
    except NoColumn as error:
        raise BadSchema(f"{error}. {way_on % '...'}") from None


def _check_object(found: Schema) -> None:
    if found.kind != "object":
        raise BadSchema(f"#: its values are of type {found.describe()}, and only an object with properties has columns")


def _check_writable(kind: Schema, at: str) -> None:
    if kind.undeclared:
        raise BadSchema(f"{at}/required: {', '.join(kind.undeclared)} must be there, but has no entry in properties")
    for one in kind.properties:
        _check_writable(one.type, f"{at}/properties/{one.name}")
    if kind.items is not None:
        _check_writable(kind.items, f"{at}/{'items' if kind.kind == 'array' else 'additionalProperties'}")


def to_spark(kind: Schema) -> DataType:
    """Returns the type of a column for a schema's values. Nested fields may all be null, as in declared types."""
    from pyspark.sql import types as T

    simple = {
        "string": T.StringType(),
        "integer": T.LongType(),
        "number": T.DoubleType(),
        "boolean": T.BooleanType(),
        "date": T.DateType(),
        "date-time": T.TimestampType(),
    }
    if kind.kind in simple:
        return simple[kind.kind]
    if kind.items is not None:
        inner = to_spark(kind.items)
        return T.ArrayType(inner) if kind.kind == "array" else T.MapType(T.StringType(), inner)
    return T.StructType([T.StructField(one.name, to_spark(one.type)) for one in kind.properties])


def _json(columns: Mapping[str, Column], nulls: bool) -> Column:
    from pyspark.sql import functions as F

    options = JSON_OUT | {"ignoreNullFields": "false" if nulls else "true"}
    return F.to_json(F.struct(*(column.alias(name) for name, column in columns.items())), options)


def _joined(texts: Sequence[Column]) -> Column:
    """Returns one JSON object with the fields of several objects."""
    from pyspark.sql import functions as F

    inner = [F.nullif(F.regexp_replace(text, r"^\{|\}$", ""), F.lit("")) for text in texts]
    return F.concat(F.lit("{"), F.concat_ws(",", *inner), F.lit("}"))


def _by_nulls(kind: StructType, schema: Schema) -> tuple[list[str], list[str]]:
    """Returns the columns whose nulls are written, and the columns whose nulls are left out. Nulls within a column
    count too.

    Raises:
        Unfit: a column needs both.
    """
    known = {one.name: one for one in schema.properties}
    kept, left_out = list[str](), list[str]()
    for f in kind.fields:
        may_be_kept, may_be_left_out = _nulls_of(f.dataType, known[f.name])
        if not (may_be_kept or may_be_left_out):
            raise Unfit(
                f"field {f.name}: the object has required nullable properties and optional properties that may not "
                "be null. Fencepost can read such an object but not write it. Register a version of the schema in "
                "which the optional properties are nullable."
            )
        (kept if may_be_kept else left_out).append(f.name)
    return kept, left_out


def _nulls_of(kind: DataType, one: Property) -> tuple[bool, bool]:
    """Returns whether every null in a property may be written as null, and whether every null may be left out."""
    own = (one.type.nullable or one.required, not (one.type.nullable and one.required))
    inner = _nulls_within(kind, one.type)
    return own[0] and inner[0], own[1] and inner[1]


def _nulls_within(kind: DataType, schema: Schema) -> tuple[bool, bool]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType) and schema.items is not None:
        return _nulls_within(kind.elementType, schema.items)
    if isinstance(kind, MapType) and schema.items is not None:
        return _nulls_within(kind.valueType, schema.items)
    if not isinstance(kind, StructType):
        return True, True
    known = {one.name: one for one in schema.properties}
    found = [_nulls_of(f.dataType, known[f.name]) for f in kind.fields]
    return all(kept for kept, _ in found), all(left_out for _, left_out in found)
