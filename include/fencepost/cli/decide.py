"""`fencepost skip`, `withdraw` and `publish`: an operator's decision about one interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fencepost.cli.airflow import asset_event
from fencepost.cli.arguments import AsJson, End, PipelineName, Reason, Start, decision_of, interval_of, pipeline_of
from fencepost.cli.steps import show_steps, spark_session
from fencepost.config.pipeline import Pipeline
from fencepost.model import Decision, Interval, StepResult

Step = Callable[[Pipeline, Interval, Decision], StepResult]


def skip(pipeline: PipelineName, start: Start, end: End, reason: Reason, as_json: AsJson = False) -> None:
    """Let the frontier pass an interval without its output. The ledger stores who decided, when and why.

    The interval must not be published. Its records stay in the source: `fencepost run --reprocess` writes them later.

    Example: fencepost skip nyc_flights --start 2013-01-01T00:00-05:00 --end 2013-01-02T00:00-05:00 --reason "source was wrong"
    """
    from fencepost.steps.advance import skip_batch

    _decide("skip", skip_batch, pipeline, start, end, reason, as_json)


def withdraw(pipeline: PipelineName, start: Start, end: End, reason: Reason, as_json: AsJson = False) -> None:
    """Remove an interval that was planned by mistake from the order. Earlier intervals that are planned afterwards then get its
    records.

    The interval must have no records, or must not be published. The ledger stores who decided, when and why.

    Example: fencepost withdraw nyc_flights --start 2013-02-01T00:00-05:00 --end 2013-02-02T00:00-05:00 --reason "too early"
    """
    from fencepost.steps.plan import withdraw_batch

    _decide("withdraw", withdraw_batch, pipeline, start, end, reason, as_json)


def publish(pipeline: PipelineName, start: Start, end: End, reason: Reason, as_json: AsJson = False) -> None:
    """Publish a rejected batch. The ledger stores who decided, when and why.

    Read its report first: `fencepost status` names the file.

    Example: fencepost publish nyc_flights --start 2013-01-01T00:00-05:00 --end 2013-01-02T00:00-05:00 --reason "a storm"
    """
    from fencepost.steps.advance import advance_batch

    def publish_batch(found: Pipeline, interval: Interval, decision: Decision) -> StepResult:
        with spark_session(found) as spark:  # started only for a large staged batch
            return advance_batch(found, interval, decision, spark=spark)

    _decide("publish", publish_batch, pipeline, start, end, reason, as_json)


def _decide(action: str, step: Step, pipeline: str, start: str, end: str, reason: str, as_json: bool) -> None:
    found, interval, decision = pipeline_of(pipeline), interval_of(start, end), decision_of(action, reason)

    def results() -> Iterator[StepResult]:
        done = step(found, interval, decision)
        yield done
        yield from asset_event(found, done)

    show_steps(pipeline, interval, results(), as_json=as_json)
