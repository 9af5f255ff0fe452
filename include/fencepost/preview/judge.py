"""Finds the verdict that a suite would have given on batches that were written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import SettingsError
from fencepost.formats.quoting import quoted
from fencepost.ledger.deployment import Deployment
from fencepost.model import Frozen, Interval, Outcome, State
from fencepost.preview.past import NotReadable, PastRevision, as_promised, check_receipts, read_past
from fencepost.protocol.view import View
from fencepost.quality.checks import CheckResult, Evaluation
from fencepost.quality.empty_sources import judge_empty_sources
from fencepost.quality.evaluation import evaluate, evaluate_nothing
from fencepost.quality.gathering import NotAsPromised
from fencepost.quality.history import History, history_of
from fencepost.quality.quarantine import Accounts, over_limit
from fencepost.quality.rules import first_failed
from fencepost.rows.fingerprint import counting, counts_of
from fencepost.suite.declared import DeclaredExpectation, Suite, rule_names


class JudgedRevision(Frozen):
    """One revision with its additions. It has the verdict that was given, and the verdict that the suite would have
    given.

    `now` is None if the revision was not judged, and `why` has the reason. `taken` has the number of rows that each
    rule of severity quarantine would have kept from the output. `bypassed` is the number of records that are in
    quarantine already, as malformed or by the same rules.
    """

    interval: Interval
    revision: str
    state: State
    rows: int = Field(ge=0)
    then: Outcome | None = None
    now: Outcome | None = None
    why: str
    taken: dict[str, int] = Field(default_factory=dict)
    bypassed: int = Field(default=0, ge=0)
    checks: tuple[CheckResult, ...] = ()


def judge_past(
    spark: SparkSession, deployment: Deployment, view: View, pasts: Sequence[PastRevision], suite: Suite, file: Path
) -> Iterator[JudgedRevision]:
    """Yields each of these revisions, judged by the suite under the pipeline's present settings."""
    for past in pasts:
        try:
            yield _judged(spark, deployment, view, past, suite, file)
        except NotReadable as error:
            yield _of(past, None, f"Not judged: {error}.")


def _judged(
    spark: SparkSession, deployment: Deployment, view: View, past: PastRevision, suite: Suite, file: Path
) -> JudgedRevision:
    """Judges one revision.

    1. Read it back, and compare it with its receipts.
    2. Remove the rows that a rule would have taken, and count them.
    3. Judge the others as a whole batch.
    4. Compare all that would be in quarantine with the limit.
    """
    pipeline, promised = deployment.pipeline, past.promised
    history = history_of(past.batch, past.batch.require_written, view.all() if suite.looks_back else ())
    taken: dict[str, int] = {}
    if not promised.rows:
        return _concluded(past, pipeline, suite, evaluate_nothing(suite, pipeline.quality, _of_rows(history, 0)), taken)
    frame = read_past(spark, deployment, past)  # 1
    quality, fingerprint = pipeline.quality.model_copy(update={"sample_rows": 0}), promised.fingerprint
    rows: int = promised.rows
    if suite.rules:
        try:
            frame, taken = _without_taken(frame, past, suite.rules, file)  # 2
        except SettingsError as error:
            return _of(past, Outcome.UNDETERMINED, str(error))
        rows -= sum(taken.values())
        frame = frame.drop("_hash")
    try:
        evaluation = evaluate(  # 3
            frame, suite, quality, rows, _of_rows(history, rows), None if suite.rules else fingerprint
        )
    except NotAsPromised as found:
        as_promised(past, found.rows, found.fingerprint)
        raise
    if not suite.rules and not evaluation.read:
        check_receipts(frame, past)
    return _concluded(past, pipeline, suite, evaluation, taken)  # 4


def _without_taken(
    frame: DataFrame, past: PastRevision, rules: Sequence[DeclaredExpectation], file: Path
) -> tuple[DataFrame, dict[str, int]]:
    """Returns the rows that no rule would have taken, and how many rows each rule would have taken."""
    names = [name for name in frame.columns if not name.startswith("_")]
    marked = frame.withColumn("_rule", first_failed(frame.select(*(quoted(name) for name in names)), rules, file))
    counts = [F.count_if(F.col("_rule") == n).alias(f"rule_{n}") for n in range(len(rules))]
    row = marked.agg(*counting("_hash"), *counts).head()
    assert row is not None
    as_promised(past, *counts_of(row))
    taken = {name: int(row[f"rule_{n}"]) for n, name in enumerate(rule_names(rules))}
    return marked.where(F.col("_rule").isNull()).drop("_rule"), {name: rows for name, rows in taken.items() if rows}


def _of_rows(history: History, rows: int) -> History:
    """Returns the history, with this number of rows for the batch."""
    return history.model_copy(update={"batch": history.batch.model_copy(update={"rows": rows})})


def _concluded(
    past: PastRevision, pipeline: Pipeline, suite: Suite, evaluation: Evaluation, taken: Mapping[str, int]
) -> JudgedRevision:
    """Returns the verdict. It takes into account the limit for the records that would be in quarantine."""
    written = past.batch.require_written
    evaluation = judge_empty_sources(evaluation, written, pipeline.source_topics)
    known = {name: rows for name, rows in written.rules.items() if name in rule_names(suite.rules)}
    accounts = Accounts.of(past.batch.plan, written)
    results = accounts.results if accounts.results is not None else written.rows
    failed = sum(known.values()) + sum(taken.values())
    above = over_limit(
        pipeline.quality.quarantine_limit, accounts.model_copy(update={"failed": failed, "results": results})
    )
    outcome, why = evaluation.outcome, evaluation.reason
    if above is not None and outcome is not Outcome.UNDETERMINED:
        outcome, why = Outcome.REJECTED, f"{above}. {why if evaluation.outcome is Outcome.REJECTED else ''}".strip()
    back = sum(rows for name, rows in written.rules.items() if name not in known)
    if back:
        why += f" {count_of(back, 'row')} in quarantine were not judged, because this suite does not have their rule."
    bypassed = accounts.malformed_kept + sum(known.values())
    return _of(past, outcome, why, taken=dict(taken), bypassed=bypassed, checks=evaluation.checks)


def _of(past: PastRevision, now: Outcome | None, why: str, **found: object) -> JudgedRevision:
    verdict = past.batch.verdict
    return JudgedRevision.model_validate(
        {
            "interval": past.interval,
            "revision": past.name,
            "state": past.batch.state,
            "rows": past.promised.rows,
            "then": verdict.outcome if verdict else None,
            "now": now,
            "why": why,
            **found,
        }
    )
