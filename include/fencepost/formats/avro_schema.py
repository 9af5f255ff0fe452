"""Parses Avro schemas, checks what Spark can hold, and writes schemas as texts. Pure.

The parser accepts what Java's parser accepts, because the registry uses Java's. The parser also accepts any names:
older libraries check fewer names, and no value contains a name. fastavro's parser refuses some valid schemas and
accepts some invalid ones.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Never, Self

from fencepost.formats.column_names import twins, without_case
from fencepost.formats.format import BadSchema

PRIMITIVES = frozenset("null boolean int long float double bytes string".split())
NAMED = frozenset(("record", "enum", "fixed"))
ITSELF = "itself"  # the kind of a type within itself: it has only the name, because the full type would be endless
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A logical type, and the types that it may annotate. By the specification any other annotation is ignored.
LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}
# Kafka Connect's names of types, and the type that each annotates. They count as logical types where Avro's annotation
# is missing.
CONNECT = {
    "io.debezium.time.Date": "int",
    "io.debezium.time.Time": "int",
    "io.debezium.time.Year": "int",
    "io.debezium.time.Timestamp": "long",
    "io.debezium.time.MicroTimestamp": "long",
    "io.debezium.time.NanoTimestamp": "long",
    "io.debezium.time.MicroTime": "long",
    "io.debezium.time.NanoTime": "long",
    "io.debezium.time.MicroDuration": "long",
    "io.debezium.time.NanoDuration": "long",
    "io.debezium.time.ZonedTimestamp": "string",
    "io.debezium.time.ZonedTime": "string",
    "io.debezium.time.Interval": "string",
    "io.debezium.time.IsoDate": "string",
    "io.debezium.time.IsoTime": "string",
    "io.debezium.time.IsoTimestamp": "string",
}
# Kafka Connect's names of types that Avro has too.
OF_AVRO = {
    "date": "org.apache.kafka.connect.data.Date",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
}
MOST_TYPES = 5_000  # types in one schema
MOST_DIGITS = 38  # digits of a Spark decimal
LONGEST_NUMBER = 1_000  # digits of a number in a schema


class Incompatible(ValueError):
    """The reader's schema cannot read values of the writer's schema. The text names the field."""


class Number(float):
    """A number in a schema that has a fraction or an exponent. The number keeps its digits, because the nearest float
    is computed from the digits.
    """

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


class _Missing:
    """Marks a field without a default. None cannot mark such a field, because null is a possible default."""


MISSING: Final = _Missing()


@dataclass(frozen=True)
class AvroField:
    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = MISSING


@dataclass(frozen=True)
class AvroType:
    """An Avro type. `name` and `aliases` are full names. `items` is the type of an array's elements or of a map's
    values.

    A record may contain itself. The inner type then has the kind `ITSELF` and the record's name, and `defined` has the
    record.

    `logical` may be one of Kafka Connect's types (`CONNECT`). `is_connects` says that Connect wrote one of `OF_AVRO`. A
    reader's type may cut digits below the microsecond (`truncates`), or give null for an infinity (`infinity_is_null`).
    """

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    enum_default: str | None = None
    size: int = 0
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    is_connects: bool = False
    truncates: bool = False
    infinity_is_null: bool = False
    defined: Mapping[str, AvroType | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def whole(self) -> AvroType:
        """Returns the record for a type of kind `ITSELF`, and the type itself for any other kind."""
        found = self.defined[self.name] if self.kind == ITSELF else self
        assert found is not None, "all definitions are read"
        return found

    @property
    def simple_name(self) -> str:
        """Returns the name without its namespace. A type without a name gives its kind."""
        return self.name.rpartition(".")[2] or self.kind

    @property
    def nullable(self) -> bool:
        """Returns whether the type is a union with null."""
        return any(branch.kind == "null" for branch in self.branches)

    @property
    def others(self) -> tuple[AvroType, ...]:
        """Returns the types of a union without null. Any other type gives only itself."""
        return tuple(b for b in self.branches if b.kind != "null") if self.kind == "union" else (self,)

    def describe(self) -> str:
        """Returns the type for a person, such as `long (timestamp-millis)`."""
        if self.kind == "union":
            return " or ".join(branch.describe() for branch in self.branches)
        if self.logical == "decimal":
            return f"{self.kind} (decimal({self.precision},{self.scale}))"
        kind = "record" if self.kind == ITSELF else self.kind
        what = f"{kind} {self.name}" if self.name else kind
        return f"{what} ({self.logical})" if self.logical else what


def parse(text: str, references: Sequence[str] = ()) -> AvroType:
    """Returns the type in a schema's text. `references` are the texts of the schemas that this schema refers to. A
    schema's text comes after the texts that it refers to.

    Raises:
        BadSchema: it is not an Avro schema.
    """
    names: dict[str, AvroType | None] = {}
    try:
        for reference in references:
            _TypeParser(names).parse(_loads(reference), "", "")
        found = _TypeParser(names).parse(_loads(text), "", "")
        if next(islice(_all(found), MOST_TYPES, None), None) is not None:
            raise BadSchema(f"it has more than {MOST_TYPES:,} types, each counted wherever it is used")
    except json.JSONDecodeError:
        raise BadSchema("it is not JSON") from None
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise BadSchema("it is not an Avro schema") from None
    return found


def record_names(text: str) -> frozenset[str]:
    """Returns the full names of the records that a value of a schema may be. A type within them is not read, and a name
    may be defined elsewhere.

    Raises:
        BadSchema: it is not an Avro schema.
    """
    try:
        return frozenset(_record_names(_loads(text)))
    except json.JSONDecodeError:
        raise BadSchema("it is not JSON") from None
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise BadSchema("it is not an Avro schema") from None


def _record_names(raw: Any) -> Iterator[str]:
    if isinstance(raw, list):
        for one in raw:
            yield from _record_names(one)
    elif isinstance(raw, str):
        yield from () if raw in PRIMITIVES else (raw,)
    elif raw["type"] in ("record", "error"):
        name, space = raw["name"], raw.get("namespace") or ""
        yield name if "." in name or not space else f"{space}.{name}"
    elif not isinstance(raw["type"], str):
        yield from _record_names(raw["type"])


def _loads(text: str) -> Any:
    return json.loads(text, parse_float=Number, parse_int=_integer, parse_constant=_no_constant)


def _integer(text: str) -> int:
    if len(text) > LONGEST_NUMBER:  # Python refuses numbers of some thousand digits with another error type
        raise BadSchema(f"it has a number of more than {LONGEST_NUMBER:,} digits")
    return int(text)


def _no_constant(name: str) -> Never:
    raise BadSchema(f"it is not JSON, which has no {name}")


def is_text(value: Any) -> bool:
    """Returns whether the value is a text of whole characters. A text in JSON may contain half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _dumps(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_dumps(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_dumps, value))}]"
    return value.text if isinstance(value, Number) else json.dumps(value)


