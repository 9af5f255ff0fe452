"""How columns become Avro's values, and the schema that a column would have.

Spark encodes. Spark cannot write a union of several types, so this module builds the bytes of a value that contains
such a union from the bytes of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from fencepost.formats.avro_schema import NAME, AvroField, is_struct_of_members, render, union_members
from fencepost.formats.avro_schema import AvroType as Schema
from fencepost.formats.avro_values import DAY
from fencepost.formats.fit import Fit, Walk, misfit, same
from fencepost.formats.format import Unfit

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField

    from fencepost.formats.fit import Check

MOST_BRANCHES = 63  # types of a union: their numbers take one byte
# Spark's types, by their names in schemas, that fit each Avro type without a loss.
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


def fit_whole(kind: DataType, schema: Schema) -> Fit:
    """Returns how a record's value or key is written. Null has no bytes, so it fits every schema."""
    return WALK.fit(kind, schema, "") if schema.kind in ("union", "null") else WALK.fit_value(kind, schema, "")


def bytes_of(fit: Fit, schema: Schema) -> Check:
    """Returns the function that encodes a value that is not null. Null may be encoded only if the schema has null."""
    from pyspark.sql.avro.functions import to_avro

    return fit.data or (lambda c: to_avro(fit.convert(c), render(schema)))


def derive(kind: DataType, name: str, like: Schema | None) -> Schema:
    """Returns a schema for a column of this type. `like` is an earlier schema. Where the column's type fits `like`, the
    result keeps the type of `like`.
    """
    return _named(WALK.derive(kind, like), name, {})


def _named(kind: Schema, name: str, known: dict[str, Schema]) -> Schema:
    """Returns the type, in which every record has a name. A generated name that is taken already gets a number, because
    different columns may give the same name.
    """
    first = full = (kind.name or name) if kind.kind == "record" else kind.name
    number, kind = 2, replace(kind, name=full)
    while full and known.setdefault(full, kind) != kind:
        full, number = f"{first}_{number}", number + 1
    below = first or name
    return replace(
        kind,
        name=full,
        fields=tuple(replace(one, type=_named(one.type, f"{below}_{one.name}", known)) for one in kind.fields),
        items=None if kind.items is None else _named(kind.items, name, known),
        branches=tuple(_named(branch, name, known) for branch in kind.branches),
    )


