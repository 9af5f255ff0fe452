"""Decodes a JSON record into a row of declared types: exactly what it says, or malformed with the reason.

JSON written from the row says what the record said, in values of the declared types. This runs in executors, so it does not
import Spark.
"""

from __future__ import annotations

import binascii
import json
import re
import struct
import sys
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

from fencepost.formats.format import LONGEST_NAME
from fencepost.formats.framing import Framing, Malformed
from fencepost.formats.rows import Decoder

DEEPEST = 1000  # nested arrays and objects
SHALLOW = 100  # nesting that always fits into Python's own limit on recursion
Convert = Callable[[Any], Any]


class _NeedsSource(Exception):
    """A field of type string holds an array or object, so its source text is needed."""


class _Integer(str):
    """The text of a number without a fraction or exponent."""

    __slots__ = ()


class _Number(str):
    """The text of any other number."""

    __slots__ = ()


class _Sourced:
    """Knows its own text as a slice of the record: a copy at each of a thousand levels would be too much."""

    record: str
    place: slice

    @property
    def text(self) -> str:
        return self.record[self.place]


class _Object(_Sourced, dict[str, Any]):
    """An object that knows its own text."""

    name: str | None = None  # the last name read, until its value follows


class _Array(_Sourced, list[Any]):
    """An array that knows its own text."""


class JsonDecoder(Decoder):
    """Decodes JSON texts into rows of one schema. `required` fields must not be null. `framing`: the records have it."""

    def __init__(self, schema: pa.Schema, required: Collection[str] = (), framing: Framing | None = None) -> None:
        super().__init__(schema)
        self._framing = framing
        self._fields = [(f.name, _converter(f.type, f.name), f.name in required) for f in schema]

    def decode(self, value: bytes) -> list[Any]:
        if self._framing is None:
            return self._decode(value)
        schema_id, record = self._framing.split(value)
        try:
            return self._decode(record)
        except Malformed as malformed:
            raise Malformed(f"schema id {schema_id}: {malformed}") from None

    def _decode(self, value: bytes) -> list[Any]:
        try:
            text = str(value, "utf-8").strip(" \t\r\n")
        except UnicodeDecodeError:
            raise Malformed("not UTF-8") from None
        record = _parse(text)
        try:
            return self._convert(record)
        except _NeedsSource:
            return self._convert(_with_sources(text))

    def _convert(self, record: dict[str, Any]) -> list[Any]:
        row = []
        for name, convert, required in self._fields:
            value = record.get(name)
            if value is not None:
                value = convert(value)
            elif required:
                raise Malformed(f"{name}: null or missing, and declared not null")
            row.append(value)
        return row


def _no_constant(name: str) -> Any:
    raise Malformed("not JSON: NaN or Infinity")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("a duplicate name in one object")
    return found


_scan = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_Integer, parse_float=_Number, parse_constant=_no_constant
).scan_once  # type: ignore[attr-defined]  # the scanner in C
# For a text without escaped backslashes.
HALF_PAIR = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
# This also takes an unterminated string as a whole: searching in it for another beginning would take quadratic time.
STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
BRACKET = re.compile(rf"{STRING}|([\[{{])|([\]}}])", re.DOTALL)
TOKEN = re.compile(rf'({STRING}|[^\[\]{{}}:,"\s]+)|([\[{{])|([\]}}])', re.DOTALL)


def _parse(text: str) -> dict[str, Any]:
    """The object that makes up the whole text. Numbers stay texts."""
    if not text.startswith("{"):
        raise Malformed("not a JSON object")
    record, end = _scanned(text) if text.count("{") + text.count("[") <= SHALLOW else _scanned_with_room(text)
    if end != len(text):
        raise Malformed(f"something follows the JSON object at character {end}")
    if "\\u" in text and HALF_PAIR.search(text.replace(r"\\", "__")):
        raise Malformed("half a surrogate pair, which is not a character")
    return record


