"""Which names are one name to Spark, which tells columns and fields apart without regard to case.

Spark compares two names as Java's `equalsIgnoreCase` does, character by character: by the lower case of the upper case. It looks
for names that are there twice by Java's `toLowerCase`. Python's lower case alone is neither: to Spark the Turkish dotless i and
dotted I are `i`, the long s is `s`, both small sigmas are one, and the Kelvin sign is `k`.
"""

from __future__ import annotations

from collections.abc import Iterable

DOTTED = "i\u0307"  # two characters, which are the lower case of one: I with a dot


def without_case(name: str) -> str:
    """The name in the form in which names that are one to Spark are equal."""
    upper = (character.upper() if len(character.upper()) == 1 else character for character in name)
    return "".join(character.lower()[0] for character in upper).replace(DOTTED, "i")


def twins(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two of these names that are one to Spark; None if each is a name of its own. One name twice is none of these."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(without_case(name), name)) != name:
            return other, name
    return None
