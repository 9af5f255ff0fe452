"""Finds why a revision awaits a person, and the words for the reason. Pure.

`Row.awaiting` answers for one interval, and `Snapshot.awaiting` for all. A person acts on the newest revision of an
interval, even while an older published or skipped revision still counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fencepost.model import Batch, Outcome, State
from fencepost.protocol.advice import what_next
from fencepost.protocol.view import PASSED, Revisions


class AwaitingReason(StrEnum):
    """Why a revision cannot go on by itself."""

    REJECTED = "rejected"
    UNDETERMINED = "could not be judged"
    REFUSED = "refused by its output"
    STUCK = "stuck"


@dataclass(frozen=True)
class Awaiting:
    """A revision that awaits a person. `in_force` is the older revision that counts until this revision is published,
    or None.
    """

    batch: Batch
    reason: AwaitingReason
    in_force: Batch | None = None

    @property
    def description(self) -> str:
        """Returns a text such as `revision 2 was rejected; revision 1 stays published until revision 2 is published`."""
        return f"{_happened(self.batch, self.reason)}{what_stays(self.batch, self.in_force, '; ')}"

    @property
    def advice(self) -> str:
        """Returns what to do, in a few sentences."""
        return what_next(self.batch, self.in_force)


def awaiting_reason(
    batch: Batch, now: datetime | None = None, patience: timedelta | None = None, *, stopped: bool = False
) -> AwaitingReason | None:
    """Returns why an interval's newest revision needs a person, or None while it continues by itself.

    A revision under way is stuck if its run has `stopped`, or if it has not changed for longer than `patience`.
    """
    if batch.state in PASSED or batch.state is State.WITHDRAWN:
        return None
    if batch.state is State.REJECTED:
        return AwaitingReason.REJECTED
    if batch.verdict is not None and batch.verdict.outcome is Outcome.UNDETERMINED:
        return AwaitingReason.UNDETERMINED
    if batch.state is State.PUBLISHING and batch.publication is not None and batch.publication.refused:
        return AwaitingReason.REFUSED
    late = now is not None and patience is not None and now - batch.changed_at > patience
    return AwaitingReason.STUCK if stopped or late else None


def in_force(revisions: Revisions) -> Batch | None:
    """Returns the older published or skipped revision that counts. Returns None if the newest revision counts, or is a
    finished addition.
    """
    counts, last = revisions.in_force, revisions.last
    return None if last.state in PASSED or counts.revision == last.revision else counts


def what_stays(batch: Batch, older: Batch | None, lead: str = "") -> str:
    """Returns which older revision counts until `batch` is published. The text is empty if there is none."""
    if older is None:
        return ""
    if batch.adds_to is not None:
        return f"{lead}revision {older.revision}, which it adds to, stays {older.state}"
    return f"{lead}revision {older.revision} stays {older.state} until revision {batch.revision} is published"


def sentence(text: str) -> str:
    """Returns the text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _happened(batch: Batch, need: AwaitingReason) -> str:
    publication = batch.publication
    if need is AwaitingReason.REJECTED and publication is not None and publication.refused:
        return f"{publication.target} refused the data of revision {batch.revision}"
    if need is AwaitingReason.REJECTED:
        return f"revision {batch.revision} was rejected"
    if need is AwaitingReason.UNDETERMINED:
        return f"revision {batch.revision} could not be judged"
    if need is AwaitingReason.REFUSED and publication is not None:
        return f"{publication.target} refused the copy of revision {batch.revision} to its output"
    done = "judged" if batch.verdict and batch.state is not State.PUBLISHING else batch.state
    return f"revision {batch.revision} is stuck: {done}, and unchanged since {batch.changed_at:%Y-%m-%d %H:%M} UTC"
