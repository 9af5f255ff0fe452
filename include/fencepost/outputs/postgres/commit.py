"""The commit of a staged batch to its table, in one transaction with the row that says so.

The interval's row is locked first. Whoever gives a publication up locks the same row. So one that was given up never commits
late, and an older lease never wins.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from fencepost.counts import count_of
from fencepost.errors import ReceiptsDisagree, RecordRefused, StoreRefused, StoreUnavailable
from fencepost.failpoints import reached
from fencepost.kafka.staged import read_staged
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Interval, Tally
from fencepost.outputs.postgres.columns import Rows, StagedMisfit, missing, schema_of, what_differs
from fencepost.outputs.postgres.connection import Session, StatementFailed
from fencepost.outputs.postgres.lock import locked
from fencepost.outputs.postgres.shape import TableShape
from fencepost.outputs.postgres.store import Store
from fencepost.outputs.table.comparison import told_by_revision
from fencepost.outputs.table.pipeline_table import PipelineTable
from fencepost.outputs.table.revisions import Held, revisions_after, rows_of
from fencepost.outputs.table.values import TablePublication
from fencepost.rows.writer import added


class AnotherTable(Exception):
    """The table was dropped, or another one has its name: it has to be compared, or made, first."""


class RowsRefused(Exception):
    """The server refuses the batch's rows, or that the rows which they replace are removed (`removing`).

    `place` is the staged record of the refused row, where the server has told of it: a partition, and the number of the batch's
    record in it.
    """

    def __init__(self, failed: StatementFailed, *, removing: bool) -> None:
        super().__init__(failed.sqlstate)
        self.failed, self.removing = failed, removing
        self.place: tuple[int, int] | None = None


def commit_batch(table: PipelineTable, shape: TableShape, batch: Batch) -> None:
    """Commit the batch, unless it is committed:

    1. lock the interval's row, and the table against being dropped or swapped;
    2. compare: committed already, given up, overtaken, of another ledger, or of another owner;
    3. whether the table may be published to; and what the ledger says, read under the lock: is the publication still under
       way, and is all there that it adds to;
    4. remove what the batch replaces, and copy the staged records in, with the fingerprint of the bytes as read;
    5. run the checks and triggers that were put off, and count all that the interval holds then; and look again whether the
       table may be published to, since a part may have been attached meanwhile;
    6. write the row, and commit.

    Raises:
        AnotherTable: the table is not the one that it was.
        RowsRefused: the server refuses the rows.
    """
    with locked(table.pipeline, table.name, batch.interval) as (tx, store, held):  # 1
        reached("store.locked")
        exists = store.oid() is not None
        if exists:
            store.lock_table()
        if not _may_commit(table, store, held, batch, exists=exists):  # 2
            return
        _check_table(shape, store, batch.interval)
        counted = store.count(batch.interval.start) if exists and batch.adds_to is not None else {}
        table.check_ledger(held, batch, counted)  # 3
        revisions = revisions_after(held, batch)
        if exists:
            counts = _counts(store, batch)
            # Triggers may go by policies of other tables. That this one hides none is known, and stays so while it is locked.
            tx.run("SET LOCAL row_security = on")
            _replace(table, shape, tx, store, batch)  # 4
            with _refusals():
                tx.run("SET CONSTRAINTS ALL IMMEDIATE")
            tx.run("SET LOCAL row_security = off")
            _check_counts(store, batch, counts, rows_of(revisions))  # 5
            _check_table(shape, store, batch.interval)
        store.record(batch, batch.publication_as(TablePublication), revisions, _sources(batch))  # 6
        reached("store.copied")
        with _refusals():
            tx.commit()
        reached("store.committed")


def _may_commit(table: PipelineTable, store: Store, held: Held, batch: Batch, *, exists: bool) -> bool:
    """Whether the publication has still to be committed; False where it is."""
    if not table.has_to_commit(held, batch):
        return False
    known = store.registered(lock=True)
    table.check_may_commit(held, batch, known.owner if known is not None else None)
    if known is None or known.oid != store.oid() or (batch.known_written.rows and not exists):
        raise AnotherTable
    return True


def _check_table(shape: TableShape, store: Store, interval: Interval) -> None:
    if (oid := store.oid()) is not None:
        shape.check(store.session, oid, interval)


def _replace(table: PipelineTable, shape: TableShape, tx: Session, store: Store, batch: Batch) -> None:
    """Put the batch's rows in the place of those that it replaces."""
    written, start = batch.known_written, batch.interval.start
    oid, schema = store.oid(), schema_of(written.value_schema)
    assert oid is not None, "the table is locked"
    if written.rows and shape.adds:
        # First: the server alters no table of which rows are removed whose references are checked at the end.
        store.add_columns(missing(schema, store.columns(oid)))
    with _refusals(removing=True):
        store.remove(batch)
    if not written.rows:
        return
    columns = store.columns(oid)
    shape.refuse(what_differs(store.altered(oid), schema, columns, add=False))
    staged = StagedRows(table.ledger, batch)
    rows = Rows(schema, columns, start, batch.revision)
    try:
        with _refusals():
            tx.copy(store.schema, store.name, pa.RecordBatchReader.from_batches(rows.schema, staged.batches(rows)))
    except RowsRefused as refused:
        refused.place = staged.place(refused.failed.row)
        raise
    except StoreUnavailable:
        if staged.failed is None:
            raise
    if isinstance(staged.failed, StagedMisfit):
        raise RecordRefused(f"batch {batch.id}: a staged record does not fit table {table.name}: {staged.failed}.")
    if staged.failed is not None:
        raise staged.failed
    if (staged.rows, staged.fingerprint) != (written.rows, written.fingerprint):
        raise ReceiptsDisagree(
            f"batch {batch.id}: its staging topic has {count_of(staged.rows, 'record')} with fingerprint "
            f"{staged.fingerprint:016x}, "
            f"and {written.rows:,} with {written.fingerprint:016x} were written."
        )


