"""Evaluates each expectation on a batch without records. Great Expectations is not used, because importing it takes
seconds.

No record is read. `tests/integration/quality/test_empty_batches.py` shows for every type that Great Expectations gives the same
answer.

| looks at | on no records |
|---|---|
| the number of records, the set of a column's distinct values | judged: 0, and the empty set |
| single records, or a figure that needs a value (a mean, a share) | nothing to judge: passes, and says so |
| the columns' names and types | judged if they are known; nothing to judge if the transform did not run |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.quality.checks import CheckResult
from fencepost.quality.prepare import NotEvaluable, known
from fencepost.suite.catalogue import OfNone, Scope
from fencepost.suite.declared import DeclaredExpectation

NO_COLUMNS = "there was nothing to read, so the transform did not run and its columns are unknown"


def on_no_records(declared: DeclaredExpectation) -> CheckResult:
    """Returns the result of an expectation of Great Expectations on no records. An expectation whose type cannot be
    used is errored.
    """
    try:
        entry = known(declared.type)
        if entry.scope in {Scope.RECORD, Scope.RECORDS}:
            return CheckResult.idle(declared, element_count=0, missing_count=0, unexpected_count=0)
        if entry.scope is Scope.SCHEMA:
            return CheckResult.idle(declared, observed={"not judged": NO_COLUMNS})
        match entry.of_none:
            case OfNone.NUMBER:
                return CheckResult.judged(declared, _allows_none(declared.kwargs), 0)
            case OfNone.SET:
                return CheckResult.judged(declared, entry.holds_for_none, [])
            case _:
                return CheckResult.idle(declared)
    except NotEvaluable as error:
        return CheckResult.errored(declared, str(error))


def _allows_none(kwargs: Mapping[str, Any]) -> bool:
    """Returns whether 0 is the expected number or lies within the bounds."""
    if "value" in kwargs:
        return bool(kwargs["value"] == 0)
    low, high = kwargs.get("min_value", 0), kwargs.get("max_value", 0)
    return (
        low <= 0 <= high
        and not (kwargs.get("strict_min") and low == 0)
        and not (kwargs.get("strict_max") and high == 0)
    )
