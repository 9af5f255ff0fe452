"""Parses the Spark SQL types that a source's schema declares. No other module parses them. A wrong type is refused
before Spark starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fencepost.formats.column_names import without_case
from fencepost.formats.quoting import unquoted

SAME = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
SAME |= {"dec": "decimal", "numeric": "decimal"}
SIMPLE = frozenset(
    "string binary boolean tinyint smallint int bigint float double date timestamp timestamp_ntz".split()
)
ALLOWED = (
    f"{', '.join(sorted({*SIMPLE, *SAME} - {'dec', 'numeric'}))}, decimal(precision, scale) up to 38 digits, array<type>, "
    "map<string, type>, struct<name: type, ...> (a name with other characters than letters, digits and _ in back-quotes)"
)
TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d{1,3}|[<>(),:]|`(?:[^`\0]|``)+`)", re.ASCII)
DEEPEST = 100
NOT_NULL = re.compile(r"(?<!\s)\s+not\s+null$", re.IGNORECASE)


@dataclass(frozen=True)
class SqlType:
    """A Spark SQL type, with its canonical name and its inner types.

    `parts` are the element of an array, the value of a map, or the fields of a struct, whose names are in `fields`.
    `precision` and `scale` belong to a decimal.
    """

    name: str
    parts: tuple[SqlType, ...] = ()
    fields: tuple[str, ...] = ()
    precision: int = 10
    scale: int = 0


def without_not_null(column: str) -> str:
    """Returns the type of a column declared as `int` or `int not null`."""
    return NOT_NULL.sub("", column.strip())


def is_required(column: str) -> bool:
    """Returns whether the column is declared `not null`."""
    return NOT_NULL.search(column.strip()) is not None


def is_sql_type(text: str) -> bool:
    """Returns whether the text is one of `ALLOWED`."""
    try:
        parse_sql_type(text)
    except ValueError:
        return False
    return True


def parse_sql_type(text: str) -> SqlType:
    """Returns the type that a text declares.

    Raises:
        ValueError: the text is none of `ALLOWED`.
    """
    tokens = _Tokens(text.rstrip())
    kind = _type(tokens, 0)
    tokens.expect("")
    return kind


class _Tokens:
    """The tokens of a text, one after another. Empty tokens follow the last token."""

    def __init__(self, text: str) -> None:
        self._left: list[str] = []
        position = 0
        while position < len(text):
            found = TOKEN.match(text, position)
            if found is None:
                raise ValueError("not a token of a type")
            self._left.append(found.group(1))
            position = found.end()
        self._left.reverse()

    def next_is(self, token: str) -> bool:
        return bool(self._left) and self._left[-1] == token

    def take(self) -> str:
        return self._left.pop() if self._left else ""

    def expect(self, token: str) -> None:
        if (found := self.take()).lower() != token:
            raise ValueError(f"expected {token!r}, found {found!r}")


def _type(tokens: _Tokens, depth: int) -> SqlType:
    word = tokens.take().lower()
    name = SAME.get(word, word)
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if name in SIMPLE:
        return SqlType(name)
    if name == "decimal":
        return _decimal(tokens)
    if name not in ("array", "map", "struct"):
        raise ValueError(f"{word!r} is not a type")
    tokens.expect("<")
    if name == "struct":
        return _struct(tokens, depth)
    if name == "map":  # keys in JSON are texts
        tokens.expect("string")
        tokens.expect(",")
    part = _type(tokens, depth + 1)
    tokens.expect(">")
    return SqlType(name, (part,))


def _decimal(tokens: _Tokens) -> SqlType:
    if not tokens.next_is("("):
        return SqlType("decimal")
    tokens.expect("(")
    precision, scale = tokens.take(), "0"
    if tokens.next_is(","):
        tokens.expect(",")
        scale = tokens.take()
    tokens.expect(")")
    if not (precision.isdigit() and scale.isdigit() and int(scale) <= int(precision) and 1 <= int(precision) <= 38):
        raise ValueError("a decimal has up to 38 digits")
    return SqlType("decimal", precision=int(precision), scale=int(scale))


def _struct(tokens: _Tokens, depth: int) -> SqlType:
    fields: dict[str, SqlType] = {}
    taken: set[str] = set()  # to Spark, names that differ only in case are the same
    while True:
        name = _name(tokens.take())
        if without_case(name) in taken:
            raise ValueError("not the name of another field")
        taken.add(without_case(name))
        tokens.expect(":")
        fields[name] = _type(tokens, depth + 1)
        if not tokens.next_is(","):
            tokens.expect(">")
            return SqlType("struct", tuple(fields.values()), tuple(fields))
        tokens.expect(",")


def _name(token: str) -> str:
    """Returns the name that a token stands for, plain or in back-quotes."""
    if token.startswith("`"):
        return unquoted(token)
    if not token.isidentifier():
        raise ValueError("not a name")
    return token
