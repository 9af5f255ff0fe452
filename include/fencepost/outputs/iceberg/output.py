"""The output as an Iceberg table. A staged batch is published as one snapshot, with the interval's row (`commit.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pyiceberg.table import Table, TableProperties
from pyspark.sql import SparkSession

from fencepost.errors import AccessDenied, TableRefused, TableRefusedData, TableUnavailable
from fencepost.ledger.completeness import Named
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Interval
from fencepost.outputs.iceberg.commit import AnotherLakeTable, claim, close, commit_batch, create
from fencepost.outputs.iceberg.files_in_base import FileInBase, all_files, interval_rows, rows_by_revision
from fencepost.outputs.iceberg.lake_table import LakeTable, base_of
from fencepost.outputs.iceberg.retries import loaded
from fencepost.outputs.iceberg.shape import LakeShape
from fencepost.outputs.iceberg.table_base import Base, differing_in, snapshots_in_force, standing_row, unknown_in
from fencepost.outputs.iceberg.types import new_partition_spec, new_schema
from fencepost.outputs.iceberg.values import IcebergOutput, IcebergPublication
from fencepost.outputs.output import Ending, OpenOutput
from fencepost.outputs.table.comparison import TableContents, compare
from fencepost.outputs.table.pipeline_table import CommitBeginning, CommitEnding, ending_found
from fencepost.outputs.table.revisions import TableStanding, TableState, standing_of
from fencepost.outputs.table.staged_rows import schema_of
from fencepost.protocol.advice import after_data_refused
from fencepost.protocol.obstacle import AbandonedPublication, ObservedState
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.outputs.iceberg")

# Of a table that Fencepost makes. A commit leaves a metadata file, so the older ones are deleted.
NEW_TABLE = {
    TableProperties.FORMAT_VERSION: "2",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}
ANOTHER = "was dropped or created again, so it is another table"


@dataclass(frozen=True)
class Examined:
    """What a table has at main: the published batches of which it lacks rows, the revisions with rows that belong to no
    batch, and its data files.
    """

    missing: str
    unknown: list[str]
    files: list[FileInBase]


class IcebergTable:
    """An `Output` that is an Iceberg table. `lake` is the table in its catalog."""

    offsets = None  # a commit to the table is the truth, so it needs no marks
    current = None
    topics = ()

    def __init__(self, deployment: Deployment, table: str) -> None:
        self._deployment, self._pipeline, self._table = deployment, deployment.pipeline, table
        if not (self._pipeline.iceberg or "iceberg" in self._pipeline.connections):
            raise TableRefused(
                f"pipeline {self._pipeline.name}: its output was table {table}, and pipeline.yaml no longer has iceberg:. "
                "Add it again to finish the batches that were planned for the table."
            )
        self.lake = LakeTable(deployment, table)
        self._of = self.lake.of
        self._shape = LakeShape(self.lake)

    @property
    def columns(self) -> LakeShape:
        """Returns the check of a result's columns."""
        return self._shape

    @property
    def contents(self) -> IcebergTable:
        """Returns the comparison with the ledger."""
        return self

    def prepare(self) -> None:
        """Checks that the table, if it exists, may be this pipeline's. The publication creates and claims it."""
        if (table := self.lake.load()) is not None:
            self._shape.check(table)

    def move_here(self, view: View) -> None:
        """Registers the table for this cluster. From then on attempts on the pipeline's earlier cluster are refused."""
        if (table := self.lake.load()) is None:
            return
        base = base_of(table, self._table)
        if base.owner in {None, self._of.owner}:
            return
        if base.owner is not None and base.owner.pipeline != self._of.owner.pipeline:
            self._of.check_owner(base.owner)
        self._of.check_known(view, list(base.rows.values()))
        claim(self.lake, base.owner)

    def planned(self) -> IcebergOutput:
        """Returns the table's name, as a plan freezes it. A staged batch does not depend on the table itself."""
        return IcebergOutput(table=self._table)

    def newest_batches(self) -> Iterator[Named]:
        """Returns the batches that the rows of the table name."""
        table = self.lake.load()
        rows = base_of(table, self._table).rows.values() if table is not None else ()
        own = f"{self._pipeline.name}/"
        return ((row.batch, f"table {self._table}") for row in rows if row.batch.startswith(own))

    def check_keeps(self, interval: Interval) -> None:
        """Raises TableRefused if the table exists and may not be published to. The write job checks the types later."""
        self.prepare()

    def ready(self, batch: Batch) -> CommitBeginning:
        """Checks the present table, which the publication goes to. Creates it if it is missing, and registers it for
        this pipeline.
        """
        schema = schema_of(batch.require_written.value_schema)
        self._shape.check_supported(schema)
        table = loaded(self.lake)
        if table is None:
            made = new_schema(schema)
            create(self.lake, made, new_partition_spec(made), NEW_TABLE)
            table = self._present()
        self._shape.check_columns(table, schema)
        if base_of(table, self._table).owner is None:
            claim(self.lake, None)
            table = self._present()
            self._shape.check_columns(table, schema)
        made_for = partial(IcebergPublication, uuid=str(table.metadata.table_uuid))
        return CommitBeginning(made_for, self._table, self._deployment.ledger.topic_id)

    def _present(self) -> Table:
        table = loaded(self.lake)
        if table is None:
            raise TableUnavailable(f"table {self._table} was dropped meanwhile. Run again.")
        return table

    def state(self, batch: Batch, *, publishing: bool) -> TableState | None:
        """Returns the state of the table and of the batch's publication. It does not disturb an attempt that is under
        way.
        """
        if not publishing:
            return None
        publication = batch.publication_as(IcebergPublication)
        table = loaded(self.lake)
        if table is None or str(table.metadata.table_uuid) != publication.uuid:
            return TableState(lost=ANOTHER if table is not None else "does not exist any more")
        base = base_of(table, self._table)
        row = standing_row(base, batch, lambda: interval_rows(table, base.main, batch.interval.start))
        lost = self._of.why_lost(base.owner)
        return TableState(standing_of(row, publication), row.refused, lost, {"snapshot": row.snapshot})

    def committed(self, batch: Batch, found: ObservedState) -> Ending | None:
        """Returns the end of the publication, if the interval's row shows that it is committed, otherwise None."""
        return ending_found(batch, found)

    def publish(self, batch: Batch, spark: SparkSession | None) -> Ending:
        """Commits the batch, unless it is committed already."""
        try:
            return CommitEnding(batch, {"snapshot": commit_batch(self.lake, self._shape, batch)})
        except AnotherLakeTable:
            raise TableRefused(f"batch {batch.id}: table {self._table} {ANOTHER}. Nothing was committed.") from None
        except TableRefusedData as refused:
            if close(self.lake, batch, refused.why) is TableStanding.DONE:
                found = self.state(batch, publishing=True)
                return CommitEnding(batch, found.committed if found is not None else {})
            raise TableRefusedData(f"{refused} {after_data_refused(batch)}", refused.why) from None

    def give_up(self, batch: Batch, found: ObservedState) -> AbandonedPublication | None:
        """Closes the publication, so that a late commit is refused. Readers have seen nothing of this publication.

        Raises:
            TableUnavailable, AccessDenied: the catalog does not answer, although giving up needs its answer.
        """
        try:
            standing = close(self.lake, batch)
        except (TableUnavailable, AccessDenied) as error:
            raise type(error)(
                f"{error} Batch {batch.id} cannot be given up without an answer of the table's catalog, because an attempt may "
                "have committed there. If that catalog is gone for good, name another one in iceberg:, and run the same "
                "command again."
            ) from error
        if standing is TableStanding.DONE:
            return None
        log.info("batch %s: its publication to table %s is given up", batch.id, self._table)
        return AbandonedPublication(lease=batch.require_publication.require_lease, seen=0)

    def missing_batches(self, read: Callable[[], View]) -> str:
        """Returns the published batches that the table lacks. If main has the snapshots of all published batches, it has
        them all. Otherwise the rows at main are counted by interval and revision. If they cannot be counted, the text says
        why.
        """
        try:
            return compare(self._of, read, self._contents, self._removal).missing_batches
        except TableRefused as refused:
            return str(refused)

    def examined(self, read: Callable[[], View]) -> Examined:
        """Compares all rows at main with the ledger, in one read of the manifests. So it finds rows that somebody has
        deleted, and rows of nobody.
        """
        files = list[FileInBase]()

        def count(view: View) -> TableContents:
            table = self.lake.load()
            if table is not None:
                files.extend(all_files(table, table.metadata.current_snapshot_id))
            return self._counted(table, files)

        missing = compare(self._of, read, count, self._removal).missing_batches
        return Examined(missing, unknown_in(read(), self._pipeline.name, rows_by_revision(files)), files)

    def _contents(self, view: View) -> TableContents:
        table = self.lake.load()
        if table is not None:
            base = base_of(table, self._table)
            if snapshots_in_force(view, self._table, base.uuid) <= base.ancestors:
                return TableContents(base.owner, base.rows)
            return self._counted(table, all_files(table, base.main))
        return self._counted(None, [])

    def _counted(self, table: Table | None, files: list[FileInBase]) -> TableContents:
        if table is None:
            return TableContents(differs=lambda at: differing_in(at, self._table, Base(""), {}))
        base, counted = base_of(table, self._table), rows_by_revision(files)
        return TableContents(base.owner, base.rows, lambda at: differing_in(at, self._table, base, counted))

    def _removal(self, starts: Sequence[datetime]) -> str:
        listed = ", ".join(f"TIMESTAMP '{start.isoformat()}'" for start in starts)
        return f"DELETE FROM {self._table} WHERE fencepost_interval IN ({listed})"  # noqa: S608  # a statement for a person


OUTPUT: OpenOutput = IcebergTable
