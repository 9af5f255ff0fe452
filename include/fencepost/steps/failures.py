"""Finds the error for a failed job of a write, with the next step. Spark gives a task's error only as text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.config.source import Source
from fencepost.counts import count_of
from fencepost.errors import (
    FencepostError,
    MalformedRecords,
    RecordRefused,
    TombstonesRefused,
    TransformFailed,
    TruncationsRefused,
    WriteFailed,
)
from fencepost.formats import FORMATS
from fencepost.formats.format import UNKNOWN_ID
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch
from fencepost.protocol.advice import after_truncation
from fencepost.quality.overflow import overflowing_rule
from fencepost.rows.decode import is_truncation, refused_tombstone
from fencepost.rows.encode import UNFIT, UNFIT_END
from fencepost.rows.path import REFUSED
from fencepost.rows.transform import NO_ANSWER, no_answer
from fencepost.schemas.resolve import UnknownSchemas
from fencepost.spark.diagnosis import HOW_TO_SEE, common_failure, describe, is_the_transforms, overflowed
from fencepost.steps.batch_input import settings_of
from fencepost.steps.obstacle import check_can_go_on
from fencepost.steps.source_counts import Places, count_source, first_of

log = logging.getLogger("fencepost.steps.write")


def write_failure(
    error: Exception,
    deployment: Deployment,
    batch: Batch,
    source_records: Mapping[str, DataFrame],
    nonce: str,
    judged: Callable[[], DataFrame] | None = None,
) -> FencepostError:
    """Returns why a write that reads `source_records` failed. The result is the first cause in the list below that
    applies. `judged` gives the rows that quarantine rules judge.

    1. the driver died, or a writer stopped on purpose;
    2. a record, or a row of the transform's result, is malformed, refused or does not fit the output;
    3. the topics changed while the job read them;
    4. the transform failed. A retry is useless: Spark has tried `spark.task.maxFailures` times, and the transform does
       the same with the same records;
    5. any other cause, after which a new attempt may succeed.
    """
    pipeline = deployment.pipeline
    return (
        common_failure(error, str(batch.id), nonce)  # 1
        or _of_a_record(str(error), pipeline, batch, source_records)  # 2
        or _of_its_topics(deployment, batch)  # 3
        or (
            _of_the_transform(error, pipeline, batch, judged) if is_the_transforms(error, pipeline.folder) else None
        )  # 4
        or WriteFailed(  # 5
            f"batch {batch.id}: the Spark job failed: {describe(error, pipeline.folder)}. Uncommitted rows are aborted, and no "
            f"offset moved. Run again. {HOW_TO_SEE}."
        )
    )


def _of_a_record(
    text: str, pipeline: Pipeline, batch: Batch, source_records: Mapping[str, DataFrame]
) -> FencepostError | None:
    if UNKNOWN_ID in text:
        return _unknown(batch)
    if REFUSED in text and (refused := refused_records(pipeline, batch, source_records)) is not None:
        return refused
    if NO_ANSWER in text:
        return no_answer(pipeline, f"batch {batch.id}")
    if UNFIT not in text:
        return None
    why = text.partition(UNFIT)[2].partition(UNFIT_END)[0]
    return RecordRefused(
        f"batch {batch.id}: a row of the transform's result does not fit the output's format or schema. {why}. No offset "
        "moved. Change the transform, or the schema if it is in a registry, and run again. A quarantine rule in the suite "
        "sets such rows aside."
    )


def refused_records(pipeline: Pipeline, batch: Batch, source_records: Mapping[str, DataFrame]) -> FencepostError | None:
    """Returns the error for records that the settings refuse, or None if there are none. It reads the sources again.
    `source_records` are by the name of their source.
    """
    pipeline = settings_of(pipeline, batch.plan)
    each = (_refused_of(pipeline, pipeline.sources[name], batch, raw) for name, raw in source_records.items())
    return next((one for one in each if one is not None), None)


def _refused_of(pipeline: Pipeline, source: Source, batch: Batch, raw: DataFrame) -> FencepostError | None:
    """Returns the error for records of a source that the settings refuse. Malformed records come first."""
    try:
        found = count_source(raw, batch, source)
        summary = found.summary
    except Exception as error:
        if UNKNOWN_ID in str(error):  # unknown ids are looked up first, because such records may be malformed too
            return _unknown(batch)
        raise
    topic = source.topic

    def first(wanted: Column) -> str:
        return _listed(first_of(wanted, raw, batch, source))

    if summary.malformed and source.on_malformed == "fail":
        schema = "reader's" if FORMATS[source.format].has_registry else "declared"
        return MalformedRecords(
            f"batch {batch.id}: {summary.malformed:,} of {count_of(summary.rows_in or 0, 'record')} of topic {topic} do not "
            f"fit the {schema} schema; partition:offset of the first: {_listed(summary.malformed_at)}. Cause at the first "
            f"record: {found.why}. No offset moved. Fix the schema, or change {source.setting}.on_malformed in pipeline.yaml: "
            "quarantine keeps such records in a topic of their own; drop leaves them out, and the report counts them."
        )
    if summary.tombstones and source.tombstones == "fail":
        return TombstonesRefused(
            f"batch {batch.id}: {summary.tombstones:,} of {count_of(summary.rows_in or 0, 'record')} of topic {topic} are "
            "tombstones: they have no value; "
            f"partition:offset of the first: {first(refused_tombstone(source))}. No offset moved. Change "
            f"{source.setting}.tombstones in pipeline.yaml from fail to drop or pass: drop leaves them out, and the report "
            "counts them; pass gives them to the transform, whose result then needs the column _tombstone."
        )
    if found.truncations and (why := pipeline.why_truncations_fail(source)):
        return TruncationsRefused(
            f"batch {batch.id}: {found.truncations:,} of {count_of(summary.rows_in or 0, 'record')} of topic {topic} "
            f"{'is a truncation' if found.truncations == 1 else 'are truncations'} of the source table, and "
            f"{why}; partition:offset of the first: {first(is_truncation())}. "
            f"{after_truncation(pipeline.output.current_table)}"
        )
    return None


def _listed(places: Places) -> str:
    return ", ".join(f"{partition}:{offset}" for _, partition, offset in places)


def _unknown(batch: Batch) -> UnknownSchemas:
    return UnknownSchemas(f"batch {batch.id}: it has records with schema ids that its plan does not know.")


def _of_its_topics(deployment: Deployment, batch: Batch) -> FencepostError | None:
    """Returns the error for expired records or a missing topic, or None if the topics are as planned."""
    try:
        check_can_go_on(deployment, batch)
    except FencepostError as found:
        return found
    return None


def _of_the_transform(
    error: Exception, pipeline: Pipeline, batch: Batch, judged: Callable[[], DataFrame] | None
) -> TransformFailed:
    if overflowed(str(error)) and (rule := _rule_that_overflows(pipeline, judged)):
        return TransformFailed(
            f"batch {batch.id}: {pipeline.expectations_file}: {rule}. No offset moved. The same record would fail again. Change "
            "the rule, then run again, which writes a new revision."
        )
    or_a_rule = ", or a quarantine rule of its suite," if QUARANTINE in batch.plan.digests else ""
    return TransformFailed(
        f"batch {batch.id}: {pipeline.transform_file}{or_a_rule} failed on a record: "
        f"{describe(error, pipeline.folder)}. No offset moved. The same record would fail again. Fix the cause, then run "
        f"again, which writes a new revision. {HOW_TO_SEE}."
    )


def _rule_that_overflows(pipeline: Pipeline, judged: Callable[[], DataFrame] | None) -> str:
    """Returns the quarantine rule whose regex overflows Java's stack, with the record. The text is empty if there is
    none, or if it cannot be found.
    """
    if judged is None or not (rules := pipeline.suite.rules):
        return ""
    try:
        found = overflowing_rule(judged(), rules)
    except Exception as error:
        log.debug("which rule it was could not be found", exc_info=error)
        return ""
    return "" if found is None else f"expectations.{found[0].index}: {found[0].title}: {found[1]}"
