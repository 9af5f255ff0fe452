"""Traces a record: from an output record to its batch, or from a source record to its batch and its rows.

The ledger does not record which rows a source record became. Under layout `source`, today's transform is run on that
record alone, with today's side tables, and its rows are looked up in the batch. Under `output` a row may be made of many
records, so no rows are looked up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.config.source import Source
from fencepost.counts import count_of
from fencepost.errors import FencepostError, SettingsError
from fencepost.formats.framing import ExcludedKind
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.ledger.deployment import Deployment
from fencepost.model import BATCH_HEADER, Batch, Frozen, Layout, OffsetRange, SideTableState, State
from fencepost.outputs.quarantine import QuarantineTopic
from fencepost.preview.past import NotReadable, PastRevision, check_receipts, read_past
from fencepost.protocol.look_back import looked_back_at
from fencepost.protocol.revision import differing_tables
from fencepost.protocol.view import View
from fencepost.rows.path import Decoded, RowPath
from fencepost.rows.quarantine_headers import REASON_HEADER, RULE_HEADER, SOURCE_HEADER
from fencepost.rows.quarantined import header_value
from fencepost.rows.source import read_ranges
from fencepost.side_tables.content import TableContent
from fencepost.side_tables.frames import frames_of
from fencepost.side_tables.reading import read_tables
from fencepost.spark.diagnosis import spark_reads
from fencepost.steps.batch_input import no_records


class RecordLocation(Frozen):
    """A record's topic, partition and offset."""

    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def range(self) -> OffsetRange:
        """Returns the range of this record alone."""
        return OffsetRange(topic=self.topic, partition=self.partition, start=self.offset, end=self.offset + 1)


class QuarantineEntry(Frozen):
    """A record in quarantine, with the rule that it failed (or `malformed`) and the reason."""

    rule: str
    reason: str
    batch: str


class TraceResult(Frozen):
    """What is known about a record. `batches` are the batches that it belongs to, and the batch that counts is the
    last. `found` has further sentences.

    For a source record, `rows` are the locations of its rows in the output, and `kept` are its records in quarantine.
    `source` is the source's section in pipeline.yaml, or None if the pipeline does not read the topic. `looked_back_by` are
    the batches that looked back at the record.
    """

    place: RecordLocation
    source: str | None = None
    batches: tuple[Batch, ...] = ()
    looked_back_by: tuple[Batch, ...] = ()
    found: tuple[str, ...] = ()
    kept: tuple[QuarantineEntry, ...] = ()
    rows: tuple[RecordLocation, ...] = ()


def location_of(option: str, text: str) -> RecordLocation:
    """Returns the location in `TOPIC:PARTITION:OFFSET`."""
    match = re.fullmatch(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+):(?P<offset>\d+)", text)
    if match is None:
        raise SettingsError(f"{option} {text}: expected TOPIC:PARTITION:OFFSET, such as orders:0:1234.")
    return RecordLocation(topic=match["topic"], partition=int(match["partition"]), offset=int(match["offset"]))


def check_output(deployment: Deployment, view: View, place: RecordLocation) -> None:
    """Refuses a location that no output record of the pipeline has or ever had. It needs no Spark.

    Raises:
        SettingsError, TopicMissing: says what exists instead.
    """
    pipeline, plans = deployment.pipeline, [batch.plan for batch in view.all()]
    planned = [
        topic
        for p in plans
        for topic in (*p.output.topics, *(one.topic for one in (p.staging, p.quarantine) if one is not None))
    ]
    present = [*pipeline.output.topics, *([pipeline.staging_topic] if pipeline.output.is_staged else [])]
    _check_topic(pipeline.name, place, "writes to", [*present, *planned])
    _check_offset(deployment.cluster, place)


