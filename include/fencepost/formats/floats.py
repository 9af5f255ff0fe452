"""Computes the nearest float of 32 bits from the nearest double."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal

LARGEST = 2.0**128 - 2.0**104
# Midway between the largest float and the next power of two: from there on, no float is nearest.
END = 2.0**128 - 2.0**103


def nearest_float(number: float, exact: Callable[[], Decimal]) -> float:
    """Returns the float nearest to the number that `exact` returns. `number` is the double nearest to the same number.

    `exact` is needed because the double may lie midway between two floats although the number does not.

    Raises:
        OverflowError: the number is larger than every float.
    """
    if abs(number) >= END:
        if abs(number) > END or exact().copy_abs() >= END:
            raise OverflowError
        return math.copysign(LARGEST, number)
    near: float = struct.unpack("<f", struct.pack("<f", number))[0]
    if number != near:
        away = 1 if abs(number) > abs(near) else -1
        (bits,) = struct.unpack("<i", struct.pack("<f", near))
        other: float
        (other,) = struct.unpack("<f", struct.pack("<I", (bits & 0x7FFFFFFF) + away | bits & 0x80000000))
        if number - near == other - number and (said := exact()) != number:
            return max(near, other) if said > number else min(near, other)
    return near
