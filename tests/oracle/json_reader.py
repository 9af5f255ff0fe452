"""What a JSON record says under a declared schema, by other means than the product's.

A parser of the grammar of RFC 8259, character by character, that keeps number texts and every name; values are judged with
fractions and the calendar's rules, not with the conversions of Python's library.
"""

from __future__ import annotations

import base64
import string
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

DEEPEST = 1000
LONGEST_NAME = 50_000  # bytes of a map's key


class NotSo(Exception):
    """The record does not say a value of its schema."""


@dataclass(frozen=True)
class Node:
    """A JSON value: its kind, what it holds (a text, a list, a list of pairs), and where it stands in the text."""

    kind: str
    holds: Any
    source: str


def read_record(schema: pa.Schema, required: Sequence[str], value: bytes) -> list[Any]:
    """The record's fields in the schema's order.

    Raises:
        NotSo: it is malformed.
    """
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotSo("not UTF-8") from error
    record = Parser(text).whole()
    if record.kind != "object":
        raise NotSo("not an object")
    fields = dict(record.holds)
    row = [_value(f.type, fields.get(f.name)) for f in schema]
    if any(value is None and f.name in required for f, value in zip(schema, row, strict=True)):
        raise NotSo("null")
    return row


class Parser:
    """Strict JSON. A name that is there twice, half a surrogate pair, and what is too deep are errors."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text + "\0\0", 0

    def whole(self) -> Node:
        self._blank()
        found = self._any(0)
        self._blank()
        if self.at != len(self.text) - 2:
            raise NotSo("trailing")
        return found

    def _blank(self) -> None:
        while self.text[self.at] in " \t\r\n":
            self.at += 1

    def _take(self, expected: str) -> None:
        if not self.text.startswith(expected, self.at):
            raise NotSo(f"no {expected}")
        self.at += len(expected)

    def _any(self, depth: int) -> Node:
        start, first = self.at, self.text[self.at]
        if first in "{[" and depth == DEEPEST:
            raise NotSo("deep")
        if first == "{":
            kind, holds = "object", self._object(depth + 1)
        elif first == "[":
            kind, holds = "array", self._array(depth + 1)
        elif first == '"':
            kind, holds = "string", self._string()
        elif first in "tfn":
            kind, holds = "word", next((w for w in ("true", "false", "null") if w[0] == first), "")
            self._take(holds)
        else:
            kind, holds = "number", self._number()
        return Node(kind, holds, self.text[start : self.at])

    def _object(self, depth: int) -> list[tuple[str, Node]]:
        pairs: list[tuple[str, Node]] = []
        self._take("{")
        self._blank()
        while self.text[self.at] != "}" or pairs:
            name = self._string()
            if any(name == other for other, _ in pairs):
                raise NotSo("doubled")
            self._blank()
            self._take(":")
            self._blank()
            pairs.append((name, self._any(depth)))
            self._blank()
            if self.text[self.at] == "}":
                break
            self._take(",")
            self._blank()
        self._take("}")
        return pairs

    def _array(self, depth: int) -> list[Node]:
        items: list[Node] = []
        self._take("[")
        self._blank()
        while self.text[self.at] != "]" or items:
            items.append(self._any(depth))
            self._blank()
            if self.text[self.at] == "]":
                break
            self._take(",")
            self._blank()
        self._take("]")
        return items

    def _string(self) -> str:
        self._take('"')
        units = bytearray()  # UTF-16
        while (c := self.text[self.at]) != '"':
            self.at += 1
            if c < " ":
                raise NotSo("control character, or no end")
            if c != "\\":
                units += c.encode("utf-16-le")
                continue
            escape = self.text[self.at]
            self.at += 1
            if escape == "u":
                digits = self.text[self.at : self.at + 4]
                if not set(digits) <= set(string.hexdigits):
                    raise NotSo("escape")
                units += int(digits, 16).to_bytes(2, "little")
                self.at += 4
            elif escape in '"\\/bfnrt':
                units += dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True))[escape].encode("utf-16-le")
            else:
                raise NotSo("escape")
        self.at += 1
        try:
            return units.decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise NotSo("half a pair") from error

    def _digits(self) -> None:
        if self.text[self.at] not in string.digits:
            raise NotSo("no digit")
        while self.text[self.at] in string.digits:
            self.at += 1

    def _number(self) -> str:
        start = self.at
        if self.text[self.at] == "-":
            self.at += 1
        if self.text[self.at] == "0":
            self.at += 1
        else:
            self._digits()
        if self.text[self.at] == ".":
            self.at += 1
            self._digits()
        if self.text[self.at] in "eE":
            self.at += 1
            if self.text[self.at] in "+-":
                self.at += 1
            self._digits()
        return self.text[start : self.at]


def _value(kind: pa.DataType, node: Node | None) -> Any:
    """As `column.to_pylist()` gives it, but times as microseconds, days as tuples and decimals as fractions."""
    if node is None or node.source == "null":
        return None
    if pa.types.is_string(kind):
        return node.holds if node.kind == "string" else node.source
    if pa.types.is_boolean(kind):
        return _one_of({"true": True, "false": False}, node.source)
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width, node)
    if pa.types.is_decimal(kind):
        return _decimal(kind, node)
    if pa.types.is_floating(kind):
        return _nearest(np.float32 if kind.bit_width == 32 else np.float64, node)
    if pa.types.is_struct(kind):
        fields = dict(_holds(node, "object"))
        return {f.name: _value(f.type, fields.get(f.name)) for f in kind}
    if pa.types.is_map(kind):
        pairs = _holds(node, "object")
        if any(len(name.encode()) > LONGEST_NAME for name, _ in pairs):
            raise NotSo("long name")
        return [(name, _value(kind.item_type, item)) for name, item in pairs]
    if pa.types.is_list(kind):
        return [_value(kind.value_type, item) for item in _holds(node, "array")]
    text = _holds(node, "string")
    if pa.types.is_binary(kind):
        return _bytes(text)
    if pa.types.is_date(kind):
        return _day(text)
    return _moment(text, zoned=kind.tz is not None)


def _holds(node: Node, kind: str) -> Any:
    if node.kind != kind:
        raise NotSo(f"{node.kind}, not {kind}")
    return node.holds


def _one_of(values: dict[str, Any], text: str) -> Any:
    if text not in values:
        raise NotSo(text)
    return values[text]


def _integer(bits: int, node: Node) -> int:
    text = _holds(node, "number")
    if any(c in ".eE" for c in text) or len(text) > 30 or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise NotSo("integer")
    return int(text)


def _exact(text: str) -> Fraction:
    """The number; of one nearer to 0 than any type's values a stand-in that is too."""
    mantissa, _, power = text.lower().partition("e")
    if not set(mantissa) & set("123456789"):
        return Fraction(0)
    if len(mantissa) > 6000 or int(power or 0) > 6000:
        raise NotSo("out of every range")
    return Fraction(text) if int(power or 0) > -12_000 else Fraction(-1 if text.startswith("-") else 1, 10**6000)


