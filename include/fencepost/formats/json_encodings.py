"""Converts encoded fields of JSON records to columns: epochs, Base64 decimals, and numbers and booleans in texts.

A column has exactly what the record says, or the record is malformed, with a reason. `json_alike_encodings.py` reads the
same values of many records at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal, DecimalException
from functools import partial
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jiter import LosslessFloat

from fencepost.formats.declared import Encoding
from fencepost.formats.epochs import EPOCH, FIRST, FIRST_DAY, INFINITIES, LAST, LAST_DAY
from fencepost.formats.framing import Malformed
from fencepost.formats.json_columns import (
    Convert,
    JsonColumn,
    Make,
    base64_bytes,
    column_of,
    converter,
    decimal_unit,
    decimals,
    time_converter,
    times,
    without_finer_digits,
)

# Microseconds in a unit, and units in a microsecond.
UNITS = {
    "epoch_seconds": ("seconds", 1_000_000, 1),
    "epoch_millis": ("milliseconds", 1_000, 1),
    "epoch_micros": ("microseconds", 1, 1),
    "epoch_nanos": ("nanoseconds", 1, 1_000),
}
INFINITE_TIMES = frozenset(("infinity", "-infinity"))
INFINITE_NUMBERS = frozenset(("NaN", "Infinity", "-Infinity"))
FINER = "digits below the microsecond, which no timestamp holds; `digits: truncate` under source.schema cuts them off"
INTEGER = "-?(?:0|[1-9][0-9]*)"
NUMBER = rf"{INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
is_integer = re.compile(INTEGER).fullmatch
is_number = re.compile(NUMBER).fullmatch
MOST_BYTES = 65_536  # of a number in Base64: PostgreSQL's longest has 61,000
LARGEST_SCALE = 200_000


def encoded_column(kind: pa.DataType, at: str, encoding: Encoding, *, required: bool) -> JsonColumn:
    """Returns the column of this type at this place in the record, whose values have this encoding. The values of a
    `required` column must not be null.
    """
    if encoding.name in UNITS:
        column = _epoch_column(kind, at, encoding)
    elif encoding.name == "epoch_days":
        column = JsonColumn(kind, _days(at), frozenset((int, NoneType)), partial(_days_at_once, kind))
    elif encoding.name == "base64":
        column = JsonColumn(kind, _base64_decimal(kind, at), frozenset(), partial(pa.array, type=kind))
    elif encoding.name == "text":
        column = text_column(kind, at)
    elif pa.types.is_timestamp(kind):
        column = _time_column(kind, at, encoding)
    else:
        column = column_of(kind, at)
    infinities = infinities_of(kind, encoding)
    if not infinities:
        return column
    convert = _infinity_first(column.convert, infinities, at, encoding, required=required)
    return JsonColumn(kind, convert, column.usual, column.make)


def takes_objects(encoding: Encoding) -> bool:
    """Returns whether a value may be an object: a number with its own scale."""
    return encoding.name == "base64"


def infinities_of(kind: pa.DataType, encoding: Encoding) -> frozenset[Any]:
    """Returns the values that stand for an infinity, or for no number."""
    if encoding.name in INFINITIES:
        return INFINITIES[encoding.name]
    if pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and encoding.name == "text"):
        return INFINITE_NUMBERS
    plain_time = not encoding.name and (pa.types.is_timestamp(kind) or pa.types.is_date(kind))
    return INFINITE_TIMES if plain_time else frozenset()


def _infinity_first(
    convert: Convert, infinities: frozenset[Any], at: str, encoding: Encoding, *, required: bool
) -> Convert:
    def converted(value: Any, minus: Callable[[], bool]) -> Any:
        if (type(value) is int or type(value) is str) and value in infinities:
            what = "NaN" if value == "NaN" else "an infinity"
            if not encoding.infinity_is_null:
                raise Malformed(f"{at}: {what}; `infinity: null` under source.schema would read it as null")
            if required:
                raise Malformed(f"{at}: {what}, which is read as null, and declared not null")
            return None
        return convert(value, minus)

    return converted


def _whole(value: Any, at: str, what: str) -> int:
    if type(value) is int:
        return value
    if type(value) is LosslessFloat and bytes(value) == b"-0":
        return 0
    if type(value) in (float, LosslessFloat):
        raise Malformed(f"{at}: a number with a fraction or an exponent, not {what}")
    raise Malformed(f"{at}: not {what}")


def _epoch_column(kind: pa.DataType, at: str, encoding: Encoding) -> JsonColumn:
    unit, times_micros, per_micro = UNITS[encoding.name]

    def convert(value: Any, minus: Callable[[], bool]) -> int:
        number = _whole(value, at, f"a whole number of {unit} since 1970")
        micros, below = divmod(number * times_micros, per_micro)
        if not FIRST <= micros <= LAST:
            raise Malformed(f"{at}: not within the years 1 to 9999, as {unit} since 1970")
        if below and not encoding.truncates:
            raise Malformed(f"{at}: {FINER}")
        return micros

    def make(values: Sequence[Any]) -> pa.Array:
        found = pa.array(values, pa.int64())
        micros, right = micros_of(found.fill_null(0).to_numpy(), encoding)
        if not right.all():
            raise ValueError("out of range, or with digits below the microsecond")
        return pa.array(micros, mask=_nulls(found)).cast(kind)

    return JsonColumn(kind, convert, frozenset((int, NoneType)), make)


def micros_of(numbers: np.ndarray, encoding: Encoding) -> tuple[np.ndarray, np.ndarray]:
    """Returns microseconds since 1970, and which of them are right. `numbers` are 64-bit numbers in the encoding's unit."""
    _, times_micros, per_micro = UNITS[encoding.name]
    right = np.ones(len(numbers), np.bool_)
    if per_micro == 1:
        right = (numbers >= -(-FIRST // times_micros)) & (numbers <= LAST // times_micros)
        return np.where(right, numbers, 0) * times_micros, right
    if not encoding.truncates:
        right = numbers % per_micro == 0
    return numbers // per_micro, right & ~np.isin(numbers, list(INFINITIES[encoding.name]))


def _days(at: str) -> Convert:
    def convert(value: Any, minus: Callable[[], bool]) -> date:
        days = _whole(value, at, "a whole number of days since 1970")
        if not FIRST_DAY <= days <= LAST_DAY:
            raise Malformed(f"{at}: not within the years 1 to 9999, as days since 1970")
        return EPOCH.date() + timedelta(days=days)

    return convert


def _days_at_once(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    found = pa.array(values, pa.int64())
    ends = pc.min_max(found)
    if ends["min"].is_valid and not (ends["min"].as_py() >= FIRST_DAY and ends["max"].as_py() <= LAST_DAY):
        raise ValueError("another year")
    return found.cast(pa.int32()).cast(kind)


def _nulls(found: pa.Array) -> np.ndarray:
    nulls: np.ndarray = found.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _base64_decimal(kind: pa.DataType, at: str) -> Convert:
    unit, unrounded = decimal_unit(kind.precision, kind.scale)
    what = f"{at}: not a decimal({kind.precision},{kind.scale})"

    def convert(value: Any, minus: Callable[[], bool]) -> Decimal:
        scale = kind.scale
        if isinstance(value, dict):
            if set(value) != {"scale", "value"}:
                raise Malformed(f"{at}: an object without exactly a scale and a value")
            scale, value = _whole(value["scale"], f"{at}.scale", "a whole number"), value["value"]
        number = _unscaled(value, at)
        if not number:
            return Decimal(0).quantize(unit)
        if abs(scale) > LARGEST_SCALE:
            raise Malformed(what)
        sign, digits, _ = Decimal(number).as_tuple()
        try:
            return Decimal((sign, digits, -scale)).quantize(unit, None, unrounded)
        except DecimalException:
            raise Malformed(what) from None

    return convert


def _unscaled(value: Any, at: str) -> int:
    if type(value) is not str:
        raise Malformed(f"{at}: not Base64 of a number")
    if len(value) > MOST_BYTES // 3 * 4:
        raise Malformed(f"{at}: Base64 of more than {MOST_BYTES:,} bytes")
    try:
        data = base64_bytes(value)
    except ValueError:
        raise Malformed(f"{at}: not Base64") from None
    if not data:
        raise Malformed(f"{at}: Base64 of no bytes, and a number has at least one")
    return int.from_bytes(data, signed=True)


def text_column(kind: pa.DataType, at: str) -> JsonColumn:
    """Returns the column of numbers or booleans at this place in the record, whose values are texts."""
    if pa.types.is_boolean(kind):
        return JsonColumn(kind, _boolean_in_text(at), frozenset(), partial(pa.array, type=kind))
    whole = pa.types.is_integer(kind)
    fits, what = (is_integer, "a whole number") if whole else (is_number, "a number as JSON writes it")
    inner = converter(kind, at)

    def convert(value: Any, minus: Callable[[], bool]) -> Any:
        if type(value) is not str:
            raise Malformed(f"{at}: not a text with {what}")
        if not fits(value):
            raise Malformed(f"{at}: a text that is not {what}")
        # With more digits no type holds it, and Python would not read it.
        return inner(int(value) if whole and len(value) < 30 else LosslessFloat(value.encode()), minus)

    usual: frozenset[type] = frozenset() if pa.types.is_float32(kind) else frozenset((str, NoneType))
    return JsonColumn(kind, convert, usual, partial(_numbers_at_once, kind))


def _numbers_at_once(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    texts = pa.array(values, pa.string())
    like = INTEGER if pa.types.is_integer(kind) else NUMBER
    if not pc.all(pc.match_substring_regex(texts, f"^{like}$"), min_count=0).as_py():
        raise ValueError("another text")
    if pa.types.is_decimal(kind):
        return decimals(kind, [None if value is None else LosslessFloat(value.encode()) for value in values])
    found = texts.cast(kind)
    if pa.types.is_float64(kind) and not pc.all(pc.is_finite(found), min_count=0).as_py():
        raise ValueError("out of a double's range")
    return found


def _boolean_in_text(at: str) -> Convert:
    def convert(value: Any, minus: Callable[[], bool]) -> bool:
        if value == "true" or value == "false":
            return bool(value == "true")
        raise Malformed(f"{at}: not a text that is true or false")

    return convert


def _time_column(kind: pa.DataType, at: str, encoding: Encoding) -> JsonColumn:
    make: Make = partial(times, kind)
    if encoding.truncates:

        def make(values: Sequence[Any]) -> pa.Array:
            return times(kind, [None if value is None else without_finer_digits(value) for value in values])

    convert = time_converter(kind, at, FINER, truncates=encoding.truncates)
    return JsonColumn(kind, convert, frozenset((str, NoneType)), make)
