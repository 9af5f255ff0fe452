"""Turns a declared expectation into a question for each engine: checked against the columns, and in their units. Pure.

It settles or refuses what the two engines would treat differently, before any record is read. So a mistake in a suite gives the
same clear sentence on every batch and on both engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from typing import Literal

from pydantic import JsonValue

from fencepost.model import Frozen
from fencepost.quality.arguments import moment_of, split_regex
from fencepost.quality.catalogue import EXPRESSION, ONE_ENGINE_ONLY, PROVEN, Entry, Kind, Scope
from fencepost.quality.suite import Declared

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMN_NAMES = ("column", "column_A", "column_B", "column_list")
REGEXES = ("regex", "regex_list")


class NotEvaluable(ValueError):
    """The expectation cannot be evaluated on this batch's columns. The message says why and what to do."""


class Prepared(Frozen):
    """One expectation, ready. `condition` is its row_condition (Spark SQL); `entry` is None for unproven types.

    `expression` is the Spark SQL of `expect_expression_to_be_true`: Great Expectations judges its values, in the column
    `holds`.
    """

    declared: Declared
    entry: Entry | None
    columns: tuple[str, ...]
    condition: str | None
    expression: str | None = None
    for_pandas: dict[str, JsonValue]
    for_spark: dict[str, JsonValue]

    @property
    def asked_type(self) -> str:
        """The type that Great Expectations evaluates."""
        return self.declared.type if self.expression is None else "expect_column_values_to_be_in_set"

    @property
    def holds(self) -> str:
        """The name of the column with the expression's values."""
        return f"_holds_{self.declared.index}"

    @property
    def scope(self) -> Scope | None:
        """What it looks at; None if the type is unknown here."""
        return self.entry.scope if self.entry else None


def prepare(declared: Declared, kinds: Mapping[str, Kind], engine: Literal["auto", "pandas", "spark"]) -> Prepared:
    """Check one expectation against the columns and translate its arguments.

    Raises:
        NotEvaluable: the type is not proven, or an argument does not fit the columns.
    """
    entry = known(declared.type, engine)
    condition = _text(declared, "row_condition")
    kwargs = {name: value for name, value in declared.kwargs.items() if name != "row_condition"}
    columns = _columns(kwargs)
    if declared.type == EXPRESSION:
        return _of_expression(declared, entry, condition)
    if entry is None:
        _refuse_unknown_columns(columns, kinds)
        return Prepared(
            declared=declared, entry=None, columns=columns, condition=condition, for_pandas=kwargs, for_spark=kwargs
        )
    if entry.scope is Scope.SCHEMA:
        if kwargs.get("column_index") == 0:  # Great Expectations takes 0 for no index
            kwargs["column_index"] = -len(kinds)
        return Prepared(declared=declared, entry=entry, columns=(), condition=None, for_pandas=kwargs, for_spark=kwargs)
    _refuse_unknown_columns(columns, kinds)
    _check_kinds(entry, columns, kinds)
    for name in entry.values:
        if kwargs.get(name) is not None:
            kwargs[name] = _in_units(kwargs[name], kinds[columns[0]], f"{columns[0]}", name)
    return Prepared(
        declared=declared,
        entry=entry,
        columns=columns,
        condition=condition,
        for_pandas={k: _regexes(v, python_regex) if k in REGEXES else v for k, v in kwargs.items()},
        for_spark={k: _regexes(v, java_regex) if k in REGEXES else v for k, v in kwargs.items()},
    )


def _of_expression(declared: Declared, entry: Entry | None, condition: str | None) -> Prepared:
    one = Prepared(
        declared=declared,
        entry=entry,
        columns=(),
        condition=condition,
        expression=_text(declared, "expression"),
        for_pandas={},
        for_spark={},
    )
    asked: dict[str, JsonValue] = {"column": one.holds, "value_set": [True]}
    asked |= {name: value for name, value in declared.kwargs.items() if name == "mostly"}
    return one.model_copy(update={"for_pandas": asked, "for_spark": asked})


def known(name: str, engine: Literal["auto", "pandas", "spark"]) -> Entry | None:
    """What is known about a type; None for an unproven one, which needs a named engine.

    Raises:
        NotEvaluable: the type may not be used.
    """
    entry = PROVEN.get(name)
    if entry is None and (engine == "auto" or not _exists_on(name, engine)):
        raise NotEvaluable(_why_not(name))
    return entry