def contains_itself(kind: AvroType) -> bool:
    """Returns whether the type contains a record that contains itself."""
    return any(one.kind == ITSELF for one in _all(kind))


def _all(kind: AvroType) -> Iterator[AvroType]:
    yield kind
    for _, part in parts(kind):
        yield from _all(part)


class _TypeParser:
    def __init__(self, names: dict[str, AvroType | None]) -> None:
        self._names = names  # None while the definition of the type is being read

    def parse(self, raw: Any, space: str, path: str) -> AvroType:
        if isinstance(raw, str):
            return AvroType(raw) if raw in PRIMITIVES else self._known(raw, space, path)
        if isinstance(raw, list):
            return self._union(raw, space, path)
        kind = raw["type"]
        if kind in ("record", "error"):
            return self._record(raw, space, path)
        if kind == "enum":
            return self._enum(raw, space, path)
        if kind == "fixed":
            name, aliases, _ = self._name(raw, space, path)
            if type(raw["size"]) is not int or raw["size"] < 0:
                raise BadSchema(f"{path or name}: its size is not a number")
            return self._define(_annotated(AvroType("fixed", name=name, aliases=aliases, size=raw["size"]), raw))
        if kind == "array":
            return AvroType("array", items=self.parse(raw["items"], space, f"{path}[]"))
        if kind == "map":
            return AvroType("map", items=self.parse(raw["values"], space, f"{path}{{}}"))
        found = self.parse(kind, space, path)
        return _annotated(found, raw) if isinstance(kind, str) and kind in PRIMITIVES else found

    def _known(self, name: str, space: str, path: str) -> AvroType:
        for full in (name,) if "." in name else (f"{space}.{name}" if space else name, name):
            if full in self._names:
                return self._names[full] or AvroType(ITSELF, name=full, defined=self._names)
        raise BadSchema(f"{path or 'the schema'}: no type {name!r} is defined before it")

    def _name(self, raw: Mapping[str, Any], space: str, path: str) -> tuple[str, tuple[str, ...], str]:
        """Returns the full name, the full aliases and the namespace of a type."""
        name = raw["name"]
        if "." in name:
            space, _, name = name.rpartition(".")
        elif "namespace" in raw:
            space = raw["namespace"] or ""
        if not (name and is_text(name) and is_text(space)) or (not space and name in PRIMITIVES):
            raise BadSchema(f"{path or 'the schema'}: {name!r} is not a name in Avro")
        full = f"{space}.{name}" if space else name
        aliases = tuple(a if "." in a or not space else f"{space}.{a}" for a in raw.get("aliases") or ())
        if full in self._names:
            raise BadSchema(f"{path or 'the schema'}: type {full} is defined twice")
        self._names[full] = None
        return full, aliases, space

    def _define(self, found: AvroType) -> AvroType:
        self._names[found.name] = found
        return found

    def _record(self, raw: Mapping[str, Any], space: str, path: str) -> AvroType:
        name, aliases, inner = self._name(raw, space, path)
        fields: list[AvroField] = []
        for one in raw["fields"]:
            at = f"{path}.{one['name']}" if path else one["name"]
            if not (one["name"] and is_text(one["name"])) or any(one["name"] == f.name for f in fields):
                raise BadSchema(f"{at or 'the schema'}: a field has no name, or the name of another field")
            kind = self.parse(one["type"], inner, at)
            # Some libraries write the annotation beside the type instead of into it. It is ignored there.
            fields.append(AvroField(one["name"], kind, tuple(one.get("aliases") or ()), one.get("default", MISSING)))
        return self._define(AvroType("record", name=name, aliases=aliases, fields=tuple(fields)))

    def _enum(self, raw: Mapping[str, Any], space: str, path: str) -> AvroType:
        name, aliases, _ = self._name(raw, space, path)
        symbols, default = tuple(raw["symbols"]), raw.get("default")
        if len(set(symbols)) < len(symbols) or not all(map(is_text, symbols)):
            raise BadSchema(f"{path or name}: two symbols are the same, or one is not a text")
        if default is not None and default not in symbols:
            raise BadSchema(f"{path or name}: its default {default!r} is not one of its symbols")
        return self._define(AvroType("enum", name=name, aliases=aliases, symbols=symbols, enum_default=default))

    def _union(self, raw: Sequence[Any], space: str, path: str) -> AvroType:
        branches = tuple(self.parse(one, space, path) for one in raw)
        said = [b.name or b.kind for b in branches]
        if not branches or len(set(said)) < len(said) or any(b.kind == "union" for b in branches):
            raise BadSchema(f"{path or 'the schema'}: a union is empty, holds a type twice, or holds another union")
        return AvroType("union", branches=branches)


