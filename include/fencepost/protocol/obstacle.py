"""Decides whether a batch can go on, and what to do if it cannot. Pure.

Every caller gets the same answer. Plan asks about the batches whose ranges bound the next batch. Write, validate and
advance ask before they work and before they record. Skip and reprocess ask before they record a decision or a new
revision. The doctor asks too. A lasting obstacle ends a publication. Any other obstacle, such as Kafka's own refusal,
ends an attempt only. The next attempt may succeed after a person has changed what the error names. In both cases the
publication may be given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fencepost.counts import count_of
from fencepost.errors import (
    FencepostError,
    KafkaUnavailable,
    NeedsOperator,
    SourceDataExpired,
    SourcesChanged,
    TableRefusedData,
    TopicRecreated,
    WriteFailed,
)
from fencepost.model import (
    Batch,
    OffsetRange,
    Publication,
    State,
    TopicInput,
    describe_ranges,
)
from fencepost.protocol.advice import REASON, reprocess, write_again
from fencepost.protocol.view import PASSED

NEW_NAME = (
    "To continue with the present topic, give the pipeline a new name: rename its folder, and set schedule.start to the end "
    "of the last interval of the old one. Published records stay as they are, and the old ledger keeps its history."
)


def restore_or_accept(option: str) -> str:
    """Returns what a person can do about expired records. `option` is the setting in pipeline.yaml that accepts their loss."""
    return f"Restore them, or accept the loss: set {option} in pipeline.yaml and run again."


def accept_loss(setting: str) -> str:
    """Returns the next step after a loss of records. `setting` is the source's section in pipeline.yaml."""
    cure = restore_or_accept(f"{setting}.on_expired: skip")
    return f"Nothing was changed. {cure} The run processes what is left and records the loss."


def accept_lookback_loss(setting: str) -> str:
    """Returns the next step after a loss of looked-back records. `setting` is the source's section in pipeline.yaml."""
    cure = restore_or_accept(f"{setting}.lookback: {{for: ..., on_expired: skip}}")
    return f"Nothing was changed. {cure} The run looks back at what is left and records the loss."


@dataclass(frozen=True)
class SourceState:
    """A topic that the batch would be read from now. An empty id means that the topic does not exist.

    `expired` are the parts of the batch's ranges that the topic no longer has. With `accept_loss` (`on_expired: skip`)
    the pipeline continues without these parts. `setting` is the section of the source in pipeline.yaml. `lookback_expired`
    are those of the ranges that the batch looks back at.
    """

    topic: str
    topic_id: str
    partitions: int
    expired: tuple[OffsetRange, ...] = ()
    accept_loss: bool = False
    setting: str = "source"
    lookback_expired: tuple[OffsetRange, ...] = ()


class OutputState(Protocol):
    """The present state of an output, and of a batch's publication there. Each kind of output has its own class."""

    def obstacle(self, batch: Batch, found: ObservedState) -> Obstacle | None:
        """Returns the obstacle that keeps the batch from this output, or None. `found` is everything else that was
        observed. For a batch that is being published there can be no other obstacle.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ObservedState:
    """The present state of the topics and the output that a batch was planned with. An empty topic id
    means that the topic does not exist.

    `sources` has the topics of the batch's inputs that the pipeline still reads, by name. In an addition it is the quarantine
    topic. `sources` is None once the batch no longer needs its inputs. `staged_gone` is the deleted part of a staged batch's
    offsets. `output` is None while the batch needs nothing of its output.
    """

    output: OutputState | None = None
    sources: Mapping[str, SourceState] | None = None
    ledger_topic_id: str = ""
    staging_topic_id: str = ""
    quarantine_topic_id: str = ""
    staged_gone: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True)
class Obstacle:
    """Why a batch cannot go on, and the error to raise for it.

    `cure` is the next step. `cure` is empty if a new revision avoids the obstacle. `lasting` means that no later
    attempt can succeed.
    """

    why: str
    kind: type[FencepostError] = NeedsOperator
    cure: str = ""
    lasting: bool = True
    refused: str = ""  # why the table refused the batch's data

    def next_step(self, batch: Batch) -> str:
        """Returns the next step of the error message. The next step is `cure`, or otherwise a new revision."""
        return self.cure or f"{reprocess(batch) if batch.state in PASSED else write_again(batch)}."

    def error(self, batch: Batch) -> FencepostError:
        """Returns the error that ends with the next step."""
        message = f"batch {batch.id}: {self.why}. {self.next_step(batch)}"
        return TableRefusedData(message, self.refused) if self.refused else self.kind(message)


@dataclass(frozen=True)
class AbandonedPublication:
    """A publication that was given up. `lease` is its lease. Readers may have seen `seen` of its records."""

    lease: int
    seen: int

    def is_of(self, batch: Batch) -> bool:
        """Returns whether the given-up publication is the batch's present publication."""
        return batch.publication_under(self.lease) is not None

    def history_note(self, batch: Batch) -> str:
        """Returns a line for the batch's history."""
        rows = batch.written.rows if batch.written else 0
        return f"given up during its publication; readers may have seen {self.seen:,} of its {count_of(rows, 'record')}"


def obstacle(batch: Batch, found: ObservedState) -> Obstacle | None:
    """Returns the obstacle that keeps a batch from going on, or None.

    Once its publication has begun, a batch no longer needs its source or its quarantine. Readers may see some of the
    batch's records by then, so only an obstacle of the output can stop the batch.
    """
    of_output = found.output.obstacle(batch, found) if found.output is not None else None
    if batch.state is State.PUBLISHING:
        return of_output
    return (
        (sources_obstacle(batch, found.sources) if found.sources is not None else None)
        or of_output
        or staging_obstacle(batch, found)
        or _of_quarantine(batch, found.quarantine_topic_id)
        or _of_expired(batch, found.sources)
    )


