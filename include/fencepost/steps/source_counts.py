"""Counts a batch's sources: records, malformed records, tombstones, excluded records, and the newest timestamp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.config.source import REJECT, Source
from fencepost.counts import count_of
from fencepost.errors import NeedsOperator
from fencepost.formats.framing import ExcludedKind
from fencepost.model import Batch, Layout, SourceSummary, describe_topics
from fencepost.protocol.advice import REASON, reprocess
from fencepost.protocol.ranges import credible_until
from fencepost.rows.decode import is_excluded, is_malformed, read_source, refused_tombstone
from fencepost.rows.encode import PLACES
from fencepost.rows.fingerprint import counting, counts_of, fingerprint_hash
from fencepost.rows.observed import observed_values
from fencepost.rows.quarantined import without_results
from fencepost.spark.diagnosis import spark_reads
from fencepost.suite.catalogue import FRESHNESS

SHOWN = 20  # records listed by their coordinates
Places = tuple[tuple[str, int, int], ...]  # topic, partition and offset of each record


@dataclass(frozen=True)
class SourceCounts:
    """What was counted of one source of a batch. `why` is the reason of the first malformed record, if there is one that does
    not go to quarantine.

    `summary.rows_in` is None if the source was not counted, which is possible only if a malformed record would have failed
    the batch.
    """

    summary: SourceSummary
    why: str = ""

    @property
    def truncations(self) -> int:
        """Returns the number of truncations of the source table."""
        return self.summary.excluded.get(ExcludedKind.TRUNCATIONS, 0)

    def are_refused(self, pipeline: Pipeline, source: Source) -> bool:
        """Returns whether the settings refuse at least one of these records of the source."""
        refused = [
            self.summary.malformed and source.on_malformed == "fail",
            self.summary.tombstones and source.tombstones == "fail",
            self.truncations and pipeline.why_truncations_fail(source),
        ]
        return any(refused)

    @classmethod
    def of(cls, counts: Mapping[str, Any], at: Places = (), why: str = "") -> SourceCounts:
        """Returns the counts in the values of `count_columns`."""
        millis = counts["newest"]
        known = millis is not None and millis >= 0  # Kafka's -1 is no timestamp
        summary = SourceSummary(
            rows_in=counts["rows"],
            malformed=counts["malformed"],
            malformed_at=at,
            tombstones=counts["tombstones"],
            excluded={kind.value: counts[kind] for kind in ExcludedKind if counts.get(kind)},
            newest=datetime.fromtimestamp(millis / 1000, UTC) if known else None,
        )
        return cls(summary, why)


def observed_counts(
    read_all: bool, seen: Observation | None, raw: DataFrame, batch: Batch, pipeline: Pipeline, source: Source
) -> SourceCounts:
    """Returns the counts of a source that Spark observed, if they are certainly complete. Otherwise it reads the source
    again.

    `read_all` says that no task was skipped. Under layout `source` each task has then read its range to the end. Before
    a shuffle a task may run again, or stop early at a LIMIT. Then the counts are complete if there are as many rows as
    offsets. `seen` is None if nothing was computed.
    """
    if not read_all:
        return count_again(raw, pipeline, batch, source)
    counts = None if seen is None else observed_values(raw.sparkSession, seen)
    if counts is None:
        return count_source(raw, batch, source)
    offsets = sum(part.length for part in batch.plan.ranges if batch.plan.replays or part.topic == source.topic)
    sure = batch.plan.layout is Layout.SOURCE or counts["rows"] == offsets
    # The first malformed records are listed unless they are in quarantine, which takes another read.
    if sure and (counts["malformed"] == 0 or source.on_malformed == QUARANTINE):
        return SourceCounts.of(counts)
    return count_source(raw, batch, source)


def with_looked_back(
    counts: SourceCounts, seen: Observation | None, raw: DataFrame, batch: Batch, source: Source
) -> SourceCounts:
    """Returns the counts with those of the looked-back records. They are read again unless Spark has certainly observed all
    of them. `raw` and `seen` are those of `observed_counts`.
    """
    found = None if seen is None else observed_values(raw.sparkSession, seen)
    offsets = sum(part.length for one in batch.plan.looked_back if one.topic == source.topic for part in one.ranges)
    if found is None or found["rows"] != offsets:
        again = count_source(raw, batch, source).summary
        found = {"rows": again.rows_in, "malformed": again.malformed}
    more = {"looked_back": found["rows"], "looked_back_malformed": found["malformed"]}
    return replace(counts, summary=counts.summary.model_copy(update=more))


def count_again(raw: DataFrame, pipeline: Pipeline, batch: Batch, source: Source) -> SourceCounts:
    """Returns the counts of a source after an earlier attempt's counts were lost. The source is read again only if the
    counts are needed.

    The counts have four uses. The report shows the dropped and the excluded records. The quarantine limit is a share of
    the records read. A freshness check needs the newest record. `empty: reject` needs their number.
    """
    drops = "drop" in (source.on_malformed, source.tombstones) or source.excludes
    counts = pipeline.suite.has(FRESHNESS) or batch.plan.quarantine is not None or source.empty == REJECT
    if drops or counts:
        return count_source(raw, batch, source)
    return SourceCounts(SourceSummary())


def count_columns(source: Source, batch: Batch) -> list[Column]:
    """Returns the aggregates over a batch's source for `SourceCounts.of`."""
    at, until = F.col("_timestamp"), credible_until(batch.interval, batch.plan.planned_at)
    at = F.when(~is_excluded(), at) if source.excludes else at
    excluded = [F.count(F.when(F.col("_excluded") == kind.value, 1)).alias(kind.value) for kind in source.excludes]
    return [
        F.count(F.lit(1)).alias("rows"),
        # count_if would add a plan node that copies every row.
        F.count(F.when(is_malformed(), 1)).alias("malformed"),
        F.count(F.when(refused_tombstone(source), 1)).alias("tombstones"),
        *excluded,
        F.unix_millis(F.max(at if until is None else F.when(at <= F.lit(until), at))).alias("newest"),
    ]


