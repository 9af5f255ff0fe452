"""Runs a job in which each Spark partition writes a task-partition. This module runs in the driver, and `writer.py` in
the executors.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row

from fencepost.errors import FencepostError
from fencepost.model import OffsetRange, Receipt
from fencepost.rows.row_by_row import RowsMoved, require_read
from fencepost.rows.writer import ANSWER_SCHEMA, TASKS, WriteJob, writer_of

log = logging.getLogger("fencepost.rows.run_writers")


@dataclass(frozen=True)
class Answers:
    """The answers of the writers of all task-partitions. `read_all` says that each writer read all of its rows.
    `read_all` is false if a task-partition was committed already. `computed` is false if Spark knew that there are no rows,
    and computed nothing. Then nothing was observed.
    """

    receipts: list[Receipt]
    read_all: bool
    computed: bool = True


def run_writers(
    rows: DataFrame,
    job: WriteJob,
    tasks: Mapping[OffsetRange, int] | None,
    meaning: Callable[[Exception], FencepostError],
    committed: list[Receipt] | None = None,
) -> Answers:
    """Writes the rows on the executors, each task-partition exactly once. Returns the answers of the writers.

    `tasks` maps each range that the DataFrame reads to its task-partition. If `tasks` is None, the rows are placed
    already, and each Spark partition is the task-partition in the same place of the job. `meaning` translates an error of
    the job, and of the jobs that Spark runs before it for a broadcast. If all task-partitions have committed, `committed` has
    the receipts in their marks, and no job runs.

    Raises:
        RowsMoved: the DataFrame's partitions are not those ranges. No job has run.
        FencepostError: the result of `meaning`.
    """
    if committed is not None:
        log.info(
            "batch %s: an earlier attempt has committed task-partitions %d to %d",
            job.writers.batch,
            job.writers.first,
            job.writers.first + len(committed) - 1,
        )
        return Answers(committed, read_all=False)
    try:
        answers, computed = _run(rows, job, tasks)
    except RowsMoved:
        raise
    except Exception as error:
        raise meaning(error) from error
    receipts = [Receipt.model_validate_json(answer["receipt"]) for answer in answers]
    return Answers(receipts, not any(answer["skipped"] for answer in answers), computed)


def _run(rows: DataFrame, job: WriteJob, tasks: Mapping[OffsetRange, int] | None) -> tuple[list[Row], bool]:
    """Returns the answers of the writers, and whether Spark computed rows (`Answers.computed`)."""
    answered, computed = rows.mapInArrow(writer_of(job), ANSWER_SCHEMA), True
    if tasks is None and not answered._jdf.queryExecution().toRdd().getNumPartitions():
        computed = False
        answered = _without_rows(rows, len(job.writers.marks)).mapInArrow(writer_of(job), ANSWER_SCHEMA)
    return _collect(answered, job.nonce, _task_partitions(answered, job, tasks)), computed


def _without_rows(rows: DataFrame, partitions: int) -> DataFrame:
    """Returns a DataFrame with the same columns, and without rows in each of its Spark partitions. Spark plans no task if
    it knows that there are no rows, and each task-partition needs its mark all the same.
    """
    spark = rows.sparkSession
    return spark.createDataFrame(spark.sparkContext.parallelize([], partitions), rows.schema)


def _task_partitions(frame: DataFrame, job: WriteJob, tasks: Mapping[OffsetRange, int] | None) -> Sequence[int]:
    """Returns the task-partition that each Spark partition writes. The numbers are read from the frame's plan before
    the job starts.
    """
    if tasks is None:
        return range(job.writers.first, job.writers.first + len(job.writers.marks))
    return [tasks[read] for read in require_read(frame, tasks)]


def _collect(answered: DataFrame, tag: str, tasks: Sequence[int]) -> list[Row]:
    """Runs the job whose Spark partitions write these task-partitions. The tag identifies it in Spark's status store."""
    context = answered.sparkSession.sparkContext
    context.setLocalProperty(TASKS, json.dumps(list(tasks)))
    context.addJobTag(tag)
    try:
        return answered.collect()
    finally:
        with suppress(Exception):  # the JVM may have died
            context.setLocalProperty(TASKS, None)  # type: ignore[arg-type]  # removes the property
            context.removeJobTag(tag)
