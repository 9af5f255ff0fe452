"""A table as the output of one pipeline, in any store. This module decides who owns the table, and whether a
publication may commit.

A store locks an interval's row. After that the store asks this module whether the publication may commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from fencepost.config.pipeline import Pipeline
from fencepost.errors import AnotherCluster, LedgerLost, Superseded, TableRefused
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch
from fencepost.outputs.table.revisions import (
    IntervalRow,
    TableStanding,
    TableState,
    missing_for,
    record_stored,
    standing_of,
    takes_over,
    unknown_to,
)
from fencepost.outputs.table.values import TablePublication
from fencepost.protocol.advice import reprocess
from fencepost.protocol.obstacle import ObservedState
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.outputs.table")
LOST = "was renamed or moved, or Fencepost's bookkeeping of it is gone"


class Owner(NamedTuple):
    """The owner of an output table. If the same pipeline runs on two clusters, these are two owners."""

    pipeline: str
    cluster: str

    def __str__(self) -> str:
        return f"pipeline {self.pipeline} on Kafka cluster {self.cluster}"


def check_owner(
    table: str,
    owner: Owner,
    known: Owner | None,
    setting: str = "output",
    bookkeeping: str = "its rows in fencepost_tables and fencepost_batches",
    elsewhere: str = "another database",
) -> None:
    """Checks that `owner` owns the table. `known` is its owner by the store, or None if it has none. `setting` is the
    setting that names the table. `bookkeeping` is what the store keeps of an owner, and `elsewhere` another store.

    Raises:
        TableRefused: another pipeline owns the table.
        AnotherCluster: the pipeline owns the table on another cluster.
    """
    if known is None or known == owner:
        return
    if known.pipeline != owner.pipeline:
        raise TableRefused(
            f"table {table} belongs to pipeline {known.pipeline}, and a table has one owner. Name another {setting}.table. Or, "
            f"if that pipeline no longer exists, delete {bookkeeping}, and empty the table."
        )
    raise AnotherCluster(
        f"table {table} belongs to this pipeline on Kafka cluster {known.cluster}, and this is cluster {owner.cluster}. If "
        f"the pipeline runs on two clusters, such as for tests and in production, name another {setting}.table or "
        f"{elsewhere} for one of them. If bootstrap.servers or the connection is wrong, correct it. If the pipeline has moved, "
        "confirm it once: `fencepost run --another-cluster`, or the parameter another_cluster of a backfill in Airflow."
    )


class PipelineTable:
    """A table as the output of a pipeline on one Kafka cluster."""

    def __init__(self, deployment: Deployment, name: str, *store: str) -> None:
        """`store` has the store's words for `check_owner`."""
        self.deployment, self.name, self._store = deployment, name, store

    @property
    def pipeline(self) -> Pipeline:
        """Returns the pipeline that publishes to the table."""
        return self.deployment.pipeline

    @property
    def owner(self) -> Owner:
        """Returns the owner that this pipeline is on this cluster."""
        return Owner(self.pipeline.name, self.deployment.cluster.id)

    def check_owner(self, known: Owner | None) -> None:
        """Checks that this pipeline owns the table. `known` is its owner by the store. Raises as the function does."""
        check_owner(self.name, self.owner, known, "output", *self._store)

    def why_lost(self, owner: Owner | None) -> str:
        """Returns why the table no longer belongs to this pipeline. The text is empty if it does. `owner` is the
        table's owner by the store.
        """
        if owner is None:
            return LOST
        return f"now belongs to {owner}" if owner != self.owner else ""

    def check_known(self, view: View, interval_row: Sequence[IntervalRow]) -> None:
        """Checks that the ledger knows every batch in the table.

        Raises:
            LedgerLost: a batch of the table is not in the ledger.
        """
        unknown = unknown_to(view, self.pipeline.name, interval_row)
        if unknown:
            raise LedgerLost(
                f"pipeline {self.pipeline.name}: table {self.name} has batch {unknown[-1]}, which is not in the ledger "
                f"{self.pipeline.ledger_topic}. The ledger is an old copy, or was created again. Stop the pipeline's runs and "
                "restore the ledger from a copy that has the batch."
            )

    def has_to_commit(self, interval_row: IntervalRow, batch: Batch, owner: Callable[[], Owner | None]) -> bool:
        """Returns whether the publication still has to be committed, by the locked row of its interval. Returns False
        if it is committed.

        `owner` looks up the table's owner in the store. It is called only if the row allows the commit.

        Raises:
            Superseded: the publication was given up, or a later publication was committed. Another cause is a row of
                another ledger topic, if the publication's ledger topic no longer exists.
            TableRefused, AnotherCluster: the pipeline does not own the table.
        """
        publication = batch.publication_as(TablePublication)
        standing = standing_of(interval_row, publication)
        if standing is TableStanding.DONE:
            log.info("batch %s: an earlier attempt has committed it", batch.id)
            return False
        if standing in {TableStanding.CLOSED, TableStanding.OVERTAKEN}:
            raise Superseded(
                f"batch {batch.id}: in table {self.name} this attempt's publication is {standing}: it was given up, or a later "
                "publication was committed. Nothing was changed."
            )
        found = owner()
        if found is None:
            raise TableRefused(f"table {self.name} {LOST}. Nothing was changed.")
        self.check_owner(found)
        if standing is TableStanding.FOREIGN:
            present = self.deployment.cluster.find(self.pipeline.ledger_topic)
            if not takes_over(standing, publication, present.id if present is not None else ""):
                raise Superseded(
                    f"batch {batch.id}: its interval in table {self.name} was published under another ledger topic, and this "
                    "attempt's ledger topic no longer exists. Nothing was changed."
                )
        return True

    def check_ledger(self, interval_row: IntervalRow, batch: Batch, count: Callable[[], Mapping[int, int]]) -> None:
        """Reads the ledger again. Checks that the publication is still under way, and that the table has the revisions
        that an addition adds to.

        `count` counts the interval's rows in the table by revision. `count` is called only for an addition that the
        ledger allows.

        Raises:
            Superseded: the publication has ended.
            LedgerLost: the row has a batch that is not in the ledger.
            TableRefused: the table lacks revisions that the addition adds to.
        """
        view = self.deployment.ledger.read()
        self.check_under_way(view, batch)
        self.check_known(view, [interval_row])
        counted = count() if batch.adds_to is not None else {}
        self.check_has(batch, missing_for(view, batch, interval_row, counted))

    def check_under_way(self, view: View, batch: Batch) -> None:
        """Checks that the batch's publication is under way. Raises Superseded if it has ended."""
        last, lease = view.last(batch.interval), batch.require_publication.require_lease
        if last is None or last.publication_under(lease) is None or last.revision != batch.revision:
            raise Superseded(f"batch {batch.id}: its publication has ended, so this attempt commits nothing.")

    def check_has(self, batch: Batch, gone: Sequence[int]) -> None:
        """Raises TableRefused if revisions are gone that the addition adds to."""
        if gone:
            raise TableRefused(
                f"batch {batch.id} adds to revision {batch.adds_to}, and table {self.name} lacks revisions "
                f"{', '.join(map(str, gone))} of its interval. {reprocess(batch)}, once this addition is skipped."
            )


