"""Commits a staged batch to its Iceberg table as one snapshot, which also sets the interval's row.

Iceberg has no lock, and the answer to a commit may be lost. So a commit names the base that it was decided on, and every
error leaves its outcome unknown: the next turn reads it from the table. A publication and the end of one that is given up
are the same loop, so one of them finds the other.

A turn has these steps:

1. load the table (`retries.py`): its base and its rows in one read, and compare its UUID and owner;
2. then read the ledger: the publication is still under way, or another attempt has recorded that it is published;
3. look at the row: committed already, given up, or overtaken;
4. write the data files, and compare the rows with the receipts. A later turn uses the files again;
5. name the files of the base that the batch replaces;
6. commit once, if main, the tag, the schema and the spec are still those of the base;
7. after any error wait for a random time, and begin at 1.

Files that a request has named are never deleted here: the request may land later.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from fencepost.errors import (
    RecordRefused,
    TableRefusedData,
    TableUnavailable,
)
from fencepost.failpoints import reached
from fencepost.kafka.staged import read_staged
from fencepost.model import Batch, Tally
from fencepost.outputs.iceberg.catalog import DENIED
from fencepost.outputs.iceberg.data_files import write_data_files
from fencepost.outputs.iceberg.files_in_base import FileInBase, files_of, interval_rows, rows_by_revision
from fencepost.outputs.iceberg.lake_table import LakeTable, base_of
from fencepost.outputs.iceberg.metadata_files import delete_old_metadata
from fencepost.outputs.iceberg.properties import name_of, owner_property, row_property
from fencepost.outputs.iceberg.retries import until_done
from fencepost.outputs.iceberg.rows import IcebergRows, NullRefused
from fencepost.outputs.iceberg.shape import LakeShape
from fencepost.outputs.iceberg.table_base import (
    TAG,
    Base,
    SnapshotRow,
    ended_rows,
    lacking_for,
    recorded_publication,
    standing_row,
)
from fencepost.outputs.iceberg.types import add_missing, missing_columns
from fencepost.outputs.iceberg.values import IcebergPublication
from fencepost.outputs.table.pipeline_table import Owner
from fencepost.outputs.table.revisions import TableStanding, revisions_after, standing_of, takes_over
from fencepost.outputs.table.staged_rows import StagedMisfit, check_staged, schema_of
from fencepost.protocol.view import View
from fencepost.rows.writer import added

log = logging.getLogger("fencepost.outputs.iceberg")

FILES_LAST = timedelta(hours=12)  # files that no snapshot names may be taken for orphans after a day


class AnotherLakeTable(Exception):
    """The table was dropped, or another table has its name."""


class _Prepared(Transaction):
    """Collects the updates of a commit, and never commits them."""

    def commit_transaction(self) -> Table:
        raise AssertionError("a commit is one request, and is sent by `commit_once`")

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """Returns the updates so far."""
        return self._updates


@dataclass(frozen=True)
class _Files:
    """The data files of a batch, for one schema and spec of the table."""

    files: list[DataFile]
    schema: Schema
    spec: PartitionSpec
    written_at: datetime


def commit_batch(lake: LakeTable, shape: LakeShape, batch: Batch) -> int:
    """Commits the batch, unless it is committed already. Returns the id of its snapshot.

    Raises:
        AnotherLakeTable: the table is not the publication's table.
        Superseded: the publication was given up, or has ended.
        TableRefused, AnotherCluster: the table cannot be published to.
        TableRefusedData: the table does not take a row.
        TableUnavailable, AccessDenied: no turn of `TURNS` has committed it.
    """
    return _Publication(lake, shape, batch).commit()


def close(lake: LakeTable, batch: Batch, refused: str = "") -> TableStanding:
    """Closes the batch's publication in the interval's row, so that every later attempt is refused. Returns the standing
    that the publication had before.

    Raises:
        TableUnavailable, AccessDenied: no turn of `TURNS` has closed it.
    """
    publication = batch.publication_as(IcebergPublication)

    def turn(table: Table | None) -> TableStanding | None:
        if table is None or str(table.metadata.table_uuid) != publication.uuid:
            return TableStanding.OPEN  # a late attempt finds that this is not its table
        base = base_of(table, lake.name)
        if base.owner not in {None, lake.of.owner}:
            # Whoever registered itself has moved main. Who only removed the owner has not, so an attempt could still land.
            return TableStanding.OPEN
        reached("lake.based")
        view = lake.of.deployment.ledger.read()
        row = standing_row(base, batch, lambda: interval_rows(table, base.main, batch.interval.start))
        standing = standing_of(row, publication)
        closes = takes_over(standing, publication, lake.of.deployment.ledger.topic_id)
        if not closes and standing is not TableStanding.FOREIGN:
            return standing
        request = _Request(table, base)
        snapshot = request.empty_snapshot({"fencepost.closed": str(batch.id)})
        if closes:  # otherwise the row is another ledger topic's, and it is enough that an earlier base is refused
            request.set_row(_closed(row, batch, publication, refused, snapshot))
        request.remove_rows(ended_rows(view, base, lake.of.deployment.ledger.topic_id), batch)
        return standing if _published(lake, request) else None

    return until_done(lake, f"batch {batch.id}: its publication could not be closed", turn)


def create(lake: LakeTable, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> None:
    """Creates the table and its namespace, unless another attempt has created it meanwhile.

    Raises:
        TableUnavailable, AccessDenied: no turn of `TURNS` has created it.
    """
    *namespace, _ = lake.name.split(".")

    def turn(table: Table | None) -> bool | None:
        if table is not None:
            return True
        try:
            lake.catalog.create_namespace_if_not_exists(tuple(namespace))
            lake.catalog.create_table(lake.name, schema, partition_spec=spec, properties=properties)
        except DENIED:
            raise
        except Exception as error:
            log.warning("table %s: it is not known yet whether it was created: %s", lake.name, type(error).__name__)
            return None
        log.info("table %s was created in %s", lake.name, lake.where)
        return True

    until_done(lake, f"table {lake.name} could not be created", turn)


def claim(lake: LakeTable, known: Owner | None) -> None:
    """Registers the pipeline in the table, in a commit with an empty snapshot, so that main has a base. `known` is the
    owner that the table had. Rows of intervals that a table without an owner has are removed, because they are nobody's.

    Raises:
        TableRefused, AnotherCluster: the table has become somebody else's.
        TableUnavailable, AccessDenied: no turn of `TURNS` has registered it.
    """

    def turn(table: Table | None) -> bool | None:
        if table is None:
            raise TableUnavailable(f"table {lake.name} was dropped meanwhile. Run again.")
        base = base_of(table, lake.name)
        if base.owner == lake.of.owner:
            return True
        if base.owner != known:
            lake.of.check_owner(base.owner)
        request = _Request(table, base)
        request.empty_snapshot({"fencepost.owner": str(lake.of.owner)})
        request.set_properties(owner_property(lake.of.owner))
        if known is None:
            request.remove_rows([*base.rows])
        return commit_once(lake, request) or None

    until_done(lake, f"table {lake.name} could not be registered for its pipeline", turn)


def _closed(row: SnapshotRow, batch: Batch, into: IcebergPublication, refused: str, snapshot: int) -> SnapshotRow:
    return replace(
        row,
        start=batch.interval.start,
        end=batch.interval.end,
        ledger=into.ledger,
        lease=into.require_lease,
        closed=True,
        refused=refused,
        snapshot=snapshot,
    )


class _Request:
    """A commit to a table on one base."""

    def __init__(self, table: Table, base: Base) -> None:
        self.table, self.base = table, base
        self.prepared = _Prepared(table)

    @property
    def requirements(self) -> tuple[TableRequirement, ...]:
        """Returns what has to hold of the table at the commit."""
        metadata = self.table.metadata
        # A table without snapshots has no tag, and pyiceberg lets nobody ask for one.
        tag = (AssertRefSnapshotId(ref=TAG, snapshot_id=self.base.tag),) if metadata.snapshots else ()
        return (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=self.base.main),
            *tag,
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """Returns the changes to the table."""
        return self.prepared.updates

    def empty_snapshot(self, summary: dict[str, str]) -> int:
        """Adds a snapshot with the files of the base. Returns its id."""
        return self.snapshot([], [], summary)

    def snapshot(self, files: Sequence[DataFile], replaced: Sequence[FileInBase], summary: dict[str, str]) -> int:
        """Adds a snapshot with new files, and without the replaced ones. Returns its id."""
        update = self.prepared.update_snapshot(snapshot_properties=summary)
        producer = update.overwrite() if replaced else update.merge_append() if files else update.fast_append()
        for one in replaced:
            producer.delete_data_file(one.file)
        for file in files:
            producer.append_data_file(file)
        producer.commit()
        self._add(
            SetSnapshotRefUpdate(
                ref_name=TAG,
                type=SnapshotRefType.TAG,
                snapshot_id=producer.snapshot_id,
                max_ref_age_ms=None,
                max_snapshot_age_ms=None,
                min_snapshots_to_keep=None,
            )
        )
        return producer.snapshot_id

    def set_row(self, row: SnapshotRow) -> None:
        """Sets an interval's row."""
        self.set_properties(row_property(row))

    def set_properties(self, properties: dict[str, str]) -> None:
        """Sets properties of the table."""
        self._add(SetPropertiesUpdate(updates=properties))

    def remove_rows(self, starts: Sequence[datetime], batch: Batch | None = None) -> None:
        """Removes the rows of intervals, except the batch's own."""
        if names := [name_of(start) for start in starts if batch is None or start != batch.interval.start]:
            self._add(RemovePropertiesUpdate(removals=names))

    def _add(self, update: TableUpdate) -> None:
        self.prepared._stage((update,))


