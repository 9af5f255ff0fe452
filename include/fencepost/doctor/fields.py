"""Checks whether the source still has the declared fields."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.counts import first_of
from fencepost.doctor.inspection import Inspection
from fencepost.drafting.drift import LISTED, describe_drift, describe_notes, look_for_drift
from fencepost.findings import Finding, ok, skipped, warning

RECORDS = 200
MOST_BYTES, SECONDS = 8_000_000, 10.0


def check_source_fields(inspection: Inspection) -> Iterator[Finding]:
    """Checks a small sample of the source. The sample should have the declared fields with the declared types, no other
    fields, and no refused tombstones.
    """
    if not inspection.has_groups:  # a consumer would create Kafka's topic of offsets, and a check creates nothing
        yield skipped("reading a sample would create Kafka's topic __consumer_offsets")
        return
    sample, drift = look_for_drift(
        inspection.pipeline, inspection.cluster, RECORDS, most_bytes=MOST_BYTES, seconds=SECONDS
    )
    drifted = list(describe_drift(drift))
    if drifted:
        yield warning(
            f"The source has drifted from what pipeline.yaml declares: {first_of(drifted, LISTED)}.",
            "Declare what you need; a record that does not fit is malformed.",
            f"fencepost schema {inspection.pipeline.name} --sample 1000",
        )
    tombstones = sum(record.value is None for record in sample.records)
    refused = tombstones if inspection.pipeline.source.tombstones == "fail" else 0
    if refused:
        yield warning(
            f"{refused:,} of {len(sample.records):,} sampled records have no value (tombstones), and source.tombstones is fail, "
            "so a batch with such a record fails.",
            "Set source.tombstones in pipeline.yaml: drop leaves them out, pass gives them to the transform.",
        )
    if not drifted and not refused:
        more = "".join(f"; {one}" for one in describe_notes(drift))
        yield ok(
            f"{drift.records:,} sampled records have the declared fields and no other fields that could be declared{more}"
        )
