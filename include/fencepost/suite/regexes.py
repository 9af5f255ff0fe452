"""Checks regexes when a suite is loaded, before a Java is available. The check finds regexes that are surely wrong, and
regexes that match everything or nothing.

Spark reads a regex as Java does. So a refusal of Python's parser counts only if Java refuses the regex too. Python's
parser proves that a pattern matches every text, or none, only from constructs that mean the same in both languages. Any
other pattern is accepted.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

# Constructs that Java has, and that Python lacks or reads differently: only Java can say whether such a pattern is
# valid.
JAVAS_OWN = re.compile(
    r"\\[pPhHRQEGXkze]|\\x\{|&&|\[[^]]*\[|.\(\?[a-zA-Z-]+\)|\(\?[imsx-]*[duU]|\(\?<[a-zA-Z]|[*+?}]\+", re.DOTALL
)
# Python's messages for what is also a mistake in Java. A `{` may follow a repeat there.
WRONG_TO_BOTH = (
    "missing ), unterminated subpattern", "unbalanced parenthesis", "unterminated character set",
    "bad escape (end of pattern)", "min repeat greater than max repeat",
)  # fmt: skip
REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT)
COMPLEMENTS = (
    {c.CATEGORY_DIGIT, c.CATEGORY_NOT_DIGIT}, {c.CATEGORY_SPACE, c.CATEGORY_NOT_SPACE}, {c.CATEGORY_WORD, c.CATEGORY_NOT_WORD},
)  # fmt: skip
ENDS_OF_LINES = "\n\r\u0085\u2028\u2029"
STARTS, ENDS = (c.AT_BEGINNING, c.AT_BEGINNING_STRING), (c.AT_END, c.AT_END_STRING)


def check_regex(pattern: str) -> str:
    """Returns the pattern if it may be valid in Java and does not match everything or nothing.

    Raises:
        ValueError: the pattern is not a regex, or it matches every text, or no text.
    """
    if not pattern:
        raise ValueError("expected a regex that is not empty: an empty one matches everything")
    if "(?P" in pattern:
        raise ValueError(
            f"regex {pattern!r}: Spark reads a regex as Java does, and a named group is (?<name>...) there"
        )
    if JAVAS_OWN.search(pattern):
        return pattern
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about sets within sets
            parsed = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        if _is_wrong_to_java(error, pattern):
            raise ValueError(f"regex {pattern!r} is not valid: {error}") from None
        return pattern
    dotall = bool(parsed.state.flags & re.DOTALL)
    if any(_passes(parsed, {place}, dotall) for place in ("start", "end")):
        raise ValueError(f"regex {pattern!r} matches every text")
    if not parsed.state.flags & re.MULTILINE and _matches_nothing(parsed):
        raise ValueError(f"regex {pattern!r} matches no text")
    return pattern


def _is_wrong_to_java(error: Exception, pattern: str) -> bool:
    if not isinstance(error, re.error):
        return True
    if error.msg == "nothing to repeat":
        return pattern[: error.pos][-1:] in {"", "(", "|"}
    if error.msg == "multiple repeat":
        return "{" not in pattern
    if error.msg.startswith("bad character range"):
        return "\\" not in error.msg
    return error.msg in WRONG_TO_BOTH


def _passes(items: Iterable[Any], places: set[str], dotall: bool) -> bool:
    """Returns whether these items match at the start of any text, or at its end. `places` says where the match begins.
    The function changes `places` to where the match may be after the items.
    """
    for kind, of in items:
        if kind is c.AT:
            wanted = {"start"} if of in STARTS else {"end"} if of in ENDS else set[str]()
            if not places & wanted:
                return False
            places &= wanted
        elif kind is c.SUBPATTERN:
            _, added, removed, inner = of
            within = (dotall or bool(added & re.DOTALL)) and not removed & re.DOTALL
            if not _passes(inner, places, within):
                return False
        elif kind is c.BRANCH:
            behind = [set(places) for _ in of[1]]
            ways = [now for now, way in zip(behind, of[1], strict=True) if _passes(way, now, dotall)]
            if not ways:
                return False
            places.clear()
            places.update(*ways)
        elif kind in REPEATS and of[0] == 0:
            if _is_any(of[2], dotall) and of[1] is c.MAXREPEAT and "start" in places:
                places.add("end")
        elif kind in REPEATS:
            if not _passes(of[2], places, dotall):
                return False
        else:
            return False
    return True


def _is_any(items: Any, dotall: bool) -> bool:
    """Returns whether these items match any single character."""
    if len(items) != 1:
        return False
    ((kind, of),) = items
    if kind is c.SUBPATTERN:
        return _is_any(of[3], (dotall or bool(of[1] & re.DOTALL)) and not of[2] & re.DOTALL)
    return (kind is c.ANY and dotall) or (kind is c.IN and of[0][0] is not c.NEGATE and _has_complements(of))


def _has_complements(members: Iterable[Any]) -> bool:
    categories = {of for kind, of in members if kind is c.CATEGORY}
    return any(both <= categories for both in COMPLEMENTS)


def _matches_nothing(items: Iterable[Any]) -> bool:
    """Returns whether these items surely match nothing. Examples are an empty set, `(?!)`, a start after a character,
    and a character after the end.
    """
    behind = False  # a character that is consumed
    at: set[Any] = set()  # an assertion about the present place
    for kind, of in items:
        if kind is c.IN:
            if of[0][0] is c.NEGATE and _has_complements(of):
                return True
            behind, at = True, set()
        elif kind in (c.LITERAL, c.NOT_LITERAL, c.ANY):
            if kind is c.LITERAL and at & set(ENDS) and chr(of) not in ENDS_OF_LINES:
                return True
            behind, at = True, set()
        elif kind is c.AT:
            at.add(of)
            if (behind and of in STARTS) or {c.AT_BOUNDARY, c.AT_NON_BOUNDARY} <= at:
                return True
            continue
        elif kind is c.FAILURE or (kind is c.ASSERT_NOT and not of[1]):
            return True
        elif kind is c.SUBPATTERN:
            if not of[1] & re.MULTILINE and _matches_nothing(of[3]):
                return True
        elif kind is c.BRANCH:
            if all(map(_matches_nothing, of[1])):
                return True
        elif kind in REPEATS and of[0] > 0 and _matches_nothing(of[2]):
            return True
        if kind in (c.SUBPATTERN, c.BRANCH, *REPEATS):
            at = set()
    return False