def check_source(deployment: Deployment, view: View, place: RecordLocation) -> None:
    """Refuses a location that no source record has or ever had. A record that a batch has read may be deleted by now."""
    read = [batch for batch in view.all() if batch.adds_to is None]
    topics = [*deployment.pipeline.source_topics, *(topic for batch in read for topic in batch.plan.source_topics)]
    _check_topic(deployment.pipeline.name, place, "reads", topics)
    if not any(_reads(batch, place) for batch in read):
        _check_offset(deployment.cluster, place)


def _check_topic(pipeline: str, place: RecordLocation, does: str, topics: Sequence[str]) -> None:
    if place.topic not in topics:
        named = ", ".join(dict.fromkeys(topics))
        raise SettingsError(
            f"{place}: pipeline {pipeline} {does} {named}, and not {place.topic}. Name one of these topics."
        )


def _check_offset(cluster: Cluster, place: RecordLocation) -> Topic:
    """Returns the topic, if it has the record's partition and the partition has reached its offset."""
    topic = cluster.describe(place.topic)
    if place.partition >= topic.partitions:
        raise SettingsError(
            f"{place}: the topic has {count_of(topic.partitions, 'partition')}, 0 to {topic.partitions - 1}."
        )
    end = cluster.last_stable(topic)[place.partition]
    if place.offset >= end:
        last = f"the last committed one is offset {end - 1}" if end else "it has none yet"
        raise SettingsError(f"{place}: the partition has no such record yet: {last}.")
    return topic


def trace_output(spark: SparkSession, deployment: Deployment, view: View, place: RecordLocation) -> TraceResult:
    """Returns the batch of an output record, by the record's header. A staged record's batch is found by its timestamp,
    and a record without a header by the ranges in the ledger.

    Raises:
        SettingsError: there is no such record.
    """
    record = _record(spark, deployment.cluster, place)
    if staged := [b for b in view.all() if b.plan.staging is not None and b.plan.staging.topic == place.topic]:
        own = tuple(b for b in staged if b.plan.staging_timestamp == record["millis"])
        found = () if own else ("No batch in this pipeline's ledger has its timestamp.",)
        return TraceResult(place=place, batches=own, found=found)
    named = [
        bytes(h["value"] or b"").decode("utf-8", "replace") for h in record["headers"] or () if h["key"] == BATCH_HEADER
    ]
    known = {str(batch.id): batch for batch in view.all()}
    if named and named[-1] in known:
        return TraceResult(place=place, batches=(known[named[-1]],))
    if named:
        return TraceResult(
            place=place, found=(f"Its header names batch {named[-1]}, which is not in this pipeline's ledger.",)
        )
    holding = tuple(batch for batch in view.all() if _holds(batch, place))
    sentence = "It has no header that names a batch"
    sentence += "; by its offset it may belong to these batches." if holding else ", and no batch has it in its ranges."
    return TraceResult(place=place, batches=holding, found=(sentence,))


def trace_source(spark: SparkSession, deployment: Deployment, view: View, place: RecordLocation) -> TraceResult:
    """Returns the batches that read a source record, and its records in quarantine. Under layout `source` it also
    returns the present locations of its rows.
    """
    source = deployment.pipeline.source_topics.get(place.topic)
    setting = source.setting if source is not None else None
    read = [b for b in view.all() if b.adds_to is None and b.state is not State.WITHDRAWN and _reads(b, place)]
    if not read:
        return TraceResult(place=place, source=setting, found=(_unread(view, place),))
    counts = next((b for b in reversed(read) if view.in_force(b.interval) == b), read[-1])
    additions = [b for b in view.known(counts.interval).additions if b.adds_to == counts.revision]
    batches = (*(b for b in read if b is not counts), counts, *additions)
    kept = tuple(one for batch in (counts, *additions) for one in _kept(spark, deployment, batch, place))
    found: list[str] = []
    rows: tuple[RecordLocation, ...] = ()
    if counts.written is None:
        found.append(f"Batch {counts.id} is {counts.state}: nothing is written yet.")
    elif counts.plan.layout is Layout.OUTPUT:
        found.append(
            "Which rows it became is not recorded: under output.layout: output a row may be made of many records."
        )
    elif source is None:
        found.append(
            f"Which rows it became is not recorded, and cannot be found: the pipeline no longer reads topic {place.topic}."
        )
    else:
        published = tuple(b for b in additions if b.state is State.PUBLISHED)
        rows, sentence = _rows(spark, deployment, PastRevision(counts, published), source, place)
        found.append(sentence)
    looking = looked_back_at(view, (place.topic, place.partition), place.offset)
    return TraceResult(
        place=place,
        source=setting,
        batches=batches,
        looked_back_by=looking,
        found=tuple(found),
        kept=kept,
        rows=rows,
    )


