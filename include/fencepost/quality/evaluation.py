"""Evaluates a suite on a batch. Spark gathers what the expectations need from the records, and Great Expectations
decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.config.sections import Quality
from fencepost.counts import count_of
from fencepost.formats.quoting import quoted
from fencepost.model import Outcome
from fencepost.quality import judging
from fencepost.quality.checks import CheckResult, Evaluation, SampleRow, Status
from fencepost.quality.columns import column_kinds
from fencepost.quality.empty import on_no_records
from fencepost.quality.gate import expectations, judge
from fencepost.quality.gathering import BatchRecords, Promised
from fencepost.quality.history import History, liken
from fencepost.quality.judging import ExpectationAnswer
from fencepost.quality.overflow import explain
from fencepost.quality.prepare import NotEvaluable, Prepared, prepare, shown
from fencepost.quality.refusal import refusal
from fencepost.quality.samples import cut
from fencepost.spark.diagnosis import overflowed
from fencepost.suite.catalogue import HISTORY, Kind, Scope
from fencepost.suite.declared import Suite
from fencepost.suite.numbers import shown as shown_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LISTED = 20  # how many values of an observed set a report lists
NONE_KNOWN = History()


@dataclass(frozen=True)
class Part:
    """A part of a batch, on which expectations about the whole batch are not judged.

    `called` names the part within a sentence, and `none` says that the part has no row. With `checks_types`, an
    expectation about the whole batch is still checked against the columns, which needs no record. An expectation that
    does not fit the columns is errored.
    """

    called: str
    why: str
    none: str
    checks_types: bool = False


ADDITION = Part(
    "an addition",
    "it is about a whole batch, and this is an addition to one",
    "None of the replayed records passed. They are in quarantine again.",
)
SAMPLE = Part(
    "a sample", "it is about a whole batch, and this is a sample", "The sample gives no row.", checks_types=True
)
# Digits of a sum, mean or deviation of doubles that are compared. Spark adds doubles in any order, so the digits after
# these may differ from one evaluation to the next.
DIGITS = 12


def evaluate(
    frame: DataFrame,
    suite: Suite,
    quality: Quality,
    rows: int,
    history: History = NONE_KNOWN,
    fingerprint: int | None = None,
    *,
    part: Part | None = None,
) -> Evaluation:
    """Evaluates `suite` on the batch's records and judges them.

    `frame` has the output's value columns, and `_topic`, `_partition`, `_offset` and `_key` (binary), for this batch's
    records only. `rows` is the number of records that the receipts prove. If it is 0, the frame is not read. If the
    receipts' `fingerprint` is given, the frame also has `_hash`, and the records are compared with the receipts before
    they are judged. A `part` of a batch may be empty, and expectations about a whole batch are not judged on it.

    1. Check each expectation against the columns. An expectation that does not fit is errored and not evaluated. An
       expectation that compares the batch with earlier batches needs only `history`.
    2. Judge the expectations about the schema by Spark's types, which needs no record.
    3. Gather what the other expectations need from the records, in one aggregation, and compare the records with the
       receipts. If there is no such expectation, or no record, nothing is read.
    4. Judge.

    An error that Spark raises while it reads is raised and not judged, so the step may be retried. If only the SQL of
    an expectation causes the error, that expectation is errored.

    Raises:
        NotAsPromised: the records differ from the receipts, and nothing was judged.
    """
    started = time.monotonic()
    results: dict[int, CheckResult] = {}
    # 1.
    kinds = column_kinds(frame)
    ready: list[Prepared] = []
    for declared in suite.expectations:
        left_out = part is not None and declared.needs_whole_batch
        if left_out and not (part is not None and part.checks_types and declared.type not in HISTORY):
            continue
        if declared.type in HISTORY:
            results[declared.index] = liken(declared, history)
            continue
        try:
            one = prepare(declared, kinds)
            if error := refusal(frame, one):
                raise NotEvaluable(error)
            ready += [] if left_out else [one]
        except NotEvaluable as error:
            results[declared.index] = CheckResult.errored(declared, str(error))
    # 2.
    about_schema = [one for one in ready if one.entry.scope is Scope.SCHEMA]
    if about_schema:
        found = judging.judge_schema(about_schema, frame.select(*(quoted(name) for name in kinds)).schema)
        results |= {one.declared.index: _result(one, found, kinds, rows) for one in about_schema}
    # 3.
    about_records = [one for one in ready if one.entry.scope is not Scope.SCHEMA]
    read = bool(about_records and rows)
    if read:
        results |= _on_records(frame, about_records, kinds, Promised(rows, fingerprint), quality.sample_rows)
    else:
        results |= {one.declared.index: on_no_records(one.declared) for one in about_records}
    # 4.
    if part is not None:
        return _judged_part(part, suite, results, rows, read, started)
    return _judged(suite, quality, results, rows, read, started)


def _judged_part(
    part: Part, suite: Suite, results: Mapping[int, CheckResult], rows: int, read: bool, started: float
) -> Evaluation:
    """Returns the evaluation of a part of a batch. Expectations about a whole batch are listed as not judged, each with
    the reason.
    """
    judged = tuple(one for one in suite.expectations if not one.needs_whole_batch or one.index in results)
    whole = [one for one in suite.expectations if one not in judged]
    outcome, reason = Outcome.PASSED, "No expectation is about single records."
    if judged and rows == 0:
        reason = part.none
    elif judged:
        judging_it = Suite(expectations=judged, digest=suite.digest)
        outcome, reason = judge(judging_it, [results[i] for i in sorted(results)], rows, "pass")
    if whole:
        reason += f" Not judged for {part.called}: {expectations(len(whole))} about a whole batch."
    listed = {one.index: CheckResult.idle(one, observed={"not judged": part.why}) for one in whole} | dict(results)
    return _evaluation(outcome, reason, suite, listed, rows, read, started)


def evaluate_nothing(suite: Suite, quality: Quality, history: History) -> Evaluation:
    """Evaluates `suite` on a batch that read no record, and judges the batch. It needs no frame, no Spark and no Great
    Expectations.
    """
    started = time.monotonic()
    results = {
        one.index: liken(one, history) if one.type in HISTORY else on_no_records(one) for one in suite.expectations
    }
    return _judged(suite, quality, results, 0, False, started)


def _judged(
    suite: Suite, quality: Quality, results: Mapping[int, CheckResult], rows: int, read: bool, started: float
) -> Evaluation:
    outcome, reason = judge(suite, [results[i] for i in sorted(results)], rows, quality.empty)
    return _evaluation(outcome, reason, suite, results, rows, read, started)


def _evaluation(
    outcome: Outcome,
    reason: str,
    suite: Suite,
    results: Mapping[int, CheckResult],
    rows: int,
    read: bool,
    started: float,
) -> Evaluation:
    return Evaluation(
        outcome=outcome,
        reason=reason,
        read=read,
        rows=rows,
        checks=tuple(results[i] for i in sorted(results)),
        suite_digest=suite.digest,
        seconds=round(time.monotonic() - started, 3),
    )


def _on_records(
    frame: DataFrame, ready: Sequence[Prepared], kinds: Mapping[str, Kind], promised: Promised, limit: int
) -> dict[int, CheckResult]:
    """Returns the results of expectations about records.

    An expectation that Spark cannot analyse is errored. If Spark raises an error, the cause may be an expectation with
    its own SQL or regex. So the expectations without SQL or regexes are evaluated first, and then each of the others by
    itself.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    results = _not_built(frame, ready, promised)
    ready = [one for one in ready if one.declared.index not in results]
    try:
        return results | _gathered(frame, ready, kinds, promised, limit)
    except (PySparkException, Py4JError):
        suspects = [one for one in ready if one.condition or one.expression or one.regexes]
        if not suspects:
            raise
    results |= _gathered(frame, [one for one in ready if one not in suspects], kinds, promised, limit)
    for one in suspects:
        try:
            results |= _gathered(frame, [one], kinds, promised, limit)
        except (PySparkException, Py4JError) as error:
            said = explain(frame, one) if overflowed(str(error)) else judging.raised("Spark", error)
            results[one.declared.index] = CheckResult.errored(one.declared, said)
    return results


