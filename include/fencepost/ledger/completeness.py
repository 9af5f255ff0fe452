"""Finds out whether the ledger is complete, or was deleted or restored from an old copy.

Two kinds of evidence remain after a loss. The first are the offsets of the pipeline's group. Fencepost moves these
offsets only with a publication, in one transaction with the ledger. The group's offsets expire in a week. If the ledger
has no batch, the offsets may belong to another application. The second are records that name their batch: in the output
by a header, in the staging topic by their timestamp. If both are gone, nothing in Kafka distinguishes a lost ledger
from the ledger of a new pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from confluent_kafka import TopicPartition

from fencepost.config.pipeline import Pipeline
from fencepost.errors import GroupInUse, LedgerLost
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import committed_offsets, read_until
from fencepost.ledger.deployment import Deployment
from fencepost.model import BATCH_HEADER, PartitionId
from fencepost.protocol.frontier import accounted_for
from fencepost.protocol.view import View

Named = tuple[str, str]  # a batch, and where it is, such as `topic orders`

LOOKED_AT = 1000  # newest offsets of each output partition, including markers and other pipelines' records

Committed = Mapping[PartitionId, TopicPartition]

ADVICE = (
    "The ledger or its newest records were lost, and a new plan would write published records again. Stop the pipeline's runs "
    "and restore the ledger from a copy that has them. Without a copy, give the pipeline a new name: rename its folder. To "
    "continue, set schedule.start to the end of the last published interval. To start over, keep schedule.start and name "
    "another output."
)


def check_complete(deployment: Deployment, view: View, written: Callable[[], Iterable[Named]]) -> None:
    """Checks, before anything is planned, that no batch is missing from the ledger. `view` is the ledger at its last
    read.

    1. read the offsets of the pipeline's group;
    2. ask `written` for the batches that own the newest records of output and staging topic. This happens only if
       nothing was planned in this ledger topic yet, because the topic is then new or a copy;
    3. read the ledger again, because it has to account for what was read before. Then decide.

    Raises:
        LedgerLost: a batch is missing.
        GroupInUse: the ledger is empty, and the group has offsets. The offsets may be another application's.
    """
    pipeline, cluster, have = deployment.pipeline, deployment.cluster, dict[PartitionId, TopicPartition]()
    for topic in pipeline.source_topics:
        have |= offsets_of(cluster, pipeline.group, cluster.describe(topic), stable=True)  # 1
    named = tuple(written()) if plans_none(view, deployment.ledger.topic_id) else ()  # 2
    decide_complete(pipeline, deployment.ledger.read(), have, named)  # 3


def decide_complete(pipeline: Pipeline, view: View, have: Committed, named: Iterable[Named]) -> None:
    """Decides whether the ledger accounts for offsets of the sources and for named batches. The ledger was read after
    them. Pure.

    Raises:
        LedgerLost, GroupInUse: see `check_complete`.
    """
    if view.revisions:
        for topic in pipeline.source_topics:
            check_accounted_for(pipeline, view, topic, have)
    unknown = unknown_batch(view, named)
    if unknown is not None:
        batch, place = unknown
        raise _lost(pipeline, view, f"{place} has records of its batch {batch}")
    for topic in pipeline.source_topics if not view.revisions else ():
        if ahead := unexplained(view, topic, have):
            raise GroupInUse(
                f"pipeline {pipeline.name}: {describe_offsets(pipeline.group, topic, ahead)}. {explain_offsets(pipeline)}"
            )


def offsets_of(cluster: Cluster, group: str, topic: Topic, *, stable: bool = False) -> Committed:
    """Returns a group's offsets of a topic. With `stable` it waits for open transactions that may change an offset."""
    asked = [TopicPartition(topic.name, p) for p in range(topic.partitions)]
    return committed_offsets(cluster.settings, group, asked, f"reading offsets of group {group}", stable=stable)


def plans_none(view: View, ledger_topic_id: str) -> bool:
    """Returns whether nothing was planned in this ledger topic yet. Pure."""
    return all(batch.plan.ledger_topic_id != ledger_topic_id for batch in view.all())


def unknown_batch(view: View, named: Iterable[Named]) -> Named | None:
    """Returns a named batch that the ledger lacks, or None. The newest named batch comes first. Pure."""
    plans = {batch.plan.staging_timestamp for batch in view.all()}
    known = {*(str(batch.id) for batch in view.all()), *(planned_at(moment) for moment in plans if moment is not None)}
    unknown = (one for one in named if one[0] not in known)
    return max(unknown, key=lambda one: ("/" in one[0], one), default=None)  # names before moments


