"""How a staged batch gets to an output topic; pure.

    begin    written or rejected ──▶ publishing    with a lane, and a mark for each task-partition: nothing is copied yet
    copy     the writers' own protocol, under ids and marks of a publishing lane, with the beginning's lease
    record   publishing ──▶ published              the copy holds what was written; offsets move with it

A mark that is missing later was lost: then the output says what was copied, and the marks are written anew, before anything more
is copied.

A publication that cannot go on is given up: every task-partition gets a mark of its lease, an empty one where nothing is copied,
so that no attempt that comes late copies anything. Then a new revision takes the batch's place, or an operator skips it. A lane
is free again when all of its task-partitions have such marks, so its ids never need to be fenced.
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
from fencepost.protocol.obstacle import Found, Obstacle, refusal_obstacle, remade, staging_obstacle
from fencepost.protocol.publication import check_under_way
from fencepost.protocol.view import PASSED, View


@dataclass(frozen=True)
class TopicState:
    """The output topic as a batch finds it, by the name in its plan; without an id it does not exist.

    While the batch is being published also the mark of each task-partition of its copy, None where it is gone, and why the topic
    cannot tell what such marks stood for (`untold`).
    """

    topic_id: str = ""
    marks: tuple[Receipt | None, ...] = ()
    untold: str = ""

    def obstacle(self, batch: Batch, found: Found) -> Obstacle | None:
        """What keeps the batch from this topic, or its copy from being finished."""
        return (
            _of_copy(batch, self, found) if batch.state is State.PUBLISHING else output_obstacle(batch, self.topic_id)
        )


def publishing_lane(view: View) -> int:
    """The lowest publishing lane that no batch holds. There are as many as batches that are being published at once."""
    held = {
        p.lane for b in view.all() if isinstance(p := b.publication, TopicPublication) and b.state is State.PUBLISHING
    }
    return next(lane for lane in range(len(held) + 1) if lane not in held)


def begin_publication(
    view: View, batch: Batch, output: TopicEnds, ledger_topic_id: str, atomic_bytes: float, now: datetime
) -> TopicPublication:
    """How a staged batch will be copied to the output, which is as it is now."""
    written = batch.known_written
    atomic = written.bytes <= atomic_bytes
    return TopicPublication(
        lane=publishing_lane(view),
        ledger=ledger_topic_id,
        tasks=1 if atomic else len(written.output.ends),
        atomic=atomic,
        begun=output,
        begun_at=now,
    )


def opening_marks(view: View, publication: TopicPublication) -> tuple[Receipt, ...]:
    """The marks that a publication begins with, one for each task-partition: nothing is copied yet.

    So a mark that is missing later was lost. Their lease lies before the publication's own, and not before that of any earlier
    one: to what is late of those they stand in the way as their own marks did.
    """
    ledger, own = publication.ledger, publication.lease
    begun = (b.publication for b in view.all() if isinstance(b.publication, TopicPublication))
    known = [one.known_lease for one in begun if one.ledger == ledger]
    lease = max((other for other in known if own is None or other < own), default=0)
    return tuple(Receipt(task=t, ledger=ledger, lease=lease, topics={}) for t in range(publication.tasks))


def check_copied(batch: Batch, receipts: Sequence[Receipt]) -> None:
    """The receipts cover the publication, each under its lease, and hold what was written.

    Raises:
        TransitionRefused: they do not.
    """
    publication = batch.publication_as(TopicPublication)
    own = (publication.ledger, publication.known_lease)
    tasks = sorted(r.task for r in receipts if (r.ledger, r.lease) == own)
    if tasks != list(range(publication.tasks)) or len(receipts) != publication.tasks:
        raise TransitionRefused(
            f"batch {batch.id}: the receipts of its copy do not cover the {publication.tasks} task-partitions of its "
            "publication. Run the advance step again."
        )
    if not is_whole(batch, receipts):
        raise TransitionRefused(
            f"batch {batch.id}: its copy does not hold the records that were written: staged records were lost, or it was given "
            f"up. {write_again(batch)}."
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
    """Record that the publication with that lease has copied all of the batch: it is published.

    Raises:
        Superseded: the publication was given up, and a newer revision has taken the batch's place.
        TransitionRefused: the receipts do not hold what was written.
    """
    batch = own_revision(view, interval, revision)
    if batch.state is State.PUBLISHED:
        return ()  # another attempt was faster; its receipts are the same marks as ours
    check_under_way(batch, lease)
    check_copied(batch, receipts)
    done = batch.publication_as(TopicPublication).model_copy(
        update={
            "ended": ended,
            "seconds": seconds,
            "refused": "",
        }
    )
    return published(view, batch.model_copy(update={"publication": done}), now, f"copied {done.way}")


def _of_copy(batch: Batch, output: TopicState, found: Found) -> Obstacle | None:
    """What keeps a copy from being finished. One that is complete needs its staged records no more."""
    publication, topic = batch.publication_as(TopicPublication), batch.plan.output_as(TopicOutput).topic
    if (gone := output_obstacle(batch, output.topic_id)) is not None:
        return gone
    if publication.ledger != found.ledger_topic_id:
        return Obstacle(
            "its ledger was made anew from a copy while it was published, so its lease says nothing about its marks"
        )
    copied = copied_receipts(publication, output.marks)
    if copied is not None and is_whole(batch, copied):
        return None
    if (gone := staging_obstacle(batch, found)) is not None:
        return gone
    refused = f"Kafka refused its copy: {publication.refused}" if publication.refused else ""
    if copied is not None:
        # Who gives a publication up closes what was not copied with empty marks, and may ask again before that is recorded.
        nothing = not sum(r.tally(topic).rows for r in copied)
        return Obstacle(refused if refused and nothing else "its copy does not hold the records that were written")
    if None in output.marks and output.untold:
        return Obstacle(f"marks of its publication are gone, and {output.untold}: nothing says what was copied")
    return refusal_obstacle(publication)


def output_obstacle(batch: Batch, topic_id: str) -> Obstacle | None:
    """What keeps a batch from the output topic that it was planned on, if that has this id now."""
    output = batch.plan.output_as(TopicOutput)
    since = "while it was published" if batch.state is State.PUBLISHING else "since it was planned"
    if output.topic_id == topic_id:
        return None
    return Obstacle(f"its output topic {output.topic} {remade(topic_id)} {since}", TopicRecreated)


def copied_receipts(publication: TopicPublication, marks: Sequence[Receipt | None]) -> tuple[Receipt, ...] | None:
    """The receipts of all task-partitions of the copy where its marks say that each has ended; else None."""
    own = (publication.ledger, publication.known_lease)
    done = tuple(m for m in marks if m is not None and (m.ledger, m.lease) == own)
    return done if len(done) == publication.tasks else None


def is_whole(batch: Batch, receipts: Sequence[Receipt]) -> bool:
    """Whether these receipts of all task-partitions of the copy hold the records that were written."""
    topic, wanted = batch.plan.output_as(TopicOutput).topic, batch.known_written.tally
    copied = Tally.total(r.tally(topic) for r in receipts)
    return (copied.rows, copied.fingerprint) == (wanted.rows, wanted.fingerprint)


def validated_ends(view: View) -> dict[PartitionId, int]:
    """Per output partition, the end of the output of the unbroken run from the anchor on.

    Only offsets in the present output topic count, which is the newest plan's. Offsets in a topic that was deleted, or that
    the pipeline no longer writes to, mean nothing there.
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
