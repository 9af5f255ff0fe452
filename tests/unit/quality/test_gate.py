"""The gate fails closed: what must hold for `passed`, and what each departure from it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.model import Outcome
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.gate import judge
from fencepost.suite.declared import DeclaredExpectation, Severity, Suite

P, F, E = Status.PASSED, Status.FAILED, Status.ERRORED
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING


def suite(*severities: Severity) -> Suite:
    return Suite.of(
        tuple(
            DeclaredExpectation(
                index=i, type="expect_column_values_to_not_be_null", severity=s, kwargs={"column": f"c{i}"}
            )
            for i, s in enumerate(severities)
        )
    )


def results(declared: Suite, *statuses: Status, **changes: Any) -> list[CheckResult]:
    return [
        CheckResult(**{**d.model_dump(), "status": s, "error": "boom" if s is E else "", **changes})
        for d, s in zip(declared.expectations, statuses, strict=False)
    ]


def outcome(*pairs: tuple[Severity, Status]) -> tuple[Outcome, str]:
    declared = suite(*(severity for severity, _ in pairs))
    return judge(declared, results(declared, *(status for _, status in pairs)), 10, "pass")


def test_all_that_hold_pass() -> None:
    assert outcome((CRITICAL, P), (WARNING, P)) == (Outcome.PASSED, "All 2 expectations hold.")
    assert outcome((CRITICAL, P)) == (Outcome.PASSED, "The expectation holds.")


def test_a_failed_critical_expectation_rejects_and_is_named() -> None:
    said, reason = outcome((CRITICAL, P), (CRITICAL, F), (WARNING, F))
    assert said is Outcome.REJECTED
    assert "1 of 3 expectations failed: expect_column_values_to_not_be_null(c1)." in reason
    assert "Warnings: expect_column_values_to_not_be_null(c2)." in reason


def test_a_quarantine_rule_that_a_written_record_fails_is_undetermined() -> None:
    """The write step sent nothing to quarantine for it: which of the two is right, nobody knows."""
    for other in (P, F):
        said, reason = outcome((CRITICAL, other), (Severity.QUARANTINE, F))
        assert said is Outcome.UNDETERMINED
        assert "written that fail a quarantine rule: expect_column_values_to_not_be_null(c1)" in reason
    assert outcome((CRITICAL, P), (Severity.QUARANTINE, P))[0] is Outcome.PASSED


def test_a_failed_warning_is_named_and_passes() -> None:
    said, reason = outcome((CRITICAL, P), (WARNING, F))
    assert said is Outcome.PASSED
    assert "Warnings: expect_column_values_to_not_be_null(c1)." in reason


@pytest.mark.parametrize("severity", [CRITICAL, WARNING])
def test_an_errored_check_is_undetermined_whatever_its_severity(severity: Severity) -> None:
    said, reason = outcome((CRITICAL, P), (severity, E))
    assert said is Outcome.UNDETERMINED
    assert "1 of 2 expectations could not be evaluated: expect_column_values_to_not_be_null(c1): boom." in reason


def test_an_errored_check_outweighs_a_failed_one_and_both_are_told() -> None:
    said, reason = outcome((CRITICAL, F), (WARNING, E))
    assert said is Outcome.UNDETERMINED
    assert "1 critical failed" in reason


def test_a_missing_result_is_undetermined() -> None:
    """Great Expectations drops unknown types and reports success on the rest."""
    declared = suite(CRITICAL, CRITICAL)
    said, reason = judge(declared, results(declared, P), 10, "pass")
    assert said is Outcome.UNDETERMINED
    assert "without a result: expect_column_values_to_not_be_null(c1)" in reason


def test_no_result_at_all_is_undetermined() -> None:
    assert judge(suite(CRITICAL), [], 10, "pass")[0] is Outcome.UNDETERMINED


def test_an_empty_suite_is_undetermined() -> None:
    assert judge(Suite.of(()), [], 10, "pass")[0] is Outcome.UNDETERMINED
    assert judge(Suite.of(()), [], 0, "pass")[0] is Outcome.UNDETERMINED


def test_a_result_twice_or_of_something_else_is_undetermined() -> None:
    declared = suite(CRITICAL, CRITICAL)
    good = results(declared, P, P)
    assert judge(declared, [good[0], good[0], good[1]], 10, "pass")[0] is Outcome.UNDETERMINED
    assert judge(declared, [good[0], good[1].model_copy(update={"index": 7})], 10, "pass")[0] is Outcome.UNDETERMINED
    other = good[1].model_copy(update={"kwargs": {"column": "c0"}})
    assert judge(declared, [good[0], other], 10, "pass")[0] is Outcome.UNDETERMINED


def test_severity_is_the_suites_and_never_the_results() -> None:
    declared = suite(CRITICAL)
    said, _ = judge(declared, results(declared, F, severity=WARNING), 10, "pass")
    assert said is Outcome.REJECTED


def test_an_empty_batch_is_judged_by_what_can_be_judged_on_none() -> None:
    """The pipeline's rule says what is to be when no check minds; a check that fails rejects whatever the rule says."""
    declared = suite(CRITICAL, WARNING)
    idle = results(declared, P, P, no_value=True)
    said = judge(declared, idle, 0, "pass")
    assert said == (
        Outcome.PASSED,
        "The batch has no records. None of the 2 expectations had anything to judge, and quality.empty is 'pass'.",
    )
    said = judge(declared, [results(declared, P)[0], idle[1]], 0, "pass")
    assert said == (
        Outcome.PASSED,
        "The batch has no records. 1 of 2 expectations could still be judged, and holds.",
    )
    failed = [results(declared, F)[0], idle[1]]
    outcome, reason = judge(declared, failed, 0, "pass")
    assert outcome is Outcome.REJECTED
    assert reason == "The batch has no records. 1 of 2 expectations failed: expect_column_values_to_not_be_null(c0)."
    warned = [idle[0], results(declared, P, F)[1]]
    outcome, reason = judge(declared, warned, 0, "pass")
    assert outcome is Outcome.PASSED
    assert "Warnings: expect_column_values_to_not_be_null(c1)." in reason
    for checks in (idle, failed, warned, []):
        outcome, reason = judge(declared, checks, 0, "reject")
        assert (outcome, reason) == (Outcome.REJECTED, "The batch has no records, and quality.empty is 'reject'.")


