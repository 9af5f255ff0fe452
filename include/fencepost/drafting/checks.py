"""Drafts the checks of a suite. Every check held for the sample. The checks are warnings, so they stop no batch before
a person has read them.

The checks are about single records. A sample says nothing about a batch's volume, and ids and times differ in every
batch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil, isfinite
from typing import Any

from fencepost.drafting.columns import OF_TIME, DraftColumn, Fields
from fencepost.formats.quoting import quoted

MOST_CHECKS = 20
MOST_OF_NULLS = 12  # the largest number of checks
MOST_VALUES = 20  # members of a set
LONGEST_VALUE = 64  # characters of a member
ENOUGH = 50  # the least number of values for a check of their contents
OFTEN = 0.01  # how often each member of a set has to be seen: this share of the values, and at least five times
# Words of names that identify somebody or something: each value belongs to one record, or is too private to write down.
OF_ONE = frozenset(
    "id ids uuid guid key email mail phone token password secret ssn iban ip user customer person name address card hash".split()
)


def draft_checks(fields: Fields) -> list[dict[str, Any]]:
    """Returns the checks in the form of `expectations.yaml`. There is at least one, and at most `MOST_CHECKS`. No
    description has a record's value.
    """
    columns = [
        column for column in fields.columns if re.fullmatch(r"\w+", column.output)
    ]  # other columns cannot be checked
    known = [column for column in columns if column.values and None not in column.values]
    found = list(_not_null(known, fields))[:MOST_OF_NULLS]
    sets = list(_sets(columns))
    found += sets[: MOST_CHECKS - len(found)]
    found += list(_not_below_zero(columns))[: MOST_CHECKS - len(found)]
    if not found:
        column = fields.columns[0].output
        found = [_check("expect_column_to_exist", "Nothing else is certain about the sample", column=column)]
    return found


def _check(kind: str, description: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "severity": "warning", "description": description, "kwargs": kwargs}


def _not_null(known: Sequence[DraftColumn], fields: Fields) -> Iterator[dict[str, Any]]:
    """Yields a check that the column is not null. The fields of tombstones are null. So if the sample has tombstones,
    only records with a value in another column are judged.
    """
    for column in known:
        where = {}
        if fields.tombstones:
            others = [other.output for other in known if other is not column][:2]
            if not others:
                continue
            where = {"row_condition": " OR ".join(f"{quoted(name)} IS NOT NULL" for name in others)}
        said = f"Null in 0 of {fields.good:,} sampled records"
        yield _check("expect_column_values_to_not_be_null", said, column=column.output, **where)


def _sets(columns: Sequence[DraftColumn]) -> Iterator[dict[str, Any]]:
    for column in columns:
        texts = [value for value in column.values if isinstance(value, str)]
        if len(texts) < ENOUGH or OF_ONE.union(OF_TIME).intersection(column.words):
            continue
        if any(value is not None and not isinstance(value, str) for value in column.values):
            continue
        seen = Counter(texts)
        often = max(5, ceil(OFTEN * len(texts)))
        if len(seen) > MOST_VALUES or min(seen.values()) < often or not all(map(_may_be_written, seen)):
            continue
        said = f"{len(seen)} values in {len(texts):,} sampled records, each in {min(seen.values()):,} or more"
        if len(seen) == 1:
            said = f"The only value in {len(texts):,} sampled records"
        yield _check("expect_column_values_to_be_in_set", said, column=column.output, value_set=sorted(seen))


def _may_be_written(value: str) -> bool:
    return len(value) <= LONGEST_VALUE and value.isprintable()


def _not_below_zero(columns: Sequence[DraftColumn]) -> Iterator[dict[str, Any]]:
    for column in columns:
        numbers = [value for value in column.values if value is not None]
        if len(numbers) < ENOUGH or OF_ONE.union(OF_TIME).intersection(column.words):
            continue
        if all(isinstance(v, int | float) and not isinstance(v, bool) and isfinite(v) and v >= 0 for v in numbers):
            said = f"Below zero in 0 of {len(numbers):,} sampled records"
            yield _check("expect_column_values_to_be_between", said, column=column.output, min_value=0)
