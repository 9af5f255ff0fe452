"""Infers the Spark SQL type that holds all values of a field in a sample of JSON records. The product's own decoder
reads these values.

| values | type |
|---|---|
| whole numbers | `bigint`, or `decimal(38,0)` beyond 64 bits |
| numbers with fractions | `double`; `string` if a double would lose digits |
| texts that are all days, times with a zone, or times without | `date`, `timestamp`, `timestamp_ntz` |
| true and false | `boolean` |
| arrays | `array<...>` |
| objects | `struct<...>`; `map<string, ...>` if the names look like data; `string` if a name cannot be a struct's field's |
| several of these, or only null | `string`, which takes any value as its text |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

import pyarrow as pa
from jiter import LosslessFloat

from fencepost.config.sql_types import SqlType, parse_sql_type
from fencepost.drafting.names import why_not_read
from fencepost.formats.column_names import twins
from fencepost.formats.framing import Malformed
from fencepost.formats.json_columns import BELOW_MICROSECOND, ZONE, converter, exact
from fencepost.formats.quoting import quoted

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a name that needs no quotes in a struct
MOST_FIELDS = 200  # fields of a struct
DEEPEST = 8  # levels of nested types
MOST_NAMES = 50  # with more names than this, and few in each object, the names look like data
# Numbers, hashes, UUIDs, days and times, addresses.
DATA = re.compile(
    r"[0-9]+|(?=.*[0-9])[0-9a-fA-F]{8,}|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|[0-9]{4}-[0-9]{2}-[0-9]{2}.*|[^@\s]+@[^@\s]+\.[^@\s]+"
    r"|https?://.*",
    re.DOTALL,
)
ZONED = re.compile(rf".*{ZONE}", re.DOTALL)
HAS_TIME = re.compile(r".{10}[Tt ].*", re.DOTALL)
MORE_DIGITS = "more than six decimal places of a second: a value is malformed if a later decimal place is not 0"
MONEY = 6  # decimal places up to which a note recommends a decimal
STRING = pa.string()


@dataclass(frozen=True)
class Inferred:
    """A type in Spark SQL and in Arrow, with a note for a person. The note quotes no record."""

    sql: str
    arrow: pa.DataType
    note: str = ""


def as_text(note: str = "") -> Inferred:
    """Returns the type that takes every value as its text."""
    return Inferred("string", STRING, note)


def infer(values: Iterable[Any], depth: int = 0) -> Inferred:
    """Returns the type of these parsed values. Nulls do not count."""
    known = [value for value in values if value is not None]
    if not known:
        return as_text("only null in the sample")
    kinds = {_kind(value) for value in known}
    if len(kinds) > 1:
        return as_text(f"mixed: {', '.join(sorted(kinds))}")
    (kind,) = kinds
    if kind == "true and false":
        return Inferred("boolean", pa.bool_())
    if kind == "numbers":
        return _number(known)
    if kind == "texts":
        return _text(known)
    if depth >= DEEPEST:
        return as_text(f"nested more than {DEEPEST} deep: kept as text")
    return _array(known, depth) if kind == "arrays" else _object(known, depth)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true and false"
    if isinstance(value, int | LosslessFloat):
        return "numbers"
    if isinstance(value, str):
        return "texts"
    return "arrays" if isinstance(value, list) else "objects"


def fits(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Returns whether the decoder takes all of these values for a column of this type."""
    convert = converter(kind, "")
    try:
        for value in values:
            if value is not None:
                convert(value, lambda: False)
    except Malformed:
        return False
    return True


def _number(values: Sequence[Any]) -> Inferred:
    if not any(isinstance(value, LosslessFloat) for value in values):
        if fits(values, pa.int64()):
            return Inferred("bigint", pa.int64())
        whole = pa.decimal128(38, 0)
        if fits(values, whole):
            return Inferred("decimal(38,0)", whole, "larger than bigint holds")
        return as_text("whole numbers of more than 38 digits")
    if not fits(values, pa.float64()) or any(_loses(value) for value in values):
        return as_text("numbers that a double would round")
    return Inferred("double", pa.float64(), _exact(values))


def _loses(value: Any) -> bool:
    """Returns whether the nearest double of a number has different digits."""
    try:
        return Decimal(repr(float(value))) != exact(value)
    except DecimalException:
        return True


