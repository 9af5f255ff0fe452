"""Evaluates a suite on a batch.

Rows and bytes decide the engine: Great Expectations is several times as fast on pandas, but the data have to fit, and pass
through the driver's heap. The verdict, the counts and the sample rows are the same either way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.config.pipeline import Quality
from fencepost.model import Outcome
from fencepost.quality import engines
from fencepost.quality.catalogue import HISTORY, Kind, Scope
from fencepost.quality.checks import CheckResult, Engine, Evaluation, SampleRow, Status
from fencepost.quality.columns import HASH, column_kinds, condition_error, prepared_frame, to_pandas
from fencepost.quality.empty import on_no_records
from fencepost.quality.gate import expectations, judge
from fencepost.quality.history import History, liken
from fencepost.quality.prepare import NotEvaluable, Prepared, prepare, shown
from fencepost.quality.samples import cut, sample_row
from fencepost.quality.suite import Suite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LISTED = 20  # values that a report shows of an observed set
NONE_KNOWN = History()
DIGITS = 12  # two engines add doubles in different orders: beyond this their sums may differ

Sampler = Callable[[Prepared, engines.Found], tuple[SampleRow, ...]]


class NotAsPromised(Exception):
    """The batch that was read is not the one that the receipts promise."""

    def __init__(self, rows: int, fingerprint: int) -> None:
        super().__init__(f"{rows} records with fingerprint {fingerprint:016x}")
        self.rows, self.fingerprint = rows, fingerprint


class Promised(NamedTuple):
    """Rows and fingerprint from the batch's receipts. Without a fingerprint nothing is compared."""

    rows: int
    fingerprint: int | None

    def compare(self, rows: int, fingerprint: int) -> None:
        """Raise NotAsPromised if another batch was read."""
        if (rows, fingerprint) != self:
            raise NotAsPromised(rows, fingerprint)


def evaluate(
    frame: DataFrame,
    suite: Suite,
    quality: Quality,
    rows: int,
    history: History = NONE_KNOWN,
    fingerprint: int | None = None,
    size: int = 0,
    *,
    addition: bool = False,
) -> Evaluation:
    """Evaluate `suite` on the batch's records and judge them.

    `frame` has the output's value columns, and `_topic`, `_partition`, `_offset` and `_key` (binary), for this batch's records
    only. It is read once, or not at all if `rows`, the number that the receipts promise, is 0. If the receipts' `fingerprint`
    is given, `frame` also has `_hash`, and the records are compared before they are judged. `size` is the size of the
    records' keys and values in bytes. Of an `addition`, checks that need a whole batch are not judged, and it may be empty.

    1. Check each expectation against the columns. One that cannot be evaluated is errored and goes no further. Those that
       compare the batch with earlier ones need `history` only.
    2. Evaluate those about the schema on Spark's types, which needs no record.
    3. Read the records once, into pandas or into Spark's cache, compare them, and evaluate the rest. If there is no other
       expectation, or no record, nothing is read, and the evaluation's engine is `none`.
    4. Judge.

    An error that Spark raises while it reads is raised, not judged: the step may be retried.

    Raises:
        NotAsPromised: the records differ from the receipts, and nothing was judged.
    """
    started = time.monotonic()
    engine: Engine = "none"
    results: dict[int, CheckResult] = {}
    # 1.
    kinds = column_kinds(frame)
    ready: list[Prepared] = []
    for declared in suite.expectations:
        if addition and declared.needs_whole_batch:
            continue
        if declared.type in HISTORY:
            results[declared.index] = liken(declared, history)
            continue
        try:
            one = prepare(declared, kinds, quality.engine)
            if one.condition and (error := condition_error(frame, one.condition)):
                raise NotEvaluable(error)
            if one.expression and (error := condition_error(frame, one.expression, "expression")):
                raise NotEvaluable(error)
            ready.append(one)
        except NotEvaluable as error:
            results[declared.index] = CheckResult.errored(declared, str(error))
    # 2.
    about_schema = [one for one in ready if one.scope is Scope.SCHEMA]
    if about_schema:
        found = engines.find_on_spark(about_schema, {"": _without_records(frame, kinds)})
        results |= {one.declared.index: _result(one, found, kinds, rows, _no_sample) for one in about_schema}
    # 3.
    about_records = [one for one in ready if one.scope is not Scope.SCHEMA]
    if about_records and rows:
        fits = rows <= quality.pandas_max_rows and size <= quality.pandas_max_megabytes * 1_000_000
        engine = quality.engine if quality.engine != "auto" else "pandas" if fits else "spark"
        evaluate_on = _evaluate_on_pandas if engine == "pandas" else _evaluate_on_spark
        promised = Promised(rows, fingerprint)
        results |= evaluate_on(frame, about_records, kinds, promised, quality.sample_rows)
    else:
        results |= {one.declared.index: on_no_records(one.declared, quality.engine) for one in about_records}
    # 4.
    if addition:
        return _judged_addition(suite, results, rows, engine, started)
    return _judged(suite, quality, results, rows, engine, started)


