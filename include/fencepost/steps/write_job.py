"""The write step's Spark job: read, transform, write; and what its failure means."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.errors import (
    FencepostError,
    MalformedRecords,
    RecordRefused,
    SettingsError,
    SourceDataExpired,
    TransformFailed,
    WriteFailed,
)
from fencepost.failpoints import reached
from fencepost.formats import FORMATS
from fencepost.formats.format import UNKNOWN_ID
from fencepost.ledger.ledger import Ledger
from fencepost.model import NO_SCHEMAS, TIMESTAMP_HEADER, Batch, Layout, Plan, Receipt
from fencepost.quality.rules import first_failed, reason_of, rule_names
from fencepost.quality.suite import load_suite
from fencepost.schemas.settle import UnknownSchemas, ids_in_source, look_up, settle_output
from fencepost.spark.diagnosis import (
    HOW_TO_SEE,
    describe,
    find_carried,
    how_the_jvm_ended,
    is_the_transforms,
    spark_reads,
)
from fencepost.spark.multiplying import may_multiply
from fencepost.spark.placing import place_by_key, shuffled_again
from fencepost.spark.quarantine import (
    NO_RULES,
    SET_APART,
    Rules,
    as_in_source,
    is_quarantined_by,
    judged_again,
    keeps_record,
    of_source,
    set_apart,
    to_flagged,
    to_malformed,
    to_routed,
    to_routed_again,
)
from fencepost.spark.quarantine_headers import Quarantining
from fencepost.spark.records import UNFIT, UNFIT_END, read_source, to_records, with_record
from fencepost.spark.source import read_ranges, task_ranges
from fencepost.spark.transform import analysis_errors, apply_transform, value_schema
from fencepost.spark.writer import ANSWER_SCHEMA, TASKS, WriterTask, committed_receipts, writer_of
from fencepost.steps.source_counts import (
    SourceCounts,
    count_again,
    count_columns,
    count_source,
    count_taken,
    observed_counts,
)
from fencepost.steps.topics import check_topics

log = logging.getLogger("fencepost.steps.write")


class ShuffledAgain(WriteFailed):
    """A part of the job's shuffle was made again when some task-partitions may have committed. The next job compares."""


@dataclass(frozen=True)
class Wrote:
    """Result of a write: receipts, counts of its source, the value's schema, and what `Written` says of quarantine rules."""

    receipts: list[Receipt]
    source: SourceCounts = field(default_factory=SourceCounts)
    schema: str = ""
    rules: tuple[str, ...] = ()
    results: int | None = None


def run_write_job(spark: SparkSession, ledger: Ledger, batch: Batch) -> Wrote:
    """The receipts of all task-partitions: from the jobs, or from the marks if a retry finds all of them committed.

    Behind a shuffle (layout `output`) marks are not enough: a transform that gives other rows the second time moves them between
    task-partitions, and marks may be of several attempts. There the job runs in any case, and each task-partition that is
    committed compares its rows with its mark. So all receipts hold for one job, whose shuffle was made once.

    If malformed records go to quarantine and the source has some, a second job writes them: they never reach the transform.
    In a replay it also judges and writes the results, which need no transform.

    If the source has records whose schema's id the plan does not know, all such ids are looked up and recorded, and the jobs run
    again. Task-partitions without such records may have committed by then: they keep what they wrote.
    """
    try:
        return _write_all(spark, ledger, batch)
    except ShuffledAgain:
        log.warning(
            "batch %s: part of the shuffle was made again. The job runs again to compare what is committed", batch.id
        )
        return _write_all(spark, ledger, batch)
    except UnknownSchemas:
        ids = ids_in_source(read_records(spark, ledger, batch, headers=False), ledger.pipeline)
        return _write_all(spark, ledger, look_up(ledger, batch, ids))


def _write_all(spark: SparkSession, ledger: Ledger, batch: Batch) -> Wrote:
    wrote, batch = _write_results(spark, ledger, batch)
    if not (batch.plan.malformed_writers and wrote.source.aside):
        return wrote
    reached("write.results-answered")
    if wrote.source.results:
        return write_results_again(spark, ledger, batch, wrote)
    return replace(wrote, receipts=[*wrote.receipts, *write_malformed(spark, ledger, batch)])


