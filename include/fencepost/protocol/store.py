"""What a table's store says of an interval's publications, and what that means; pure.

The store has one row for each table and interval. Its commit is the truth of what is published there, since only that is one with
the rows. Whoever publishes or gives up locks the row first, so each sees what the one before left:

    lease     of the publication that was committed or closed last, an offset of the ledger topic with the id `ledger`
    closed    it was given up: an attempt that comes late finds its own lease here, and commits nothing
    revisions what of the interval is in the table with that `identity`: its batch, and the additions to it

A revision removes all rows of its interval and then writes its own; an addition removes those of its own number. So each may be
repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fencepost.model import Batch, BatchId, Interval, State, TablePublication
from fencepost.protocol.view import Revisions, View


class Standing(StrEnum):
    """What a publication may do, once it has locked its interval's row."""

    OPEN = "open"  # nothing that comes before it stands in its way: commit
    DONE = "done"  # it is committed
    CLOSED = "closed"  # it was given up
    OVERTAKEN = "overtaken"  # a later publication was committed or closed: this one is the zombie
    FOREIGN = "foreign"  # the row's lease is of another ledger: only the ledger that exists now takes over


@dataclass(frozen=True)
class Held:
    """A row of the store. `ledger` is empty where nothing was published or closed yet."""

    start: datetime
    end: datetime | None = None
    identity: str = ""
    ledger: str = ""
    lease: int = -1
    closed: bool = False
    refused: str = ""
    revisions: tuple[int, ...] = ()
    rows: int = 0


@dataclass(frozen=True)
class StoreFound:
    """What a publication finds: its table's identity, and where it stands."""

    identity: str = ""
    standing: Standing = Standing.OPEN
    refused: str = ""  # why it was closed, where the table refused its data


def standing_of(held: Held, publication: TablePublication) -> Standing:
    """Where a publication stands, by the row of its interval, which is locked."""
    if not held.ledger:
        return Standing.OPEN
    if held.ledger != publication.ledger:
        return Standing.FOREIGN
    lease = publication.known_lease
    if held.lease == lease:
        return Standing.CLOSED if held.closed else Standing.DONE
    return Standing.OVERTAKEN if held.lease > lease else Standing.OPEN


def takes_over(standing: Standing, publication: TablePublication, ledger_topic_id: str) -> bool:
    """Whether a publication may commit, or be closed, where this is the ledger topic that exists now."""
    return standing is Standing.OPEN or (standing is Standing.FOREIGN and publication.ledger == ledger_topic_id)


def in_table(held: Held, identity: str) -> tuple[int, ...]:
    """The revisions of the interval in the table that has this identity."""
    return held.revisions if held.identity == identity else ()


def revisions_after(held: Held, batch: Batch, identity: str) -> tuple[int, ...]:
    """The revisions of the interval in the table once the batch is committed."""
    kept = set(in_table(held, identity)) if batch.adds_to is not None else set()
    return tuple(sorted(kept | {batch.revision}))


def missing_for(view: View, batch: Batch, held: Held, identity: str) -> tuple[int, ...]:
    """The revisions that an addition needs in the table and that are not there: its batch, and the additions before it."""
    if batch.adds_to is None:
        return ()
    there = in_table(held, identity)
    return tuple(n for n in published_in(view.known(batch.interval)) if n != batch.revision and n not in there)


def published_in(revisions: Revisions) -> tuple[int, ...]:
    """The revisions that an interval's output has to have, by the ledger: none where it is not published."""
    counts = revisions.in_force
    if counts.state is not State.PUBLISHED:
        return ()
    return (counts.revision, *(b.revision for b in revisions.additions_in_force))


def unknown_to(view: View, pipeline: str, held: Iterable[Held], identity: str) -> list[str]:
    """The batches in the table that the ledger does not know, by name."""
    known = {(interval.start, b.revision) for interval, planned in view.in_order for b in planned.all}
    return [
        str(BatchId(pipeline=pipeline, interval=Interval.of(row.start, row.end), revision=n))
        for row in held
        if row.end is not None
        for n in in_table(row, identity)
        if (row.start, n) not in known
    ]


def differing(
    view: View, table: str, held: Mapping[datetime, Held], identity: str, filled: Collection[datetime]
) -> tuple[Batch, ...]:
    """The batches that count, in order of time, of intervals in which the table has not what the ledger has published there.

    It lacks revisions, or has some that are not published: a copy of either forgets what was given up. `filled` are the
    intervals, by start, of which the table has a row. An interval that is being published is left out, and so is a withdrawn one.
    """
    found = list[Batch]()
    for interval, planned in view.in_order:
        batch, row = planned.in_force, held.get(interval.start, Held(interval.start))
        into = batch.publication
        wanted: tuple[int, ...] = ()
        if batch.state is State.PUBLISHED and isinstance(into, TablePublication) and into.table == table:
            wanted = published_in(planned)
        there = in_table(row, identity)
        if planned.last.state is State.PUBLISHING or planned.is_withdrawn or not (wanted or (there and row.rows)):
            continue
        if set(there) != set(wanted) or (row.rows and interval.start not in filled):
            found.append(batch)
    return tuple(found)
