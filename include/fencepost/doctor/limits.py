"""Checks limits: how long a transaction may be open, and how long the source keeps its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from fencepost.doctor.folder import check_pipeline
from fencepost.doctor.inspection import Inspection, Role, duration
from fencepost.doctor.run_check import log_findings, raise_first_error
from fencepost.errors import SettingsError, SourceDataExpired
from fencepost.findings import Finding, error, ok, skipped, warning
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, State
from fencepost.protocol.frontier import frontier, of_topic
from fencepost.protocol.obstacle import restore_or_accept
from fencepost.protocol.view import View

SHARE = 0.5  # share of a transaction's timeout; a write that takes longer may exceed the timeout on a bad day
SOON = timedelta(hours=24)  # records that Kafka may delete within a day are reported, however often the pipeline runs


def check_before_plan(deployment: Deployment, view: View) -> None:
    """Makes the cheap checks for a step that plans: a few requests, and no Spark. Warnings are logged.

    Lost source records are only logged. The plan itself fails if its ranges contain lost records.

    Raises:
        SettingsError: transform or suite would fail, or a source looks back further than its topic keeps records.
    """
    pipeline, inspection = deployment.pipeline, Inspection(deployment.pipeline, deployment, view)
    check_pipeline(pipeline)
    raise_first_error(check_look_back(inspection), f"pipeline {pipeline.name}")
    log_findings([check_longest_write(inspection), *check_source_retention(inspection)], f"pipeline {pipeline.name}")


def check_limits(deployment: Deployment) -> None:
    """Checks the broker's limits before topics are created.

    Raises:
        SettingsError: the broker would refuse every transaction.
    """
    raise_first_error(
        [check_transaction_timeout(Inspection(deployment.pipeline, deployment))], f"pipeline {deployment.pipeline.name}"
    )


def check_transaction_timeout(inspection: Inspection) -> Finding:
    """Checks that the broker accepts the producers' transaction timeout."""
    ours, limit = (
        round(t.total_seconds() * 1000) for t in (inspection.transaction_timeout, inspection.transaction_limit)
    )
    if ours <= limit:
        return ok(f"kafka.transaction.timeout.ms is {ours}, within the broker's {limit}")
    return error(
        f"kafka.transaction.timeout.ms is {ours}, above the broker's transaction.max.timeout.ms of {limit}: the broker would "
        "refuse every write.",
        f"Set it to at most {limit} in pipeline.yaml, or raise the broker's limit.",
        kind=SettingsError,
    )


def check_longest_write(inspection: Inspection) -> Finding:
    """Checks that a transaction as long as the longest transaction in the ledger would still commit."""
    return longest_write(inspection.view.all(), inspection.transaction_timeout, inspection.transaction_limit)


def longest_write(batches: Sequence[Batch], timeout: timedelta, limit: timedelta) -> Finding:
    """Compares the transaction's timeout with the longest write and the longest copy in one transaction. Pure.

    A write takes at least as long as each of its transactions.
    """
    writes = [(b.written.seconds, str(b.id)) for b in batches if b.written]
    copies = [
        (seconds, str(b.id))
        for b in batches
        if b.publication and (seconds := b.publication.transaction_seconds) is not None
    ]
    for what, times, cure in (
        ("write", writes, "give the source topic more partitions (under output.layout: output, the output topic)"),
        ("copy in one transaction", copies, "lower output.atomic_megabytes"),
    ):
        longest, batch = max(times, default=(0.0, ""))
        if longest > timeout.total_seconds() * SHARE:
            return warning(
                f"The longest {what} in the ledger took {duration(timedelta(seconds=longest))} (batch {batch}), and the "
                "broker ends "
                f"a transaction after {duration(timeout)} (transaction.timeout.ms).",
                f"Raise kafka.transaction.timeout.ms to {round(longest / SHARE * 1000)} or more (the broker allows "
                f"{round(limit.total_seconds() * 1000)}: transaction.max.timeout.ms), or {cure}.",
            )
    longest, _ = max([*writes, *copies], default=(0.0, ""))
    return ok(f"the longest write took {longest:.0f} s, and a transaction may take {duration(timeout)}")


def check_look_back(inspection: Inspection) -> Iterator[Finding]:
    """Checks that each source that looks back keeps its records for that time, and longer if runs are late."""
    newest = inspection.view.newest
    behind = max(timedelta(0), inspection.now - newest.interval.end) if newest is not None else timedelta(0)
    for role in inspection.sources:
        source = inspection.pipeline.source_topics[role.name]
        if source.lookback is None or role.settings is None:
            continue
        if (retention := _retention(role.settings)) < 0:
            continue
        kept, back = _time(retention), source.lookback.time
        needed = back + inspection.longest_pause + behind
        longer = inspection.set_topic(role.name, retention_ms=round(2 * needed.total_seconds() * 1000))
        looks = (
            f"{source.setting} looks back {duration(back)}, and topic {role.name} keeps records for {duration(kept)}"
        )
        if kept < back and source.lookback.on_expired == "fail":
            yield error(
                f"{looks} (retention.ms).",
                f"Raise it, shorten {source.setting}.lookback, or set on_expired: skip there.",
                longer,
                kind=SettingsError,
            )
        elif kept < needed:
            yield warning(
                f"{looks} (retention.ms). With the schedule's longest interval and the present backlog, a batch needs records of "
                f"the last {duration(needed)}.",
                "Raise it, or run the pipeline's intervals up to now.",
                longer,
            )
        else:
            yield ok(f"topic {role.name} keeps records for {duration(kept)}, longer than a batch looks back")