def _scanned(text: str) -> tuple[dict[str, Any], int]:
    """The object at the beginning of the text, and where it ends."""
    try:
        return _scan(text, 0)  # type: ignore[no-any-return]
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")  # some of Python's messages end with it
        raise Malformed(f"not JSON: {what} at character {error.pos}") from None
    except StopIteration as error:
        raise Malformed(f"not JSON: a value is missing at character {error.value}") from None


def _scanned_with_room(text: str) -> tuple[dict[str, Any], int]:
    """Like `_scanned`, for deep texts: Python's limit includes the caller's frames, so it is raised to treat all texts alike."""
    if _depth(text) <= SHALLOW:
        return _scanned(text)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2 * DEEPEST)
    try:
        return _scanned(text)
    finally:
        sys.setrecursionlimit(limit)


def _depth(text: str) -> int:
    depth = deepest = 0
    for found in BRACKET.finditer(text):
        if found[1]:
            depth += 1
            deepest = max(deepest, depth)
            if depth > DEEPEST:
                raise Malformed(f"more than {DEEPEST} nested arrays and objects")
        elif found[2]:
            depth -= 1
    return deepest


def _with_sources(text: str) -> dict[str, Any]:
    """The result of `_parse`, with arrays and objects that know their own text."""
    within: list[tuple[_Object | _Array, int]] = []
    value: Any = None
    for found in TOKEN.finditer(text):
        if found[2]:
            within.append((_Object() if found[2] == "{" else _Array(), found.start()))
            continue
        if found[3]:
            value, start = within.pop()
            value.record, value.place = text, slice(start, found.end())
        else:
            value = _scan(found[1], 0)[0]
        if within:
            _put(within[-1][0], value)
    assert isinstance(value, dict)
    return value


def _put(parent: _Object | _Array, value: Any) -> None:
    if isinstance(parent, _Array):
        parent.append(value)
    elif parent.name is None:
        parent.name = value
    else:
        parent[parent.name] = value
        parent.name = None


def _converter(kind: pa.DataType, at: str) -> Convert:
    """The function that turns a parsed value, which is not null, into one that pyarrow takes for this type."""
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width, at)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale, at)
    if pa.types.is_timestamp(kind):
        return _timestamp(at) if kind.tz else _timestamp_ntz(at)
    if pa.types.is_struct(kind):
        return _struct([(f.name, _converter(f.type, f"{at}.{f.name}")) for f in kind], at)
    if pa.types.is_map(kind):
        return _map(_converter(kind.item_type, f"{at}.*"), at)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(_converter(kind.value_type, f"{at}[*]"), at)
    for is_it, make in SIMPLE:
        if is_it(kind):
            return make(at)
    raise NotImplementedError(f"{at}: {kind} of JSON")


def _misfit(at: str, what: str) -> Malformed:
    return Malformed(f"{at}: not {what}")


def _integer(bits: int, at: str) -> Convert:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(value: Any) -> int:
        if type(value) is _Integer and len(value) <= 20 and low <= (number := int(value)) <= high:
            return number
        raise _misfit(at, f"an integer of {bits} bits")

    return convert


def _decimal(precision: int, scale: int, at: str) -> Convert:
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal((0, (1,), -scale))

    def convert(value: Any) -> Decimal:
        if type(value) is not _Integer and type(value) is not _Number:
            raise _misfit(at, "a number")
        try:
            return Decimal(value).quantize(unit, context=exact)
        except DecimalException:
            raise _misfit(at, f"a decimal({precision},{scale})") from None

    return convert


def _double(at: str) -> Convert:
    def convert(value: Any) -> float:
        if type(value) is not _Number and type(value) is not _Integer:
            raise _misfit(at, "a number")
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise _misfit(at, "within a double's range")
        return number

    return convert


