"""Whether a batch can go on, and what to do where it cannot; pure.

One answer for everybody who asks: plan, of the batches whose ranges bound the next ones; write, validate and advance, before they
work and before they record; skip and reprocess, before they put a decision or a new revision in the batch's place; the doctor.
An obstacle that lasts ends a publication. One that does not, Kafka's own refusal, ends an attempt: the next one may succeed once
somebody has changed what Kafka named. Either way the publication may be given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fencepost.counts import count_of
from fencepost.errors import (
    FencepostError,
    KafkaUnavailable,
    NeedsOperator,
    SourceDataExpired,
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
    "To continue with the present topic, give the pipeline a new name: rename its folder, and set schedule.start to where "
    "the old one ended. Published records stay as they are, and the old ledger keeps its history."
)
ACCEPT_LOSS = (
    "Nothing was changed. Restore them, or accept the loss: set source.on_expired: skip in pipeline.yaml and run again. The run "
    "processes what is left and records the loss."
)


@dataclass(frozen=True)
class SourceFound:
    """The topic that a batch would be read from now; without an id it does not exist.

    `expired` are the parts of the batch's ranges that it no longer has, and `accept_loss` is whether the pipeline goes on
    without them (`on_expired: skip`).
    """

    topic: str
    topic_id: str
    partitions: int
    expired: tuple[OffsetRange, ...] = ()
    accept_loss: bool = False


class OutputState(Protocol):
    """An output as a batch finds it, and its publication there. Each kind of output has its own."""

    def obstacle(self, batch: Batch, found: Found) -> Obstacle | None:
        """What keeps the batch from this output; `found` is what it finds otherwise. While it is being published, that is all
        that can keep it from going on."""
        ...


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a batch finds of what it was planned with, by the names in its plan. A topic without an id does not exist.

    `sources` has what the topic of each input is now, in the plan's order; none where the batch needs them no more.
    `staged_gone`: the deleted part of a staged batch's offsets. `output` is None where the batch needs nothing of its output yet.
    """

    output: OutputState | None = None
    sources: tuple[SourceFound, ...] = ()
    ledger_topic_id: str = ""
    staging_topic_id: str = ""
    quarantine_topic_id: str = ""
    staged_gone: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True)
class Obstacle:
    """Why a batch cannot go on, and what kind of error that is.

    `cure` is the next step. It is empty where a new revision gets past the obstacle. `lasting`: no attempt can succeed any
    more, whatever is changed.
    """

    why: str
    kind: type[FencepostError] = NeedsOperator
    cure: str = ""
    lasting: bool = True
    refused: str = ""  # why its table refused its data

    def next_step(self, batch: Batch) -> str:
        """What to do about it."""
        return self.cure or f"{reprocess(batch) if batch.state in PASSED else write_again(batch)}."

    def error(self, batch: Batch) -> FencepostError:
        """The error that ends with the next step."""
        message = f"batch {batch.id}: {self.why}. {self.next_step(batch)}"
        return TableRefusedData(message, self.refused) if self.refused else self.kind(message)


@dataclass(frozen=True)
class GivenUp:
    """A publication that was given up: its lease, and how many of its records readers may have seen."""

    lease: int
    seen: int

    def is_of(self, batch: Batch) -> bool:
        """Whether it is the batch's present publication."""
        return batch.publication_under(self.lease) is not None

    def told(self, batch: Batch) -> str:
        """For the batch's history."""
        rows = batch.written.rows if batch.written else 0
        return f"given up while it was published, when readers may have seen {self.seen:,} of its {count_of(rows, 'record')}"


def obstacle(batch: Batch, found: Found) -> Obstacle | None:
    """What keeps a batch from going on, or None.

    From the beginning of its publication only its copy counts: it needs neither its source nor its quarantine any more, and
    readers may see some of it, so it is finished if it can be.
    """
    of_output = found.output.obstacle(batch, found) if found.output is not None else None
    if batch.state is State.PUBLISHING:
        return of_output
    return (
        (source_obstacle(batch, found.sources) if found.sources else None)
        or of_output
        or staging_obstacle(batch, found)
        or _of_quarantine(batch, found.quarantine_topic_id)
        or _of_expired(batch, found.sources)
    )


def is_unseen(batch: Batch) -> bool:
    """Whether readers see nothing of the batch's publication before all of it is committed, so that it may be given up whatever
    holds it, and also where nothing does."""
    return batch.publication is not None and batch.publication.is_unseen


