"""The cluster: reachable, and with limits that its transactions and marks can live in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from fencepost.doctor.finding import Finding, error, ok, warning
from fencepost.doctor.look import Look, told
from fencepost.errors import AccessDenied, SettingsError
from fencepost.model import Batch, State
from fencepost.protocol.advice import after_refusal

SHARE = 0.5  # of a transaction's timeout: a write that takes more may take all of it on a bad day
MARGIN = 0.9  # of the time for which marks are kept: the steps trust them no longer


def check_kafka(look: Look) -> Finding:
    """A broker answers, and takes the credentials."""
    try:
        count = look.cluster.brokers()
    except AccessDenied as denied:  # any other check would only be skipped
        return error(str(denied), "", kind=AccessDenied)
    return ok(f"{look.bootstrap} answers, {count} broker{'' if count == 1 else 's'}")


def check_transaction_timeout(look: Look) -> Finding:
    """The broker accepts the producers' transaction timeout."""
    ours, limit = (round(t.total_seconds() * 1000) for t in (look.transaction_timeout, look.transaction_limit))
    if ours <= limit:
        return ok(f"kafka.transaction.timeout.ms is {ours}, within the broker's {limit}")
    return error(
        f"kafka.transaction.timeout.ms is {ours}, above the broker's transaction.max.timeout.ms of {limit}: the broker would "
        "refuse every write.",
        f"Set it to at most {limit} in pipeline.yaml, or raise the broker's limit.",
        kind=SettingsError,
    )


def check_longest_write(look: Look) -> Finding:
    """A transaction as long as the longest one in the ledger would still commit."""
    return longest_write(look.view.all(), look.transaction_timeout, look.transaction_limit)


def longest_write(batches: Sequence[Batch], timeout: timedelta, limit: timedelta) -> Finding:
    """What the longest write and the longest copy in one transaction say of the transaction's timeout. Pure.

    A write is at least as long as each of its transactions.
    """
    writes = [(b.written.seconds, str(b.id)) for b in batches if b.written]
    copies = [(b.publication.seconds, str(b.id)) for b in batches if b.publication and b.publication.atomic]
    for what, times, cure in (
        ("write", writes, "give the source topic more partitions (under output.layout: output, the output topic)"),
        ("copy in one transaction", copies, "lower output.atomic_megabytes"),
    ):
        longest, batch = max(times, default=(0.0, ""))
        if longest > timeout.total_seconds() * SHARE:
            return warning(
                f"The longest {what} in the ledger took {told(timedelta(seconds=longest))} (batch {batch}), and the broker ends "
                f"a transaction after {told(timeout)} (transaction.timeout.ms).",
                f"Raise kafka.transaction.timeout.ms to {round(longest / SHARE * 1000)} or more (the broker allows "
                f"{round(limit.total_seconds() * 1000)}: transaction.max.timeout.ms), or {cure}.",
            )
    longest, _ = max([*writes, *copies], default=(0.0, ""))
    return ok(f"the longest took {longest:.0f} s, and a transaction may take {told(timeout)}")


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
    yield from unfinished(look.view.all(), look.marks_kept_for, look.now)


def unfinished(batches: Sequence[Batch], kept: timedelta, now: datetime) -> Iterator[Finding]:
    """What the expiry of marks means for the batches under way. Pure."""
    under_way = [batch for batch in batches if batch.state in {State.PLANNED, State.PUBLISHING}]
    found = [one for batch in under_way if (one := _expiry_of(batch, kept, now)) is not None]
    count = len(under_way)
    yield from found or [
        ok(f"{count} batches are under way" if count > 1 else f"{'one' if count else 'no'} batch is under way")
    ]


def _expiry_of(batch: Batch, kept: timedelta, now: datetime) -> Finding | None:
    """What there is to do about one that is under way, once half of the time of its marks is over."""
    run = batch.command("run").strip("`")
    publication = batch.publication if batch.state is State.PUBLISHING else None
    since = publication.begun_at if publication else batch.plan.planned_at
    left, ago = since + kept * MARGIN - now, told(now - since)
    if publication and publication.refused:
        return error(f"Kafka refused the copy of batch {batch.id}: {publication.refused}", after_refusal(batch), run)
    if now - since <= kept * SHARE:
        return None
    if publication:
        gone = "By now its marks may be gone" if left <= timedelta(0) else f"In {told(left)} its marks may be gone"
        then = "asks the output what is copied"
        if not batch.plan.output.batch_header:
            then = "has to give it up, when readers may have seen a part of it, or all: its records have no header"
        return warning(
            f"The publication of batch {batch.id} began {ago} ago and has not ended. {gone}: then its next run {then}.",
            "Finish it.",
            run,
        )
    if left <= timedelta(0):
        return warning(
            f"Batch {batch.id} was planned {ago} ago and is not written. Its marks may have expired, so its next write makes a "
            "new revision; rows of the old one that are committed keep its header.",
            "Run the interval, or skip it.",
            run,
        )
    return warning(
        f"Batch {batch.id} was planned {ago} ago and is not written. In {told(left)} its marks may be gone, and a retry has to "
        "write a new revision.",
        "Finish it before.",
        run,
    )