def _not_built(frame: DataFrame, ready: Sequence[Prepared], promised: Promised) -> dict[int, CheckResult]:
    """Returns errored results for the expectations that Spark cannot analyse. Each expectation is analysed by itself
    only if analysing all of them together fails.
    """
    try:
        BatchRecords(frame, ready, promised).build()
    except Exception:
        found = {}
        for one in ready:
            try:
                BatchRecords(frame, [one], promised).build()
            except Exception as error:
                found[one.declared.index] = CheckResult.errored(one.declared, judging.raised("Spark", error))
        if not found:
            raise
        return found
    return {}


def _gathered(
    frame: DataFrame, ready: Sequence[Prepared], kinds: Mapping[str, Kind], promised: Promised, limit: int
) -> dict[int, CheckResult]:
    with BatchRecords(frame, ready, promised) as records:
        found = judging.judge_records(ready, records.ask())
        of_records = [
            one
            for one in ready
            if (it := found.get(one.declared.index)) and it.success is False and it.unexpected_count
        ]
        samples = records.samples(of_records, kinds, limit)
        return {
            one.declared.index: _result(one, found, kinds, promised.rows, samples.get(one.declared.index, ()))
            for one in ready
        }


def _result(
    one: Prepared,
    answers: Mapping[int, ExpectationAnswer],
    kinds: Mapping[str, Kind],
    rows: int,
    sample: tuple[SampleRow, ...] = (),
) -> CheckResult:
    """Returns Great Expectations' answer as a result. The check is errored unless the answer is True or False about all
    rows.
    """
    declared = one.declared
    found = answers.get(declared.index, ExpectationAnswer(error="Great Expectations gave no result"))
    if found.error:
        return CheckResult.errored(declared, found.error)
    if found.success is None:
        return CheckResult.errored(declared, "Great Expectations answered neither True nor False")
    whole = one.condition is None and one.entry.scope is not Scope.SCHEMA
    if whole and found.element_count is not None and found.element_count != rows:
        return CheckResult.errored(
            declared, f"Great Expectations looked at {count_of(found.element_count, 'record')}; the batch has {rows:,}"
        )
    judged, unexpected = found.judged_count, found.unexpected_count
    by_record = found.element_count is not None and judged is not None
    return CheckResult(
        **declared.model_dump(),
        status=Status.PASSED if found.success else Status.FAILED,
        observed=_observed(found.observed, one, kinds),
        element_count=found.element_count,
        missing_count=(found.element_count or 0) - (judged or 0) if by_record else None,
        unexpected_count=unexpected,
        unexpected_percent=round(100 * unexpected / judged, 4) if unexpected is not None and judged else None,
        no_value=judged == 0,
        sample=sample,
    )


def _observed(value: Any, one: Prepared, kinds: Mapping[str, Kind]) -> Any:
    """Returns a metric's value as small JSON. A value of the column is shown in the column's units."""
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _observed(v, one, kinds) for k, v in value.items()}
    if isinstance(value, set | frozenset | list | tuple):
        listed = [_observed(v, one, kinds) for v in value]
        if one.entry.scope is not Scope.SCHEMA and not isinstance(value, list | tuple):
            listed.sort(key=lambda v: (str(type(v)), v))
        return listed if len(listed) <= LISTED else [*listed[:LISTED], f"… and {len(listed) - LISTED} more"]
    kind = kinds[one.columns[0]] if one.columns else None
    if kind and one.entry.values:
        value = shown(value, kind)
    value = shown_number(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if kind is Kind.NUMBER and one.entry.figure is not None and one.entry.figure.added:
            value = float(f"{value:.{DIGITS}g}")
        return value
    return cut(value) if value is None or isinstance(value, bool | int | str) else cut(str(value))