@dataclass(frozen=True)
class _Counts:
    """What acts upon a table's rows; if something does, also how many the interval has, and by how many the table has grown."""

    acts: str = ""
    rows: int = 0
    grown: int | None = None


def _counts(store: Store, batch: Batch) -> _Counts:
    """What is in the table before the batch is: of one that no trigger or rule acts upon, nothing has to be known."""
    if not (acts := store.what_acts()):
        return _Counts()
    return _Counts(acts, sum(store.count(batch.interval.start).values()), store.grown())


def _check_counts(store: Store, batch: Batch, before: _Counts, wanted: Mapping[int, int]) -> None:
    """Check that the interval holds what it has to, by the table's own count, and that no other has more or fewer rows than
    before: a table may keep what it is told to remove, and a trigger may add rows, or move them.

    Raises:
        StoreRefused: it does not.
    """
    counted = store.count(batch.interval.start)
    now, at_first = store.grown() if before.acts else None, before.grown
    others = 0
    if now is not None and at_first is not None:
        others = now - at_first - (sum(counted.values()) - before.rows)
    if counted == wanted and not others:
        return
    told = f"{told_by_revision(counted)} of its interval, and has to hold {told_by_revision(wanted)}"
    if counted == wanted:
        more = "more" if others > 0 else "fewer"
        told = f"{count_of(abs(others), f'{more} row')} in other intervals than before"
    acts = before.acts
    what = (
        f"It has {acts}: what keeps, adds, moves or leaves out rows has to go" if acts else "Somebody else writes to it"
    )
    raise StoreRefused(
        f"batch {batch.id}: after it was copied in, table {store.table} would hold {told}. {what}. Nothing was changed. Mend "
        "the table, and run again."
    )


@contextmanager
def _refusals(*, removing: bool = False) -> Iterator[None]:
    """Tell what the table refuses of its rows from what the server refuses of anything."""
    try:
        yield
    except StatementFailed as failed:
        if failed.is_of_rows:
            raise RowsRefused(failed, removing=removing) from None
        raise


class StagedRows:
    """The rows of a batch's staged records, counted as they are read."""

    def __init__(self, ledger: Ledger, batch: Batch) -> None:
        self._ledger, self._batch = ledger, batch
        self.rows = self.fingerprint = 0
        self._runs = list[tuple[int, int]]()  # of records of one partition behind each other: which, and how many
        self.failed: Exception | None = None  # what ended the reading, which the driver tells as text only

    def batches(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """In the types of the table."""
        ledger, batch = self._ledger, self._batch
        written = batch.known_written
        try:
            for staged in read_staged(ledger.settings, ledger.pipeline.group, batch.output_ranges(written), batch):
                tally = added(Tally(rows=self.rows, fingerprint=self.fingerprint), staged)
                self.rows, self.fingerprint = tally.rows, tally.fingerprint
                runs = pc.run_end_encode(staged.column("partition"))
                ends = [0, *runs.run_ends.to_pylist()]
                self._runs += zip(runs.values.to_pylist(), (end - begin for begin, end in pairwise(ends)), strict=True)
                yield rows.of(staged.column("value"))
        except Exception as error:
            self.failed = error
            raise

    def place(self, row: int) -> tuple[int, int] | None:
        """The partition of the row with that number, 1 being the first, and how many of the batch's records precede it there."""
        before, left = Counter[int](), row - 1
        for partition, count in self._runs:
            if 0 <= left < count:
                return partition, before[partition] + left
            before[partition] += count
            left -= count
        return None


def _sources(batch: Batch) -> str:
    return json.dumps([source.model_dump(mode="json") for source in batch.plan.inputs])