def _write_results(spark: SparkSession, ledger: Ledger, batch: Batch) -> tuple[Wrote, Batch]:
    """Write the transform's rows to the output and to quarantine. The batch has the schemas that they were written with."""
    plan = batch.plan
    pipeline = settings_of(ledger, plan)
    rules = quarantine_rules(pipeline)
    task = writer_task(ledger, batch, rules)
    set_shuffle_partitions(spark, pipeline, plan)
    with ThreadPoolExecutor(1) as aside:  # while Spark analyses
        asked = None if task.compares else aside.submit(committed_receipts, task)
        whole = rules is not None
        raw = read_input(spark, ledger, batch, headers=pipeline.source.headers or whole)
        taken = 0  # results
        if plan.replays is not None:
            taken = count_taken(raw, batch)
            raw = of_source(raw)
        frame, malformed = read_source(raw, pipeline.source, plan.schemas, record=whole)
        seen = Observation(SEEN)
        counted = frame.observe(seen, *count_columns(malformed, batch))
        if pipeline.source.on_malformed == "fail":
            # Raised inside the task, so that no task-partition with a malformed record commits.
            stop = F.raise_error(F.lit(MALFORMED)).cast("boolean")
            good = counted.where(F.when(malformed, stop).otherwise(F.lit(True)))
        else:
            good = counted.where(~malformed)
        result = apply_transform(pipeline, with_record(good, "_malformed"))
        schema = value_schema(pipeline, result).json()
        batch = settle_output(ledger, batch, result)
        schemas = batch.plan.schemas
        committed = asked.result() if asked else None
    results = Observation()
    with analysis_errors(pipeline):
        if rules is None:
            flagged, records = None, to_records(result, pipeline, schemas)
        else:
            several = keeps_record(result) and may_multiply(result, SEEN)
            flagged = to_flagged(result, pipeline, rules, schemas, several=several)
            records = to_routed(flagged, plan.layout)
            records = records.observe(results, F.count(F.lit(1)).alias("results"))
    names = tuple(rules.names) if rules else ()
    if committed is not None:
        log.info("batch %s: an earlier attempt has committed all of its rows", batch.id)
        counts = count_again(raw, pipeline, batch).with_results(taken)
        return Wrote(committed, counts, schema, names, _count_results(flagged)), batch
    with analysis_errors(pipeline):
        by_key = plan.layout is Layout.OUTPUT
        placed = place_by_key(records, plan.writers) if by_key else records.drop("_partition", "_offset")
    answered = placed.mapInArrow(writer_of(task), ANSWER_SCHEMA)
    answers = _collect(spark, answered, _task_partitions(answered, batch, pipeline), ledger, batch, raw, task.nonce)
    if task.compares and shuffled_again(spark, task.nonce):
        raise ShuffledAgain(
            f"batch {batch.id}: Spark lost an executor and made a part of the shuffle again, twice. No offset moved. Run again: "
            "the next attempt compares what is committed with the rows of a shuffle of its own."
        )
    receipts = [Receipt.model_validate_json(a["receipt"]) for a in answers]
    counts = observed_counts(answers, seen, raw, batch, pipeline).with_results(taken)
    return Wrote(receipts, counts, schema, names, _results(answers, results, receipts, flagged)), batch


SEEN = "fencepost_source"  # the observation of the records that the transform gets


def settings_of(ledger: Ledger, plan: Plan) -> Pipeline:
    """The pipeline's settings for the job. A replay quarantines again what is still malformed, whatever they say now."""
    pipeline = ledger.pipeline
    if plan.replays is None:
        return pipeline
    return pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"on_malformed": QUARANTINE})})


def read_input(spark: SparkSession, ledger: Ledger, batch: Batch, *, headers: bool) -> DataFrame:
    """What the batch reads, with the connector's columns. In a replay, quarantined records as they were in the source."""
    plan = batch.plan
    replays = plan.replays is not None
    raw = read_ranges(spark, ledger.settings, plan.source.topic, plan.source.ranges, headers=headers or replays)
    return raw if plan.replays is None else as_in_source(raw.where(is_quarantined_by(plan.replays.batch)))


def read_records(spark: SparkSession, ledger: Ledger, batch: Batch, *, headers: bool) -> DataFrame:
    """What the batch reads, without the results that a replay takes up: those need no transform."""
    raw = read_input(spark, ledger, batch, headers=headers)
    return raw if batch.plan.replays is None else of_source(raw)


