"""Emits an asset event of the output to Airflow, once for each published batch.

The event goes through an alias. An asset that is named as an outlet would get an event from every successful run, even
from a run whose interval was published long ago.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAccessControl, AssetAlias
from airflow.sdk.execution_time.context import InletEventsAccessor

from fencepost.config.pipeline import Pipeline
from fencepost.model import State, StepResult
from fencepost.outputs.asset import asset_name, asset_uri, extra_of

if TYPE_CHECKING:
    from airflow.sdk import Context

CLOCKS = timedelta(minutes=10)  # how far the clocks of a worker and of Airflow's database may differ
NEWEST = (1, 100, None)  # numbers of events to read until one names its cluster; None: all


def output_asset(pipeline: str, output: str, access_control: AssetAccessControl | None = None) -> Asset:
    """Returns the asset of a pipeline's validated output, for the `schedule` of a DAG that reads it.

    In an Airflow with teams, `access_control` names the pipeline's team as a producer, if the reader belongs to another team.
    """
    return Asset(
        name=asset_name(pipeline, output),
        uri=asset_uri(pipeline, output),
        access_control=access_control or AssetAccessControl(),
    )


def publications(pipeline: Pipeline) -> AssetAlias:
    """Returns the alias through which a pipeline's tasks emit events."""
    return AssetAlias(f"fencepost {pipeline.name}")


def last_cluster(pipeline: Pipeline) -> str | None:
    """Returns the id of the Kafka cluster of the last publication, or None. Airflow's newest event of the output that
    has an id has it.

    The ledger does not know this id, because the ledger is in the cluster itself. A cluster that a connection names by
    mistake has no ledger, or another ledger. An event without an id is not a publication, because people can create
    such events in Airflow's UI.
    """
    return _cluster_of_newest(lambda: _events(pipeline))


def is_published_since(pipeline: Pipeline, moment: datetime) -> bool:
    """Returns whether Airflow has an event of a publication after this time."""
    return _cluster_of_newest(lambda: _events(pipeline).after(moment.isoformat())) is not None


def _cluster_of_newest(events: Callable[[], InletEventsAccessor]) -> str | None:
    for most in NEWEST:
        newest = events().ascending(False)
        asked = list(newest if most is None else newest.limit(most))
        for event in asked:
            cluster = (event.extra or {}).get("cluster_id")
            if isinstance(cluster, str) and cluster:
                return cluster
        if most is None or len(asked) < most:
            break
    return None


def announce(context: Context, pipeline: Pipeline, result: StepResult) -> bool:
    """Emits the event of a batch that was just published. Returns whether it emitted an event."""
    if not _is_news(context, pipeline, result):
        return False
    asset = output_asset(pipeline.name, pipeline.output.name)
    context["outlet_events"][publications(pipeline)].add(asset, extra_of(result))
    return True


def _is_news(context: Context, pipeline: Pipeline, result: StepResult) -> bool:
    """Returns whether this run published the batch and the event is still missing.

    If the task finds the batch published, an earlier attempt may have published it and died before Airflow got the
    event. If the interval was published before the run started, the run has no event to emit.
    """
    if result.state is not State.PUBLISHED:
        return False
    if result.changed:
        return True
    plan: Any = context["ti"].xcom_pull(task_ids="plan") or {}
    if plan.get("state") in {State.PUBLISHED, None}:
        return False
    since = datetime.fromisoformat(str(result.details["published_at"])) - CLOCKS
    events = _events(pipeline).after(since.isoformat())
    return all(event.extra.get("batch") != result.batch for event in events if event.extra)


def _events(pipeline: Pipeline) -> InletEventsAccessor:
    """Returns all events of the output.

    The events are looked up by the asset, and not by the alias or as an inlet. The event of a command has no alias, and
    a command may have published what a run planned.
    """
    asset = output_asset(pipeline.name, pipeline.output.name)
    return InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri)
