"""The gate decides a batch's verdict from the declared suite and the results. It is a pure function.

The gate fails closed. The outcome `passed` requires at least one declared expectation, exactly one result for each, and
no failed critical expectation. If a check cannot be evaluated, its answer is unknown, so the verdict is `undetermined`
whatever the check's severity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fencepost.counts import count_of, first_of
from fencepost.model import Outcome
from fencepost.quality.checks import CheckResult, Status
from fencepost.suite.declared import Severity, Suite

NAMED = 3  # a one-sentence reason names up to this many expectations


def judge(
    suite: Suite, results: Sequence[CheckResult], rows: int, empty_rule: Literal["pass", "reject"]
) -> tuple[Outcome, str]:
    """Returns the outcome and a one-sentence reason.

    1. A suite without expectations: undetermined.
    2. A batch without records: rejected if the pipeline's rule says so; otherwise it is judged like any other.
    3. A declared expectation that does not have exactly one result, as declared: undetermined.
    4. An errored check: undetermined.
    5. A failed quarantine rule: undetermined. A row that fails it should not have been written.
    6. A failed critical check: rejected.
    7. Otherwise: passed. The reason names failed warnings and checks that had no value to judge.

    Severity is taken from the suite, never from a result.
    """
    # 1.
    declared = {e.index: e for e in suite.expectations}
    if not declared or len(declared) != len(suite.expectations):
        return (
            Outcome.UNDETERMINED,
            "The suite has no expectation, or two with the same number; nothing can be judged.",
        )
    # 2.
    none = "The batch has no records. " if rows == 0 else ""
    if rows == 0 and empty_rule == "reject":
        return Outcome.REJECTED, "The batch has no records, and quality.empty is 'reject'."
    # 3.
    by_index: dict[int, CheckResult] = {}
    for result in results:
        expected = declared.get(result.index)
        if (
            expected is None
            or result.index in by_index
            or (result.type, result.kwargs)
            != (
                expected.type,
                expected.kwargs,
            )
        ):
            return (
                Outcome.UNDETERMINED,
                f"{result.title} has two results, or the suite does not declare it in this form.",
            )
        by_index[result.index] = result
    missing = [e.title for i, e in declared.items() if i not in by_index]
    if missing:
        return Outcome.UNDETERMINED, (
            f"{expectations(len(declared))} declared but only {len(by_index)} evaluated; without a result: {_named(missing)}."
        )
    # 4.
    failed = [e for i, e in declared.items() if by_index[i].status is Status.FAILED]
    critical = [e.title for e in failed if e.severity is Severity.CRITICAL]
    warnings = [e.title for e in failed if e.severity is Severity.WARNING]
    errored = [r for r in by_index.values() if r.status not in (Status.PASSED, Status.FAILED)]
    if errored:
        also = f". Also, {len(critical)} critical failed." if critical else "."
        return Outcome.UNDETERMINED, (
            f"{len(errored)} of {expectations(len(declared))} could not be evaluated: "
            f"{_named([f'{r.title}: {_sentence(r.error)}' for r in errored])}{also}"
        )
    # 5.
    leaked = [e.title for e in failed if e.severity is Severity.QUARANTINE]
    if leaked:
        return Outcome.UNDETERMINED, (
            f"Records were written that fail a quarantine rule: {_named(leaked)}. The write step and the gate evaluate "
            "the rules differently."
        )
    # 6.
    beside = f" Warnings: {_named(warnings)}." if warnings else ""
    if critical:
        return (
            Outcome.REJECTED,
            f"{none}{len(critical)} of {expectations(len(declared))} failed: {_named(critical)}.{beside}",
        )
    # 7.
    idle = [r.title for r in by_index.values() if r.no_value]
    hollow = f" Found no value to judge: {_named(idle)}." if idle else ""
    all_of_them = f"All {len(declared)} expectations hold." if len(declared) > 1 else "The expectation holds."
    held = f"No critical expectation failed, of {expectations(len(declared))}." if warnings else ""
    if not held and none and idle:  # the idle checks are most of all, so the reason counts them instead of naming them
        left = len(declared) - len(idle)
        hollow = ""
        held = f"{left} of {expectations(len(declared))} could still be judged, and {'holds' if left == 1 else 'hold'}."
        if not left:
            held = f"None of the {expectations(len(declared))} had anything to judge, and quality.empty is 'pass'."
    return Outcome.PASSED, f"{none}{held or all_of_them}{beside}{hollow}"


def expectations(number: int) -> str:
    """Returns a number of expectations, in words."""
    return count_of(number, "expectation")


def _named(titles: Sequence[str]) -> str:
    return first_of(titles, NAMED)


def _sentence(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return (first if len(first) <= 200 else f"{first[:197]}...").rstrip(".?")
