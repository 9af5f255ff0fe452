"""Commits a staged batch to its table. One transaction has the batch's rows and the interval's row of the store.

A publication locks the interval's row first. A command that gives a publication up locks the same row. So a publication
that was given up never commits late, and an older lease never takes precedence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from fencepost.counts import count_of
from fencepost.errors import RecordRefused, TableRefused, TableUnavailable
from fencepost.failpoints import reached
from fencepost.kafka.staged import read_staged
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Interval, Tally
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.columns import Rows, casts_of, missing
from fencepost.outputs.postgres.current import CurrentCommit
from fencepost.outputs.postgres.lock import locked
from fencepost.outputs.postgres.shape import TableShape
from fencepost.outputs.postgres.temporary import TemporaryTable, Unconvertible
from fencepost.outputs.table.comparison import describe_rows
from fencepost.outputs.table.pipeline_table import Owner, PipelineTable
from fencepost.outputs.table.revisions import IntervalRow, revisions_after, rows_of
from fencepost.outputs.table.staged_rows import StagedMisfit, check_staged, schema_of
from fencepost.outputs.table.values import CurrentKeys, TablePublication
from fencepost.postgres.connection import Session, StatementFailed
from fencepost.rows.writer import added


class AnotherTable(Exception):
    """The table was dropped, or another table has its name. The table has to be created, or compared with the ledger,
    before a commit.
    """


class RowsRefused(Exception):
    """The server refused the batch's rows. With `removing`, it refused to remove the rows that the batch replaces.

    `failed` is the server's error. It is None if values cannot be converted to the types of the columns, and then `why`
    says so. `place` is the staged record of the refused row: its partition, and the number of the batch's records before
    it in that partition. `place` is None if the server did not name the row.
    """

    def __init__(self, failed: StatementFailed | None, *, removing: bool = False, why: str = "", row: int = 0) -> None:
        super().__init__(why if failed is None else failed.sqlstate)
        self.failed, self.removing, self.why = failed, removing, why
        self.row = row if failed is None else failed.row  # from 1; 0 if it is not known
        self.place: tuple[int, int] | None = None


def commit_batch(table: PipelineTable, shape: TableShape, batch: Batch) -> CurrentKeys | None:
    """Commits the batch, unless it is committed already. Returns what its commit did in the current table, or None if
    there is none:

    1. lock the interval's row, and lock the table so that it is not dropped or swapped;
    2. compare the row: committed already, given up, overtaken, of another ledger, or of another owner;
    3. check that the table may be published to; read the ledger under the lock, and check that the publication is still under
       way and that the table has what an addition adds to;
    4. remove the rows that the batch replaces, copy the staged records in, and compare the fingerprint of the bytes read. Where
       values have to be converted, copy the records into a temporary table, compare, check the values, and insert them;
    5. run deferred checks and triggers, count the interval's rows, and check the table again, because a partition may have been
       attached meanwhile;
    6. bring the current table up to date, under a lock of its own (`current.py`);
    7. write the row, and commit.

    Raises:
        AnotherTable: another table has the name now.
        RowsRefused: the server refuses the rows.
        KeysRefused, CurrentRefused: the current table cannot take them.
    """
    with locked(table.pipeline, table.name, batch.interval) as (tx, bookkeeping, interval_row):  # 1
        reached("table.locked")
        exists = bookkeeping.oid() is not None
        current = CurrentCommit.of(table.pipeline, table.owner, bookkeeping, batch, interval_row)
        if exists:
            bookkeeping.lock_table()
        is_there = current.lock_table() if exists else True
        if not _may_commit(table, bookkeeping, interval_row, batch, exists=exists):  # 2
            return interval_row.keys
        if not is_there:
            raise AnotherTable
        _check_table(shape, bookkeeping, batch.interval)
        table.check_ledger(interval_row, batch, lambda: bookkeeping.count(batch.interval.start) if exists else {})  # 3
        revisions, keys = revisions_after(interval_row, batch), None
        if exists:
            counts = _counts(bookkeeping, batch)
            # Triggers may rely on policies of other tables. This table hides no rows, which cannot change while it is locked.
            tx.run("SET LOCAL row_security = on")
            _replace(table, shape, tx, bookkeeping, batch, current)  # 4
            with _refusals():
                tx.run("SET CONSTRAINTS ALL IMMEDIATE")
            tx.run("SET LOCAL row_security = off")
            _check_counts(bookkeeping, batch, counts, rows_of(revisions))  # 5
            _check_table(shape, bookkeeping, batch.interval)
            keys = current.finish()  # 6
        bookkeeping.record(batch, batch.publication_as(TablePublication), revisions, _sources(batch), keys)  # 7
        reached("table.copied")
        with _refusals():
            tx.commit()
        reached("table.committed")
        return keys


def _may_commit(
    table: PipelineTable, bookkeeping: Bookkeeping, interval_row: IntervalRow, batch: Batch, *, exists: bool
) -> bool:
    """Returns whether the publication still has to be committed. Returns False if it is committed."""
    registered = cache(partial(bookkeeping.registered, lock=True))

    def owner() -> Owner | None:
        found = registered()
        return None if found is None else found.owner

    if not table.has_to_commit(interval_row, batch, owner):
        return False
    known = registered()
    assert known is not None, "a table without an owner is refused"
    if known.oid != bookkeeping.oid() or (batch.require_written.rows and not exists):
        raise AnotherTable
    return True


def _check_table(shape: TableShape, bookkeeping: Bookkeeping, interval: Interval) -> None:
    if (oid := bookkeeping.oid()) is not None:
        shape.check(bookkeeping.session, oid, interval)


def _replace(
    table: PipelineTable,
    shape: TableShape,
    tx: Session,
    bookkeeping: Bookkeeping,
    batch: Batch,
    current: CurrentCommit,
) -> None:
    """Replaces the interval's rows by the rows of the batch."""
    written, start = batch.require_written, batch.interval.start
    oid, schema = bookkeeping.oid(), schema_of(written.value_schema)
    assert oid is not None, "the table is locked"
    if written.rows and shape.adds:
        # Before rows are removed: the server does not alter a table with deferred checks of references.
        added = missing(schema, bookkeeping.columns(oid))
        current.add_columns(schema, added)
        bookkeeping.add_columns(added)
    current.begin()
    with _refusals(removing=True):
        bookkeeping.remove(batch, current.keys)
    if not written.rows:
        return
    shape.refuse(bookkeeping.why_not_accepted(oid, schema, add=False))
    columns, into, temporary = bookkeeping.columns(oid), (bookkeeping.schema, bookkeeping.name), None
    if casts_of(schema, columns):
        temporary, into = TemporaryTable(tx, schema, columns), TemporaryTable.place
        temporary.create()
    staged = StagedRows(table.deployment, batch)
    rows = Rows(schema, columns, start, batch.revision, temporary.number if temporary else "")
    try:
        with _refusals():
            tx.copy(*into, pa.RecordBatchReader.from_batches(rows.schema, staged.batches(rows)))
    except RowsRefused as refused:
        refused.place = staged.place(refused.row)
        raise
    except TableUnavailable:
        if staged.failed is None:
            raise
    if isinstance(staged.failed, StagedMisfit):
        raise RecordRefused(f"batch {batch.id}: a staged record does not fit table {table.name}: {staged.failed}.")
    if staged.failed is not None:
        raise staged.failed
    check_staged(batch, staged.rows, staged.fingerprint)
    if temporary is not None:
        _convert(temporary, bookkeeping, staged)


