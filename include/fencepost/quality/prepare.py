"""Checks a declared expectation against the batch's columns, and translates its arguments to their units. Pure.

A mistake in a suite gives the same sentence on every batch, before any record is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from pydantic import JsonValue

from fencepost.suite.arguments import moment_of
from fencepost.suite.catalogue import BOUNDS, EXACT, EXPRESSION, KNOWN, REFUSED, TEXT, Entry, Kind, Scope
from fencepost.suite.declared import DeclaredExpectation
from fencepost.suite.numbers import decimal_of, exact_number, number_of
from fencepost.suite.numbers import shown as shown_number

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OF_TYPE = ("expect_column_values_to_be_of_type", "expect_column_values_to_be_in_type_list")
COLUMN_NAMES = ("column", "column_A", "column_B", "column_list")


class NotEvaluable(ValueError):
    """The expectation cannot be evaluated on this batch's columns. The message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An expectation that is ready to be evaluated. `condition` is its row_condition (Spark SQL).

    `expression` is the Spark SQL of `expect_expression_to_be_true`. The column `holds` has the expression's values,
    which are judged.
    """

    declared: DeclaredExpectation
    entry: Entry
    columns: tuple[str, ...]
    condition: str | None = None
    expression: str | None = None
    kwargs: Mapping[str, Any]

    @property
    def asked_type(self) -> str:
        """Returns the type that Great Expectations evaluates."""
        return self.declared.type if self.expression is None else "expect_column_values_to_be_in_set"

    @property
    def holds(self) -> str:
        """Returns the name of the column with the expression's values."""
        return f"_holds_{self.declared.index}"

    @property
    def regexes(self) -> tuple[str, ...]:
        """Returns the patterns among the expectation's arguments."""
        return tuple(self.kwargs.get("regex_list", ())) or tuple(filter(None, [self.kwargs.get("regex")]))


def prepare(declared: DeclaredExpectation, kinds: Mapping[str, Kind]) -> Prepared:
    """Checks one expectation against the columns and translates its arguments.

    Raises:
        NotEvaluable: the type is not known, or an argument does not fit the columns.
    """
    entry = known(declared.type)
    kwargs: dict[str, Any] = {name: value for name, value in declared.kwargs.items() if name != "row_condition"}
    one = Prepared(
        declared=declared,
        entry=entry,
        columns=_columns(kwargs),
        condition=_text(declared, "row_condition"),
        kwargs=kwargs,
    )
    if declared.type == EXPRESSION:
        asked: dict[str, JsonValue] = {"column": one.holds, "value_set": [True]}
        asked |= {name: value for name, value in declared.kwargs.items() if name == "mostly"}
        return replace(one, columns=(), expression=_text(declared, "expression"), kwargs=asked)
    if entry.scope is Scope.SCHEMA:
        if declared.type in OF_TYPE and "." not in str(kwargs["column"]):
            _refuse_unknown_columns(one.columns, kinds, checked=False)
        if kwargs.get("column_index") == 0:  # Great Expectations takes 0 for no index
            kwargs["column_index"] = -len(kinds)
        return replace(one, columns=(), condition=None)
    _refuse_unknown_columns(one.columns, kinds)
    _check_kinds(entry, one.columns, kinds)
    for name in entry.values:
        if kwargs.get(name) is not None:
            kwargs[name] = _in_units(kwargs[name], kinds[one.columns[0]], one.columns[0], name)
    for name in BOUNDS if entry.figure is not None and not entry.values else ():  # of a number or a share
        if name in kwargs:
            kwargs[name] = exact_number(kwargs[name])
    if "sum_total" in kwargs:
        total = kwargs["sum_total"] = exact_number(kwargs["sum_total"])
        whole = total == total.to_integral_value()
        if not whole and {kinds[column] for column in one.columns} == {Kind.INTEGER}:
            raise NotEvaluable(f"no sum of integers is {declared.kwargs['sum_total']}")
    return one


