"""Emits an asset event of the output topic to Airflow, once for each published batch.

The event goes through an alias: an asset named as an outlet would get an event from every green run, even from one that found
its interval published long ago.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from pydantic import JsonValue

from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval, State, StepResult

if TYPE_CHECKING:
    from airflow.sdk import Context

CLOCKS = timedelta(minutes=10)  # how far the clocks of a worker and of Airflow's database may differ


def output_asset(pipeline: str, topic: str) -> Asset:
    """The validated output of a pipeline, for the `schedule` of a DAG that reads it."""
    return Asset(name=f"{pipeline}: {topic}", uri=f"fencepost://{pipeline}/{topic}")


def publications(pipeline: Pipeline) -> AssetAlias:
    """The alias of a pipeline's events, to emit and to find them."""
    return AssetAlias(f"fencepost {pipeline.name}")


def announce(context: Context, pipeline: Pipeline, interval: Interval, result: StepResult) -> bool:
    """Emit the event of a batch that was just published; return whether there was one to emit.

    `extra` has pipeline, interval, revision and batch id, the validated ranges (output partition: first offset, end), rows,
    and `quarantined`, the quarantined records by rule. An addition's also has `adds_to`, the revision that it adds to.
    `fencepost.read_validated` takes it.
    """
    if not _is_news(context, pipeline, result):
        return False
    extra: dict[str, JsonValue] = {
        "pipeline": pipeline.name,
        "interval": {"start": interval.start.isoformat(), "end": interval.end.isoformat()},
        "revision": result.revision,
        "batch": result.batch,
        "ranges": result.details["output"],
        "rows": result.details["rows"],
        "quarantined": result.details["quarantined"],
    }
    if result.details.get("adds_to") is not None:
        extra["adds_to"] = result.details["adds_to"]
    context["outlet_events"][publications(pipeline)].add(output_asset(pipeline.name, pipeline.output.topic), extra)
    return True


def _is_news(context: Context, pipeline: Pipeline, result: StepResult) -> bool:
    """Whether this run published the batch and its event is still missing.

    If the task finds the batch published, an earlier attempt may have published it and died before Airflow got the event. A
    run that began with its interval published has no event to emit.
    """
    if result.state is not State.PUBLISHED:
        return False
    if result.changed:
        return True
    plan: Any = context["ti"].xcom_pull(task_ids="plan") or {}
    if plan.get("state") in {State.PUBLISHED, None}:
        return False
    since = datetime.fromisoformat(str(result.details["published_at"])) - CLOCKS
    told = context["inlet_events"][publications(pipeline)].after(since.isoformat())
    return all(event.extra.get("batch") != result.batch for event in told if event.extra)
