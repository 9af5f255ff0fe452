"""One step of a pipeline in a process of its own, to be struck: `step_process.py STEP PIPELINE DAY`.

Exit code 0, or that of the error it ends with.
"""

from __future__ import annotations

import sys
from typing import Any

from conftest import day
from fencepost.config.loading import find_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.replay import plan_replay
from fencepost.steps.run_interval import Step, on_spark


def in_a_job(step: Step, pipeline: Pipeline, number: int) -> None:
    from fencepost.spark.session import build_session
    from fencepost.steps.validate import judge_what_was_written

    spark = build_session(pipeline, step)
    result = on_spark(step, spark, pipeline, day(number))
    if step == "write":  # as its job does
        judge_what_was_written(spark, pipeline, day(number), result.batch)
    spark.stop()


def main(step: Any, name: str, number: int) -> int:
    pipeline = find_pipeline(name)
    try:
        if step == "plan":
            plan_batch(pipeline, day(number))
        elif step == "replay":
            plan_replay(pipeline, day(number))
        elif step == "advance":
            advance_batch(pipeline, day(number))
        else:
            in_a_job(step, pipeline, number)
    except FencepostError as error:
        print(f"{type(error).__name__}: {error}")  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
