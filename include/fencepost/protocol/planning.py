"""Decides the next plan of an interval from facts that were gathered for it. Pure.

Gathering facts takes seconds, because it asks Kafka and the registry, hashes files and creates topics. Another run may
plan in the meantime. So the decision refuses the facts if the interval's neighbours in the ledger have changed, and the
facts are gathered again. Otherwise a plan that knew four partitions of its source could follow a plan that knew five.
The plan after it would then read the fifth partition from its beginning a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from fencepost.errors import (
    AnotherCluster,
    FactsOutdated,
    NeedsOperator,
    SourceDataExpired,
    SourcesChanged,
    TransitionRefused,
)
from fencepost.model import (
    Batch,
    Decision,
    Interval,
    Layout,
    OffsetRange,
    PartitionId,
    Plan,
    PlannedOutput,
    Schemas,
    State,
    TaskBlock,
    TaskKind,
    TopicEnds,
    TopicInput,
    UnreadRange,
    by_partition,
    describe_ranges,
    describe_topics,
)
from fencepost.protocol.decisions import (
    answer_to,
    free_lane,
    is_carried_out,
    record_planned,
    replay_lane,
    standing_plan,
    unfinished_ids,
    why_it_stays,
)
from fencepost.protocol.look_back import ranges_before
from fencepost.protocol.obstacle import (
    AbandonedPublication,
    SourceState,
    accept_lookback_loss,
    accept_loss,
    source_obstacle,
)
from fencepost.protocol.ranges import frozen_ranges, range_starts, without_expired
from fencepost.protocol.replay import CurrentSources, check_reads, link_to_replay, replayed, require_link
from fencepost.protocol.revision import CurrentInputs, revision_reason
from fencepost.protocol.unread import before_ranges
from fencepost.protocol.view import PASSED, View


@dataclass(frozen=True)
class Neighbours:
    """The batches that decide an interval's ranges. An interval that has a batch keeps the batch's ranges. Otherwise
    the batches before and after it decide. `readers` has the nearest earlier batch that reads a source topic, by topic. A
    topic that no earlier batch reads is not in it.
    """

    own: Batch | None = None
    before: Batch | None = None
    after: Batch | None = None
    readers: Mapping[str, Batch] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View, interval: Interval, topics: Iterable[str] = ()) -> Neighbours:
        """Returns the interval's neighbours in the ledger, for a plan that may read these topics."""
        own = view.range_owner(interval)
        if own is not None:
            return cls(own)
        readers = {topic: found for topic in topics if (found := view.before(interval, topic)) is not None}
        return cls(None, view.before(interval), view.after(interval), readers)

    def of_topic(self, topic: str) -> tuple[Batch, ...]:
        """Returns the neighbours that read this topic."""
        near = (self.own, self.readers.get(topic), self.after)
        return tuple(batch for batch in near if batch is not None and topic in batch.plan.source_topics)

    def topics(self, reads: Iterable[str]) -> tuple[str, ...]:
        """Returns the topics that a batch of the interval reads, of `reads`, the topics that the pipeline reads. Intervals that
        were planned without a topic do not read it later, because its records belong to later intervals. Neither does an
        interval that is planned before them.
        """
        bound = self.own or self.after
        return tuple(one for one in reads if bound is None or one in bound.plan.source_topics)

    def bound_alike(self, other: Neighbours) -> bool:
        """Returns whether the other neighbours give the interval the same ranges. The states of the neighbours do not
        matter.
        """
        pairs = [(self.own, other.own), (self.before, other.before), (self.after, other.after)]
        pairs += [(self.readers.get(topic), other.readers.get(topic)) for topic in {*self.readers, *other.readers}]
        return all(_bounds(one) == _bounds(two) for one, two in pairs)