def _judged_addition(
    suite: Suite, results: Mapping[int, CheckResult], rows: int, engine: Engine, started: float
) -> Evaluation:
    """As a batch, by the checks that an addition is judged by; the others are listed, with the reason."""
    judged = tuple(one for one in suite.expectations if not one.needs_whole_batch)
    whole = [one for one in suite.expectations if one.needs_whole_batch]
    outcome, reason = Outcome.PASSED, "No expectation is about single records."
    if judged and rows == 0:
        reason = "None of the replayed records passed. They are in quarantine again."
    elif judged:
        part = Suite(expectations=judged, digest=suite.digest)
        outcome, reason = judge(part, [results[i] for i in sorted(results)], rows, "pass")
    if whole:
        reason += f" Not judged for an addition: {expectations(len(whole))} about a whole batch."
    told = "it is about a whole batch, and this is an addition to one"
    listed = {one.index: CheckResult.idle(one, observed={"not judged": told}) for one in whole} | dict(results)
    return _evaluation(outcome, reason, suite, listed, rows, engine, started)


def evaluate_nothing(suite: Suite, quality: Quality, history: History) -> Evaluation:
    """Evaluate `suite` on a batch that read nothing, and judge it, without a frame, Spark or Great Expectations."""
    started = time.monotonic()
    results = {
        one.index: liken(one, history) if one.type in HISTORY else on_no_records(one, quality.engine)
        for one in suite.expectations
    }
    return _judged(suite, quality, results, 0, "none", started)


def _judged(
    suite: Suite, quality: Quality, results: Mapping[int, CheckResult], rows: int, engine: Engine, started: float
) -> Evaluation:
    outcome, reason = judge(suite, [results[i] for i in sorted(results)], rows, quality.empty)
    return _evaluation(outcome, reason, suite, results, rows, engine, started)


def _evaluation(
    outcome: Outcome,
    reason: str,
    suite: Suite,
    results: Mapping[int, CheckResult],
    rows: int,
    engine: Engine,
    started: float,
) -> Evaluation:
    return Evaluation(
        outcome=outcome,
        reason=reason,
        engine=engine,
        rows=rows,
        checks=tuple(results[i] for i in sorted(results)),
        suite_digest=suite.digest,
        seconds=round(time.monotonic() - started, 3),
    )


def _evaluate_on_pandas(
    frame: DataFrame, ready: Sequence[Prepared], kinds: Mapping[str, Kind], promised: Promised, limit: int
) -> dict[int, CheckResult]:
    import numpy as np

    columns, conditions, expressions = _needed(ready)
    table = prepared_frame(frame, columns, {name: sql for sql, name in conditions.items()}, expressions).toArrow()
    if promised.fingerprint is not None:
        hashes = table.column(HASH).to_numpy().view(np.uint64)  # sums are modulo 2**64
        promised.compare(table.num_rows, int(hashes.sum()))
    records = to_pandas(table.select([*columns, *expressions]))
    frames = {"": records}
    for sql, name in conditions.items():
        frames[sql] = records[table.column(name).to_numpy(zero_copy_only=False)]
    found = engines.find_on_pandas(ready, frames)
    partition, offset = (table.column(name).to_numpy() for name in ("_partition", "_offset"))

    def first_unexpected(one: Prepared, answer: engines.Found) -> tuple[SampleRow, ...]:
        positions = np.asarray(engines.unexpected_positions(answer))
        first = positions[np.lexsort((offset[positions], partition[positions]))[:limit]]
        return tuple(sample_row(record, one.columns, kinds) for record in table.take(first).to_pylist())

    return {one.declared.index: _result(one, found, kinds, promised.rows, first_unexpected) for one in ready}


