"""Warns about a draft: what a person should know before the first run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from fencepost.config.intervals import clock_changes
from fencepost.config.sections import Schedule
from fencepost.counts import count_of
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.draft_source import DraftSource
from fencepost.drafting.settings import LARGE, LIMIT, largest_of, limit_of
from fencepost.drafting.source import compaction
from fencepost.drafting.times import ChosenInterval, doubts
from fencepost.protocol.unread import FIRST_CREDIBLE


def draft_warnings(
    sources: Sequence[DraftSource], chosen: ChosenInterval, wanted: DraftRequest, schedule: Schedule, now: datetime
) -> Iterator[str]:
    """Yields the warnings in sentences. Those about one of several topics begin with it."""
    for one in sources:
        about = f"Topic {one.source.topic}: " if wanted.more else ""
        yield from (f"{about}{warning}" for warning in _of_source(one, wanted))
    has_records = any(one.sample.records for one in sources)
    if chosen.unread and chosen.whole < FIRST_CREDIBLE:
        yield (
            f"No run from {chosen.interval.description} on reads the {count_of(chosen.unread, 'offset', 'offsets')} "
            "before the first record of this interval. Records there have timestamps that are much older, ahead of "
            "the clock, or missing. A comment in pipeline.yaml has the command that reads them."
        )
    if has_records and not chosen.records:
        yield f"The interval {chosen.interval.description} has no record, so the first run would publish nothing."
    if has_records and not chosen.ended:
        yield (
            "No interval with records has ended yet. The command below runs an interval before its end. Later records "
            "then belong to the next interval."
        )
    if changes := clock_changes(schedule, now):
        yield changes
    for one in sources:
        about = f"Topic {one.source.topic}: " if wanted.more else ""
        yield from (f"{about}{doubt}" for doubt in doubts(one.sample, schedule.boundaries, now))


def _of_source(drafted: DraftSource, wanted: DraftRequest) -> Iterator[str]:
    sample, fields, topic = drafted.sample, drafted.fields, drafted.source.topic
    if any(compacted := compaction(topic, drafted.policy)):
        yield " ".join(compacted)
    if sample.cut:
        yield f"The sample has {count_of(len(sample.records), 'record')}, not {wanted.sample:,}: {sample.cut}."
    if (largest := largest_of(sample)) >= LARGE:
        yield (
            f"The largest sampled record has {largest:,} bytes. If topics of this cluster accept less "
            f"(max.message.bytes), create {wanted.output_topic} with a higher limit before the first run. The "
            "staging topic gets the same limit."
        )
    if fields.bad:
        reasons = sorted(fields.malformed.items(), key=lambda item: -item[1])
        yield (
            f"Malformed: {fields.bad:,} of {fields.records:,} sampled records, which would go to quarantine: "
            f"{'; '.join(f'{reason} ({count:,})' for reason, count in reasons[:3])}."
        )
    if (limit := limit_of(fields)) > LIMIT:
        rejects = "no batch is rejected for them" if limit == 1 else f"only a share above {limit} rejects a batch"
        yield (
            f"pipeline.yaml sets quality.quarantine_limit to a share of {limit} for these malformed records, so {rejects}. The "
            f"default is {LIMIT}. Lower it when the cause is fixed."
        )
    yield from fields.notes
    if fields.left_out:
        yield (
            f"Fields that cannot be read: {len(fields.left_out):,}. They are left out, and pipeline.yaml lists them with "
            "the reasons."
        )
