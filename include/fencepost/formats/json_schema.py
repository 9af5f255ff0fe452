"""Parses JSON Schemas, checks what Spark can hold, and writes schemas as texts.

Pure. Constraints of a schema (`minimum`, `pattern`, ...) do not affect types and are left out. `enum` and `const` are kept,
because a writer of records needs them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fencepost.formats.column_names import twins
from fencepost.formats.envelope import FLATTENED
from fencepost.formats.format import BadSchema, SchemaReference

if TYPE_CHECKING:
    from referencing._core import Resolver  # its public name would import more of the library

DRAFT = "http://json-schema.org/draft-07/schema#"
SIMPLE = frozenset(("string", "integer", "number", "boolean"))
KINDS = SIMPLE | {"array", "object", "null"}
FORMATS = ("date", "date-time")  # formats of a text that are types of their own here
COMBINED = ("oneOf", "anyOf", "allOf")
OWN = frozenset("type enum const properties additionalProperties patternProperties items prefixItems".split())
MOST_TYPES = 5_000  # in one schema, with each reference replaced by what it refers to
DEEPEST = 100


class NoColumn(BadSchema):
    """A schema has a part that cannot be the type of a column. The text begins with the place of that part."""


@dataclass(frozen=True)
class Property:
    """A property of an object. A `required` property must be present, and may be null if its type allows null."""

    name: str
    type: JsonType
    required: bool = False


@dataclass(frozen=True)
class JsonType:
    """A type. `kind` is JSON Schema's `type`, or `date`, `date-time` or `map`.

    `items` is the type of an array's elements or of a map's values. `values` are the only allowed values without null,
    and empty if any value is allowed. `closed` says that an object has no other properties. `undeclared` has the names
    of required properties that `properties` does not list.
    """

    kind: str
    nullable: bool = False
    properties: tuple[Property, ...] = ()
    closed: bool = False
    items: JsonType | None = None
    values: tuple[Any, ...] = ()
    undeclared: tuple[str, ...] = ()

    def describe(self) -> str:
        """Returns the type for a person, such as `integer` or `string (date)`."""
        if self.kind in FORMATS:
            return f"string ({self.kind})"
        return "object (additionalProperties)" if self.kind == "map" else self.kind


def parse(text: str, references: Sequence[SchemaReference] = (), without: Collection[str] = ()) -> JsonType:
    """Returns the type in a schema's text. The outermost properties in `without` are left out, whatever their types.

    Raises:
        BadSchema: it is not a JSON Schema.
        NoColumn: one of its types cannot be a column's type. The text has the place as a JSON pointer.
    """
    with _reasons():
        place = _place(text, references, "it")
        return _SchemaParser(frozenset(without)).type(place.contents, place, "#", 0)


def parse_row(text: str, references: Sequence[SchemaReference] = (), without: Collection[str] = ()) -> JsonType:
    """Returns the type of the rows in the schema of a Debezium envelope. The arguments and errors are those of `parse`."""
    with _reasons():
        place = _place(text, references, "it")
        properties = place.contents.get("properties", {})
        if missing := [name for name in ("op", "after") if name not in properties]:
            raise BadSchema(f"#/properties: no {missing[0]}, so it is not a Debezium envelope. {FLATTENED}")
        parser = _SchemaParser(frozenset(without))
        row = parser.type(properties["after"], place, "#/properties/after", 0)
        return replace(row, nullable=False)


@contextmanager
def _reasons() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise BadSchema("it is nested too deeply") from None
    except (TypeError, AttributeError, KeyError):
        raise BadSchema("it is not a JSON Schema") from None


def title_of(text: str) -> str:
    """Returns the title of a schema, which names the type of its records.

    Raises:
        BadSchema: it has none.
    """
    try:
        found = json.loads(text)
    except ValueError:
        raise BadSchema("it is not JSON") from None
    title = found.get("title") if isinstance(found, dict) else None
    if not isinstance(title, str) or not title:
        raise BadSchema("the schema has no title, and source.only names titles")
    return title


@dataclass(frozen=True)
class _Place:
    """A document with the documents that it refers to, by the names that it uses. A place may also be a part of a
    document that has its own address.
    """

    contents: Any
    resolver: Resolver[Any]
    names: Mapping[str, _Place]


def _place(text: str, references: Sequence[SchemaReference], what: str) -> _Place:
    from referencing import Registry, Specification
    from referencing.exceptions import CannotDetermineSpecification
    from referencing.jsonschema import DRAFT7, UnknownDialect

    def resource(contents: Any) -> Any:
        try:
            return Specification.detect(contents).create_resource(contents)
        except (CannotDetermineSpecification, UnknownDialect):
            return DRAFT7.create_resource(contents)

    try:
        contents = json.loads(text)
    except ValueError:
        raise BadSchema(f"{what} is not JSON") from None
    names = {
        one.name: _place(one.text, one.references, f"the schema {one.name}, which it refers to,") for one in references
    }
    registry: Registry[Any] = Registry().with_resources([(name, resource(one.contents)) for name, one in names.items()])
    return _Place(contents, registry.resolver_with_root(resource(contents)), names)


class _SchemaParser:
    def __init__(self, without: frozenset[str]) -> None:
        self._without = without
        self._within: list[int] = []  # the schemas that are being read, by identity
        self._number = 0
        self._is_outermost = True  # until the first object

    def type(self, raw: Any, place: _Place, at: str, depth: int) -> JsonType:
        self._number += 1
        if self._number > MOST_TYPES or depth > DEEPEST:
            raise NoColumn(f"{at}: it has more than {MOST_TYPES:,} types, or more than {DEEPEST} nested in one another")
        if not isinstance(raw, dict):
            raise _untyped(at) if raw is True else NoColumn(f"{at}: no value can have this schema")
        with self._entered(raw, at):
            if "$ref" in raw:
                return self._referred(raw, place, at, depth)
            if depth and isinstance(raw.get("$id"), str):
                place = replace(place, resolver=place.resolver.in_subresource(_draft7(raw)))
            combined = [word for word in COMBINED if any(_says_types(branch) for branch in raw.get(word, ()))]
            if len(combined) + bool(OWN & raw.keys()) > 1:
                raise NoColumn(f"{at}: its type is given twice: {', '.join([*combined, *sorted(OWN & raw.keys())])}")
            if combined:
                return self._combined(combined[0], raw[combined[0]], place, f"{at}/{combined[0]}", depth)
            return self._own(raw, place, at, depth)

    @contextmanager
    def _entered(self, raw: Mapping[str, Any], at: str) -> Iterator[None]:
        if id(raw) in self._within:
            raise NoColumn(f"{at}: it contains itself, and Spark has no such type")
        self._within.append(id(raw))
        yield
        self._within.pop()

    def _referred(self, raw: Mapping[str, Any], place: _Place, at: str, depth: int) -> JsonType:
        from referencing.exceptions import Unresolvable

        reference = raw["$ref"]
        if not isinstance(reference, str) or any(_says_types({word: raw[word]}) for word in raw if word != "$ref"):
            raise NoColumn(f"{at}: something other than $ref also gives its type")
        document, _, fragment = reference.partition("#")
        try:
            other = _named(document, place) if document else None
            if other is not None:
                place, reference_within = other, f"#{fragment}"
            else:
                reference_within = reference
            found = place.resolver.lookup(reference_within)
        except (Unresolvable, ValueError):
            raise NoColumn(f"{at}/$ref: {reference} is neither in the schema nor among its references") from None
        return self.type(found.contents, replace(place, resolver=found.resolver), reference, depth + 1)

    def _combined(self, word: str, branches: Sequence[Any], place: _Place, at: str, depth: int) -> JsonType:
        found = [
            self.type(branch, place, f"{at}/{number}", depth + 1)
            for number, branch in enumerate(branches)
            if not _is_null(branch)
        ]
        nullable = len(found) < len(branches) or any(one.nullable for one in found)
        kinds = {replace(one, nullable=False, values=()) for one in found}
        if len(kinds) != 1 or (word == "allOf" and len(branches) > 1):
            what = ", ".join(one.describe() for one in found) or "null"
            raise NoColumn(f"{at}: {len(branches)} schemas ({what}), but a column has one type")
        some = [value for one in found for value in one.values] if all(one.values for one in found) else []
        return replace(kinds.pop(), nullable=nullable, values=_distinct(some))

    def _own(self, raw: Mapping[str, Any], place: _Place, at: str, depth: int) -> JsonType:
        said = raw.get("type")
        kinds = {said} if isinstance(said, str) else set(said or ())
        listed = [raw["const"]] if "const" in raw else raw.get("enum")
        values = () if listed is None else _distinct([one for one in listed if one is not None])
        if said is None:
            kinds = set(_inferred(raw, listed))
        if unknown := kinds - KINDS:
            raise NoColumn(f"{at}/type: JSON Schema has no type {', '.join(sorted(map(str, unknown)))}")
        nullable = "null" in kinds and (listed is None or None in listed)
        kinds -= {"null"}
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if not kinds:
            raise NoColumn(f"{at}/type: always null") if said else _untyped(at)
        if len(kinds) > 1:
            word = "type" if said else "const" if "const" in raw else "enum"
            raise NoColumn(f"{at}/{word}: several types ({', '.join(sorted(kinds))}), but a column has one type")
        (kind,) = kinds
        if kind == "array":
            return JsonType("array", nullable, items=self._items(raw, place, at, depth))
        if kind == "object":
            return self._object(raw, nullable, place, at, depth)
        if kind == "string" and not values and raw.get("format") in FORMATS:
            return JsonType(raw["format"], nullable)
        return JsonType(kind, nullable, values=values)

    def _items(self, raw: Mapping[str, Any], place: _Place, at: str, depth: int) -> JsonType:
        if "prefixItems" in raw or isinstance(raw.get("items"), list):
            word = "prefixItems" if "prefixItems" in raw else "items"
            raise NoColumn(f"{at}/{word}: a type for each position, and an array's elements have one type")
        return self.type(raw.get("items", True), place, f"{at}/items", depth + 1)

    def _object(self, raw: Mapping[str, Any], nullable: bool, place: _Place, at: str, depth: int) -> JsonType:
        given, more = raw.get("properties", {}), raw.get("additionalProperties", True)
        required, outermost = set(raw.get("required", ())), self._is_outermost
        self._is_outermost = False
        undeclared = tuple(sorted(required - given.keys()))
        if not given and isinstance(more, dict) and "patternProperties" not in raw:
            items = self.type(more, place, f"{at}/additionalProperties", depth + 1)
            return JsonType("map", nullable, items=items, undeclared=undeclared)
        if not given and "patternProperties" in raw:
            raise NoColumn(f"{at}/patternProperties: names by a pattern, and a struct's names are fixed")
        if not given and (depth or "properties" not in raw):
            raise NoColumn(f"{at}: an object without properties")
        properties = tuple(
            Property(name, self.type(one, place, f"{at}/properties/{_escaped(name)}", depth + 1), name in required)
            for name, one in given.items()
            if not (outermost and name in self._without)
        )
        if not outermost:  # the outermost properties' names are not always those of columns
            check_names([one.name for one in properties], f"{at}/properties")
        return JsonType("object", nullable, properties, closed=more is False, undeclared=undeclared)


def _named(document: str, place: _Place) -> _Place | None:
    """Returns the document that a reference names. The name is the registry's, or the document's own address."""
    from referencing.exceptions import Unresolvable

    if document in place.names:
        return place.names[document]
    try:
        found = place.resolver.lookup(document).contents
    except Unresolvable:
        return None
    return next((one for one in place.names.values() if one.contents is found), None)


def check_names(names: Collection[str], at: str) -> None:
    """Checks that a struct may have fields of these names, or a table columns.

    Raises:
        NoColumn: names those that it may not have.
    """
    for name in names:
        if not name:
            raise NoColumn(f"{at}: {name!r} is not a name of a column")
    if both := twins(names):
        raise NoColumn(f"{at}: {both[0]} and {both[1]} differ only in case, and are the same to Spark")


def _draft7(raw: Any) -> Any:
    from referencing.jsonschema import DRAFT7

    return DRAFT7.create_resource(raw)


def _says_types(raw: Any) -> bool:
    """Returns whether a schema within oneOf, anyOf or allOf gives a type. A constraint such as `required` gives none."""
    if not isinstance(raw, dict):
        return False
    return (
        bool(OWN & raw.keys()) or "$ref" in raw or any(_says_types(b) for word in COMBINED for b in raw.get(word, ()))
    )


def _is_null(raw: Any) -> bool:
    return isinstance(raw, dict) and (
        raw.get("type") in ("null", ["null"]) or raw.get("enum") == [None] or raw.get("const", 0) is None
    )


def _inferred(raw: Mapping[str, Any], listed: Sequence[Any] | None) -> Iterator[str]:
    """Yields the types that a schema without `type` implies."""
    for value in listed or ():
        yield next(name for kind, name in PYTHON if isinstance(value, kind))
    if {"properties", "additionalProperties", "patternProperties"} & raw.keys():
        yield "object"
    if {"items", "prefixItems"} & raw.keys():
        yield "array"


PYTHON: list[tuple[type, str]] = [
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
    (type(None), "null"),
]


def _distinct(values: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the values without repetitions. True and 1 are different values."""
    found: list[Any] = []
    for value in values:
        if not any(type(value) is type(other) and value == other for other in found):
            found.append(value)
    return tuple(found)


def _untyped(at: str) -> NoColumn:
    return NoColumn(f"{at}: it gives no type")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def to_json(kind: JsonType) -> dict[str, Any]:
    """Returns the schema of a type. `parse` reads it as the same type."""
    name = {"date": "string", "date-time": "string", "map": "object"}.get(kind.kind, kind.kind)
    found: dict[str, Any] = {"type": [name, "null"] if kind.nullable else name}
    if kind.kind in FORMATS:
        found["format"] = kind.kind
    if kind.values:
        found["enum"] = [*kind.values, *([None] if kind.nullable else [])]
    if kind.kind == "array" and kind.items is not None:
        found["items"] = to_json(kind.items)
    if kind.kind == "map" and kind.items is not None:
        found["additionalProperties"] = to_json(kind.items)
    if kind.kind == "object":
        found["properties"] = {one.name: to_json(one.type) for one in kind.properties}
        if kind.closed:
            found["additionalProperties"] = False
    if required := [*(one.name for one in kind.properties if one.required), *kind.undeclared]:
        found["required"] = required
    return found


def render(kind: JsonType) -> str:
    """Returns the schema's text, as a plan stores it."""
    return json.dumps(to_json(kind), separators=(",", ":"), ensure_ascii=False)