def _evaluate_on_spark(
    frame: DataFrame, ready: Sequence[Prepared], kinds: Mapping[str, Kind], promised: Promised, limit: int
) -> dict[int, CheckResult]:
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    from fencepost.spark.fingerprint import count_and_sum

    columns, conditions, expressions = _needed(ready)
    records = prepared_frame(frame, columns, {name: sql for sql, name in conditions.items()}, expressions)
    records = records.persist(StorageLevel.DISK_ONLY)  # in memory, a batch larger than the heap ends the JVM *(seen)*
    try:
        # Fills the cache. A failed read is raised here; inside Great Expectations it would look like a bad check.
        if promised.fingerprint is None:
            records.count()
        else:
            promised.compare(*count_and_sum(records, HASH))
        frames = {"": records} | {sql: records.where(F.col(name)) for sql, name in conditions.items()}
        found = engines.find_on_spark(ready, frames)

        def first_unexpected(one: Prepared, answer: engines.Found) -> tuple[SampleRow, ...]:
            first = engines.unexpected_records(answer).orderBy("_partition", "_offset").limit(limit).collect()
            return tuple(sample_row(row.asDict(), one.columns, kinds) for row in first)

        return {one.declared.index: _result(one, found, kinds, promised.rows, first_unexpected) for one in ready}
    finally:
        records.unpersist()


def _needed(ready: Sequence[Prepared]) -> tuple[tuple[str, ...], dict[str, str], dict[str, str]]:
    """The columns to read, each once; a column name for every distinct row_condition; and every expression by its column's."""
    columns = tuple(dict.fromkeys(column for one in ready for column in one.columns))
    distinct = dict.fromkeys(one.condition for one in ready if one.condition)
    expressions = {one.holds: one.expression for one in ready if one.expression}
    return columns, {sql: f"_when_{i}" for i, sql in enumerate(distinct)}, expressions


def _without_records(frame: DataFrame, kinds: Mapping[str, Kind]) -> DataFrame:
    values = frame.select(*(f"`{name}`" for name in kinds))
    return values.sparkSession.createDataFrame([], values.schema)


def _no_sample(one: Prepared, found: engines.Found) -> tuple[SampleRow, ...]:
    return ()


def _result(
    one: Prepared, answers: Mapping[int, engines.Found], kinds: Mapping[str, Kind], rows: int, sample: Sampler
) -> CheckResult:
    """Great Expectations' answer as a result. Anything but a plain True or False on all rows is errored."""
    declared = one.declared
    found = answers.get(declared.index, engines.Found(error="Great Expectations gave no result"))
    if found.error:
        return CheckResult.errored(declared, found.error)
    if found.success is None:
        return CheckResult.errored(declared, "Great Expectations answered neither True nor False")
    whole = one.condition is None and one.scope is not Scope.SCHEMA
    if whole and found.element_count is not None and found.element_count != rows:
        return CheckResult.errored(
            declared, f"Great Expectations looked at {found.element_count} records; the batch has {rows}"
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
        sample=sample(one, found) if not found.success and found.unexpected is not None else (),
    )


def _observed(value: Any, one: Prepared, kinds: Mapping[str, Kind]) -> Any:
    """A metric's value as small JSON; one of the column's values is in the column's units."""
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _observed(v, one, kinds) for k, v in value.items()}
    if isinstance(value, set | frozenset | list | tuple):
        listed = [_observed(v, one, kinds) for v in value]
        if one.scope is not Scope.SCHEMA and not isinstance(value, list | tuple):
            listed.sort(key=lambda v: (str(type(v)), v))
        return listed if len(listed) <= LISTED else [*listed[:LISTED], f"… and {len(listed) - LISTED} more"]
    kind = kinds[one.columns[0]] if one.columns else None
    if kind and one.entry and one.entry.values and kind in (Kind.DATE, Kind.TIMESTAMP):
        return shown(value, kind)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = float(f"{value:.{DIGITS}g}")
        return int(value) if kind is Kind.INTEGER and value.is_integer() else value
    return cut(value) if value is None or isinstance(value, bool | int | str) else cut(str(value))
