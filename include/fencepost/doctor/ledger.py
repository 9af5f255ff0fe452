"""Checks that the ledger is readable and complete, and that it agrees with its announcements and the pipeline's group
offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fencepost.config.intervals import left_out
from fencepost.counts import count_of
from fencepost.doctor.inspection import Inspection
from fencepost.errors import AnnouncementsLost, GroupInUse, LedgerLost, SourcesChanged
from fencepost.findings import Finding, error, ok, warning
from fencepost.kafka.cluster import Topic, offsets_by_partition
from fencepost.ledger.announcements import (
    KEPT,
    missing_announcements,
    read_announcements,
    repair_advice,
    unfit_for_announcements,
)
from fencepost.ledger.completeness import (
    ADVICE,
    Named,
    describe_offsets,
    explain_offsets,
    offsets_of,
    plans_none,
    unexplained,
    unknown_batch,
)
from fencepost.model import OffsetRange
from fencepost.protocol.announcement import Announcement
from fencepost.protocol.announcing import history
from fencepost.protocol.frontier import frontier, of_topic
from fencepost.protocol.planning import change_of_sources
from fencepost.protocol.unplanned_intervals import UnplannedIntervals
from fencepost.protocol.unread import Unread, UnreadOf, before_ranges, unread
from fencepost.protocol.view import PASSED, View


def check_ledger(inspection: Inspection) -> Finding:
    """Checks that every record of the ledger can be read and continues the history of the record before it."""
    count = len(inspection.view.all())
    return ok(f"{count_of(count, 'revision')} of {count_of(len(inspection.view.intervals), 'interval')}")


def check_ledger_is_complete(inspection: Inspection) -> Finding:
    """Checks that the output names no batch that the ledger lacks."""
    if inspection.role("output") is None and inspection.pipeline.output.topics:
        return ok("there is no output yet")
    topic_id = inspection.ledger.topic_id if inspection.role("ledger") else ""
    unknown = unknown_batch(inspection.view, _newest(inspection)) if plans_none(inspection.view, topic_id) else None
    if unknown is None:
        return ok("the output names no batch that the ledger lacks")
    batch, place = unknown
    return error(
        f"{place[:1].upper()}{place[1:]} has records of batch {batch}, which is not in the ledger.",
        ADVICE,
        kind=LedgerLost,
    )


def check_unread_records(inspection: Inspection) -> Finding:
    """Checks that no source record lies before the range of the first planned interval. If no interval is planned, it
    checks the first interval of the schedule.
    """
    pipeline, cluster = inspection.pipeline, inspection.cluster
    topics = [source.there for source in inspection.sources]
    begins = offsets_by_partition(topics, cluster.earliest)
    if inspection.view.kept_intervals:
        before = unread(inspection.view).still_in(begins)
    else:
        start, found = pipeline.schedule.boundaries.at_or_after(pipeline.schedule.start), []
        for topic in topics:
            ends = cluster.first_stamped(topic, start)
            ranges = [OffsetRange(topic=topic.name, partition=p, start=end, end=end) for p, end in enumerate(ends)]
            if lying := before_ranges(ranges, begins, {}):
                found.append(UnreadOf(start, inspection.now, lying))
        before = Unread(tuple(found))
    if not before.offsets:
        return ok("no record lies before the first range")
    return warning(f"{before.description}.", f"{before.advice(pipeline.name)}. If you do not need them, do nothing.")


def check_changed_sources(inspection: Inspection) -> Finding:
    """Checks that the pipeline reads the topics of its newest planned interval. Other topics need a person's word."""
    pipeline, view = inspection.pipeline, inspection.view
    if view.newest is None:
        return ok("no interval is planned yet")
    changed = change_of_sources(view.newest.plan.source_topics, pipeline.source_topics)
    if not changed:
        return ok("the sources are those of the newest planned interval")
    return error(
        f"The sources have changed since interval {view.newest.interval} was planned, so the next plan would fail. {changed}",
        "If a topic in pipeline.yaml is wrong, correct it. If the sources have changed, confirm it once: run the next interval "
        f"by `fencepost run {pipeline.name} --start T --end T --sources-changed`, or by a backfill in Airflow with the parameter "
        "sources_changed.",
        kind=SourcesChanged,
    )


def check_intervals_left_out(inspection: Inspection) -> Finding:
    """Checks that every interval of the schedule before a planned interval is planned too. Airflow would not make a run
    for it.
    """
    pipeline = inspection.pipeline
    found = UnplannedIntervals.of(left_out(pipeline.schedule, inspection.view.intervals))
    if not found.intervals:
        return ok("no interval of the schedule was left out")
    return warning(f"{found.description}.", f"{found.advice}.", found.command(pipeline.name))