def _record(spark: SparkSession, cluster: Cluster, place: RecordLocation) -> Any:
    """Returns the record, as the connector gives it, and its timestamp in milliseconds as `millis`.

    Raises:
        SettingsError: there is no such record.
    """
    first = cluster.earliest(_check_offset(cluster, place))[place.partition]
    if place.offset < first:
        raise SettingsError(f"{place}: the partition now begins at offset {first}; earlier records were deleted.")
    raw = read_ranges(spark, cluster.settings, [place.range], headers=True)
    found = raw.withColumn("millis", F.unix_millis("timestamp")).collect()
    if not found:
        raise SettingsError(
            f"{place}: there is no record. This offset belongs to a transaction marker or an aborted record."
        )
    return found[0]


def _holds(batch: Batch, place: RecordLocation) -> bool:
    """Returns whether the offsets of the batch's records include this location."""
    return any(part.holds((place.topic, place.partition), place.offset) for part in batch.published_ranges)


def _reads(batch: Batch, place: RecordLocation) -> bool:
    return any(part.holds((place.topic, place.partition), place.offset) for part in batch.plan.ranges)


def _unread(view: View, place: RecordLocation) -> str:
    ranges = [
        r
        for batch in view.all()
        if batch.adds_to is None
        for r in batch.plan.ranges
        if r.partition_id == (place.topic, place.partition)
    ]
    if not ranges:
        return f"No batch of this pipeline has read partition {place.partition} of topic {place.topic}."
    if place.offset >= max(r.end for r in ranges):
        return (
            f"No batch has read it yet: the last planned range ends at offset {max(r.end for r in ranges)} of its "
            "partition."
        )
    return (
        f"No batch reads it: the first planned range begins at offset {min(r.start for r in ranges)} of its partition."
    )


def _kept(spark: SparkSession, deployment: Deployment, batch: Batch, place: RecordLocation) -> list[QuarantineEntry]:
    """Returns the records in quarantine that came from this source record."""
    if batch.plan.quarantine is None or batch.written is None or not batch.written.quarantined:
        return []
    found = QuarantineTopic(deployment, batch).read_back(spark, batch).where(header_value(SOURCE_HEADER) == str(place))
    rule, reason = F.coalesce(header_value(RULE_HEADER), F.lit("")), F.coalesce(header_value(REASON_HEADER), F.lit(""))
    rows = found.select(rule.alias("rule"), reason.alias("reason")).collect()
    return [QuarantineEntry(rule=row["rule"], reason=row["reason"], batch=str(batch.id)) for row in rows]


