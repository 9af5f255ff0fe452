"""A store's rows about the publications to a table, and what they mean. Pure.

The store has one row for each table and interval. This row is committed together with the batch's rows, so it always
says what is published in the table. A publication locks the row first, and so does a command that gives up a publication. So a
publication reads what its predecessor wrote:

    lease     of the publication that was committed or closed last: an offset of the ledger topic with the id `ledger`
    closed    that publication was given up: a late attempt finds its own lease here, and commits nothing
    revisions the committed revisions of the interval: its batch, and the additions to it, each with its publication

A revision removes all rows of its interval before it writes its own. An addition removes the rows of its own number. So
a revision and an addition may be written repeatedly. A trigger may keep rows that should be removed, and another table
may have taken the name. So the table's own rows are counted before a commit, and in a comparison with the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from fencepost.errors import TableRefusedData
from fencepost.model import Batch, BatchId, Interval, State
from fencepost.outputs.table.values import CurrentKeys, TablePublication
from fencepost.protocol.advice import after_data_refused
from fencepost.protocol.decisions import own_revision, published
from fencepost.protocol.obstacle import ObservedState, Obstacle, refusal_obstacle, staging_obstacle
from fencepost.protocol.publication import check_under_way
from fencepost.protocol.view import Revisions, View


class TableStanding(StrEnum):
    """The standing of a publication, by the locked row of its interval."""

    OPEN = "open"  # no later publication was committed or closed: it may commit
    DONE = "done"  # it is committed
    CLOSED = "closed"  # it was given up
    OVERTAKEN = "overtaken"  # a later publication was committed or closed: this one is the zombie
    FOREIGN = "foreign"  # the row has a lease of another ledger topic: commit only under the present ledger topic


class Committed(NamedTuple):
    """A committed revision, with its number of rows, and the lease and the ledger topic id of its publication."""

    rows: int
    ledger: str
    lease: int


@dataclass(frozen=True)
class IntervalRow:
    """A row of the store. `ledger` is empty if no publication was committed or closed yet. `keys` is what the last commit
    did in the current table.
    """

    start: datetime
    end: datetime | None = None
    ledger: str = ""
    lease: int = -1
    closed: bool = False
    refused: str = ""
    revisions: Mapping[int, Committed] = field(default_factory=dict)
    keys: CurrentKeys | None = None

    @property
    def rows(self) -> int:
        """Returns the number of rows that the interval has to have in the table."""
        return sum(one.rows for one in self.revisions.values())


@dataclass(frozen=True)
class TableState:
    """The present state of a table, and of a publication there."""

    standing: TableStanding = TableStanding.OPEN
    refused: str = ""  # why the publication was closed, if the table refused its data
    lost: str = ""  # why the table no longer belongs to the pipeline
    committed: Mapping[str, Any] = field(default_factory=dict)  # what `record_stored` adds to the publication

    def obstacle(self, batch: Batch, found: ObservedState) -> Obstacle | None:
        """Returns the obstacle that keeps the publication from being finished, or None."""
        return _of_commit(batch, self, found)


def _of_commit(batch: Batch, table: TableState, found: ObservedState) -> Obstacle | None:
    """Returns the obstacle that keeps a publication to a table from being finished, or None. Once the publication is
    committed, there is none.
    """
    publication = batch.publication_as(TablePublication)
    if table.standing is TableStanding.DONE:
        return None
    if table.lost:
        return Obstacle(f"table {publication.table} {table.lost}")
    if publication.ledger != found.ledger_topic_id:
        return Obstacle(
            "its ledger was restored from a copy during its publication, so its lease cannot be compared with its table"
        )
    if table.standing is TableStanding.CLOSED and table.refused:
        why = f"table {publication.table} refused its data: {table.refused}"
        return Obstacle(why, TableRefusedData, after_data_refused(batch), refused=table.refused)
    if table.standing is TableStanding.CLOSED:
        return Obstacle("its publication was given up")
    if table.standing is TableStanding.OVERTAKEN:
        return Obstacle(f"table {publication.table} has a later publication of its interval")
    if (gone := staging_obstacle(batch, found)) is not None:
        return gone
    return refusal_obstacle(publication)


def standing_of(interval_row: IntervalRow, publication: TablePublication) -> TableStanding:
    """Returns the standing of a publication, by the locked row of its interval."""
    if not interval_row.ledger:
        return TableStanding.OPEN
    if interval_row.ledger != publication.ledger:
        return TableStanding.FOREIGN
    lease = publication.require_lease
    if interval_row.lease == lease:
        return TableStanding.CLOSED if interval_row.closed else TableStanding.DONE
    return TableStanding.OVERTAKEN if interval_row.lease > lease else TableStanding.OPEN


def takes_over(standing: TableStanding, publication: TablePublication, ledger_topic_id: str) -> bool:
    """Returns whether a publication may commit or be closed. `ledger_topic_id` is the id of the present ledger topic."""
    return standing is TableStanding.OPEN or (
        standing is TableStanding.FOREIGN and publication.ledger == ledger_topic_id
    )


def record_stored(
    view: View,
    interval: Interval,
    revision: int,
    lease: int,
    seconds: float,
    now: datetime,
    committed: Mapping[str, Any] | None = None,
) -> tuple[Batch, ...]:
    """Returns the record that publishes a batch. The table has committed the publication with this lease. `committed` has
    the fields of the kind's publication that are known by the commit.

    Raises:
        Superseded: the publication was given up, or a newer revision was planned.
    """
    batch = own_revision(view, interval, revision)
    if batch.state is State.PUBLISHED:
        return ()
    check_under_way(batch, lease)
    done = batch.publication_as(TablePublication).model_copy(
        update={"ended_at": now, "seconds": seconds, "refused": "", **(committed or {})}
    )
    return published(view, batch.model_copy(update={"publication": done}), now, f"published {done.method}")


def revisions_after(interval_row: IntervalRow, batch: Batch) -> dict[int, Committed]:
    """Returns the interval's revisions in the table as they are after the batch is committed."""
    publication = batch.publication_as(TablePublication)
    kept = interval_row.revisions if batch.adds_to is not None else {}
    own = Committed(batch.require_written.rows, publication.ledger, publication.require_lease)
    return dict(sorted({**kept, batch.revision: own}.items()))


