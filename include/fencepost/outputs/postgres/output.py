"""The output as a table of PostgreSQL: a staged batch gets there in one commit, with what says so (`commit.py`).

Who only asks reads what is committed, and locks nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from fencepost.errors import (
    CommitStateUnknown,
    FencepostError,
    StoreRefused,
    StoreUnavailable,
    TableRefusedData,
)
from fencepost.kafka.staged import offset_of_staged
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.lost import Named
from fencepost.model import Batch, Interval, utc_now
from fencepost.outputs.output import Begin, OpenOutput, Record
from fencepost.outputs.postgres.columns import INTERVAL, schema_of
from fencepost.outputs.postgres.commit import AnotherTable, RowsRefused, commit_batch
from fencepost.outputs.postgres.connection import ASK_SECONDS, StatementFailed, asking, session, told
from fencepost.outputs.postgres.lock import locked, publishers_of
from fencepost.outputs.postgres.names import quoted
from fencepost.outputs.postgres.refusals import Refusal, refusal_of
from fencepost.outputs.postgres.shape import TableShape
from fencepost.outputs.postgres.sqlstates import CANCELLED
from fencepost.outputs.postgres.store import MOST, Store
from fencepost.outputs.postgres.values import PostgresOutput, PostgresPublication
from fencepost.outputs.table.comparison import TableComparison, TableContents, compare, told_differences
from fencepost.outputs.table.pipeline_table import LOST, PipelineTable, recorded
from fencepost.outputs.table.revisions import TableStanding, TableState, differing, standing_of, takes_over
from fencepost.protocol.advice import after_table_refused
from fencepost.protocol.obstacle import Found, GivenUp
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.outputs.postgres")


class PostgresTable:
    """An `Output` that is a table."""

    offsets = None  # its commit is the truth of what is there
    topics = ()

    def __init__(self, ledger: Ledger, table: str) -> None:
        self._ledger, self._pipeline, self._table = ledger, ledger.pipeline, table
        if not self._pipeline.postgres:
            raise StoreRefused(
                f"pipeline {self._pipeline.name}: its output was table {table}, and pipeline.yaml has no postgres: any more. "
                "Put it back to finish what was planned for the table."
            )
        self._where = told(self._pipeline)
        self._of = PipelineTable(ledger, table)
        self._shape = TableShape(self._of)

    @property
    def columns(self) -> PostgresTable:
        """Its columns, which are compared with a result's."""
        return self

    @property
    def contents(self) -> PostgresTable:
        """Its rows, which are compared with the ledger."""
        return self

    def prepare(self) -> None:
        """Make the store's own tables, and register the table as this pipeline's on this cluster, whether or not it exists."""
        self._shape.prepare()

    def move_here(self, view: View) -> None:
        """The table was the pipeline's on another cluster; from now on attempts there are refused."""
        with session(self._pipeline) as tx:
            store = Store(tx, self._table)
            self._of.check_known(view, store.rows() if store.is_prepared() else [])
        self._shape.prepare(moved=True)

    def planned(self) -> PostgresOutput:
        """Its name: a staged batch depends on no table."""
        return PostgresOutput(table=self._table)

    def newest_batches(self) -> Iterator[Named]:
        """The batch that was committed last of each interval."""
        with session(self._pipeline) as tx:
            store = Store(tx, self._table)
            names = list(store.named()) if store.is_prepared() else []
        own = f"{self._pipeline.name}/"
        return ((name, f"table {self._table}") for name in names if name.startswith(own))

    def check_keeps(self, interval: Interval) -> None:
        """Whether the table may be published to, if it is there. Types are known in the write job."""
        with session(self._pipeline) as tx:
            if (oid := Store(tx, self._table).oid()) is not None:
                self._shape.check(tx, oid, interval)

    def check_result(self, interval: Interval, schema: t.StructType) -> None:
        """Make the table for these columns if it is missing; raise StoreRefused, with statements that would do, if it differs."""
        self._shape.settle(interval, schema)

    def would_take(self, interval: Interval | None, schema: t.StructType) -> str:
        """By a look at the catalogue, in a transaction that cannot write."""
        return self._shape.would_take(interval, schema)

    def ready(self, batch: Batch) -> Begin:
        """The publication is to the table as it is now."""
        self._settle_for(batch)
        ledger = self._ledger.topic_id
        return lambda view, batch: PostgresPublication(table=self._table, ledger=ledger, begun_at=utc_now())

    def _settle_for(self, batch: Batch) -> None:
        self._shape.settle(batch.interval, schema_of(batch.known_written.value_schema))

    def state(self, batch: Batch, *, publishing: bool) -> TableState | None:
        """Where its publication stands, by what is committed: an attempt that is under way goes on."""
        if not publishing:
            return None
        with asking(self._pipeline) as tx:
            store = Store(tx, self._table)
            if not store.is_prepared():
                return TableState(lost=LOST)
            held, known = store.row(batch.interval.start), store.registered()
            lost = self._of.why_lost(known.owner if known is not None else None)
            return TableState(standing_of(held, batch.publication_as(PostgresPublication)), held.refused, lost)

    def committed(self, batch: Batch, found: Found) -> Record | None:
        """By the row of its interval."""
        done = isinstance(found.output, TableState) and found.output.standing is TableStanding.DONE
        return recorded(batch) if done else None

    def publish(self, batch: Batch, spark: SparkSession | None) -> Record:
        """Commit the batch, or find it committed.

        After a lost answer the row says what happened. It is locked for that, which waits for a commit that is still under way.
        """
        try:
            try:
                commit_batch(self._of, self._shape, batch)
            except AnotherTable:
                self._settle_for(batch)
                commit_batch(self._of, self._shape, batch)
        except AnotherTable:
            raise StoreUnavailable(f"table {self._table} was dropped, or made anew, meanwhile. Run again.") from None
        except CommitStateUnknown:
            with locked(self._pipeline, self._table, batch.interval) as (_, _, held):
                standing = standing_of(held, batch.publication_as(PostgresPublication))
            if standing is not TableStanding.DONE:
                raise StoreUnavailable(
                    f"batch {batch.id}: {self._where} did not answer the commit, and has not committed. Run again."
                ) from None
        except RowsRefused as refused:
            refusal = self._refusal(batch, refused)
            if not refusal.of_rows:
                raise StoreRefused(
                    f"batch {batch.id}: table {self._table}: {refusal.why}. Nothing was committed."
                ) from None
            why = refusal.why
            if self._close(batch, why) is TableStanding.DONE:
                return recorded(batch)  # another attempt was faster, and the table took it from that
            message = f"batch {batch.id}: table {self._table} refused its data: {why}. {after_table_refused(batch)}"
            raise TableRefusedData(message, why) from None
        return recorded(batch)

    def publishers(self, interval: Interval) -> list[str]:
        """The sessions that publish into the interval, or wait to, for a person."""
        return publishers_of(self._pipeline, self._table, interval)

    def _refusal(self, batch: Batch, refused: RowsRefused) -> Refusal:
        record = self._record_of(batch, refused)
        with session(self._pipeline) as tx:
            oid = Store(tx, self._table).oid()
            if oid is None:
                raise StoreUnavailable(f"batch {batch.id}: table {self._table} was dropped meanwhile. Run again.")
            return refusal_of(tx, oid, refused.failed, removing=refused.removing, record=record)

    def _record_of(self, batch: Batch, refused: RowsRefused) -> str:
        """Which staged record the refused row is, for a person; empty where the server or Kafka does not tell."""
        if refused.place is None:
            return ""
        partition, number = refused.place
        topic, ledger = batch.known_staging.topic, self._ledger
        (part,) = [one for one in batch.output_ranges(batch.known_written) if one.partition == partition]
        try:
            offset = offset_of_staged(ledger.settings, self._pipeline.group, part, batch, number)
        except FencepostError as error:
            log.warning("batch %s: the refused row was not looked for in topic %s: %s", batch.id, topic, error)
            return ""
        return "" if offset is None else f"the record in topic {topic}, partition {partition}, offset {offset}"

    def _close(self, batch: Batch, refused: str = "") -> TableStanding:
        """Have the interval's row refuse every later attempt at the publication; where it stood before."""
        publication = batch.publication_as(PostgresPublication)
        with session(self._pipeline) as tx:
            is_prepared = Store(tx, self._table).is_prepared()
        if not is_prepared:
            return TableStanding.OPEN  # an attempt that comes late finds no such table either
        with locked(self._pipeline, self._table, batch.interval) as (tx, store, held):
            standing, known = standing_of(held, publication), store.registered()
            lost = self._of.why_lost(known.owner if known is not None else None)
            # A table that is another's by now refuses each attempt, and its row says what that other has published.
            if not lost and takes_over(standing, publication, self._ledger.topic_id):
                store.close(batch, publication, refused)
                tx.commit()
        return standing

    def give_up(self, batch: Batch, found: Found) -> GivenUp | None:
        """Close the publication under the lock, so that a commit that comes late is refused. Readers have seen nothing of it."""
        if self._close(batch) is TableStanding.DONE:
            return None
        log.info("batch %s: its publication to table %s is given up", batch.id, self._table)
        return GivenUp(lease=batch.known_publication.known_lease, seen=0)

    def missing_batches(self, read: Callable[[], View]) -> str:
        """By the rows of all intervals, and by the intervals of which the table has a row."""
        return self.compared(read).lacks

    def compared(self, read: Callable[[], View]) -> TableComparison:
        """What the table has, beside what the ledger has published there."""
        return compare(self._of, read, self._contents, self._removal)

    def counted(self, view: View) -> str | None:
        """Where rows of an interval are not those that were published there, by a count of all of the table, with the commands
        that bring them back; empty if nowhere, None if it took longer than `ASK_SECONDS`."""
        with asking(self._pipeline) as tx:
            store = Store(tx, self._table)
            if store.oid() is None or not store.is_prepared():
                return ""
            try:
                differs = [
                    one for one in store.differences() if one.has
                ]  # of one that has none, `missing_batches` tells
            except StatementFailed as failed:
                if failed.sqlstate == CANCELLED:
                    return None
                raise
        return told_differences(self._of, view, differs)

    def _removal(self, starts: Sequence[datetime]) -> str:
        listed = ", ".join(f"'{start.isoformat()}'" for start in starts[:MOST])
        return f"DELETE FROM {quoted(*self._table.split('.', 1))} WHERE {quoted(INTERVAL)} IN ({listed})"

    def _contents(self, view: View) -> TableContents:
        with asking(self._pipeline) as tx:
            store = Store(tx, self._table)
            if not store.is_prepared():
                return TableContents(differs=differing(view, self._table, {}, set()))
            oid, known = store.oid(), store.registered()
            filled = self._filled(store, oid) if oid is not None else set()
            owner, held = known.owner if known is not None else None, {held.start: held for held in store.rows()}
            differs = differing(view, self._table, held, filled)
            lacking = {batch.interval.start for batch in differs} - filled
            without = store.without_partition(oid, lacking) if oid is not None else set()
            return TableContents(owner, held, filled, differs, without)

    def _filled(self, store: Store, oid: int) -> set[datetime]:
        unindexed = store.unindexed(oid)
        try:
            return store.filled(oid)
        except StatementFailed as failed:
            if failed.sqlstate != CANCELLED or not unindexed:
                raise
            raise StoreUnavailable(
                f"{self._where}: table {self._table} was not read to its end in {ASK_SECONDS} s. No index of it finds an "
                f"interval: `fencepost doctor {self._pipeline.name}` prints the statement that makes one. Then ask again."
            ) from None


OUTPUT: OpenOutput = PostgresTable
