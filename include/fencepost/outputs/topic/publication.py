"""Begins, records and gives up the publication of a staged batch to an output topic. Pure.

    begin    written or rejected ──▶ publishing    with a lane, and an opening mark for each task-partition
    copy     the writers' protocol, with the transactional ids and marks of the publishing lane, and the lease of the beginning
    record   publishing ──▶ published              after all that was written is copied; offsets move with it

Each task-partition has an opening mark, so a missing mark was lost. Lost marks are restored from the records in the
output before anything more is copied.

A publication that cannot go on is given up. Every task-partition gets a mark of its lease, which is empty if the
task-partition has copied nothing. So a late attempt copies nothing. Then a new revision replaces the batch, or an
operator skips it. A lane becomes free when all of its task-partitions have such marks, so its ids never need to be
fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.errors import TopicRecreated, TransitionRefused
from fencepost.model import (
    Batch,
    Interval,
    PartitionId,
    PlannedOutput,
    Receipt,
    State,
    Tally,
    TopicEnds,
)
from fencepost.outputs.topic.values import TopicOutput, TopicPublication, published_ends
from fencepost.protocol.advice import write_again
from fencepost.protocol.decisions import own_revision, published
from fencepost.protocol.obstacle import ObservedState, Obstacle, refusal_obstacle, remade, staging_obstacle
from fencepost.protocol.publication import check_under_way
from fencepost.protocol.view import PASSED, View


@dataclass(frozen=True)
class TopicState:
    """The present state of a batch's output topic. An empty id means that the topic does not exist.

    For a batch that is being published, `marks` has the mark of each task-partition of its copy, or None for a lost
    mark. `unverifiable_reason` says why the topic's records cannot replace the lost marks, and is empty if they can.
    """

    topic_id: str = ""
    marks: tuple[Receipt | None, ...] = ()
    unverifiable_reason: str = ""

    def obstacle(self, batch: Batch, found: ObservedState) -> Obstacle | None:
        """Returns the obstacle that keeps the batch from this topic or its copy from being finished, or None."""
        return (
            _of_copy(batch, self, found) if batch.state is State.PUBLISHING else output_obstacle(batch, self.topic_id)
        )


def publishing_lane(view: View) -> int:
    """Returns the lowest publishing lane that no batch holds. The number of lanes is not limited."""
    held = {
        p.lane for b in view.all() if isinstance(p := b.publication, TopicPublication) and b.state is State.PUBLISHING
    }
    return next(lane for lane in range(len(held) + 1) if lane not in held)


def begin_publication(
    view: View, batch: Batch, output: TopicEnds, ledger_topic_id: str, atomic_bytes: float, now: datetime
) -> TopicPublication:
    """Returns the beginning of a staged batch's publication. `output` has the topic's present ends."""
    written = batch.require_written
    atomic = written.bytes <= atomic_bytes
    return TopicPublication(
        lane=publishing_lane(view),
        ledger=ledger_topic_id,
        tasks=1 if atomic else len(written.output.ends),
        atomic=atomic,
        begun=output,
        begun_at=now,
    )


@dataclass(frozen=True)
class CopyBeginning:
    """The beginning of a copy: the output topic's present ends, the ledger's topic id, and the bytes up to which a
    batch is copied in one transaction.
    """

    output: TopicEnds
    ledger_topic_id: str
    atomic_bytes: float

    def publication(self, view: View, batch: Batch, now: datetime) -> TopicPublication:
        """Returns the publication in the lowest free lane."""
        return begin_publication(view, batch, self.output, self.ledger_topic_id, self.atomic_bytes, now)


def opening_marks(view: View, publication: TopicPublication) -> tuple[Receipt, ...]:
    """Returns the opening marks of a publication. There is one for each task-partition, and they are written before
    anything is copied.

    The opening marks have the newest lease that is older than this publication's. This lease still fences late
    transactions of earlier publications.
    """
    ledger, own = publication.ledger, publication.lease
    begun = (b.publication for b in view.all() if isinstance(b.publication, TopicPublication))
    known = [one.require_lease for one in begun if one.ledger == ledger]
    lease = max((other for other in known if own is None or other < own), default=0)
    return tuple(Receipt(task=t, ledger=ledger, lease=lease, topics={}) for t in range(publication.tasks))


def check_copied(batch: Batch, receipts: Sequence[Receipt]) -> None:
    """Checks that the receipts cover the publication, each under its lease, and sum up to what was written.

    Raises:
        TransitionRefused: the receipts do not.
    """
    publication = batch.publication_as(TopicPublication)
    own = (publication.ledger, publication.require_lease)
    tasks = sorted(r.task for r in receipts if (r.ledger, r.lease) == own)
    if tasks != list(range(publication.tasks)) or len(receipts) != publication.tasks:
        raise TransitionRefused(
            f"batch {batch.id}: the receipts of its copy do not cover the {publication.tasks} task-partitions of its "
            "publication. Run the advance step again."
        )
    if not is_whole(batch, receipts):
        raise TransitionRefused(
            f"batch {batch.id}: its copy does not hold the records that were written: staged records were lost, or the "
            f"publication was given up. {write_again(batch)}."
        )


def record_copied(
    view: View,
    interval: Interval,
    revision: int,
    lease: int,
    receipts: Sequence[Receipt],
    ended: TopicEnds,
    seconds: float,
    now: datetime,
) -> tuple[Batch, ...]:
    """Returns the record that publishes the batch, after the publication with this lease has copied the whole batch.

    Raises:
        Superseded: the publication was given up, or a newer revision was planned.
        TransitionRefused: the receipts do not sum up to what was written.
    """
    batch = own_revision(view, interval, revision)
    if batch.state is State.PUBLISHED:
        return ()  # another attempt was faster; its receipts come from the same marks as ours
    check_under_way(batch, lease)
    check_copied(batch, receipts)
    done = batch.publication_as(TopicPublication).model_copy(
        update={
            "ended": ended,
            "seconds": seconds,
            "refused": "",
        }
    )
    return published(view, batch.model_copy(update={"publication": done}), now, f"copied {done.method}")


@dataclass(frozen=True)
class CopyEnding:
    """The end of a copy: its receipts, and the output topic's ends after it."""

    batch: Batch
    receipts: tuple[Receipt, ...]
    output: TopicEnds

    def records(self, view: View, seconds: float, now: datetime) -> tuple[Batch, ...]:
        """Returns the records that publish the batch. There are none if another attempt has recorded the end already."""
        batch, lease = self.batch, self.batch.publication_as(TopicPublication).require_lease
        return record_copied(view, batch.interval, batch.revision, lease, self.receipts, self.output, seconds, now)


