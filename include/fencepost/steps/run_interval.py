"""Runs all steps of one interval, or one step by its name for a task or a job.

A step is imported when it runs, because its imports take seconds and a command or a task may not need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal, get_args

from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import Interval, StepResult
from fencepost.protocol.view import PASSED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fencepost.ledger.deployment import Deployment

Step = Literal["write", "validate", "advance"]  # after the plan; each of them may need Spark
DOING: dict[Step, str] = {"write": "writing", "validate": "judging"}


def run_interval(
    pipeline: Pipeline,
    interval: Interval,
    spark: Callable[[], SparkSession],
    *,
    planned: StepResult | None = None,
    deployment: Deployment | None = None,
    during: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Iterator[StepResult]:
    """Runs plan, write, validate and advance. Yields each step's result when the step ends.

    A published or skipped interval has no steps after its plan. `planned` is the plan's result, if the caller has it
    already. `spark` gives the session, and is called only if a step needs Spark. `during` is entered around Spark's
    work, with a word for that work.
    """
    from fencepost.ledger.deployment import Deployment
    from fencepost.steps.plan import plan_batch

    deployment = deployment or Deployment.of(pipeline)
    planned = planned or plan_batch(pipeline, interval, deployment=deployment)
    yield planned
    if planned.state in PASSED:
        return
    for step in get_args(Step):
        yield run_step(step, pipeline, interval, spark, deployment=deployment, during=during)


def run_step(
    step: Step,
    pipeline: Pipeline,
    interval: Interval,
    spark: Callable[[], SparkSession],
    *,
    deployment: Deployment | None = None,
    during: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> StepResult:
    """Runs one step, on Spark if the step needs Spark. The arguments are those of `run_interval`."""
    from fencepost.steps.advance import advance_batch

    if step == "advance":
        return advance_batch(pipeline, interval, deployment=deployment, spark=spark)
    done = without_spark(step, pipeline, interval, deployment=deployment)
    if done is not None:
        return done
    if step == "write":
        load_for_judging(pipeline)
    session = spark()
    with during(DOING[step]):
        return on_spark(step, session, pipeline, interval, deployment=deployment)


def without_spark(
    step: Step, pipeline: Pipeline, interval: Interval, *, deployment: Deployment | None = None, rejected: bool = False
) -> StepResult | None:
    """Returns the step's result, or None if the step needs Spark. `rejected` is passed to `validate_without_spark`."""
    if step == "write":
        from fencepost.steps.write import write_without_spark

        return write_without_spark(pipeline, interval, deployment=deployment)
    if step == "validate":
        from fencepost.steps.validate import validate_without_spark

        return validate_without_spark(pipeline, interval, deployment=deployment, rejected=rejected)
    from fencepost.steps.advance import advance_without_spark

    return advance_without_spark(pipeline, interval, deployment=deployment)


def on_spark(
    step: Step, spark: SparkSession, pipeline: Pipeline, interval: Interval, *, deployment: Deployment | None = None
) -> StepResult:
    """Runs the step on this session."""
    if step == "write":
        from fencepost.steps.write import write_batch

        return write_batch(spark, pipeline, interval, deployment=deployment)
    if step == "validate":
        from fencepost.steps.validate import validate_batch

        return validate_batch(spark, pipeline, interval, deployment=deployment)
    from fencepost.steps.advance import advance_batch

    return advance_batch(pipeline, interval, deployment=deployment, spark=lambda: spark)


def load_for_judging(writes: Pipeline | None) -> None:
    """Loads Great Expectations, which takes seconds, in a thread while the JVM creates the session.

    Other imports come first, because two threads that import one package may get an incomplete module. The other
    imports are the step validate and, if the pipeline `writes` too, the step write and the pipeline's transform.
    """
    import fencepost.steps.validate
    from fencepost.quality.loading import load_ahead

    if writes is not None:
        import fencepost.steps.write  # noqa: F401
        from fencepost.rows.transform import load_transform

        with suppress(SettingsError):  # the write reports it
            load_transform(writes)
    load_ahead()
