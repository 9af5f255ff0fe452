"""What the next plan of an interval is, from facts that were gathered for it; pure.

Facts are gathered before the decision, against the ledger as it was read then: asking Kafka and the registry, hashing files and
creating topics takes seconds, in which another run may plan. So the decision refuses facts whose neighbours are others than
those in the ledger now, and they are gathered again. Without that, a plan that knew four partitions of its source could follow
one that knew five: the plan after it would read the fifth from its beginning, for the second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from fencepost.errors import AnotherCluster, FactsOutdated, NeedsOperator, SourceDataExpired
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
)
from fencepost.protocol.decisions import (
    answer_to,
    free_lane,
    is_carried_out,
    record_planned,
    replay_lane,
    standing_plan,
    unsettled_ids,
)
from fencepost.protocol.obstacle import ACCEPT_LOSS, GivenUp, SourceFound, source_obstacle
from fencepost.protocol.ranges import frozen_ranges, range_starts, without_expired
from fencepost.protocol.replay import known_link, link_to_replay, replayed
from fencepost.protocol.revision import Circumstances, reason_to_revise
from fencepost.protocol.unread import before_ranges
from fencepost.protocol.view import View


@dataclass(frozen=True)
class Neighbours:
    """The batches whose ranges bound an interval's: its own, which it keeps, or else those of the intervals beside it."""

    own: Batch | None = None
    before: Batch | None = None
    after: Batch | None = None

    @classmethod
    def of(cls, view: View, interval: Interval) -> Neighbours:
        """Those in the ledger."""
        own = view.holder(interval)
        return cls(own) if own is not None else cls(None, view.before(interval), view.after(interval))

    @property
    def planned(self) -> tuple[Batch, ...]:
        """Those that there are."""
        return tuple(batch for batch in (self.own, self.before, self.after) if batch is not None)

    def bound_alike(self, other: Neighbours) -> bool:
        """Whether the others bound the interval's ranges in the same way, whatever else became of them."""
        return all(
            _bounds(one) == _bounds(two)
            for one, two in ((self.own, other.own), (self.before, other.before), (self.after, other.after))
        )


def _bounds(batch: Batch | None) -> object:
    return None if batch is None else (batch.interval, batch.plan.inputs, batch.plan.also_covers)


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What Kafka says of a source topic, a number for each partition that it knows.

    `by_start` has the first record at or after the interval's start, if no interval was planned before it; `by_end` the first at
    or after its end, from where its range starts. Both have None where there is no such record yet. `stable` was asked first: a
    record that arrives meanwhile is the next batch's. `last_timestamps` are those of the last records before `by_start`, by
    partition, where there are such.
    """

    topic: str
    topic_id: str
    earliest: tuple[int, ...]
    stable: tuple[int, ...] = ()
    by_start: tuple[int | None, ...] | None = None
    by_end: tuple[int | None, ...] = ()
    last_timestamps: Mapping[PartitionId, int] = field(default_factory=dict)

    @property
    def begins(self) -> dict[PartitionId, int]:
        """Where each partition begins."""
        return by_partition(self.topic, self.earliest)

    @property
    def partitions(self) -> int:
        """How many the broker that answered knows."""
        return len(self.earliest)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a plan depends on beside the ledger. `neighbours` are those that `source` was asked about.

    Of an addition `link` is the batch whose quarantine it takes, and `source` is None: that this is all there was checked.
    `unkept` is why a topic would not take the batch's records, or not keep them until they are judged: then nothing that has
    offsets is planned. `quarantine` is None if the pipeline quarantines nothing. `clock` is `now` to the millisecond, since 1970.
    """

    pipeline: str
    neighbours: Neighbours
    source: SourceFacts | None
    link: Batch | None = None
    output: PlannedOutput
    staging: TopicEnds | None
    quarantine: TopicEnds | None
    ledger_topic_id: str
    layout: Layout
    lanes: int
    accept_loss: bool
    quarantines_malformed: bool
    digests: Mapping[str, str]
    software: str
    output_format: str
    schemas: Schemas | None
    now: datetime
    clock: int
    unkept: NeedsOperator | None = None
    cluster_id: str | None = None


def check_same_cluster(pipeline: str, cluster_id: str, known: str) -> None:
    """Check that a plan is made on the cluster that the last publication was made on, which is `known`.

    Raises:
        AnotherCluster: it is another one. Its topics have other records, and its ledger is empty, or a copy.
    """
    if known != cluster_id:
        raise AnotherCluster(
            f"pipeline {pipeline}: this is Kafka cluster {cluster_id}, but the last publication was on cluster {known}. Nothing "
            "was planned or made here. If bootstrap.servers or the connection is wrong, correct it. If the pipeline has moved, "
            "say so once: `fencepost run --another-cluster`, or the parameter another_cluster of a backfill in Airflow."
        )


