"""Converts values of Avro types to what Spark holds. The module handles logical types, the types of a union, and
defaults in JSON.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from decimal import Context, Decimal
from math import isfinite
from typing import Any

from fencepost.formats.avro_connect import (
    ZONED,
    Convert,
    epochs_of,
    from_epoch,
    variable_decimal,
    zoned,
)
from fencepost.formats.avro_schema import (
    MOST_DIGITS,
    AvroType,
    Incompatible,
    Number,
    is_struct_of_members,
    is_text,
)
from fencepost.formats.floats import nearest_float
from fencepost.formats.framing import Malformed

MOST_CHECKED = 1_000  # digits of a decimal; a schema may claim a billion

DAY = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
is_uuid = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


def logical(kind: AvroType, at: str) -> Convert | None:
    """Returns the conversion of a value to the form that pyarrow takes for its logical type, or None if the value needs
    no conversion.

    The conversion raises `Malformed` for a value that the type does not have, or that Spark cannot hold.
    """
    if (epochs := epochs_of(kind)) is not None:
        return from_epoch(kind, epochs, at)
    if kind.logical == ZONED:
        return zoned(kind, at)
    if kind.logical == "decimal" and kind.precision > MOST_DIGITS:
        return _decimal(replace(kind, precision=MOST_DIGITS), at, f"a decimal of more than {MOST_DIGITS} digits")
    return checked(kind, at)


def checked(kind: AvroType, at: str) -> Convert | None:
    """Returns the conversion by `logical` without Spark's bounds: it only raises `Malformed` for a value that Avro's type
    does not have.
    """
    if kind.logical == "decimal":
        return _decimal(kind, at) if kind.precision <= MOST_CHECKED else None
    if kind.logical in DAY:
        return _time(DAY[kind.logical], at)
    return _uuid(at) if kind.logical == "uuid" and kind.kind == "string" else None


def _decimal(kind: AvroType, at: str, misfit: str = "") -> Convert:
    bound, scale, context = 10**kind.precision, Decimal(-kind.scale), Context(prec=kind.precision)
    misfit = misfit or f"not a decimal of {kind.precision} digits"

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, signed=True)
        if not (value and -bound < number < bound):
            raise Malformed(f"{at}: {misfit}")
        return Decimal(number).scaleb(scale, context)

    return convert


def _time(end: int, at: str) -> Convert:
    def convert(value: int) -> int:
        if not 0 <= value < end:
            raise Malformed(f"{at}: not a time of day")
        return value

    return convert


def _uuid(at: str) -> Convert:
    def convert(value: str) -> str:
        if not is_uuid(value):
            raise Malformed(f"{at}: not a UUID")
        return value

    return convert


def member_of(branch: AvroType, union: AvroType) -> Convert | None:
    """Returns the conversion of a value of `branch` to the value of its union, if Spark reads the union as a struct.
    Otherwise it returns None.
    """
    if branch.kind == "null" or not is_struct_of_members(union):
        return None
    place, several = union.others.index(branch), len(union.others)
    return lambda value: (*[None] * place, value, *[None] * (several - place - 1))


def default_of(value: Any, kind: AvroType, at: str) -> Any:
    """Returns a default in JSON, in the form that pyarrow takes.

    Raises:
        Incompatible: it is not a value of the type.
    """
    try:
        return _of_json(value, kind, at)
    except Malformed:
        raise Incompatible(f"{at}: not written, and its default is not a value of {kind.describe()}") from None


def _of_json(value: Any, kind: AvroType, at: str) -> Any:
    if kind.kind == "union":
        for branch in kind.branches:  # a default may belong to any type of the union, as in today's Java
            with suppress(Malformed):
                found = _of_json(value, branch, at)
                member = None if found is None else member_of(branch, kind)
                return found if member is None else member(found)
        raise Malformed(at)
    if not _is_default(value, kind):
        raise Malformed(at)
    if kind.kind == "record":
        row = tuple(_of_json(value.get(one.name, one.default), one.type, at) for one in kind.fields)
        return row if kind.logical is None else variable_decimal(kind, at)(row)
    if kind.kind == "array" and kind.items:
        return [_of_json(one, kind.items, at) for one in value]
    if kind.kind == "map" and kind.items:
        return [(name, _of_json(one, kind.items, at)) for name, one in value.items()]
    if kind.kind in ("float", "double"):
        return _nearest(value, kind.kind, at)
    if kind.kind in ("bytes", "fixed"):
        value = value.encode("latin-1")
    convert = logical(kind, at)
    return value if convert is None else convert(value)


def _nearest(value: Any, kind: str, at: str) -> float:
    """Returns the float or double nearest to a number. The JSON format reads numbers in the same way."""
    with suppress(OverflowError):
        number = float(value)
        if isfinite(number):
            return number if kind == "double" else nearest_float(number, lambda: Decimal(getattr(value, "text", value)))
    raise Malformed(at)


def _is_default(value: Any, kind: AvroType) -> bool:
    """Returns whether a default in JSON may be a value of the type. Only the outermost type is compared."""
    if kind.kind in ("record", "map"):
        return isinstance(value, dict) and all(map(is_text, value))
    if kind.kind == "enum":
        return value in kind.symbols
    if kind.kind in ("bytes", "fixed"):
        fits = isinstance(value, str) and all(ord(c) < 256 for c in value)
        return fits and (kind.kind == "bytes" or len(value) == kind.size)
    if kind.kind in ("int", "long"):
        bits = 31 if kind.kind == "int" else 63
        return type(value) is int and -(2**bits) <= value < 2**bits
    if kind.kind in ("float", "double"):
        return type(value) in (int, Number)
    if kind.kind == "string":
        return is_text(value)
    return type(value) is {"null": type(None), "boolean": bool, "array": list}[kind.kind]
