"""Parses the Spark SQL types of a source's schema, so that a wrong one is refused before Spark starts."""

from __future__ import annotations

import re

from fencepost.formats.names import without_case

SIMPLE = frozenset(
    "string binary boolean tinyint byte smallint short int integer bigint long float real double date timestamp "
    "timestamp_ntz".split()
)
DECIMALS = frozenset("decimal dec numeric".split())
ALLOWED = (
    f"{', '.join(sorted(SIMPLE))}, decimal(precision, scale) up to 38 digits, array<type>, map<string, type>, "
    "struct<name: type, ...>"
)
TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d{1,3}|[<>(),:])", re.ASCII)
DEEPEST = 100
NOT_NULL = re.compile(r"(?<!\s)\s+not\s+null$", re.IGNORECASE)


def without_not_null(column: str) -> str:
    """The type of a column declared as `int` or `int not null`."""
    return NOT_NULL.sub("", column.strip())


def is_required(column: str) -> bool:
    """Whether the column is declared `not null`."""
    return NOT_NULL.search(column.strip()) is not None


def is_sql_type(text: str) -> bool:
    """Whether the text is one of `ALLOWED`."""
    tokens: list[str] = []
    position, text = 0, text.rstrip()
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            return False
        tokens.append(found.group(1))
        position = found.end()
    try:
        return _type([*tokens, "", ""], 0, 0) == len(tokens)  # a type that is cut off ends in words that are no type
    except _NoType:
        return False


class _NoType(Exception):
    pass


def _type(tokens: list[str], at: int, depth: int) -> int:
    """The position after the type that begins at `at`."""
    word = tokens[at].lower()
    if depth > DEEPEST:
        raise _NoType
    if word in SIMPLE:
        return at + 1
    if word in DECIMALS:
        return _decimal(tokens, at + 1)
    if word == "array":
        return _expect(tokens, ">", _type(tokens, _expect(tokens, "<", at + 1), depth + 1))
    if word == "map":  # keys in JSON are strings
        after_key = _expect(tokens, ",", _expect(tokens, "string", _expect(tokens, "<", at + 1)))
        return _expect(tokens, ">", _type(tokens, after_key, depth + 1))
    if word == "struct":
        return _struct(tokens, _expect(tokens, "<", at + 1), depth)
    raise _NoType


def _decimal(tokens: list[str], at: int) -> int:
    if tokens[at] != "(":
        return at
    precision, at, scale = tokens[at + 1], at + 2, "0"
    if tokens[at] == ",":
        scale, at = tokens[at + 1], at + 2
    if not (precision.isdigit() and scale.isdigit() and int(scale) <= int(precision) and 1 <= int(precision) <= 38):
        raise _NoType
    return _expect(tokens, ")", at)


def _struct(tokens: list[str], at: int, depth: int) -> int:
    names: set[str] = set()
    while True:
        name = without_case(tokens[at])
        if not name.isidentifier() or name in names:
            raise _NoType
        names.add(name)
        at = _type(tokens, _expect(tokens, ":", at + 1), depth + 1)
        if tokens[at] != ",":
            return _expect(tokens, ">", at)
        at += 1


def _expect(tokens: list[str], token: str, at: int) -> int:
    if tokens[at].lower() != token:
        raise _NoType
    return at + 1
