"""How a staged batch gets to its output, once it is decided that it does; pure.

    begin    written or rejected ──▶ publishing    all checks of `decide_publish`; from here on only forward
    copy     the writers' own protocol, under ids and marks of a publishing lane, with the beginning's lease
    record   publishing ──▶ published              the copy holds what was written; offsets move with it

A publication that cannot go on (its staged records are gone, a topic was made anew, its marks may have expired) is given up:
every task-partition gets a mark, an empty one where it has none, so that no attempt that comes late copies anything.
Then a new revision takes the batch's place. A lane is free again when all of its task-partitions have marks, so its ids never
need to be fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.errors import Superseded, TransitionRefused
from fencepost.model import Batch, Interval, Publication, Receipt, State, Tally, TopicOutput
from fencepost.protocol.decisions import own_revision, published
from fencepost.protocol.view import View


@dataclass(frozen=True)
class GivenUp:
    """A publication that was given up: its lease, and how many of its records readers may have seen."""

    lease: int
    seen: int

    def told(self, batch: Batch) -> str:
        """For the batch's history."""
        rows = batch.written.rows if batch.written else 0
        return f"given up while it was published, when readers may have seen {self.seen} of its {rows} records"


def publishing_lane(view: View) -> int:
    """The lowest publishing lane that no batch holds. There are as many as batches that are being published at once."""
    held = {b.publication.lane for b in view.all() if b.publication is not None and b.state is State.PUBLISHING}
    return next(lane for lane in range(len(held) + 1) if lane not in held)


def begin_publication(
    view: View, batch: Batch, output: TopicOutput, ledger_topic_id: str, atomic_bytes: float, now: datetime
) -> Publication:
    """How a staged batch will be copied to the output, which is as it is now."""
    assert batch.written is not None
    atomic = batch.written.bytes <= atomic_bytes
    return Publication(
        lane=publishing_lane(view),
        ledger=ledger_topic_id,
        tasks=1 if atomic else len(batch.written.output.ends),
        atomic=atomic,
        begun=output,
        begun_at=now,
    )


def marks_may_be_gone(publication: Publication, now: datetime, kept_for: timedelta) -> bool:
    """Whether marks of it may have expired, so that none says nothing. Brokers expire by their own clocks, a little earlier."""
    return now - publication.begun_at > kept_for * 0.9


def is_whole(batch: Batch, receipts: Sequence[Receipt]) -> bool:
    """Whether these receipts of all task-partitions of the copy hold the records that were written."""
    written = batch.written
    assert written is not None
    copied, wanted = Tally.total(r.tally(batch.plan.output.topic) for r in receipts), written.tally
    return (copied.rows, copied.fingerprint) == (wanted.rows, wanted.fingerprint)


def check_copied(batch: Batch, receipts: Sequence[Receipt]) -> None:
    """The receipts cover the publication, each under its lease, and hold what was written.

    Raises:
        TransitionRefused: they do not.
    """
    publication = batch.publication
    assert publication is not None
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
            f"up. {batch.command('run')} (in Airflow: clear write) writes a new revision."
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
    if batch.state is not State.PUBLISHING or batch.publication is None or batch.publication.known_lease != lease:
        raise Superseded(f"batch {batch.id} is {batch.state}: this attempt's publication was given up meanwhile.")
    check_copied(batch, receipts)
    done = batch.publication.model_copy(
        update={"receipts": tuple(sorted(receipts, key=lambda r: r.task)), "ended": ended, "seconds": seconds}
    )
    return published(view, batch.model_copy(update={"publication": done}), now, f"copied {done.way}")
