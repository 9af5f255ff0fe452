"""One step of a pipeline in a process of its own, to be struck: `step_process.py STEP PIPELINE DAY`.

Exit code 0, or that of the error it ends with.
"""

from __future__ import annotations

import sys

from conftest import day
from fencepost.config.loading import find_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.replay import plan_replay


def on_spark(step: str, pipeline: Pipeline, number: int) -> None:
    from fencepost.spark.session import build_session
    from fencepost.steps.validate import judge_what_was_written, validate_batch
    from fencepost.steps.write import write_batch

    spark = build_session(pipeline, step)
    if step == "write":  # as its job does
        wrote = write_batch(spark, pipeline, day(number))
        judge_what_was_written(spark, pipeline, day(number), wrote.batch)
    else:
        validate_batch(spark, pipeline, day(number))
    spark.stop()


def main(step: str, name: str, number: int) -> int:
    pipeline = find_pipeline(name)
    try:
        if step == "plan":
            plan_batch(pipeline, day(number))
        elif step == "replay":
            plan_replay(pipeline, day(number))
        elif step == "advance":
            advance_batch(pipeline, day(number))
        else:
            on_spark(step, pipeline, number)
    except FencepostError as error:
        print(f"{type(error).__name__}: {error}")  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
