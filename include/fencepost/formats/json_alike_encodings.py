"""Reads encoded values of JSON records that are written alike, many at a time. `json_encodings.py` says what they mean."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from fencepost.formats.declared import Encoding
from fencepost.formats.epochs import FIRST_DAY, LAST_DAY
from fencepost.formats.json_alike import TENS, Column, Values, column_reader, decimals_from, integers_of, times_of
from fencepost.formats.json_columns import UNZONED, ZONED
from fencepost.formats.json_encodings import UNITS, micros_of

PAD = 64  # the sign that fills up Base64
MOST = 11  # signs of a number of 64 bits, without those that fill up
SIGNS = np.full(256, 255, np.uint8)
SIGNS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", np.uint8)] = np.arange(65)


def encoded_reader(kind: pa.DataType, encoding: Encoding) -> Column | None:
    """Returns the function that reads a column of this type and encoding, or None if there is none."""
    if encoding.name in UNITS:
        return partial(_epochs, kind=kind, encoding=encoding)
    if encoding.name == "epoch_days":
        return partial(_days, kind=kind)
    if encoding.name == "base64":
        return partial(_base64_decimals, kind=kind)
    plain = column_reader(kind)
    if encoding.name == "text" and plain is not None:
        return partial(_in_texts, plain=plain)
    if pa.types.is_timestamp(kind):
        return partial(times_of, kind=kind, like=ZONED if kind.tz else UNZONED, truncates=encoding.truncates)
    return plain


def _epochs(values: Values, kind: pa.DataType, encoding: Encoding) -> pa.Array:
    micros, right = micros_of(_numbers(values), encoding)
    values.mark_unless(right)
    return pa.array(micros, mask=values.null).cast(kind)


def _days(values: Values, kind: pa.DataType) -> pa.Array:
    days = _numbers(values)
    right = (days >= FIRST_DAY) & (days <= LAST_DAY)
    values.mark_unless(right)
    return pa.array(np.where(right, days, 0).astype(np.int32), mask=values.null).cast(kind)


def _numbers(values: Values) -> np.ndarray:
    found: np.ndarray = integers_of(values, 64).fill_null(0).to_numpy()
    return found


def _in_texts(values: Values, plain: Column) -> pa.Array:
    """Returns the column of values that stand in texts, and have the form of plain values there."""
    values.mark_unless(values.text)
    return plain(replace(values, text=np.zeros(len(values.text), np.bool_)))


def _base64_decimals(values: Values, kind: pa.DataType) -> pa.Array:
    """Returns decimals of up to 64 bits."""
    data, size = values.packed.data, values.end - values.begin
    last = SIGNS[data[np.maximum(values.end - 1, 0)]] == PAD
    pads = last.astype(np.int64) + (last & (SIGNS[data[np.maximum(values.end - 2, 0)]] == PAD))
    signs = size - pads
    right = values.text & (size > 0) & (size % 4 == 0) & (signs <= MOST)
    number, code = np.zeros(len(size), np.uint64), np.zeros(len(size), np.uint8)
    for place in range(MOST):
        within = right & (place < signs)
        code = np.where(within, SIGNS[data[np.where(within, values.begin + place, 0)]], code)
        right &= code < PAD
        number = np.where(within & (place < signs - 1), number << np.uint64(6) | code, number)
    count = signs * 6 // 8  # bytes
    left_over = np.clip(signs * 6 - count * 8, 0, 6)  # bits of the last sign that belong to no byte, and are 0
    right &= code & ((1 << left_over) - 1) == 0
    number = number << (6 - left_over).astype(np.uint64) | (code >> left_over.astype(np.uint8))
    unused = (64 - 8 * np.clip(count, 1, 8)).astype(np.int64)
    found = (number << unused.astype(np.uint64)).view(np.int64) >> unused  # with the sign
    most = int(TENS[min(kind.precision, 18)])
    if kind.precision < 19:
        right &= (found < most) & (found > -most)
    values.mark_unless(right)
    return decimals_from(found, values.null, kind)
