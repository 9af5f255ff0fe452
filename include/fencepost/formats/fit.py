"""Decides how columns of Spark's types become values of a schema, and which schema a column would have. All formats use
the same walk over types.

A `Check` finds a problem that depends on a row's value. A check is a column of texts, which is null for a row that
fits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeGuard, TypeVar

from fencepost.formats.format import Unfit

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, MapType, StructField, StructType

    Check = Callable[[Column], Column]


class Schema(Protocol):
    """What `Walk` needs to know about a type of a format's schema.

    `items` is the type of an array's elements or a map's values.
    """

    @property
    def kind(self) -> str: ...

    @property
    def items(self) -> Self | None: ...

    def describe(self) -> str: ...


S = TypeVar("S", bound=Schema)
M = TypeVar("M")  # a member of a struct, with its type


def same(column: Column) -> Column:
    """Returns the column unchanged."""
    return column


@dataclass(frozen=True)
class Fit:
    """How a column becomes a value of a schema, and the text that says why a row's value does not fit.

    `convert` gives what Spark's own function for the format takes. If Spark has no such function, `data` gives the value's bytes.
    """

    convert: Check = same
    problem: Check | None = None
    data: Check | None = None


class Walk(ABC, Generic[S, M]):
    """The walk over types. A subclass says what is particular to its format.

    `fit` and `fit_value` raise Unfit if the type has values that are not values of the schema, whatever the row. `derive` raises
    it if the format has no such type. The text names the place and the fix.
    """

    format: str  # the format's word for a member of a struct
    member: str  # what the format calls a member of a struct
    schema: type[S]

    @abstractmethod
    def fit(self, kind: DataType, schema: S, path: str) -> Fit:
        """Returns how values of Spark's type become values of the schema, including null."""

    @abstractmethod
    def fit_simple(self, kind: DataType, schema: S, path: str) -> Fit | None:
        """Returns how simple values are written, or None if the type does not fit. Simple values are not null, and
        neither structs, arrays nor maps.
        """

    @abstractmethod
    def fit_struct(self, fits: Mapping[str, Fit], schema: S, problem: Check | None) -> Fit:
        """Returns how a struct is written. `fits` says how its members are written."""

    @abstractmethod
    def absent(self, member: M, path: str) -> Fit | None:
        """Returns how a member without a column is written, or None if the member is left out. Raises Unfit if the
        member is required.
        """

    @abstractmethod
    def members(self, schema: S) -> Mapping[str, M] | None:
        """Returns the members of a struct type, or None for another type."""

    @abstractmethod
    def type_of(self, member: M) -> S:
        """Returns the type of a member's values."""

    @abstractmethod
    def derive_simple(self, kind: DataType) -> S | None:
        """Returns a type for values that are neither structs, arrays nor maps, or None if the format has no such type."""

    @abstractmethod
    def new_member(self, field: StructField, schema: S, old: M | None, before: S | None, path: str) -> M:
        """Returns a member for a column. `before` is an earlier version of the struct, and `old` is its member of this
        name, if it had one.
        """

    @abstractmethod
    def new_struct(self, members: Sequence[M], before: S | None) -> S:
        """Returns the type of a struct with these members."""

    @abstractmethod
    def or_null(self, schema: S) -> S:
        """Returns the type that also allows null."""

    @abstractmethod
    def not_null(self, schema: S) -> S | None:
        """Returns the type without null, or None if several types remain."""

    def key_problem(self, path: str) -> Check:
        """Returns a check for the keys of a map. The check gives the reason why a key is not a name in the format, or
        null.
        """
        from pyspark.sql import functions as F

        return lambda c: F.when(~F.is_valid_utf8(c), F.lit(f"{path}: a name that is not UTF-8"))

    def fit_value(self, kind: DataType, schema: S, path: str) -> Fit:
        """Returns how values of Spark's type that are not null become values of the schema."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, StructType

        found: Fit | None
        if isinstance(kind, StructType) and (members := self.members(schema)) is not None:
            found = self._fit_members(kind, members, schema, path)
        elif isinstance(kind, ArrayType) and schema.kind == "array" and schema.items is not None:
            inner = self._fit_items(kind.elementType, schema.items, f"{path}[]", path)
            found = Fit(_each(inner, F.transform), each(inner.problem, same))
        elif is_map(kind) and schema.kind == "map" and schema.items is not None:
            inner = self._fit_items(kind.valueType, schema.items, f"{path}{{}}", path)
            convert = _each(inner, lambda c, each_: F.transform_values(c, lambda _, v: each_(v)))
            keys, values = each(self.key_problem(path), F.map_keys), each(inner.problem, F.map_values)
            found = Fit(convert, first_of([name_twice(path), keys, values]))
        else:
            found = self.fit_simple(kind, schema, path)
        if found is None:
            raise misfit(kind, schema, path)
        return found

    def _fit_items(self, kind: DataType, schema: S, path: str, outer: str) -> Fit:
        inner = self.fit(kind, schema, path)
        if inner.data is not None:
            raise Unfit(
                f"field {outer}: a union of several types within an array or a map can be read, but not written."
            )
        return inner

    def _fit_members(self, kind: StructType, members: Mapping[str, M], schema: S, path: str) -> Fit:
        given, dot = {f.name: f.dataType for f in kind.fields}, f"{path}." if path else ""
        if unknown := [name for name in given if name not in members]:
            raise Unfit(
                f"the schema has no {self.member} for {', '.join(dot + name for name in unknown)}, which the "
                "transform gives. Leave it out, give it a name that begins with _, or register a version of the "
                "schema with it."
            )
        fits = dict[str, Fit]()
        for name, member in members.items():
            at = dot + name
            found = self.fit(given[name], self.type_of(member), at) if name in given else self.absent(member, at)
            if found is not None:
                fits[name] = found
        return self.fit_struct(fits, schema, first_of([of_field(fit.problem, name) for name, fit in fits.items()]))

    def derive(self, kind: DataType, like: S | None, path: str = "") -> S:
        """Returns a type for values that are not null. `like` is an earlier type. Where the column's type fits `like`,
        the result keeps the type of `like`.
        """
        from pyspark.sql.types import ArrayType, StructType

        if isinstance(kind, StructType):
            return self._derive_struct(kind, like, path)
        word = "array" if isinstance(kind, ArrayType) else "map"
        items = like.items if like is not None and like.kind == word else None
        if isinstance(kind, ArrayType):
            return self.schema(word, items=self._derive_part(kind.elementType, kind.containsNull, items, f"{path}[]"))  # type: ignore[call-arg]
        if is_map(kind):
            part = self._derive_part(kind.valueType, kind.valueContainsNull, items, f"{path}{{}}")
            return self.schema(word, items=part)  # type: ignore[call-arg]
        if (simple := self.derive_simple(kind)) is None:
            raise Unfit(f"column {path}: {self.format} has no type for {kind.simpleString()}. Cast it.")
        return simple

    def _derive_struct(self, kind: StructType, like: S | None, path: str) -> S:
        known = None if like is None else self.members(like)
        before, members = like if known is not None else None, list[M]()
        for f in kind.fields:
            at, old = f"{path}.{f.name}" if path else f.name, (known or {}).get(f.name)
            if old is not None and self._fits(f.dataType, old, at):
                members.append(old)
            else:
                part = self._derive_part(f.dataType, f.nullable, None if old is None else self.type_of(old), at)
                members.append(self.new_member(f, part, old, before, at))
        return self.new_struct(members, before)

    def _derive_part(self, kind: DataType, nullable: bool, like: S | None, path: str) -> S:
        found = self.derive(kind, None if like is None else self.not_null(like), path)
        return self.or_null(found) if nullable else found

    def _fits(self, kind: DataType, member: M, path: str) -> bool:
        try:
            self.fit(kind, self.type_of(member), path)
        except Unfit:
            return False
        return True


def is_map(kind: DataType) -> TypeGuard[MapType]:
    """Returns whether the type is a map with texts as keys. No format has maps with other keys."""
    from pyspark.sql.types import MapType, StringType

    return isinstance(kind, MapType) and isinstance(kind.keyType, StringType)


def name_twice(path: str) -> Check:
    """Returns the check that a map has no key twice. A map in Spark may have a key twice. JSON would keep both entries,
    and Avro's map would lose one.
    """
    from pyspark.sql import functions as F

    said = F.lit(f"{path}: two entries of one name")
    return lambda c: F.when(F.size(F.array_distinct(F.map_keys(c))) < F.size(c), said)


def misfit(kind: DataType, schema: Schema, path: str) -> Unfit:
    """Returns the error for a type whose values do not all fit the schema."""
    return Unfit(
        f"field {path or 'value'}: the transform gives {kind.simpleString()}, which does not fit in {schema.describe()}. Cast it."
    )


def _each(inner: Fit, convert: Callable[[Column, Check], Column]) -> Check:
    """Returns the conversion of an array or a map. `inner` says how each of its values is converted."""
    return same if inner.convert is same else lambda c: convert(c, inner.convert)


def each(inner: Check | None, values: Check) -> Check | None:
    """Returns the check of an array or a map. The check gives the first problem among the values."""
    from pyspark.sql import functions as F

    if inner is None:
        return None
    return lambda c: F.get(F.filter(F.transform(values(c), inner), lambda text: text.isNotNull()), F.lit(0))


def of_field(inner: Check | None, name: str) -> Check | None:
    """Returns the check of a struct's field."""
    return inner and (lambda c: inner(c[name]))


def first_of(checks: Sequence[Check | None]) -> Check | None:
    """Returns a check that gives the first problem of several checks."""
    from pyspark.sql import functions as F

    found = [check for check in checks if check is not None]
    return (lambda c: F.coalesce(*(check(c) for check in found))) if found else None
