"""The output as a folder of files. Revisions, leases and owners are those of any table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from pyspark.sql import SparkSession

from fencepost.errors import ReceiptsDisagree, TableRefused
from fencepost.kafka.staged import read_staged
from fencepost.ledger.completeness import Named
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Interval, Tally
from fencepost.outputs.output import Ending, OpenOutput
from fencepost.outputs.table.comparison import TableContents, compare
from fencepost.outputs.table.pipeline_table import (
    CommitBeginning,
    CommitEnding,
    PipelineTable,
    check_owner,
    ending_found,
)
from fencepost.outputs.table.revisions import (
    TableStanding,
    TableState,
    differing,
    revisions_after,
    standing_of,
    takes_over,
)
from fencepost.protocol.obstacle import AbandonedPublication, ObservedState
from fencepost.protocol.view import View
from fencepost.rows.writer import added
from kinds.files.store import Files, IntervalFile
from kinds.files.values import FilesOutput, FilesPublication


class FilesOfTable:
    """An `Output` that is a folder of files."""

    topics = ()
    offsets = None
    columns = None  # a file holds whatever JSON says
    current = None

    def __init__(self, deployment: Deployment, folder: str) -> None:
        self._deployment, self._folder = deployment, folder
        self._of, self._files = PipelineTable(deployment, folder), Files(folder)

    @property
    def contents(self) -> FilesOfTable:
        """Its files, which are compared with the ledger."""
        return self

    def prepare(self) -> None:
        """Make the folder, as this pipeline's."""
        check_owner(self._folder, self._of.owner, self._files.register(self._of.owner))

    def move_here(self, view: View) -> None:
        """The folder was the pipeline's on another cluster."""
        self._of.check_known(view, [one.interval_row for one in self._files.all()])
        self._files.register(self._of.owner, moved=True)

    def planned(self) -> FilesOutput:
        """Its path."""
        return FilesOutput(table=self._folder)

    def newest_batches(self) -> Iterator[Named]:
        """The batch that each file names."""
        return ((one.batch, f"folder {self._folder}") for one in self._files.all() if one.interval_row.revisions)

    def check_keeps(self, interval: Interval) -> None:
        """Whether the folder is there."""
        if not self._files.folder.is_dir():
            raise TableRefused(f"folder {self._folder} is gone. Nothing was planned. Run again.")

    def ready(self, batch: Batch) -> CommitBeginning:
        """The publication is to the folder as it is now."""
        self.prepare()
        return CommitBeginning(FilesPublication, self._folder, self._deployment.ledger.topic_id)

    def state(self, batch: Batch, *, publishing: bool) -> TableState | None:
        """Where the publication stands, by the interval's file."""
        if not publishing:
            return None
        interval_row = self._files.read(batch.interval.start).interval_row
        lost = self._of.why_lost(self._files.owner())
        return TableState(standing_of(interval_row, batch.publication_as(FilesPublication)), lost=lost)

    def committed(self, batch: Batch, found: ObservedState) -> Ending | None:
        """By the interval's file."""
        return ending_found(batch, found)

    def publish(self, batch: Batch, spark: SparkSession | None) -> Ending:
        """Replace the interval's file, unless that is done."""
        with self._files.locked():
            old = self._files.read(batch.interval.start)
            if self._of.has_to_commit(old.interval_row, batch, self._files.owner):
                self._of.check_ledger(
                    old.interval_row, batch, lambda: {number: len(values) for number, values in old.values.items()}
                )
                self._files.replace(self._after(old, batch))
        return CommitEnding(batch)

    def _after(self, old: IntervalFile, batch: Batch) -> IntervalFile:
        written, publication, tally = batch.require_written, batch.publication_as(FilesPublication), Tally()
        values = list[str]()
        ranges = batch.output_ranges(written)
        settings, group = self._deployment.cluster.settings, self._deployment.pipeline.group
        for staged in read_staged(settings, group, ranges, batch):
            tally = added(tally, staged)
            values += [value.decode() for value in staged.column("value").to_pylist()]
        if (tally.rows, tally.fingerprint) != (written.rows, written.fingerprint):
            raise ReceiptsDisagree(f"batch {batch.id}: what is staged is not what was written.")
        revisions = revisions_after(old.interval_row, batch)
        kept = {number: rows for number, rows in old.values.items() if number in revisions}
        interval_row = replace(
            old.interval_row,
            end=batch.interval.end,
            ledger=publication.ledger,
            lease=publication.require_lease,
            closed=False,
            revisions=revisions,
        )
        return IntervalFile(interval_row, str(batch.id), {**kept, batch.revision: sorted(values)})

    def give_up(self, batch: Batch, found: ObservedState) -> AbandonedPublication | None:
        """Close the publication under the lock."""
        publication = batch.publication_as(FilesPublication)
        with self._files.locked():
            standing = standing_of(self._files.read(batch.interval.start).interval_row, publication)
            if takes_over(standing, publication, self._deployment.ledger.topic_id):
                self._files.close(batch.interval.start, publication.ledger, publication.require_lease)
        if standing is TableStanding.DONE:
            return None
        return AbandonedPublication(lease=publication.require_lease, seen=0)

    def missing_batches(self, read: Callable[[], View]) -> str:
        """By the files."""
        return compare(self._of, read, self._contents, self._removal).missing_batches

    def _contents(self, view: View) -> TableContents:
        files = self._files.all()
        interval_row = {one.interval_row.start: one.interval_row for one in files}
        filled = {one.interval_row.start for one in files if any(one.values.values())}
        return TableContents(
            self._files.owner(),
            interval_row,
            partial(differing, table=self._folder, interval_row=interval_row, filled=filled),
        )

    def _removal(self, starts: Sequence[datetime]) -> str:
        return f"delete the files of {', '.join(map(str, starts))}"


OUTPUT: OpenOutput = FilesOfTable