def last_cluster(view: View) -> str | None:
    """The cluster of the last publication in the ledger; None if nothing was published yet."""
    published = [batch for batch in view.all() if batch.state is State.PUBLISHED]
    return max(published, key=lambda batch: batch.changed_at).plan.cluster_id if published else None


def moves_here(view: View, cluster_id: str, request: str | None) -> bool:
    """Whether a request that says that the pipeline has moved may mean this cluster: it has planned on no other one."""
    return all(request not in batch.requests or batch.plan.cluster_id == cluster_id for batch in view.all())


def check_same_source(batch: Batch, topic: str, topic_id: str, partitions: int) -> None:
    """Check that the batch's offsets were frozen in this very source topic, and that all of its partitions are known.

    Raises:
        TopicRecreated: they were not, so they mean other records here.
        KafkaUnavailable: the batch has partitions that the broker did not know yet.
    """
    stopped = source_obstacle(batch, (SourceFound(topic, topic_id, partitions),))
    if stopped is not None:
        raise stopped.error(batch)


def starts_of(neighbours: Neighbours, source: SourceFacts) -> list[int]:
    """Where the ranges of an interval start that has none yet."""
    return range_starts(source.topic, neighbours.before, neighbours.after, source.stable, source.by_start)


def source_of(interval: Interval, facts: Facts, source: SourceFacts) -> tuple[TopicInput, Interval | None]:
    """What the interval's next batch reads, and which stretch before the interval it covers too.

    It keeps the ranges of the batch before it. What expired of them is recorded.

    Raises:
        SourceDataExpired: some of it has expired, and the pipeline does not accept that.
    """
    near = facts.neighbours
    for batch in near.planned:
        check_same_source(batch, source.topic, source.topic_id, source.partitions)
    lost: tuple[OffsetRange, ...] = ()
    unread: tuple[UnreadRange, ...] = ()
    gap = None
    if near.own is not None:
        own = near.own.plan
        ranges, lost, unread, gap = own.ranges, own.lost, own.unread, own.also_covers
    else:
        starts = starts_of(near, source)
        ranges = frozen_ranges(interval, source.topic, starts, near.after, source.stable, source.by_end)
        if near.before is None:
            unread = before_ranges(ranges, source.begins, source.last_timestamps)
        if near.before is not None and near.before.interval.end < interval.start and any(r.length for r in ranges):
            gap = Interval(start=near.before.interval.end, end=interval.start)
    ranges, expired = without_expired(ranges, source.begins)
    if expired and not facts.accept_loss:
        raise SourceDataExpired(
            f"pipeline {facts.pipeline}, interval {interval}: source topic {source.topic} no longer has "
            f"{describe_ranges(expired)}: retention deleted them before the batch was written. {ACCEPT_LOSS}"
        )
    read = TopicInput(
        topic=source.topic, topic_id=source.topic_id, ranges=ranges, lost=(*lost, *expired), unread=unread
    )
    return read, gap


def next_plan(view: View, interval: Interval, facts: Facts) -> Plan:
    """The plan of the interval's next revision.

    Raises:
        FactsOutdated: the interval's neighbours are not those any more that its facts were gathered for.
        NoFreeLane: see `free_lane`.
        TopicRecreated, KafkaUnavailable, SourceDataExpired: the source is not what the ranges need.
        NeedsOperator: a topic would not keep the records.
    """
    if not facts.neighbours.bound_alike(Neighbours.of(view, interval)) or facts.source is None:
        raise FactsOutdated(f"interval {interval}: its neighbours in the ledger changed while its plan was prepared.")
    read, gap = source_of(interval, facts, facts.source)
    lane = free_lane(view, facts.lanes, view.last(interval))
    plan = _frozen(view, lane, read, facts, malformed=facts.quarantines_malformed)
    return plan.model_copy(update={"also_covers": gap})


def next_addition(view: View, interval: Interval, facts: Facts) -> Plan:
    """The plan of an addition: it takes from quarantine all that its link, a published batch or addition, sent there.

    Raises:
        FactsOutdated: another link is the last by now.
    """
    link = known_link(view, interval)
    if facts.link is None or facts.link.id != link.id:
        raise FactsOutdated(f"interval {interval}: what is left of its quarantine changed while a replay was prepared.")
    read = TopicInput(
        topic=link.known_quarantine.topic,
        topic_id=link.known_quarantine.topic_id,
        ranges=link.quarantine_ranges(link.known_written),
    )
    lane = replay_lane(view, view.last(interval))
    plan = _frozen(view, lane, read, facts, malformed=True)
    return plan.model_copy(update={"replays": replayed(link)})


