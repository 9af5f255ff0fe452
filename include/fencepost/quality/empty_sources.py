"""Judges whether each source gave a batch records, for sources with `empty: reject`. So a dead region does not hide behind
others, however many rows the output has.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.config.source import REJECT, Source
from fencepost.model import EMPTY_SOURCE, Outcome, SourceSummary, WriteSummary
from fencepost.quality.checks import CheckResult, Evaluation, Status
from fencepost.suite.declared import Severity


def judge_empty_sources(evaluation: Evaluation, written: WriteSummary, sources: Mapping[str, Source]) -> Evaluation:
    """Returns the evaluation after judging the sources that the batch read, too. `sources` has their settings by topic. Pure.

    1. An undetermined verdict stays undetermined.
    2. If it is not known whether a source gave a record that is not excluded, the verdict is undetermined.
    3. If one gave none, the batch is rejected, and the reason says so.
    4. Otherwise the verdict stays.
    """
    if evaluation.outcome is Outcome.UNDETERMINED:  # 1
        return evaluation
    asked = [(sources[topic], found) for topic, found in written.sources.items() if topic in sources]
    lacking = [(source, found) for source, found in asked if source.empty == REJECT and not found.included]
    if not lacking:  # 4
        return evaluation
    first = len(evaluation.checks)
    checks = [_check(first + n, source, found) for n, (source, found) in enumerate(lacking)]
    unknown = [check.error for check in checks if check.status is Status.ERRORED]
    reason = " ".join(unknown or [_why(source, found) for source, found in lacking])
    besides = f" {evaluation.reason}" if evaluation.outcome is Outcome.REJECTED else ""
    return evaluation.model_copy(
        update={
            "outcome": Outcome.UNDETERMINED if unknown else Outcome.REJECTED,  # 2, 3
            "reason": f"{reason}{besides}",
            "checks": (*evaluation.checks, *checks),
        }
    )


def _check(index: int, source: Source, found: SourceSummary) -> CheckResult:
    """Returns the result of a source that gave no record, or of one whose records were not counted."""
    counted = found.rows_in is not None
    return CheckResult(
        index=index,
        type=f"{source.setting}{EMPTY_SOURCE}",
        severity=Severity.CRITICAL,
        kwargs={"topic": source.topic},
        status=Status.FAILED if counted else Status.ERRORED,
        observed={"read": found.rows_in, "excluded": sum(found.excluded.values())} if counted else None,
        error="" if counted else _not_counted(source),
    )


def _not_counted(source: Source) -> str:
    return (
        f"It is not known whether topic {source.topic} gave a record, because a retry found the rows already written, and "
        f"{source.setting}{EMPTY_SOURCE} did not ask for a count then."
    )


def _why(source: Source, found: SourceSummary) -> str:
    none = f"Topic {source.topic} gave no record"
    if found.rows_in:
        none = f"Topic {source.topic} gave only excluded records ({found.rows_in:,})"
    return f"{none}; {source.setting}{EMPTY_SOURCE} is 'reject'."