def check_announcements(inspection: Inspection) -> Finding:
    """Checks that the topic of announcements has all announcements of the ledger, and keeps them without limit."""
    role = inspection.role("announcements")
    if lost := inspection.ledger.announcements.loss(role.topic if role else None):
        return _lost_announcements(inspection, lost)
    if role is None:
        return ok("the topic does not exist yet; the first plan creates it")
    if role.settings is not None and (refusal := unfit_for_announcements(role.there, role.settings)):
        config = {name.replace(".", "_"): value for name, value in KEPT.items()}
        command = inspection.set_topic(role.name, **config) if role.there.partitions == 1 else ""
        return error(f"The {refusal}", repair_advice(role.there), command)
    missing, kept = _compared_with_history(inspection, role.there)
    if missing and inspection.read_again():  # a run may have published between the two questions
        missing, kept = _compared_with_history(inspection, role.there)
    if not missing:
        return ok(f"topic {role.name} has all {count_of(kept, 'announcement')}")
    first = f"the first of them for batch {missing[0].batch}, {missing[0].state}"
    return _lost_announcements(
        inspection, f"Topic {role.name} lacks {count_of(len(missing), 'announcement')}, {first}."
    )


def _lost_announcements(inspection: Inspection, lost: str) -> Finding:
    return error(
        f"{lost[:1].upper()}{lost[1:]}",
        "Readers rely on this topic alone, so nothing is planned or published until it is complete. Write it again from the "
        "ledger.",
        f"fencepost announce {inspection.pipeline.name}",
        kind=AnnouncementsLost,
    )


def _compared_with_history(inspection: Inspection, topic: Topic) -> tuple[list[Announcement], int]:
    """Returns the announcements that the topic lacks, and the number of announcements that it has."""
    kept = [one for _, one in read_announcements(inspection.cluster, topic, inspection.pipeline.group)]
    return missing_announcements(kept, history(inspection.view, inspection.cluster.id)), len(kept)


def _newest(inspection: Inspection) -> Iterator[Named]:
    """Yields the batches that own the newest records of the output and the staging topic."""
    for topic in inspection.destination.topics:
        if inspection.role(topic.role) is not None:
            yield from topic.newest_batches()
    if not inspection.destination.output.topics:
        yield from inspection.destination.output.newest_batches()


def check_group_offsets(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the groups `<pipeline>` and `<pipeline>.validated` have the offsets that follow from the ledger."""
    if not inspection.has_groups:
        yield ok("no group has offsets yet")
        return
    pipeline, output, found = inspection.pipeline, inspection.role("output"), list[Finding]()
    for source in inspection.sources:
        have = offsets_of(inspection.cluster, pipeline.group, source.there)
        ahead = unexplained(inspection.view, source.name, have)
        if ahead and inspection.read_again():  # a run may have published between the two questions
            have = offsets_of(inspection.cluster, pipeline.group, source.there)
            ahead = unexplained(inspection.view, source.name, have)
        offsets, wanted = {p: tp.offset for (_, p), tp in have.items()}, _moved_to(inspection.view, source.name)
        found += _compared(inspection, pipeline.group, source.name, offsets, wanted, ahead)
    if output is not None and (validated := inspection.destination.output.offsets) is not None:
        have = offsets_of(inspection.cluster, pipeline.validated_group, output.there)
        wanted = of_topic(validated.validated(inspection.view), output.name)
        offsets = {p: tp.offset for (_, p), tp in have.items()}
        found += _compared(inspection, pipeline.validated_group, output.name, offsets, wanted, {})
    yield from found or [ok("both groups have the offsets that follow from the ledger")]


def _moved_to(view: View, topic: str) -> dict[int, int]:
    """Returns the offsets to which publications and skips have moved the pipeline's group, by partition. A plan does
    not move the group.
    """
    moved = {part.partition_id for batch in view.all() if batch.state in PASSED for part in batch.plan.ranges}
    return of_topic({place: end for place, end in frontier(view).items() if place in moved}, topic)


def _compared(
    inspection: Inspection,
    group: str,
    topic: str,
    have: Mapping[int, int],
    wanted: Mapping[int, int],
    ahead: Mapping[int, int],
) -> Iterator[Finding]:
    """Yields how a group's offsets differ from the ledger's. Lower and missing offsets affect only programs that read
    the group's offsets.
    """
    if ahead and not inspection.view.revisions:
        yield error(
            f"G{describe_offsets(group, topic, ahead)[1:]}.", explain_offsets(inspection.pipeline), kind=GroupInUse
        )
        return
    if ahead:
        options = ("--group", group, "--reset-offsets", "--execute")
        back = [(*options, "--topic", f"{topic}:{p}", "--to-offset", str(wanted.get(p, 0))) for p in ahead]
        yield error(
            f"G{describe_offsets(group, topic, ahead)[1:]} that the ledger cannot explain.",
            f"{ADVICE} Only if a person set these offsets by hand, set them back.",
            " && ".join(inspection.command("kafka-consumer-groups", *one) for one in back),
            kind=LedgerLost,
        )
        return
    differs = {p: (have.get(p), end) for p, end in wanted.items() if have.get(p) != end}
    if not differs:
        return
    if all(offset is None for offset, _ in differs.values()):
        found = f"Group {group} has lost its offsets of topic {topic}: they expired, or a person deleted them."
    else:
        listed = ", ".join(f"partition {p}: {offset}, ledger {end}" for p, (offset, end) in sorted(differs.items()))
        found = (
            f"Group {group} has other offsets of topic {topic} than the ledger ({listed}): another program set them."
        )
    yield warning(found, "Only lag tools and readers of this group use them. The next publication restores them.")
