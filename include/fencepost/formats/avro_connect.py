"""Kafka Connect's types in Avro, most of them Debezium's: numbers that count from 1970, times with a zone as texts, and
decimals that carry their scale.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from typing import Any

from fencepost.formats.avro_schema import AvroType
from fencepost.formats.epochs import EPOCH, FIRST, FIRST_DAY, INFINITIES, LAST, LAST_DAY, MICROSECOND
from fencepost.formats.framing import Malformed
from fencepost.formats.json_columns import BELOW_MICROSECOND, DAY, ZONE
from fencepost.formats.json_columns import TIME as TIME_OF_DAY

Convert = Callable[[Any], Any]
LONGEST_DECIMAL = 8_192  # bytes: more than 38 digits with the 16,383 of PostgreSQL's largest scale take

YEARS = "not within the years 1 to 9999"
FINER = "digits below the microsecond, which no timestamp holds; `digits: truncate` under source.schema cuts them off"
INFINITE = "an infinity; `infinity: null` under source.schema would read it as null"
NO_TIME = "not a time with a zone such as 2026-01-31T23:59:59.999999Z"


@dataclass(frozen=True)
class Epochs:
    """Numbers that count from 1970 in one unit. A number becomes `number * times // per`, in the unit of its column.

    The numbers from `first` to `last` are values. `outside` is the reason of others. `infinities` are the numbers that
    stand for PostgreSQL's infinities.
    """

    first: int
    last: int
    times: int = 1
    per: int = 1
    infinities: frozenset[int] = frozenset()
    outside: str = YEARS


def _epochs(times: int, per: int, unit: str) -> Epochs:
    first, last = max(FIRST * per // times, -(2**63)), min((LAST * per + per - 1) // times, 2**63 - 1)
    return Epochs(first, last, times, per, INFINITIES[unit])


MILLIS, MICROS = _epochs(1000, 1, "epoch_millis"), _epochs(1, 1, "epoch_micros")
NANOS = _epochs(1, 1000, "epoch_nanos")
DAYS = Epochs(FIRST_DAY, LAST_DAY, infinities=INFINITIES["epoch_days"])
# Avro's own type, which any system may have written: Spark's 64 bits of microseconds are its only bound.
ANY_MILLIS = Epochs(
    -(2**63 // 1000),
    2**63 // 1000,
    1000,
    outside="a time beyond Spark's, which has microseconds in 64 bits",
)
BY_TYPE = {
    "io.debezium.time.Date": DAYS,
    "io.debezium.time.Timestamp": MILLIS,
    "io.debezium.time.MicroTimestamp": MICROS,
    "io.debezium.time.NanoTimestamp": NANOS,
    "timestamp-millis": ANY_MILLIS,
    "local-timestamp-millis": ANY_MILLIS,
}
BY_CONNECTS_TYPE = {"date": DAYS, "timestamp-millis": MILLIS}


def epochs_of(kind: AvroType) -> Epochs | None:
    """Returns how a type's numbers count from 1970, or None if its values need no conversion."""
    return (BY_CONNECTS_TYPE if kind.is_connects else BY_TYPE).get(kind.logical or "")


def takes_options(kind: AvroType) -> tuple[bool, bool]:
    """Returns whether a type's values may have digits below the microsecond, and whether they may be infinities."""
    epochs, zoned = epochs_of(kind), kind.logical == ZONED
    return zoned or (epochs is not None and epochs.per > 1), zoned or bool(epochs is not None and epochs.infinities)


def from_epoch(kind: AvroType, epochs: Epochs, at: str) -> Convert:
    """Returns the conversion of a number to the form that pyarrow takes for a date or a timestamp."""

    def convert(value: int) -> int | None:
        if value in epochs.infinities:
            _check_infinity(kind, at)
            return None
        if not epochs.first <= value <= epochs.last:
            raise Malformed(f"{at}: {epochs.outside}")
        number, rest = divmod(value * epochs.times, epochs.per)
        if rest and not kind.truncates:
            raise Malformed(f"{at}: {FINER}")
        return number

    return convert


def _check_infinity(kind: AvroType, at: str) -> None:
    if not kind.infinity_is_null:
        raise Malformed(f"{at}: {INFINITE}")


ZONED = "io.debezium.time.ZonedTimestamp"
is_zoned = re.compile(f"{DAY}[Tt ]{TIME_OF_DAY}{ZONE}").fullmatch


def zoned(kind: AvroType, at: str) -> Convert:
    """Returns the conversion of a text with a time and a zone to microseconds since 1970."""

    def convert(text: str) -> int | None:
        if text in ("infinity", "-infinity"):
            _check_infinity(kind, at)
            return None
        cut = BELOW_MICROSECOND.sub(r"\1", text)
        if not is_zoned(text):
            if not is_zoned(cut):
                raise Malformed(f"{at}: {NO_TIME}")
            if not kind.truncates:
                raise Malformed(f"{at}: {FINER}")
        micros = (datetime.fromisoformat(cut.upper()) - EPOCH) // MICROSECOND
        if not FIRST <= micros <= LAST:
            raise Malformed(f"{at}: {YEARS}")
        return micros

    return convert


def is_variable_decimal(kind: AvroType) -> bool:
    """Returns whether a type is Debezium's decimal that has its scale beside it."""
    fields = [(one.name, one.type.kind) for one in kind.fields]
    return kind.name == "io.debezium.data.VariableScaleDecimal" and fields == [("scale", "int"), ("value", "bytes")]


def variable_decimal(kind: AvroType, at: str) -> Convert:
    """Returns the conversion of a scale and an unscaled number in bytes to a decimal of the type's precision and scale."""
    bound, shift, context = 10**kind.precision, Decimal(-kind.scale), Context(prec=kind.precision)
    misfit = f"{at}: not a decimal({kind.precision},{kind.scale})"

    def convert(value: tuple[int, bytes]) -> Decimal:
        scale, data = value
        number, more = int.from_bytes(data, signed=True), kind.scale - scale
        if not data or len(data) > LONGEST_DECIMAL:
            raise Malformed(misfit)
        if number and more > 0:
            number = bound if more > kind.precision else number * 10**more
        elif number and more:
            # A number of n bytes has fewer than 3 n zeros at its end.
            number, rest = divmod(number, 10 ** min(-more, 3 * len(data)))
            if rest:
                raise Malformed(misfit)
        if not -bound < number < bound:
            raise Malformed(misfit)
        return Decimal(number).scaleb(shift, context)

    return convert
