"""Reads the batch's records for the jobs of a write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.config.source import SOURCE, Source
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, OffsetRange, Plan
from fencepost.rows.decode import CONNECTOR
from fencepost.rows.quarantined import as_in_source, is_quarantined_by, without_results
from fencepost.rows.source import read_ranges


def settings_of(pipeline: Pipeline, plan: Plan) -> Pipeline:
    """Returns the pipeline's settings for the job. A replay always quarantines records that are still malformed."""
    if plan.replays is None:
        return pipeline
    sources = {name: one.model_copy(update={"on_malformed": QUARANTINE}) for name, one in pipeline.sources.items()}
    changed = {"several": sources} if pipeline.several else {"source": sources[SOURCE]}
    return pipeline.model_copy(update=changed)


def read_input(
    spark: SparkSession, deployment: Deployment, batch: Batch, headers: Callable[[Source], bool]
) -> dict[str, DataFrame]:
    """Returns the batch's records by the name of their source, with the connector's columns. `headers` says whether a
    source's records need their headers.

    A replay reads quarantined records as they were in the source. A source that the batch does not read has no records.
    """
    if batch.plan.replays is not None:
        return records_by_source(read_quarantined(spark, deployment, batch), deployment.pipeline)
    return read_sources(spark, deployment, batch.plan.ranges, headers)


def read_sources(
    spark: SparkSession, deployment: Deployment, ranges: Sequence[OffsetRange], headers: Callable[[Source], bool]
) -> dict[str, DataFrame]:
    """Returns the records of these ranges by the name of their source. A source without a range has no records."""
    found = read_sources_with_ranges(spark, deployment, ranges, headers)
    return {name: found[name] if name in found else no_records(spark) for name in deployment.pipeline.sources}


def read_sources_with_ranges(
    spark: SparkSession, deployment: Deployment, ranges: Sequence[OffsetRange], headers: Callable[[Source], bool]
) -> dict[str, DataFrame]:
    """Returns the records of these ranges by the name of their source. A source without a range is left out."""
    found = {}
    for name, source in deployment.pipeline.sources.items():
        if own := [part for part in ranges if part.topic == source.topic]:
            found[name] = read_ranges(spark, deployment.cluster.settings, own, headers=headers(source))
    return found


def no_records(spark: SparkSession) -> DataFrame:
    """Returns no records with the connector's columns. It has no Spark partition, so it can be a part of a union."""
    return spark.createDataFrame([], CONNECTOR).limit(0)


def read_quarantined(spark: SparkSession, deployment: Deployment, batch: Batch) -> DataFrame:
    """Returns the records that a replay reads, as they were in the source (`as_in_source`), and result rows among them."""
    replays = batch.plan.replays
    assert replays is not None
    raw = read_ranges(spark, deployment.cluster.settings, batch.plan.ranges, headers=True)
    return as_in_source(raw.where(is_quarantined_by(replays.batch)))


def records_by_source(quarantined: DataFrame, pipeline: Pipeline) -> dict[str, DataFrame]:
    """Returns the source records in the result of `read_quarantined` that the transform gets, by the name of their source.
    It gets none if the pipeline replays result rows only (`Pipeline.replays_results_only`).
    """
    records = without_results(quarantined)
    if pipeline.replays_results_only:
        return dict.fromkeys(pipeline.sources, records.limit(0))
    if len(pipeline.sources) == 1:
        return dict.fromkeys(pipeline.sources, records)
    return {name: records.where(F.col("topic") == one.topic) for name, one in pipeline.sources.items()}
