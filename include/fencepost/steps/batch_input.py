"""Reads the batch's records for the jobs of a write."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.config.source import Source
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Plan
from fencepost.rows.quarantined import as_in_source, is_quarantined_by, source_sample
from fencepost.rows.source import read_ranges


def settings_of(pipeline: Pipeline, plan: Plan) -> Pipeline:
    """Returns the pipeline's settings for the job. A replay always quarantines records that are still malformed."""
    if plan.replays is None:
        return pipeline
    return pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"on_malformed": QUARANTINE})})


def read_input(
    spark: SparkSession, deployment: Deployment, batch: Batch, headers: Callable[[Source], bool]
) -> dict[str, DataFrame]:
    """Returns the batch's records by the name of their source, with the connector's columns. `headers` says whether a
    source's records need their headers. A replay reads quarantined records as they were in the source.
    """
    plan, settings, sources = batch.plan, deployment.cluster.settings, deployment.pipeline.sources
    if plan.replays is not None:
        raw = read_ranges(spark, settings, plan.ranges, headers=True).where(is_quarantined_by(plan.replays.batch))
        return dict.fromkeys(sources, as_in_source(raw))
    found = {}
    for name, source in sources.items():
        ranges = [part for part in plan.ranges if part.topic == source.topic]
        found[name] = read_ranges(spark, settings, ranges, headers=headers(source))
    return found


def read_records(
    spark: SparkSession, deployment: Deployment, batch: Batch, headers: Callable[[Source], bool]
) -> dict[str, DataFrame]:
    """Returns the batch's records as `read_input` does, without the result rows of a replay, which need no transform."""
    raw = read_input(spark, deployment, batch, headers)
    return raw if batch.plan.replays is None else {name: source_sample(one) for name, one in raw.items()}
