"""How many records a batch read, which of them were malformed or tombstones, and how new the newest one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.config.sections import Source
from fencepost.counts import count_of
from fencepost.errors import NeedsOperator
from fencepost.model import Batch, Layout, describe_topics
from fencepost.protocol.advice import REASON, reprocess
from fencepost.protocol.ranges import credible_until
from fencepost.rows.decode import is_malformed, read_source, refused_tombstone
from fencepost.rows.encode import PLACES
from fencepost.rows.fingerprint import counting, counts_of, fingerprint_hash
from fencepost.spark.diagnosis import spark_reads
from fencepost.suite.catalogue import FRESHNESS

SHOWN = 20  # records listed by their coordinates
Places = tuple[tuple[str, int, int], ...]  # topic, partition and offset of each record


@dataclass(frozen=True)
class SourceCounts:
    """What a batch read: records, malformed ones, tombstones, the coordinates of the first malformed ones with the reason of the
    very first, and the latest timestamp that is not ahead of the clock.

    `rows` is None if nothing was counted. That happens only where a malformed record would have failed the batch.
    """

    rows: int | None = 0
    malformed: int = 0
    tombstones: int = 0  # that must not reach the transform
    at: Places = ()
    why: str = ""
    newest: datetime | None = None
    results: int = 0  # in a replay: results of an earlier transform

    @property
    def aside(self) -> int:
        """Records that another job writes, and not the transform; 0 if there is none."""
        return self.malformed + self.results

    def are_refused(self, source: Source) -> bool:
        """Whether the settings refuse a record of these."""
        malformed, tombstones = self.malformed, self.tombstones
        return bool(malformed and source.on_malformed == "fail") or bool(tombstones and source.tombstones == "fail")

    def with_results(self, results: int, malformed: int = 0) -> SourceCounts:
        """The counts with so many results, which were read beside the records counted here."""
        rows = None if self.rows is None else self.rows + results
        return replace(self, rows=rows, malformed=self.malformed + malformed, results=self.results + results)

    @classmethod
    def of(cls, counts: Mapping[str, Any], at: Places = (), why: str = "") -> SourceCounts:
        """From a row of `count_columns`."""
        millis = counts["newest"]
        known = millis is not None and millis >= 0  # Kafka's -1 is no timestamp
        newest = datetime.fromtimestamp(millis / 1000, UTC) if known else None
        malformed, tombstones = counts["malformed"], counts["tombstones"]
        return cls(counts["rows"], malformed, tombstones, at=at, why=why, newest=newest)


def observed_counts(
    read_all: bool, seen: Observation, raw: DataFrame, batch: Batch, pipeline: Pipeline
) -> SourceCounts:
    """The counts as Spark observed them where those are sure to be complete; otherwise the source is read once more.

    `read_all`: no task was skipped. Under layout `source` each has then read its range to the end. Before a shuffle a task may
    run again or stop early (a limit): there the counts are complete if there are as many rows as offsets.
    """
    if not read_all:
        return count_again(raw, pipeline, batch)
    counts = seen.get
    sure = batch.plan.layout is Layout.SOURCE or counts["rows"] == batch.plan.offsets
    # A quarantined record names its source; of dropped records only the first are listed, which takes another read.
    if sure and (counts["malformed"] == 0 or batch.plan.quarantines_malformed):
        return SourceCounts.of(counts)
    return count_source(raw, pipeline, batch)


def count_again(raw: DataFrame, pipeline: Pipeline, batch: Batch) -> SourceCounts:
    """The counts if an earlier attempt's are lost: the source is read once more only if something needs them.

    The report shows dropped records, quarantined ones are a share of those read, and freshness needs the newest record.
    """
    drops = "drop" in (pipeline.source.on_malformed, pipeline.source.tombstones)
    if pipeline.suite.has(FRESHNESS) or batch.plan.quarantine is not None or drops:
        return count_source(raw, pipeline, batch)
    return SourceCounts(rows=None)


def count_columns(source: Source, batch: Batch) -> list[Column]:
    """The aggregates over a batch's source for `SourceCounts.of`."""
    at, until = F.col("_timestamp"), credible_until(batch.interval, batch.plan.planned_at)
    return [
        F.count(F.lit(1)).alias("rows"),
        # count_if would copy every row first, in a node of its own
        F.count(F.when(is_malformed(), 1)).alias("malformed"),
        F.count(F.when(refused_tombstone(source), 1)).alias("tombstones"),
        F.unix_millis(F.max(at if until is None else F.when(at <= F.lit(until), at))).alias("newest"),
    ]


def count_source(raw: DataFrame, pipeline: Pipeline, batch: Batch) -> SourceCounts:
    """The counts, read from the frozen ranges, with the coordinates of the first malformed records."""
    frame = read_source(raw, pipeline.source, batch.plan.schemas)
    total = frame.agg(*count_columns(pipeline.source, batch)).head()
    assert total is not None
    at: Places = ()
    why = ""
    if total["malformed"] and pipeline.source.on_malformed != "quarantine":
        first = _first(frame, is_malformed())
        at, why = _places(first), first[0]["_malformed"]
    return SourceCounts.of(total.asDict(), at, why)


def first_tombstones(raw: DataFrame, pipeline: Pipeline, batch: Batch) -> Places:
    """The coordinates of the first tombstones that must not reach the transform, by topic, partition and offset."""
    frame = read_source(raw, pipeline.source, batch.plan.schemas)
    return _places(_first(frame, refused_tombstone(pipeline.source)))


def _first(frame: DataFrame, wanted: Column) -> list[Row]:
    return frame.where(wanted).select(*PLACES, "_malformed").orderBy(*PLACES).limit(SHOWN).collect()


def _places(rows: Sequence[Row]) -> Places:
    return tuple((row["_topic"], row["_partition"], row["_offset"]) for row in rows)


def count_taken(raw: DataFrame, batch: Batch) -> int:
    """How many of the records that an addition replays are results of a transform.

    `raw` has the records of `as_in_source`. Their number and fingerprint are compared with the receipts before any is used.

    Raises:
        NeedsOperator: some are missing, or others lie under that batch's name.
    """
    replays = batch.plan.replays
    assert replays is not None
    hashed = raw.select(F.col("result").cast("int").alias("result"), F.expr(fingerprint_hash()).alias("hash"))
    with spark_reads(f"batch {batch.id}, write"):
        row = hashed.agg(*counting("hash"), F.sum("result").alias("results")).head()
    assert row is not None
    rows, fingerprint = counts_of(row)
    if (rows, fingerprint) != (replays.tally.rows, replays.tally.fingerprint):
        raise NeedsOperator(
            f"batch {batch.id}: quarantine {describe_topics(batch.plan.ranges)} shows {count_of(rows, 'record')} of batch "
            f"{replays.batch} with fingerprint {fingerprint:016x}, and the receipts promise {replays.tally.rows:,} with "
            f"{replays.tally.fingerprint:016x}. Records were lost, or another program writes with that batch's header. Nothing "
            f"was written. {batch.command('skip', REASON)} drops this addition. {reprocess(batch)}."
        )
    return int(row["results"] or 0)
