"""The coordinator: several runs of one pipeline at once over a few intervals, and operators among them.

Promises, for every interleaving and with a crash after every step:

- the frontier that was committed never lies behind a record of an interval that is neither published nor skipped
  (`hole`), is what the ledger says, and never moves back (`moved back`); the same for the validated ends;
- the frontier that was committed never lies ahead of what the ledger accounts for, so one that does proves a loss (`ahead`);
- an interval has one published revision at most, published on its own passed verdict or by an operator, with receipts of
  its own lease, and its output lies between the ends that were recorded (`published wrongly`);
- a published or skipped interval gets a new revision only when that is asked for, and a batch is pushed aside only for a
  reason that still holds (`unasked`);
- a lane is held by one planned batch at most (`lane shared`).

What is modelled. Processes, each of which begins any step of any interval at any time: plan, plan with reprocess, write,
validate, advance, skip, publish. That is more than runs do, so it covers every run, retry, backfill, cleared task and
operator. A step reads the ledger, works, calls init_transactions, reads again, decides, and commits: between the last two
somebody else's init may fence it, or it may crash. The write job itself is one step here that commits a lease's marks
and rows, once, unless a later lease has committed in its lane: that is what `writers.py` shows. Settings change and
batches grow too old while all this goes on.

Every decision is `fencepost.steps.plan.decide_plan`, `decide_revision`, `fencepost.protocol.*`; ledgers are kept as numbers,
so each decision is made once per ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

import makers
from fencepost.errors import FencepostError
from fencepost.kafka.cluster import Topic
from fencepost.model import Batch, Layout, Outcome, State
from fencepost.outputs.topic import KafkaTopicOutput
from fencepost.protocol.decisions import (
    batch_to_judge,
    decide_publish,
    decide_skip,
    decide_withdraw,
    record_verdict,
    record_written,
)
from fencepost.protocol.frontier import Place, accounted_for, frontier, validated_ends
from fencepost.protocol.revision import reason_to_revise
from fencepost.protocol.view import PASSED, View, was_withdrawn
from fencepost.steps.plan import decide_plan, decide_revision
from model import product
from model.ledgers import Ledgers
from model.search import Fault

ADVANCES = ("advance", "publish", "skip")  # the steps that move group offsets
OUTCOMES = {"passed": Outcome.PASSED, "rejected": Outcome.REJECTED, "undetermined": Outcome.UNDETERMINED}


@dataclass(frozen=True)
class Rules:
    """The coordinator's rules; a mutation takes one out."""

    frontier: Callable[[View], dict[int, int]] = frontier
    read_after_init: bool = True
    fenced_by_init: bool = True
    decide_revision_again: bool = True


class Point(NamedTuple):
    """A state. `log` are the leases in the order they wrote; a process is idle (None) or what it is at.

    (word, interval, ...) is what a process remembers of the ledger it read; ("decided", that, ledger) that it has decided
    on a ledger and not yet committed.
    """

    ledger: int
    log: tuple[int, ...]
    frontier: tuple[tuple[Place, int], ...]
    validated: tuple[tuple[Place, int], ...]
    digest: int
    aged: int
    processes: tuple[tuple[Any, ...], ...]


IDLE: tuple[Any, ...] = ()


