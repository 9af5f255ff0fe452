"""Decides which names are the same to Spark. Spark ignores case in the names of columns and fields.

Spark compares two names as Java's `equalsIgnoreCase` does, character by character: by the lower case of the upper case.
Spark finds duplicate names by Java's `toLowerCase`. Python's lower case differs from both: to Spark the Turkish dotless
i and dotted I are `i`, the long s is `s`, both small sigmas are equal, and the Kelvin sign is `k`.
"""

from __future__ import annotations

from collections.abc import Iterable

DOTTED = "i\u0307"  # two characters, which are the lower case of one: I with a dot


def without_case(name: str) -> str:
    """Returns the name in a form that is equal for two names if Spark takes them as the same."""
    upper = (character.upper() if len(character.upper()) == 1 else character for character in name)
    return "".join(character.lower()[0] for character in upper).replace(DOTTED, "i")


def twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Returns the first two different names that Spark takes as the same, or None. An exact repetition does not count."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(without_case(name), name)) != name:
            return other, name
    return None