def refusal_obstacle(publication: Publication) -> Obstacle | None:
    """What keeps a publication from its output that the output has refused: it may take the next attempt."""
    if not publication.refused:
        return None
    return Obstacle(f"{publication.taker} refused its copy: {publication.refused}", lasting=False)


def source_obstacle(batch: Batch, found: Sequence[SourceFound]) -> Obstacle | None:
    """What keeps a batch from being read from these topics. One whose ranges bound those of the next ones has to be, too."""
    each = (_of_source(batch, planned, now) for planned, now in zip(batch.plan.inputs, found, strict=True))
    return next((one for one in each if one is not None), None)


def _of_source(batch: Batch, planned: TopicInput, found: SourceFound) -> Obstacle | None:
    replays = batch.plan.replays
    if replays is not None:
        what = _lacks(planned, found)
        drop = f"{batch.command('skip', REASON)} drops addition {batch.revision}. {reprocess(batch)}."
        return Obstacle(f"it cannot replay what batch {replays.batch} quarantined: {what}", cure=drop) if what else None
    if planned.topic != found.topic:
        return Obstacle(
            f"it was planned on source topic {planned.topic}, but the pipeline now reads {found.topic}, and offsets of one topic "
            "mean nothing in another",
            TopicRecreated,
            NEW_NAME,
        )
    if planned.topic_id != found.topic_id:
        return Obstacle(
            f"its source topic {found.topic} {remade(found.topic_id)} since it was planned, so its offsets mean other records",
            TopicRecreated,
            NEW_NAME,
        )
    if found.partitions < len(planned.ranges):
        return Obstacle(
            f"its source topic {found.topic} has {found.partitions} partitions as far as the broker that answered knows, and it "
            f"was planned on {len(planned.ranges)}",
            KafkaUnavailable,
            "Nothing was changed. Brokers learn of new partitions within moments: run again.",
            lasting=False,
        )
    return None


def quarantine_obstacle(link: Batch, read: TopicInput, found: SourceFound) -> Obstacle | None:
    """What keeps an addition from being planned that reads there what this batch or addition has quarantined."""
    what = _lacks(read, found)
    cure = f"Nothing was planned. {reprocess(link)}."
    return Obstacle(f"what it quarantined cannot be replayed: {what}", cure=cure) if what else None


def _lacks(planned: TopicInput, found: SourceFound) -> str:
    """What a quarantine topic lacks of the records there; empty if nothing."""
    if planned.topic_id != found.topic_id:
        return f"quarantine topic {planned.topic} {remade(found.topic_id)}"
    return f"quarantine topic {planned.topic} no longer has {describe_ranges(found.expired)}" if found.expired else ""


def staging_obstacle(batch: Batch, found: Found) -> Obstacle | None:
    """What keeps a batch from being written, judged or published by way of its staging topic."""
    staging = batch.plan.staging
    if staging is None or not (batch.written is None or batch.is_staged):
        return None
    if staging.topic_id != found.staging_topic_id:
        why = f"its staging topic {staging.topic} {remade(found.staging_topic_id)} since it was planned"
        return Obstacle(why, TopicRecreated)
    if found.staged_gone:
        return Obstacle(
            f"its staging topic {staging.topic} no longer has {describe_ranges(found.staged_gone)}: retention "
            "(output.staging_hours when it was made), or somebody, deleted them before it was published"
        )
    return None


def _of_quarantine(batch: Batch, topic_id: str) -> Obstacle | None:
    quarantine = batch.plan.quarantine
    if quarantine is None or quarantine.topic_id == topic_id:
        return None
    why = f"its quarantine topic {quarantine.topic} {remade(topic_id)} since it was planned"
    return Obstacle(why, TopicRecreated)


def _of_expired(batch: Batch, sources: Sequence[SourceFound]) -> Obstacle | None:
    """What keeps a batch from being written whose records expired. One that is written needs them no more."""
    found = next((one for one in sources if one.expired), None)
    if batch.state is not State.PLANNED or found is None:
        return None
    gone = f"its source topic {found.topic} no longer has {describe_ranges(found.expired)}"
    if found.accept_loss:  # a retry makes a new revision without them
        return Obstacle(f"{gone}, and the pipeline says on_expired: skip", WriteFailed)
    return Obstacle(f"{gone}: retention deleted them before the batch was written", SourceDataExpired, ACCEPT_LOSS)


def remade(identity: str) -> str:
    """What happened to a topic that had another identity, and has this one now; none: it is not there."""
    return "was deleted and created again" if identity else "was deleted"
