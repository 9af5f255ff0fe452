"""What each expectation says about a batch without records, by our own arithmetic.

Great Expectations takes seconds to import, and its two engines differ most on empty data. This gives the answer of both once
their differences are settled, as `tests/integration/quality/test_empty_batches.py` shows for every proven type.

| looks at | on no records |
|---|---|
| the number of records, the set of a column's distinct values | judged: 0, and the empty set |
| single records, or a figure that needs a value (a mean, a share) | nothing to judge: passes, and says so |
| the columns' names and types | judged if they are known; nothing to judge if the transform did not run |
"""

from __future__ import annotations

from typing import Literal

from fencepost.quality.catalogue import OfNone, Scope
from fencepost.quality.checks import CheckResult
from fencepost.quality.prepare import NotEvaluable, condition_of, known
from fencepost.quality.suite import Declared

NO_COLUMNS = "there was nothing to read, so the transform did not run and its columns are unknown"
BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")


def on_no_records(declared: Declared, engine: Literal["auto", "pandas", "spark"]) -> CheckResult:
    """The result of a Great Expectations type on no records; errored if it could not be evaluated on any batch."""
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
    """Whether 0 is the expected number, or lies within the bounds."""
    needed = ("column",) if column else ()
    if declared.type.endswith("_to_equal"):
        _check_arguments(declared, ("value",), required=("value",))
        return _whole(declared, "value") == 0
    _check_arguments(declared, (*needed, *BOUNDS), required=needed)
    low, high = _whole(declared, "min_value"), _whole(declared, "max_value")
    if not column and low is not None and high is not None and low > high:
        raise NotEvaluable(f"min_value ({low}) is above max_value ({high})")
    above = low is None or low < 0 or (low == 0 and not _flag(declared, "strict_min"))
    below = high is None or high > 0 or (high == 0 and not _flag(declared, "strict_max"))
    return above and below


def _check_arguments(declared: Declared, allowed: tuple[str, ...], required: tuple[str, ...]) -> None:
    for name in declared.kwargs:
        if name not in (*allowed, "row_condition"):
            raise NotEvaluable(f"{name}: unknown argument; allowed here are {', '.join(allowed)}")
    for name in required:
        if declared.kwargs.get(name) is None:
            raise NotEvaluable(f"{name} is required but missing")


def _whole(declared: Declared, name: str) -> int | None:
    """A count's bound, a whole number. Great Expectations would cut 0.5 off to 0, so a fraction is refused."""
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
