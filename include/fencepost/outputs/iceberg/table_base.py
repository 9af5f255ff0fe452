"""The base of a commit to an Iceberg table, and what it means for a publication. Pure.

Iceberg has no lock. A commit names its base and is refused if the table has moved. So an attempt first reads the base,
then the ledger, and then decides. In the other order, a zombie could read a ledger in which its publication is under way,
and then a base in which the publication has been committed and its row removed.

Each interval's row is a table property, which the commit that publishes or closes sets. It cannot expire, as a
snapshot and its summary can. Main and the tag `fencepost` move with each commit of ours. A rollback moves main alone, so
a commit of a base from before the rollback still fails at the tag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fencepost.model import Batch, State
from fencepost.outputs.iceberg.values import IcebergPublication
from fencepost.outputs.table.pipeline_table import Owner
from fencepost.outputs.table.revisions import IntervalRow, TableStanding, published_batches, standing_of
from fencepost.outputs.table.values import TablePublication
from fencepost.protocol.view import View

TAG = "fencepost"


@dataclass(frozen=True)
class SnapshotRow(IntervalRow):
    """A row of the store. `snapshot` is the id of the snapshot that published or closed, and `batch` is the batch's name."""

    snapshot: int = -1
    batch: str = ""


@dataclass(frozen=True)
class Base:
    """What an attempt has read of the table, in one request.

    - `uuid` is the table's identity, `owner` its owner by its properties, or None.
    - `main` and `tag` are the snapshots of main and of the tag `fencepost`, or None.
    - `ancestors` are main and its ancestors, as far as they have not expired.
    - `rows` has the rows of intervals by their start.
    """

    uuid: str
    owner: Owner | None = None
    main: int | None = None
    tag: int | None = None
    ancestors: frozenset[int] = frozenset()
    rows: Mapping[datetime, SnapshotRow] = field(default_factory=dict)

    def row(self, start: datetime) -> SnapshotRow:
        """Returns the row of the interval that starts then. Without a publication the row is empty."""
        return self.rows.get(start, SnapshotRow(start))


def standing_row(base: Base, batch: Batch, count: Callable[[], Mapping[int, int]]) -> SnapshotRow:
    """Returns the interval's row as it counts for the batch's publication. After a rollback of the publication this is an
    empty row.

    A publication is committed if main has its snapshot. After a rollback main has it no longer, and the publication is
    open again. But the history may have expired, or main was set to another snapshot with the same rows. So the interval's
    rows in the base decide then, which `count` counts by revision: the base has rows of the batch. A batch without rows
    leaves none, unless it is an addition, which changes nothing.
    """
    row = base.row(batch.interval.start)
    if standing_of(row, batch.publication_as(TablePublication)) is not TableStanding.DONE:
        return row
    return row if row.snapshot in base.ancestors or _has(count(), batch) else SnapshotRow(row.start)


def recorded_publication(view: View, batch: Batch) -> int | None:
    """Returns the snapshot that has published the batch, if the ledger has recorded the end of this very publication."""
    last, into = view.last(batch.interval), batch.publication_as(IcebergPublication)
    if last is None or last.state is not State.PUBLISHED or last.revision != batch.revision:
        return None
    recorded = last.publication_as(IcebergPublication)
    same = (recorded.uuid, recorded.ledger, recorded.require_lease) == (into.uuid, into.ledger, into.require_lease)
    return recorded.snapshot if same else None


def _has(counted: Mapping[int, int], batch: Batch) -> bool:
    if batch.require_written.rows:
        return batch.revision in counted
    return batch.adds_to is not None or not counted


def ended_rows(view: View, base: Base, ledger_topic_id: str) -> tuple[datetime, ...]:
    """Returns the starts of the rows that a commit on this base removes: the ledger has the end of their publications.

    `view` is the ledger as it was read after the base. So it has the beginning of each publication under its topic id
    that the base has. Rows of another ledger topic stay.
    """
    last = {interval.start: planned.last for interval, planned in view.in_order if interval.start in base.rows}
    return tuple(
        start
        for start, row in sorted(base.rows.items())
        if row.ledger == ledger_topic_id and (start not in last or last[start].publication_under(row.lease) is None)
    )


def lacking_for(view: View, batch: Batch, counted: Mapping[int, int]) -> tuple[int, ...]:
    """Returns the revisions with rows that the table lacks although an addition needs them. `counted` is the number of the
    interval's rows in the base, by revision.
    """
    if batch.adds_to is None:
        return ()
    return tuple(
        one.revision
        for one in published_batches(view.known(batch.interval))
        if one.revision != batch.revision and one.require_written.rows != counted.get(one.revision, 0)
    )


def differing_in(
    view: View, table: str, base: Base, counted: Mapping[datetime, Mapping[int, int]]
) -> tuple[Batch, ...]:
    """Returns the intervals whose revisions with rows in the table differ from what the ledger has published there. Each
    interval is represented by the batch that counts.

    `counted` is the number of rows by interval and revision at main. An interval that is being published is left out,
    and so is one that was published to another output.
    """
    found = list[Batch]()
    for interval, planned in view.in_order:
        counts, there = planned.in_force, counted.get(interval.start, {})
        into = counts.publication
        if planned.last.state is State.PUBLISHING:
            continue
        if counts.state is State.PUBLISHED and not (
            isinstance(into, IcebergPublication) and (into.uuid == base.uuid or into.table == table)
        ):
            continue
        wanted = {one.revision: rows for one in published_batches(planned) if (rows := one.require_written.rows)}
        if there != wanted:
            found.append(counts)
    return tuple(found)


def unknown_in(view: View, pipeline: str, counted: Mapping[datetime, Mapping[int, int]]) -> list[str]:
    """Returns the revisions with rows in the table that are not in the ledger, each with its interval's start."""
    known = {(interval.start, batch.revision) for interval, planned in view.in_order for batch in planned.all}
    return [
        f"{pipeline}, interval from {start.isoformat()}, revision {revision}"
        for start, revisions in sorted(counted.items())
        for revision in revisions
        if (start, revision) not in known
    ]


def snapshots_in_force(view: View, table: str, uuid: str) -> frozenset[int | None]:
    """Returns the snapshots that have published what the ledger has in this table. It has None for a batch that was published to
    an earlier table of the name.

    All of them have to be looked at. After a rollback, and a publication of another interval, main has the last one, and
    lacks others.
    """
    publications = [batch.publication for _, planned in view.in_order for batch in published_batches(planned)]
    return frozenset(
        into.snapshot if into.uuid == uuid else None
        for into in publications
        if isinstance(into, IcebergPublication) and (into.uuid == uuid or into.table == table)
    )