def _exists_on(name: str, engine: str) -> bool:
    """Whether an unproven type may be tried on an engine that was named: not known to be missing there."""
    return name not in ONE_ENGINE_ONLY or (engine == "pandas" and "engine: pandas" in ONE_ENGINE_ONLY[name])


def _why_not(name: str) -> str:
    if name in ONE_ENGINE_ONLY:
        return f"this type cannot be used: {ONE_ENGINE_ONLY[name]}"
    near = _alike(name)
    return (
        f"the type is unknown, or not known to give one answer on pandas and on Spark{f'; {near}' if near else '.'} "
        "A type of Great Expectations beyond those needs its engine named (quality.engine: pandas or spark)"
    )


def unknown_type(name: str) -> str:
    """The message about an unknown type."""
    return f"Great Expectations has no such type; {_alike(name) or 'docs/expectations.md lists the proven ones'}"


def _alike(name: str) -> str:
    """A question with the proven types of a similar name; empty if there is none."""
    near = get_close_matches(name, PROVEN, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


def _columns(kwargs: Mapping[str, JsonValue]) -> tuple[str, ...]:
    found: list[str] = []
    for name in COLUMN_NAMES:
        value = kwargs.get(name)
        for column in value if isinstance(value, list) else [value]:
            if isinstance(column, str):
                found.append(column)
    return tuple(found)


def _text(declared: Declared, name: str) -> str | None:
    value = declared.kwargs.get(name)
    return value if isinstance(value, str) else None


def _refuse_unknown_columns(columns: tuple[str, ...], kinds: Mapping[str, Kind]) -> None:
    for column in columns:
        if column not in kinds:
            near = get_close_matches(column, kinds, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(kinds)}"
            raise NotEvaluable(f"there is no column {column}; {hint}")
        if not re.fullmatch(r"\w+", column):
            raise NotEvaluable(f"column {column!r}: only letters, digits and _ are allowed in a checked column's name")


def _check_kinds(entry: Entry, columns: tuple[str, ...], kinds: Mapping[str, Kind]) -> None:
    for column in columns:
        if kinds[column] not in entry.kinds:
            takes = " or ".join(sorted(entry.kinds))
            raise NotEvaluable(f"it takes columns of {takes}; {column} is {kinds[column]}. Cast it in the transform")
    found = {kinds[column] for column in columns}
    if entry.alike and len(found) > 1:
        listed = ", ".join(f"{c} is {kinds[c]}" for c in columns)
        raise NotEvaluable(f"it compares columns of one kind; {listed}. Cast one of them in the transform")


def _in_units(value: JsonValue, kind: Kind, column: str, name: str) -> JsonValue:
    """A bound or set value in the units of the prepared column: days for dates, microseconds for times."""
    if isinstance(value, list):
        return [_in_units(one, kind, column, name) for one in value]
    wrong = NotEvaluable(f"{name}: {value!r} is not a {kind}, but column {column} is")
    if kind is Kind.TEXT and isinstance(value, str):
        return value
    if kind is Kind.BOOLEAN and isinstance(value, bool):
        return value
    if kind in (Kind.INTEGER, Kind.NUMBER) and isinstance(value, int | float) and not isinstance(value, bool):
        if kind is Kind.NUMBER or name != "value_set":
            return value
        if float(value).is_integer():
            return int(value)
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


def shown(value: object, kind: Kind) -> object:
    """A value in the column's units, for a person: dates and times again."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        if kind is Kind.DATE:
            return (EPOCH.date() + timedelta(days=int(value))).isoformat()
        if kind is Kind.TIMESTAMP:
            return (EPOCH + timedelta(microseconds=int(value))).isoformat().replace("+00:00", "Z")
    except OverflowError:  # Spark's years go beyond Python's 9999
        return value
    return int(value) if kind is Kind.INTEGER and float(value).is_integer() else value


def _regexes(value: JsonValue, translate: Callable[[str], str]) -> JsonValue:
    if isinstance(value, list):
        return [_regexes(one, translate) for one in value]
    return translate(str(value))


def python_regex(pattern: str) -> str:
    r"""The pattern for Python, read as Java reads it: \d, \w, \s and \b mean ASCII."""
    flags, rest = split_regex(pattern)
    return f"(?a{flags}:{rest})"


def java_regex(pattern: str) -> str:
    """The pattern for Spark, read as Python reads it: only a newline ends a line."""
    flags, rest = split_regex(pattern)
    return f"(?d{flags}:{rest})"