def _annotated(found: AvroType, raw: Mapping[str, Any]) -> AvroType:
    """Returns the type with its logical type, if Avro allows that logical type for it. Otherwise Kafka Connect's type
    counts.
    """
    logical, connect = raw.get("logicalType"), raw.get("connect.name")
    if not isinstance(logical, str) or found.kind not in LOGICAL.get(logical, ()):
        is_known = isinstance(connect, str) and found.kind == CONNECT.get(connect)
        return replace(found, logical=connect) if is_known else found
    if logical == "decimal":
        precision, scale = raw.get("precision"), raw.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
            return found
        if found.kind == "fixed" and precision > digits(found.size):
            return found
        return replace(found, logical=logical, precision=precision, scale=scale)
    size = {"uuid": 16, "duration": 12}.get(logical)
    if found.kind == "fixed" and found.size != size:
        return found
    return replace(found, logical=logical, is_connects=connect is not None and connect == OF_AVRO.get(logical))


def digits(size: int) -> int:
    """Returns how many decimal digits always fit in this many bytes."""
    return math.floor(math.log10(2) * (8 * size - 1)) if size else 0


def render(kind: AvroType) -> str:
    """Returns the schema's text, with full names and without documentation."""
    return _dumps(to_json(kind))


def to_json(kind: AvroType, defined: dict[str, AvroType] | None = None) -> Any:
    """Returns the schema as JSON. A named type is defined at its first use.

    Raises:
        Incompatible: two types have one name.
    """
    defined = {} if defined is None else defined
    if kind.kind == "union":
        return [to_json(branch, defined) for branch in kind.branches]
    if kind.kind == ITSELF and kind.name not in defined:
        kind = kind.whole
    if kind.name:
        if kind.name in defined:
            if defined[kind.name] != kind.whole:
                raise Incompatible(f"two types would have the name {kind.name}")
            return kind.name
        defined[kind.name] = kind
        space, _, name = kind.name.rpartition(".")
        said: dict[str, Any] = {"type": kind.kind, "name": name, "namespace": space}
        if kind.aliases:
            said["aliases"] = list(kind.aliases)
        if kind.kind == "record":
            said["fields"] = [_field_to_json(one, defined) for one in kind.fields]
        elif kind.kind == "enum":
            said["symbols"] = list(kind.symbols)
            if kind.enum_default is not None:
                said["default"] = kind.enum_default
        else:
            said["size"] = kind.size
    elif kind.kind in ("array", "map"):
        assert kind.items is not None
        return {"type": kind.kind, "items" if kind.kind == "array" else "values": to_json(kind.items, defined)}
    else:
        said = {"type": kind.kind}
    if kind.logical in CONNECT:
        said["connect.name"] = kind.logical
    elif kind.logical:
        said["logicalType"] = kind.logical
        if kind.logical == "decimal":
            said |= {"precision": kind.precision, "scale": kind.scale}
        if kind.is_connects:
            said["connect.name"] = OF_AVRO[kind.logical]
    return said if len(said) > 1 else kind.kind