def _decimal(kind: pa.DataType, node: Node) -> Fraction:
    scaled = _exact(_holds(node, "number")) * 10**kind.scale
    if scaled.denominator != 1 or abs(scaled) >= 10**kind.precision:
        raise NotSo("decimal")
    return scaled / 10**kind.scale


def _nearest(of: Any, node: Node) -> tuple[float, bool]:
    """The nearest one that there is, the even one of two, and whether it has a minus."""
    exact, info = _exact(_holds(node, "number")), np.finfo(of)
    bits, smallest = info.nmant + 1, int(info.minexp) - info.nmant
    size = abs(exact)
    exponent = smallest
    if size:
        exponent = max(smallest, size.numerator.bit_length() - size.denominator.bit_length() - bits - 1)
        while size >= Fraction(2) ** (exponent + bits):
            exponent += 1
    units = round(size / Fraction(2) ** exponent)  # the even one
    nearest = units * Fraction(2) ** exponent
    if nearest > Fraction(float(info.max)):
        raise NotSo("overflow")
    return float(nearest) * (-1 if exact < 0 else 1), node.source.startswith("-")


def _bytes(text: str) -> bytes:
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    body = text.rstrip("=")
    if len(text) % 4 or len(text) - len(body) > 2 or not set(body) <= set(letters):
        raise NotSo("Base64")
    found = base64.b64decode(text)
    if base64.b64encode(found) != text.encode():
        raise NotSo("Base64 with bits left over")
    return found


def _number_at(text: str, width: int) -> tuple[int, str]:
    digits = text[:width]
    if len(digits) != width or not set(digits) <= set(string.digits):
        raise NotSo("digits")
    return int(digits), text[width:]


def _after(text: str, mark: str) -> str:
    if not text or text[0] not in mark:
        raise NotSo(f"no {mark}")
    return text[1:]


def _day(text: str) -> tuple[int, int, int]:
    day, rest = _leading_day(text)
    if rest:
        raise NotSo("junk")
    return day


def _leading_day(text: str) -> tuple[tuple[int, int, int], str]:
    year, text = _number_at(text, 4)
    month, text = _number_at(_after(text, "-"), 2)
    day, text = _number_at(_after(text, "-"), 2)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        raise NotSo("no such day")
    return (year, month, day), text


def _days(year: int, month: int, day: int) -> int:
    """Since 1970-01-01, counted."""
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400
    return before * 365 + leaps + sum(monthrange(year, m)[1] for m in range(1, month)) + day - 1 - 719_162


def _moment(text: str, *, zoned: bool) -> int:
    """Microseconds since 1970; what has no zone is UTC."""
    day, text = _leading_day(text)
    seconds, micros, offset = 0, 0, 0
    if text:
        hour, text = _number_at(_after(text, "Tt "), 2)
        minute, text = _number_at(_after(text, ":"), 2)
        second = 0
        if text.startswith(":"):
            second, text = _number_at(text[1:], 2)
            if text.startswith("."):
                text = text[1:]
                fraction = text[: len(text) - len(text.lstrip(string.digits))]
                text = text[len(fraction) :]
                exact = Fraction(int(fraction), 10 ** len(fraction)) * 10**6 if fraction else Fraction(1, 2)
                if exact.denominator != 1:
                    raise NotSo("fraction")
                micros = int(exact)
        if hour > 23 or minute > 59 or second > 59:
            raise NotSo("no such time")
        seconds = hour * 3600 + minute * 60 + second
        if zoned and text:
            offset, text = _offset(text)
    if text:
        raise NotSo("junk")
    found = (_days(*day) * 86_400 + seconds - offset) * 10**6 + micros
    if not _days(1, 1, 1) * 86_400 * 10**6 <= found < (_days(9999, 12, 31) + 1) * 86_400 * 10**6:
        raise NotSo("out of the calendar")
    return found


def _offset(text: str) -> tuple[int, str]:
    """Seconds east of Greenwich."""
    if text[0] in "Zz":
        return 0, text[1:]
    sign = 1 if text[0] == "+" else -1
    hours, text = _number_at(_after(text, "+-"), 2)
    minutes = 0
    if text:
        minutes, text = _number_at(text.removeprefix(":"), 2)
    if hours > 18 or minutes > 59:
        raise NotSo("no such zone")
    return sign * (hours * 60 + minutes) * 60, text