def known(name: str) -> Entry:
    """Returns the catalogue's entry for a type.

    Raises:
        NotEvaluable: the type cannot be used.
    """
    if name in KNOWN:
        return KNOWN[name]
    if name in REFUSED:
        raise NotEvaluable(f"this type cannot be used: {REFUSED[name]}")
    near = get_close_matches(name, KNOWN, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "docs/expectations.md lists the types that can be used"
    raise NotEvaluable(f"the type is unknown; {hint}")


def _columns(kwargs: Mapping[str, JsonValue]) -> tuple[str, ...]:
    found: list[str] = []
    for name in COLUMN_NAMES:
        value = kwargs.get(name)
        for column in value if isinstance(value, list) else [value]:
            if isinstance(column, str):
                found.append(column)
    return tuple(found)


def _text(declared: DeclaredExpectation, name: str) -> str | None:
    value = declared.kwargs.get(name)
    return value if isinstance(value, str) else None


def _refuse_unknown_columns(columns: tuple[str, ...], kinds: Mapping[str, Kind], *, checked: bool = True) -> None:
    """Raises NotEvaluable if a column does not exist. `checked` says that the column's values are checked, so its name
    has to be valid in Spark's SQL.
    """
    for column in columns:
        if column not in kinds:
            near = get_close_matches(column, kinds, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(kinds)}"
            raise NotEvaluable(f"there is no column {column}; {hint}")
        if checked and not re.fullmatch(r"\w+", column):
            raise NotEvaluable(f"column {column!r}: only letters, digits and _ are allowed in a checked column's name")


def _check_kinds(entry: Entry, columns: tuple[str, ...], kinds: Mapping[str, Kind]) -> None:
    for column in columns:
        if kinds[column] not in entry.kinds:
            takes = "text" if entry.kinds is TEXT else " or ".join(sorted(entry.kinds))
            raise NotEvaluable(f"it takes columns of {takes}; {column} is {kinds[column]}. Cast it in the transform")
    found = {kinds[column] for column in columns}
    if entry.alike and len(found) > 1 and found not in ({Kind.INTEGER, Kind.DECIMAL}, {Kind.DECIMAL, Kind.NUMBER}):
        listed = ", ".join(f"{c} is {kinds[c]}" for c in columns)
        raise NotEvaluable(f"it compares columns of one kind; {listed}. Cast one of them in the transform")


def _in_units(value: Any, kind: Kind, column: str, name: str) -> Any:
    """Returns a bound or a set's value in the units of the prepared column: days for dates, microseconds for times.

    For integers and decimals the result is exactly the written number. For doubles it is the nearest double, as in a
    record's JSON.
    """
    if isinstance(value, list):
        return [None if one is None else _in_units(one, kind, column, name) for one in value]
    if isinstance(value, dict):  # of quantiles
        return {**value, "value_ranges": _in_units(value["value_ranges"], kind, column, name)}
    wrong = NotEvaluable(f"{name}: {value!r} is not a {kind}, but column {column} is")
    if kind is Kind.TEXT and isinstance(value, str):
        return _whole_text(value, name)
    if kind is Kind.BOOLEAN and isinstance(value, bool):
        return value
    number = decimal_of(value) if kind is Kind.DECIMAL and isinstance(value, str) else number_of(value)
    if number is not None and kind is Kind.NUMBER:
        double = float(number)
        if name != "value_set" and not math.isfinite(double):
            raise NotEvaluable(f"{name}: no double of column {column} lies beyond {value!r}")
        return double
    if number is not None and kind in EXACT:
        if kind is Kind.DECIMAL or name != "value_set":
            return number
        if number == number.to_integral_value():
            return int(number)
        raise wrong
    if kind is Kind.DATE and isinstance(value, str):
        try:
            return (date.fromisoformat(value) - EPOCH.date()).days
        except ValueError:
            raise wrong from None
    if kind is Kind.TIMESTAMP and isinstance(value, str):
        try:
            return (moment_of(value) - EPOCH) // timedelta(microseconds=1)
        except ValueError:
            raise wrong from None
    raise wrong


def _whole_text(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotEvaluable(f"{name}: {value!r} has an unpaired surrogate, which no text has") from None
    return value


def shown(value: object, kind: Kind) -> object:
    """Returns a value in the column's units. Dates and times are shown as such, and a number has all its digits."""
    if isinstance(value, bool):
        return value
    try:
        if kind is Kind.DATE and isinstance(value, int):
            return (EPOCH.date() + timedelta(days=value)).isoformat()
        if kind is Kind.TIMESTAMP and isinstance(value, int):
            return (EPOCH + timedelta(microseconds=value)).isoformat().replace("+00:00", "Z")
    except OverflowError:  # Spark's years go beyond Python's 9999
        return value
    return shown_number(value)
