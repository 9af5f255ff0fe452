"""Checks that the cluster can be reached, and that its limits suit the pipeline's transactions and marks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from fencepost.counts import count_of
from fencepost.doctor.inspection import Inspection, duration
from fencepost.errors import AccessDenied
from fencepost.findings import Finding, error, ok, warning
from fencepost.model import State
from fencepost.protocol.advice import after_refusal
from fencepost.protocol.snapshot import Row, Snapshot, snapshot_of

MARGIN = 0.9  # share of the time for which marks are kept; after it the steps no longer rely on marks
SHARE = 0.5  # share of that time after which a batch under way is reported


def check_kafka(inspection: Inspection) -> Finding:
    """Checks that a broker answers and accepts the credentials."""
    try:
        count = inspection.cluster.brokers()
    except AccessDenied as denied:  # any other check would only be skipped
        return error(str(denied), "", kind=AccessDenied)
    return ok(f"{inspection.bootstrap} answers, {count_of(count, 'broker')}")


def check_expiry_of_marks(inspection: Inspection) -> Iterator[Finding]:
    """Checks that Kafka keeps marks longer than a step takes with its retries, and group offsets longer than the pause
    between two runs.
    """
    kept, patience, pause = inspection.marks_kept_for, inspection.pipeline.schedule.patience, inspection.longest_pause
    limits = "offsets.retention.minutes and transactional.id.expiration.ms"
    raised = f"Raise {limits} on the brokers"
    if patience > kept * MARGIN:
        yield warning(
            f"A step may take {duration(patience)} with its retries, and Kafka forgets marks after {duration(kept)} "
            f"(the shorter of {limits}). A later retry would write a new revision instead of continuing.",
            f"{raised}, or lower schedule.timeout_minutes or schedule.retries.",
        )
    if pause > kept:
        yield warning(
            f"The schedule pauses for up to {duration(pause)}, and Kafka forgets group offsets after {duration(kept)}. "
            "Between runs, lag tools then see no offsets, and only records in the output show that a ledger was lost.",
            f"{raised} above the pause.",
        )
    if patience <= kept * MARGIN and pause <= kept:
        yield ok(
            f"marks are kept for {duration(kept)}, a step may take {duration(patience)}, runs pause for up to {duration(pause)}"
        )


def check_unfinished_batches(inspection: Inspection) -> Iterator[Finding]:
    """Checks that planned batches, and batches under publication, still have their marks."""
    yield from unfinished(snapshot_of(inspection.view), inspection.marks_kept_for, inspection.now)


def unfinished(snapshot: Snapshot, kept: timedelta, now: datetime) -> Iterator[Finding]:
    """Yields the findings about batches under way whose publication was refused, or whose marks expire. Yields an ok if
    there are none. Pure.
    """
    under_way = [row for row in snapshot.unfinished if row.newest.state in {State.PLANNED, State.PUBLISHING}]
    found = [one for row in under_way if (one := _expiry_of(row, kept, now)) is not None]
    count = len(under_way)
    yield from found or [
        ok(f"{count_of(count, 'batch is', 'batches are')} under way" if count else "no batch is under way")
    ]


def _expiry_of(row: Row, kept: timedelta, now: datetime) -> Finding | None:
    """Returns what to do about a batch under way, or None if nothing is due.

    A refused publication is reported at any age. Any other batch is reported after half of the time for which its marks
    are kept. A publication that does not depend on marks is then not reported.
    """
    batch, run = row.newest, row.newest.command("run").strip("`")
    publication = batch.publication if batch.state is State.PUBLISHING else None
    since = publication.begun_at if publication else batch.plan.planned_at
    left, ago = since + kept * MARGIN - now, duration(now - since)
    if publication and publication.refused:
        return error(
            f"{publication.target[:1].upper()}{publication.target[1:]} refused the copy of batch {batch.id}: "
            f"{publication.refused}",
            after_refusal(batch),
            run,
        )
    then = publication.without_marks(batch) if publication else ""
    if now - since <= kept * SHARE or (publication and not then):
        return None  # a publication without marks does not expire
    if publication:
        gone = "Its marks may be gone now" if left <= timedelta(0) else f"Its marks may be gone in {duration(left)}"
        return warning(
            f"The publication of batch {batch.id} began {ago} ago and has not ended. {gone}. Without its marks, the next run "
            f"{then}.",
            row.next_step,
            run,
        )
    if left <= timedelta(0):
        return warning(
            f"Batch {batch.id} was planned {ago} ago and is not written. Its marks may have expired, so its next write makes a "
            "new revision. Committed rows of the old revision keep its header.",
            row.next_step,
            run,
        )
    return warning(
        f"Batch {batch.id} was planned {ago} ago and is not written. Its marks may be gone in {duration(left)}. A "
        "later retry writes a new revision.",
        row.next_step,
        run,
    )
