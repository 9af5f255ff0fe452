"""Format `json_schema`: a value is Confluent's header of five bytes (0, then a schema's id in four bytes), followed by
one JSON object.

The reader's schema declares the types, as pipeline.yaml does for format `json`. The schema that a record was written
with has no effect. A written row is valid against the output's schema in its types, `required` and `enum`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fencepost.formats.format import (
    BadSchema,
    Declared,
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
from fencepost.formats.json_schema import DRAFT, NoColumn, Property, check_names, parse, render, to_json
from fencepost.formats.json_schema import JsonType as Schema
from fencepost.model import RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


class JsonSchema:
    """Implements `RegistryFormat`."""

    has_registry = True
    schema_type = "JSON"

    def check_columns(self, columns: Collection[str]) -> None:
        """Accepts every declared column. A declared column has its declared type instead of the type in the schema."""

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        from pyspark.sql.types import StructField, StructType

        schemas = declared.frozen
        reader = parse(schemas.reader.text)
        own = [StructField(one.name, to_spark(one.type)) for one in reader.properties]
        required = [one.name for one in reader.properties if one.required and not one.type.nullable]
        fields = StructType([*own, *fields_of(declared.types).fields])
        return read_json(raw, fields, [*required, *declared.required], kept, framing_of(schemas))

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        from pyspark.sql import functions as F

        assert schema is not None
        parsed = parse(schema.text)
        problem = fit_object(fields, parsed)
        kept, left_out = _by_nulls(fields, parsed)
        texts = [_json(names, nulls) for names, nulls in ((kept, True), (left_out, False)) if names]
        text = texts[0] if len(texts) == 1 else _joined(texts)
        data = F.concat(F.lit(bytearray(header(schema.id))), text.cast("binary"))
        if problem is None:
            return Encoded(data)
        unfit = problem(F.struct(*(F.col(f"`{name}`") for name in fields.fieldNames())))
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

    def reader(
        self, text: str, references: Sequence[SchemaReference], declared: Collection[str], *, columns: bool
    ) -> str:
        try:
            found = parse(text, references, declared)
        except NoColumn as error:
            raise BadSchema(
                f"{error}. Declare the type of the outermost field that contains this under source.schema; string "
                "takes any value as its text"
            ) from None
        _check_object(found)
        names = [*(one.name for one in found.properties), *declared]
        check_names(names, "#/properties and source.schema")
        if not names:
            raise BadSchema("#/properties: it has none, and a transform needs columns")
        if taken := taken_names(names):
            raise BadSchema(f"#/properties: the transform's source already has {', '.join(taken)}")
        return render(found)

    def writer(self, text: str, references: Sequence[SchemaReference], reader: str) -> str:
        return ""  # the reader's schema decides

    def written(self, text: str, references: Sequence[SchemaReference], *, columns: bool) -> str:
        found = parse(text, references)
        _check_object(found)
        check_written_names(one.name for one in found.properties)
        _check_writable(found, "#")
        return render(found)

    def fields(self, schema: RegisteredSchema) -> list[str]:
        return [one.name for one in parse(schema.text).properties]

    def check_fits(self, kind: DataType, schema: RegisteredSchema) -> None:
        from pyspark.sql.types import StructType

        assert isinstance(kind, StructType), "a value: keys cannot have this format"
        parsed = parse(schema.text)
        fit_object(kind, parsed)
        _by_nulls(kind, parsed)

    def derive(self, kind: DataType, name: str, like: str | None) -> str:
        import json

        found = to_json(WALK.derive(kind, None if like is None else parse(like)))
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


def _json(names: Sequence[str], nulls: bool) -> Column:
    from pyspark.sql import functions as F

    options = JSON_OUT | {"ignoreNullFields": "false" if nulls else "true"}
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), options)


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