def _of_copy(batch: Batch, output: TopicState, found: ObservedState) -> Obstacle | None:
    """Returns the obstacle that keeps a copy from being finished, or None. A complete copy no longer needs its staged
    records.
    """
    publication, topic = batch.publication_as(TopicPublication), batch.plan.output_as(TopicOutput).topic
    if (gone := output_obstacle(batch, output.topic_id)) is not None:
        return gone
    if publication.ledger != found.ledger_topic_id:
        return Obstacle(
            "its ledger was restored from a copy during its publication, so its lease cannot be compared with its marks"
        )
    copied = copied_receipts(publication, output.marks)
    if copied is not None and is_whole(batch, copied):
        return None
    if (gone := staging_obstacle(batch, found)) is not None:
        return gone
    refused = f"Kafka refused its copy: {publication.refused}" if publication.refused else ""
    if copied is not None:
        # A command that gives the publication up writes empty marks, and may ask again before that is recorded.
        nothing = not sum(r.tally(topic).rows for r in copied)
        return Obstacle(refused if refused and nothing else "its copy does not hold the records that were written")
    if None in output.marks and output.unverifiable_reason:
        return Obstacle(
            f"marks of its publication are gone, and {output.unverifiable_reason}, so nothing shows what was copied"
        )
    return refusal_obstacle(publication)


def output_obstacle(batch: Batch, topic_id: str) -> Obstacle | None:
    """Returns the obstacle that keeps a batch from the output topic that it was planned with, or None. `topic_id` is
    the topic's present id.
    """
    output = batch.plan.output_as(TopicOutput)
    since = "during its publication" if batch.state is State.PUBLISHING else "since it was planned"
    if output.topic_id == topic_id:
        return None
    return Obstacle(f"its output topic {output.topic} {remade(topic_id)} {since}", TopicRecreated)


def copied_receipts(publication: TopicPublication, marks: Sequence[Receipt | None]) -> tuple[Receipt, ...] | None:
    """Returns the receipts of all task-partitions of the copy if the marks show that each has ended, otherwise None."""
    own = (publication.ledger, publication.require_lease)
    done = tuple(m for m in marks if m is not None and (m.ledger, m.lease) == own)
    return done if len(done) == publication.tasks else None


def is_whole(batch: Batch, receipts: Sequence[Receipt]) -> bool:
    """Returns whether the receipts of all task-partitions of the copy sum up to the records that were written."""
    topic, wanted = batch.plan.output_as(TopicOutput).topic, batch.require_written.tally
    copied = Tally.total(r.tally(topic) for r in receipts)
    return (copied.rows, copied.fingerprint) == (wanted.rows, wanted.fingerprint)


def validated_ends(view: View) -> dict[PartitionId, int]:
    """Returns the end of the validated output by partition. This is the end of the unbroken run of batches from the
    anchor on.

    Only offsets in the output topic of the newest plan count. Offsets in a topic that was deleted, or that the pipeline
    no longer writes to, do not count.
    """
    ends: dict[PartitionId, int] = {}
    newest = max(view.all(), key=view.order, default=None)
    for batch in view.run:
        if batch.state not in PASSED and not batch.plan.is_empty:
            break
        here = newest is not None and _same_topic(batch.plan.output, newest.plan.output)
        output = published_ends(batch)
        # An empty batch may still be withdrawn.
        if batch.state is State.PUBLISHED and output is not None and not batch.plan.is_empty and here:
            for partition, end in enumerate(output.ends):
                place = output.topic, partition
                ends[place] = max(end, ends.get(place, 0))
    return ends


def _same_topic(one: PlannedOutput, other: PlannedOutput) -> bool:
    return isinstance(one, TopicOutput) and isinstance(other, TopicOutput) and one.topic_id == other.topic_id
