"""When a batch can no longer be written as planned and needs a new revision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.model import Batch, OffsetRange, Receipt, State, describe_ranges
from fencepost.protocol.publication import is_whole, marks_may_be_gone


@dataclass(frozen=True)
class Circumstances:
    """The present state that a batch is compared with before it is written: digests, software, clock and topics.

    For a staged batch: `staging_topic_id` (empty: the topic does not exist), the deleted part of its staged offsets
    (`staged_gone`), and, while it is being published, the receipts of its copy (`copied`) if all of them are there.
    """

    digests: Mapping[str, str]
    software: str
    now: datetime
    marks_kept_for: timedelta
    output_topic_id: str
    ledger_topic_id: str = ""
    quarantine_topic_id: str | None = None  # None: the pipeline quarantines nothing
    expired: tuple[OffsetRange, ...] = ()  # parts of the batch's ranges that the source no longer has
    accept_loss: bool = False  # the pipeline says on_expired: skip
    staging_topic_id: str = ""
    staged_gone: tuple[OffsetRange, ...] = ()
    copied: tuple[Receipt, ...] | None = None


def may_be_revised(batch: Batch) -> bool:
    """Whether the batch may get a new revision; a published, skipped or superseded one stays as it is."""
    return batch.state in {State.PLANNED, State.WRITTEN, State.REJECTED, State.PUBLISHING}


def reason_to_revise(batch: Batch, found: Circumstances) -> str | None:
    """Why the batch needs a new revision, or None if it can be written or left as it is."""
    if not may_be_revised(batch):
        return None
    if batch.state is State.PUBLISHING:
        return _reason_to_give_up(batch, found)
    if batch.plan.digests != found.digests:
        return _what_changed(batch.plan.digests, found.digests)
    if batch.plan.output.topic_id != found.output_topic_id:
        return "its output topic was deleted and created again since it was planned"
    if batch.plan.quarantine and batch.plan.quarantine.topic_id != found.quarantine_topic_id:
        return "its quarantine topic was deleted and created again, or is another, since it was planned"
    still_staged = batch.plan.staging is not None and (batch.written is None or batch.is_staged)
    if still_staged and (gone := _staged_gone(batch, found)):
        return gone
    if batch.state is not State.PLANNED:
        return None
    if batch.plan.ledger_topic_id != found.ledger_topic_id:
        return "its ledger was restored from a copy since it was planned, so its lease says nothing about its marks"
    # Some task-partitions of this batch may have committed under the other software; a batch has to be the work of one.
    if batch.plan.software != found.software:
        return f"it was planned with {batch.plan.software}, and this is {found.software}"
    # A mark may be gone a little earlier than promised: brokers expire by their own clocks.
    if found.now - batch.plan.planned_at > found.marks_kept_for * 0.9:
        return f"it was planned more than {found.marks_kept_for * 0.9} ago, so its marks may have expired"
    if found.expired and found.accept_loss:
        return "records in its ranges expired, and the pipeline says on_expired: skip"
    return None


def _reason_to_give_up(batch: Batch, found: Circumstances) -> str | None:
    """Why the publication of a batch cannot be finished, or None. What is copied in full needs its staged records no more."""
    publication = batch.publication
    assert publication is not None
    if publication.begun.topic_id != found.output_topic_id:
        return "its output topic was deleted and created again while it was published"
    if publication.ledger != found.ledger_topic_id:
        return "its ledger was made anew from a copy while it was published, so its lease says nothing about its marks"
    if found.copied is not None and is_whole(batch, found.copied):
        return None
    if gone := _staged_gone(batch, found):
        return gone
    if marks_may_be_gone(publication, found.now, found.marks_kept_for):
        return f"its publication began more than {found.marks_kept_for * 0.9} ago, so its marks may have expired"
    return "its copy does not hold the records that were written" if found.copied is not None else None


def _staged_gone(batch: Batch, found: Circumstances) -> str | None:
    if batch.plan.staging is not None and batch.plan.staging.topic_id != found.staging_topic_id:
        return "its staging topic was deleted and created again since it was planned"
    if found.staged_gone:
        return (
            f"its staging topic no longer has {describe_ranges(found.staged_gone)}: retention, or somebody, deleted them "
            "before it was published"
        )
    return None


PARTS = {
    "source": "source settings",
    "output": "output settings",
    "spark": "Spark settings",
    "transform": "transform",
    "files": "files beside the transform",
    "quarantine": "quarantine rules of the suite",
    "registry": "schema registry",
}


def _what_changed(planned: Mapping[str, str], now: Mapping[str, str]) -> str:
    parts = [PARTS.get(p, p) for p in (*PARTS, *sorted({*planned, *now} - {*PARTS})) if planned.get(p) != now.get(p)]
    return f"what decides its output changed since it was planned: {', '.join(parts)}"
