"""`fencepost skip`, `withdraw` and `publish`: an operator's decision about one interval."""

from __future__ import annotations

from fencepost.cli.arguments import End, PipelineName, Reason, Start, decision_of, interval_of, pipeline_of
from fencepost.cli.console import out


def skip(pipeline: PipelineName, start: Start, end: End, reason: Reason) -> None:
    """Let the frontier pass an interval without its output. The ledger stores who, when and why."""
    from fencepost.steps.advance import skip_batch

    out.print(skip_batch(pipeline_of(pipeline), interval_of(start, end), decision_of("skip", reason)).message)


def withdraw(pipeline: PipelineName, start: Start, end: End, reason: Reason) -> None:
    """Take an interval that was planned by mistake out of the order, so that earlier intervals get their records again.

    The interval must have no records, or must not be published. The ledger stores who, when and why.
    """
    from fencepost.steps.plan import withdraw_batch

    out.print(withdraw_batch(pipeline_of(pipeline), interval_of(start, end), decision_of("withdraw", reason)).message)


def publish(pipeline: PipelineName, start: Start, end: End, reason: Reason) -> None:
    """Publish a rejected batch. The ledger stores who, when and why."""
    from fencepost.cli.run import spark_session
    from fencepost.steps.advance import advance_batch

    decision, found = decision_of("publish", reason), pipeline_of(pipeline)
    with spark_session(found) as spark:  # started for a large staged batch alone
        out.print(advance_batch(found, interval_of(start, end), decision, spark=spark).message)