def is_unseen(batch: Batch) -> bool:
    """Returns whether readers see nothing of the batch's publication before its commit. A publication that readers do
    not see may be given up at any time, even if it could be finished.
    """
    return batch.publication is not None and batch.publication.is_unseen


def refusal_obstacle(publication: Publication) -> Obstacle | None:
    """Returns the obstacle of a publication that its output has refused. The output may accept the next attempt."""
    if not publication.refused:
        return None
    return Obstacle(f"{publication.target} refused its copy: {publication.refused}", lasting=False)


def sources_obstacle(batch: Batch, found: Mapping[str, SourceState]) -> Obstacle | None:
    """Returns the obstacle that keeps a batch from being read from these topics, or None."""
    for topic in batch.plan.source_topics:
        now = found.get(topic)
        stopped = _without_source(topic) if now is None else source_obstacle(batch, now)
        if stopped is not None:
            return stopped
    return None


def _without_source(topic: str) -> Obstacle:
    return Obstacle(
        f"it reads source topic {topic}, which the pipeline no longer reads",
        SourcesChanged,
        "If a topic in pipeline.yaml is wrong, correct it. If the sources have changed, publish this batch with the former ones, "
        "or skip it.",
    )


def source_obstacle(batch: Batch, found: SourceState) -> Obstacle | None:
    """Returns the obstacle that keeps a batch from being read from this topic, which is one of its inputs, or None. Batches
    whose ranges bound the next batch are checked too.
    """
    planned = batch.plan.input_of(found.topic)
    replays = batch.plan.replays
    if replays is not None:
        what = _missing_records(planned, found)
        drop = f"{batch.command('skip', REASON)} drops addition {batch.revision}. {reprocess(batch)}."
        why = f"the quarantined records of batch {replays.batch} cannot be replayed: {what}"
        return Obstacle(why, cure=drop) if what else None
    if planned.topic_id != found.topic_id:
        return Obstacle(
            f"its source topic {found.topic} {remade(found.topic_id)} since it was planned, so its offsets now belong to other "
            "records",
            TopicRecreated,
            NEW_NAME,
        )
    if found.partitions < len(planned.ranges):
        return Obstacle(
            f"it was planned on {len(planned.ranges)} partitions of source topic {found.topic}, and the broker that answered "
            f"knows only {found.partitions}",
            KafkaUnavailable,
            "Nothing was changed. Brokers learn of new partitions within moments: run again.",
            lasting=False,
        )
    return None


def quarantine_obstacle(link: Batch, read: TopicInput, found: SourceState) -> Obstacle | None:
    """Returns the obstacle that keeps an addition from being planned, or None. The addition replays the quarantined
    records of `link`.
    """
    what = _missing_records(read, found)
    cure = f"Nothing was planned. {reprocess(link)}."
    return Obstacle(f"its quarantined records cannot be replayed: {what}", cure=cure) if what else None


def _missing_records(planned: TopicInput, found: SourceState) -> str:
    """Returns which records the quarantine topic no longer has. The text is empty if none are missing."""
    if planned.topic_id != found.topic_id:
        return f"quarantine topic {planned.topic} {remade(found.topic_id)}"
    return f"quarantine topic {planned.topic} no longer has {describe_ranges(found.expired)}" if found.expired else ""


def staging_obstacle(batch: Batch, found: ObservedState) -> Obstacle | None:
    """Returns the obstacle that keeps a batch from being written, judged or published through its staging topic, or
    None.
    """
    staging = batch.plan.staging
    if staging is None or not (batch.written is None or batch.is_staged):
        return None
    if staging.topic_id != found.staging_topic_id:
        why = f"its staging topic {staging.topic} {remade(found.staging_topic_id)} since it was planned"
        return Obstacle(why, TopicRecreated)
    if found.staged_gone:
        return Obstacle(
            f"its staging topic {staging.topic} no longer has {describe_ranges(found.staged_gone)}: retention "
            "(output.staging_hours when the topic was created) or a person deleted them before the batch was published"
        )
    return None


def _of_quarantine(batch: Batch, topic_id: str) -> Obstacle | None:
    quarantine = batch.plan.quarantine
    if quarantine is None or quarantine.topic_id == topic_id:
        return None
    why = f"its quarantine topic {quarantine.topic} {remade(topic_id)} since it was planned"
    return Obstacle(why, TopicRecreated)


def _of_expired(batch: Batch, sources: Mapping[str, SourceState] | None) -> Obstacle | None:
    """Returns the obstacle that keeps a planned batch from being written because its records expired, or None. A
    written batch no longer needs its source records.
    """
    if batch.state is not State.PLANNED:
        return None
    for one in (sources or {}).values():
        gone = f"its source topic {one.topic} no longer has {describe_ranges(one.expired)}"
        if one.expired and one.accept_loss:  # a retry makes a new revision without them
            return Obstacle(f"{gone}, and the pipeline has {one.setting}.on_expired: skip", WriteFailed)
        if one.expired:
            why = f"{gone}: retention deleted them before the batch was written"
            return Obstacle(why, SourceDataExpired, accept_loss(one.setting))
    for one in (sources or {}).values():
        if one.lookback_expired:  # a new revision looks back at what is left, or its plan says what to do
            why = f"its source topic {one.topic} no longer has {describe_ranges(one.lookback_expired)}, which it looks back at"
            return Obstacle(why, SourceDataExpired)
    return None


def remade(identity: str) -> str:
    """Returns what happened to a topic that had another id. `identity` is its id now, and empty if the topic does not
    exist.
    """
    return "was deleted and created again" if identity else "was deleted"