def _float(at: str) -> Convert:
    double = _double(at)

    def convert(value: Any) -> float:
        number: float = double(value)
        try:
            near: float = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            raise _misfit(at, "within a float's range") from None
        # The double nearest to the text may lie midway between two floats where the text does not.
        if number != near:
            away = 1 if abs(number) > abs(near) else -1
            (bits,) = struct.unpack("<i", struct.pack("<f", near))
            other: float
            (other,) = struct.unpack("<f", struct.pack("<I", (bits & 0x7FFFFFFF) + away | bits & 0x80000000))
            if number - near == other - number and (text := Decimal(value)) != number:
                return max(near, other) if text > number else min(near, other)
        return near

    return convert


def _boolean(at: str) -> Convert:
    def convert(value: Any) -> bool:
        if value is True or value is False:
            return bool(value)
        raise _misfit(at, "true or false")

    return convert


def _string(at: str) -> Convert:
    def convert(value: Any) -> str:
        if type(value) is str:
            return value
        if isinstance(value, str):  # a number
            return str(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, _Object | _Array):
            return value.text
        raise _NeedsSource

    return convert


def _binary(at: str) -> Convert:
    def convert(value: Any) -> bytes:
        if type(value) is str:
            try:
                found = binascii.a2b_base64(value)
            except ValueError:
                raise _misfit(at, "Base64") from None
            if binascii.b2a_base64(found, newline=False).decode() == value:
                return found
        raise _misfit(at, "Base64")

    return convert


DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
# Minutes, seconds, or seconds with a fraction in whole microseconds.
TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*)?)?"
ZONE = r"Z|[+-](?:0[0-9]|1[0-8])(?::?[0-5][0-9])?"
is_date = re.compile(DAY).fullmatch
is_timestamp = re.compile(rf"{DAY}(?:[T ]{TIME}(?:{ZONE})?)?").fullmatch
is_timestamp_ntz = re.compile(rf"{DAY}(?:[T ]{TIME})?").fullmatch
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_NTZ = EPOCH.replace(tzinfo=None)
MICROSECOND = timedelta(microseconds=1)
FIRST, LAST = ((end.replace(tzinfo=UTC) - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))  # noqa: DTZ901


def _date(at: str) -> Convert:
    def convert(value: Any) -> date:
        if type(value) is str and is_date(value):
            try:
                return date.fromisoformat(value)
            except ValueError:
                pass
        raise _misfit(at, "a day such as 2026-01-31")

    return convert


def _timestamp(at: str) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is str and is_timestamp(value):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                pass
            else:
                micros = (moment - (EPOCH if moment.tzinfo else EPOCH_NTZ)) // MICROSECOND
                if FIRST <= micros <= LAST:
                    return micros
        raise _misfit(at, "a time such as 2026-01-31T23:59:59.999999Z, within the years 1 to 9999 in UTC")

    return convert


def _timestamp_ntz(at: str) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is str and is_timestamp_ntz(value):
            try:
                return (datetime.fromisoformat(value) - EPOCH_NTZ) // MICROSECOND
            except ValueError:
                pass
        raise _misfit(at, "a time without a zone such as 2026-01-31T23:59:59.999999")

    return convert


def _list(item: Convert, at: str) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _misfit(at, "an array")
        return [None if v is None else item(v) for v in value]

    return convert


def _map(item: Convert, at: str) -> Convert:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _misfit(at, "an object")
        if any(4 * len(k) > LONGEST_NAME and len(k.encode()) > LONGEST_NAME for k in value):
            raise Malformed(f"{at}: a name of more than {LONGEST_NAME:,} bytes")
        return [(k, None if v is None else item(v)) for k, v in value.items()]

    return convert


def _struct(fields: list[tuple[str, Convert]], at: str) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(at, "an object")
        return {name: None if (v := value.get(name)) is None else field(v) for name, field in fields}

    return convert


SIMPLE: list[tuple[Callable[[pa.DataType], bool], Callable[[str], Convert]]] = [
    (pa.types.is_string, _string),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_float64, _double),
    (pa.types.is_float32, _float),
    (pa.types.is_date32, _date),
    (pa.types.is_binary, _binary),
]