def commit_once(lake: LakeTable, request: _Request) -> bool:
    """Sends the commit once. Returns False if its outcome is unknown, which is so after any error.

    Also a refusal proves nothing: a request that is sent twice is refused after it has landed.
    """
    try:
        lake.catalog.commit_table(request.table, request.requirements, request.updates)
    except DENIED:
        raise  # it proves nothing either, but another turn would ask in vain
    except Exception as error:
        log.warning("table %s: the outcome of a commit is not known yet: %s", lake.name, type(error).__name__)
        return False
    delete_old_metadata(request.table)
    return True


def _published(lake: LakeTable, request: _Request) -> bool:
    """Sends the commit that ends a publication."""
    reached("lake.committing")
    is_done = commit_once(lake, request)
    reached("lake.committed")
    return is_done


class _Publication:
    """The attempts at one publication by this process."""

    def __init__(self, lake: LakeTable, shape: LakeShape, batch: Batch) -> None:
        self._lake, self._shape, self._batch = lake, shape, batch
        self._into = batch.publication_as(IcebergPublication)
        self._files: _Files | None = None

    def commit(self) -> int:
        """Commits the batch."""
        return until_done(self._lake, f"batch {self._batch.id}", self._turn)

    def _turn(self, table: Table | None) -> int | None:  # 1: loaded by the turns
        lake, batch = self._lake, self._batch
        if table is None or str(table.metadata.table_uuid) != self._into.uuid:
            raise AnotherLakeTable
        base = base_of(table, lake.name)
        reached("lake.based")
        view = lake.of.deployment.ledger.read()  # 2
        reached("lake.asked")
        if (recorded := recorded_publication(view, batch)) is not None:
            log.info("batch %s: another attempt has published it", batch.id)
            return recorded
        row = standing_row(base, batch, lambda: interval_rows(table, base.main, batch.interval.start))  # 3
        if row != base.row(batch.interval.start):  # rolled back, so an expiry may have deleted what it committed
            self._files = None
        if not lake.of.has_to_commit(row, batch, lambda: base.owner):
            return row.snapshot
        lake.of.check_under_way(view, batch)
        lake.of.check_known(view, list(base.rows.values()))
        self._shape.check_columns(table, schema_of(batch.require_written.value_schema))
        return self._commit(table, base, view)

    def _commit(self, table: Table, base: Base, view: View) -> int | None:
        lake, batch = self._lake, self._batch
        there = files_of(table, base.main, batch.interval.start)
        counted = rows_by_revision(there).get(batch.interval.start, {})
        lake.of.check_has(batch, lacking_for(view, batch, counted))
        request = _Request(table, base)
        files = self._written(table, request)  # 4
        replaced = [one for one in there if batch.adds_to is None or one.revision == batch.revision]  # 5
        reached("lake.written")
        snapshot = request.snapshot(files, replaced, _summary(batch, self._into))  # 6
        request.set_row(self._row(base, snapshot))
        request.remove_rows(ended_rows(view, base, lake.of.deployment.ledger.topic_id), batch)
        return snapshot if _published(lake, request) else None

    def _row(self, base: Base, snapshot: int) -> SnapshotRow:
        batch, into = self._batch, self._into
        return SnapshotRow(
            start=batch.interval.start,
            end=batch.interval.end,
            ledger=into.ledger,
            lease=into.require_lease,
            revisions=revisions_after(base.row(batch.interval.start), batch),
            snapshot=snapshot,
            batch=str(batch.id),
        )

    def _written(self, table: Table, request: _Request) -> list[DataFile]:
        """Returns the batch's data files. Writes them, unless an earlier turn has written them for this schema and spec.
        Adds the columns that the table lacks.
        """
        written = self._batch.require_written
        if not written.rows:
            return []
        schema = schema_of(written.value_schema)
        if self._shape.adds(table) and missing_columns(schema, table.schema()):
            with request.prepared.update_schema() as update:
                add_missing(update, schema, table.schema())
        metadata = request.prepared.table_metadata
        # Two attempts may give one schema id, and one last column id, to different columns.
        of, known = (metadata.schema(), metadata.spec()), self._files
        if known is None or (known.schema, known.spec) != of or datetime.now(UTC) - known.written_at > FILES_LAST:
            rows = IcebergRows(schema, metadata.schema(), self._batch.interval.start, self._batch.revision)
            now = datetime.now(UTC)
            try:
                files = write_data_files(self._lake.name, metadata, table.io, self._staged(rows), uuid.uuid4().hex)
            except NullRefused as refused:
                raise TableRefusedData(
                    f"batch {self._batch.id}: table {self._lake.name} refused its data: {refused}.", str(refused)
                ) from None
            known = self._files = _Files(files, *of, now)
        return known.files

    def _staged(self, rows: IcebergRows) -> Iterator[pa.RecordBatch]:
        """Yields the staged rows, and compares all of them with the receipts at the end."""
        deployment, batch, tally = self._lake.of.deployment, self._batch, Tally()
        written = batch.require_written
        ranges = batch.output_ranges(written)
        for staged in read_staged(deployment.cluster.settings, deployment.pipeline.group, ranges, batch):
            tally = added(tally, staged)
            try:
                yield rows.of(staged.column("value"))
            except StagedMisfit as misfit:
                raise RecordRefused(
                    f"batch {batch.id}: a staged record does not fit table {self._lake.name}: {misfit}."
                ) from None
        check_staged(batch, tally.rows, tally.fingerprint)


def _summary(batch: Batch, into: IcebergPublication) -> dict[str, str]:
    """Returns what the snapshot says of the batch, for people: it may expire, and nothing here reads it."""
    return {
        "fencepost.batch": str(batch.id),
        "fencepost.ledger": into.ledger,
        "fencepost.lease": str(into.require_lease),
        "fencepost.rows": str(batch.require_written.rows),
        "fencepost.fingerprint": f"{batch.require_written.fingerprint:016x}",
    }