def test_declared_is_evaluated_on_empty_batches_too() -> None:
    declared = suite(CRITICAL, CRITICAL)
    assert judge(declared, results(declared, P), 0, "pass")[0] is Outcome.UNDETERMINED
    assert judge(declared, results(declared, P, E), 0, "pass")[0] is Outcome.UNDETERMINED


def test_a_check_that_found_no_value_is_named() -> None:
    declared = suite(CRITICAL)
    said, reason = judge(declared, results(declared, P, no_value=True), 10, "pass")
    assert said is Outcome.PASSED
    assert "Found no value to judge: expect_column_values_to_not_be_null(c0)." in reason


def test_a_long_reason_names_three_and_counts_the_rest() -> None:
    _, reason = outcome(*[(CRITICAL, F)] * 9)
    assert reason.count("expect_") == 3
    assert "and 6 more" in reason


def test_only_the_first_line_of_an_error_enters_the_reason() -> None:
    """What follows it may quote records; the reason goes into the ledger and into logs."""
    declared = suite(CRITICAL)
    _, reason = judge(declared, results(declared, E, error="raised ValueError\nsecret row"), 10, "pass")
    assert "raised ValueError" in reason
    assert "secret row" not in reason


PAIRS = st.lists(st.tuples(st.sampled_from(Severity), st.sampled_from(Status)), max_size=6)


@given(pairs=PAIRS, drop=st.sets(st.integers(0, 5)), twice=st.sets(st.integers(0, 5)), rows=st.integers(0, 5))
def test_passed_means_every_check_evaluated_once_and_no_critical_failed(
    pairs: list[tuple[Severity, Status]], drop: set[int], twice: set[int], rows: int
) -> None:
    declared = suite(*(severity for severity, _ in pairs))
    every = results(declared, *(status for _, status in pairs))
    given_results = [r for r in every if r.index not in drop] + [r for r in every if r.index in twice - drop]
    said, reason = judge(declared, given_results, rows, "pass")
    whole = pairs and sorted(r.index for r in given_results) == list(range(len(pairs)))
    errored = any(status is E for _, status in pairs)
    failed = any(pair == (CRITICAL, F) for pair in pairs)
    leaked = any(pair == (Severity.QUARANTINE, F) for pair in pairs)
    if not whole or errored or leaked:
        assert said is Outcome.UNDETERMINED
    else:
        assert said is (Outcome.REJECTED if failed else Outcome.PASSED)
    assert reason.endswith(".")