class AvroWalk(Walk[Schema, AvroField]):
    """The walk over Avro's types."""

    format, member, schema = "Avro", "field", Schema

    def fit(self, kind: DataType, schema: Schema, path: str) -> Fit:
        from pyspark.sql import functions as F
        from pyspark.sql.types import NullType

        if schema.kind == "null" or (schema.kind == "union" and not schema.others):
            if not isinstance(kind, NullType):
                raise misfit(kind, Schema("null"), path)
            return Fit()
        if schema.kind == "union" and len(schema.others) > 1:
            return self._fit_union(kind, schema, path)
        if schema.nullable and isinstance(kind, NullType):
            return _always_null(schema)
        one = schema.others[0]
        inner = self.fit_value(kind, one, path)
        if inner.data is not None and schema.kind == "union":
            inner = replace(inner, data=_branches(schema, {id(one): (same, inner)}))
        rest = inner.problem or (lambda c: F.lit(None).cast("string"))
        if schema.nullable:
            return replace(inner, problem=inner.problem and (lambda c: F.when(c.isNotNull(), rest(c))))
        missing = F.lit(f"{path}: null, and its type is {one.describe()}")
        return replace(inner, problem=lambda c: F.when(c.isNull(), missing).otherwise(rest(c)))

    def fit_simple(self, kind: DataType, schema: Schema, path: str) -> Fit | None:
        from pyspark.sql.types import DecimalType

        if schema.logical == "decimal" and isinstance(kind, DecimalType):
            if kind.scale > schema.scale or kind.precision - kind.scale > schema.precision - schema.scale:
                return None
            return Fit(lambda c: c.cast(DecimalType(schema.precision, schema.scale)))
        if kind.typeName().split("(")[0] not in PLAIN.get((schema.kind, schema.logical), ()):
            return None
        convert = {"int": "int", "long": "bigint", "double": "double"}.get(schema.kind)
        as_is = convert is None or (schema.logical or "").startswith(("date", "timestamp-m", "local-timestamp-m"))
        return Fit(same if as_is else lambda c: c.cast(str(convert)), _row_check(schema, path))

    def members(self, schema: Schema) -> Mapping[str, AvroField] | None:
        return {one.name: one for one in schema.fields} if schema.kind == "record" else None

    def type_of(self, member: AvroField) -> Schema:
        return member.type

    def absent(self, member: AvroField, path: str) -> Fit:
        if member.default is not None or not member.type.nullable:  # a default other than null
            raise Unfit(
                f"the transform does not give {path}, which is of type {member.type.describe()}. Add it to the result."
            )
        return _always_null(member.type)

    def fit_struct(self, fits: Mapping[str, Fit], schema: Schema, problem: Check | None) -> Fit:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import to_avro

        def struct(column: Column, fields: Sequence[AvroField]) -> Column:
            return F.struct(*(fits[one.name].convert(column[one.name]).alias(one.name) for one in fields))

        def data(column: Column) -> Column:
            """Returns the bytes of a record, which are the bytes of its fields in order. Neighbouring fields without a
            union of several types are encoded together, for speed.
            """
            pieces, run = [], list[AvroField]()
            for one in (*schema.fields, None):
                apart = one is None or fits[one.name].data is not None
                if apart and run:
                    part = Schema("record", name="_part", fields=tuple(run))
                    pieces.append(to_avro(struct(column, run), render(part)))
                    run = []
                if one is not None and apart:
                    pieces.append(bytes_of(fits[one.name], one.type)(column[one.name]))
                elif one is not None:
                    run.append(one)
            return F.concat(*pieces)

        def convert(column: Column) -> Column:
            return F.when(column.isNotNull(), struct(column, schema.fields))

        return Fit(convert, problem, data if any(fit.data for fit in fits.values()) else None)

    def _fit_union(self, kind: DataType, schema: Schema, path: str) -> Fit:
        """Returns how a union of several types is written. In Spark it is a struct with a column for each type, and one
        of the columns is set.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        if not is_struct_of_members(schema):
            widest = next(branch for branch in schema.others if branch.kind in ("long", "double"))
            fit = self.fit(kind, self.or_null(widest) if schema.nullable else widest, path)
            return replace(fit, data=_branches(schema, {id(widest): (same, fit)}))
        members = union_members(schema)
        if len(schema.branches) > MOST_BRANCHES:
            raise Unfit(f"field {path}: a union of more than {MOST_BRANCHES} types can be read, but not written.")
        if not isinstance(kind, StructType) or kind.fieldNames() != list(members):
            raise Unfit(
                f"field {path}: the transform gives {kind.simpleString()}. For a union of {schema.describe()} it has to give a "
                f"struct of {', '.join(members)}, in this order."
            )
        fits = {name: self.fit_value(kind[name].dataType, branch, f"{path}.{name}") for name, branch in members.items()}

        def problem(column: Column) -> Column:
            number = reduce(lambda a, b: a + b, [column[name].isNotNull().cast("int") for name in members])
            fewest = 0 if schema.nullable else 1
            several = F.when(
                ~F.coalesce(number, F.lit(0)).between(fewest, 1),
                F.lit(f"{path}: not one of {', '.join(members)} is set"),
            )
            inner = [
                F.when(column[n].isNotNull(), f.problem(column[n])) for n, f in fits.items() if f.problem is not None
            ]
            return F.coalesce(several, *inner)

        taken = {id(branch): ((lambda c, n=name: c[n]), fits[name]) for name, branch in members.items()}
        return Fit(same, problem, _branches(schema, taken))

    def derive_simple(self, kind: DataType) -> Schema | None:
        from pyspark.sql.types import DecimalType

        if isinstance(kind, DecimalType):
            return Schema("bytes", "decimal", kind.precision, kind.scale)
        return DERIVED.get(kind.typeName().split("(")[0])

    def or_null(self, schema: Schema) -> Schema:
        return schema if schema.kind == "null" else Schema("union", branches=(Schema("null"), schema))

    def not_null(self, schema: Schema) -> Schema | None:
        return schema.others[0] if len(schema.others) == 1 else None

    def new_member(
        self, field: StructField, schema: Schema, old: AvroField | None, before: Schema | None, path: str
    ) -> AvroField:
        if not NAME.fullmatch(field.name):
            raise Unfit(f"column {path}: its name is not a name in Avro. Rename it.")
        aliases = old.aliases if old else ()
        return (
            AvroField(field.name, schema, aliases, None) if schema.nullable else AvroField(field.name, schema, aliases)
        )

    def new_struct(self, members: Sequence[AvroField], before: Schema | None) -> Schema:
        return Schema("record", name=before.name if before else "", fields=tuple(members))


def _branches(schema: Schema, taken: Mapping[int, tuple[Check, Fit]]) -> Check:
    """Returns the bytes of a union: the number of the type, and the value. The result is null if no column is set and
    the union has no null.

    `taken` gives, by the identity of a type in the union, the column of its values and how they are written.
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
                whole = F.concat(F.lit(bytearray([2 * number])), bytes_of(fit, branch)(of(column)))
                found = F.when(of(column).isNotNull(), whole).otherwise(found)
        return found

    return data


def _always_null(schema: Schema) -> Fit:
    """Returns how null is written in a union if there is no column, or a column of type void. `to_avro` accepts
    neither.
    """
    from pyspark.sql import functions as F

    number = next(number for number, branch in enumerate(schema.branches) if branch.kind == "null")
    return Fit(data=lambda _: F.lit(bytearray([2 * number])))


def _row_check(schema: Schema, path: str) -> Check | None:
    """Returns the check of what depends on a row's value."""
    from pyspark.sql import functions as F

    def unless(fits: Check, why: str) -> Check:
        return lambda c: F.when(~fits(c), F.lit(f"{path}: {why}"))

    if schema.logical in ("timestamp-millis", "local-timestamp-millis"):
        why = f"a time with microseconds, and its type is {schema.describe()}; cut it with date_trunc('MILLISECOND', …)"
        return unless(lambda c: F.unix_micros(c.cast("timestamp")) % 1000 == 0, why)
    if schema.kind == "enum":
        return unless(lambda c: c.isin(*schema.symbols), f"not one of the symbols of {schema.describe()}")
    if schema.logical == "uuid" and schema.kind == "string":
        return unless(lambda c: F.rlike(c, F.lit(UUID)), "not a UUID")
    if (end := DAY.get(schema.logical or "")) is not None:
        return unless(lambda c: c.between(0, end - 1), "not a time of day")
    if schema.kind == "string":
        return unless(F.is_valid_utf8, "text that is not UTF-8")
    if schema.kind == "fixed":
        return unless(lambda c: F.length(c) == schema.size, f"not {schema.size} bytes long, as {schema.describe()} is")
    return None


WALK = AvroWalk()
