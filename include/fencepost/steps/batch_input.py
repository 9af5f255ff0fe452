"""Reads the batch's records for the jobs of a write."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.kafka.cluster import Cluster
from fencepost.model import Batch, Plan
from fencepost.rows.quarantined import as_in_source, is_quarantined_by, source_sample
from fencepost.rows.source import read_ranges


def settings_of(pipeline: Pipeline, plan: Plan) -> Pipeline:
    """Returns the pipeline's settings for the job. A replay always quarantines records that are still malformed."""
    if plan.replays is None:
        return pipeline
    return pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"on_malformed": QUARANTINE})})


def read_input(spark: SparkSession, cluster: Cluster, batch: Batch, *, headers: bool) -> DataFrame:
    """Returns the batch's records, with the connector's columns. A replay reads quarantined records as they were in the
    source.
    """
    plan = batch.plan
    replays = plan.replays is not None
    raw = read_ranges(spark, cluster.settings, plan.ranges, headers=headers or replays)
    return raw if plan.replays is None else as_in_source(raw.where(is_quarantined_by(plan.replays.batch)))


def read_records(spark: SparkSession, cluster: Cluster, batch: Batch, *, headers: bool) -> DataFrame:
    """Returns the batch's records without the result rows of a replay, which need no transform."""
    raw = read_input(spark, cluster, batch, headers=headers)
    return raw if batch.plan.replays is None else source_sample(raw)
