"""Reads back a batch that was written for an interval, as its readers see it. The batch is compared with its receipts
before it is used.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.errors import SettingsError
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Interval, State, Tally
from fencepost.outputs.batch_topic import RecordsGone
from fencepost.outputs.output import read_back_from
from fencepost.protocol.view import Revisions, View
from fencepost.rows.encode import parse_output
from fencepost.rows.fingerprint import count_and_sum, fingerprint_hash
from fencepost.rows.unions import check_types


class NotReadable(Exception):
    """A batch can no longer be read. The text says why."""


@dataclass(frozen=True)
class PastRevision:
    """A revision of an interval, with the published additions to it."""

    batch: Batch
    additions: tuple[Batch, ...] = ()

    @property
    def interval(self) -> Interval:
        return self.batch.interval

    @property
    def all(self) -> tuple[Batch, ...]:
        """Returns the batch and then its additions."""
        return (self.batch, *self.additions)

    @property
    def promised(self) -> Tally:
        """Returns the sum of the receipts of the batch and its additions."""
        return Tally.total(one.written.tally for one in self.all if one.written is not None)

    @property
    def name(self) -> str:
        """Returns the number of the revision and of its additions, such as `2`, or `2 +3 +4`."""
        return " ".join([str(self.batch.revision), *(f"+{one.revision}" for one in self.additions)])


def newest_published(view: View, over: int) -> list[PastRevision]:
    """Returns the newest intervals that have a published batch, in order of time. There are at most `over`. Each comes
    with the batch that counts.
    """
    found: list[PastRevision] = []
    for _, revisions in reversed(view.in_order):
        if len(found) == over:
            break
        if revisions.in_force.state is State.PUBLISHED:
            found.append(PastRevision(revisions.in_force, revisions.additions_in_force))
    return found[::-1]


def rejected_since(view: View, first: Interval) -> list[PastRevision]:
    """Returns the rejected batches of the intervals from `first` on, in order of time."""
    since = [revisions for interval, revisions in view.in_order if interval.start >= first.start]
    return [PastRevision(b) for revisions in since for b in revisions.batches if b.state is State.REJECTED]


def revision_of(revisions: Revisions, number: int) -> PastRevision | None:
    """Returns that revision of an interval with its published additions. Returns None if there is none, or if it is an
    addition.
    """
    batch = next((b for b in revisions.batches if b.revision == number), None)
    if batch is None:
        return None
    added = (b for b in revisions.additions if b.adds_to == number and b.state is State.PUBLISHED)
    return PastRevision(batch, tuple(added))


def read_past(spark: SparkSession, deployment: Deployment, past: PastRevision) -> DataFrame:
    """Returns the records, with the value's columns, the coordinates, `_key` and `_hash`. The records are not compared
    with the receipts yet.

    A column that an addition does not have is null in its records.

    Raises:
        NotReadable: records were deleted, or cannot be distinguished from other records.
        OpenTransaction: another producer's open transaction hides some records.
    """
    with_rows = [batch for batch in past.all if batch.written is not None and batch.written.rows]
    types = {str(batch.id): columns_of(batch) for batch in with_rows}
    try:
        check_types(types)
    except SettingsError:
        raise NotReadable("its additions have a column of another type") from None
    frames = [_frame(spark, deployment, batch, types[str(batch.id)]) for batch in with_rows]
    return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def columns_of(batch: Batch) -> StructType:
    """Returns the value's columns, with the types that the transform gave them."""
    return StructType.fromJson(json.loads(batch.require_written.value_schema))


def check_receipts(frame: DataFrame, past: PastRevision) -> None:
    """Compares the records of `read_past` with the receipts.

    Raises:
        NotReadable: the records differ from the receipts.
    """
    as_promised(past, *count_and_sum(frame, "_hash"))


def as_promised(past: PastRevision, rows: int, fingerprint: int) -> None:
    """Raises NotReadable if the number or the fingerprint of the rows differs from the receipts."""
    if (rows, fingerprint) != (past.promised.rows, past.promised.fingerprint):
        raise NotReadable(
            f"its records no longer match the receipts: {past.promised.rows:,} were written, and {rows:,} are there"
        )


def _frame(spark: SparkSession, deployment: Deployment, batch: Batch, columns: StructType) -> DataFrame:
    try:
        raw = read_back_from(deployment, batch).read_whole(spark, batch, f"batch {batch.id}, read back")
    except RecordsGone as gone:
        raise NotReadable(str(gone)) from None
    hashed = raw.withColumn("hash", F.expr(fingerprint_hash()))
    return parse_output(hashed, batch.plan.output_format, columns, batch.plan.schemas)