def _exact(values: Sequence[Any]) -> str:
    parts = [exact(value).as_tuple() for value in values]
    scale = max(max(0, -int(part.exponent)) for part in parts)
    whole = max(len(part.digits) + int(part.exponent) for part in parts)
    if not 0 < scale <= MONEY or whole + scale > 18:
        return ""
    return f"decimal(18,{scale}) also fits, and calculates exactly"


def _text(values: Sequence[str]) -> Inferred:
    if fits(values, pa.date32()):
        return Inferred("date", pa.date32())
    zoned = [HAS_TIME.fullmatch(value) is not None and ZONED.fullmatch(value) is not None for value in values]
    more_digits = any(map(BELOW_MICROSECOND.search, values))
    if all(zoned) and fits(values, pa.timestamp("us", tz="UTC")):
        return Inferred("timestamp", pa.timestamp("us", tz="UTC"), MORE_DIGITS if more_digits else "")
    if not any(zoned) and fits(values, pa.timestamp("us")):
        note = f"times without a zone, {MORE_DIGITS}" if more_digits else "times without a zone"
        return Inferred("timestamp_ntz", pa.timestamp("us"), note)
    if more_digits and fits((BELOW_MICROSECOND.sub(r"\1", value) for value in values), pa.timestamp("us", tz="UTC")):
        return as_text("times with digits below the microsecond: kept as text")
    return as_text()


def _array(values: Sequence[list[Any]], depth: int) -> Inferred:
    items = infer((item for value in values for item in value), depth + 1)
    note = f"its elements: {items.note}" if items.note else ""
    return Inferred(f"array<{items.sql}>", pa.list_(items.arrow), note)


def _object(values: Sequence[Mapping[str, Any]], depth: int) -> Inferred:
    seen = Counter(name for value in values for name in value)
    if not seen:
        return as_text("only empty objects in the sample")
    if _are_data(seen, sum(map(bool, values))):
        items = infer((item for value in values for item in value.values()), depth + 1)
        return Inferred(
            f"map<string,{items.sql}>", pa.map_(STRING, items.arrow), "a map: the names in it look like data"
        )
    if any(why_no_field(name) for name in seen) or twins(seen):
        return as_text("an object with a name that a struct's field cannot have: kept as text")
    if len(seen) > MOST_FIELDS:
        return as_text(f"an object with more than {MOST_FIELDS} names: kept as text")
    fields = {name: infer((value.get(name) for value in values), depth + 1) for name in seen}
    notes = [f"{name}: {one.note}" for name, one in fields.items() if one.note]
    inner = ",".join(f"{name if NAME.fullmatch(name) else quoted(name)}:{one.sql}" for name, one in fields.items())
    return Inferred(
        f"struct<{inner}>", pa.struct([(name, one.arrow) for name, one in fields.items()]), "; ".join(notes[:2])
    )


def why_no_field(name: str) -> str | None:
    """Returns the reason why a struct's field cannot have this name, or None."""
    return why_not_read(name) if name else "to Spark a struct's field has a name of one character or more"


def _are_data(seen: Counter[str], objects: int) -> bool:
    """Returns whether an object's names are data instead of names of fields. A user's number or a day is data."""
    if all(DATA.fullmatch(name) for name in seen):
        return True
    return len(seen) > MOST_NAMES and sum(seen.values()) < 0.2 * len(seen) * objects


def refine(
    types: Mapping[str, Inferred], misfits: Callable[[Mapping[str, Inferred]], Iterable[str]]
) -> dict[str, Inferred]:
    """Returns the types, with text for the fields that `misfits` names. The decoder does not accept some values of
    these fields.
    """
    found = dict(types)
    while wrong := [name for name in misfits(found) if found[name].sql != "string"]:
        found |= dict.fromkeys(wrong, as_text("kept as text: the decoder does not take every value as another type"))
    return found


SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_of(sql: str) -> pa.DataType:
    """Returns the Arrow type of a text that `is_sql_type` accepts."""
    return _arrow(parse_sql_type(sql))


def _arrow(kind: SqlType) -> pa.DataType:
    parts = [_arrow(part) for part in kind.parts]
    if kind.name == "array":
        return pa.list_(parts[0])
    if kind.name == "map":
        return pa.map_(pa.string(), parts[0])
    if kind.name == "struct":
        return pa.struct(list(zip(kind.fields, parts, strict=True)))
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return SIMPLE[kind.name]
