"""Does the source still have what the pipeline declares?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fencepost.drafting.drift import look_for_drift, told
from fencepost.preflight.finding import Finding, ok, skipped, warning
from fencepost.preflight.look import Look

RECORDS = 200
MOST_BYTES, SECONDS = 8_000_000, 10.0
LISTED = 5


def check_source_fields(look: Look) -> Iterator[Finding]:
    """A small sample of the source has the declared fields, of the declared types, and no others."""
    if not look.has_groups:  # a consumer would make Kafka's topic of offsets, and a check makes nothing
        yield skipped("no consumer has ever committed an offset here, and a look would be the first")
        return
    _, drift = look_for_drift(look.pipeline, look.cluster, RECORDS, most_bytes=MOST_BYTES, seconds=SECONDS)
    found = list(told(drift))
    if not found:
        yield ok(f"{drift.records:,} sampled records have the declared fields, and no others")
        return
    more = f"; and {len(found) - LISTED} more" if len(found) > LISTED else ""
    yield warning(
        f"The source has drifted from what pipeline.yaml declares: {'; '.join(islice(found, LISTED))}{more}.",
        "Declare what you need; a record that does not fit is malformed.",
        f"fencepost schema {look.pipeline.name} --sample 1000",
    )
