"""What each interval reads: a source that grows while intervals are planned, in any order, also backwards.

Promises, for every order of arrivals, plans, writes and expiries:

- no offset is in the ranges of two intervals (`doubled`);
- from the interval that was planned first on, every offset up to the newest plan's end is in one interval's range, or in
  what that interval records as expired; the same between any two planned intervals that touch (`lost`);
- whatever commits in an interval's range is in what its write read, in every revision (`lost`);
- a new revision has the ranges of the old one, and what expired since is recorded once (`changed`).

The same holds for the intervals that stand when others were withdrawn; what a published one read is never read again.

What is modelled. Records of any day arrive in any order in the source's partitions, on their own or in a transaction that
commits or aborts later; old ones expire; a partition is added. Records also arrive between the questions that one plan
asks. A plan may know of any number of partitions that there has been: it, or the broker that it asks, learnt it earlier.
Where facts are gathered apart, other runs plan, records arrive and a partition is added between what a plan asks and its
decision, which knows nothing newer but the ledger.

Facts are gathered by `fencepost.steps.plan.source_facts` on a cluster that answers as Kafka does; every plan is decided by
`fencepost.protocol.planning.decide_plan`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import makers
from fencepost.config.source import Source
from fencepost.errors import FencepostError
from fencepost.kafka.cluster import Topic
from fencepost.model import Batch, Decision, Interval, OffsetRange, State
from fencepost.protocol import planning as planning_module
from fencepost.protocol.decisions import decide_skip, decide_withdraw
from fencepost.protocol.planning import Neighbours, PlanFacts, check_same_source, decide_plan, next_plan
from fencepost.protocol.ranges import frozen_ranges, range_starts
from fencepost.protocol.view import View
from fencepost.steps import plan as gathering_module
from fencepost.steps.plan import source_facts
from model.ledgers import Ledgers
from model.search import Fault

OPEN, COMMITTED, ABORTED = range(3)
Log = tuple[int, tuple[tuple[int, int], ...]]  # the earliest offset; (day, status) of every offset
Answers = tuple[Any, ...]
SOURCE = Source(topic="in", format="bytes")


@dataclass(frozen=True)
class Rules:
    """The rules of planning; a mutation takes one out."""

    ranges: Callable[..., tuple[OffsetRange, ...]] = frozen_ranges
    starts: Callable[..., list[int]] = range_starts
    withdrawn: Callable[[View, Interval, Decision], tuple[Batch, ...]] = decide_withdraw
    same_source: Callable[[Batch, str, str, int], None] = check_same_source
    bound_alike: Callable[[Neighbours, Neighbours], bool] = Neighbours.bound_alike
    end_is_last_stable: bool = True
    frozen: bool = True


class Point(NamedTuple):
    """A state. `read[i]` is what the newest write of interval i read, (partition, offset) each, or None.

    `gathered` is what a run is at that has gathered facts for a plan: the interval, the ledger that it read, and the answers.
    """

    ledger: int
    logs: tuple[Log, ...]
    read: tuple[tuple[tuple[int, int], ...] | None, ...]
    gathered: tuple[int, int, Answers] | None = None


class _Cluster:
    """Answers of one plan's questions, each taken from the source as it was then."""

    def __init__(self, answers: Answers) -> None:
        self.stable, self.by_start, self.by_end, self.first = answers

    def last_stable(self, topic: Topic) -> list[int]:
        return list(self.stable)

    def first_at_or_after(
        self, topic: Topic, ms: int, group: str, starts: list[int] | None = None, until: int | None = None
    ) -> list[int | None]:
        if starts is None:
            return list(self.by_start)
        return [row[min(start, len(row) - 1)] for row, start in zip(self.by_end, starts, strict=True)]

    def earliest(self, topic: Topic) -> list[int]:
        return list(self.first)

    def describe(self, name: str) -> Topic:
        return Topic(name, f"{name}-1", len(self.stable) if name == "in" else 1)

    def ensure_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> Topic:
        return self.describe(name)

    def high_watermarks(self, topic: Topic) -> list[int]:
        return [0]