def check_accounted_for(pipeline: Pipeline, view: View, topic: str, have: Committed) -> None:
    """Checks that the group's offsets are not ahead of the ledger. The ledger was read after the offsets. Pure.

    Missing or lower offsets prove nothing, because offsets expire and a person may set them back.

    Raises:
        LedgerLost: the offsets are ahead, so batches are missing from the ledger.
    """
    ahead = unexplained(view, topic, have)
    if not ahead:
        return
    known = accounted_for(view)
    back = ", ".join(f"{topic}:{p} to {known.get((topic, p), 0)}" for p in ahead)
    raise _lost(
        pipeline,
        view,
        f"{describe_offsets(pipeline.group, topic, ahead)} that the ledger cannot explain",
        f" Only if a person set these offsets by hand, set them back: {back} (kafka-consumer-groups.sh --group "
        f"{pipeline.group} --reset-offsets).",
    )


def unexplained(view: View, topic: str, have: Committed) -> dict[int, int]:
    """Returns the group's offsets of a topic that are ahead of the offsets that the ledger can explain, by partition.
    Pure.
    """
    known = accounted_for(view)
    return {p: tp.offset for (t, p), tp in sorted(have.items()) if t == topic and tp.offset > known.get((t, p), -1)}


def describe_offsets(group: str, topic: str, ahead: Mapping[int, int]) -> str:
    """Describes a group's offsets."""
    offsets = ", ".join(f"partition {p}: {o}" for p, o in ahead.items())
    return f"group {group} has offsets of topic {topic} ({offsets})"


def explain_offsets(pipeline: Pipeline) -> str:
    """Returns what the group's offsets may mean if the ledger has no batch, and what to do in each case."""
    return (
        f"The ledger {pipeline.ledger_topic} has no batch, so either this pipeline did not commit them, or its ledger was lost. "
        "If another application uses this group, give the pipeline another name: rename its folder. If the group is no longer "
        f"used, delete it: kafka-consumer-groups.sh --delete --group {pipeline.group}. If the pipeline has published before, "
        "stop its runs and restore the ledger from a copy that has all batches."
    )


def _lost(pipeline: Pipeline, view: View, found: str, more: str = "") -> LedgerLost:
    is_empty = "is empty" if not view.revisions else "is incomplete"
    return LedgerLost(
        f"pipeline {pipeline.name}: its ledger {pipeline.ledger_topic} {is_empty}, and {found}. {ADVICE}{more}"
    )


def newest_batches(deployment: Deployment, topic: Topic, *, staged: bool = False) -> Iterator[Named]:
    """Yields this pipeline's batches that own the topic's newest records, by the records' headers. The names sort in
    order of time.

    With `staged` the topic is a staging topic, whose records identify their batches by timestamp (`planned_at`).
    """
    earliest, stable = deployment.cluster.earliest(topic), deployment.cluster.last_stable(topic)
    begin = {p: max(earliest[p], end - LOOKED_AT) for p, end in enumerate(stable) if end > earliest[p]}
    if not begin:
        return
    consumer, complaints = make_consumer(deployment.cluster.settings, deployment.pipeline.group)
    own = f"{deployment.pipeline.name}/".encode()
    try:
        consumer.assign([TopicPartition(topic.name, p, offset) for p, offset in begin.items()])
        ends = {p: stable[p] for p in begin}
        doing = f"looking for records of pipeline {deployment.pipeline.name} in topic {topic.name}"
        for message in read_until(consumer, complaints, deployment.cluster.settings, ends, doing):
            if staged:
                yield planned_at(message.timestamp()[1]), f"topic {topic.name}"
                continue
            headers = dict(cast("list[tuple[str, bytes | None]]", message.headers() or []))
            batch = headers.get(BATCH_HEADER) or b""
            if batch.startswith(own):
                yield batch.decode("utf-8", "replace"), f"topic {topic.name}"
    finally:
        consumer.close()


def planned_at(millis: int) -> str:
    """Returns the text that identifies a staged batch by its `staging_timestamp`, in milliseconds since 1970."""
    import numpy as np  # imported here because commands that only read the ledger do not need it

    return f"planned at {np.datetime64(millis, 'ms')} UTC"  # unlike datetime, it accepts any number
