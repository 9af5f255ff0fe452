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
    entry, condition = check_alone(declared, engine)
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
        return Prepared(declared=declared, entry=entry, columns=(), condition=None, for_pandas=kwargs, for_spark=kwargs)
    if not columns and entry.scope is not Scope.TABLE:
        raise NotEvaluable("its column is required but missing")
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
        expression=str(declared.kwargs["expression"]),
        for_pandas={},
        for_spark={},
    )
    asked: dict[str, JsonValue] = {"column": one.holds, "value_set": [True]}
    asked |= {name: value for name, value in declared.kwargs.items() if name == "mostly"}
    return one.model_copy(update={"for_pandas": asked, "for_spark": asked})


def check_alone(declared: Declared, engine: Literal["auto", "pandas", "spark"]) -> tuple[Entry | None, str | None]:
    """Check an expectation as far as that needs no columns; return its catalogue entry and its row_condition.

    Raises:
        NotEvaluable: the type is not proven, or an argument fits no column at all.
    """
    entry, condition, kwargs = known(declared.type, engine), condition_of(declared), declared.kwargs
    _columns(kwargs)
    if entry is None:
        return None, condition
    if declared.type == EXPRESSION:
        _check_expression(kwargs)
    if entry.scope is Scope.SCHEMA:
        if condition is not None:
            raise NotEvaluable("it looks at columns, not at records, so it takes no row_condition")
        if "type_" in kwargs and not isinstance(kwargs["type_"], str):
            raise NotEvaluable("type_ is required: the name of a Spark type, such as StringType")
        return entry, None
    _check_ignored_rows(entry, kwargs)
    if kwargs.get("allow_relative_error"):
        raise NotEvaluable("allow_relative_error is not allowed: quantiles are exact on both engines")
    if "strftime_format" in kwargs:
        _check_strftime(kwargs["strftime_format"])
    for name in REGEXES:
        _regexes(kwargs.get(name, []), python_regex)
    return entry, condition


def known(name: str, engine: Literal["auto", "pandas", "spark"]) -> Entry | None:
    """What is known about a type; None for an unproven one, which needs a named engine.

    Raises:
        NotEvaluable: the type may not be used.
    """
    entry = PROVEN.get(name)
    if entry is None and (engine == "auto" or not _exists_on(name, engine)):
        raise NotEvaluable(_why_not(name))
    return entry


def condition_of(declared: Declared) -> str | None:
    """Its row_condition, Spark SQL.

    Raises:
        NotEvaluable: it is no text.
    """
    condition = declared.kwargs.get("row_condition")
    if condition is not None and (not isinstance(condition, str) or not condition.strip()):
        raise NotEvaluable(f"row_condition is a Spark SQL condition, such as \"origin = 'JFK'\"; found {condition!r}")
    return condition


def _check_expression(kwargs: Mapping[str, JsonValue]) -> None:
    for name in kwargs:
        if name not in {"expression", "mostly", "row_condition"}:
            raise NotEvaluable(f"{name}: unknown argument; allowed here are expression, row_condition and mostly")
    expression = kwargs.get("expression")
    if not isinstance(expression, str) or not expression.strip():
        raise NotEvaluable(
            f'expression is a condition in Spark SQL, such as "arrived >= departed"; found {expression!r}'
        )


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
            elif column is not None:
                raise NotEvaluable(f"{name}: expected a column's name; found {column!r}")
    return tuple(found)


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


def _check_ignored_rows(entry: Entry, kwargs: Mapping[str, JsonValue]) -> None:
    declared = kwargs.get("ignore_row_if", entry.ignore_row_if[0] if entry.ignore_row_if else None)
    if entry.ignore_row_if and (declared not in entry.ignore_row_if or declared is None):
        allowed = " or ".join(str(name) for name in entry.ignore_row_if if name)
        raise NotEvaluable(f"pandas and Spark treat nulls here alike only with ignore_row_if: {allowed}")


def _check_strftime(template: JsonValue) -> None:
    try:
        datetime.strptime(datetime.now(UTC).strftime(str(template)), str(template))  # noqa: DTZ007
    except ValueError as error:
        raise NotEvaluable(f"strftime_format {template!r} cannot parse a time: {error}") from None


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
        if name != "value_set":
            return _exact(value, name)
        if kind is Kind.NUMBER:
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
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise wrong from None
        aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return (aware - EPOCH) // timedelta(microseconds=1)
    raise wrong


def _exact(bound: int | float, name: str) -> int | float:
    """Great Expectations turns every bound into a double; beyond 2**53 the engines round it differently."""
    if isinstance(bound, int) and abs(bound) > 2**53:
        raise NotEvaluable(f"{name}: {bound} is beyond 2**53, where Great Expectations cannot compare exactly")
    return bound


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
    if not isinstance(value, str):
        raise NotEvaluable(f"expected a regex as text; found {value!r}")
    return translate(value)


LEADING_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")


def python_regex(pattern: str) -> str:
    r"""The pattern for Python, read as Java reads it: \d, \w, \s and \b mean ASCII."""
    flags, rest = _split(pattern)
    return f"(?a{flags}:{rest})"


def java_regex(pattern: str) -> str:
    """The pattern for Spark, read as Python reads it: only a newline ends a line."""
    flags, rest = _split(pattern)
    return f"(?d{flags}:{rest})"


def _split(pattern: str) -> tuple[str, str]:
    found = LEADING_FLAGS.match(pattern)
    flags, rest = (found.group(1), pattern[found.end() :]) if found else ("", pattern)
    if set(flags) - set("imsx") or "(?P" in rest:
        raise NotEvaluable(f"regex {pattern!r}: use only what Python and Java share: flags i m s x, no (?P...) groups")
    try:
        re.compile(f"(?a{flags}:{rest})")
    except re.error as error:
        raise NotEvaluable(f"regex {pattern!r} is not valid: {error}") from None
    return flags, rest
