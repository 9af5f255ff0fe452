"""Gathers the facts for `protocol/obstacle.py`: the present state of everything that a batch was planned with.

Gathering facts changes nothing, so the doctor does it too. Each topic is described once.
"""

from __future__ import annotations

from functools import cache

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
    sources: tuple[SourceState, ...] = ()
    gone: tuple[OffsetRange, ...] = ()
    if plan.replays is None and not publishing:
        read = deployment.pipeline.source.topic
        whole = batch.state is State.PLANNED
        sources = tuple(source_state(deployment, planned, topic(read), read, ranges=whole) for planned in plan.inputs)
    elif batch.state is State.PLANNED:
        sources = tuple(source_state(deployment, planned, topic(planned.topic)) for planned in plan.inputs)
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
    deployment: Deployment, planned: TopicInput, topic: Topic | None, name: str | None = None, *, ranges: bool = True
) -> SourceState:
    """Returns the present state of an input's topic. `name` is the topic's name if the plan has another name for it.
    With `ranges`, the expired parts of the input's ranges are looked up too.
    """
    accept = deployment.pipeline.source.on_expired == "skip"
    if topic is None:
        return SourceState(name or planned.topic, "", 0, accept_loss=accept)
    same = topic.id == planned.topic_id and topic.partitions >= len(planned.ranges)
    begins = by_partition(planned.topic, deployment.cluster.earliest(topic)) if ranges and same else {}
    expired = without_expired(planned.ranges, begins)[1] if begins else ()
    return SourceState(topic.name, topic.id, topic.partitions, expired, accept)
