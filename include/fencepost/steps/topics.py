"""A batch's topics are still those it was planned on, with all the records it needs."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.config.pipeline import Pipeline
from fencepost.errors import (
    SourceDataExpired,
    TopicRecreated,
)
from fencepost.kafka.cluster import Topic
from fencepost.ledger.ledger import Ledger
from fencepost.model import (
    Batch,
    Interval,
    OffsetRange,
    State,
    describe_ranges,
)
from fencepost.outputs.output import Output, output_of, written_to
from fencepost.protocol.ranges import without_expired

NEW_NAME = (
    "To go on with the topic of now, give the pipeline a new name: rename its folder, and set schedule.start to where this "
    "one ended. What is published stays as it is, and this one's ledger keeps its history."
)


def expired_error(pipeline: Pipeline, interval: Interval, expired: Sequence[OffsetRange]) -> SourceDataExpired:
    """The error for records of the interval that are gone from the source."""
    return SourceDataExpired(
        f"pipeline {pipeline.name}, interval {interval}: topic {pipeline.source.topic} no longer has {describe_ranges(expired)}; "
        "retention deleted them before they were written. Nothing was changed. Restore them, or accept the loss: set "
        "source.on_expired: skip in pipeline.yaml and run again; what is left is processed and the loss recorded."
    )


def check_same_topic(batch: Batch, source: Topic) -> None:
    """The source topic is the one the batch's offsets were frozen in.

    Raises:
        TopicRecreated: it was deleted and created again, so its offsets mean other records.
    """
    planned = batch.plan.source
    if planned.topic == source.name and planned.topic_id != source.id:
        raise TopicRecreated(
            f"source topic {source.name} was deleted and created again since batch {batch.id} was planned (topic id "
            f"{planned.topic_id}, now {source.id}): its offsets mean other records. {NEW_NAME}"
        )
    if planned.topic != source.name:
        raise TopicRecreated(
            f"batch {batch.id} was planned on source topic {planned.topic}, and the pipeline now reads "
            f"{source.name}. Offsets of one topic mean nothing in another. {NEW_NAME}"
        )


def same_topics(ledger: Ledger, batch: Batch, *, staged: bool = True) -> tuple[Topic, Output]:
    """The batch's source topic, and what it is written to: with its output they are still those it was planned on.

    What is published already has no need of its staging topic (`staged` is False).

    Raises:
        TopicRecreated: one of them was deleted and created again.
    """
    source, output = ledger.cluster.describe(batch.plan.source.topic), output_of(ledger, batch)
    check_same_topic(batch, source)
    output.check_same(batch)
    if not staged or batch.plan.staging is None:
        return source, output
    staging = written_to(ledger, batch)
    staging.check_same(batch)
    return source, staging


def check_topics(ledger: Ledger, batch: Batch) -> Output:
    """The batch's topics are those it was planned on, and its range is still whole. Returns what it is written to."""
    source, output = same_topics(ledger, batch)
    _, expired = without_expired(batch.plan.source.ranges, ledger.cluster.earliest(source))
    if expired and batch.state is State.PLANNED:
        raise expired_error(ledger.pipeline, batch.interval, expired)
    return output
