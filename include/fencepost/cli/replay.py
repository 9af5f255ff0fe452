"""`fencepost replay`: sends quarantined records through the transform and the checks again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fencepost.cli.arguments import AsJson, End, PipelineName, Reason, Start, decision_of, interval_of, pipeline_of
from fencepost.cli.console import err
from fencepost.cli.steps import for_one_interval, show_steps, spark_session, steps_of
from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.model import Decision, Interval, StepResult
from fencepost.protocol.replay import can_be_replayed

if TYPE_CHECKING:
    from fencepost.ledger.deployment import Deployment


def replay(pipeline: PipelineName, start: Start, end: End, reason: Reason, as_json: AsJson = False) -> None:
    """Send the quarantined records of published intervals through the present transform and checks.

    Correct the transform, the schema or the rules first. Records that pass are published as an addition to their interval, with a
    revision and a report of its own. Records that fail stay in quarantine, with the attempt counted. Source offsets do not move,
    and no record passes twice: run the command again after any failure.

    If a row may come from records of several sources or intervals (output.layout: output), malformed records are not replayed.
    Reprocess their intervals.

    --start and --end may span several intervals. Each interval within them that has quarantined records is replayed.

    Example: fencepost replay nyc_flights --start 2013-01-01T00:00-05:00 --end 2013-01-02T00:00-05:00 --reason "schema fixed"
    """
    found, span, decision = pipeline_of(pipeline), interval_of(start, end), decision_of("replay", reason)
    show_steps(pipeline, span, _steps(found, span, decision), as_json=as_json)


def _steps(pipeline: Pipeline, span: Interval, decision: Decision) -> Iterator[StepResult]:
    from fencepost.ledger.deployment import Deployment
    from fencepost.steps.replay import plan_replay

    deployment = Deployment.of(pipeline)
    with spark_session(pipeline) as spark:
        for interval in _intervals(deployment, span):
            planned = plan_replay(pipeline, interval, decision, deployment=deployment)
            yield from steps_of(pipeline, interval, planned, deployment, for_one_interval(pipeline, spark))


def _intervals(deployment: Deployment, span: Interval) -> list[Interval]:
    """Returns the interval with exactly these times. Otherwise it returns the intervals within these times that have
    something to replay.
    """
    from fencepost.protocol.view import View
    from fencepost.steps.replay import current_sources

    ledger, sources = deployment.ledger, current_sources(deployment.pipeline)
    view = ledger.read() if ledger.exists() else View()
    inside = [interval for interval in view.intervals if span.start <= interval.start and interval.end <= span.end]
    if len(inside) < 2:
        return inside or [span]
    chosen = [interval for interval in inside if can_be_replayed(view, interval, sources)]
    err.print(
        f"{count_of(len(inside), 'interval')}, {len(chosen):,} of them with quarantined records to replay",
        soft_wrap=True,
    )
    return chosen