def count_source(raw: DataFrame, batch: Batch, source: Source) -> SourceCounts:
    """Returns the counts of a source in the frozen ranges, with the coordinates of the first malformed records."""
    frame = read_source(raw, source, batch.plan.schemas)
    total = frame.agg(*count_columns(source, batch)).head()
    assert total is not None
    at: Places = ()
    why = ""
    if total["malformed"] and source.on_malformed != QUARANTINE:
        first = _first(frame, is_malformed())
        at, why = _places(first), first[0]["_malformed"]
    return SourceCounts.of(total.asDict(), at, why)


def first_of(wanted: Column, raw: DataFrame, batch: Batch, source: Source) -> Places:
    """Returns the coordinates of the first wanted records of a source, in order of topic, partition and offset."""
    return _places(_first(read_source(raw, source, batch.plan.schemas), wanted))


def _first(frame: DataFrame, wanted: Column) -> list[Row]:
    return frame.where(wanted).select(*PLACES, "_malformed").orderBy(*PLACES).limit(SHOWN).collect()


def _places(rows: Sequence[Row]) -> Places:
    return tuple((row["_topic"], row["_partition"], row["_offset"]) for row in rows)


def count_kept(raw: DataFrame) -> dict[str, SourceCounts]:
    """Returns the counts of source records that a replay takes and keeps in quarantine, by topic. All of them count as
    malformed.

    `raw` has the records of `as_in_source`.
    """
    rows = without_results(raw).groupBy("topic").count().collect()
    return {r["topic"]: SourceCounts(SourceSummary(rows_in=r["count"], malformed=r["count"])) for r in rows}


def count_taken(raw: DataFrame, batch: Batch) -> int:
    """Returns the number of result rows among the records that an addition replays.

    `raw` has the records of `as_in_source`. The number and the fingerprint of the records are compared with the
    receipts before the records are used.

    Raises:
        NeedsOperator: records are missing, or another program has written records with that batch's header.
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
            f"batch {batch.id}: quarantine {describe_topics(batch.plan.source_topics)} shows {count_of(rows, 'record')} of batch "
            f"{replays.batch} with fingerprint {fingerprint:016x}, but the receipts count {replays.tally.rows:,} with "
            f"{replays.tally.fingerprint:016x}. Records were lost, or another program writes with that batch's header. Nothing "
            f"was written. {batch.command('skip', REASON)} drops this addition. {reprocess(batch)}."
        )
    return int(row["results"] or 0)
