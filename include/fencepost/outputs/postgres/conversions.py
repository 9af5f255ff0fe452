"""Composes the statement that changes the type of a table's column, so that a person can run it. Pure.

The server accepts the statement for every pair of types, unlike a plain cast. The statement converts each value that
exists in both types. If there is another value, such as 12.5 for an integer, the server refuses the statement and
changes nothing. Conversions between text and time use the session's time zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fencepost.outputs.postgres.casts import BaseType
from fencepost.outputs.postgres.identifiers import quoted

NUMBER = re.compile(r"(smallint|integer|bigint|real|double precision|numeric(\(.*\))?)$")
WHOLE = re.compile(r"(smallint|integer|bigint)$")
TEXT = re.compile(r"(text|character( varying)?(\(\d+\))?)$")
DIGITS = re.compile(r"\(\d+\)")  # of a second
MOMENT, LOCAL = "timestamp with time zone", "timestamp without time zone"
UTC = "AT TIME ZONE 'UTC'"
TIMES = {
    (MOMENT, LOCAL): f"{{}} {UTC}",
    (MOMENT, "date"): f"({{}} {UTC})::date",
    (LOCAL, MOMENT): f"{{}} {UTC}",
    (LOCAL, "date"): "{}::date",
    ("date", MOMENT): f"{{}}::timestamp {UTC}",
    ("date", LOCAL): "{}::timestamp",
}


@dataclass(frozen=True)
class TableColumn:
    """A column in the catalogue. `filled` says that a row may omit the column, and then gets a value or null. `base` is
    the type of a domain. `below` is the type below all domains, and of an array the type of its elements.
    """

    name: str
    kind: str
    filled: bool = True
    computed: bool = False
    base: str = ""
    has_default: bool = False
    is_identity: bool = False
    in_partition_key: bool = False
    in_primary_key: bool = False
    below: BaseType | None = None


def alteration(table: str, column: TableColumn, kind: str) -> str:
    """Returns the statement that gives the column the type, or why there is none. The text is the end of a message,
    after a colon.
    """
    name = quoted(column.name)
    if column.in_partition_key:
        return f"it is part of the table's partition key, so create the table again with this column as {kind}"
    alter, using = f"ALTER TABLE {table}", _converted(name, column.base or column.kind, kind)
    first = f"{alter} ALTER COLUMN {name} DROP IDENTITY; " if column.is_identity else ""
    dropped = f"ALTER COLUMN {name} DROP DEFAULT, " if column.has_default else ""  # which may not convert
    return f"{first}{alter} {dropped}ALTER COLUMN {name} TYPE {kind} USING {using}"


def _converted(name: str, old: str, new: str) -> str:
    """Returns the expression for the column's value in the new type. If the server has no cast, the expression uses the
    value's text.
    """
    between = DIGITS.sub("", old), new
    if new == "jsonb":
        return f"{name}::jsonb" if TEXT.match(old) or old == "json" else f"to_jsonb({name})"
    if new == "bytea":
        return f"convert_to({name}::text, 'UTF8')"
    if NUMBER.match(new) and old == "boolean":
        return f"{name}::integer::{new}"
    if NUMBER.match(old) or old == "money":
        return _of_number(name, old, new)
    if new.startswith("numeric"):
        return _whole(name, f"{name}::text::{new}", "{}", f"{name}::text::numeric", new)
    if new == "date" and between in TIMES:
        day = TIMES[between].format(name)
        return _whole(name, day, f"{{}}::timestamp{f' {UTC}' * (between[0] == MOMENT)}", name, new)
    if between in TIMES:
        return TIMES[between].format(name)
    return f"{name}::{new}" if new == "text" else f"{name}::text::{new}"


def _of_number(name: str, old: str, new: str) -> str:
    """Returns the expression for a number. A plain cast would round it."""
    digits = f"{name}::numeric" if old == "money" else f"{name}::text::numeric"  # a double's text has all of its digits
    is_whole, is_binary = WHOLE.match(old) is not None, new in ("real", "double precision")
    if new == "boolean" or (WHOLE.match(new) and not is_whole):
        return f"trim_scale({digits})::text::{new}"
    if is_binary and old != "real":
        return _whole(name, f"{digits}::{new}", "{}::text::numeric", digits, new)
    if new.startswith("numeric") and not is_whole:
        return _whole(name, f"{digits}::{new}", "{}", digits, new)
    return f"{name}::{new}" if new == "text" or NUMBER.match(new) else f"{name}::text::{new}"


def _whole(name: str, value: str, back: str, all_of_it: str, new: str) -> str:
    """Returns an expression that gives the value if converting it back gives the same value. Otherwise it gives a text
    that the server refuses for the type.
    """
    return f"CASE WHEN {back.format(value)} = {all_of_it} THEN {value} ELSE ({name}::text || ' would lose digits')::{new} END"