class Ranges:
    """The model. `records` bounds the source, over all partitions; days run from the first interval's to one after the last."""

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        intervals: int = 3,
        records: int = 3,
        partitions: int = 1,
        expiry: int = 0,
        revisions: int = 1,
        transactions: bool = True,
        racing: bool = True,
        gaps: bool = False,
        writing: bool = True,
        withdrawals: bool = False,
        apart: bool = False,
    ) -> None:
        self.rules = rules or Rules()
        # With gaps, every interval is a day of two, so that no two touch.
        self.intervals = [makers.a_day(n * 2 if gaps else n) for n in range(intervals)]
        self.days = tuple(range(2 * intervals + 1)) if gaps else tuple(range(intervals + 1))
        self.records, self.partitions, self.expiry, self.revisions = records, partitions, expiry, revisions
        self.transactions, self.racing, self.writing = transactions, racing, writing
        self.withdrawals, self.apart = withdrawals, apart
        self.ledgers = Ledgers()
        self._decided: dict[tuple[Any, ...], int | None] = {}
        self._faults: dict[tuple[Any, ...], Fault | None] = {}

    @property
    def start(self) -> list[Point]:
        return [Point(self.ledgers.number(()), ((0, ()),), (None,) * len(self.intervals))]

    # Steps.

    def steps(self, point: Point) -> Iterator[tuple[str, Point | Fault]]:
        yield from ((label, point._replace(logs=logs)) for label, logs in self._source_steps(point.logs))
        view = self.ledgers.views[point.ledger]
        if point.gathered is not None:
            n, read, answers = point.gathered
            decided = self._decide(point.ledger, n, "plan", answers, read)
            announced = "the ledger changed, or refused" if decided is None else "planned"
            ledger = point.ledger if decided is None else decided
            yield f"decide {n}: {announced}", point._replace(ledger=ledger, gathered=None)
        for n, when in enumerate(self.intervals):
            latest = view.last(when)
            if latest is None or view.is_withdrawn(when):
                if latest is None or latest.revision <= self.revisions:
                    yield from self._plans(point, n, "plan")
                    if self.apart and point.gathered is None:
                        yield from self._gather(point, n)
                continue
            if self.withdrawals:
                yield from self._withdraw(point, n)
            if self.writing and point.read[n] is None and self._is_whole(latest, point.logs):
                read = self._write(point, n, latest)
                yield f"write {n}: reads {list(read)}", point._replace(read=_with(point.read, n, read))
            if latest.revision < self.revisions:
                # Skipped first: only a finished interval is planned again.
                records = decide_skip(view, when, makers.a_decision("skip"))
                yield from self._plans(point._replace(ledger=self.ledgers.after(point.ledger, records)), n, "reprocess")

    def _withdraw(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        """As it is, and passed by the frontier: what was read under it then stays read."""
        when, view = self.intervals[n], self.ledgers.views[point.ledger]
        passed = self.ledgers.after(point.ledger, decide_skip(view, when, makers.a_decision("skip")))
        for word, ledger, read in (
            ("withdraw", point.ledger, _with(point.read, n, None)),
            ("skip, then withdraw", passed, point.read),
        ):
            with suppress(FencepostError):
                records = self.rules.withdrawn(self.ledgers.views[ledger], when, makers.a_decision("withdraw"))
                yield f"{word} {n}", point._replace(ledger=self.ledgers.after(ledger, records), read=read)

    def _source_steps(self, logs: tuple[Log, ...]) -> Iterator[tuple[str, tuple[Log, ...]]]:
        yield from self._arrivals(logs)
        for p, (first, records) in enumerate(logs):
            for o, (day, status) in enumerate(records):
                if status == OPEN:
                    for word, after in (("commits", COMMITTED), ("aborts", ABORTED)):
                        changed = (*records[:o], (day, after), *records[o + 1 :])
                        yield f"source {p}:{o} {word}", _with(logs, p, (first, changed))
            if first < min(self.expiry, len(records)) and records[first][1] != OPEN:
                yield f"source {p}:{first} expires", _with(logs, p, (first + 1, records))
        if len(logs) < self.partitions:
            yield f"source: partition {len(logs)} is added", (*logs, (0, ()))

    def _arrivals(self, logs: tuple[Log, ...]) -> Iterator[tuple[str, tuple[Log, ...]]]:
        if sum(len(records) for _, records in logs) >= self.records:
            return
        for p, (first, records) in enumerate(logs):
            for day in self.days:
                for status in (COMMITTED, OPEN) if self.transactions else (COMMITTED,):
                    word = "arrives" if status == COMMITTED else "arrives in a transaction"
                    after = (first, (*records, (day, status)))
                    yield f"source {p}:{len(records)} of day {day} {word}", _with(logs, p, after)

    def _plans(self, point: Point, n: int, word: str) -> Iterator[tuple[str, Point | Fault]]:
        """Plan, with nothing or one record arriving between its questions (a younger partition is not seen by them)."""
        ways: list[tuple[str, tuple[Log, ...], tuple[Log, ...], tuple[Log, ...]]] = [
            ("", point.logs, point.logs, point.logs)
        ]
        if self.racing and word == "plan":
            for label, logs in self._source_steps(point.logs):
                if len(logs) == len(point.logs) and "expires" not in label:
                    ways.append((f"; after its first question {label}", point.logs, logs, logs))
                    ways.append((f"; after its second question {label}", point.logs, point.logs, logs))
        ways += [
            (f"; it knows {known} of {len(point.logs)} partitions", *(3 * (point.logs[:known],)))
            for known in range(1, len(point.logs))
        ]
        for announced, one, two, three in ways:
            ledger = self._decide(point.ledger, n, word, self._answers(one, two, three, self.intervals[n]))
            if ledger is None or ledger == point.ledger:
                continue
            read = _with(point.read, n, None)
            logs = (*three, *point.logs[len(three) :])
            after = point._replace(ledger=ledger, logs=logs, read=read)
            yield f"{'skip, then ' if word == 'reprocess' else ''}{word} {n}{announced}", after

    def _gather(self, point: Point, n: int) -> Iterator[tuple[str, Point]]:
        """A run gathers what a plan depends on, from a broker that knows any number of partitions, and decides later."""
        for known in range(1, len(point.logs) + 1):
            answers = self._answers(*(3 * (point.logs[:known],)), self.intervals[n])
            if self._decide(point.ledger, n, "plan", answers) is not None:
                announced = f"gather {n}: it knows {known} of {len(point.logs)} partitions"
                yield announced, point._replace(gathered=(n, point.ledger, answers))

    # Decisions, all of them the product's.

    def _answers(self, one: tuple[Log, ...], two: tuple[Log, ...], three: tuple[Log, ...], when: Interval) -> Answers:
        start, end = _day(when.start), _day(when.end)
        stable = tuple(_stable(log) if self.rules.end_is_last_stable else len(log[1]) for log in one)
        by_start = tuple(_first(log, start, 0) for log in two)
        by_end = tuple(tuple(_first(log, end, o) for o in range(len(log[1]) + 1)) for log in three)
        return stable, by_start, by_end, tuple(log[0] for log in three)

    def _decide(self, ledger: int, n: int, word: str, answers: Answers, read: int | None = None) -> int | None:
        """The ledger after a plan that is decided on this one, of facts that were gathered against `read`, or this one too."""
        key = (ledger, n, word, answers, ledger if read is None else read)
        if key not in self._decided:
            with (
                mock.patch.object(planning_module, "frozen_ranges", self.rules.ranges),
                mock.patch.object(planning_module, "range_starts", self.rules.starts),
                mock.patch.object(planning_module, "check_same_source", self.rules.same_source),
                mock.patch.object(gathering_module, "check_same_source", self.rules.same_source),
                mock.patch.object(Neighbours, "bound_alike", self.rules.bound_alike),
            ):
                try:
                    view, when = self.ledgers.views[ledger], self.intervals[n]
                    facts = self._facts(self.ledgers.views[ledger if read is None else read], when, answers)
                    batches = decide_plan(view, when, facts, reprocess=word == "reprocess")
                    self._decided[key] = self.ledgers.after(ledger, batches) if batches else ledger
                except FencepostError:
                    self._decided[key] = None
        return self._decided[key]

    @staticmethod
    def _facts(view: View, when: Interval, answers: Answers) -> PlanFacts:
        """The facts of a plan that is gathered against this view, from a cluster that answers so."""
        near = Neighbours.of(view, when, ["in"])
        deployment: Any = SimpleNamespace(pipeline=SimpleNamespace(group="p"), cluster=_Cluster(answers))
        return makers.the_facts(neighbours=near, source=source_facts(deployment, near, when, SOURCE))

    @staticmethod
    def _is_whole(batch: Batch, logs: tuple[Log, ...]) -> bool:
        """Whether nothing of the batch's ranges has expired: its write would refuse."""
        return all(r.length == 0 or logs[r.partition][0] <= r.start for r in batch.plan.ranges)

    def _write(self, point: Point, n: int, batch: Batch) -> tuple[tuple[int, int], ...]:
        """What read_committed shows of the batch's ranges now. The mutation computes them again."""
        ranges = batch.plan.ranges
        if not self.rules.frozen:
            others = tuple(b for b in self.ledgers.batches[point.ledger] if b.interval != batch.interval)
            view = self.ledgers.views[self.ledgers.number(others)]
            facts = self._facts(view, batch.interval, self._answers(point.logs, point.logs, point.logs, batch.interval))
            ranges = next_plan(view, batch.interval, facts).ranges
        return tuple(
            (r.partition, o)
            for r in ranges
            for o in range(r.start, min(r.end, _stable(point.logs[r.partition])))
            if point.logs[r.partition][1][o][1] == COMMITTED
        )

    # Promises.

    def fault(self, point: Point) -> Fault | None:
        if point.ledger not in self._faults:
            self._faults[point.ledger] = self._badly_planned(point.ledger)
        return self._faults[point.ledger] or self._badly_read(point)

    def _badly_planned(self, ledger: int) -> Fault | None:
        view = self.ledgers.views[ledger]
        spans = {
            n: _spans(view.known(when).all[-1]) for n, when in enumerate(self.intervals) if when in view.kept_intervals
        }
        for when in view.intervals:
            for one, two in zip(view.known(when).all, view.known(when).all[1:], strict=False):
                if one.state is not State.WITHDRAWN and _spans(one) != _spans(two):  # it was withdrawn
                    return Fault("changed", f"{two.id} covers {_spans(two)}, the revision before it {_spans(one)}")
            for b in view.known(when).all:
                parts = sorted((r.partition, r.start, r.end) for r in (*b.plan.lost, *b.plan.ranges) if r.length)
                for (p, _, end), (q, start, _) in itertools.pairwise(parts):
                    if p == q and start < end:
                        return Fault("changed", f"{b.id}: its range and what it lost overlap: {parts}")
        anchor = view.anchor
        for p in range(self.partitions):
            planned = [(n, spans[n][p]) for n in sorted(spans) if p in spans[n]]
            for at, (n, (low, high)) in enumerate(planned):
                for m, (start, end) in planned[at + 1 :]:
                    if max(low, start) < min(high, end):
                        return Fault(
                            "doubled", f"partition {p}: intervals {n} and {m} overlap: {low}..{high} and {start}..{end}"
                        )
            run = [(n, s) for n, s in planned if anchor is not None and self.intervals[n].start >= anchor.start]
            if run and p not in spans[self.intervals.index(anchor)]:  # type: ignore[arg-type]
                run = [(-1, (0, 0)), *run]  # a partition that the first plan had not: from its beginning
            for (n, (_, high)), (m, (start, _)) in itertools.pairwise(run):
                if high != start:
                    return Fault("lost", f"partition {p}: offsets {high} to {start} are between intervals {n} and {m}")
            for (n, (_, high)), (m, (start, _)) in itertools.pairwise(planned):
                if self.intervals[n].end == self.intervals[m].start and high != start:
                    return Fault(
                        "lost",
                        f"partition {p}: offsets {high} to {start} are between intervals {n} and {m}, which touch",
                    )
        return None

    def _badly_read(self, point: Point) -> Fault | None:
        seen: dict[tuple[int, int], int] = {}
        for n, read in enumerate(point.read):
            if read is None:
                continue
            for place in read:
                if place in seen:
                    return Fault("doubled", f"record {place} was read by intervals {seen[place]} and {n}")
                seen[place] = n
            batch = self.ledgers.views[point.ledger].known(self.intervals[n]).last
            for r in batch.plan.ranges:
                for o in range(r.start, min(r.end, len(point.logs[r.partition][1]))):
                    if point.logs[r.partition][1][o][1] == COMMITTED and (r.partition, o) not in read:
                        return Fault(
                            "lost", f"record {(r.partition, o)} committed in interval {n}'s range and was not read"
                        )
        return None

    def show(self, point: Point) -> str:
        letters = {OPEN: "?", COMMITTED: "", ABORTED: "x"}
        logs = " ".join(
            f"{p}:[" + " ".join("." if o < first else f"{day}{letters[s]}" for o, (day, s) in enumerate(records)) + "]"
            for p, (first, records) in enumerate(point.logs)
        )
        plans = " ".join(
            f"{self.intervals.index(b.interval)}/{b.revision}={ {p: f'{s}..{e}' for p, (s, e) in _spans(b).items()} }"
            for b in self.ledgers.views[point.ledger].all()
        )
        return f"{logs} {plans}{'' if point.gathered is None else f' gathered for {point.gathered[0]}'}"


def _spans(batch: Batch) -> dict[int, tuple[int, int]]:
    """Per partition what a batch answers for: its range, and what it recorded as lost before it."""
    spans = {r.partition: (r.start, r.end) for r in batch.plan.ranges}
    for r in batch.plan.lost:
        low, high = spans[r.partition]
        spans[r.partition] = (min(low, r.start), max(high, r.end))
    return spans


def _stable(log: Log) -> int:
    for o, (_, status) in enumerate(log[1]):
        if status == OPEN:
            return o
    return len(log[1])


def _first(log: Log, day: int, start: int) -> int | None:
    """As `Cluster.first_at_or_after`: the first committed record, from `start` on, of that day or later."""
    for o in range(max(start, log[0]), _stable(log)):
        if log[1][o][1] == COMMITTED and log[1][o][0] >= day:
            return o
    return None


def _day(moment: datetime) -> int:
    return (moment - makers.NOW) // makers.DAY


def _with(values: tuple, n: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:n], value, *values[n + 1 :])
