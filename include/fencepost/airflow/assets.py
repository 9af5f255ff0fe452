"""Emits an asset event of the output to Airflow, once for each published batch.

The event goes through an alias: an asset named as an outlet would get an event from every green run, even from one that found
its interval published long ago.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import InletEventsAccessor

from fencepost.config.pipeline import Pipeline
from fencepost.model import State, StepResult
from fencepost.outputs.event import asset_name, asset_uri, extra_of

if TYPE_CHECKING:
    from airflow.sdk import Context

CLOCKS = timedelta(minutes=10)  # how far the clocks of a worker and of Airflow's database may differ


def output_asset(pipeline: str, output: str) -> Asset:
    """The validated output of a pipeline, for the `schedule` of a DAG that reads it."""
    return Asset(name=asset_name(pipeline, output), uri=asset_uri(pipeline, output))


def publications(pipeline: Pipeline) -> AssetAlias:
    """The alias by which a pipeline's tasks emit events."""
    return AssetAlias(f"fencepost {pipeline.name}")


def last_cluster(pipeline: Pipeline) -> str | None:
    """The id of the Kafka cluster of the last publication, by Airflow's newest event of the output; None if there was none.

    The ledger could not say: it is in the very cluster. One that a connection leads to by mistake has none, or another.
    """
    newest = _events(pipeline).ascending(False).limit(1)
    told = [event.extra.get("cluster_id") for event in newest if event.extra]
    return told[0] if told and isinstance(told[0], str) else None


def is_published_since(pipeline: Pipeline, moment: datetime) -> bool:
    """Whether Airflow has an event of the output that is newer."""
    return any(True for _ in _events(pipeline).after(moment.isoformat()).limit(1))


def announce(context: Context, pipeline: Pipeline, result: StepResult) -> bool:
    """Emit the event of a batch that was just published; return whether there was one to emit."""
    if not _is_news(context, pipeline, result):
        return False
    asset = output_asset(pipeline.name, pipeline.output.name)
    context["outlet_events"][publications(pipeline)].add(asset, extra_of(result))
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
    told = _events(pipeline).after(since.isoformat())
    return all(event.extra.get("batch") != result.batch for event in told if event.extra)


def _events(pipeline: Pipeline) -> InletEventsAccessor:
    """All events of the output.

    Not by the alias, and so not as an inlet: a command's event has none, and it may have published what a run planned.
    """
    asset = output_asset(pipeline.name, pipeline.output.name)
    return InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri)
