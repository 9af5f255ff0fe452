"""Reads a pipeline's suite from the content of `expectations.yaml`. It returns a frozen value, or raises an error that
names the fix.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import date, datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from fencepost.errors import SettingsError
from fencepost.model import Frozen
from fencepost.suite.catalogue import HISTORY, KNOWN, ROW_BY_ROW, Scope, arguments_of
from fencepost.suite.numbers import as_json

FIELDS = ("type", "severity", "description", "kwargs")

# Arguments of Great Expectations that would bypass the gate, or that have no meaning here.
REFUSED_KWARGS = {
    "severity": "write severity beside type, not inside kwargs",
    "result_format": "counts and a capped sample are always reported",
    "catch_exceptions": "a check that raises makes the verdict undetermined",
    "condition_parser": "row_condition is always Spark SQL here",
    "batch_id": "a suite always judges its own batch",
    "meta": "write description beside type",
    "notes": "write description beside type",
    "id": "expectations are numbered in the order of the file",
}
# A receipt counts rows by rule, and has to fit into an offset's metadata.
MOST_RULES = 100


class Severity(StrEnum):
    """A failed check of severity `critical` rejects the batch. A failed check of severity `warning` is only reported.

    A rule of severity `quarantine` belongs to the write step. A row that fails it goes to the quarantine topic, and not
    to the output.
    """

    CRITICAL = "critical"
    WARNING = "warning"
    QUARANTINE = "quarantine"


# These compare the records of a batch with each other.
UNIQUE = {"expect_column_values_to_be_unique", "expect_compound_columns_to_be_unique"}


class DeclaredExpectation(Frozen):
    """One expectation as declared. `index` counts from 0 in the order of the file."""

    index: int = Field(ge=0)
    type: str = Field(min_length=1)
    severity: Severity = Severity.CRITICAL
    description: str = ""
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def title(self) -> str:
        """Returns the type with its columns, as `expect_column_values_to_not_be_null(carrier)`."""
        names: list[str] = []
        for key in ("column", "column_A", "column_B", "column_list"):
            value = self.kwargs.get(key)
            names += [str(v) for v in value] if isinstance(value, list) else [str(value)] if value is not None else []
        return f"{self.type}({', '.join(names)})" if names else self.type

    @property
    def needs_whole_batch(self) -> bool:
        """Returns whether the expectation is about all records of a batch together, such as a count, an aggregate or
        history. A part of a batch cannot be judged by such an expectation.
        """
        entry = KNOWN.get(self.type)
        of_all = entry is not None and entry.scope in {Scope.COLUMN, Scope.TABLE}
        return of_all or self.type in UNIQUE or self.type in HISTORY


class Suite(Frozen):
    """All expectations of a pipeline, in the order of the file, and the SHA-256 of their content."""

    expectations: tuple[DeclaredExpectation, ...]
    digest: str

    @property
    def rules(self) -> tuple[DeclaredExpectation, ...]:
        """Returns the expectations of severity `quarantine`. A rule's number is its position among them."""
        return tuple(e for e in self.expectations if e.severity is Severity.QUARANTINE)

    def has(self, kind: str) -> bool:
        """Returns whether an expectation of that type is declared."""
        return any(declared.type == kind for declared in self.expectations)

    @classmethod
    def of(cls, expectations: tuple[DeclaredExpectation, ...]) -> Suite:
        """Returns a suite with its digest. Comments and layout of the file do not change the digest, and the order
        does.
        """
        text = json.dumps([e.model_dump(mode="json") for e in expectations], sort_keys=True)
        return cls(expectations=expectations, digest=hashlib.sha256(text.encode()).hexdigest())

    @property
    def looks_back(self) -> bool:
        """Returns whether a check compares the batch with earlier batches."""
        return any(map(self.has, HISTORY))


def suite_of(content: object, file: Path) -> Suite:
    """Returns the suite in the content of a YAML file. `file` is its name for messages.

    It refuses an empty suite, a duplicate declaration, and arguments with which a check could not fail, because each
    would pass silently. It also refuses a rule of severity `quarantine` that does not judge each row by itself. The
    plan step checks whether a type exists.

    Raises:
        SettingsError: names file, field, the value and what is allowed.
    """
    if not isinstance(content, dict) or set(content) != {"expectations"}:
        found = ", ".join(map(str, content)) if isinstance(content, dict) else _shown(content)
        raise SettingsError(f"{file}: expected a mapping with one field, expectations (found {found or 'nothing'}).")
    entries = content["expectations"]
    if not isinstance(entries, list):
        raise SettingsError(f"{file}: expectations: expected a list (found {_shown(entries)}).")
    if not entries:
        raise SettingsError(f"{file}: expectations: empty, so everything would pass; declare at least one.")
    declared = tuple(_read_one(entry, index, file) for index, entry in enumerate(entries))
    seen: dict[str, int] = {}
    for one in declared:
        text = json.dumps([one.type, one.kwargs], sort_keys=True)
        if text in seen:
            raise SettingsError(
                f"{file}: expectations.{one.index}: {one.title} is the same as expectations.{seen[text]}; "
                "remove one of them."
            )
        seen[text] = one.index
    suite = Suite.of(declared)
    if len(suite.rules) > MOST_RULES:
        raise SettingsError(f"{file}: {len(suite.rules)} rules of severity quarantine; allowed are {MOST_RULES}.")
    return suite


