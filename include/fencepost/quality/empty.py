"""What each expectation says of a batch without records, by our own arithmetic.

Great Expectations takes seconds to import, and its two engines differ most where there is nothing: this is what both say
once differences are settled, as `tests/integration/quality/test_empty_batches.py` shows for every proven type.

| looks at | on no records |
|---|---|
| the number of records, the set of a column's distinct values | judged: 0, and the empty set |
| single records, or a figure that needs a value (a mean, a share) | nothing to judge: passes, and says so |
| the columns' names and types | judged where they are known; nothing to judge where the transform was not run |
"""

from __future__ import annotations

from typing import Literal

from fencepost.quality.catalogue import OfNone, Scope
from fencepost.quality.checks import CheckResult
from fencepost.quality.prepare import NotEvaluable, condition_of, known
from fencepost.quality.suite import Declared

NO_COLUMNS = "there was nothing to read, so the transform was not run and its columns are not known"
BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")


def on_no_records(declared: Declared, engine: Literal["auto", "pandas", "spark"]) -> CheckResult:
    """The result of an expectation of Great Expectations on no records; errored where it cannot be evaluated at all."""
    try:
        entry = known(declared.type, engine)
        condition_of(declared)
        if entry is None or entry.scope in {Scope.RECORD, Scope.RECORDS}:
            return CheckResult.idle(declared, element_count=0, missing_count=0, unexpected_count=0)
        if entry.scope is Scope.SCHEMA:
            return CheckResult.idle(declared, observed={"not judged": NO_COLUMNS})
        match entry.of_none:
            case OfNone.NUMBER:
                return CheckResult.judged(declared, _allows_none(declared, column=entry.scope is Scope.COLUMN), 0)
            case OfNone.SET:
                _check_arguments(declared, ("column", "value_set"), required=("column", "value_set"))
                return CheckResult.judged(declared, entry.holds_for_none, [])
            case _:
                return CheckResult.idle(declared)
    except NotEvaluable as error:
        return CheckResult.errored(declared, str(error))


def _allows_none(declared: Declared, *, column: bool) -> bool:
    """Whether 0 is the number asked for, or lies within the bounds."""
    needed = ("column",) if column else ()
    if declared.type.endswith("_to_equal"):
        _check_arguments(declared, ("value",), required=("value",))
        return _whole(declared, "value") == 0
    _check_arguments(declared, (*needed, *BOUNDS), required=needed)
    low, high = _whole(declared, "min_value"), _whole(declared, "max_value")
    if not column and low is not None and high is not None and low > high:
        raise NotEvaluable(f"min_value ({low}) lies above max_value ({high})")
    above = low is None or low < 0 or (low == 0 and not _flag(declared, "strict_min"))
    below = high is None or high > 0 or (high == 0 and not _flag(declared, "strict_max"))
    return above and below


def _check_arguments(declared: Declared, allowed: tuple[str, ...], required: tuple[str, ...]) -> None:
    for name in declared.kwargs:
        if name not in (*allowed, "row_condition"):
            raise NotEvaluable(f"{name}: unknown argument; allowed here are {', '.join(allowed)}")
    for name in required:
        if declared.kwargs.get(name) is None:
            raise NotEvaluable(f"{name} is required, and missing")


def _whole(declared: Declared, name: str) -> int | None:
    """A count's bound. Great Expectations cuts fractions off, which is no mistake to repeat: 0.5 is above 0."""
    value = declared.kwargs.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
        raise NotEvaluable(f"{name}: expected a whole number; found {value!r}")
    return int(value)


def _flag(declared: Declared, name: str) -> bool:
    value = declared.kwargs.get(name, False)
    if not isinstance(value, bool):
        raise NotEvaluable(f"{name}: expected true or false; found {value!r}")
    return value
