"""The statement that gives a column of a table another type, for a person who runs it; pure.

The server runs it on whatever type is there, which it does not always do of a plain cast. It converts each value that means the
same in both types. For one that does not, the server refuses the statement, and changes nothing. No value depends on the time
zone of the session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fencepost.config.table_rights import quoted

NUMBER = re.compile(r"(smallint|integer|bigint|real|double precision|numeric(\(.*\))?)$")
TEXT = re.compile(r"(text|character( varying)?(\(\d+\))?)$")
DIGITS = re.compile(r"\(\d+\)")  # of a second
MOMENT, LOCAL = "timestamp with time zone", "timestamp without time zone"
UTC = "AT TIME ZONE 'UTC'"
TIMES = {
    (MOMENT, LOCAL): f"{{}} {UTC}",
    (MOMENT, "date"): f"({{}} {UTC})::date",
    (LOCAL, MOMENT): f"{{}} {UTC}",
    ("date", MOMENT): f"{{}}::timestamp {UTC}",
}


@dataclass(frozen=True)
class TableColumn:
    """A column as the catalogue has it. `filled`: a row without it gets a value, or null. `base` is the type below a domain."""

    name: str
    kind: str
    filled: bool = True
    computed: bool = False
    base: str = ""
    has_default: bool = False
    is_identity: bool = False
    in_partition_key: bool = False
    in_primary_key: bool = False


def alteration(table: str, column: TableColumn, kind: str) -> str:
    """How the column gets that type, behind a colon: a statement, or why there is none."""
    name = quoted(column.name)
    if column.in_partition_key:
        return f"it is part of the key of the table's partitions, so make the table anew with it as {kind}"
    alter, using = f"ALTER TABLE {table}", _converted(name, column.base or column.kind, kind)
    first = f"{alter} ALTER COLUMN {name} DROP IDENTITY; " if column.is_identity else ""
    dropped = f"ALTER COLUMN {name} DROP DEFAULT, " if column.has_default else ""  # which may not convert
    return f"{first}{alter} {dropped}ALTER COLUMN {name} TYPE {kind} USING {using}"


def _converted(name: str, old: str, new: str) -> str:
    """The column's value in the new type. By its text where the server has no cast."""
    is_number = NUMBER.match(old) is not None
    if new == "jsonb":
        return f"{name}::jsonb" if TEXT.match(old) or old == "json" else f"to_jsonb({name})"
    if new == "bytea":
        return f"convert_to({name}::text, 'UTF8')"
    if new == "boolean" and is_number:
        return f"{name} <> 0"
    if NUMBER.match(new) and old == "boolean":
        return f"{name}::integer::{new}"
    if NUMBER.match(new) and old == "money":
        return f"{name}::numeric::{new}"
    between = DIGITS.sub("", old), new
    if between in TIMES:
        return TIMES[between].format(name)
    is_cast = new == "text" or (is_number and NUMBER.match(new)) or {*between} <= {MOMENT, LOCAL, "date"}
    return f"{name}::{new}" if is_cast else f"{name}::text::{new}"