def _read_one(entry: object, index: int, file: Path) -> DeclaredExpectation:
    where = f"{file}: expectations.{index}"
    if not isinstance(entry, dict):
        raise SettingsError(f"{where}: expected a mapping with {', '.join(FIELDS)} (found {_shown(entry)}).")
    for field in entry:
        if field not in FIELDS:
            near = get_close_matches(str(field), FIELDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{where}.{field}: unknown field; allowed here are {', '.join(FIELDS)}{hint}.")
    kind = entry.get("type")
    if not isinstance(kind, str) or not kind.startswith("expect_"):
        raise SettingsError(f"{where}.type: expected the name of an expectation, expect_... (found {_shown(kind)}).")
    severity = entry.get("severity", Severity.CRITICAL.value)
    if severity not in list(Severity):
        raise SettingsError(f"{where}.severity: allowed are {', '.join(Severity)} (found {_shown(severity)}).")
    description = entry.get("description", "")
    if not isinstance(description, str):
        raise SettingsError(f"{where}.description: expected a text (found {_shown(description)}).")
    kwargs = entry.get("kwargs", {})
    if not isinstance(kwargs, dict):
        raise SettingsError(f"{where}.kwargs: expected a mapping (found {_shown(kwargs)}).")
    plain = {_name(k, where): _plain(v, f"{where}.kwargs.{k}") for k, v in kwargs.items()}
    _check_arguments(kind, plain, f"{where} ({kind}): kwargs")
    if severity == Severity.QUARANTINE:
        _refuse_what_judges_no_row(kind, plain, where)
    return DeclaredExpectation(
        index=index, type=kind, severity=Severity(severity), description=description.strip(), kwargs=plain
    )


def _check_arguments(kind: str, kwargs: dict[str, JsonValue], where: str) -> None:
    """Refuses arguments that the type does not accept. The arguments are checked before anything is planned, for every
    severity.
    """
    model = arguments_of(kind)
    for name, value in kwargs.items():
        if name in REFUSED_KWARGS:
            raise SettingsError(f"{where}.{name}: not allowed: {REFUSED_KWARGS[name]}.")
        if value is None:
            raise SettingsError(f"{where}.{name}: left empty; give a value, or leave the argument out.")
    try:
        model.model_validate(kwargs)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = "".join(f".{part}" for part in first["loc"])
        allowed = ", ".join(sorted(model.model_fields, key=lambda name: not model.model_fields[name].is_required()))
        match first["type"]:
            case "missing":
                said = f"required but missing; the arguments are {allowed}"
            case "extra_forbidden":
                said = f"unknown argument; allowed are {allowed}"
            case _:
                found = f" (found {_shown(first['input'])})" if field else ""
                said = first["msg"].removeprefix("Value error, ") + found
        raise SettingsError(f"{where}{field}: {said}.") from None


def _refuse_what_judges_no_row(kind: str, kwargs: dict[str, JsonValue], where: str) -> None:
    """Refuses a rule that cannot judge a single row. The write step gets one row at a time, and writes it either to the
    output or to quarantine.
    """
    if kind not in ROW_BY_ROW:
        raise SettingsError(
            f"{where}.severity: quarantine is for checks of a single row: {', '.join(sorted(ROW_BY_ROW))} (found {kind}). "
            "Use critical or warning."
        )
    if "mostly" in kwargs:
        raise SettingsError(
            f"{where}.kwargs.mostly: not allowed with severity: quarantine, which judges every row. quality.quarantine_limit in "
            "pipeline.yaml says how many may fail."
        )


def _plain(value: Any, where: str) -> JsonValue:
    """Returns YAML's value as JSON, with dates and times as ISO text. It refuses a value that JSON cannot hold."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return {_name(k, where): _plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, list | set | tuple):
        return [_plain(v, f"{where}.{i}") for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{where}: {value} is not a number that can be compared; leave the bound out instead.")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SettingsError(f"{where}: {value!r} has an unpaired surrogate, which no text has.") from None
    if isinstance(value, float):
        try:
            return as_json(value)
        except ValueError as error:
            raise SettingsError(f"{where}: {error}.") from None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise SettingsError(f"{where}: expected text, number, boolean, date, list or mapping (found {_shown(value)}).")


def _name(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise SettingsError(f"{where}: field names are texts (found {_shown(key)}); quote it.")
    return key


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def rule_names(rules: Sequence[DeclaredExpectation]) -> tuple[str, ...]:
    """Returns the name of each rule in headers and counts. The name is the rule's title, with a number if several rules
    have the same title.
    """
    seen: dict[str, int] = {}
    names = []
    for rule in rules:
        seen[rule.title] = number = seen.get(rule.title, 0) + 1
        names.append(rule.title if number == 1 else f"{rule.title} #{number}")
    return tuple(names)


def reason_of(rule: DeclaredExpectation) -> str:
    """Returns why a row that fails the rule is in quarantine."""
    return rule.description or rule.title
