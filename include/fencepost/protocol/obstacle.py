"""Whether a batch can go on, and what to do where it cannot; pure.

One answer for everybody who asks: plan, of the batches whose ranges bound the next ones; write, validate and advance, before they
work and before they record; skip and reprocess, before they put a decision or a new revision in the batch's place; the doctor.
An obstacle that lasts ends a publication. One that does not, Kafka's own refusal, ends an attempt: the next one may succeed once
somebody has changed what Kafka named. Either way the publication may be given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    Receipt,
    State,
    TablePublication,
    Tally,
    TopicInput,
    TopicOutput,
    TopicPublication,
    describe_ranges,
)
from fencepost.protocol.advice import REASON, after_table_refused, reprocess, write_again
from fencepost.protocol.store import Standing, StoreFound
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


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a batch finds of what it was planned with, by the names in its plan. A topic without an id does not exist.

    `sources` has what the topic of each input is now, in the plan's order; none where the batch needs them no more. Of a
    staged batch: the deleted part of its staged offsets
    (`staged_gone`). While it is being published also the mark of each task-partition of its copy, None where it is gone, and why
    the output cannot tell what such marks stood for (`untold`); or what its table says (`store`).
    """

    output_topic_id: str = ""
    sources: tuple[SourceFound, ...] = ()
    ledger_topic_id: str = ""
    staging_topic_id: str = ""
    quarantine_topic_id: str = ""
    staged_gone: tuple[OffsetRange, ...] = ()
    marks: tuple[Receipt | None, ...] = ()
    untold: str = ""
    store: StoreFound | None = None


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
    if batch.state is State.PUBLISHING and isinstance(batch.publication, TablePublication):
        return _of_commit(batch, batch.publication, found)
    if batch.state is State.PUBLISHING and isinstance(batch.publication, TopicPublication):
        return _of_publication(batch, batch.publication, found)
    return (
        (source_obstacle(batch, found.sources) if found.sources else None)
        or output_obstacle(batch, found.output_topic_id)
        or _of_staging(batch, found)
        or _of_quarantine(batch, found.quarantine_topic_id)
        or _of_expired(batch, found.sources)
    )


def is_unseen(batch: Batch) -> bool:
    """Whether readers see nothing of the batch's publication before all of it is committed, so that it may be given up whatever
    holds it, and also where nothing does."""
    return isinstance(batch.publication, TablePublication)


def _of_commit(batch: Batch, publication: TablePublication, found: Found) -> Obstacle | None:
    """What keeps a publication to a table from being finished. What is committed there needs nothing any more."""
    store = found.store or StoreFound()
    if store.standing is Standing.DONE:
        return None
    if store.lost:
        return Obstacle(f"table {publication.table} {store.lost}")
    if publication.ledger != found.ledger_topic_id:
        return Obstacle(
            "its ledger was made anew from a copy while it was published, so its lease says nothing to its table"
        )
    if store.standing is Standing.CLOSED and store.refused:
        why = f"table {publication.table} refused its data: {store.refused}"
        return Obstacle(why, TableRefusedData, after_table_refused(batch), refused=store.refused)
    if store.standing is Standing.CLOSED:
        return Obstacle("its publication was given up")
    if store.standing is Standing.OVERTAKEN:
        return Obstacle(f"table {publication.table} has a later publication of its interval")
    if (gone := _of_staging(batch, found)) is not None:
        return gone
    return _of_refusal(publication)


def _of_refusal(publication: TopicPublication | TablePublication) -> Obstacle | None:
    if not publication.refused:
        return None
    return Obstacle(f"{publication.taker} refused its copy: {publication.refused}", lasting=False)


def _of_publication(batch: Batch, publication: TopicPublication, found: Found) -> Obstacle | None:
    """What keeps a publication from being finished. A copy that is complete needs its staged records no more."""
    if (gone := output_obstacle(batch, found.output_topic_id)) is not None:
        return gone
    if publication.ledger != found.ledger_topic_id:
        return Obstacle(
            "its ledger was made anew from a copy while it was published, so its lease says nothing about its marks"
        )
    copied = copied_receipts(publication, found.marks)
    if copied is not None and is_whole(batch, copied):
        return None
    if (gone := _of_staging(batch, found)) is not None:
        return gone
    refused = f"Kafka refused its copy: {publication.refused}" if publication.refused else ""
    if copied is not None:
        # Who gives a publication up closes what was not copied with empty marks, and may ask again before that is recorded.
        nothing = not sum(r.tally(batch.plan.topic.topic).rows for r in copied)
        return Obstacle(refused if refused and nothing else "its copy does not hold the records that were written")
    if None in found.marks and found.untold:
        return Obstacle(f"marks of its publication are gone, and {found.untold}: nothing says what was copied")
    return _of_refusal(publication)


def output_obstacle(batch: Batch, topic_id: str) -> Obstacle | None:
    """What keeps a batch from the output topic that it was planned on, if that has this id now."""
    output = batch.plan.output
    if not isinstance(output, TopicOutput):
        return None
    since = "while it was published" if batch.state is State.PUBLISHING else "since it was planned"
    if output.topic_id == topic_id:
        return None
    return Obstacle(f"its output topic {output.topic} {remade(topic_id)} {since}", TopicRecreated)


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


def _of_staging(batch: Batch, found: Found) -> Obstacle | None:
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


def copied_receipts(publication: TopicPublication, marks: Sequence[Receipt | None]) -> tuple[Receipt, ...] | None:
    """The receipts of all task-partitions of the copy where its marks say that each has ended; else None."""
    own = (publication.ledger, publication.known_lease)
    done = tuple(m for m in marks if m is not None and (m.ledger, m.lease) == own)
    return done if len(done) == publication.tasks else None


def is_whole(batch: Batch, receipts: Sequence[Receipt]) -> bool:
    """Whether these receipts of all task-partitions of the copy hold the records that were written."""
    copied, wanted = Tally.total(r.tally(batch.plan.topic.topic) for r in receipts), batch.known_written.tally
    return (copied.rows, copied.fingerprint) == (wanted.rows, wanted.fingerprint)


def remade(identity: str) -> str:
    """What happened to a topic that had another identity, and has this one now; none: it is not there."""
    return "was deleted and created again" if identity else "was deleted"
