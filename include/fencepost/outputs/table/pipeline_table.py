"""A table as the output of one pipeline: whose it is, and what the ledger says of a publication to it. Any store's.

A store locks an interval's row before it asks here, and commits only what may be committed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.config.pipeline import Pipeline
from fencepost.errors import AnotherCluster, LedgerLost, StoreRefused, Superseded
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch
from fencepost.outputs.output import Record
from fencepost.outputs.table.revisions import (
    Held,
    TableStanding,
    missing_for,
    record_stored,
    standing_of,
    takes_over,
    unknown_to,
)
from fencepost.outputs.table.values import TablePublication
from fencepost.protocol.advice import reprocess
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.outputs.table")
LOST = "was renamed or moved, or what Fencepost keeps of it is gone"


class Owner(NamedTuple):
    """Whose an output table is: the same pipeline on two clusters is two owners."""

    pipeline: str
    cluster: str

    def __str__(self) -> str:
        return f"pipeline {self.pipeline} on Kafka cluster {self.cluster}"


def check_owner(table: str, owner: Owner, known: Owner | None) -> None:
    """Check that a table, known as that owner's, is this one's.

    Raises:
        StoreRefused: it is another pipeline's.
        AnotherCluster: it is the pipeline's on another cluster.
    """
    if known is None or known == owner:
        return
    if known.pipeline != owner.pipeline:
        raise StoreRefused(
            f"table {table} belongs to pipeline {known.pipeline}, and a table has one owner. Name another output.table; or, "
            "if that pipeline is given up, delete its rows in fencepost_tables and fencepost_batches, and empty the table."
        )
    raise AnotherCluster(
        f"table {table} belongs to this pipeline on Kafka cluster {known.cluster}, and this is cluster {owner.cluster}. Where "
        "one pipeline runs on two clusters, such as for tests and in production, name another output.table, or another "
        "database, for one of them. If bootstrap.servers or the connection is wrong, correct it. If the pipeline has moved, say "
        "so once: `fencepost run --another-cluster`, or the parameter another_cluster of a backfill in Airflow."
    )


class PipelineTable:
    """The table of that name, as the output of the ledger's pipeline on the ledger's cluster."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger, self.name = ledger, name

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline."""
        return self.ledger.pipeline

    @property
    def owner(self) -> Owner:
        """The pipeline on this cluster."""
        return Owner(self.pipeline.name, self.ledger.cluster.id)

    def why_lost(self, owner: Owner | None) -> str:
        """Why the table, which its store knows as that owner's, is not this pipeline's any more; empty if it is."""
        if owner is None:
            return LOST
        return f"belongs to {owner} by now" if owner != self.owner else ""

    def check_known(self, view: View, held: Sequence[Held]) -> None:
        """Check that the ledger knows every batch in the table.

        Raises:
            LedgerLost: it does not know one.
        """
        unknown = unknown_to(view, self.pipeline.name, held)
        if unknown:
            raise LedgerLost(
                f"pipeline {self.pipeline.name}: table {self.name} has batch {unknown[-1]}, which the ledger "
                f"{self.pipeline.ledger_topic} does not know: it is an old copy, or was made anew. Stop the pipeline's runs and "
                "restore the ledger from a copy that has the batch."
            )

    def has_to_commit(self, held: Held, batch: Batch) -> bool:
        """Whether the publication has still to be committed, by its interval's row, which is locked; False where it is.

        Raises:
            Superseded: it was given up, or a later one was committed.
        """
        standing = standing_of(held, batch.publication_as(TablePublication))
        if standing is TableStanding.DONE:
            log.info("batch %s: an earlier attempt has committed it", batch.id)
            return False
        if standing in {TableStanding.CLOSED, TableStanding.OVERTAKEN}:
            raise Superseded(
                f"batch {batch.id}: table {self.name} has the row of its interval {standing}: this attempt's publication was "
                "given up, or a later one was committed. Nothing was changed."
            )
        return True

    def check_may_commit(self, held: Held, batch: Batch, owner: Owner | None) -> None:
        """Check that the table, which its store knows as that owner's, is the pipeline's, and that its ledger is the present one.

        Raises:
            StoreRefused, AnotherCluster: the table is not this pipeline's.
            Superseded: the row is of another ledger, and the publication's is not the one that exists now.
        """
        if owner is None:
            raise StoreRefused(f"table {self.name} {LOST}. Nothing was changed.")
        check_owner(self.name, self.owner, owner)
        publication = batch.publication_as(TablePublication)
        standing = standing_of(held, publication)
        if standing is TableStanding.FOREIGN:
            present = self.ledger.cluster.find(self.pipeline.ledger_topic)
            if not takes_over(standing, publication, present.id if present is not None else ""):
                raise Superseded(
                    f"batch {batch.id}: its interval in table {self.name} was published under another ledger topic, and this "
                    "attempt's is not the one that exists now. Nothing was changed."
                )

    def check_ledger(self, held: Held, batch: Batch, counted: Mapping[int, int]) -> None:
        """Check, by the ledger as it is now, that the publication is still under way, and that all is there that it adds to.

        `counted` are the interval's rows in the table, by revision, where the batch is an addition.

        Raises:
            Superseded: it has ended.
            LedgerLost: the row has a batch that the ledger does not know.
            StoreRefused: the table lacks revisions that an addition adds to.
        """
        view = self.ledger.read()
        last, lease = view.last(batch.interval), batch.known_publication.known_lease
        if last is None or last.publication_under(lease) is None or last.revision != batch.revision:
            raise Superseded(f"batch {batch.id}: its publication has ended meanwhile, so nothing of it is committed.")
        self.check_known(view, [held])
        if gone := missing_for(view, batch, held, counted):
            raise StoreRefused(
                f"batch {batch.id} adds to revision {batch.adds_to}, and table {self.name} lacks revisions "
                f"{', '.join(map(str, gone))} of its interval. {reprocess(batch)}, once this addition is skipped."
            )


def recorded(batch: Batch) -> Record:
    """The end of a publication that is committed."""
    known = (batch.interval, batch.revision, batch.known_publication.known_lease)
    return lambda view, seconds, now: record_stored(view, *known, seconds, now)
