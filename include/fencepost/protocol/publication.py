"""How a staged batch gets to its output, once it is decided that it does; pure. For a table, see `store.py` too.

    begin    written or rejected ──▶ publishing    all checks of `decide_publish`; from here on only forward
    copy     the writers' own protocol, under ids and marks of a publishing lane, with the beginning's lease
    record   publishing ──▶ published              the copy holds what was written; offsets move with it

A publication begins with a mark for each task-partition that says that nothing is copied. A mark that is missing later was lost:
then the output says what was copied, and the marks are written anew, before anything more is copied.

A publication that cannot go on (`obstacle.py`) is given up: every task-partition gets a mark of its lease, an empty one where
nothing is copied, so that no attempt that comes late copies anything. Then a new revision takes the batch's place, or an operator
skips it. A lane is free again when all of its task-partitions have such marks, so its ids never need to be fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fencepost.errors import Superseded, TransitionRefused
from fencepost.model import (
    Batch,
    Interval,
    Receipt,
    State,
    TableOutput,
    TablePublication,
    TopicOutput,
    TopicPublication,
)
from fencepost.protocol.advice import write_again
from fencepost.protocol.decisions import in_state, own_revision, published
from fencepost.protocol.obstacle import is_whole
from fencepost.protocol.view import View


def publishing_lane(view: View) -> int:
    """The lowest publishing lane that no batch holds. There are as many as batches that are being published at once."""
    held = {
        p.lane for b in view.all() if isinstance(p := b.publication, TopicPublication) and b.state is State.PUBLISHING
    }
    return next(lane for lane in range(len(held) + 1) if lane not in held)


def begin_publication(
    view: View, batch: Batch, output: TopicOutput, ledger_topic_id: str, atomic_bytes: float, now: datetime
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


def begin_commit(output: TableOutput, ledger_topic_id: str, now: datetime) -> TablePublication:
    """How a batch will be committed to a table."""
    return TablePublication(table=output.table, ledger=ledger_topic_id, begun_at=now)


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


def record_refused(
    view: View, interval: Interval, revision: int, lease: int, why: str, now: datetime
) -> tuple[Batch, ...]:
    """Record that the output did not take the publication with that lease, so that it may be given up."""
    batch = own_revision(view, interval, revision)
    publication = batch.publication_under(lease)
    if publication is None:
        return ()  # it was given up, or another attempt was faster and could
    if publication.refused == why:
        return ()
    after = in_state(batch, State.PUBLISHING, now, f"{publication.taker} refused the copy: {why}")
    return (after.model_copy(update={"publication": publication.model_copy(update={"refused": why})}),)


def check_copied(batch: Batch, receipts: Sequence[Receipt]) -> None:
    """The receipts cover the publication, each under its lease, and hold what was written.

    Raises:
        TransitionRefused: they do not.
    """
    publication = batch.copy_to_topic
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
    ended: TopicOutput,
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
    _check_under_way(batch, lease)
    check_copied(batch, receipts)
    done = batch.copy_to_topic.model_copy(
        update={
            "ended": ended,
            "seconds": seconds,
            "refused": "",
        }
    )
    return published(view, batch.model_copy(update={"publication": done}), now, f"copied {done.way}")


def record_stored(
    view: View, interval: Interval, revision: int, lease: int, seconds: float, now: datetime
) -> tuple[Batch, ...]:
    """Record what the table has committed of the publication with that lease: the batch is published.

    Raises:
        Superseded: the publication was given up, and a newer revision has taken the batch's place.
    """
    batch = own_revision(view, interval, revision)
    if batch.state is State.PUBLISHED:
        return ()
    _check_under_way(batch, lease)
    done = batch.commit_to_table.model_copy(update={"ended_at": now, "seconds": seconds, "refused": ""})
    return published(view, batch.model_copy(update={"publication": done}), now, f"published {done.way}")


def record_rejected(
    view: View, interval: Interval, revision: int, lease: int, why: str, now: datetime
) -> tuple[Batch, ...]:
    """Record that the table refuses the batch's data, so that its publication, which is closed, has ended: it is rejected."""
    batch = own_revision(view, interval, revision)
    publication = batch.publication_under(lease)
    if publication is None:
        return ()  # another attempt was faster
    after = in_state(batch, State.REJECTED, now, f"{publication.taker} refused its data: {why}")
    return (after.model_copy(update={"publication": publication.model_copy(update={"refused": why})}),)


def _check_under_way(batch: Batch, lease: int) -> None:
    if batch.publication_under(lease) is None:
        raise Superseded(f"batch {batch.id} is {batch.state}: this attempt's publication was given up meanwhile.")