def _frozen(view: View, lane: str, read: TopicInput, facts: Facts, *, malformed: bool) -> Plan:
    """The plan of a batch that reads that in this lane, with everything else as the facts have it.

    `malformed`: it has task-partitions for malformed records.
    """
    kinds = (TaskKind.ROWS, TaskKind.MALFORMED) if malformed else (TaskKind.ROWS,)
    plan = Plan(
        inputs=(read,),
        output=facts.output,
        staging=facts.staging,
        staged_at=None if facts.staging is None else _moment_of_its_own(view, facts.clock),
        ledger_topic_id=facts.ledger_topic_id,
        layout=facts.layout,
        tasks=tuple(TaskBlock(kind=kind, topic=read.topic, partitions=len(read.ranges)) for kind in kinds),
        lane=lane,
        fence_up_to=unsettled_ids(view, lane),
        digests=dict(facts.digests),
        software=facts.software,
        planned_at=facts.now,
        quarantine=facts.quarantine,
        output_format=facts.output_format,
        schemas=facts.schemas,
        cluster_id=facts.cluster_id,
    )
    if facts.layout is Layout.OUTPUT:
        written = plan.written_to
        rows = TaskBlock(kind=TaskKind.ROWS, topic=written.topic, partitions=len(written.ends))
        plan = plan.model_copy(update={"tasks": (rows, *plan.tasks[1:])})
    if facts.unkept is not None and not plan.is_empty:
        raise facts.unkept
    return plan


def _moment_of_its_own(view: View, clock: int) -> int:
    """The first millisecond, from `clock` on, that no batch in the ledger is known by."""
    taken = {batch.plan.staged_at for batch in view.all()}
    return next(moment for moment in count(clock) if moment not in taken)


def decide_plan(
    view: View,
    interval: Interval,
    facts: Facts | None,
    *,
    reprocess: bool,
    decision: Decision | None = None,
    given_up: GivenUp | None = None,
    request: str | None = None,
) -> tuple[Batch, ...]:
    """The interval's first revision, or another one on `reprocess`; nothing if its batch stays as it is.

    A `request` for a reprocess is carried out once: the revision that it plans records it.

    `facts` are None where it stayed as it was when they would have been gathered.
    """
    asks = reprocess and answer_to(view, interval, request) is None
    if is_carried_out(view, interval, decision) or standing_plan(view, interval, asks, given_up) is not None:
        return ()
    note, known = f"reprocess was asked for{_by(request)}" if view.holder(interval) else "", gathered(interval, facts)
    plan = next_plan(view, interval, known)
    return record_planned(view, interval, known.pipeline, plan, note, decision, given_up, request=request)


def _by(request: str | None) -> str:
    return f" by {request}" if request else ""


def decide_revision(
    view: View,
    batch: Batch,
    found: Circumstances | None,
    facts: Facts | None,
    given_up: GivenUp | None = None,
) -> tuple[Batch, ...]:
    """The revision that replaces the batch; nothing if another run has revised it, or if no reason to holds any more.

    A batch that is being published is replaced only if that very publication was given up.
    """
    interval = batch.interval
    latest = view.last(interval)
    if latest is None or latest.revision != batch.revision or found is None:
        return ()
    if (why := reason_to_revise(latest, found)) is None:
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
    facts: Facts | None,
    decision: Decision | None = None,
    request: str | None = None,
) -> tuple[Batch, ...]:
    """A new addition to the interval's published batch; nothing if one is under way, or nothing is left to replay.

    A `request` is carried out once, as by `decide_plan`.
    """
    if is_carried_out(view, interval, decision) or answer_to(view, interval, request) is not None:
        return ()
    link = link_to_replay(view, interval, pipeline)
    if link is None:
        return ()
    plan = next_addition(view, interval, gathered(interval, facts))
    note = f"replay of what batch {link.id} quarantined{', asked for' + _by(request) if request else ''}"
    base = link.adds_to or link.revision
    return record_planned(view, interval, pipeline, plan, note, decision, adds_to=base, request=request)


def gathered(interval: Interval, facts: Facts | None) -> Facts:
    """The facts.

    Raises:
        FactsOutdated: none were gathered, for there was nothing to plan then.
    """
    if facts is None:
        raise FactsOutdated(f"interval {interval}: it has to be planned by now, and had not when the ledger was read.")
    return facts
