"""The program that `spark-submit` runs for a step. The program gets arguments, and writes one file with the outcome.

The process ties itself to its parent before it imports anything heavy. From then on it cannot outlive the JVM, and the
JVM cannot outlive the Airflow task. SparkSubmitOperator ensures neither.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, get_args

from fencepost.config.connections import is_worth_a_retry, message_with_connections
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, Retriable, SettingsError
from fencepost.model import Frozen, Interval, StepResult
from fencepost.spark.diagnosis import unexpected
from fencepost.spark.parent import tie_to_parent
from fencepost.steps.handover import taken_over
from fencepost.steps.run_interval import Step, load_for_judging, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class JobOutcome(Frozen):
    """The outcome of a job: the step's result, or the error that stopped it.

    Airflow's log and UI may show the message, so it quotes no record and no secret. `exit_code` is the exit code of the
    process.
    """

    status: Literal["ok", "error"]
    error: str | None = None
    retriable: bool = False
    exit_code: int = 0
    message: str
    result: StepResult | None = None

    @classmethod
    def of(cls, result: StepResult) -> Self:
        """Returns the outcome of a step that succeeded."""
        return cls(status="ok", message=result.message, result=result)

    @classmethod
    def of_error(cls, error: Exception, step: Step, pipeline: Pipeline | None = None) -> Self:
        """Returns the outcome of a step that raised an error. `pipeline` is None if it could not be loaded. For an
        unexpected error the message has only the error's type and place.
        """
        known = error if isinstance(error, FencepostError) else unexpected(error, step)
        again = isinstance(known, Retriable) if pipeline is None else is_worth_a_retry(known, pipeline)
        return cls(
            status="error",
            error=type(error).__name__,
            retriable=again,
            exit_code=Retriable.exit_code if again else known.exit_code,
            message=str(known) if pipeline is None else message_with_connections(known, pipeline),
        )

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """Returns the outcome in a file. Returns None if the job died before it wrote the file."""
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def write(self, file: Path) -> None:
        """Writes the file, whole or not at all."""
        draft = file.with_suffix(".draft")
        draft.write_text(self.model_dump_json(), encoding="utf-8")
        draft.replace(file)


def main(argv: Sequence[str]) -> int:
    """Runs one step on Spark and returns the exit code.

    1. tie this process to its parent;
    2. read the arguments and the pipeline's settings, take the settings of connections from the task, and start the session;
    3. run the step;
    4. write the outcome; later failures do not change it;
    5. after a write, judge the batch too, because starting another session would take longer than judging;
    6. stop the session.
    """
    tie_to_parent(signal.SIGTERM)  # 1
    args = _parser().parse_args(argv)  # 2
    step: Step = args.step
    spark: SparkSession | None = None
    pipeline: Pipeline | None = None
    try:
        start_log(os.environ.get("FENCEPOST_LOG", "INFO"))
        from fencepost.spark.session import build_session

        pipeline = load_pipeline(args.folder)
        if args.settings is not None:
            pipeline = taken_over(pipeline, args.settings)
        interval = Interval.of(args.start, args.end)
        if step in ("write", "validate"):
            load_for_judging(pipeline if step == "write" else None)
        spark = build_session(pipeline, step)
        outcome = JobOutcome.of(on_spark(step, spark, pipeline, interval))  # 3
    except Exception as error:
        outcome = JobOutcome.of_error(error, step, pipeline)
        log.error("%s: %s", outcome.error, outcome.message)  # noqa: TRY400 - a traceback ends in words that quote records
    outcome.write(args.outcome)  # 4
    if spark is not None:
        if step == "write" and outcome.result is not None and pipeline is not None:
            from fencepost.steps.validate import judge_what_was_written

            judge_what_was_written(spark, pipeline, interval, outcome.result.batch)  # 5
        with suppress(Exception):
            spark.stop()  # 6
    return outcome.exit_code


def start_log(level: str) -> None:
    """Logs to stderr, with `fencepost.*` at this level. Other loggers stay at INFO, because py4j at DEBUG logs the
    settings sent to Spark.

    Raises:
        SettingsError: the level does not exist.
    """
    known = logging.getLevelNamesMapping()
    if level.upper() not in known:
        raise SettingsError(f"FENCEPOST_LOG is {level!r}; set it to DEBUG, INFO, WARNING, ERROR or CRITICAL.")
    number = known[level.upper()]
    logging.basicConfig(
        level=max(number, logging.INFO), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("fencepost").setLevel(number)
    if number > logging.DEBUG:
        logging.getLogger("great_expectations").setLevel(logging.WARNING)  # its import logs forty lines
        # py4j logs tracebacks if the JVM has died, which the step's own error reports.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    else:
        logging.getLogger("fencepost.kafka.librdkafka").setLevel(logging.ERROR)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run_step.py")
    parser.add_argument("step", choices=get_args(Step), help="the step to run")
    parser.add_argument("--folder", required=True, type=Path, help="the pipeline's folder")
    parser.add_argument("--settings", type=Path, help="the pipe with the settings of its connections, if it names any")
    parser.add_argument("--start", required=True, type=datetime.fromisoformat, help="start of the interval, ISO 8601")
    parser.add_argument("--end", required=True, type=datetime.fromisoformat, help="end of the interval, ISO 8601")
    parser.add_argument("--outcome", required=True, type=Path, help="where to write the outcome as JSON")
    return parser