def _field_to_json(one: AvroField, defined: dict[str, AvroType]) -> dict[str, Any]:
    said: dict[str, Any] = {"name": one.name, "type": to_json(one.type, defined)}
    if one.aliases:
        said["aliases"] = list(one.aliases)
    if one.default is not MISSING:
        said["default"] = one.default
    return said


def check_holdable(kind: AvroType, path: str = "") -> None:
    """Checks that a Spark type holds every value of this type.

    Raises:
        BadSchema: names the field and the reason.
    """
    at = path or "the schema"
    if kind.kind == ITSELF:
        raise BadSchema(f"{at}: {kind.name} contains itself, and Spark has no such type")
    names = (
        [one.name for one in kind.fields] if not is_struct_of_members(kind) else [b.simple_name for b in kind.others]
    )
    if wrong := [name for name in names if not NAME.fullmatch(name)]:
        raise BadSchema(f"{at}: {wrong[0]!r}: a column's name may have letters, digits and _ only")
    if kind.logical == "decimal" and kind.scale > MOST_DIGITS:
        raise BadSchema(f"{at}: a decimal of {kind.scale} digits behind the point; Spark's have {MOST_DIGITS} at most")
    if both := twins(one.name for one in kind.fields):
        raise BadSchema(f"{at}: fields {both[0]} and {both[1]} differ only in case, and are the same to Spark")
    if len(members := {without_case(name) for name in union_members(kind)}) < len(kind.others):
        twice = ", ".join(sorted(members))
        raise BadSchema(f"{at}: two types of a union would be the same column in Spark ({twice})")
    for step, part in parts(kind):
        check_holdable(part, f"{path}{step}".removeprefix("."))


def check_writable(kind: AvroType, path: str = "") -> None:
    """Checks that Spark can write every value of a type that it can hold: names follow the specification, because Spark's
    library refuses others, and a decimal has no more digits than Spark's.

    Raises:
        BadSchema: names the field and the reason.
    """
    if kind.logical == "decimal" and kind.precision > MOST_DIGITS:
        raise BadSchema(
            f"{path or 'the schema'}: a decimal of {kind.precision} digits can be read, but not written; Spark's have "
            f"{MOST_DIGITS} at most"
        )
    for name in (*(kind.name.split(".") if kind.name else ()), *kind.symbols):
        if not NAME.fullmatch(name):
            raise BadSchema(f"{path or 'the schema'}: {name!r}, in {kind.describe()}, is not a name in Avro")
    for step, part in parts(kind):
        check_writable(part, f"{path}{step}".removeprefix("."))


def without_connects_types(kind: AvroType) -> AvroType:
    """Returns the type without Kafka Connect's types: the numbers and texts that a value of it has. The type does not
    contain itself.
    """
    return replace(
        kind,
        logical=None if kind.logical in CONNECT else kind.logical,
        is_connects=False,
        fields=tuple(replace(one, type=without_connects_types(one.type)) for one in kind.fields),
        items=None if kind.items is None else without_connects_types(kind.items),
        branches=tuple(map(without_connects_types, kind.branches)),
    )


def union_members(kind: AvroType) -> dict[str, AvroType]:
    """Returns the types of a union without null, by the names of their columns in Spark."""
    return {f"member_{branch.simple_name}": branch for branch in kind.others}


def is_struct_of_members(kind: AvroType) -> bool:
    """Returns whether Spark reads this union as a struct with a column for each type.

    Spark reads int with long as one number, and float with double as one number. Spark keeps both types if one of them
    has a logical type, because a day and a millisecond are not the same number.
    """
    kinds, annotated = {branch.kind for branch in kind.others}, any(branch.logical for branch in kind.others)
    merged = not annotated and kinds in ({"int", "long"}, {"float", "double"})
    return kind.kind == "union" and len(kind.others) > 1 and not merged


def parts(kind: AvroType) -> Iterator[tuple[str, AvroType]]:
    """Yields the types directly within a type. Each comes with its step in the path."""
    for one in kind.fields:
        yield f".{one.name}", one.type
    if kind.items is not None:
        yield ("[]" if kind.kind == "array" else "{}"), kind.items
    for branch in kind.branches:
        yield "", branch
