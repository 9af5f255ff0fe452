"""Checks that a batch's topics are still those it was planned on, with all the records it needs."""

from __future__ import annotations

from fencepost.errors import NeedsOperator, TopicMissing
from fencepost.kafka.cluster import Topic
from fencepost.ledger.ledger import Ledger
from fencepost.model import (
    Batch,
    SourceTopic,
    State,
    describe_ranges,
)
from fencepost.outputs.output import Output, output_of, written_to
from fencepost.outputs.quarantine import QuarantineTopic
from fencepost.protocol.advice import REASON, reprocess
from fencepost.protocol.planning import check_same_source, expired_error
from fencepost.protocol.ranges import without_expired


def check_same_topic(batch: Batch, source: Topic) -> None:
    """As `check_same_source`, of the topic as the broker describes it now."""
    check_same_source(batch, source.name, source.id, source.partitions)


def check_quarantined(ledger: Ledger, batch: Batch, read: SourceTopic, sent_by: str, after: str) -> None:
    """Check that the quarantine topic still has what an addition reads there: the records that batch `sent_by` quarantined.

    Raises:
        NeedsOperator: they were deleted, or the topic was. `after` says what became of the replay.
    """
    try:
        topic = ledger.cluster.describe(read.topic)
    except TopicMissing:
        found = "does not exist any more"
    else:
        gone = without_expired(read.ranges, ledger.cluster.earliest(topic))[1]
        if topic.id == read.topic_id and not gone:
            return
        found = f"no longer has {describe_ranges(gone)}"
        if topic.id != read.topic_id:
            found = "was deleted and created again"
    raise NeedsOperator(
        f"quarantine topic {read.topic} {found}, so the records that batch {sent_by} quarantined cannot be replayed. {after} "
        f"{reprocess(batch)}."
    )


def _source_of(ledger: Ledger, batch: Batch) -> Topic | None:
    """The batch's source topic, checked to be the one it was planned on.

    None of an addition, which comes from quarantine: that is checked until the addition is written.
    """
    if batch.plan.replays is None:
        source = ledger.cluster.describe(batch.plan.source.topic)
        check_same_topic(batch, source)
        return source
    if batch.state is State.PLANNED:
        drop = f"{batch.command('skip', REASON)} drops addition {batch.revision}."
        check_quarantined(ledger, batch, batch.plan.source, batch.plan.replays.batch, drop)
    return None


def same_topics(ledger: Ledger, batch: Batch, *, staged: bool = True) -> tuple[Topic | None, Output]:
    """The batch's source topic and what it is written to, checked to be those it was planned on; its output is checked too.

    An addition has no source topic but quarantine.

    A batch that is copied does not need its staging topic any more (`staged` is False). Its quarantine topic is checked until
    its publication begins: from then on only its copy counts.

    Raises:
        TopicRecreated: one of them was deleted and created again.
    """
    source, output = _source_of(ledger, batch), output_of(ledger, batch)
    output.check_same(batch)
    if batch.plan.quarantine is not None and batch.state is not State.PUBLISHING:
        QuarantineTopic(ledger, batch).check_same(batch)
    if not staged or batch.plan.staging is None:
        return source, output
    staging = written_to(ledger, batch)
    staging.check_same(batch)
    return source, staging


def check_topics(ledger: Ledger, batch: Batch) -> Output:
    """Check that the batch's topics are those it was planned on and its ranges are complete; return what it is written to."""
    source, output = same_topics(ledger, batch)
    if source is None:
        return output
    _, expired = without_expired(batch.plan.source.ranges, ledger.cluster.earliest(source))
    if expired and batch.state is State.PLANNED:
        raise expired_error(ledger.pipeline.name, source.name, batch.interval, expired)
    return output
