"""The output as a PostgreSQL table. A staged batch is published in one commit, with the interval's row (`commit.py`).

Methods that only read see committed rows and lock nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial

from pyspark.sql import SparkSession

from fencepost.errors import (
    AccessDenied,
    CommitStateUnknown,
    FencepostError,
    TableRefused,
    TableRefusedData,
    TableUnavailable,
)
from fencepost.kafka.staged import offset_of_staged
from fencepost.ledger.completeness import Named
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Interval
from fencepost.outputs.output import Ending, OpenOutput
from fencepost.outputs.postgres.bookkeeping import MOST, Bookkeeping
from fencepost.outputs.postgres.columns import INTERVAL
from fencepost.outputs.postgres.commit import AnotherTable, RowsRefused, commit_batch
from fencepost.outputs.postgres.current import CurrentRefused, KeysRefused, current_settings
from fencepost.outputs.postgres.current_rebuild import PostgresCurrent
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.postgres.lock import locked, publishers_of
from fencepost.outputs.postgres.refusals import Refusal, refusal_of
from fencepost.outputs.postgres.shape import TableShape
from fencepost.outputs.postgres.values import PostgresOutput, PostgresPublication
from fencepost.outputs.table.comparison import TableComparison, TableContents, compare, describe_differences
from fencepost.outputs.table.pipeline_table import LOST, CommitBeginning, CommitEnding, PipelineTable, ending_found
from fencepost.outputs.table.revisions import IntervalRow, TableStanding, TableState, differing, standing_of, takes_over
from fencepost.outputs.table.staged_rows import schema_of
from fencepost.postgres.connection import ASK_SECONDS, StatementFailed, asking, describe_server, session
from fencepost.postgres.sqlstates import CANCELLED
from fencepost.protocol.advice import after_data_refused
from fencepost.protocol.obstacle import AbandonedPublication, ObservedState
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.outputs.postgres")


class PostgresTable:
    """An `Output` that is a PostgreSQL table."""

    offsets = None  # a commit to the table is the truth, so it needs no marks
    topics = ()

    def __init__(self, deployment: Deployment, table: str) -> None:
        self._deployment, self._pipeline, self._table = deployment, deployment.pipeline, table
        if not self._pipeline.postgres:
            raise TableRefused(
                f"pipeline {self._pipeline.name}: its output was table {table}, and pipeline.yaml no longer has postgres:. "
                "Add it again to finish the batches that were planned for the table."
            )
        self._where = describe_server(self._pipeline)
        self._of = PipelineTable(deployment, table)
        self._shape = TableShape(self._of)

    @property
    def columns(self) -> TableShape:
        """Returns the check of a result's columns."""
        return self._shape

    @property
    def contents(self) -> PostgresTable:
        """Returns the comparison with the ledger."""
        return self

    @property
    def current(self) -> PostgresCurrent | None:
        """Returns the current table, if `output.current` names one."""
        settings = current_settings(self._pipeline, self._table)
        return PostgresCurrent(self._of, self._shape, settings, self.compared) if settings is not None else None

    def prepare(self) -> None:
        """Creates the store's own tables, and registers the output table for this pipeline and cluster, even before it
        exists.
        """
        self._shape.prepare()

    def move_here(self, view: View) -> None:
        """Registers the table for this cluster. From then on attempts on the pipeline's earlier cluster are refused."""
        with session(self._pipeline) as tx:
            bookkeeping = Bookkeeping(tx, self._table)
            self._of.check_known(view, bookkeeping.rows() if bookkeeping.is_prepared() else [])
        self._shape.prepare(moved=True)

    def planned(self) -> PostgresOutput:
        """Returns the table's name, as a plan freezes it. A staged batch does not depend on the table itself."""
        return PostgresOutput(table=self._table)

    def newest_batches(self) -> Iterator[Named]:
        """Returns the last committed batch of each interval."""
        with session(self._pipeline) as tx:
            bookkeeping = Bookkeeping(tx, self._table)
            names = list(bookkeeping.named()) if bookkeeping.is_prepared() else []
        own = f"{self._pipeline.name}/"
        return ((name, f"table {self._table}") for name in names if name.startswith(own))

    def check_keeps(self, interval: Interval) -> None:
        """Raises TableRefused if the table exists and may not be published to. The write job checks the types later."""
        with session(self._pipeline) as tx:
            if (oid := Bookkeeping(tx, self._table).oid()) is not None:
                self._shape.check(tx, oid, interval)

    def ready(self, batch: Batch) -> CommitBeginning:
        """Checks the present table, which the publication goes to, and creates the table if it is missing."""
        self._create_for(batch)
        return CommitBeginning(PostgresPublication, self._table, self._deployment.ledger.topic_id)

    def _create_for(self, batch: Batch) -> None:
        self._shape.check_result(batch.interval, schema_of(batch.require_written.value_schema))

    def state(self, batch: Batch, *, publishing: bool) -> TableState | None:
        """Returns the state of the table and of the batch's publication, by committed rows. It does not disturb an
        attempt that is under way.
        """
        if not publishing:
            return None
        with asking(self._pipeline) as tx:
            bookkeeping = Bookkeeping(tx, self._table)
            if not bookkeeping.is_prepared():
                return TableState(lost=LOST)
            interval_row, known = bookkeeping.row(batch.interval.start), bookkeeping.registered()
            lost = self._of.why_lost(known.owner if known is not None else None)
            standing = standing_of(interval_row, batch.publication_as(PostgresPublication))
            return TableState(standing, interval_row.refused, lost, {"current": interval_row.keys})

    def committed(self, batch: Batch, found: ObservedState) -> Ending | None:
        """Returns the end of the publication, if the interval's row shows that it is committed, otherwise None."""
        return ending_found(batch, found)

    def publish(self, batch: Batch, spark: SparkSession | None) -> Ending:
        """Commits the batch, unless it is committed already.

        If the response to the commit is lost, the interval's row shows the outcome. Locking that row waits for a commit
        under way.
        """
        try:
            try:
                keys = commit_batch(self._of, self._shape, batch)
            except AnotherTable:
                self._create_for(batch)
                keys = commit_batch(self._of, self._shape, batch)
            return CommitEnding(batch, {"current": keys})
        except AnotherTable:
            raise TableUnavailable(f"table {self._table} was dropped or created again meanwhile. Run again.") from None
        except CommitStateUnknown:
            with locked(self._pipeline, self._table, batch.interval) as (_, _, interval_row):
                standing = standing_of(interval_row, batch.publication_as(PostgresPublication))
            if standing is not TableStanding.DONE:
                raise TableUnavailable(
                    f"batch {batch.id}: {self._where} did not answer the commit and has not committed it. Run again."
                ) from None
            return CommitEnding(batch, {"current": interval_row.keys})
        except RowsRefused as refused:
            return self._refused(batch, f"table {self._table}", self._refusal(batch, refused))
        except CurrentRefused as refused:
            with session(self._pipeline) as tx:
                refusal = refusal_of(tx, refused.oid, refused.failed, removing=refused.removing, is_current=True)
            return self._refused(batch, f"current table {refused.table}", refusal)
        except KeysRefused as refused:
            return self._refused(batch, f"current table {refused.table}", Refusal(str(refused)))

    def _refused(self, batch: Batch, who: str, refusal: Refusal) -> Ending:
        """Closes a publication that a table has refused. Returns its end if another attempt has committed it.

        Raises:
            TableRefused: the table is to be changed.
            TableRefusedData: the table does not accept the batch's rows.
        """
        if not refusal.of_rows:
            raise TableRefused(f"batch {batch.id}: {who}: {refusal.why}. Nothing was committed.") from None
        # The message in the ledger names the output table already.
        why = refusal.why if who == f"table {self._table}" else f"{who}: {refusal.why}"
        interval_row = self._close(batch, why)
        if standing_of(interval_row, batch.publication_as(PostgresPublication)) is TableStanding.DONE:
            return CommitEnding(
                batch, {"current": interval_row.keys}
            )  # another attempt was faster, and the table accepted its rows
        message = f"batch {batch.id}: {who} refused its data: {refusal.why}. {after_data_refused(batch)}"
        raise TableRefusedData(message, why) from None

    def publishers(self, interval: Interval) -> list[str]:
        """Returns the sessions that publish into the interval, as text."""
        return publishers_of(self._pipeline, self._table, interval)

    def _refusal(self, batch: Batch, refused: RowsRefused) -> Refusal:
        record = self._record_of(batch, refused)
        if refused.failed is None:
            return Refusal(f"{refused.why}{f'; the first is {record}' if record else ''}")
        with session(self._pipeline) as tx:
            oid = Bookkeeping(tx, self._table).oid()
            if oid is None:
                raise TableUnavailable(f"batch {batch.id}: table {self._table} was dropped meanwhile. Run again.")
            return refusal_of(tx, oid, refused.failed, removing=refused.removing, record=record)

    def _record_of(self, batch: Batch, refused: RowsRefused) -> str:
        """Returns the staged record of the refused row, for a message. The text is empty if the server did not name the
        row, or if Kafka no longer has the record.
        """
        if refused.place is None:
            return ""
        partition, number = refused.place
        topic, cluster = batch.require_staging.topic, self._deployment.cluster
        (part,) = [one for one in batch.output_ranges(batch.require_written) if one.partition == partition]
        try:
            offset = offset_of_staged(cluster.settings, self._pipeline.group, part, batch, number)
        except FencepostError as error:
            log.warning("batch %s: the refused row was not looked for in topic %s: %s", batch.id, topic, error)
            return ""
        return "" if offset is None else f"the record in topic {topic}, partition {partition}, offset {offset}"

    def _close(self, batch: Batch, refused: str = "") -> IntervalRow:
        """Closes the publication in the interval's row, so that every later attempt is refused. Returns the row as it was
        before that.
        """
        publication = batch.publication_as(PostgresPublication)
        with session(self._pipeline) as tx:
            is_prepared = Bookkeeping(tx, self._table).is_prepared()
        if not is_prepared:
            return IntervalRow(batch.interval.start)  # without the store's tables a late attempt cannot commit either
        with locked(self._pipeline, self._table, batch.interval) as (tx, bookkeeping, interval_row):
            standing, known = standing_of(interval_row, publication), bookkeeping.registered()
            lost = self._of.why_lost(known.owner if known is not None else None)
            # A table that now belongs to another pipeline refuses each attempt, and its row is about that pipeline's batch.
            if not lost and takes_over(standing, publication, self._deployment.ledger.topic_id):
                bookkeeping.close(batch, publication, refused)
                tx.commit()
        return interval_row

    def give_up(self, batch: Batch, found: ObservedState) -> AbandonedPublication | None:
        """Closes the publication under the lock, so that a late commit is refused. Readers have seen nothing of this
        publication.

        Raises:
            TableUnavailable, TableRefused, AccessDenied: the table's database does not answer, although giving up needs
                its answer.
        """
        try:
            standing = standing_of(self._close(batch), batch.publication_as(PostgresPublication))
        except (TableUnavailable, TableRefused, AccessDenied) as error:
            raise type(error)(
                f"{error} Batch {batch.id} cannot be given up without an answer of the table's database, because an attempt may "
                "have committed there. If that database is gone for good, name another one in postgres: (a restored copy or an "
                "empty one), and run the same command again."
            ) from error
        if standing is TableStanding.DONE:
            return None
        log.info("batch %s: its publication to table %s is given up", batch.id, self._table)
        return AbandonedPublication(lease=batch.require_publication.require_lease, seen=0)

    def missing_batches(self, read: Callable[[], View]) -> str:
        """Returns the published batches that the table lacks. The method compares the store's rows, and the intervals
        that have rows in the table.
        """
        stale = self.current.why_stale() if self.current is not None else ""
        return ". ".join(filter(None, (self.compared(read).missing_batches, stale)))

    def compared(self, read: Callable[[], View]) -> TableComparison:
        """Compares the table with what the ledger has published there."""
        return compare(self._of, read, self._contents, self._removal)

    def counted(self, view: View) -> str | None:
        """Returns the intervals whose number of rows differs from what was published, with the commands that repair
        them. It counts the whole table. The text is empty if there are none. Returns None if the count took longer than
        `ASK_SECONDS`.
        """
        with asking(self._pipeline) as tx:
            bookkeeping = Bookkeeping(tx, self._table)
            if bookkeeping.oid() is None or not bookkeeping.is_prepared():
                return ""
            try:
                # An interval without any rows is reported by `missing_batches`.
                differs = [one for one in bookkeeping.differences() if one.has]
            except StatementFailed as failed:
                if failed.sqlstate == CANCELLED:
                    return None
                raise
        return describe_differences(self._of, view, differs)

    def _removal(self, starts: Sequence[datetime]) -> str:
        listed = ", ".join(f"'{start.isoformat()}'" for start in starts[:MOST])
        return f"DELETE FROM {quoted(*self._table.split('.', 1))} WHERE {quoted(INTERVAL)} IN ({listed})"

    def _contents(self, view: View) -> TableContents:
        with asking(self._pipeline) as tx:
            bookkeeping = Bookkeeping(tx, self._table)
            if not bookkeeping.is_prepared():
                return TableContents(differs=partial(differing, table=self._table, interval_row={}, filled=set()))
            oid, known = bookkeeping.oid(), bookkeeping.registered()
            filled = self._filled(bookkeeping, oid) if oid is not None else set()
            owner, interval_row = (
                known.owner if known is not None else None,
                {interval_row.start: interval_row for interval_row in bookkeeping.rows()},
            )
            differs = partial(differing, table=self._table, interval_row=interval_row, filled=filled)
            lacking = {batch.interval.start for batch in differs(view)} - filled
            without = bookkeeping.without_partition(oid, lacking) if oid is not None else set()
            return TableContents(owner, interval_row, differs, without)

    def _filled(self, bookkeeping: Bookkeeping, oid: int) -> set[datetime]:
        unindexed = bookkeeping.unindexed(oid)
        try:
            return bookkeeping.filled(oid)
        except StatementFailed as failed:
            if failed.sqlstate != CANCELLED or not unindexed:
                raise
            raise TableUnavailable(
                f"{self._where}: reading table {self._table} took more than {ASK_SECONDS} s, because it has no index on its "
                f"intervals. Create the index that `fencepost doctor {self._pipeline.name}` prints, then run again."
            ) from None


OUTPUT: OpenOutput = PostgresTable
