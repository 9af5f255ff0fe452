"""Settles the side tables of a batch before its first write.

The contents are recorded in the ledger before any task-partition writes, so a whole batch is made with one content of each
table. Marks do not say with which content a task-partition was written. Without the record, two attempts under one lease
could each write a half.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from fencepost.failpoints import reached
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change
from fencepost.model import Batch, Receipt, SideTableState, State
from fencepost.protocol.decisions import own_revision, record_tables
from fencepost.protocol.revision import differing_tables
from fencepost.side_tables.content import TableContent
from fencepost.side_tables.frames import empty_frames, frames_of
from fencepost.side_tables.reading import read_tables
from fencepost.steps.writers import rows_job

log = logging.getLogger("fencepost.steps.write")


@dataclass(frozen=True)
class SettledTables:
    """The side tables of a batch as DataFrames, by name. If all task-partitions for rows have committed, `committed` has
    their receipts and the DataFrames have no rows. Then nothing may be written with them.
    """

    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    committed: list[Receipt] | None = None


@dataclass
class SideTables:
    """The side tables of one attempt. They are read at most once."""

    spark: SparkSession
    deployment: Deployment
    contents: dict[str, TableContent] = field(default_factory=dict)

    @property
    def states(self) -> tuple[SideTableState, ...]:
        """Returns the states of the tables that this attempt has read. It is empty until they are read."""
        return tuple(content.state for content in self.contents.values())

    def settle(self, batch: Batch) -> tuple[Batch, SettledTables | None]:
        """Returns the batch with the recorded states, and the settled tables. The result is None if the recorded states
        are not those that this attempt has read. Then the batch needs a new revision.

        If all task-partitions have committed and nothing compares their rows, the tables are not read.

        Raises:
            SideTableRefused, SettingsError, KafkaUnavailable, RegistryUnavailable, TableUnavailable, AccessDenied: see
                `read_tables`. Nothing is written.
            Superseded, Overtaken: another attempt was faster.
        """
        if not self.deployment.pipeline.tables:
            return batch, SettledTables()
        if batch.plan.tables and (committed := _committed(self.deployment, batch)) is not None:
            log.info("batch %s: all task-partitions have committed, so its side tables are not read again", batch.id)
            return batch, SettledTables(empty_frames(self.spark, batch.plan.tables), committed)
        if not self.contents:
            self.read()
        batch = self._record(batch)
        if differing_tables(batch.plan.tables, self.states):
            return batch, None
        return batch, SettledTables(frames_of(self.spark, self.deployment.pipeline, self.contents))

    def read(self) -> None:
        """Reads the tables. Raises the errors of `read_tables`."""
        reached("write.tables-reading")
        self.contents = read_tables(self.spark, self.deployment.pipeline, self.deployment.cluster)
        reached("write.tables-read")

    def _record(self, batch: Batch) -> Batch:
        """Returns the batch with the states of this attempt, or with those that another attempt has recorded."""
        states = self.states
        recorded = self.deployment.ledger.transact(
            lambda view: Change(record_tables(view, batch.interval, batch.revision, states))
        )
        reached("write.tables-recorded")
        return own_revision(recorded.view, batch.interval, batch.revision)


def may_have_changed(batch: Batch) -> bool:
    """Returns whether the batch was rejected and is to be compared with its side tables as they are now. A digest does not
    show that somebody has corrected a table.
    """
    return batch.state is State.REJECTED and bool(batch.plan.tables)


def _committed(deployment: Deployment, batch: Batch) -> list[Receipt] | None:
    """Returns the receipts of the task-partitions for rows, if each has committed and nothing compares their rows. Under
    layout `output` each attempt compares the committed rows, for which it needs the tables.
    """
    job = rows_job(deployment, batch)
    return None if job.compares else job.writers.committed_receipts()