def _bounds(batch: Batch | None) -> object:
    return None if batch is None else (batch.interval, batch.plan.inputs, batch.plan.also_covers)


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What a plan needs to know of a source: its settings, and offsets of its topic, one for each partition that the broker
    knows.

    `setting` is the section of the source in pipeline.yaml, for messages. `accept_loss` says that the pipeline continues
    without expired records (`on_expired: skip`), and `quarantines_malformed` that malformed records go to quarantine.
    `lookback` is how far the source looks back, or None, and `accept_lookback_loss` is `accept_loss` for looked-back records.

    `by_start` is the first record at or after the time at which the source begins (`new_source_begins`), or None if the range
    begins where another interval's range ends or begins. `by_end` is the first record at or after the interval's end, from
    the range's start on. `by_start` and `by_end` have None for a partition without such a record. `stable` is asked first, so
    a record that arrives later belongs to the next batch. `last_timestamps` are the timestamps of the last records before
    `by_start`, for partitions that have such records.
    """

    topic: str
    topic_id: str
    setting: str = "source"
    accept_loss: bool = False
    lookback: timedelta | None = None
    accept_lookback_loss: bool = False
    quarantines_malformed: bool = False
    earliest: tuple[int, ...]
    stable: tuple[int, ...] = ()
    by_start: tuple[int | None, ...] | None = None
    by_end: tuple[int | None, ...] = ()
    last_timestamps: Mapping[PartitionId, int] = field(default_factory=dict)

    @property
    def begins(self) -> dict[PartitionId, int]:
        """Returns the earliest offset of each partition."""
        return by_partition(self.topic, self.earliest)

    @property
    def partitions(self) -> int:
        """Returns the number of partitions that the broker knows."""
        return len(self.earliest)


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """Everything besides the ledger that a plan depends on. `sources` were gathered for `neighbours`. `reads` has the topics
    that the pipeline reads, and `sources_changed` says that a person has confirmed them.

    For an addition, `link` is the batch whose quarantined records it replays. `sources` is empty then, because those
    records were checked already. `unkept` says why a topic would refuse the batch's records or delete them before they
    are judged. With `unkept` only a batch without offsets is planned. `quarantine` is None if the pipeline quarantines
    nothing. `clock` is `now` in milliseconds since 1970.
    """

    pipeline: str
    neighbours: Neighbours
    sources: tuple[SourceFacts, ...]
    reads: tuple[str, ...]
    sources_changed: bool = False
    link: Batch | None = None
    output: PlannedOutput
    staging: TopicEnds | None
    quarantine: TopicEnds | None
    ledger_topic_id: str
    layout: Layout
    lanes: int
    digests: Mapping[str, str]
    software: str
    output_format: str
    schemas: Schemas | None
    now: datetime
    clock: int
    unkept: NeedsOperator | None = None
    cluster_id: str | None = None


def check_same_cluster(pipeline: str, cluster_id: str, known: str) -> None:
    """Checks that this cluster is the `known` one, to which the last publication went.

    Raises:
        AnotherCluster: this is not the known cluster. The topics of another cluster have other records, and the ledger
            there is empty or a copy.
    """
    if known != cluster_id:
        raise AnotherCluster(
            f"pipeline {pipeline}: this is Kafka cluster {cluster_id}, but the last publication was on cluster {known}. Nothing "
            "was planned or created. If bootstrap.servers or the connection is wrong, correct it. If the pipeline has moved, "
            "confirm it once: `fencepost run --another-cluster`, or the parameter another_cluster of a backfill in Airflow."
        )


def last_cluster(view: View) -> str | None:
    """Returns the cluster of the last publication in the ledger, or None if nothing was published yet."""
    published = [batch for batch in view.all() if batch.state is State.PUBLISHED]
    return max(published, key=lambda batch: batch.changed_at).plan.cluster_id if published else None


def moves_here(view: View, cluster_id: str, request: str | None) -> bool:
    """Returns whether a request that confirms a move may apply to this cluster. A request does not apply if one of its
    batches was planned on another cluster.
    """
    return all(request not in batch.requests or batch.plan.cluster_id == cluster_id for batch in view.all())


def check_source_topics(
    view: View,
    interval: Interval,
    pipeline: str,
    near: Neighbours,
    reads: Sequence[str],
    *,
    confirmed: bool,
) -> None:
    """Checks that a batch of the interval can be planned by a pipeline that reads these topics. `confirmed` says that a person
    has confirmed that the sources changed.

    1. only a pipeline that reads all topics of a planned interval plans it again, or plans an interval before it. Otherwise
       records between two planned intervals could be left out for good;
    2. no batch that reads a topic is unfinished when the pipeline no longer reads that topic;
    3. the interval after all planned ones reads the topics of the newest, unless a change is confirmed.

    Raises:
        SourcesChanged: names the topics and the next step.
    """
    about, bound = f"pipeline {pipeline} reads {describe_topics(reads)}", near.own or near.after
    if bound is not None:  # 1
        if gone := [one for one in bound.plan.source_topics if one not in reads]:
            again = "it again" if near.own is not None else "an interval before it"
            raise SourcesChanged(
                f"{about}, and batch {bound.id} was planned with {describe_topics(gone)}. Nothing was planned for interval "
                f"{interval}. Only a pipeline that has all sources of a batch can plan {again}: add the source, or leave the "
                "interval as it is."
            )
        return
    if (batch := unfinished_of(view, reads)) is not None:  # 2
        gone = [one for one in view.known(batch.interval).last_batch.plan.source_topics if one not in reads]
        or_withdraw = "" if why_it_stays(view, batch.interval) else ", or withdraw it"
        raise SourcesChanged(
            f"{about}, and batch {batch.id} of an interval that reads {describe_topics(gone)} is {batch.state}. Nothing was "
            "planned. If a topic in pipeline.yaml is wrong, correct it. If the sources have changed, publish this batch with the "
            f"former ones, or skip it{or_withdraw}, and run again."
        )
    if near.before is None:
        return
    newest = near.before.plan.source_topics
    changed = change_of_sources(newest, reads)
    if changed and not confirmed:  # 3
        raise SourcesChanged(
            f"{about}, and the newest interval {near.before.interval} was planned with {describe_topics(newest)}. "
            f"{changed} Nothing was planned. If a topic in pipeline.yaml is wrong, correct it. If the "
            "sources have changed, confirm it once: "
            f"{interval.command('run', pipeline, '--sources-changed')}, or the parameter sources_changed of a backfill in "
            f"Airflow. A new topic is read from {near.before.interval.end:%Y-%m-%d %H:%M} UTC on, and a topic that returns "
            "from the end of its last range on."
        )


def change_of_sources(before: Collection[str], now: Collection[str]) -> str:
    """Returns which topics came and which left, in sentences. The text is empty if the topics are the same."""
    came, left = [one for one in now if one not in before], [one for one in before if one not in now]
    return " ".join(f"{word}: {', '.join(topics)}." for word, topics in (("Added", came), ("Left out", left)) if topics)


def unfinished_of(view: View, reads: Collection[str]) -> Batch | None:
    """Returns a batch with offsets, or an addition to it, that is neither published nor skipped although the interval has a
    topic that is not in `reads`. Only a pipeline that reads all of the interval's topics can finish it. Returns None if
    there is none.
    """
    for interval in view.kept_intervals:
        planned = view.known(interval)
        plan = planned.last_batch.plan
        if planned.last.state not in PASSED and not plan.is_empty and not {*plan.source_topics} <= {*reads}:
            return planned.last
    return None


def sources_confirmed(view: View, reads: Collection[str], request: str | None) -> bool:
    """Returns whether a request that confirms a change of the sources may apply to these topics. A request does not apply if
    one of its batches was planned with others.
    """
    own = (batch for batch in view.all() if request in batch.requests and batch.adds_to is None)
    return all({*batch.plan.source_topics} <= {*reads} for batch in own)


def check_same_source(batch: Batch, topic: str, topic_id: str, partitions: int) -> None:
    """Checks that the batch's offsets of this source topic belong to it, and that the broker knows all of their partitions.
    The batch reads the topic.

    Raises:
        TopicRecreated: the topic has another id, so the offsets belong to other records now.
        KafkaUnavailable: the batch has partitions that the broker does not know yet.
    """
    stopped = source_obstacle(batch, SourceState(topic, topic_id, partitions))
    if stopped is not None:
        raise stopped.error(batch)


def new_source_begins(interval: Interval, near: Neighbours, topic: str) -> datetime | None:
    """Returns the time at which the interval's range of a topic begins, or None if it begins at an offset of another
    interval (`range_starts`). A topic that no earlier interval reads begins where the preceding interval ends. An interval
    that is planned between that one and the topic's first range does not change where the topic begins.
    """
    if topic in near.readers or (near.before is not None and near.after is not None):
        return None
    return interval.start if near.before is None else near.before.interval.end


def starts_of(neighbours: Neighbours, source: SourceFacts) -> list[int]:
    """Returns the start of each range. The interval has no batch yet."""
    before = neighbours.readers.get(source.topic)
    return range_starts(source.topic, before, neighbours.after, source.stable, source.by_start)


def input_of(interval: Interval, facts: PlanFacts, source: SourceFacts) -> TopicInput:
    """Returns the input of the interval's next batch from a source.

    A new revision keeps the ranges of the interval's last batch. Expired parts of these ranges are recorded as lost.

    Raises:
        SourceDataExpired: a part of the ranges has expired, and the pipeline does not accept the loss.
    """
    near = facts.neighbours
    for batch in near.of_topic(source.topic):
        check_same_source(batch, source.topic, source.topic_id, source.partitions)
    lost: tuple[OffsetRange, ...] = ()
    unread: tuple[UnreadRange, ...] = ()
    if near.own is not None:
        own = near.own.plan.input_of(source.topic)
        ranges, lost, unread = own.ranges, own.lost, own.unread
    else:
        starts = starts_of(near, source)
        ranges = frozen_ranges(interval, source.topic, starts, near.after, source.stable, source.by_end)
        if source.topic not in near.readers:
            unread = before_ranges(ranges, source.begins, source.last_timestamps)
    ranges, expired = without_expired(ranges, source.begins)
    if expired and not source.accept_loss:
        raise SourceDataExpired(
            f"pipeline {facts.pipeline}, interval {interval}: source topic {source.topic} no longer has "
            f"{describe_ranges(expired)}: retention deleted them before the batch was written. {accept_loss(source.setting)}"
        )
    return TopicInput(
        topic=source.topic, topic_id=source.topic_id, ranges=ranges, lost=(*lost, *expired), unread=unread
    )


def also_covered(interval: Interval, near: Neighbours, inputs: Sequence[TopicInput]) -> Interval | None:
    """Returns the time before the interval that its next batch covers too, or None. The batch has records, and no interval
    was planned for that time.
    """
    if near.own is not None:
        return near.own.plan.also_covers
    if near.before is None or near.before.interval.end >= interval.start:
        return None
    has_records = any(part.length for one in inputs for part in (*one.ranges, *one.lost))
    return Interval(start=near.before.interval.end, end=interval.start) if has_records else None


def look_back(view: View, batch: Interval, facts: PlanFacts, source: SourceFacts) -> TopicInput | None:
    """Returns the ranges of a source that the transform of a batch gets again, or None if the source does not look back. The
    batch covers the time `batch`.

    Raises:
        SourceDataExpired: a part of the ranges has expired, and the pipeline does not accept the loss.
    """
    if source.lookback is None:
        return None
    ranges = ranges_before(view, batch, source.topic, source.lookback, source.partitions)
    left, expired = without_expired(ranges, source.begins)
    if expired and not source.accept_lookback_loss:
        raise SourceDataExpired(
            f"pipeline {facts.pipeline}, interval {batch}: source topic {source.topic} no longer has "
            f"{describe_ranges(expired)}, which the batch looks back at. {accept_lookback_loss(source.setting)}"
        )
    return TopicInput(topic=source.topic, topic_id=source.topic_id, ranges=left, lost=expired)


def check_nothing_looked_back(
    interval: Interval, facts: PlanFacts, near: Neighbours, inputs: Sequence[TopicInput]
) -> None:
    """Checks that no later interval of a pipeline that looks back lacks the records that this interval would have.

    Raises:
        TransitionRefused: the interval would have offsets, and a later one is planned. It has no batch yet.
    """
    later = near.after
    if later is not None and any(s.lookback for s in facts.sources) and any(r.length for i in inputs for r in i.ranges):
        raise TransitionRefused(
            f"pipeline {facts.pipeline} looks back, and the later interval {later.interval} was planned without the records of "
            f"interval {interval}. Nothing was planned. To process them, give the pipeline a new name: rename its folder."
        )


def next_plan(view: View, interval: Interval, facts: PlanFacts) -> Plan:
    """Returns the plan of the interval's next revision.

    Raises:
        FactsOutdated: the interval's neighbours have changed since the facts were gathered.
        SourcesChanged: see `check_source_topics`.
        TransitionRefused: see `check_nothing_looked_back`.
        NoFreeLane: see `free_lane`.
        TopicRecreated, KafkaUnavailable, SourceDataExpired: the source topic does not have the ranges.
        NeedsOperator: a topic would not keep the records until they are judged.
    """
    near = Neighbours.of(view, interval, facts.reads)
    check_source_topics(view, interval, facts.pipeline, near, facts.reads, confirmed=facts.sources_changed)
    if not facts.neighbours.bound_alike(near) or not facts.sources:
        raise FactsOutdated(f"interval {interval}: its neighbours in the ledger changed while its plan was prepared.")
    inputs = tuple(input_of(interval, facts, source) for source in facts.sources)
    check_nothing_looked_back(interval, facts, near, inputs)
    lane = free_lane(view, facts.lanes, view.last(interval))
    plan = _frozen(view, lane, inputs, facts, {one.topic for one in facts.sources if one.quarantines_malformed})
    before = also_covered(interval, facts.neighbours, inputs)
    covered = interval if before is None else Interval(start=before.start, end=interval.end)
    # A batch without offsets of its own has no rows, so it reads nothing again.
    again = (look_back(view, covered, facts, source) for source in (() if plan.is_empty else facts.sources))
    looked_back = tuple(one for one in again if one is not None)
    return plan.model_copy(update={"also_covers": before, "looked_back": looked_back})


def next_addition(view: View, interval: Interval, facts: PlanFacts) -> Plan:
    """Returns the plan of an addition. An addition replays all records that its link, a published batch or addition,
    has quarantined.

    Raises:
        FactsOutdated: the interval has a newer link since the facts were gathered.
        SourcesChanged: see `check_reads`.
    """
    link = require_link(view, interval)
    if facts.link is None or facts.link.id != link.id:
        raise FactsOutdated(f"interval {interval}: its records in quarantine changed while a replay was prepared.")
    check_reads(view, interval, facts.reads)
    read = TopicInput(
        topic=link.require_quarantine.topic,
        topic_id=link.require_quarantine.topic_id,
        ranges=link.quarantine_ranges(link.require_written),
    )
    lane = replay_lane(view, view.last(interval))
    plan = _frozen(view, lane, (read,), facts, {read.topic})
    return plan.model_copy(update={"replays": replayed(link)})


def _frozen(view: View, lane: str, inputs: tuple[TopicInput, ...], facts: PlanFacts, malformed: Set[str]) -> Plan:
    """Returns a plan with these inputs and this lane. Everything else comes from the facts.

    `malformed` has the topics whose malformed records have task-partitions.
    """
    by_kind = {TaskKind.ROWS: inputs, TaskKind.MALFORMED: [one for one in inputs if one.topic in malformed]}
    plan = Plan(
        inputs=inputs,
        output=facts.output,
        staging=facts.staging,
        staging_timestamp=None if facts.staging is None else _moment_of_its_own(view, facts.clock),
        ledger_topic_id=facts.ledger_topic_id,
        layout=facts.layout,
        tasks=tuple(
            TaskBlock(kind=kind, topic=one.topic, partitions=len(one.ranges))
            for kind, each in by_kind.items()
            for one in each
        ),
        lane=lane,
        unfinished_ids=unfinished_ids(view, lane),
        digests=dict(facts.digests),
        software=facts.software,
        planned_at=facts.now,
        quarantine=facts.quarantine,
        output_format=facts.output_format,
        schemas=facts.schemas,
        cluster_id=facts.cluster_id,
    )
    if facts.layout is Layout.OUTPUT:
        written = plan.write_topic
        rows = TaskBlock(kind=TaskKind.ROWS, topic=written.topic, partitions=len(written.ends))
        others = (block for block in plan.tasks if block.kind is not TaskKind.ROWS)
        plan = plan.model_copy(update={"tasks": (rows, *others)})
    if facts.unkept is not None and not plan.is_empty:
        raise facts.unkept
    return plan


def _moment_of_its_own(view: View, clock: int) -> int:
    """Returns the first millisecond from `clock` on that no other batch in the ledger has as its `staging_timestamp`."""
    taken = {batch.plan.staging_timestamp for batch in view.all()}
    return next(moment for moment in count(clock) if moment not in taken)


def decide_plan(
    view: View,
    interval: Interval,
    facts: PlanFacts | None,
    *,
    reprocess: bool,
    decision: Decision | None = None,
    given_up: AbandonedPublication | None = None,
    request: str | None = None,
) -> tuple[Batch, ...]:
    """Returns the records of the interval's first revision, or of a new revision on `reprocess`. There are none if the
    interval's batch does not change.

    A `request` for a reprocess is carried out once: the planned revision records the request.

    `facts` are None if nothing was to be planned at the time when facts are gathered.
    """
    asks = reprocess and answer_to(view, interval, request) is None
    if is_carried_out(view, interval, decision) or standing_plan(view, interval, asks, given_up) is not None:
        return ()
    note, known = (
        f"reprocess was requested{_by(request)}" if view.range_owner(interval) else "",
        gathered(interval, facts),
    )
    plan = next_plan(view, interval, known)
    return record_planned(view, interval, known.pipeline, plan, note, decision, given_up, request=request)


def _by(request: str | None) -> str:
    return f" by {request}" if request else ""


def decide_revision(
    view: View,
    batch: Batch,
    found: CurrentInputs | None,
    facts: PlanFacts | None,
    given_up: AbandonedPublication | None = None,
) -> tuple[Batch, ...]:
    """Returns the records of the revision that replaces the batch. There are none if another run has revised the batch,
    or if no reason for a revision is left.

    A batch that is being published is replaced only if that very publication was given up.
    """
    interval = batch.interval
    latest = view.last(interval)
    if latest is None or latest.revision != batch.revision or found is None:
        return ()
    if (why := revision_reason(latest, found)) is None:
        return ()
    if latest.state is State.PUBLISHING and (given_up is None or not given_up.is_of(latest)):
        return ()
    known = gathered(interval, facts)
    plan = (next_plan if latest.adds_to is None else next_addition)(view, interval, known)
    return record_planned(view, interval, known.pipeline, plan, why, given_up=given_up, adds_to=latest.adds_to)


def decide_replay(
    view: View,
    interval: Interval,
    pipeline: str,
    sources: CurrentSources,
    facts: PlanFacts | None,
    decision: Decision | None = None,
    request: str | None = None,
) -> tuple[Batch, ...]:
    """Returns the records of a new addition to the interval's published batch. There are none if an addition is under
    way, or if there is nothing to replay.

    A `request` is carried out once, as in `decide_plan`.
    """
    if is_carried_out(view, interval, decision) or answer_to(view, interval, request) is not None:
        return ()
    link = link_to_replay(view, interval, pipeline, sources)
    if link is None:
        return ()
    plan = next_addition(view, interval, gathered(interval, facts))
    note = f"replay of the quarantined records of batch {link.id}{', requested' + _by(request) if request else ''}"
    base = link.adds_to or link.revision
    return record_planned(view, interval, pipeline, plan, note, decision, adds_to=base, request=request)


def gathered(interval: Interval, facts: PlanFacts | None) -> PlanFacts:
    """Returns the facts, which the caller needs.

    Raises:
        FactsOutdated: no facts were gathered, because there was nothing to plan at that time.
    """
    if facts is None:
        raise FactsOutdated(f"interval {interval}: a plan became necessary after the ledger was read.")
    return facts
