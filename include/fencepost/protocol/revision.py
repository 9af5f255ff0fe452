"""Finds the reasons why a batch needs a new revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.model import Batch, SideTableState, State
from fencepost.protocol.obstacle import ObservedState, obstacle


@dataclass(frozen=True, kw_only=True)
class CurrentInputs(ObservedState):
    """The present state that a batch's plan is compared with before the batch is written. The inputs also have digests,
    software and clock. `tables` has the states of the side tables that this attempt has read, and is empty before.
    """

    digests: Mapping[str, str]
    software: str
    now: datetime
    marks_kept_for: timedelta
    tables: tuple[SideTableState, ...] = ()
    quarantine_topic: str = ""  # the pipeline's quarantine topic now; empty if it quarantines nothing


def may_be_revised(batch: Batch) -> bool:
    """Returns whether the batch may get a new revision without a request. A finished batch does not change."""
    return batch.state in {State.PLANNED, State.WRITTEN, State.REJECTED, State.PUBLISHING}


def revision_reason(batch: Batch, found: CurrentInputs) -> str | None:
    """Returns why the batch needs a new revision. Returns None if the batch can be written or needs no change.

    Raises:
        TopicRecreated, SourceDataExpired, NeedsOperator, KafkaUnavailable: neither the batch nor a new revision can go on.
    """
    if not may_be_revised(batch):
        return None
    changed = _what_changed(batch.plan.digests, found.digests) if batch.plan.digests != found.digests else ""
    stopped = obstacle(batch, found)
    if stopped is not None and stopped.cure:
        raise stopped.error(batch)
    if batch.state is State.PUBLISHING:
        if stopped is None or not (stopped.lasting or changed):
            return None
        return f"{stopped.why.removesuffix('.')}. And {changed}" if changed else stopped.why
    if changed:
        return changed
    if stopped is not None:
        return stopped.why
    if batch.plan.quarantine and batch.plan.quarantine.topic != found.quarantine_topic:
        return f"it was planned with quarantine topic {batch.plan.quarantine.topic}, and the pipeline now has another"
    if batch.state not in {State.PLANNED, State.REJECTED}:
        return None
    if differing := differing_tables(batch.plan.tables, found.tables):
        tables, them = ("side tables", "them") if len(differing) > 1 else ("side table", "it")
        return f"{tables} changed since an earlier attempt read {them}: {', '.join(differing)}"
    if batch.state is not State.PLANNED:
        return None
    if batch.plan.ledger_topic_id != found.ledger_topic_id:
        return (
            "its ledger was restored from a copy since it was planned, so its lease cannot be compared with its marks"
        )
    # Some task-partitions may have committed with the other software, and a whole batch has to be written by one version.
    if batch.plan.software != found.software:
        return f"it was planned with {batch.plan.software}, and this software is {found.software}"
    # A mark may be gone a little early: brokers expire offsets by their own clocks.
    if found.now - batch.plan.planned_at > found.marks_kept_for * 0.9:
        return f"it was planned more than {found.marks_kept_for * 0.9} ago, so its marks may have expired"
    return None


def differing_tables(recorded: Iterable[SideTableState], read: Iterable[SideTableState]) -> tuple[str, ...]:
    """Returns the names of the side tables that are in both, with different contents."""
    before = {state.name: state.fingerprint for state in recorded}
    return tuple(s.name for s in read if before.get(s.name, s.fingerprint) != s.fingerprint)


PARTS = {
    "source": "source settings",
    "output": "output settings",
    "spark": "Spark settings",
    "transform": "transform",
    "files": "files beside the transform",
    "tables": "settings of side tables",
    "quarantine": "quarantine rules of the suite",
    "registry": "schema registry",
}


def _what_changed(planned: Mapping[str, str], now: Mapping[str, str]) -> str:
    parts = [PARTS.get(p, p) for p in (*PARTS, *sorted({*planned, *now} - {*PARTS})) if planned.get(p) != now.get(p)]
    return f"these parts changed since it was planned: {', '.join(parts)}"
