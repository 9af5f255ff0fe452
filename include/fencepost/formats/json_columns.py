"""Converts parsed JSON to columns of declared types. A column has exactly what the record says, or the record is
malformed, with a reason.

A parsed value is None, a bool, an int, a str, a list or a dict. A number with a fraction or an exponent is its text, or
the nearest double. A column that needs all digits gets the text.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import partial
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from jiter import LosslessFloat

from fencepost.formats.epochs import EPOCH, FIRST, LAST, MICROSECOND
from fencepost.formats.floats import nearest_float
from fencepost.formats.format import LONGEST_NAME
from fencepost.formats.framing import Malformed


class Incomplete(Exception):
    """The parsed value lacks a detail that the column needs, so the record's text has to be read."""


class JsonWithText:
    """An array or an object with its own text, which is a slice of the record. With a thousand levels, copies would
    take too much memory.
    """

    __slots__ = ()
    record: str
    place: slice

    @property
    def text(self) -> str:
        return self.record[self.place]


# Converts a value that is not null into one that pyarrow takes. The function in its second argument says whether a 0 in
# the record may have a minus.
Convert = Callable[[Any, Callable[[], bool]], Any]
Make = Callable[[Sequence[Any]], pa.Array]


@dataclass(frozen=True)
class JsonColumn:
    """A column of one type. If all values have `usual` types, `make` tries to convert them at once. `make` raises an
    error if it cannot convert them.
    """

    kind: pa.DataType
    convert: Convert
    usual: frozenset[type]
    make: Make

    def at_once(self, values: Sequence[Any]) -> pa.Array | None:
        """Returns the column of these values, or None if they have to be converted one by one."""
        if self.usual.issuperset(map(type, values)):
            with suppress(ValueError, ArithmeticError):
                return self.make(values)
        return None


def needs_digits(kind: pa.DataType) -> bool:
    """Returns whether a column of this type needs the text of a number with a fraction, because a double is not exact
    enough.
    """
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return pa.types.is_decimal(kind) or pa.types.is_float32(kind) or any(map(needs_digits, inner))


def levels_of(kind: pa.DataType) -> int:
    """Returns how many arrays and objects are nested in a value of this type."""
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return 1 + max(map(levels_of, inner)) if inner else 0


def column_of(kind: pa.DataType, at: str) -> JsonColumn:
    """Returns the column of this type at this place in the record."""
    usual = set[type]()
    make: Make = partial(pa.array, type=kind)
    if pa.types.is_integer(kind):
        usual = {int}
    elif pa.types.is_decimal(kind):
        usual, make = NUMBERS, partial(decimals, kind)
    elif pa.types.is_float64(kind):
        usual, make = {*NUMBERS, float}, _doubles
    elif pa.types.is_boolean(kind):
        usual = {bool}
    elif pa.types.is_string(kind):
        usual = {str}
    elif pa.types.is_date32(kind):
        usual, make = {str}, partial(_alike, DAY, kind)
    elif pa.types.is_timestamp(kind):
        usual, make = {str}, partial(times, kind)
    return JsonColumn(kind, converter(kind, at), frozenset(usual | {NoneType} if usual else ()), make)


def converter(kind: pa.DataType, at: str) -> Convert:
    """Returns the function that converts one value to this type."""
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width, at)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale, at)
    if pa.types.is_timestamp(kind):
        return time_converter(kind, at)
    if pa.types.is_struct(kind):
        return _struct({f.name: converter(f.type, f"{at}.{f.name}") for f in kind}, at)
    if pa.types.is_map(kind):
        return _map(converter(kind.item_type, f"{at}.*"), at)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(converter(kind.value_type, f"{at}[*]"), at)
    for is_it, make in SIMPLE:
        if is_it(kind):
            return make(at)
    raise NotImplementedError(f"{at}: {kind} of JSON")


def _misfit(at: str, what: str) -> Malformed:
    return Malformed(f"{at}: not {what}")


FINER = (
    "digits below the microsecond, which no timestamp holds; declare the field as string, and cut it in the transform"
)
NUMBERS: set[type] = {int, LosslessFloat}


def _integer(bits: int, at: str) -> Convert:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(value: Any, minus: Callable[[], bool]) -> int:
        if type(value) is LosslessFloat and bytes(value) == b"-0":
            return 0
        if type(value) is int and low <= value <= high:
            return value
        raise _misfit(at, f"an integer of {bits} bits")

    return convert


is_zero = re.compile(rb"-?0(?:\.0+)?(?:[eE].*)?").fullmatch


