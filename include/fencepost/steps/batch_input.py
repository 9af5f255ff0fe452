"""What the jobs of a write begin with: the batch's records, and the rules that decide where a row goes."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Plan
from fencepost.quality.rules import first_failed
from fencepost.rows.flag import Rules
from fencepost.rows.quarantined import as_in_source, is_quarantined_by, of_source
from fencepost.rows.source import read_ranges
from fencepost.suite.declared import reason_of, rule_names


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
    raw = read_ranges(spark, ledger.settings, plan.ranges, headers=headers or replays)
    return raw if plan.replays is None else as_in_source(raw.where(is_quarantined_by(plan.replays.batch)))


def read_records(spark: SparkSession, ledger: Ledger, batch: Batch, *, headers: bool) -> DataFrame:
    """What the batch reads, without the results that a replay takes up: those need no transform."""
    raw = read_input(spark, ledger, batch, headers=headers)
    return raw if batch.plan.replays is None else of_source(raw)


def quarantine_rules(pipeline: Pipeline) -> Rules | None:
    """The rules of the pipeline's suite that decide where a row goes; None if it has none.

    Raises:
        SettingsError: the suite cannot be read, or is wrong.
    """
    if not (declared := pipeline.suite.rules):
        return None
    return Rules(
        first_failed=lambda frame: first_failed(frame, declared, pipeline.expectations_file),
        named=tuple(zip(rule_names(declared), map(reason_of, declared), strict=True)),
    )
