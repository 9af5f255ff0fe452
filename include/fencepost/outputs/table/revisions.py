"""What a table's store says of an interval's publications, and what that means; pure.

The store has one row for each table and interval. Its commit is the truth of what is published there, since only that is one with
the rows. Whoever publishes or gives up locks the row first, so each sees what the one before left:

    lease     of the publication that was committed or closed last, an offset of the ledger topic with the id `ledger`
    closed    it was given up: an attempt that comes late finds its own lease here, and commits nothing
    revisions what of the interval was committed to the table: its batch, and the additions to it, each with its publication

A revision removes all rows of its interval and then writes its own; an addition removes those of its own number. So each may be
repeated. A table may keep what it is told to remove, and may be another one than it was: before a commit, and where the two are
compared, the table's own rows are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from fencepost.errors import TableRefusedData
from fencepost.model import Batch, BatchId, Interval, State
from fencepost.outputs.table.values import TablePublication
from fencepost.protocol.advice import after_table_refused
from fencepost.protocol.decisions import own_revision, published
from fencepost.protocol.obstacle import Found, Obstacle, refusal_obstacle, staging_obstacle
from fencepost.protocol.publication import check_under_way
from fencepost.protocol.view import Revisions, View


class TableStanding(StrEnum):
    """What a publication may do, once it has locked its interval's row."""

    OPEN = "open"  # nothing that comes before it stands in its way: commit
    DONE = "done"  # it is committed
    CLOSED = "closed"  # it was given up
    OVERTAKEN = "overtaken"  # a later publication was committed or closed: this one is the zombie
    FOREIGN = "foreign"  # the row's lease is of another ledger: only the ledger that exists now takes over


class Committed(NamedTuple):
    """What was committed of a revision: so many rows, by the publication with this lease of this ledger."""

    rows: int
    ledger: str
    lease: int


@dataclass(frozen=True)
class Held:
    """A row of the store. `ledger` is empty where nothing was published or closed yet."""

    start: datetime
    end: datetime | None = None
    ledger: str = ""
    lease: int = -1
    closed: bool = False
    refused: str = ""
    revisions: Mapping[int, Committed] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows the interval has to have in the table."""
        return sum(one.rows for one in self.revisions.values())


@dataclass(frozen=True)
class TableState:
    """The table as a publication finds it: where the publication stands there."""

    standing: TableStanding = TableStanding.OPEN
    refused: str = ""  # why it was closed, where the table refused its data
    lost: str = ""  # why the table is not the pipeline's any more

    def obstacle(self, batch: Batch, found: Found) -> Obstacle | None:
        """What keeps the publication from being finished."""
        return _of_commit(batch, self, found)


def _of_commit(batch: Batch, table: TableState, found: Found) -> Obstacle | None:
    """What keeps a publication to a table from being finished. What is committed there needs nothing any more."""
    publication = batch.publication_as(TablePublication)
    if table.standing is TableStanding.DONE:
        return None
    if table.lost:
        return Obstacle(f"table {publication.table} {table.lost}")
    if publication.ledger != found.ledger_topic_id:
        return Obstacle(
            "its ledger was made anew from a copy while it was published, so its lease says nothing to its table"
        )
    if table.standing is TableStanding.CLOSED and table.refused:
        why = f"table {publication.table} refused its data: {table.refused}"
        return Obstacle(why, TableRefusedData, after_table_refused(batch), refused=table.refused)
    if table.standing is TableStanding.CLOSED:
        return Obstacle("its publication was given up")
    if table.standing is TableStanding.OVERTAKEN:
        return Obstacle(f"table {publication.table} has a later publication of its interval")
    if (gone := staging_obstacle(batch, found)) is not None:
        return gone
    return refusal_obstacle(publication)


def standing_of(held: Held, publication: TablePublication) -> TableStanding:
    """Where a publication stands, by the row of its interval, which is locked."""
    if not held.ledger:
        return TableStanding.OPEN
    if held.ledger != publication.ledger:
        return TableStanding.FOREIGN
    lease = publication.known_lease
    if held.lease == lease:
        return TableStanding.CLOSED if held.closed else TableStanding.DONE
    return TableStanding.OVERTAKEN if held.lease > lease else TableStanding.OPEN


def takes_over(standing: TableStanding, publication: TablePublication, ledger_topic_id: str) -> bool:
    """Whether a publication may commit, or be closed, where this is the ledger topic that exists now."""
    return standing is TableStanding.OPEN or (
        standing is TableStanding.FOREIGN and publication.ledger == ledger_topic_id
    )


def record_stored(
    view: View, interval: Interval, revision: int, lease: int, seconds: float, now: datetime
) -> tuple[Batch, ...]:
    """Record what the table has committed of the publication with that lease: the batch is published.

    Raises:
        Superseded: the publication was given up, and a newer revision has taken the batch's place.
    """
    batch = own_revision(view, interval, revision)
    if batch.state is State.PUBLISHED:
        return ()
    check_under_way(batch, lease)
    done = batch.publication_as(TablePublication).model_copy(
        update={"ended_at": now, "seconds": seconds, "refused": ""}
    )
    return published(view, batch.model_copy(update={"publication": done}), now, f"published {done.way}")


def revisions_after(held: Held, batch: Batch) -> dict[int, Committed]:
    """The revisions of the interval in the table once the batch is committed, which has to hold the rows of each."""
    publication = batch.publication_as(TablePublication)
    kept = held.revisions if batch.adds_to is not None else {}
    own = Committed(batch.known_written.rows, publication.ledger, publication.known_lease)
    return dict(sorted({**kept, batch.revision: own}.items()))


def rows_of(revisions: Mapping[int, Committed]) -> dict[int, int]:
    """The rows of each revision, as the table counts them: one without rows is not among them."""
    return {number: one.rows for number, one in revisions.items() if one.rows}


def missing_for(view: View, batch: Batch, held: Held, counted: Mapping[int, int]) -> tuple[int, ...]:
    """The revisions that an addition needs in the table and that are not there: its batch, and the additions before it.

    `counted` are the interval's rows in the table by revision, which may have lost what the store's row says.
    """
    if batch.adds_to is None:
        return ()
    there = {number for number, one in held.revisions.items() if counted.get(number, 0) == one.rows}
    return tuple(n for n in published_in(view.known(batch.interval)) if n != batch.revision and n not in there)


def published_in(revisions: Revisions) -> tuple[int, ...]:
    """The revisions that an interval's output has to have, by the ledger: none where it is not published."""
    return tuple(batch.revision for batch in _published(revisions))


