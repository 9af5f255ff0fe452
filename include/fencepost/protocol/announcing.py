"""Derives announcements from a change of the ledger, and from its whole history. Pure.

A batch is announced when it becomes published, skipped or withdrawn. Announcements are derived from the records that
are about to be committed, so no step can forget an announcement. Announcements contain nothing that is not in the
ledger, so a lost topic can be written again.
"""

from __future__ import annotations

import json
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

from fencepost.model import (
    PUBLISH_ANYWAY,
    WRITTEN_AS,
    Batch,
    HistoryEntry,
    Interval,
    Outcome,
    PlannedInput,
    State,
)
from fencepost.protocol.announcement import AnnouncedSource, Announcement, Column, SchemaIds, UnreadOffsets
from fencepost.protocol.unread import unread_at_plan
from fencepost.protocol.view import ALWAYS, OVER, PASSED, Revisions, View

ANNOUNCED = PASSED | {State.WITHDRAWN}
PUBLISHES = {"publish", PUBLISH_ANYWAY}


@dataclass(frozen=True)
class AnnouncedChange:
    """A batch to announce. A change has the event in the batch's history that causes the announcement, and the
    announced revisions that no longer count.
    """

    batch: Batch
    entered: HistoryEntry
    replaces: tuple[int, ...] = ()


def announced_changes(before: View, changed: Sequence[Batch]) -> tuple[AnnouncedChange, ...]:
    """Returns the publications, skips and withdrawals among changed batches. Most changes have none.

    A withdrawal of several revisions of an interval is announced once, for the newest batch among them.
    """
    entered: dict[Interval, list[Batch]] = defaultdict(list)
    over: dict[Interval, list[int]] = defaultdict(list)
    for batch in changed:
        was = _state_in(before, batch)
        if batch.state in ANNOUNCED and batch.state is not was:
            entered[batch.interval].append(batch)
        if batch.state in OVER and was in PASSED:
            over[batch.interval].append(batch.revision)
    found = ((max(batches, key=_standing), over[interval]) for interval, batches in entered.items())
    return tuple(AnnouncedChange(own, own.history[-1], _without(own, revisions)) for own, revisions in found)


def _state_in(view: View, batch: Batch) -> State | None:
    known = view.revisions.get(batch.interval)
    return next((b.state for b in known.all if b.revision == batch.revision), None) if known else None


def _standing(batch: Batch) -> tuple[bool, int]:
    """Returns a key that sorts batches which are withdrawn together. The last batch is announced for all of these
    batches.
    """
    return batch.adds_to is None, batch.revision


def _without(own: Batch, revisions: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(revision for revision in revisions if revision != own.revision))


def complete_until(view: View) -> datetime | None:
    """Returns the start of the first planned interval that is not published or skipped. If there is none, it returns
    the end of the last interval.
    """
    end = None
    for interval, revisions in view.in_order:
        if revisions.is_withdrawn:
            continue
        if revisions.in_force.state not in PASSED:
            return interval.start
        end = interval.end
    return end


def announcement(view: View, one: AnnouncedChange, cluster_id: str, until: datetime | None) -> Announcement:
    """Returns the announcement of a batch in this view. The announcement of a skipped or withdrawn batch has no output."""
    batch, plan, counts = one.batch, one.batch.plan, one.entered.state is State.PUBLISHED
    written = batch.written if counts else None
    return Announcement(
        state=one.entered.state.value,
        ledger_id=plan.ledger_topic_id,
        cluster_id=cluster_id,
        batch=str(batch.id),
        interval=batch.interval,
        revision=batch.revision,
        adds_to=batch.adds_to,
        replaces=one.replaces,
        kind=plan.output.kind,
        output=plan.output.name,
        **(plan.output.announced(batch) if counts else {**plan.output.announced(batch), "current_table": None}),
        ranges={str(r.partition): (r.start, r.end) for r in batch.published_ranges if counts and r.length},
        columns=_columns(view, batch, one.entered.at) if counts else (),
        schema_ids=_schema_ids(batch) if counts else None,
        rows=written.rows if written else 0,
        quarantined=written.quarantined if written else {},
        sources=tuple(_source(one) for one in plan.inputs),
        unread=_unread(batch) if one.entered.state is not State.WITHDRAWN else None,
        verdict=batch.verdict.outcome if batch.verdict else None,
        decided_by_person=not counts or _is_by_person(batch),
        time=one.entered.at,
        complete_until=until,
    )


def _source(planned: PlannedInput) -> AnnouncedSource:
    ranges = {str(part.partition): (part.start, part.end) for part in planned.ranges if part.length}
    return AnnouncedSource(topic=planned.topic, ranges=ranges)


def _unread(batch: Batch) -> UnreadOffsets | None:
    before = unread_at_plan(batch)
    if not before.offsets:
        return None
    return UnreadOffsets(offsets=before.offsets, ranges=before.by_topic, reason=before.reason)


