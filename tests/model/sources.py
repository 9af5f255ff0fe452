"""Which topics an interval reads: a source is added, taken away and comes back, while intervals are planned in any order.

Promises, for every order of arrivals, plans, decisions and changes of the settings:

- no offset of a topic is in the ranges of two kept intervals (`doubled`);
- from the interval on that first read a topic, and as long as intervals read it, each of its offsets is in one kept interval's
  range, in what that interval records as expired, or between two kept intervals with one to be planned that reads it (`lost`);
- a topic's first range begins at the first record at or after the end of the preceding interval: no record before it (`early`),
  and none that comes after it is left out (`lost`), whatever is planned before it later. A topic that returns begins where its
  last range ended (`lost`, `doubled`);
- a new revision has the topics and the ranges of the old one, whatever the pipeline reads by then (`changed`);
- the interval after all planned ones reads the topics of the newest, unless a person confirms a change (`unconfirmed`), and no
  batch with an offset of a topic that it does not read is unfinished (`passed by`);
- the group's offsets move only in topics of the newest plan (`moved`), and the ledger accounts for them (`ahead`).

What is modelled. Records of any day arrive in the partitions of two topics; old ones expire; a partition is added to the
second topic, and a plan may not know it yet. Every plan is made by a pipeline that reads any of the given sets of topics, so
settings change between any two steps. Intervals are skipped, planned again and withdrawn. Where facts are gathered apart,
anything may happen between them and the plan that is decided on them.

Facts are gathered by `fencepost.steps.plan`, plans are decided by `fencepost.protocol.planning`, and offsets are moved by
`fencepost.steps.advance`, on a cluster that answers as Kafka does. What `ranges.py` shows of one topic, such as transactions and
records that arrive between the questions of a plan, is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from confluent_kafka import TopicPartition

import makers
from fencepost.config.source import Source
from fencepost.errors import FencepostError, LedgerLost
from fencepost.kafka.cluster import Topic
from fencepost.ledger.completeness import decide_complete
from fencepost.model import Batch, Interval, PartitionId, State
from fencepost.protocol import planning as planning_module
from fencepost.protocol.decisions import decide_skip, decide_withdraw
from fencepost.protocol.planning import (
    Neighbours,
    PlanFacts,
    check_source_topics,
    decide_plan,
    new_source_begins,
    unfinished_of,
)
from fencepost.protocol.ranges import range_starts
from fencepost.protocol.view import PASSED, View
from fencepost.steps import advance as advancing_module
from fencepost.steps import plan as gathering_module
from model.ledgers import Ledgers
from model.search import Fault

TOPICS = "ab"
SETTINGS = {topic: Source(topic=topic, format="bytes", on_expired="skip") for topic in TOPICS}
Log = tuple[int, tuple[int, ...]]  # the earliest offset; the day of every offset's record
Logs = tuple[tuple[Log, ...], tuple[Log, ...]]  # of the partitions of both topics
Span = tuple[int, int]


@dataclass(frozen=True)
class Rules:
    """The rules of several sources; a mutation takes one out."""

    begins: Callable[[Interval, Neighbours, str], datetime | None] = new_source_begins
    starts: Callable[..., list[int]] = range_starts
    topics: Callable[..., tuple[str, ...]] = Neighbours.topics
    bound_alike: Callable[[Neighbours, Neighbours], bool] = Neighbours.bound_alike
    checked: Callable[..., None] = check_source_topics
    unfinished: Callable[..., Batch | None] = unfinished_of
    newest: Callable[[View], Batch | None] = View.newest.func
    anchors: Callable[[View], dict[str, Interval]] = View.anchors.func


class Request(NamedTuple):
    """A plan that is asked for: of which interval, by a pipeline that reads which topics, whether it is a person's word that
    they changed, and what the cluster answers."""

    n: int
    word: str
    reads: str
    confirmed: bool
    logs: Logs


class Point(NamedTuple):
    """A state. `group` has the offsets of the pipeline's group. `gathered` is a plan whose facts were gathered, and the ledger
    that was read for them."""

    ledger: int
    logs: Logs
    group: tuple[tuple[PartitionId, int], ...] = ()
    gathered: tuple[Request, int] | None = None


class _Cluster:
    """Two topics as a plan finds them."""

    def __init__(self, logs: Logs) -> None:
        self.logs = dict(zip(TOPICS, logs, strict=True))

    def describe(self, name: str) -> Topic:
        return Topic(name, f"{name}-1", len(self.logs[name]))

    def last_stable(self, topic: Topic) -> list[int]:
        return [len(days) for _, days in self.logs[topic.name]]

    def earliest(self, topic: Topic) -> list[int]:
        return [first for first, _ in self.logs[topic.name]]

    def first_at_or_after(
        self, topic: Topic, ms: int, group: str, starts: list[int] | None = None, until: int | None = None
    ) -> list[int | None]:
        day = (ms - makers.MILLIS) // 86_400_000
        logs = self.logs[topic.name]
        return [_first(log, day, start) for log, start in zip(logs, starts or [0] * len(logs), strict=True)]


class Sources:
    """The model. `settings` are the sets of topics that the pipeline may read, `records` bounds both topics together, and
    `arrives` says in which of them. `partitions` bounds those of the second topic."""

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        intervals: int = 3,
        records: int = 2,
        arrives: str = TOPICS,
        settings: tuple[str, ...] = ("a", "ab"),
        partitions: int = 1,
        expiry: int = 0,
        revisions: int = 1,
        finishing: bool = True,
        withdrawals: bool = False,
        apart: bool = False,
    ) -> None:
        self.rules = rules or Rules()
        self.intervals = [makers.a_day(n) for n in range(intervals)]
        self.records, self.arrives, self.settings = records, arrives, settings
        self.partitions, self.expiry, self.revisions = partitions, expiry, revisions
        self.finishing, self.withdrawals, self.apart = finishing, withdrawals, apart
        self.ledgers = Ledgers()
        self._decided: dict[tuple[Any, ...], int | None] = {}
        self._moved: dict[tuple[Any, ...], tuple[tuple[PartitionId, int], ...] | Fault] = {}
        self._faults: dict[int, Fault | None] = {}

    @property
    def start(self) -> list[Point]:
        nothing: Log = (0, ())
        return [Point(self.ledgers.number(()), ((nothing,), (nothing,)))]

    # Steps.

    def steps(self, point: Point) -> Iterator[tuple[str, Point | Fault]]:
        yield from ((label, point._replace(logs=logs)) for label, logs in self._source_steps(point.logs))
        view = self.ledgers.views[point.ledger]
        if point.gathered is not None:
            request, read = point.gathered
            decided = self._decide(point.ledger, read, request)
            left = point._replace(gathered=None)
            yield (
                f"decide {request.n}",
                left if decided is None else self._planned(left, request, decided),
            )
        for n, when in enumerate(self.intervals):
            latest = view.last(when)
            kept = latest is not None and not view.is_withdrawn(when)
            if latest is None or latest.revision <= self.revisions - kept:
                yield from self._plans(point, n, "reprocess" if kept else "plan")
            if latest is None or not kept:
                continue
            if self.finishing and latest.state is State.PLANNED:
                yield f"skip {n}", self._finished(point, n)
            if self.withdrawals:
                with suppress(FencepostError):
                    records = decide_withdraw(view, when, makers.a_decision("withdraw"))
                    yield f"withdraw {n}", point._replace(ledger=self.ledgers.after(point.ledger, records))

    def _source_steps(self, logs: Logs) -> Iterator[tuple[str, Logs]]:
        room = sum(len(days) for topic in logs for _, days in topic) < self.records
        for t, topic in enumerate(logs):
            name = TOPICS[t]
            for p, (first, days) in enumerate(topic):
                for day in range(len(self.intervals)) if room and name in self.arrives else ():
                    grown = _with(topic, p, (first, (*days, day)))
                    yield f"topic {name}: {p}:{len(days)} of day {day} arrives", _with(logs, t, grown)
                if first < min(self.expiry, len(days)):
                    yield f"topic {name}: {p}:{first} expires", _with(logs, t, _with(topic, p, (first + 1, days)))
        if len(logs[1]) < self.partitions:
            yield "topic b: a partition is added", _with(logs, 1, (*logs[1], (0, ())))

    def _plans(self, point: Point, n: int, word: str) -> Iterator[tuple[str, Point | Fault]]:
        for reads, known in itertools.product(self.settings, range(1, len(point.logs[1]) + 1)):
            logs = (point.logs[0], point.logs[1][:known])
            for confirmed in (False, True):
                request = Request(n, word, reads, confirmed, logs)
                decided = self._decide(point.ledger, point.ledger, request)
                if decided is None:
                    continue  # refused; a person may confirm that the sources changed
                label = f"{word} {n}, reads {reads}{', confirmed' if confirmed else ''}"
                label += f", knows {known} of {len(point.logs[1])} partitions" if known < len(point.logs[1]) else ""
                yield label, self._planned(point, request, decided)
                if self.apart and point.gathered is None and word == "plan":
                    yield f"gather {label}", point._replace(gathered=(request, point.ledger))
                break

    def _planned(self, point: Point, request: Request, ledger: int) -> Point | Fault:
        """The state after a plan, which is checked against what was there before."""
        try:
            have = {place: TopicPartition(*place, end) for place, end in point.group}
            decide_complete(_pipeline(request.reads), self.ledgers.views[point.ledger], have, ())
        except LedgerLost as error:
            return Fault("ahead", str(error))
        fault = self._badly_begun(point.ledger, ledger, request)
        return fault or point._replace(ledger=ledger)

    def _finished(self, point: Point, n: int) -> Point | Fault:
        """The interval is skipped, and the group's offsets move as with a publication."""
        key = (point.ledger, n, point.group)
        view, when = self.ledgers.views[point.ledger], self.intervals[n]
        after = self.ledgers.after(point.ledger, decide_skip(view, when, makers.a_decision("skip")))
        if key not in self._moved:
            self._moved[key] = self._move(view, self.ledgers.views[after], when, dict(point.group))
        moved = self._moved[key]
        return moved if isinstance(moved, Fault) else point._replace(ledger=after, group=moved)

    def _move(
        self, view: View, after: View, when: Interval, group: dict[PartitionId, int]
    ) -> tuple[tuple[PartitionId, int], ...] | Fault:
        def committed(settings: object, name: str, asked: list[TopicPartition], doing: str) -> Mapping[Any, Any]:
            there = {(one.topic, one.partition) for one in asked}
            return {place: TopicPartition(*place, end) for place, end in group.items() if place in there}

        deployment: Any = SimpleNamespace(pipeline=_pipeline(TOPICS), cluster=SimpleNamespace(settings=None))
        with self._ruled() as stack:
            stack.enter_context(mock.patch.object(advancing_module, "committed_offsets", committed))
            none = SimpleNamespace(offsets=None)
            stack.enter_context(mock.patch.object(advancing_module, "output_of", return_value=none))
            try:
                have = advancing_module._offsets_now(deployment, view, when)
                moves = advancing_module._offsets_to_move(deployment, after, have).get("p", [])
            except LedgerLost as error:
                return Fault("ahead", str(error))
        last = max(after.kept_intervals, key=lambda kept: kept.start)
        for one in moves:
            if one.topic not in after.known(last).last_batch.plan.source_topics:
                return Fault("moved", f"offset {one.offset} of topic {one.topic}, which the newest plan does not read")
            if one.offset < group.get((one.topic, one.partition), 0):
                return Fault("moved", f"offset {one.offset} of topic {one.topic} is moved back")
        return tuple(sorted((group | {(one.topic, one.partition): one.offset for one in moves}).items()))

    # Decisions, all of them the product's.

    def _ruled(self) -> ExitStack:
        """The product with the model's rules in it."""
        stack, rules = ExitStack(), self.rules
        for module in (planning_module, gathering_module):
            stack.enter_context(mock.patch.object(module, "check_source_topics", rules.checked))
        stack.enter_context(mock.patch.object(gathering_module, "new_source_begins", rules.begins))
        stack.enter_context(mock.patch.object(planning_module, "range_starts", rules.starts))
        stack.enter_context(mock.patch.object(planning_module, "unfinished_of", rules.unfinished))
        stack.enter_context(mock.patch.object(Neighbours, "topics", rules.topics))
        stack.enter_context(mock.patch.object(Neighbours, "bound_alike", rules.bound_alike))
        stack.enter_context(mock.patch.object(View, "newest", property(rules.newest)))
        stack.enter_context(mock.patch.object(View, "anchors", property(rules.anchors)))
        return stack

    def _decide(self, ledger: int, read: int, request: Request) -> int | None:
        """The ledger after a plan that is decided on this one, of facts that were gathered against `read`. None: refused."""
        key = (ledger, read, request)
        if key not in self._decided:
            when, view = self.intervals[request.n], self.ledgers.views[ledger]
            with self._ruled():
                try:
                    facts = self._facts(self.ledgers.views[read], when, request)
                    batches = decide_plan(view, when, facts, reprocess=request.word == "reprocess")
                    self._decided[key] = self.ledgers.after(ledger, batches) if batches else None
                except FencepostError:
                    self._decided[key] = None
        return self._decided[key]

    def _facts(self, view: View, when: Interval, request: Request) -> PlanFacts:
        """The facts of a plan that is gathered against this view, as the product gathers them."""
        pipeline = _pipeline(request.reads)
        deployment: Any = SimpleNamespace(pipeline=pipeline, cluster=_Cluster(request.logs))
        near = Neighbours.of(view, when, request.reads)
        reads, confirmed = tuple(request.reads), request.confirmed
        self.rules.checked(view, when, "p", near, reads, confirmed=confirmed)
        read = gathering_module.sources_of(pipeline, near)
        sources = tuple(gathering_module.source_facts(deployment, near, when, source) for source in read)
        return makers.the_facts(neighbours=near, sources=sources, reads=reads, sources_changed=confirmed)

    # Promises.

    def _badly_begun(self, before: int, after: int, request: Request) -> Fault | None:
        """What is wrong with a plan, beside what was there before it."""
        view, when = self.ledgers.views[before], self.intervals[request.n]
        kept = {one: view.known(one) for one in view.intervals if not view.is_withdrawn(one)}
        batch = self.ledgers.views[after].known(when).last_batch
        if when in kept:
            return None
        earlier = [one for one in kept if one.start < when.start]
        topics = set(batch.plan.source_topics)
        if kept and len(earlier) == len(kept):
            newest = kept[max(earlier, key=lambda one: one.start)].last_batch
            if topics != {*newest.plan.source_topics} and not request.confirmed:
                return Fault("unconfirmed", f"{batch.id} reads {sorted(topics)}, and {newest.id} does not")
            for revisions in kept.values():
                left = [r for r in revisions.last_batch.plan.ranges if r.length and r.topic not in topics]
                if left and revisions.last.state not in PASSED:
                    return Fault("passed by", f"{revisions.last.id} is {revisions.last.state}, and has {left[0]}")
        read_before = {topic for revisions in kept.values() for topic in revisions.last_batch.plan.source_topics}
        begin = max(one.end for one in earlier) if earlier else when.start
        day = (begin - makers.NOW) // makers.DAY
        logs = dict(zip(TOPICS, request.logs, strict=True))
        for (topic, p), (start, end) in _spans(batch).items():
            if topic in read_before:
                if (
                    earlier
                    and start != end
                    and not any(topic in kept[e].last_batch.plan.source_topics for e in earlier)
                ):
                    return Fault("early", f"{batch.id} reads {topic}:{p}:{start}, before the topic's first range")
                continue
            first, days = logs[topic][p]
            if any(one >= day for one in days[first:start]):
                return Fault("lost", f"{batch.id} begins at {topic}:{p}:{start}, behind records of day {day} or later")
            if start < len(days) and days[start] < day:
                return Fault("early", f"{batch.id} begins at {topic}:{p}:{start}, a record before day {day}")
        return None

    def fault(self, point: Point) -> Fault | None:
        if point.ledger not in self._faults:
            self._faults[point.ledger] = self._badly_planned(self.ledgers.views[point.ledger])
        return self._faults[point.ledger]

    def _badly_planned(self, view: View) -> Fault | None:
        for when in view.intervals:
            for one, two in itertools.pairwise(view.known(when).batches):
                if one.state is not State.WITHDRAWN and _spans(one) != _spans(two):
                    return Fault("changed", f"{two.id} covers {_spans(two)}, the revision before it {_spans(one)}")
        kept = {n: view.known(when).last_batch for n, when in enumerate(self.intervals) if when in view.kept_intervals}
        spans = {n: _spans(batch) for n, batch in kept.items()}
        for place in sorted({place for each in spans.values() for place in each}):
            readers = [n for n in kept if place[0] in kept[n].plan.source_topics]
            planned = [(n, spans[n][place]) for n in readers if place in spans[n]]
            for (n, one), (m, two) in itertools.combinations(planned, 2):
                if max(one[0], two[0]) < min(one[1], two[1]):
                    return Fault("doubled", f"{place}: intervals {n} and {m} overlap: {one} and {two}")
            first = min(readers, key=lambda n: view.planned_first(self.intervals[n]))
            run = [(n, span) for n, span in planned if n >= first]
            if place not in spans[first]:
                run = [(-1, (0, 0)), *run]  # a partition that the first plan had not: from its beginning
            apart = [
                (one, two)
                for one, two in itertools.pairwise(planned)
                if two[0] == one[0] + 1 or any(one[0] < n < two[0] for n in kept)
            ]
            for (n, (_, high)), (m, (start, _)) in (*itertools.pairwise(run), *apart):
                if high != start:
                    return Fault("lost", f"{place}: offsets {high} to {start} are between intervals {n} and {m}")
        return None

    def show(self, point: Point) -> str:
        logs = " ".join(
            f"{topic}{p}:[{' '.join('.' if o < first else str(day) for o, day in enumerate(days))}]"
            for topic, partitions in zip(TOPICS, point.logs, strict=True)
            for p, (first, days) in enumerate(partitions)
        )
        plans = " ".join(
            f"{self.intervals.index(b.interval)}/{b.revision} {b.state}"
            f"={ {f'{t}{p}': f'{s}..{e}' for (t, p), (s, e) in _spans(b).items()} }"
            for b in self.ledgers.views[point.ledger].all()
        )
        at = {f"{topic}{p}": end for (topic, p), end in point.group}
        gathered = "" if point.gathered is None else f" gathered for {point.gathered[0].n}"
        return f"{logs} {plans} group {at}{gathered}"


def _pipeline(reads: str) -> Any:
    return SimpleNamespace(
        name="p",
        group="p",
        validated_group="p.validated",
        ledger_topic="p.ledger",
        source_topics={topic: SETTINGS[topic] for topic in reads},
    )


def _spans(batch: Batch) -> dict[PartitionId, Span]:
    """Per partition what a batch answers for: its range, and what it recorded as lost before it."""
    spans = {r.partition_id: (r.start, r.end) for r in batch.plan.ranges}
    for r in batch.plan.lost:
        low, high = spans[r.partition_id]
        spans[r.partition_id] = (min(low, r.start), max(high, r.end))
    return spans


def _first(log: Log, day: int, start: int) -> int | None:
    """As `Cluster.first_at_or_after`: the first record, from `start` on, of that day or later."""
    first, days = log
    return next((o for o in range(max(start, first), len(days)) if days[o] >= day), None)


def _with(values: tuple, n: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:n], value, *values[n + 1 :])