def _retention(settings: Mapping[str, str]) -> int:
    """Returns the milliseconds for which a topic with these settings keeps records. -1 means without limit of time."""
    return int(settings.get("retention.ms", -1)) if "delete" in settings.get("cleanup.policy", "delete") else -1


def _time(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=min(milliseconds, 10**14))  # some 3,000 years, so that a date can have it added


def check_source_retention(inspection: Inspection) -> Iterator[Finding]:
    """Checks that each source still has everything from the frontier on, and keeps it until it can be published."""
    for source in inspection.sources:
        yield from _source_retention(inspection, source)


def _source_retention(inspection: Inspection, source: Role) -> Iterator[Finding]:
    reached, earliest = of_topic(frontier(inspection.view), source.name), inspection.cluster.earliest(source.there)
    if not reached:
        yield ok(f"nothing of topic {source.name} is published yet, so no record waits to be read")
        return
    yield from lost_records(inspection, source.name, earliest)
    reached = {p: max(offset, earliest[p]) for p, offset in reached.items() if p < len(earliest)}
    if source.settings is None:
        yield skipped(f"Kafka does not show the settings of topic {source.name}", "Grant DescribeConfigs on it.")
        return
    times = inspection.cluster.record_times(source.there, reached, inspection.pipeline.group)
    yield retention_left(inspection, source, source.settings, times, reached)


def lost_records(inspection: Inspection, name: str, earliest: Sequence[int]) -> Iterator[Finding]:
    """Yields findings about deleted source records. Only records matter that a planned batch has to read, or that a
    batch would need to be written again.
    """
    setting = f"{inspection.pipeline.source_topics[name].setting}.on_expired"
    skips = inspection.pipeline.source_topics[name].on_expired == "skip"
    reached, next_read = of_topic(frontier(inspection.view), name), to_be_written(inspection.view, name)
    if gone := _gone(next_read, earliest):
        found = f"Source topic {name} no longer has records that a planned batch has to read ({gone})."
        if skips:
            yield warning(found, f"{setting} is skip: the next run records the loss and continues.")
        else:
            yield error(found, restore_or_accept(f"{setting}: skip"), kind=SourceDataExpired)
    elif gone := _gone(reached, earliest):
        yield warning(
            f"Source topic {name} no longer has records after the frontier ({gone}). They are written but not published, and "
            "cannot be written again.",
            f"`fencepost status {inspection.pipeline.name}` shows what holds the frontier back.",
        )


def _gone(wanted: Mapping[int, int], earliest: Sequence[int]) -> str:
    """Returns the offsets from `wanted` on that no longer exist, as text. The text is empty if there are none."""
    gone = {p: earliest[p] for p, offset in sorted(wanted.items()) if p < len(earliest) and earliest[p] > offset}
    return ", ".join(f"partition {p}: offsets {wanted[p]} to {first - 1}" for p, first in gone.items())


def to_be_written(view: View, topic: str) -> dict[int, int]:
    """Returns the first offset that is not written, by source partition. This is the first offset of a planned batch,
    or otherwise of the next batch. Pure.
    """
    newest = view.newest
    first = {part.partition_id: part.end for part in newest.plan.ranges} if newest else {}
    for batch in view.all():
        if batch.state is State.PLANNED:
            for part in batch.plan.ranges:
                first[part.partition_id] = min(part.start, first.get(part.partition_id, part.start))
    return of_topic(first, topic)


def retention_left(
    inspection: Inspection,
    source: Role,
    settings: Mapping[str, str],
    times: Mapping[int, datetime],
    reached: Mapping[int, int],
) -> Finding:
    """Returns how long a source keeps its oldest unread records. Kafka may keep a record longer, and never deletes it
    earlier.
    """
    name = source.name
    retention = _retention(settings)
    by_size = int(settings.get("retention.bytes", -1)) >= 0
    sizes = f"; retention.bytes={settings['retention.bytes']} may delete them earlier" if by_size else ""
    if retention < 0 or not times:
        why = "has no retention time" if retention < 0 else "has no record after the frontier"
        return ok(f"topic {name} {why}{sizes}")
    partition = min(times, key=lambda p: times[p])
    left = times[partition] + _time(retention) - inspection.now
    where = f"partition {partition}, offset {reached[partition]}"
    cure = f"Run the pipeline's intervals up to now, or raise retention.ms (now {retention})."
    longer = inspection.set_topic(name, retention_ms=max(2 * retention, 7 * 86_400_000))
    if left <= timedelta(0):
        return warning(
            f"The oldest unread record of topic {name} ({where}) is older than the topic's retention of "
            f"{duration(timedelta(milliseconds=retention))}: Kafka may delete it at any moment{sizes}.",
            cure,
            longer,
        )
    if left < SOON:
        return warning(
            f"In {duration(left)} Kafka may delete the oldest unread record of topic {name} ({where}){sizes}.",
            cure,
            longer,
        )
    return ok(f"the oldest unread record of topic {name} stays for {duration(left)}{sizes}")