@dataclass(frozen=True)
class CommitBeginning:
    """The beginning of a commit: the table, the ledger's topic id, and the class of the kind's publications."""

    publication_class: Callable[..., TablePublication]
    table: str
    ledger_topic_id: str

    def publication(self, view: View, batch: Batch, now: datetime) -> TablePublication:
        """Returns the publication. The publication's lease is the offset of the record that begins the publication."""
        return self.publication_class(table=self.table, ledger=self.ledger_topic_id, begun_at=now)


@dataclass(frozen=True)
class CommitEnding:
    """The end of a commit: a batch that a table has committed, and the publication's fields that are known by the commit."""

    batch: Batch
    committed: Mapping[str, Any] = field(default_factory=dict)

    def records(self, view: View, seconds: float, now: datetime) -> tuple[Batch, ...]:
        """Returns the records that publish the batch. There are none if another attempt has recorded the end already."""
        batch, lease = self.batch, self.batch.require_publication.require_lease
        return record_stored(view, batch.interval, batch.revision, lease, seconds, now, self.committed)


def ending_found(batch: Batch, found: ObservedState) -> CommitEnding | None:
    """Returns the end of the publication, if the table's state shows that it is committed, otherwise None."""
    table = found.output
    if not isinstance(table, TableState) or table.standing is not TableStanding.DONE:
        return None
    return CommitEnding(batch, table.committed)