def _rows(
    spark: SparkSession, deployment: Deployment, past: PastRevision, source: Source, place: RecordLocation
) -> tuple[tuple[RecordLocation, ...], str]:
    """Returns the locations of the rows that today's transform makes from the record, and a sentence about them."""
    try:
        with spark_reads(f"record {place}"):
            record = _record(spark, deployment.cluster, place)
            if source.excludes and (kind := _excluded(spark, deployment, past.batch, source, place)) is not None:
                return (), f"It is excluded: the source reads no {kind.words}."
            if record["value"] is None and source.tombstones != "pass":
                said = f"{source.setting}.tombstones: {source.tombstones}"
                return (), f"It is a tombstone, and {said} gives none to the transform."
            frame = _read_back(spark, deployment, past)
            tables = read_tables(spark, deployment.pipeline, deployment.cluster)
            made = _made(spark, deployment, past.batch, place, tables)
    except (NotReadable, FencepostError) as error:
        return (), f"Which rows it became is not recorded, and cannot be found: {error}"
    if not made:
        return (), "Today's transform makes no row from it."
    since = _what_changed(deployment, past.batch, [content.state for content in tables.values()])
    if frame is None:
        return (), f"Today's transform makes {count_of(len(made), 'row')} from it, and the batch has no rows.{since}"
    hits = (
        frame.where(F.col("_hash").isin(sorted(made)))
        .select("_topic", "_partition", "_offset")
        .orderBy("_partition", "_offset")
    )
    rows = tuple(
        RecordLocation(topic=r["_topic"], partition=r["_partition"], offset=r["_offset"]) for r in hits.collect()
    )
    if not rows:
        return (), (
            f"Today's transform makes {count_of(len(made), 'row')} from it, and the batch has none of these rows.{since}"
        )
    return rows, (
        f"Which rows it became is not recorded. These rows are equal to what today's transform makes from it.{since}"
    )


def _what_changed(deployment: Deployment, batch: Batch, tables: Sequence[SideTableState]) -> str:
    """Returns a sentence about what has changed since the batch was written, or nothing. `tables` are the states of the
    side tables now.
    """
    if batch.plan.digests != deployment.pipeline.write_digests():
        return " The transform, or what it reads, has changed since the batch was written."
    if differing := differing_tables(batch.plan.tables, tables):
        names = ", ".join(differing)
        changed = f"tables {names} have" if len(differing) > 1 else f"table {names} has"
        return f" Since the batch was written, side {changed} changed."
    return ""


def _read_back(spark: SparkSession, deployment: Deployment, past: PastRevision) -> DataFrame | None:
    if not past.promised.rows:
        return None
    frame = read_past(spark, deployment, past)
    check_receipts(frame, past)
    return frame


def _made(
    spark: SparkSession,
    deployment: Deployment,
    batch: Batch,
    place: RecordLocation,
    tables: Mapping[str, TableContent],
) -> set[int]:
    """Returns the hashes of the rows that today's transform makes from the record, with these side tables."""
    path, decoded = _decoded(spark, deployment, batch, place)
    path = replace(path, tables=frames_of(spark, deployment.pipeline, tables))
    flagged = path.flag(path.transform(decoded))
    return {row["hash"] for row in path.route(flagged, Layout.SOURCE).select("hash").collect()}


def _excluded(
    spark: SparkSession, deployment: Deployment, batch: Batch, source: Source, place: RecordLocation
) -> ExcludedKind | None:
    """Returns why the source does not read the record, by today's settings, or None if it reads the record."""
    _, decoded = _decoded(spark, deployment, batch, place)
    (own,) = (one for name, one in decoded.items() if deployment.pipeline.sources[name] == source)
    found = own.frame.select("_excluded").head()
    return None if found is None or found[0] is None else ExcludedKind(found[0])


def _decoded(
    spark: SparkSession, deployment: Deployment, batch: Batch, place: RecordLocation
) -> tuple[RowPath, dict[str, Decoded]]:
    """Returns the record decoded by the settings of its source. The other sources have no records."""
    # No rules: the batch has the rows that its own rules let through, and quarantine has the others, whatever today's
    # rules say.
    path = RowPath(deployment.pipeline, batch.plan.schemas, rules=None)
    raw = {
        name: read_ranges(spark, deployment.cluster.settings, [place.range], headers=path.reads_headers(source))
        if source.topic == place.topic
        else no_records(spark)
        for name, source in deployment.pipeline.sources.items()
    }
    return path, path.decode(raw)
