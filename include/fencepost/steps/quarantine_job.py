"""The second job of a write is for records that bypass the transform: malformed records and, in a replay, result rows.

The second job runs after the first job has committed all of its rows. It uses the protocol of the writers, with its own
task-partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.source import Source
from fencepost.ledger.deployment import Deployment
from fencepost.model import NO_SCHEMAS, Batch, OffsetRange, Receipt, TaskKind
from fencepost.quality.rules import quarantine_rules
from fencepost.rows.decode import is_malformed, read_source, with_record
from fencepost.rows.flag import NO_RULES
from fencepost.rows.placing import place_by_key
from fencepost.rows.quarantined import (
    BYPASSING,
    SET_APART,
    judged_results,
    parsed_again,
    result_rows,
    set_apart,
    to_malformed,
    to_routed_again,
    with_reason,
)
from fencepost.rows.run_writers import run_writers
from fencepost.rows.transform import analysis_errors
from fencepost.rows.writer import WriteJob
from fencepost.spark.diagnosis import spark_reads
from fencepost.steps.batch_input import read_input, read_quarantined, records_by_source
from fencepost.steps.failures import write_failure
from fencepost.steps.writers import malformed_job, replayed_job


def write_malformed(spark: SparkSession, deployment: Deployment, batch: Batch) -> list[Receipt]:
    """Reads the frozen ranges of a batch again and writes malformed records to quarantine. Returns the receipts of the
    task-partitions.
    """
    source_records = read_input(spark, deployment, batch, lambda _: True)
    topics = {task.topic for task in batch.plan.tasks_of(TaskKind.MALFORMED)}
    sources = deployment.pipeline.sources
    malformed = [
        to_malformed(with_record(_malformed(raw, sources[name], batch)))
        for name, raw in source_records.items()
        if sources[name].topic in topics
    ]
    records = reduce(DataFrame.unionByName, malformed)
    return _write(deployment, batch, records, source_records, malformed_job(deployment, batch))


def write_replayed(
    spark: SparkSession, deployment: Deployment, batch: Batch, value_schema: str
) -> tuple[list[Receipt], int]:
    """Writes the malformed records and the result rows of a replay, in the same task-partitions. Returns the receipts,
    and the number of malformed result rows.

    Result rows that pass today's rules go to the output byte for byte. Result rows that fail go to quarantine. A result
    row that cannot be parsed as a record of today's output, with a value of type `value_schema`, stays in quarantine
    and counts as malformed. Result rows are counted in a separate read. If the pipeline replays result rows only, all
    source records stay in quarantine (`Pipeline.replays_results_only`).
    """
    pipeline, plan = deployment.pipeline, batch.plan
    rules = quarantine_rules(pipeline) or NO_RULES
    quarantined = read_quarantined(spark, deployment, batch)
    source_records = records_by_source(quarantined, pipeline)
    schema = StructType.fromJson(json.loads(value_schema))
    kept = quarantined if pipeline.replays_results_only else quarantined.where("result")
    malformed = [
        with_record(
            _malformed(set_apart(raw.withColumn("result", F.lit(False))), pipeline.sources[name], batch, SET_APART)
        )
        for name, raw in source_records.items()
    ]
    wanted = reduce(
        DataFrame.unionByName, [one.select(*BYPASSING) for one in (*malformed, with_reason(set_apart(kept)))]
    )
    with analysis_errors(pipeline):
        parsed = parsed_again(wanted, pipeline, schema, plan.schemas or NO_SCHEMAS)
        judged = result_rows(parsed, schema, rules)
        records = to_routed_again(judged, pipeline)
    results = partial(judged_results, parsed, schema)
    receipts = _write(deployment, batch, records, source_records, replayed_job(deployment, batch, rules.named), results)
    with spark_reads(f"batch {batch.id}, write"):
        unreadable = judged.where(F.col("_result") & F.col("reason").isNotNull()).count()
    return receipts, unreadable


def _malformed(raw: DataFrame, source: Source, batch: Batch, beside: Sequence[str] = ()) -> DataFrame:
    return read_source(raw, source, batch.plan.schemas, record=True, beside=beside).where(is_malformed())


def _write(
    deployment: Deployment,
    batch: Batch,
    records: DataFrame,
    source_records: Mapping[str, DataFrame],
    job: WriteJob,
    judged: Callable[[], DataFrame] | None = None,
) -> list[Receipt]:
    """Runs the writers. In a replay several parts of `records` come from one range, so they are placed by their key, which is
    the same in each attempt. So the records of a key keep the source's order.
    """
    tasks: Mapping[OffsetRange, int] | None = batch.plan.tasks_by_range(TaskKind.MALFORMED)
    if batch.plan.replays is not None:
        tasks, records = None, place_by_key(records, len(job.writers.marks), "key", "value")
    failure = partial(
        write_failure, deployment=deployment, batch=batch, source_records=source_records, nonce=job.nonce, judged=judged
    )
    return run_writers(records, job, tasks, failure, job.writers.committed_receipts()).receipts
