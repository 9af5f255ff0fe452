"""Checks whether the sources still have the declared fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fencepost.config.pipeline import Pipeline
from fencepost.config.source import Source
from fencepost.counts import first_of
from fencepost.doctor.inspection import Inspection
from fencepost.drafting.drift import LISTED, Drift, describe_drift, describe_notes, look_for_drift
from fencepost.drafting.foreign_ids import Part, foreign_ids
from fencepost.findings import Finding, ok, skipped, warning
from fencepost.formats import FORMATS
from fencepost.formats.framing import ExcludedKind
from fencepost.kafka.sample import Sampled

RECORDS = 200  # of each source
MOST_BYTES, SECONDS, OF_ALL_SECONDS = 8_000_000, 10.0, 40.0  # the check has a limit for all sources together


def check_source_fields(inspection: Inspection) -> Iterator[Finding]:
    """Checks a small sample of each source. The sample should have the declared fields with the declared types, no other
    fields, no schema ids that are not read, and no refused tombstones.
    """
    if not inspection.has_groups:  # a consumer would create Kafka's topic of offsets, and a check creates nothing
        yield skipped("reading a sample would create Kafka's topic __consumer_offsets")
        return
    pipeline = inspection.pipeline
    seconds = min(SECONDS, OF_ALL_SECONDS / len(pipeline.sources))
    for source in pipeline.sources.values():
        found, drift = look_for_drift(
            pipeline, source, inspection.cluster, RECORDS, most_bytes=MOST_BYTES, seconds=seconds
        )
        yield from _of_source(pipeline, source, found.records, drift)


def _of_source(pipeline: Pipeline, source: Source, records: Sequence[Sampled], drift: Drift) -> Iterator[Finding]:
    name = f"{source.setting}: " if pipeline.several else ""
    drifted, foreign = list(describe_drift(drift)), list(_foreign_ids(source, records))
    if drifted:
        what = f"{source.setting} (topic {source.topic})" if pipeline.several else "The source"
        yield warning(
            f"{what} has drifted from what pipeline.yaml declares: {first_of(drifted, LISTED)}.",
            "Declare what you need; a record that does not fit is malformed.",
            f"fencepost schema {pipeline.name} --sample 1000",
        )
    for one in foreign:
        yield replace(one, found=f"{name}{one.found}")
    fails = source.tombstones == "fail" and ExcludedKind.DELETION_TOMBSTONES not in source.excludes
    refused = sum(record.value is None for record in records) if fails else 0
    if refused:
        yield warning(
            f"{name}{refused:,} of {len(records):,} sampled records have no value (tombstones), and "
            f"{source.setting}.tombstones is fail, so a batch with such a record fails.",
            f"Set {source.setting}.tombstones in pipeline.yaml: drop leaves them out, pass gives them to the transform.",
        )
    if not drifted and not foreign and not refused:
        more = "".join(f"; {one}" for one in describe_notes(drift))
        yield ok(
            f"{name}{drift.records:,} sampled records have the declared fields and no other fields that could be declared{more}"
        )


def _foreign_ids(source: Source, records: Sequence[Sampled]) -> Iterator[Finding]:
    """Yields a warning if values or keys have schema ids that are not read."""
    formats: dict[Part, str] = {"value": source.format, "key": source.key_format}
    for part, name in formats.items():
        if FORMATS[name].has_registry and (found := foreign_ids(records, part)) is not None:
            yield warning(f"{found.what}.", found.cure)
