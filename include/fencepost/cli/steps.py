"""Helps the commands that run steps: the steps after a plan, their Spark session, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from fencepost.cli.airflow import asset_event
from fencepost.cli.console import err, plain_error, print_json, working
from fencepost.cli.interruption import GO_ON, Interrupted, interrupted_by, show_interrupted, was_interrupted
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.model import Interval, StepResult
from fencepost.spark.diagnosis import unexpected

if TYPE_CHECKING:
    from fencepost.ledger.deployment import Deployment


def show_steps(
    pipeline: str,
    interval: Interval,
    results: Iterator[StepResult],
    *,
    as_json: bool,
    left: Callable[[list[StepResult]], str] = lambda steps: GO_ON,
) -> None:
    """Runs the steps and shows what each step did. If a step fails, it exits with the failure's code. `left` says what
    remains after these steps if a signal comes, and how to continue.
    """
    steps: list[StepResult] = []
    failure: FencepostError | Interrupted | None = None
    try:
        for result in results:
            steps.append(result)
            style = "bold yellow" if "starved_by" in result.details else "bold"
            err.print(f"[{style}]{result.step:9}[/] {escape(result.message)}", soft_wrap=True)
    except (Exception, KeyboardInterrupt) as error:
        failure = failure_of(error, lambda: left(steps), as_json=as_json)
    if as_json:
        print_json(
            {
                "pipeline": pipeline,
                "interval": interval.model_dump(mode="json"),
                "steps": [s.model_dump(mode="json") for s in steps],
                **(plain_error(failure, failure.exit_code) if failure else {"error": None, "exit_code": 0}),
            }
        )
        raise typer.Exit(failure.exit_code if failure else 0)


def failure_of(error: BaseException, left: Callable[[], str], *, as_json: bool) -> FencepostError | Interrupted:
    """Returns the error for the JSON document. Without `as_json` it raises the error, and `main` shows it."""
    interrupted = interrupted_by(error, left)
    if not as_json:
        raise interrupted or error
    if interrupted is not None:
        show_interrupted(interrupted)
        return interrupted
    assert isinstance(error, Exception), "only a signal ends a command otherwise"
    return error if isinstance(error, FencepostError) else unexpected(error)


def steps_of(
    pipeline: Pipeline,
    interval: Interval,
    planned: StepResult,
    deployment: Deployment,
    spark: Callable[[], Any],
    *,
    line: bool = True,
) -> Iterator[StepResult]:
    """Yields the results of the four steps and of the asset event, when each is complete. It says on stderr what Spark
    is doing.
    """
    from fencepost.steps.run_interval import run_interval

    during = partial(working, line=line)
    for result in run_interval(pipeline, interval, spark, planned=planned, deployment=deployment, during=during):
        yield result
        yield from asset_event(pipeline, result)


def for_one_interval(pipeline: Pipeline, spark: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that returns a separate session for one interval, on the JVM of `spark`. The first call
    creates it.
    """
    sessions: list[Any] = []

    def own() -> Any:
        from fencepost.spark.session import session_of_its_own

        if not sessions:
            sessions.append(session_of_its_own(spark(), pipeline))
        return sessions[0]

    return own


@contextmanager
def spark_that_reads(pipeline: Pipeline, command: str, doing: str) -> Iterator[Any]:
    """Yields a separate Spark session for a command that only reads. It says on stderr what the command is doing. An
    error of Spark in the block becomes Fencepost's error.

    Raises:
        JobFailed, AccessDenied, DriverDied: the message names the command.
    """
    from fencepost.doctor.rights import denials_named
    from fencepost.kafka.client_settings import client_settings
    from fencepost.spark.diagnosis import spark_reads

    doing = f"pipeline {pipeline.name}, {command}"
    with spark_session(pipeline) as spark, denials_named(pipeline, client_settings(pipeline)), spark_reads(doing):
        session = for_one_interval(pipeline, spark)()
        with working(doing):
            yield session


@contextmanager
def spark_session(pipeline: Pipeline, records: int | None = None, step: str = "run") -> Iterator[Callable[[], Any]]:
    """Yields a function that returns the session. The function's first call starts the session, and the end of the
    block stops it.

    `records` is the number of records that the session will process, if that is known. `step` has the meaning of
    `build_session`.
    """
    from fencepost.spark.session import build_session

    sessions: list[Any] = []

    def spark() -> Any:
        if not sessions:
            with working("starting Spark"):
                sessions.append(build_session(pipeline, step, records))
        return sessions[0]

    try:
        yield spark
    finally:
        for session in sessions if not was_interrupted() else ():
            with suppress(Exception):  # a killed JVM cannot be stopped; the step's own error reports that
                session.stop()