def _is_by_person(batch: Batch) -> bool:
    """Returns whether a person decided to publish. Either the batch did not pass, or a person published the batch after
    its output refused it.
    """
    passed = batch.verdict is not None and batch.verdict.outcome is Outcome.PASSED
    return not passed or (batch.decision is not None and batch.decision.action in PUBLISHES)


def _columns(view: View, batch: Batch, at: datetime) -> tuple[Column, ...]:
    """Returns the columns of the output. If the transform did not run, these are the columns of the newest earlier
    batch whose transform ran.
    """
    schema = batch.written.value_schema if batch.written else ""
    if not schema:
        known = [b.written for b in view.all() if b.written and b.written.value_schema and b.written.written_at <= at]
        schema = max(known, key=lambda written: written.written_at).value_schema if known else ""
    fields = json.loads(schema)["fields"] if schema else []
    return tuple(_column(f) for f in fields)


def _column(field: Mapping[str, Any]) -> Column:
    written_as = field["metadata"].get(WRITTEN_AS)
    return Column(name=field["name"], type=field["type"], nullable=field["nullable"], field=written_as)


def _schema_ids(batch: Batch) -> SchemaIds | None:
    schemas = batch.plan.schemas
    if schemas is None or not (schemas.output or schemas.output_key):
        return None
    return SchemaIds(
        value=schemas.output.id if schemas.output else None, key=schemas.output_key.id if schemas.output_key else None
    )


AnnouncedBatch = tuple[AnnouncedChange, datetime | None]  # with the value of `complete_until` at that time


def all_announced(view: View) -> Iterator[AnnouncedBatch]:
    """Yields every announcement that follows from the ledger's history, in order of time. Within an interval the order
    is that of revisions.

    Intervals that changed within one second are in order of their start.
    """
    moments = [
        (at, interval.start, number, interval, one)
        for interval, revisions in view.in_order
        for number, (at, one) in enumerate(_moments(revisions))
    ]
    open_since, standing = list[datetime](), list[tuple[datetime, datetime]]()
    for _, start, _, interval, one in sorted(moments, key=itemgetter(0, 1, 2)):
        if one is None:
            insort(open_since, start)
            insort(standing, (start, interval.end))
            continue
        if start in open_since:
            open_since.remove(start)
        if one.entered.state is State.WITHDRAWN:
            standing.remove((start, interval.end))
        last = standing[-1][1] if standing else None
        yield one, open_since[0] if open_since else last


def history(view: View, cluster_id: str) -> list[Announcement]:
    """Returns the announcements of `all_announced` in the form that readers get."""
    return [announcement(view, one, cluster_id, until) for one, until in all_announced(view)]


def last_announced(view: View, batch: Batch) -> AnnouncedBatch | None:
    """Returns the last announcement of a batch, or None if there is none."""
    return next((one for one in reversed([*all_announced(view)]) if one[0].batch.id == batch.id), None)


def _moments(revisions: Revisions) -> Iterator[tuple[datetime, AnnouncedChange | None]]:
    """Yields an interval's announcements with their times. It also yields None at the interval's first plan, and at its
    first plan after a withdrawal.
    """
    at, stands = ALWAYS, False
    for batch in revisions.all:
        at = max(at, batch.plan.planned_at)
        if not stands:
            stands = True
            yield at, None
        for before, event in zip((None, *batch.history), batch.history, strict=False):
            if event.state not in ANNOUNCED or (before is not None and before.state is event.state):
                continue
            one = (
                _withdrawn(revisions, batch, event)
                if event.state is State.WITHDRAWN
                else _passed(revisions, batch, event)
            )
            if one is not None:
                stands = event.state is not State.WITHDRAWN
                at = max(at, event.at)
                yield at, one


def _passed(revisions: Revisions, batch: Batch, event: HistoryEntry) -> AnnouncedChange:
    """Returns a publication or a skip. A published batch replaces all revisions that passed since the previous
    published batch.
    """
    if event.state is State.SKIPPED or batch.adds_to is not None:
        return AnnouncedChange(batch, event)
    published = [b.revision for b in revisions.batches if b.revision < batch.revision and State.PUBLISHED in _states(b)]
    replaced = [
        b.revision
        for b in revisions.all
        if max(published, default=0) <= b.revision < batch.revision
        and b.state is State.SUPERSEDED
        and _states(b) & PASSED
    ]
    return AnnouncedChange(batch, event, tuple(replaced))


def _withdrawn(revisions: Revisions, batch: Batch, event: HistoryEntry) -> AnnouncedChange | None:
    """Returns a withdrawal, or None. A withdrawal is announced once for all revisions that it withdraws, for the last
    of them.
    """
    together = [b for b in revisions.all if b.history[-1] == event]
    if batch is not together[-1]:
        return None
    own = max(together, key=_standing)
    return AnnouncedChange(own, event, _without(own, [b.revision for b in together if _states(b) & PASSED]))


def _states(batch: Batch) -> set[State]:
    return {event.state for event in batch.history}