def quarantine_rules(pipeline: Pipeline) -> Rules | None:
    """The rules of the pipeline's suite that decide where a row goes; None if it has none.

    Raises:
        SettingsError: the suite cannot be read.
    """
    if pipeline.digest_of_rules() is None:  # a mistake elsewhere in the suite does not stop a write
        return None
    declared = load_suite(pipeline.expectations_file).rules
    return Rules(
        first_failed=lambda frame: first_failed(frame, declared, pipeline.expectations_file),
        names=rule_names(declared),
        reasons=tuple(reason_of(rule) for rule in declared),
    )


def _results(
    answers: Sequence[Row], seen: Observation, receipts: Sequence[Receipt], flagged: DataFrame | None
) -> int | None:
    """Rows of the transform's result, as Spark observed them if they are sure to be all; counted once more otherwise.

    A task before a shuffle may run twice, and is then counted twice.
    """
    if flagged is None:
        return None
    if not any(a["skipped"] for a in answers):
        found = int(seen.get["results"])
        if found == sum(receipt.rows + receipt.withheld for receipt in receipts):
            return found
    return _count_results(flagged)


def _count_results(flagged: DataFrame | None) -> int | None:
    return None if flagged is None else flagged.count()


def write_malformed(spark: SparkSession, ledger: Ledger, batch: Batch) -> list[Receipt]:
    """Read the frozen ranges again and write malformed records to quarantine; return the receipts of these task-partitions.

    Task-partition `writers + p` writes those of source partition p, by the protocol of all writers: under the batch's lease, with
    marks of its own, and with the id of task-partition p, if there is one. That one has committed: a late attempt at it may fence
    this one, finds its mark, and stops.
    """
    pipeline, plan = ledger.pipeline, batch.plan
    raw = read_records(spark, ledger, batch, headers=True)
    frame, malformed = read_source(raw, pipeline.source, plan.schemas, record=True)
    records = to_malformed(with_record(frame.where(malformed)))
    return _write_aside(spark, ledger, batch, records, raw, malformed_task(ledger, batch))


def write_results_again(spark: SparkSession, ledger: Ledger, batch: Batch, wrote: Wrote) -> Wrote:
    """Of a replay: write the results that pass today's rules to the output, and those that fail to quarantine; and, in the same
    task-partitions, what `write_malformed` writes.

    A result goes to the output byte for byte. One that does not parse as a record of today's output stays in quarantine, and
    counts as malformed. Results are counted in a read of their own.
    """
    pipeline, plan = ledger.pipeline, batch.plan
    rules = quarantine_rules(pipeline)
    raw = set_apart(read_input(spark, ledger, batch, headers=True))
    frame, malformed = read_source(raw, pipeline.source, plan.schemas, record=True, beside=SET_APART)
    schema = StructType.fromJson(json.loads(wrote.schema))
    wanted = with_record(frame.where(malformed | F.col("_result")))
    with analysis_errors(pipeline):
        judged = judged_again(wanted, pipeline, schema, plan.schemas or NO_SCHEMAS, rules or NO_RULES)
        records = to_routed_again(judged, pipeline)
    receipts = _write_aside(spark, ledger, batch, records, raw, results_task(ledger, batch, rules))
    with spark_reads(f"batch {batch.id}, write"):
        unread = judged.where(F.col("_result") & F.col("reason").isNotNull()).count()
    source = wrote.source.with_results(0, malformed=unread)
    results = None if wrote.results is None else wrote.results + wrote.source.results - unread
    return replace(wrote, receipts=[*wrote.receipts, *receipts], source=source, results=results)


def _write_aside(
    spark: SparkSession, ledger: Ledger, batch: Batch, records: DataFrame, raw: DataFrame, task: WriterTask
) -> list[Receipt]:
    """The receipts of the task-partitions behind the writers', which these records are for: from the job, or from the marks."""
    plan = batch.plan
    committed = committed_receipts(task)
    if committed is not None:
        log.info("batch %s: an earlier attempt has committed what is not for the transform", batch.id)
        return committed
    answered = records.mapInArrow(writer_of(task), ANSWER_SCHEMA)
    position = {r: plan.writers + i for i, r in enumerate(plan.source.ranges)}
    found = task_ranges(answered)
    assert found is not None
    answers = _collect(spark, answered, [position[r] for r in found], ledger, batch, raw, task.nonce)
    return [Receipt.model_validate_json(a["receipt"]) for a in answers]