class Source:
    """A cluster whose source has one record for each of the first intervals in partition 0, one for the last in partition 1."""

    def __init__(self, intervals: int, partitions: int) -> None:
        self.intervals, self.partitions = intervals, partitions
        self.output_end = 0

    def _first(self, partition: int, day: int) -> int | None:
        if partition == 0:
            return day if day < self.intervals else None
        return 0 if day < self.intervals else None

    def last_stable(self, topic: Topic) -> list[int]:
        return [self.intervals, 1][: self.partitions]

    def earliest(self, topic: Topic) -> list[int]:
        return [0] * self.partitions

    def describe(self, name: str) -> Topic:
        return Topic(name, f"{name}-1", 1)

    def high_watermarks(self, topic: Topic) -> list[int]:
        return [self.output_end]

    def first_at_or_after(self, topic: Topic, ms: int, starts: list[int] | None = None) -> list[int | None]:
        day = max(0, (datetime.fromtimestamp(ms / 1000, makers.NOW.tzinfo) - makers.NOW) // makers.DAY)
        found = [self._first(p, day) for p in range(self.partitions)]
        if starts is None:
            return found
        ends = self.last_stable(topic)
        return [None if o is None or max(o, s) >= e else max(o, s) for o, s, e in zip(found, starts, ends, strict=True)]


class Coordinator:
    """The model. `operations` are the words a process may begin with."""

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        intervals: int = 2,
        revisions: int = 2,
        processes: int = 2,
        lanes: int = 1,
        partitions: int = 1,
        operations: tuple[str, ...] = ("plan", "write", "validate", "advance", "skip", "publish", "reprocess"),
        outcomes: tuple[str, ...] = ("passed", "rejected"),
        settings_change: bool = False,
        ageing: bool = False,
        group_expiry: bool = False,
        records: int | None = None,
    ) -> None:
        self.rules = rules or Rules()
        self.intervals = [makers.a_day(n) for n in range(intervals)]
        self.revisions, self.count, self.lanes = revisions, processes, lanes
        self.operations, self.outcomes = operations, outcomes
        self.settings_change, self.ageing, self.group_expiry = settings_change, ageing, group_expiry
        self.source = Topic("in", "in-1", partitions)
        self.cluster = Source(intervals if records is None else records, partitions)
        self.ledgers = Ledgers()
        self.views = self.ledgers.views
        self._decided: dict[tuple[Any, ...], tuple[Batch, ...] | None] = {}
        self._faults: dict[tuple[Any, ...], Fault | None] = {}
        self._ends: dict[int, tuple[tuple[tuple[Place, int], ...], tuple[tuple[Place, int], ...]]] = {}
        self._known: dict[int, dict[Place, int]] = {}
        self._applied: dict[tuple[int, tuple[Any, ...]], int] = {}
        self.empty = self.ledgers.number(())

    @property
    def start(self) -> list[Point]:
        return [Point(self.empty, (), (), (), 0, 0, (IDLE,) * self.count)]

    # Decisions, all of them the product's.

    def _fake(self, digest: int, end: int) -> Any:
        """What `freeze` asks of a ledger."""
        self.cluster.output_end = end
        pipeline = SimpleNamespace(
            name="p",
            lanes=self.lanes,
            write_digests=lambda: {"transform": str(digest)},
            source=SimpleNamespace(on_expired="fail", on_malformed="fail", topic="in"),
            output=SimpleNamespace(layout=Layout.SOURCE, partitions=1),
        )
        return SimpleNamespace(pipeline=pipeline, cluster=self.cluster, topic_id="ledger-0")

    def _reason(self, batch: Batch, digest: int, aged: int) -> str | None:
        age = 2 if batch.known_lease < aged else 0
        return reason_to_revise(batch, product.circumstances(str(digest), age, batch.plan.output.topic_id))

    def decide(self, ledger: int, operation: tuple[Any, ...], point: Point) -> tuple[Batch, ...] | None:
        """The records the operation would commit on this ledger; none (no change); None: refused."""
        key = (ledger, operation, point.digest, point.aged, len(point.log))
        if key not in self._decided:
            try:
                self._decided[key] = self._decide(self.views[ledger], operation, point)
            except FencepostError:
                self._decided[key] = None
        return self._decided[key]

    def _decide(self, view: View, operation: tuple[Any, ...], point: Point) -> tuple[Batch, ...]:
        word, day = operation[0], operation[1]
        when = self.intervals[day]
        if word in ("plan", "reprocess"):
            fake = self._fake(point.digest, len(point.log))
            change = decide_plan(fake, view, when, self.source, KafkaTopicOutput(fake, "out"), word == "reprocess")
        elif word == "revise":
            fake = self._fake(point.digest, len(point.log))
            found = self._revision(view, day, operation[2])
            if found is None:
                return ()
            batch = found.model_copy(update={"state": operation[3]})  # as it was when the write step read it
            change = decide_revision(
                fake,
                view,
                batch,
                self.source,
                KafkaTopicOutput(fake, "out"),
                lambda found: self._why(batch, found, point),
            )
        elif word == "record":
            _, _, revision, lease, end = operation
            batch = self._revision(view, day, revision)
            writers = batch.plan.writers if batch else 1
            receipts = tuple(product.a_receipt(t, lease) for t in range(writers))
            return record_written(view, when, revision, product.a_written(receipts, (end,)))
        elif word == "judge":
            found = self._revision(view, day, operation[2])
            verdict = product.a_verdict(OUTCOMES[operation[3]], found.verdict if found else None)
            return record_verdict(view, when, operation[2], verdict)
        elif word == "advance":
            return decide_publish(view, when, makers.NOW)
        elif word == "publish":
            return decide_publish(view, when, makers.NOW, makers.a_decision("publish"))
        elif word == "withdraw":
            return decide_withdraw(view, when, makers.a_decision("withdraw"))
        else:
            return decide_skip(view, when, makers.a_decision("skip"))
        return change.batches if change else ()

    def _why(self, remembered: Batch, found: Batch, point: Point) -> str | None:
        """The reason to revise, asked about what the ledger says now; the mutation goes by what was read before."""
        about = found if self.rules.decide_revision_again else remembered
        return self._reason(about, point.digest, point.aged)

    @staticmethod
    def _revision(view: View, day: int, revision: int) -> Batch | None:
        return next((b for b in view.batches.get(makers.a_day(day), ()) if b.revision == revision), None)

    def groups(self, ledger: int) -> tuple[tuple[tuple[Place, int], ...], tuple[tuple[Place, int], ...]]:
        """What advance commits to the two groups."""
        if ledger not in self._ends:
            view = self.views[ledger]
            self._ends[ledger] = (
                tuple(sorted(self.rules.frontier(view).items())),
                tuple(sorted(validated_ends(view).items())),
            )
        return self._ends[ledger]

    def _accounted(self, ledger: int) -> dict[Place, int]:
        """How far the ledger accounts for the frontier."""
        if ledger not in self._known:
            self._known[ledger] = accounted_for(self.views[ledger])
        return self._known[ledger]

    # Steps.

    def steps(self, point: Point) -> Iterator[tuple[str, Point | Fault]]:
        if self.settings_change and point.digest == 0 and point.ledger != self.empty:
            yield "the settings change", point._replace(digest=1)
        if self.ageing and point.aged == 0 and point.ledger != self.empty:
            yield "time passes", point._replace(aged=len(self.ledgers.batches[point.ledger]))
        if self.group_expiry and (point.frontier or point.validated):
            yield "the groups' offsets expire", point._replace(frontier=(), validated=())
        fenced = self._fenced(point.processes)
        if fenced != point.processes:
            yield "somebody calls init_transactions and crashes", self._at(point, fenced)
        for n, process in enumerate(point.processes):
            if process == IDLE:
                if n and point.processes[n - 1] == IDLE:
                    continue  # the one before is as good
                yield from self._begin(point, n)
                continue
            yield f"process at {process[:4]} crashes", self._moved(point, n, IDLE)
            if process[0] == "writing":
                yield from self._job(point, n)
            elif process[0] == "decided":
                yield from self._commit(point, n)
            elif process[0] == "read":
                yield from self._init_late(point, n)
            else:
                yield from self._open(point, n, process)

    def _begin(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        view = self.views[point.ledger]
        for day, when in enumerate(self.intervals):
            latest = view.latest(when)
            if latest is None or view.is_withdrawn(when):
                if "plan" in self.operations and (latest is None or latest.revision < self.revisions):
                    yield from self._open(point, n, ("plan", day))
                continue
            for word in self.operations:
                if word in ("plan", "advance", "publish", "skip", "reprocess", "withdraw"):
                    if word == "reprocess" and latest.revision >= self.revisions:
                        continue
                    yield from self._open(point, n, (word, day))
                elif word == "write":
                    if self._reason(latest, point.digest, point.aged) is not None:
                        if latest.revision < self.revisions:
                            remembered = ("revise", day, latest.revision, latest.state)
                            yield (
                                f"write {day}: finds that revision {latest.revision} must be revised",
                                self._moved(point, n, remembered),
                            )
                    elif latest.state is State.PLANNED:
                        remembered = ("writing", day, latest.revision, latest.known_lease)
                        yield (
                            f"write {day}: starts the job of revision {latest.revision}",
                            self._moved(point, n, remembered),
                        )
                elif (
                    word == "validate"
                    and latest.written is not None
                    and latest.state in (State.WRITTEN, State.REJECTED)
                ):
                    for outcome in self.outcomes:
                        remembered = ("judge", day, latest.revision, outcome)
                        yield (
                            f"validate {day}: finds revision {latest.revision} {outcome}",
                            self._moved(point, n, remembered),
                        )

    def _job(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        """The write job: commits rows and marks of its lease once, or finds them, or stops before a later lease's."""
        _, day, revision, lease = point.processes[n]
        log = point.log
        if lease not in log:
            lanes = {b.known_lease: b.plan.lane for b in self.ledgers.batches[point.ledger]}
            if any(lanes[other] == lanes[lease] and other > lease for other in log):
                yield (
                    f"write {day}: the job of revision {revision} finds a later lease's marks and stops",
                    self._moved(point, n, IDLE),
                )
                return
            log = (*log, lease)
        after = self._moved(point, n, ("record", day, revision, lease, len(log)))
        yield (
            f"write {day}: the job of revision {revision} ends, the output ends at {len(log)}",
            after._replace(log=log),
        )

    def _open(self, point: Point, n: int, operation: tuple[Any, ...]) -> Iterator[tuple[str, Point | Fault]]:
        """init_transactions, read, decide. What changes nothing or is refused ends the step."""
        if not self.rules.read_after_init:
            yield f"{_told(operation)}: reads the ledger", self._moved(point, n, ("read", operation, point.ledger))
            return
        records = self.decide(point.ledger, operation, point)
        if records or (records == () and self._behind(point, operation)):
            after = self._at(point, self._fenced(point.processes))
            index = after.processes.index(IDLE) if point.processes[n] == IDLE else after.processes.index(operation)
            yield (
                f"{_told(operation)}: init, read, decide",
                self._moved(after, index, ("decided", operation, point.ledger)),
            )
        elif operation[0] in ("revise", "record", "judge"):
            yield f"{_told(operation)}: nothing to do, or refused", self._moved(point, n, IDLE)

    def _behind(self, point: Point, operation: tuple[Any, ...]) -> bool:
        """Whether this step, that finds its batch done, still has group offsets to restore."""
        return operation[0] in ADVANCES and self.groups(point.ledger) != (point.frontier, point.validated)

    def _init_late(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        """Mutation: the ledger was read before init."""
        _, operation, ledger = point.processes[n]
        if self.decide(ledger, operation, point):
            after = self._at(point, self._fenced(point.processes))
            index = after.processes.index(point.processes[n])
            yield f"{_told(operation)}: init, decide", self._moved(after, index, ("decided", operation, ledger))

    def _commit(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        _, operation, base = point.processes[n]
        records = self.decide(base, operation, point)
        if records is None:
            return
        fault = self._wrong(self.views[point.ledger], operation, records, point)
        label = f"{_told(operation)}: commits"
        if fault is not None:
            yield label, fault
            return
        key = (point.ledger, (operation, base, point.digest, point.aged, len(point.log)))
        if key not in self._applied:
            self._applied[key] = self.ledgers.after(point.ledger, records)
        ledger = self._applied[key]
        after = self._moved(point, n, IDLE)._replace(ledger=ledger)
        if operation[0] in ADVANCES:
            ends = self.groups(ledger)
            for old, new, group in zip(
                (point.frontier, point.validated), ends, ("frontier", "validated ends"), strict=True
            ):
                back = {p: (o, dict(new).get(p, o)) for p, o in old if dict(new).get(p, o) < o}
                if back:
                    yield label, Fault("moved back", f"the {group} move back: partition: (from, to) {back}")
                    return
            after = after._replace(frontier=ends[0] or point.frontier, validated=ends[1] or point.validated)
        yield label, after

    def _wrong(self, view: View, operation: tuple[Any, ...], records: tuple[Batch, ...], point: Point) -> Fault | None:
        """What is wrong with committing these records now."""
        latest = view.latest(self.intervals[operation[1]])
        fresh = next((b for b in records if b.lease is None), None)
        if fresh is None or latest is None:
            return None
        if operation[0] != "reprocess" and latest.state in PASSED:
            return Fault("unasked", f"{latest.id} is {latest.state}, and revision {fresh.revision} was never asked for")
        if operation[0] == "revise" and self._reason(latest, point.digest, point.aged) is None:
            return Fault("unasked", f"{latest.id} is {latest.state}, and no reason to revise it holds any more")
        return None

    def _fenced(self, processes: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
        """After somebody's init: who had decided decides again, from what it remembers; or gives up, which is a crash."""
        if not self.rules.fenced_by_init:
            return processes
        return tuple(
            (p[1] if p[1][0] in ("revise", "record", "judge") else IDLE) if p and p[0] == "decided" else p
            for p in processes
        )

    @staticmethod
    def _at(point: Point, processes: tuple[tuple[Any, ...], ...]) -> Point:
        return point._replace(processes=tuple(sorted(processes, key=_order)))

    def _moved(self, point: Point, n: int, to: tuple[Any, ...]) -> Point:
        return self._at(point, (*point.processes[:n], to, *point.processes[n + 1 :]))

    # Promises.

    def fault(self, point: Point) -> Fault | None:
        key = (point.ledger, point.frontier, point.validated, point.log)
        if key not in self._faults:
            self._faults[key] = self._fault(point)
        return self._faults[key]

    def _fault(self, point: Point) -> Fault | None:
        view = self.views[point.ledger]
        held = [b.plan.lane for b in view.all() if b.state is State.PLANNED]
        if len(held) != len(set(held)):
            return Fault("lane shared", f"planned batches hold the lanes {held}")
        ends, known = dict(point.frontier), self._accounted(point.ledger)
        anchor = view.anchor
        gone = [r for b in view.all() if was_withdrawn(b) for r in b.plan.source.ranges]
        for when in view.standing:
            revisions = view.batches[when]
            up = [b for b in revisions if b.state is State.PUBLISHED]
            if len(up) > 1:
                return Fault("published wrongly", f"{[str(b.id) for b in up]} are published at once")
            for b in up:
                wrong = self._published_wrongly(b, point.log)
                if wrong:
                    return Fault("published wrongly", f"{b.id}: {wrong}")
            refusal = self._refused(point, self.intervals.index(when))
            if refusal is not None:
                return Fault("refused", f"a run of a finished interval fails: {refusal}")
            passed = any(b.state in PASSED for b in revisions)
            if passed or anchor is None or when.start < anchor.start:
                continue
            for r in revisions[-1].plan.source.ranges:
                # Where the frontier was counted from an interval that was withdrawn since, it stays.
                kept = max((g.start for g in gone if g.partition == r.partition), default=0)
                if r.length and ends.get(("in", r.partition), 0) > max(r.start, kept):
                    return Fault(
                        "hole", f"the frontier is at {ends}, behind {revisions[-1].id}, which is {revisions[-1].state}"
                    )
        if any(end > known.get(p, -1) for p, end in ends.items()):  # a hole, which says more, has been looked for
            return Fault("ahead", f"the frontier is at {ends}, and the ledger accounts for {known}")
        return None

    def _refused(self, point: Point, day: int) -> str | None:
        """What a run that only repeats a finished interval is refused for; its four steps should find nothing to do."""
        view, when = self.views[point.ledger], self.intervals[day]
        latest = view.latest(when)
        if latest is None or latest.state not in PASSED:
            return None
        try:
            fake = self._fake(point.digest, 0)
            assert decide_plan(fake, view, when, self.source, KafkaTopicOutput(fake, "out"), False) is None
            assert self._reason(latest, point.digest, point.aged) is None
            assert batch_to_judge(view, when) is latest
            assert decide_publish(view, when, makers.NOW) == ()
        except FencepostError as refusal:
            return str(refusal)
        return None

    @staticmethod
    def _published_wrongly(batch: Batch, log: tuple[int, ...]) -> str:
        if batch.written is None or any(r.lease != batch.lease for r in batch.written.receipts):
            return "its receipts are not its own"
        if batch.decision is None and (batch.verdict is None or batch.verdict.outcome is not Outcome.PASSED):
            return "neither a passed verdict nor an operator stands behind it"
        low, high = batch.plan.output.ends[0], batch.written.output.ends[0]
        if batch.known_lease not in log[low:high]:
            return f"its output is not between {low} and {high}"
        return ""

    # Liveness.

    def settled(self, point: Point) -> bool:
        """Every interval is published, skipped, or waits for an operator; and the groups are where the ledger says."""
        view = self.views[point.ledger]
        if any(b.state in PASSED for b in view.all()) and self.groups(point.ledger) != (
            point.frontier,
            point.validated,
        ):
            return False
        for when in self.intervals:
            latest = view.latest(when)
            if latest is None:
                return False
            waits = latest.state is State.REJECTED or (
                latest.verdict is not None and latest.verdict.outcome is Outcome.UNDETERMINED
            )
            waits = waits or (view.is_withdrawn(when) and latest.revision == self.revisions)
            too_often = latest.revision == self.revisions and self._reason(latest, point.digest, point.aged) is not None
            if latest.state not in PASSED and not waits and not too_often:
                return False
        return True

    def ordinary(self, point: Point, label: str) -> bool:
        """What goes on by itself: retries, and what an operator has begun already. Operators, time and crashes may cease."""
        if label.endswith("commits"):
            return True
        return not any(
            word in label
            for word in ("skip", "publish", "reprocess", "withdraw", "crashes", "settings", "time passes", "expire")
        )

    def show(self, point: Point) -> str:
        batches = ", ".join(
            f"{self.intervals.index(b.interval)}/{b.revision}:{b.state}"
            + (f"({b.verdict.outcome})" if b.verdict else "")
            for b in self.views[point.ledger].all()
        )
        at = "; ".join(_told(p[1]) + " decided" if p[0] == "decided" else _told(p) for p in point.processes if p)
        return f"[{batches}] log {list(point.log)} frontier {dict(point.frontier)} validated {dict(point.validated)} | {at}"


def _order(process: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, process))


def _told(operation: tuple[Any, ...]) -> str:
    if operation[0] == "read":
        return f"{_told(operation[1])} read"
    return " ".join(str(part) for part in operation[:3])
