"""The states of a publication to an output of any kind. Pure.

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
    """Records that the output refused the publication with that lease. The publication may be given up afterwards."""
    batch = own_revision(view, interval, revision)
    publication = batch.publication_under(lease)
    if publication is None:
        return ()  # it was given up, or another attempt was faster and could
    if publication.refused == why:
        return ()
    after = in_state(batch, State.PUBLISHING, now, f"{publication.target} refused the copy: {why}")
    return (after.model_copy(update={"publication": publication.model_copy(update={"refused": why})}),)


def record_rejected(
    view: View, interval: Interval, revision: int, lease: int, why: str, now: datetime
) -> tuple[Batch, ...]:
    """Records that the table refused the batch's data. The publication is closed, and the batch becomes rejected."""
    batch = own_revision(view, interval, revision)
    publication = batch.publication_under(lease)
    if publication is None:
        return ()  # another attempt was faster
    after = in_state(batch, State.REJECTED, now, f"{publication.target} refused its data: {why}")
    return (after.model_copy(update={"publication": publication.model_copy(update={"refused": why})}),)


def check_under_way(batch: Batch, lease: int) -> None:
    """Checks that the publication with this lease is still the batch's present publication.

    Raises:
        Superseded: the publication was given up or has ended.
    """
    if batch.publication_under(lease) is None:
        raise Superseded(f"batch {batch.id} is {batch.state}: this attempt's publication has been given up.")