def _collect(
    spark: SparkSession,
    job: DataFrame,
    tasks: Sequence[int],
    ledger: Ledger,
    batch: Batch,
    raw: DataFrame,
    nonce: str,
) -> list[Row]:
    """Run a job whose Spark partitions write these task-partitions; return their answers."""
    context = spark.sparkContext
    context.setLocalProperty(TASKS, json.dumps(tasks))
    context.addJobTag(nonce)
    try:
        return job.collect()
    except Exception as error:
        raise _cause(error, ledger, batch, raw, nonce) from error
    finally:
        with suppress(Exception):  # a JVM that died has none
            context.setLocalProperty(TASKS, None)  # type: ignore[arg-type]  # which removes it
            context.removeJobTag(nonce)


def _or_a_rule(batch: Batch) -> str:
    return ", or a quarantine rule of its suite," if QUARANTINE in batch.plan.digests else ""


SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
SPARKS_DEFAULT = 200
ROWS_A_PARTITION = 50_000  # in a shuffle; a partition costs some ten milliseconds, however few rows it holds


def set_shuffle_partitions(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> None:
    """Give the transform's own shuffles as many partitions as the batch has rows for, unless a setting names a number.

    The number follows from the frozen plan, so a retry has the same one: the order of rows depends on it.
    """
    if SHUFFLE_PARTITIONS in pipeline.spark or spark.sparkContext.getConf().contains(SHUFFLE_PARTITIONS):
        return
    filled = plan.offsets // ROWS_A_PARTITION
    spark.conf.set(SHUFFLE_PARTITIONS, str(min(SPARKS_DEFAULT, max(filled, plan.writers, len(plan.source.ranges)))))


def _task_partitions(job: DataFrame, batch: Batch, pipeline: Pipeline) -> list[int]:
    """The task-partition that each Spark partition writes, read from the job itself before it starts.

    Raises:
        SettingsError: under layout `source` the transform shuffles, or reads something other than its source.
    """
    plan = batch.plan
    if plan.layout is Layout.OUTPUT:
        return list(range(plan.writers))
    position = {r: i for i, r in enumerate(plan.source.ranges)}
    found = task_ranges(job)
    if found is None or sorted(found, key=lambda r: r.partition) != list(plan.source.ranges):
        raise SettingsError(
            f"{pipeline.transform_file}: under output.layout: source a transform works row by row, so that each "
            "task-partition is one source partition. This transform shuffles, merges or splits partitions (aggregates, sorts, "
            "distinct, repartition, joins that are not broadcast). Set output.layout: output, or remove that from the transform."
        )
    return [position[r] for r in found]


def writer_task(ledger: Ledger, batch: Batch, rules: Rules | None = None) -> WriterTask:
    """The task that executors need to write this batch. Holds secrets."""
    pipeline, plan = ledger.pipeline, batch.plan
    if plan.layout is Layout.SOURCE:
        marks = tuple((plan.source.topic, r.partition, r.end) for r in plan.source.ranges)
    else:
        marks = tuple((plan.written_to.topic, t, 0) for t in range(plan.writers))
    return WriterTask(
        settings=ledger.settings,
        batch=str(batch.id),
        ledger=plan.ledger_topic_id,
        lease=batch.known_lease,
        topic=plan.written_to.topic,
        group=pipeline.lane_group(plan.lane),
        transactional_ids=tuple(pipeline.writer_id(plan.lane, t) for t in range(plan.writers)),
        marks=marks,
        to_own_partition=plan.layout is Layout.OUTPUT,
        compares=plan.layout is Layout.OUTPUT,
        nonce=secrets.token_hex(16),
        quarantine=plan.quarantine.topic if plan.quarantine and QUARANTINE in plan.digests else None,
        quarantining=Quarantining(
            str(batch.id), tuple(zip(rules.names, rules.reasons, strict=True)) if rules else (), plan.attempt
        ),
        stamp=TIMESTAMP_HEADER if plan.staging is not None else None,
    )


def malformed_task(ledger: Ledger, batch: Batch) -> WriterTask:
    """What executors need to write this batch's malformed records. Holds secrets."""
    quarantine = batch.known_quarantine
    return replace(
        results_task(ledger, batch),
        topic=quarantine.topic,
        batch_header=False,  # it is among those that the rows bring
        quarantine=None,
        stamp=None,  # they are not staged, and keep their timestamps
    )


def results_task(ledger: Ledger, batch: Batch, rules: Rules | None = None) -> WriterTask:
    """What executors need to write the malformed records and the results that a replay takes up. Holds secrets."""
    pipeline, plan = ledger.pipeline, batch.plan
    return replace(
        writer_task(ledger, batch, rules),
        group=pipeline.malformed_group(plan.lane),
        transactional_ids=tuple(pipeline.writer_id(plan.lane, p) for p in range(plan.malformed_writers)),
        marks=tuple((plan.source.topic, r.partition, r.end) for r in plan.source.ranges),
        to_own_partition=False,  # their keys choose the partition
        compares=False,
        quarantine=batch.known_quarantine.topic,
        first=plan.writers,
    )


MALFORMED = "fencepost: malformed source record"


def _declared(pipeline: Pipeline) -> str:
    return "reader's" if FORMATS[pipeline.source.format].has_registry else "declared"


def _unknown(batch: Batch) -> UnknownSchemas:
    return UnknownSchemas(f"batch {batch.id}: it has records whose schema's id its plan does not know.")


def _malformed(ledger: Ledger, batch: Batch, raw: DataFrame) -> FencepostError | None:
    """Which records are malformed, or None if none is. The source is read once more."""
    pipeline = ledger.pipeline
    try:
        found = count_source(raw, pipeline, batch)
    except Exception as error:
        if UNKNOWN_ID in str(error):  # looked up first: they may be malformed too
            return _unknown(batch)
        raise
    if not found.malformed:
        return None
    where = ", ".join(f"{p}:{o}" for p, o in found.at)
    return MalformedRecords(
        f"batch {batch.id}: {found.malformed} of {found.rows} records of topic {pipeline.source.topic} do not fit the "
        f"{_declared(pipeline)} schema; partition:offset of the first: {where}. Of the first: {found.why}. No offset "
        "moved. Fix the schema, or change source.on_malformed in pipeline.yaml: quarantine keeps such records in a topic of "
        "their own, drop leaves them out, and the report counts them."
    )


def _cause(error: Exception, ledger: Ledger, batch: Batch, raw: DataFrame, nonce: str) -> FencepostError:
    """What really failed: Spark wraps a task's error in its own, as text only.

    A failure in the transform itself ends the step for good: Spark has tried it `spark.task.maxFailures` times, and a
    transform does the same with the same records.
    """
    pipeline, text = ledger.pipeline, str(error)
    if how_the_jvm_ended(error):
        return WriteFailed(f"batch {batch.id}: the driver died.")  # `jvm_watched` raises the error with the details
    if UNKNOWN_ID in text:
        return _unknown(batch)
    if MALFORMED in text and (malformed := _malformed(ledger, batch, raw)) is not None:
        return malformed
    if UNFIT in text:
        why = text.partition(UNFIT)[2].partition(UNFIT_END)[0]
        return RecordRefused(
            f"batch {batch.id}: a row of the transform's result does not fit the output's format or schema. {why}. No offset "
            "moved. Change the transform, or the schema if it is in a registry, and run again. A quarantine rule in the suite "
            "sets such rows aside."
        )
    ours = find_carried(text, nonce)
    if ours is not None:
        return ours if str(batch.id) in str(ours) else type(ours)(f"batch {batch.id}: {ours}")
    try:
        check_topics(ledger, batch)  # records may have expired, or a topic gone, while the job read them
    except SourceDataExpired as expired:
        if pipeline.source.on_expired == "fail":
            return expired
        return WriteFailed(
            f"batch {batch.id}: records expired while the job read them. Run again: it writes what is left."
        )
    except FencepostError as found_error:
        return found_error
    if is_the_transforms(error, pipeline.folder):
        return TransformFailed(
            f"batch {batch.id}: {pipeline.transform_file}{_or_a_rule(batch)} failed on a record: "
            f"{describe(error, pipeline.folder)}. No offset moved. The same record fails again: fix what failed, then run "
            f"again, which writes a new revision. {HOW_TO_SEE}."
        )
    return WriteFailed(
        f"batch {batch.id}: the Spark job failed: {describe(error, pipeline.folder)}. Uncommitted rows are aborted, and no "
        f"offset moved; run again. {HOW_TO_SEE}."
    )
