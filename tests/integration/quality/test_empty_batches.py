"""Our own arithmetic on batches without records says what Great Expectations says of every type."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.config.sections import Quality
from fencepost.model import Outcome
from fencepost.quality import evaluation, judging
from fencepost.quality.checks import Status
from fencepost.quality.columns import column_kinds
from fencepost.quality.empty import on_no_records
from fencepost.quality.evaluation import evaluate, evaluate_nothing
from fencepost.quality.gathering import BatchRecords, Promised
from fencepost.quality.history import History, PastBatch
from fencepost.quality.prepare import NotEvaluable, prepare
from fencepost.suite.catalogue import HISTORY, KNOWN, VOLUME, OfNone, Scope
from fencepost.suite.declared import DeclaredExpectation, Suite
from integration.quality.batches import frame
from integration.quality.cases import CASES, plain

ROWS_BETWEEN, ROWS_EQUAL = "expect_table_row_count_to_be_between", "expect_table_row_count_to_equal"
UNIQUE, SETS = "expect_column_unique_value_count_to_be_between", "expect_column_distinct_values_to_"
ID: dict[str, Any] = {"column": "id"}
COUNTS: tuple[tuple[str, dict[str, Any]], ...] = ((ROWS_BETWEEN, {}), (UNIQUE, ID))
BOUNDS: list[dict[str, Any]] = [
    {"min_value": 1},
    {"max_value": 0},
    {"max_value": 1},
    {"min_value": 0, "max_value": 0},
    {"min_value": 1, "max_value": 2},
    {"min_value": 0, "strict_min": True},
    {"max_value": 1, "strict_max": True},
]
JUDGED = [
    *((kind, {**of, **bounds}) for kind, of in COUNTS for bounds in BOUNDS),
    *((ROWS_EQUAL, {"value": value}) for value in (0, 1)),
    (ROWS_EQUAL, {"value": 0, "row_condition": "half > 100"}),
]
EACH = {
    case.type: (case.type, plain(case.kwargs)) for case in CASES if case.status != "errored"
}  # one case of each type
DECLARED = [
    DeclaredExpectation(index=i, type=kind, kwargs=kwargs) for i, (kind, kwargs) in enumerate([*EACH.values(), *JUDGED])
]


@pytest.fixture(scope="module")
def none(spark: Any) -> Any:
    """The batch of the other tests, without its records."""
    return frame(spark).limit(0).cache()


@pytest.fixture(scope="module")
def said(none: Any) -> dict[int, judging.ExpectationAnswer]:
    """What is gathered of no records, judged by Great Expectations; errored where preparing it is refused."""
    kinds = column_kinds(none)
    ready, found = [], {}
    for declared in DECLARED:
        try:
            ready.append(prepare(declared, kinds))
        except NotEvaluable as error:
            found[declared.index] = judging.ExpectationAnswer(error=str(error))
    ready = [one for one in ready if one.entry.scope is not Scope.SCHEMA]
    with BatchRecords(none, ready, Promised(0, None)) as records:
        return {**found, **judging.judge_records(ready, records.ask())}


@pytest.mark.parametrize("declared", DECLARED, ids=lambda d: f"{d.index}-{d.type}")
def test_what_is_said_of_no_records_is_what_great_expectations_says(
    declared: DeclaredExpectation, said: dict[int, judging.ExpectationAnswer]
) -> None:
    entry = KNOWN[declared.type]
    ours = on_no_records(declared)
    if entry.scope is Scope.SCHEMA:
        assert ours.no_value, "with a schema it is evaluated, records or not"
        return
    theirs = said[declared.index]
    note = f"{declared.kwargs}\nours {ours}\ntheirs {theirs}"
    assert not theirs.error, note
    if ours.no_value:
        assert (ours.status, theirs.judged_count) == (Status.PASSED, 0), note
    else:
        assert (ours.status is Status.PASSED) is theirs.success, note
        assert ours.observed == ([] if entry.of_none is OfNone.SET else theirs.observed), note
    counts = (ours.element_count, ours.unexpected_count)
    assert counts == (theirs.element_count, theirs.unexpected_count), note


def test_every_type_is_told_what_it_is_to_say_of_none() -> None:
    judged = {name for name, entry in KNOWN.items() if entry.of_none is not OfNone.NOTHING}
    assert judged == {ROWS_BETWEEN, ROWS_EQUAL, UNIQUE, *(f"{SETS}{x}_set" for x in ("be_in", "equal", "contain"))}
    assert all(KNOWN[name].scope in {Scope.COLUMN, Scope.TABLE} for name in judged)


def suite(*declared: tuple[str, dict[str, Any]]) -> Suite:
    return Suite.of(tuple(DeclaredExpectation(index=i, type=t, kwargs=k) for i, (t, k) in enumerate(declared)))


NOT_NULL = ("expect_column_values_to_not_be_null", ID)
EXISTS = ("expect_column_to_exist", {"column": "nowhere"})
LIKE_HISTORY = (VOLUME, {"at_least": 7})
THIRTY = History(batch=PastBatch(rows=0), before=(PastBatch(rows=1_000_000),) * 30)


@pytest.mark.parametrize("failing", [(ROWS_BETWEEN, {"min_value": 1}), LIKE_HISTORY], ids=["rows", "history"])
def test_a_batch_that_should_have_records_is_rejected_when_it_has_none(
    none: Any, failing: tuple[str, dict[str, Any]]
) -> None:
    """With offsets that gave no rows, where there is a frame, and with none to read, where there is not."""
    declared, quality = suite(NOT_NULL, failing), Quality()
    for found in (evaluate(none, declared, quality, 0, THIRTY), evaluate_nothing(declared, quality, THIRTY)):
        assert found.outcome is Outcome.REJECTED
        assert found.failed_critical == (failing[0],)
        assert (found.read, len(found.checks)) == (False, 2)


def test_no_record_is_read_and_the_schema_is_judged_where_it_is_known(
    none: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "BatchRecords", None)
    assert evaluate(none, suite(NOT_NULL, EXISTS), Quality(), 0).outcome is Outcome.REJECTED
    monkeypatch.setattr(judging, "judge_schema", None)
    unknown = evaluate_nothing(suite(NOT_NULL, EXISTS), Quality(), History())
    assert unknown.outcome is Outcome.PASSED
    assert unknown.checks[1].no_value
    assert "not judged" in str(unknown.checks[1].observed)


def test_what_cannot_be_evaluated_is_undetermined_without_records_too(none: Any) -> None:
    unknown = suite(NOT_NULL, ("expect_column_values_to_be_in_sett", {**ID, "value_set": [1]}))
    for said in (evaluate(none, unknown, Quality(), 0), evaluate_nothing(unknown, Quality(), History())):
        assert said.outcome is Outcome.UNDETERMINED
    assert evaluate(
        none, suite(("expect_column_values_to_not_be_null", {"column": "nowhere"})), Quality(), 0
    ).outcome is (Outcome.UNDETERMINED)


@pytest.mark.parametrize("rule", ["pass", "reject"])
def test_the_rule_decides_where_no_check_minds(none: Any, rule: Any) -> None:
    outcome = Outcome.PASSED if rule == "pass" else Outcome.REJECTED
    for declared in (suite(NOT_NULL), suite(NOT_NULL, (ROWS_EQUAL, {"value": 0}))):
        assert evaluate(none, declared, Quality(empty=rule), 0).outcome is outcome
        assert evaluate_nothing(declared, Quality(empty=rule), History()).outcome is outcome


def test_an_evaluation_of_nothing_has_a_result_for_every_type() -> None:
    every = suite(*EACH.values(), *((n, {}) for n in HISTORY))
    assert [c.index for c in evaluate_nothing(every, Quality(), History()).checks] == list(
        range(len(KNOWN) + len(HISTORY))
    )
