"""Gathers the facts for `protocol/obstacle.py`: the present state of everything that a batch was planned with.

Gathering facts changes nothing, so the doctor does it too. Each topic is described once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from fencepost.config.source import Source
from fencepost.errors import TopicMissing
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, OffsetRange, State, TopicInput, by_partition
from fencepost.outputs.batch_topic import StagingTopic
from fencepost.outputs.output import output_of
from fencepost.protocol.obstacle import ObservedState, SourceState
from fencepost.protocol.ranges import without_expired


def observed_state(deployment: Deployment, batch: Batch) -> ObservedState:
    """Returns the present state of everything that the batch was planned with. The ledger has to be read before."""
    plan, publishing = batch.plan, batch.state is State.PUBLISHING

    @cache
    def topic(name: str) -> Topic | None:
        return topic_or_none(deployment.cluster, name)

    def identity(name: str | None) -> str:
        there = topic(name) if name else None
        return there.id if there else ""

    staging = topic(plan.staging.topic) if plan.staging else None
    sources: dict[str, SourceState] | None = None
    gone: tuple[OffsetRange, ...] = ()
    is_planned, read = batch.state is State.PLANNED, deployment.pipeline.source_topics
    again = {one.topic: one.ranges for one in plan.looked_back}
    if is_planned or (plan.replays is None and not publishing):
        sources = {
            one.topic: source_state(
                deployment, one, topic(one.topic), read.get(one.topic), again.get(one.topic, ()), expired=is_planned
            )
            for one in plan.inputs
            if plan.replays is not None or one.topic in read
        }
    if plan.staging is not None and staging is not None and staging.id == plan.staging.topic_id:
        gone = StagingTopic(deployment, staging.name, staging).gone(batch)
    return ObservedState(
        output=output_of(deployment, batch).state(batch, publishing=publishing),
        sources=sources,
        ledger_topic_id=deployment.ledger.topic_id,
        staging_topic_id=staging.id if staging else "",
        quarantine_topic_id=identity(plan.quarantine.topic if plan.quarantine and not publishing else None),
        staged_gone=gone,
    )


def topic_or_none(cluster: Cluster, name: str) -> Topic | None:
    """Returns the topic, or None if it does not exist."""
    try:
        return cluster.describe(name)
    except TopicMissing:
        return None


def source_state(
    deployment: Deployment,
    planned: TopicInput,
    topic: Topic | None,
    source: Source | None,
    looked_back: Sequence[OffsetRange] = (),
    *,
    expired: bool = True,
) -> SourceState:
    """Returns the present state of an input's topic. `source` has the settings of the topic, or is None for a quarantine
    topic. With `expired`, the expired parts of the input's ranges, and of those that it looks back at, are looked up too. A
    source that no longer looks back needs none of the latter: the batch gets a new revision.
    """
    known = SourceState(
        topic=planned.topic,
        topic_id="" if topic is None else topic.id,
        partitions=0 if topic is None else topic.partitions,
        accept_loss=source is not None and source.on_expired == "skip",
        setting=source.setting if source is not None else "",
    )
    if topic is None or not expired or topic.id != planned.topic_id or topic.partitions < len(planned.ranges):
        return known
    begins = by_partition(planned.topic, deployment.cluster.earliest(topic))
    known = replace(known, expired=without_expired(planned.ranges, begins)[1])
    if source is None or source.lookback is None:
        return known
    return replace(known, lookback_expired=without_expired(looked_back, begins)[1])