def _published(revisions: Revisions) -> tuple[Batch, ...]:
    counts = revisions.in_force
    return (counts, *revisions.additions_in_force) if counts.state is State.PUBLISHED else ()


def unknown_to(view: View, pipeline: str, held: Iterable[Held]) -> list[str]:
    """The batches in the table that the ledger does not know, by name."""
    known = {(interval.start, b.revision) for interval, planned in view.in_order for b in planned.all}
    return [
        str(BatchId(pipeline=pipeline, interval=Interval.of(row.start, row.end), revision=n))
        for row in held
        if row.end is not None
        for n in row.revisions
        if (row.start, n) not in known
    ]


def differing(view: View, table: str, held: Mapping[datetime, Held], filled: Collection[datetime]) -> tuple[Batch, ...]:
    """The batches that count, in order of time, of intervals in which the table has not what the ledger has published there.

    It lacks revisions, or has some that are not published: a copy of either forgets what was given up. Or another publication put
    them there, of another ledger. `filled` are the intervals, by start, of which the table has a row. An interval that is being
    published is left out. Of a withdrawn one the table has to have no rows.
    """
    found = list[Batch]()
    for interval, planned in view.in_order:
        row = held.get(interval.start, Held(interval.start))
        wanted = {batch.revision: _publication(batch) for batch in _published(planned)}
        there = {number: (one.ledger, one.lease) for number, one in row.revisions.items()}
        into = planned.in_force.publication
        if there != wanted and not (isinstance(into, TablePublication) and into.table == table):
            wanted = {}  # it was published somewhere else; a table that was renamed has what was published under its old name
        if planned.last.state is State.PUBLISHING or not (wanted or (there and row.rows)):
            continue
        if planned.is_withdrawn and interval.start not in filled:
            continue
        if there != wanted or (row.rows and interval.start not in filled):
            found.append(planned.in_force)
    return tuple(found)


def _publication(batch: Batch) -> tuple[str, int] | None:
    into = batch.publication
    return (into.ledger, into.known_lease) if into is not None else None