def exact(value: Any) -> Decimal:
    """Returns the exact number in a JSON text.

    Raises:
        DecimalException: its exponent has more digits than a value of any type can have.
    """
    if type(value) is not LosslessFloat:
        return Decimal(value)
    try:
        return value.as_decimal()
    except DecimalException:
        if is_zero(bytes(value)):
            return Decimal(0)
        raise


def decimal_unit(precision: int, scale: int) -> tuple[Decimal, Context]:
    """Returns arguments for `quantize`. With these arguments `quantize` gives a number the scale, and raises an error
    instead of rounding.
    """
    return Decimal((0, (1,), -scale)), Context(prec=precision, traps=[Inexact, InvalidOperation])


def _decimal(precision: int, scale: int, at: str) -> Convert:
    unit, unrounded = decimal_unit(precision, scale)

    def convert(value: Any, minus: Callable[[], bool]) -> Decimal:
        if type(value) not in NUMBERS:
            raise _misfit(at, "a number")
        try:
            return exact(value).quantize(unit, None, unrounded)
        except DecimalException:
            raise _misfit(at, f"a decimal({precision},{scale})") from None

    return convert


def decimals(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Returns decimals with exactly the column's scale. With another scale, Arrow computes wrong numbers or reads
    outside its memory.
    """
    unit, unrounded = decimal_unit(kind.precision, kind.scale)
    return pa.array([None if value is None else exact(value).quantize(unit, None, unrounded) for value in values], kind)


def _double(at: str) -> Convert:
    def convert(value: Any, minus: Callable[[], bool]) -> float:
        if type(value) is not float and type(value) not in NUMBERS:
            raise _misfit(at, "a number")
        if type(value) is int and value == 0 and minus():
            raise Incomplete
        with suppress(OverflowError):
            number = float(value)
            if number not in (float("inf"), float("-inf")):
                return number
        raise _misfit(at, "within a double's range")

    return convert


def _doubles(values: Sequence[Any]) -> pa.Array:
    if any(type(value) is int and value == 0 for value in values):
        raise ValueError("it may have a minus")
    found = pa.array([None if value is None else float(value) for value in values], pa.float64())
    if not pc.all(pc.is_finite(found), min_count=0).as_py():
        raise ValueError("out of a double's range")
    return found


def _float(at: str) -> Convert:
    double = _double(at)

    def convert(value: Any, minus: Callable[[], bool]) -> float:
        number = double(value, minus)
        try:
            return nearest_float(number, lambda: exact(value))
        except OverflowError:
            raise _misfit(at, "within a float's range") from None

    return convert


def _boolean(at: str) -> Convert:
    def convert(value: Any, minus: Callable[[], bool]) -> bool:
        if type(value) is bool:
            return value
        raise _misfit(at, "true or false")

    return convert


def _string(at: str) -> Convert:
    def convert(value: Any, minus: Callable[[], bool]) -> str:
        if type(value) is str:
            return value
        if type(value) is bool:
            return "true" if value else "false"
        if type(value) is LosslessFloat:
            return bytes(value).decode()
        if type(value) is int and not (value == 0 and minus()):
            return str(value)
        if isinstance(value, JsonWithText):
            return value.text
        raise Incomplete

    return convert


def _text(at: str, read: Callable[[str], Any], what: str) -> Convert:
    """Returns the conversion of a text by `read`, which raises ValueError if it does not accept the text."""

    def convert(value: Any, minus: Callable[[], bool]) -> Any:
        if type(value) is str:
            with suppress(ValueError):
                return read(value)
        raise _misfit(at, what)

    return convert


def time_converter(kind: pa.DataType, at: str, finer: str = FINER, *, truncates: bool = False) -> Convert:
    """Returns the conversion of a text to a time. `finer` is the reason against digits below the microsecond. With
    `truncates` they are cut off.
    """
    read, what = (_instant, ZONED_TIME) if kind.tz else (_local, A_TIME)
    convert = _text(at, (lambda text: read(without_finer_digits(text))) if truncates else read, what)

    def converted(value: Any, minus: Callable[[], bool]) -> Any:
        try:
            return convert(value, minus)
        except Malformed:
            if type(value) is str and _is_too_fine(value, read):
                raise Malformed(f"{at}: {finer}") from None
            raise

    return converted


def _is_too_fine(text: str, read: Callable[[str], Any]) -> bool:
    """Returns whether `read` would accept the text without its digits below the microsecond."""
    cut = without_finer_digits(text)
    try:
        read(cut)
    except ValueError:
        return False
    return cut != text


def without_finer_digits(text: str) -> str:
    """Returns a time without its digits below the microsecond. So it is the last whole microsecond before."""
    return BELOW_MICROSECOND.sub(r"\1", text, count=1)


def base64_bytes(text: str) -> bytes:
    """Returns the bytes of a Base64 text.

    Raises:
        ValueError: it is not the one text of its bytes.
    """
    found = binascii.a2b_base64(text)
    if binascii.b2a_base64(found, newline=False).decode() != text:
        raise ValueError("other bits than those of the bytes")
    return found


LEAP = "(?:0[48]|[2468][048]|[13579][26])"
DAY = (
    "(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    f"|(?:[0-9]{{2}}{LEAP}|{LEAP}00)-02-29)"
)
MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
OFFSET = "[+-](?:0[0-9]|1[0-8])(?::?[0-5][0-9])?"
# Minutes, seconds, or seconds with a fraction in whole microseconds. Arrow reads the usual form: at most six digits of
# fraction, T and Z.
USUAL_TIME = rf"{MINUTE}(?::[0-5][0-9](?:\.[0-9]{{1,6}})?)?"
ZONED = f"{DAY}[T ]{USUAL_TIME}(?:Z|{OFFSET})"
UNZONED = f"{DAY}(?:[T ]{USUAL_TIME})?"
TIME = rf"{MINUTE}(?::[0-5][0-9](?:\.[0-9]{{1,6}}0*)?)?"
ZONE = f"(?:[Zz]|{OFFSET})"
is_date = re.compile(DAY).fullmatch
is_timestamp = re.compile(f"{DAY}(?:[Tt ]{TIME}{ZONE}?)?").fullmatch
is_timestamp_ntz = re.compile(f"{DAY}(?:[Tt ]{TIME})?").fullmatch
BELOW_MICROSECOND = re.compile(r"(\.[0-9]{6})[0-9]+")
A_DAY = "a day such as 2026-01-31"
A_TIME = "a time without a zone such as 2026-01-31T23:59:59.999999"
ZONED_TIME = "a time such as 2026-01-31T23:59:59.999999Z, within the years 1 to 9999 in UTC"


def _day(text: str) -> date:
    if not is_date(text):
        raise ValueError("another text")
    return date.fromisoformat(text)


def _instant(text: str) -> int:
    if not is_timestamp(text):
        raise ValueError("another text")
    moment = datetime.fromisoformat(text.upper())
    micros = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
    if not FIRST <= micros <= LAST:
        raise ValueError("another year")
    return micros


def _local(text: str) -> int:
    if not is_timestamp_ntz(text):
        raise ValueError("another text")
    return _instant(text)


def _alike(like: str, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Returns a column of days or times that all have the same form as `like`."""
    texts = pa.array(values, pa.string())
    if not pc.all(pc.match_substring_regex(texts, f"^{like}$"), min_count=0).as_py():
        raise ValueError("another text")
    found = texts.cast(kind)
    ends = pc.min_max(found.cast(pa.timestamp("us")).cast(pa.int64()))
    if ends["min"].is_valid and not (ends["min"].as_py() >= FIRST and ends["max"].as_py() <= LAST):
        raise ValueError("another year")
    return found


def times(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Returns a column of times that all have a zone, or all have none."""
    if kind.tz:
        with suppress(ValueError):
            return _alike(ZONED, kind, values)
    found = _alike(UNZONED, pa.timestamp("us"), values)
    return found.cast(kind) if kind.tz else found


def _list(item: Convert, at: str) -> Convert:
    def convert(value: Any, minus: Callable[[], bool]) -> list[Any]:
        if not isinstance(value, list):
            raise _misfit(at, "an array")
        return [None if v is None else item(v, minus) for v in value]

    return convert


def _map(item: Convert, at: str) -> Convert:
    def convert(value: Any, minus: Callable[[], bool]) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _misfit(at, "an object")
        if any(4 * len(k) > LONGEST_NAME and len(k.encode()) > LONGEST_NAME for k in value):
            raise Malformed(f"{at}: a name of more than {LONGEST_NAME:,} bytes")
        return [(k, None if v is None else item(v, minus)) for k, v in value.items()]

    return convert


def _struct(fields: Mapping[str, Convert], at: str) -> Convert:
    """Returns the conversion of an object to the fields that it has. Arrow reads missing fields as null, and they cost
    no memory in Python.
    """

    def convert(value: Any, minus: Callable[[], bool]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(at, "an object")
        return {name: None if v is None else fields[name](v, minus) for name, v in value.items() if name in fields}

    return convert


SIMPLE: list[tuple[Callable[[pa.DataType], bool], Callable[[str], Convert]]] = [
    (pa.types.is_string, _string),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_float64, _double),
    (pa.types.is_float32, _float),
    (pa.types.is_date32, partial(_text, read=_day, what=A_DAY)),
    (pa.types.is_binary, partial(_text, read=base64_bytes, what="Base64")),
]
