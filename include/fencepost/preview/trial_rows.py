"""Counts a trial's records and rows, and the reasons why some would not be published."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from fencepost.config.source import Source
from fencepost.formats.framing import ExcludedKind
from fencepost.model import utc_now
from fencepost.preview.trial_input import TrialInput
from fencepost.protocol.ranges import credible_until
from fencepost.rows.decode import refused_tombstone
from fencepost.rows.encode import PLACES
from fencepost.rows.flag import unfit_reason
from fencepost.rows.quarantine_headers import QUARANTINED
from fencepost.rows.whole_records import WITHHELD

REASONS = 10
SIZE = "size"


@dataclass(frozen=True)
class UnpublishedRows:
    """Rows that would not be published for one reason. `first` is the partition:offset of the first of these rows, if
    it is known. `topic` is the topic of source records, and empty for rows of the transform's result.
    """

    name: str
    reason: str
    rows: int
    first: str = ""
    topic: str = ""


@dataclass(frozen=True)
class SourceSample:
    """A trial's records of a source. `bad` has the malformed records by reason. `largest` is the bytes of the largest
    malformed record.

    `tombstones` are the tombstones that the transform does not get. `excluded` are the records that the source does not
    read, by kind. `read` is the number of records. `newest_ms` is the newest timestamp of a record that is not excluded, and
    is not ahead of the clock.
    """

    bad: list[UnpublishedRows]
    tombstones: list[UnpublishedRows]
    excluded: dict[ExcludedKind, UnpublishedRows]
    largest: int
    read: int
    newest_ms: int | None

    @property
    def malformed(self) -> int:
        """Returns the number of malformed records."""
        return sum(one.rows for one in self.bad)

    @property
    def refused_tombstones(self) -> int:
        """Returns the number of tombstones that the transform does not get."""
        return sum(one.rows for one in self.tombstones)

    @property
    def included(self) -> int:
        """Returns how many of the records are not excluded."""
        return self.read - sum(one.rows for one in self.excluded.values())


def with_size(raw: DataFrame) -> DataFrame:
    """Adds the column of each record's size: the bytes of key and value."""
    return raw.withColumn(SIZE, _bytes_of("key", "value"))


def source_sample(frame: DataFrame, source: Source, trial_input: TrialInput) -> SourceSample:
    """Counts the decoded records of a source, whose size is in the column `_size`."""
    at = F.col("_timestamp")
    until = None if trial_input.interval is None else credible_until(trial_input.interval, utc_now())
    newest_at = F.unix_millis(F.max(at if until is None else F.when(at <= F.lit(until), at)))
    place = F.min(F.struct(*PLACES))
    found = (
        frame.groupBy("_malformed", "_excluded", refused_tombstone(source).alias("tombstone"))
        .agg(
            F.count(F.lit(1)).alias("rows"),
            place.alias("place"),
            newest_at.alias("newest"),
            F.max(f"_{SIZE}").alias("size"),
        )
        .collect()
    )
    read = sum(row["rows"] for row in found)
    times = [row["newest"] for row in found if row["newest"] is not None and row["_excluded"] is None]
    topic, name = source.topic, f"malformed ({source.on_malformed})"
    bad = [
        UnpublishedRows(name, row["_malformed"], row["rows"], _placed(row), topic)
        for row in sorted(found, key=lambda row: -row["rows"])
        if row["_malformed"] is not None
    ]
    dropped = f"tombstones ({source.tombstones})"
    tombstones = [
        UnpublishedRows(dropped, "no value", row["rows"], _placed(row), topic) for row in found if row["tombstone"]
    ]
    excluded = {
        kind: UnpublishedRows("excluded", kind.words, row["rows"], _placed(row), topic)
        for row in sorted(found, key=lambda row: -row["rows"])
        if row["_excluded"] is not None and (kind := ExcludedKind(row["_excluded"]))
    }
    largest = max((row["size"] or 0 for row in found if row["_malformed"] is not None), default=0)
    return SourceSample(_first(bad), tombstones, excluded, largest, read, max(times, default=None))


def _placed(row: Row) -> str:
    _, partition, offset = row["place"]
    return f"{partition}:{offset}"


def _bytes_of(*names: str) -> Column:
    return sum((F.coalesce(F.octet_length(name), F.lit(0)) for name in names), F.lit(0))


def unfit_rows(flagged: DataFrame) -> list[UnpublishedRows]:
    """Returns the rows that would fail a write because they do not fit the output's format or schema."""
    if "_out_unfit" not in flagged.columns:
        return []
    reasons = flagged.select(unfit_reason(flagged).alias("reason")).where(F.col("reason").isNotNull())
    rows = reasons.groupBy("reason").count().orderBy(F.desc("count"), "reason").collect()
    return _first([UnpublishedRows("does not fit the output", row["reason"], row["count"]) for row in rows])


def _first(all_: list[UnpublishedRows]) -> list[UnpublishedRows]:
    """Returns the first `REASONS` reasons. All other reasons become one."""
    if len(all_) <= REASONS:
        return all_
    first, others = all_[:REASONS], sum(one.rows for one in all_[REASONS:])
    return [*first, UnpublishedRows(first[0].name, "other reasons", others, topic=first[0].topic)]


def counts_of_rows(routed: DataFrame) -> dict[int | str, tuple[int, int]]:
    """Returns the number of rows and the bytes of the largest row. The key is the number of the failed rule, or
    `written`, or `withheld`.
    """
    withheld = F.coalesce(F.col(WITHHELD), F.lit(False)) if WITHHELD in routed.columns else F.lit(False)
    rule = F.get_json_object(QUARANTINED, "$.rule").cast("int")
    found = routed.select(rule.alias("rule"), withheld.alias("withheld"), _bytes_of("key", "value").alias("size"))
    rows = found.groupBy("rule", "withheld").agg(F.count(F.lit(1)).alias("rows"), F.max("size").alias("size")).collect()
    counts: dict[int | str, tuple[int, int]] = {}
    for row in rows:
        name = "withheld" if row["withheld"] else "written" if row["rule"] is None else row["rule"]
        before = counts.get(name, (0, 0))
        counts[name] = (before[0] + row["rows"], max(before[1], row["size"]))
    return counts