def _convert(temporary: TemporaryTable, bookkeeping: Bookkeeping, staged: StagedRows) -> None:
    """Checks the rows of the temporary table, and inserts them into the output table."""
    reached("table.staged")
    try:
        with _refusals():
            temporary.check()
    except Unconvertible as error:
        refused = RowsRefused(None, why=str(error), row=error.row)
        refused.place = staged.place(refused.row)
        raise refused from None
    with _refusals():
        temporary.insert_into(bookkeeping.quoted)


@dataclass(frozen=True)
class _Counts:
    """The triggers and rules of a table, by name. If there are any, the counts also have the number of the interval's
    rows, and the table's growth in this transaction.
    """

    acts: str = ""
    rows: int = 0
    grown: int | None = None


def _counts(bookkeeping: Bookkeeping, batch: Batch) -> _Counts:
    """Returns the table's counts before the batch is copied in. Only a table with triggers or rules needs these counts."""
    if not (acts := bookkeeping.what_acts()):
        return _Counts()
    return _Counts(acts, sum(bookkeeping.count(batch.interval.start).values()), bookkeeping.grown())


def _check_counts(bookkeeping: Bookkeeping, batch: Batch, before: _Counts, wanted: Mapping[int, int]) -> None:
    """Checks the number of the interval's rows, and that the other intervals have as many rows as before. A rule or
    trigger may keep rows that were removed, add rows, or move rows.

    Raises:
        TableRefused: a number of rows is wrong.
    """
    counted = bookkeeping.count(batch.interval.start)
    now, at_first = bookkeeping.grown() if before.acts else None, before.grown
    others = 0
    if now is not None and at_first is not None:
        others = now - at_first - (sum(counted.values()) - before.rows)
    if counted == wanted and not others:
        return
    contents = f"{describe_rows(counted)} of its interval instead of {describe_rows(wanted)}"
    if counted == wanted:
        more = "more" if others > 0 else "fewer"
        contents = f"{count_of(abs(others), f'{more} row')} in other intervals than before"
    acts = before.acts
    cure = (
        f"The table has {acts}: remove those that keep, add, move or leave out rows"
        if acts
        else "Another session writes to the table: stop it"
    )
    raise TableRefused(
        f"batch {batch.id}: with this batch, table {bookkeeping.table} would hold {contents}. Nothing was changed. "
        f"{cure}, and run again."
    )


@contextmanager
def _refusals(*, removing: bool = False) -> Iterator[None]:
    """Raises RowsRefused for an error that is about the rows. Other errors are unchanged."""
    try:
        yield
    except StatementFailed as failed:
        if failed.is_of_rows:
            raise RowsRefused(failed, removing=removing) from None
        raise


class StagedRows:
    """Reads a batch's staged records and counts them."""

    def __init__(self, deployment: Deployment, batch: Batch) -> None:
        self._deployment, self._batch = deployment, batch
        self.rows = self.fingerprint = 0
        self._runs = list[tuple[int, int]]()  # (partition, number of records) of each run of records of one partition
        self.failed: Exception | None = None  # the error that ended the reading; the driver passes on its text only

    def batches(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yields the rows in the table's types, and counts them."""
        settings, group = self._deployment.cluster.settings, self._deployment.pipeline.group
        batch, ranges = self._batch, self._batch.output_ranges(self._batch.require_written)
        try:
            for staged in read_staged(settings, group, ranges, batch):
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
        """Returns the partition of the row with this number (from 1), and the number of the batch's records before it
        in that partition.
        """
        before, left = Counter[int](), row - 1
        for partition, count in self._runs:
            if 0 <= left < count:
                return partition, before[partition] + left
            before[partition] += count
            left -= count
        return None


def _sources(batch: Batch) -> str:
    return json.dumps([source.model_dump(mode="json") for source in batch.plan.inputs])
