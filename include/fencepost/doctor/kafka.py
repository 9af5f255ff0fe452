"""The cluster: reachable, and with limits that its transactions and marks can live in."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from fencepost.counts import count_of
from fencepost.errors import AccessDenied
from fencepost.finding import Finding, error, ok, warning
from fencepost.model import State
from fencepost.preflight.look import Look, told
from fencepost.protocol.advice import after_refusal
from fencepost.protocol.snapshot import Row, Snapshot, snapshot_of

MARGIN = 0.9  # of the time for which marks are kept: the steps trust them no longer
SHARE = 0.5  # of that time: what has waited for longer is worth a word


def check_kafka(look: Look) -> Finding:
    """A broker answers, and takes the credentials."""
    try:
        count = look.cluster.brokers()
    except AccessDenied as denied:  # any other check would only be skipped
        return error(str(denied), "", kind=AccessDenied)
    return ok(f"{look.bootstrap} answers, {count_of(count, 'broker')}")


def check_expiry_of_marks(look: Look) -> Iterator[Finding]:
    """Marks live longer than a step with its retries, and group offsets longer than the pause between two runs."""
    kept, patience, pause = look.marks_kept_for, look.pipeline.schedule.patience, look.longest_pause
    limits = "offsets.retention.minutes and transactional.id.expiration.ms"
    raised = f"Raise {limits} on the brokers"
    if patience > kept * MARGIN:
        yield warning(
            f"A step may take {told(patience)} with its retries, and Kafka forgets marks after {told(kept)} (the shorter of "
            f"{limits}): a late retry would write a new revision instead of continuing.",
            f"{raised}, or lower schedule.timeout_minutes or schedule.retries.",
        )
    if pause > kept:
        yield warning(
            f"The schedule pauses for up to {told(pause)}, and Kafka forgets group offsets after {told(kept)}: lag tools see "
            "none between runs, and only records in the output reveal a lost ledger then.",
            f"{raised} above the pause.",
        )
    if patience <= kept * MARGIN and pause <= kept:
        yield ok(
            f"marks are kept for {told(kept)}, a step may take {told(patience)}, runs pause for up to {told(pause)}"
        )


def check_unfinished_batches(look: Look) -> Iterator[Finding]:
    """The batches that are planned or being published still have their marks."""
    yield from unfinished(snapshot_of(look.view), look.marks_kept_for, look.now)


def unfinished(snapshot: Snapshot, kept: timedelta, now: datetime) -> Iterator[Finding]:
    """What the expiry of marks means for the batches under way. Pure."""
    under_way = [row for row in snapshot.unsettled if row.newest.state in {State.PLANNED, State.PUBLISHING}]
    found = [one for row in under_way if (one := _expiry_of(row, kept, now)) is not None]
    count = len(under_way)
    yield from found or [
        ok(f"{count_of(count, 'batch is', 'batches are')} under way" if count else "no batch is under way")
    ]


def _expiry_of(row: Row, kept: timedelta, now: datetime) -> Finding | None:
    """What there is to do about one that is under way, once half of the time of its marks is over."""
    batch, run = row.newest, row.newest.command("run").strip("`")
    publication = batch.publication if batch.state is State.PUBLISHING else None
    since = publication.begun_at if publication else batch.plan.planned_at
    left, ago = since + kept * MARGIN - now, told(now - since)
    if publication and publication.refused:
        return error(
            f"{publication.taker[:1].upper()}{publication.taker[1:]} refused the copy of batch {batch.id}: {publication.refused}",
            after_refusal(batch),
            run,
        )
    then = publication.without_marks(batch) if publication else ""
    if now - since <= kept * SHARE or (publication and not then):
        return None  # what has no marks does not age
    if publication:
        gone = "By now its marks may be gone" if left <= timedelta(0) else f"In {told(left)} its marks may be gone"
        return warning(
            f"The publication of batch {batch.id} began {ago} ago and has not ended. {gone}: then its next run {then}.",
            row.next_step,
            run,
        )
    if left <= timedelta(0):
        return warning(
            f"Batch {batch.id} was planned {ago} ago and is not written. Its marks may have expired, so its next write makes a "
            "new revision; rows of the old one that are committed keep its header.",
            row.next_step,
            run,
        )
    return warning(
        f"Batch {batch.id} was planned {ago} ago and is not written. In {told(left)} its marks may be gone, and a retry has to "
        "write a new revision.",
        row.next_step,
        run,
    )
