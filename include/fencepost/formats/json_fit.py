"""Decides how columns become values of a JSON Schema, and which schema a column would have. Spark writes the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fencepost.formats.fit import Fit, Walk, first_of
from fencepost.formats.format import Unfit
from fencepost.formats.json import JSON_OUT, check_of, check_sayable, name_check
from fencepost.formats.json_schema import JsonType as Schema
from fencepost.formats.json_schema import Property

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

    from fencepost.formats.fit import Check

INTEGERS = ("byte", "short", "integer", "long")
# Spark's types, by their names in schemas, whose JSON fits each type.
FITTING = {
    "string": ("string", "binary", "date", "timestamp", "timestamp_ntz"),
    "integer": INTEGERS,
    "number": (*INTEGERS, "float", "double", "decimal"),
    "boolean": ("boolean",),
    "date": ("date",),
    "date-time": ("timestamp",),
}
DERIVED = {
    "boolean": Schema("boolean"),
    **dict.fromkeys(INTEGERS, Schema("integer")),
    **dict.fromkeys(("float", "double", "decimal"), Schema("number")),
    **dict.fromkeys(("string", "binary", "timestamp_ntz"), Schema("string")),
    "date": Schema("date"),
    "timestamp": Schema("date-time"),
}


def fit_object(kind: StructType, schema: Schema) -> Check | None:
    """Returns the check of rows with these columns, or None if every row is a value of the schema. The check gives the
    reason why a row is not one, or null.

    Raises:
        Unfit: no row can be a value of the schema.
    """
    check_sayable(kind)
    return WALK.fit_value(kind, schema, "").problem


class JsonWalk(Walk[Schema, Property]):
    """The walk over JSON Schema's types."""

    format, member, schema = "JSON Schema", "property", Schema

    def fit(self, kind: DataType, schema: Schema, path: str) -> Fit:
        from pyspark.sql import functions as F
        from pyspark.sql.types import NullType

        if isinstance(kind, NullType) and schema.nullable:
            return Fit()
        inner = self.fit_value(kind, schema, path).problem
        rest = inner or (lambda c: F.lit(None).cast("string"))
        if schema.nullable:
            return Fit(problem=inner and (lambda c: F.when(c.isNotNull(), rest(c))))
        missing = F.lit(f"{path}: null, and its type is {schema.describe()}")
        return Fit(problem=lambda c: F.when(c.isNull(), missing).otherwise(rest(c)))

    def fit_simple(self, kind: DataType, schema: Schema, path: str) -> Fit | None:
        from pyspark.sql import functions as F
        from pyspark.sql.types import DecimalType

        name = kind.typeName().split("(")[0]
        whole = schema.kind == "integer" and isinstance(kind, DecimalType) and kind.scale == 0
        if name not in FITTING.get(schema.kind, ()) and not whole:
            return None
        checks = [check_of(kind, path)]
        if schema.values:
            allowed, said = [value for value in schema.values if _is_of(value, schema.kind)], _said(name)
            checks.append(
                lambda c: F.when(~_among(said(c), allowed), F.lit(f"{path}: not one of the values in its enum"))
            )
        return Fit(problem=first_of(checks))

    def members(self, schema: Schema) -> Mapping[str, Property] | None:
        return {one.name: one for one in schema.properties} if schema.kind == "object" else None

    def type_of(self, member: Property) -> Schema:
        return replace(member.type, nullable=member.type.nullable or not member.required)  # such a null is left out

    def absent(self, member: Property, path: str) -> None:
        if member.required:
            raise Unfit(
                f"the transform does not give {path}, which is required, of type {member.type.describe()}. Add it to "
                "the result."
            )

    def fit_struct(self, fits: Mapping[str, Fit], schema: Schema, problem: Check | None) -> Fit:
        return Fit(problem=problem)

    def key_problem(self, path: str) -> Check:
        return name_check(path)

    def derive_simple(self, kind: DataType) -> Schema | None:
        return DERIVED.get(kind.typeName().split("(")[0])

    def or_null(self, schema: Schema) -> Schema:
        return replace(schema, nullable=True)

    def not_null(self, schema: Schema) -> Schema:
        return schema

    def new_member(
        self, field: StructField, schema: Schema, old: Property | None, before: Schema | None, path: str
    ) -> Property:
        return Property(
            field.name, schema, required=not field.nullable and before is None
        )  # earlier records have no such property

    def new_struct(self, members: Sequence[Property], before: Schema | None) -> Schema:
        """Returns the type of an object. A new object allows no other properties, because a later version could not add
        a property to an open object.
        """
        return Schema("object", properties=tuple(members), closed=before is None or before.closed)


WALK = JsonWalk()


def _said(name: str) -> Check:
    """Returns the function that writes a value of this Spark type as the text in JSON."""
    from pyspark.sql import functions as F

    if name in ("timestamp", "timestamp_ntz"):
        return lambda c: F.date_format(c, JSON_OUT["timestampFormat" if name == "timestamp" else "timestampNTZFormat"])
    if name == "binary":
        return F.base64
    return (lambda c: c.cast("string")) if name == "date" else lambda c: c


def _is_of(value: object, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    return (
        isinstance(value, bool) if kind == "boolean" else isinstance(value, int | float) and not isinstance(value, bool)
    )


def _among(column: Column, values: Sequence[object]) -> Column:
    from pyspark.sql import functions as F

    return column.isin(*values) if values else F.lit(False)
