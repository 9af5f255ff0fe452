"""`fencepost run`: runs the four steps here and now, for one interval or for each interval of the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from fencepost.cli.arguments import AsJson, PipelineName, interval_of, pipeline_of
from fencepost.cli.run_each import run_each
from fencepost.cli.steps import show_steps, spark_session, steps_of
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import Interval, StepResult, offsets_of

STEPS = ("plan", "write", "validate", "advance")


def run(
    pipeline: PipelineName,
    start: Annotated[str | None, typer.Option(help="Start of the interval, ISO 8601; UTC if it has no zone.")] = None,
    end: Annotated[str | None, typer.Option(help="End of the interval (exclusive), ISO 8601.")] = None,
    reprocess: Annotated[
        bool, typer.Option(help="Write a published interval again: the same frozen input, a new revision.")
    ] = False,
    allow_future: Annotated[
        bool,
        typer.Option(
            help="Plan an interval that has not ended. Earlier intervals that are planned later get no records."
        ),
    ] = False,
    another_cluster: Annotated[
        bool, typer.Option(help="The pipeline now uses another Kafka cluster than its last publication did.")
    ] = False,
    sources_changed: Annotated[
        bool, typer.Option(help="The pipeline now reads other topics than its newest batch did.")
    ] = False,
    each: Annotated[
        bool, typer.Option("--each", help="Run every interval of the schedule between --start and --end, in order.")
    ] = False,
    last: Annotated[
        int | None,
        typer.Option(min=1, help="Run this many of the schedule's newest intervals that have ended, in order."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan, write, validate and publish one interval, here and now, without Airflow.

    Run it again after any failure: it keeps what is done, and finishes the rest.

    With --each the schedule cuts the time between --start and --end into intervals, as it does in Airflow. They run one after
    another in one Spark session, and stop at the first that is not published. The same command continues there. --last runs the
    newest intervals between schedule.start and schedule.end instead.

    Example: fencepost run nyc_flights --start 2013-01-01T00:00-05:00 --end 2013-01-02T00:00-05:00
    """
    found, asked_for = pipeline_of(pipeline), _asked_for(start, end, last)
    if each or isinstance(asked_for, int):
        if reprocess:
            raise SettingsError(
                "--reprocess works for one interval only. A repeated command over several intervals would write "
                "finished intervals again. In Airflow, a backfill with the parameter reprocess writes several "
                "intervals again."
            )
        if another_cluster:
            raise SettingsError(
                "--another-cluster works for one interval only. Once that interval is published, run the next "
                "intervals without the option."
            )
        if sources_changed:
            raise SettingsError(
                "--sources-changed works for one interval only. Once that interval is planned, run the next intervals without "
                "the option."
            )
        if last is not None and allow_future:
            raise SettingsError(
                "--allow-future works with --start and --end. --last runs only intervals that have ended."
            )
        run_each(found, asked_for, allow_future=allow_future, as_json=as_json)
        return
    asked = {
        "reprocess": reprocess,
        "allow_future": allow_future,
        "another_cluster": another_cluster,
        "sources_changed": sources_changed,
    }
    show_steps(
        pipeline,
        asked_for,
        _steps(found, asked_for, asked),
        as_json=as_json,
        left=partial(left_after, interval=asked_for, reprocess=reprocess),
    )


def left_after(steps: list[StepResult], interval: Interval, *, reprocess: bool) -> str:
    """Returns what remains to be done if a run is interrupted after these steps, and how to continue."""
    done = [step.step for step in steps]
    left = [step for step in STEPS if step not in done]
    if not left:
        return f"All steps of {interval.description} are done; only the asset event in Airflow may be missing"
    again = "without --reprocess, which might begin another revision," if reprocess and done else "again"
    are = f"{', '.join(left[:-1])} and {left[-1]} are" if left[:-1] else f"{left[0]} is"
    return f"Of {interval.description}, {are} left. What is done stays done. Run the same command {again} to continue"


def _asked_for(start: str | None, end: str | None, last: int | None) -> Interval | int:
    """Returns the interval between the times, or the number of newest intervals that was requested."""
    if last is not None:
        if start is not None or end is not None:
            raise SettingsError("--last takes the newest intervals of the schedule: give it, or --start and --end.")
        return last
    if start is None or end is None:
        raise SettingsError("Give --start and --end, or --last for the newest intervals of the schedule.")
    return interval_of(start, end)


def _steps(pipeline: Pipeline, interval: Interval, asked: dict[str, Any]) -> Iterator[StepResult]:
    """Yields the four steps in order. The first step that needs Spark starts it."""
    from fencepost.ledger.deployment import Deployment
    from fencepost.steps.plan import plan_batch

    deployment = Deployment.of(pipeline)
    planned = plan_batch(pipeline, interval, **asked, deployment=deployment)
    with spark_session(pipeline, offsets_of(planned.details)) as spark:
        yield from steps_of(pipeline, interval, planned, deployment, spark)
