"""Reads numbers exactly as they are written, without rounding them to a double. The numbers are bounds, members of
sets, shares and tolerances.

Readers of JSON and YAML make a double of `0.29` and of a number with thirty digits. A double stands for its shortest
text, which is the written text if that has up to fifteen digits. A large double stands for the whole number that it
equals. For any other number the text is kept, and `NumberWithText` carries it from the YAML file into the suite.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

NUMERAL = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
WHOLE = 2**53  # from here on every double is a whole number
LONGEST = 400  # digits before or behind the point: a double has no more before it
DIGITS_SHOWN = 60  # digits of a number that is shown whole


class NumberWithText(float):
    """A double with the text that it was read from. The text is the exact number, and the double is not."""

    text: str


def written(value: float, text: str) -> float:
    """Returns the double that was read from a text. The double keeps the text if it stands for another number."""
    if decimal_of(text) == _of_double(value):
        return value
    found = NumberWithText(value)
    found.text = text
    return found


def as_json(value: float) -> float | str:
    """Returns the number for JSON, as a double or as its text.

    Raises:
        ValueError: the number has more digits than any column holds.
    """
    if not isinstance(value, NumberWithText):
        return value
    if decimal_of(value.text) is None:
        raise ValueError(f"a number with more than {LONGEST} digits before or behind its point")
    return value.text


def number_of(value: object) -> Decimal | None:
    """Returns the exact number of an argument, or None if the argument is not a number. A text is accepted only if no
    double can stand for its number.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal | int):
        return Decimal(value)
    if isinstance(value, float):
        return decimal_of(value.text) if isinstance(value, NumberWithText) else _of_double(value)
    number = decimal_of(value) if isinstance(value, str) else None
    return number if number is not None and number != _of_double(float(number)) else None


def exact_number(value: object) -> Decimal:
    """Returns the exact number of an argument.

    Raises:
        ValueError: the argument is not a number.
    """
    number = number_of(value)
    if number is None:
        raise ValueError("expected a number")
    return number


def _of_double(value: float) -> Decimal | None:
    """Returns the number that a double stands for, or None if the double is not finite."""
    if not math.isfinite(value):
        return None
    return Decimal(int(value)) if abs(value) >= WHOLE else Decimal(repr(value))


def decimal_of(text: str) -> Decimal | None:
    """Returns the exact number in a text. Returns None if the text is not a number, or has too many digits for any
    column.
    """
    if not NUMERAL.fullmatch(text):
        return None
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "a numeral is finite"
    return number if number.adjusted() <= LONGEST and exponent >= -2 * LONGEST else None


def shown(value: Any) -> Any:
    """Returns a number for JSON with all of its digits. The result is an integer, a double whose text is the number, or
    a text.

    A fraction whose digits never end becomes the nearest double.
    """
    if isinstance(value, Fraction):
        terminating = _terminating(value)
        if terminating is None:
            return float(value)
        value = terminating
    if not isinstance(value, Decimal):
        return value
    if value == value.to_integral_value():
        return int(value)
    near = float(value)
    return near if _of_double(near) == value else f"{value:f}"


def _terminating(value: Fraction) -> Decimal | None:
    """Returns the fraction as a decimal. Returns None if its digits never end, or are too many to be read."""
    rest, places = value.denominator, 0
    while rest > 1 and places < DIGITS_SHOWN:
        rest //= math.gcd(rest, 10)
        places += 1
        if math.gcd(rest, 10) == 1:
            break
    if rest > 1:
        return None
    scaled = value.numerator * 10**places // value.denominator
    return Decimal((int(scaled < 0), tuple(map(int, str(abs(scaled)))), -places))