def rows_of(revisions: Mapping[int, Committed]) -> dict[int, int]:
    """Returns the number of rows by revision, as the table counts them. Revisions without rows are left out."""
    return {number: one.rows for number, one in revisions.items() if one.rows}


def missing_for(view: View, batch: Batch, interval_row: IntervalRow, counted: Mapping[int, int]) -> tuple[int, ...]:
    """Returns the revisions that the table lacks although an addition needs them. An addition needs its batch and the
    earlier additions.

    `counted` is the number of the interval's rows in the table by revision. `counted` may be smaller than the number in
    the store's row.
    """
    if batch.adds_to is None:
        return ()
    there = {number for number, one in interval_row.revisions.items() if counted.get(number, 0) == one.rows}
    return tuple(n for n in published_in(view.known(batch.interval)) if n != batch.revision and n not in there)


def published_in(revisions: Revisions) -> tuple[int, ...]:
    """Returns the numbers of `published_batches`."""
    return tuple(batch.revision for batch in published_batches(revisions))


def published_batches(revisions: Revisions) -> tuple[Batch, ...]:
    """Returns the batch and the additions that the interval's output has to have, by the ledger. There are none if the
    interval is not published.
    """
    counts = revisions.in_force
    return (counts, *revisions.additions_in_force) if counts.state is State.PUBLISHED else ()


def unknown_to(view: View, pipeline: str, interval_row: Iterable[IntervalRow]) -> list[str]:
    """Returns the names of the batches in the table that are not in the ledger."""
    known = {(interval.start, b.revision) for interval, planned in view.in_order for b in planned.all}
    return [
        str(BatchId(pipeline=pipeline, interval=Interval.of(row.start, row.end), revision=n))
        for row in interval_row
        if row.end is not None
        for n in row.revisions
        if (row.start, n) not in known
    ]


def differing(
    view: View, table: str, interval_row: Mapping[datetime, IntervalRow], filled: Collection[datetime]
) -> tuple[Batch, ...]:
    """Returns the intervals whose revisions in the table differ from what the ledger has published there. Each interval
    is represented by the batch that counts.

    The table may lack revisions, or have revisions that are not published. The table may also have a revision from
    another publication, for example after the ledger or the table was restored from a copy. `filled` are the starts of
    the intervals that have rows in the table. An interval that is being published is left out. A withdrawn interval
    differs if it has rows in the table.
    """
    found = list[Batch]()
    for interval, planned in view.in_order:
        row = interval_row.get(interval.start, IntervalRow(interval.start))
        wanted = {batch.revision: _publication(batch) for batch in published_batches(planned)}
        there = {number: (one.ledger, one.lease) for number, one in row.revisions.items()}
        into = planned.in_force.publication
        if there != wanted and not (isinstance(into, TablePublication) and into.table == table):
            wanted = {}  # published to another output; a renamed table keeps what was published under its old name
        if planned.last.state is State.PUBLISHING or not (wanted or (there and row.rows)):
            continue
        if planned.is_withdrawn and interval.start not in filled:
            continue
        if there != wanted or (row.rows and interval.start not in filled):
            found.append(planned.in_force)
    return tuple(found)


def _publication(batch: Batch) -> tuple[str, int] | None:
    into = batch.publication
    return (into.ledger, into.require_lease) if into is not None else None
