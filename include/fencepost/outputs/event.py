"""The asset event of a publication, as Airflow's readers get it, whoever emits it: the DAG's task, or a command."""

from __future__ import annotations

from pydantic import JsonValue

from fencepost.config.pipeline import Pipeline, TableSettings
from fencepost.model import Interval, StepResult


def asset_name(pipeline: str, output: str) -> str:
    """The asset's name in Airflow."""
    return f"{pipeline}: {output}"


def asset_uri(pipeline: str, output: str) -> str:
    """The asset's URI in Airflow."""
    return f"fencepost://{pipeline}/{output}"


def extra_of(pipeline: Pipeline, interval: Interval, result: StepResult) -> dict[str, JsonValue]:
    """The event's `extra`, of what the step advance returned about a batch that is published.

    It has pipeline, interval, revision and batch id, the validated ranges (output partition: first offset, end; none of a table,
    which `table` names), rows, and `quarantined`, the quarantined records by rule. An addition's also has `adds_to`, the
    revision that it adds to.
    `fencepost.read_validated` takes it.
    """
    extra: dict[str, JsonValue] = {
        "pipeline": pipeline.name,
        "interval": {"start": interval.start.isoformat(), "end": interval.end.isoformat()},
        "revision": result.revision,
        "batch": result.batch,
        "ranges": result.details["output"],
        "rows": result.details["rows"],
        "quarantined": result.details["quarantined"],
    }
    if isinstance(pipeline.output, TableSettings):
        extra["table"] = pipeline.output.table
    if result.details.get("adds_to") is not None:
        extra["adds_to"] = result.details["adds_to"]
    return extra
