"""How a staged batch gets to its output, whatever kind that is, once it is decided that it does; pure.

begin    written or rejected ──▶ publishing    all checks of `decide_publish`; from here on only forward
publish  what the kind of output does (`outputs/topic/publication.py`, `outputs/table/revisions.py`)
record   publishing ──▶ published              all of the batch is there; offsets move with it
"""

from __future__ import annotations

from datetime import datetime

from fencepost.errors import Superseded
from fencepost.model import Batch, Interval, State
from fencepost.protocol.decisions import in_state, own_revision
from fencepost.protocol.view import View


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


def check_under_way(batch: Batch, lease: int) -> None:
    """Check that the batch's publication with that lease may be recorded.

    Raises:
        Superseded: it was given up, or has ended.
    """
    if batch.publication_under(lease) is None:
        raise Superseded(f"batch {batch.id} is {batch.state}: this attempt's publication was given up meanwhile.")
