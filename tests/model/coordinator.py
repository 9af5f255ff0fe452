"""The coordinator: several runs of one pipeline at once over a few intervals, and operators among them.

Promises, for every interleaving and with a crash after every step:

- the frontier that was committed never lies behind a record of an interval that is neither published nor skipped
  (`hole`), is what the ledger says, and never moves back (`moved back`); the same for the validated ends;
- the frontier that was committed never lies ahead of what the ledger accounts for, so one that does proves a loss (`ahead`);
- an interval has one published revision at most, published on its own passed verdict or by an operator, with receipts of
  its own lease, and its output lies between the ends that were recorded (`published wrongly`);
- a published or skipped interval gets a new revision only when that is asked for, and a batch is pushed aside only for a
  reason that still holds (`unasked`);
- a publication begins of the batch that was checked for it, whatever other runs record meanwhile (`unchecked`);
- a lane is held by one planned batch at most, a publishing lane by one that is being published (`lane shared`); an addition
  that is planned, and may never be written, keeps no interval from being planned (`held up`);
- of a staged batch a plain reader of the output sees nothing before it is decided that it is published, and nothing more once
  that was given up or taken back (`unjudged`); each part of it once (`doubled`); and all of it when it is published;
- each row of an interval's record is in one published batch at most, or is left in quarantine for the next replay, and never both
  (`passed twice`, `lost from quarantine`, `left though published`); replays move no offsets (`moved by an addition`), push no
  other revision aside, and stand only beside the published batch they add to.

What is modelled. Processes, each of which begins any step of any interval at any time: plan, plan with reprocess, write,
validate, advance, skip, publish. That is more than runs do, so it covers every run, retry, backfill, cleared task and
operator. A step reads the ledger, works, calls init_transactions, reads again, decides, and commits: between the last two
somebody else's init may fence it, or it may crash. The write job itself is one step here that commits a lease's marks
and rows, once, unless a later lease has committed in its lane: that is what `writers.py` shows. So does each
task-partition of the copy of a staged batch (`parts`), whose protocol is the same; giving a publication up is one such step for
each of them. Settings change, batches grow too old, staged records are deleted, the output takes no copy any more, and marks of
copies are lost while all this goes on. Where records are replayed, each interval has one record, which gives two rows. Its
batch, and every addition, publishes it whole or sends it to quarantine; where the transform does not keep it (`results`), that
goes row by row.

Where facts are gathered apart, a step that plans or begins a publication reads the ledger and gathers first; between that and its
init others may do anything.

Every decision is one of `fencepost.protocol`; ledgers are kept as numbers, so each decision is made once per ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import makers
from fencepost.config.source import Source as SourceSettings
from fencepost.errors import FencepostError, NeedsOperator
from fencepost.kafka.cluster import Topic
from fencepost.model import Batch, Decision, Interval, OffsetRange, Outcome, PartitionId, Receipt, State
from fencepost.outputs.batch_topic import StagingTopic
from fencepost.outputs.output import Destination
from fencepost.outputs.topic.output import KafkaTopicOutput
from fencepost.outputs.topic.publication import (
    TopicState,
    begin_publication,
    opening_marks,
    record_copied,
    validated_ends,
)
from fencepost.outputs.topic.settings import TopicSettings
from fencepost.outputs.topic.values import TopicPublication
from fencepost.protocol import planning as planning_module
from fencepost.protocol.decisions import (
    batch_to_judge,
    decide_skip,
    decide_withdraw,
    free_lane,
    record_verdict,
    record_written,
    replay_lane,
    standing_plan,
)
from fencepost.protocol.frontier import accounted_for, frontier
from fencepost.protocol.marks import MarkState
from fencepost.protocol.obstacle import AbandonedPublication, obstacle
from fencepost.protocol.planning import Neighbours, PlanFacts, decide_plan, decide_replay, decide_revision
from fencepost.protocol.publication import record_refused
from fencepost.protocol.replay import CurrentSources, left_to_replay, newest_link
from fencepost.protocol.revision import CurrentInputs, revision_reason
from fencepost.protocol.view import PASSED, View, has_passed
from fencepost.steps import plan as gathering_module
from fencepost.steps.plan import facts_of_addition, facts_of_plan
from makers import publish_prepared
from model import product
from model.ledgers import Ledgers
from model.search import Fault

ADVANCES = ("advance", "publish", "skip", "copied")  # the steps that move group offsets
REMEMBERED = (
    "revise",
    "record",
    "judge",
    "copied",
    "refuse",
)  # what is decided again by whom a fenced coordinator left it to
GATHERS = ("plan", "reprocess", "replay", "revise", "advance", "publish")  # the steps that ask more than the ledger
GOES_ON = re.compile(
    r"(skip|reprocess) \d+( \d+:|: closes|: finds the publication over|( \d+)* with its facts:)"
)  # an operator's request has begun
SOURCES = CurrentSources(frozenset({"in"}))
OUTCOMES = {"passed": Outcome.PASSED, "rejected": Outcome.REJECTED, "undetermined": Outcome.UNDETERMINED}


Rows = frozenset[int]
BOTH: Rows = frozenset((0, 1))  # the rows that an interval's record gives


def routed(taken: Rows, passing: Rows, results: bool) -> tuple[Rows, Rows]:
    """What a write job publishes of the rows that it takes up, and the rows that a replay of its quarantine takes up."""
    if results:
        return passing, taken - passing
    return (taken, frozenset()) if passing == taken else (frozenset(), taken)


def replay_of(view: View, when: Interval, gather: Callable[[View], PlanFacts | None]) -> tuple[Batch, ...]:
    """A replay as the product decides it, of facts that are gathered against the same view."""
    return decide_replay(view, when, "p", SOURCES, gather(view))


@dataclass(frozen=True)
class Rules:
    """The coordinator's rules; a mutation takes one out."""

    frontier: Callable[[View], Mapping[PartitionId, int]] = frontier
    standing: Callable[[int | None, int], MarkState] = product.copy_standing_of
    skip: Callable[[View, Interval, Decision, AbandonedPublication | None], tuple[Batch, ...]] = decide_skip
    publish: Callable[..., tuple[Batch, ...]] = publish_prepared
    replay: Callable[[View, Interval, Callable[[View], PlanFacts | None]], tuple[Batch, ...]] = replay_of
    bound_alike: Callable[[Neighbours, Neighbours], bool] = Neighbours.bound_alike
    routed: Callable[[Rows, Rows, bool], tuple[Rows, Rows]] = routed
    begin: Callable[..., TopicPublication] = begin_publication
    opening: Callable[[View, TopicPublication], tuple[Receipt, ...]] = opening_marks
    record: Callable[..., tuple[Batch, ...]] = record_copied
    free_lane: Callable[..., str] = free_lane
    replay_lane: Callable[..., str] = replay_lane
    decide_before_copy: bool = True
    close: bool = True  # a publication that is given up gets its marks
    ask_headers: bool = True  # whether the output's records have headers is asked before the output is
    look: bool = True  # where a mark is gone, the output is asked what it stood for
    read_after_init: bool = True
    fenced_by_init: bool = True
    decide_revision_again: bool = True


class Point(NamedTuple):
    """A state. `log` are the leases in the order they wrote; a process is idle (None) or what it is at.

    `shown` is the output of a pipeline that stages, as a plain reader sees it: a batch's lease, and a part of it. `marks`
    are those of the publishing lanes, by lane and part: lease, and whether the part was copied under it. Below `gone`, staged
    records are deleted. `refusing`: the output takes no copy (1), or does so again (2). `lost`: marks were deleted.
    `wrote` says of the leases in `log`, where records are replayed, which rows each publishes, and which are left in its
    quarantine.

    (word, interval, ...) is what a process remembers of the ledger it read; ("decided", that, ledger) that it has decided
    on a ledger and not yet committed.
    """

    ledger: int
    log: tuple[int, ...]
    frontier: tuple[tuple[PartitionId, int], ...]
    validated: tuple[tuple[PartitionId, int], ...]
    digest: int
    aged: int
    processes: tuple[tuple[Any, ...], ...]
    shown: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()
    gone: int = 0
    refusing: int = 0
    lost: int = 0
    wrote: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()


IDLE: tuple[Any, ...] = ()


class Source:
    """A cluster whose source has one record for each of the first intervals in partition 0, one for the last in partition 1."""

    id = "cluster-0"

    def __init__(self, intervals: int, partitions: int) -> None:
        self.intervals, self.partitions = intervals, partitions
        self.ends: dict[str, list[int]] = {}

    def _first(self, partition: int, day: int) -> int | None:
        if partition == 0:
            return day if day < self.intervals else None
        return 0 if day < self.intervals else None

    def last_stable(self, topic: Topic) -> list[int]:
        return [self.intervals, 1][: self.partitions]

    def earliest(self, topic: Topic) -> list[int]:
        return [0] * self.partitions

    def describe(self, name: str) -> Topic:
        return Topic(name, f"{name}-1", self.partitions if name == "in" else 1)

    def find(self, name: str) -> Topic:
        return self.describe(name)

    def high_watermarks(self, topic: Topic) -> list[int]:
        return self.ends[topic.name]

    def ensure_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> Topic:
        return self.describe(name)

    def topic_config(self, name: str, key: str) -> str:
        return ""

    def topic_configs(self, name: str) -> dict[str, str]:
        return {}

    def first_at_or_after(
        self, topic: Topic, ms: int, group: str, starts: list[int] | None = None, until: int | None = None
    ) -> list[int | None]:
        day = max(0, (datetime.fromtimestamp(ms / 1000, makers.NOW.tzinfo) - makers.NOW) // makers.DAY)
        found = [self._first(p, day) for p in range(self.partitions)]
        if starts is None:
            return found
        ends = self.last_stable(topic)
        return [None if o is None or max(o, s) >= e else max(o, s) for o, s, e in zip(found, starts, ends, strict=True)]


@dataclass(frozen=True)
class ModelBeginning:
    """The model's outputs at a point, as a publication begins there."""

    coordinator: Coordinator
    point: Point

    def publication(self, view: View, batch: Batch, now: datetime) -> TopicPublication:
        return self.coordinator.begun(view, batch, self.point)


class Coordinator:
    """The model. `operations` are the words a process may begin with; `parts` of a copy there are where batches are staged."""

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
        parts: int = 0,
        deletion: bool = False,
        refusal: bool = False,
        fixing: bool = False,
        losing: bool = False,
        headers: bool = True,
        results: bool = False,
        apart: bool = False,
    ) -> None:
        self.rules = rules or Rules()
        self.quarantines = "replay" in operations
        self.parts, self.deletion, self.results, self.apart = parts, deletion, results, apart
        self.refusal, self.fixing, self.losing, self.headers = refusal, fixing, losing, headers
        self.intervals = [makers.a_day(n) for n in range(intervals)]
        self.revisions, self.count, self.lanes = revisions, processes, lanes
        self.operations, self.outcomes = operations, outcomes
        self.settings_change, self.ageing, self.group_expiry = settings_change, ageing, group_expiry
        self.cluster = Source(intervals if records is None else records, partitions)
        self.ledgers = Ledgers()
        self.views = self.ledgers.views
        self._decided: dict[tuple[Any, ...], tuple[Batch, ...] | None] = {}
        self._faults: dict[tuple[Any, ...], Fault | None] = {}
        self._ends: dict[int, tuple[tuple[tuple[PartitionId, int], ...], tuple[tuple[PartitionId, int], ...]]] = {}
        self._known: dict[int, dict[PartitionId, int]] = {}
        self._applied: dict[tuple[int, tuple[Any, ...]], int] = {}
        self.empty = self.ledgers.number(())

    @property
    def start(self) -> list[Point]:
        return [Point(self.empty, (), (), (), 0, 0, (IDLE,) * self.count)]

    # Decisions, all of them the product's.

    def _fake(self, point: Point) -> tuple[Any, Destination]:
        """What a plan asks of a deployment, and where batches go."""
        written, shown = len(point.log), len(point.shown)
        self.cluster.ends = {"out": [shown if self.parts else written], "staging": [written] * self.parts}
        self.cluster.ends["quarantine"] = [written]
        digest, on_malformed = point.digest, "quarantine" if self.quarantines else "fail"
        source = SourceSettings(topic="in", format="bytes").model_copy(update={"on_malformed": on_malformed})
        pipeline = SimpleNamespace(
            name="p",
            group="p",
            lanes=self.lanes,
            write_digests=lambda: {"transform": str(digest)},
            quarantines=self.quarantines,
            quarantine_topic="quarantine",
            source_parts=(),
            output_parts=(),
            sources={"source": source},
            source_topics={"in": source},
            output=TopicSettings(topic="out", partitions=1, staging_hours=72),
        )
        ledger = SimpleNamespace(topic_id="ledger-0")
        fake: Any = SimpleNamespace(pipeline=pipeline, cluster=self.cluster, ledger=ledger)
        staging = StagingTopic(fake, "staging") if self.parts else None
        return fake, Destination(KafkaTopicOutput(fake, "out"), staging)

    def _facts(self, view: View, when: Interval, point: Point) -> PlanFacts:
        """What a plan depends on, as the product gathers it against this view."""
        fake, output = self._fake(point)
        with (
            mock.patch.object(gathering_module, "software", return_value="model"),  # it reads files
            mock.patch.object(
                gathering_module, "_last_timestamps", return_value={}
            ),  # it reads records, for words alone
        ):
            return facts_of_plan(fake, Neighbours.of(view, when, SOURCES.topics), when, output)

    def _facts_of_addition(self, view: View, when: Interval, point: Point) -> PlanFacts | None:
        fake, output = self._fake(point)
        link = newest_link(view, when)
        if link is None or link.plan.quarantine is None or link.written is None:
            return None
        with mock.patch.object(gathering_module, "software", return_value="model"):
            return facts_of_addition(fake, link, when, output)

    @staticmethod
    def _as_it_was(point: Point, was: tuple[Any, ...]) -> Point:
        digest, aged, log, shown, marks, gone = was
        return point._replace(
            digest=digest, aged=aged, log=point.log[:log], shown=point.shown[:shown], marks=marks, gone=gone
        )

    @staticmethod
    def _now(point: Point) -> tuple[Any, ...]:
        return point.digest, point.aged, len(point.log), len(point.shown), point.marks, point.gone

    def _found(self, batch: Batch, point: Point) -> CurrentInputs:
        age = 2 if batch.require_lease < point.aged else 0
        found = product.current_inputs(str(point.digest), age, batch.plan.output.topic_id)
        if self.quarantines:
            found = replace(found, quarantine_topic_id="quarantine-1", quarantine_topic="quarantine")
        if self.parts:
            found = replace(
                found,
                staging_topic_id="staging-1",
                staged_gone=(OffsetRange(topic="staging", partition=0, start=0, end=1),)
                if self._is_gone(batch, point)
                else (),
                **self._of_copy(batch, point),
            )
        return found

    def _reason(self, batch: Batch, point: Point) -> str | None:
        return revision_reason(batch, self._found(batch, point))

    @staticmethod
    def _is_gone(batch: Batch, point: Point) -> bool:
        """Whether something was deleted of where the batch is staged."""
        return batch.plan.staging is not None and batch.plan.staging.ends[0] < point.gone

    def _of_copy(self, batch: Batch, point: Point) -> dict[str, TopicState]:
        """The marks of a batch's copy, and why the output cannot tell what those that are gone stood for."""
        publication = batch.publication
        if publication is None or batch.state is not State.PUBLISHING:
            return {}
        known = dict(point.marks)
        found = [known.get((publication.lane, part)) for part in range(publication.tasks)]
        marks = tuple(mark and product.a_receipt(part, *mark) for part, mark in enumerate(found))
        untold = self.rules.ask_headers and not self.headers and len(point.shown) > publication.begun.ends[0]
        untold_why = "its records have no header" if untold else ""
        return {"output": TopicState(batch.plan.output.topic_id, marks, untold_why)}

    def decide(self, ledger: int, operation: tuple[Any, ...], point: Point) -> tuple[Batch, ...] | None:
        """The records the operation would commit on this ledger; none (no change); None: refused."""
        key = (ledger, *self._decided_by(operation, point))
        if key not in self._decided:
            lanes = {"free_lane": self.rules.free_lane, "replay_lane": self.rules.replay_lane}
            try:
                with (
                    mock.patch.multiple(planning_module, **lanes),
                    mock.patch.object(Neighbours, "bound_alike", self.rules.bound_alike),
                ):
                    self._decided[key] = self._decide(self.views[ledger], operation, point)
            except FencepostError:
                self._decided[key] = None
        return self._decided[key]

    @staticmethod
    def _decided_by(operation: tuple[Any, ...], point: Point) -> tuple[Any, ...]:
        """All that a decision depends on beside the ledger."""
        if operation[0] == "apart":
            return (operation,)
        return operation, point.digest, point.aged, len(point.log), len(point.shown), point.marks, point.gone

    def _decide(self, view: View, operation: tuple[Any, ...], point: Point) -> tuple[Batch, ...]:
        """What the operation commits. One that gathered its facts apart has them as the ledger and the topics were then."""
        read = view
        if apart := operation[0] == "apart":
            _, operation, ledger, was = operation
            read, point = self.views[ledger], self._as_it_was(point, was)
        word, day = operation[0], operation[1]
        when = self.intervals[day]
        if word in ("plan", "reprocess"):
            given_up = AbandonedPublication(*operation[2:]) if operation[2:] else None
            is_there = standing_plan(read, when, word == "reprocess", given_up) is not None
            facts = None if is_there else self._facts(read, when, point)
            return decide_plan(view, when, facts, reprocess=word == "reprocess", given_up=given_up)
        if word == "replay":
            return self.rules.replay(
                view, when, lambda view: self._facts_of_addition(read if apart else view, when, point)
            )
        if word == "revise":
            found = self._revision(view, day, operation[2])
            if found is None:
                return ()
            batch = found.model_copy(update={"state": operation[3]})  # as it was when the write step read it
            given_up = AbandonedPublication(*operation[4:]) if operation[4:] else None
            gathered = self._revision(read, day, operation[2]) or found
            facts = (self._facts if found.adds_to is None else self._facts_of_addition)(read, when, point)
            if not self.rules.decide_revision_again:  # it goes by what was read before
                view = view.updated([found.model_copy(update={"state": batch.state})])
            return decide_revision(view, batch, self._found(gathered, point), facts, given_up)
        if word == "record":
            _, _, revision, lease, end, aside = operation
            batch = self._revision(view, day, revision)
            writers = batch.plan.row_task_count if batch else 1
            topic, ends = ("staging", (end,) * self.parts) if self.parts else ("out", (end,))
            receipts = tuple(product.a_receipt(t, lease, self.parts or 1, topic=topic) for t in range(writers))
            if aside:
                receipts += (product.a_receipt(writers, lease, aside, topic="quarantine"),)
            written = product.a_written(receipts, ends, topic)
            if self.quarantines:
                kept = makers.a_topic(end, topic="quarantine")
                written = makers.counted(written, malformed=aside).model_copy(update={"quarantine": kept})
            return record_written(view, when, revision, written, receipts)
        if word == "copied":
            _, _, revision, lease, rows, end = operation
            receipts = tuple(product.a_receipt(part, lease, copied) for part, copied in enumerate(rows))
            return self.rules.record(
                view, when, revision, lease, receipts, makers.a_topic(end, topic="out"), 0, makers.NOW
            )
        if word == "refuse":
            return record_refused(view, when, *operation[2:], "it is refused", makers.NOW)
        if word == "judge":
            found = self._revision(view, day, operation[2])
            verdict = product.a_verdict(OUTCOMES[operation[3]], found.verdict if found else None)
            return record_verdict(view, when, operation[2], verdict)
        if word in ("advance", "publish"):
            decision = makers.a_decision("publish") if word == "publish" else None
            return self.rules.publish(view, when, makers.NOW, decision, ModelBeginning(self, point), read)
        if word == "withdraw":
            return decide_withdraw(view, when, makers.a_decision("withdraw"))
        return self.rules.skip(
            view, when, makers.a_decision("skip"), AbandonedPublication(*operation[2:]) if operation[2:] else None
        )

    def begun(self, view: View, batch: Batch, point: Point) -> TopicPublication:
        if self._is_gone(batch, point):
            raise NeedsOperator("its staged records are gone")
        _, output = self._fake(point)
        limit = 0 if self.parts == 1 else -1  # nothing has a size here: in one transaction, or by partition
        return self.rules.begin(view, batch, output.now()[0], "ledger-0", limit, makers.NOW)

    @staticmethod
    def _revision(view: View, day: int, revision: int) -> Batch | None:
        found = view.revisions.get(makers.a_day(day))
        return next((b for b in found.all if b.revision == revision), None) if found else None

    def groups(self, ledger: int) -> tuple[tuple[tuple[PartitionId, int], ...], tuple[tuple[PartitionId, int], ...]]:
        """What advance commits to the two groups."""
        if ledger not in self._ends:
            view = self.views[ledger]
            self._ends[ledger] = (
                tuple(sorted(self.rules.frontier(view).items())),
                tuple(sorted(validated_ends(view).items())),
            )
        return self._ends[ledger]

    def _accounted(self, ledger: int) -> dict[PartitionId, int]:
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
        if self.deletion and not point.gone and point.log:
            yield "time passes, and staged records are deleted", point._replace(gone=len(point.log))
        if self.refusal and point.refusing < (2 if self.fixing else 1):
            announced = "is fixed" if point.refusing else "is set so that it takes no copy"
            yield f"the output {announced}", point._replace(refusing=point.refusing + 1)
        if self.losing and point.marks and not point.lost:
            yield "the publishing lanes' marks expire", point._replace(marks=(), lost=1)
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
            elif process[0] == "copying":
                yield from self._copy(point, n)
            elif process[0] == "closing":
                yield from self._close(point, n)
            elif process[0] == "decided":
                yield from self._commit(point, n)
            elif process[0] == "read":
                yield from self._init_late(point, n)
            else:
                yield from self._open(point, n, process)

    def _begin(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        view = self.views[point.ledger]
        for day, when in enumerate(self.intervals):
            latest = view.last(when)
            if latest is None or view.is_withdrawn(when):
                if "plan" in self.operations and (latest is None or latest.revision < self.revisions):
                    yield from self._open(point, n, ("plan", day))
                continue
            yield from self._begin_copy(point, n, day, latest)
            for word in self.operations:
                if word in ("plan", "advance", "publish", "skip", "reprocess", "replay", "withdraw"):
                    if word in ("reprocess", "replay") and latest.revision >= self.revisions:
                        continue
                    if word in ("skip", "reprocess") and latest.state is State.PUBLISHING:
                        if obstacle(latest, self._found(latest, point)) is not None:
                            yield (
                                f"{word} {day}: finds that the publication of revision {latest.revision} cannot go on",
                                self._moved(point, n, self._to_give_up(latest, day, word)),
                            )
                        continue
                    yield from self._open(point, n, (word, day))
                elif word == "write":
                    if self._reason(latest, point) is not None:
                        if latest.revision < self.revisions:
                            remembered = self._to_revise(latest, day)
                            yield (
                                f"write {day}: finds that revision {latest.revision} must be revised",
                                self._moved(point, n, remembered),
                            )
                    elif latest.state is State.PLANNED:
                        remembered = ("writing", day, latest.revision, latest.require_lease)
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
            lanes = {b.require_lease: b.plan.lane for b in self.ledgers.batches[point.ledger]}
            if any(lanes[other] == lanes[lease] and other > lease for other in log):
                yield (
                    f"write {day}: the job of revision {revision} finds a later lease's marks and stops",
                    self._moved(point, n, IDLE),
                )
                return
            log = (*log, lease)
            outcomes = self._outcomes(point, lease)
        else:
            outcomes = {(one[1], one[2]) for one in point.wrote if one[0] == lease} or {((), ())}
        for published, left in sorted(outcomes):
            wrote = point.wrote
            if self.quarantines:
                wrote = tuple(sorted({*wrote, (lease, published, left)}))
            aside = len(left) if self.results else int(bool(left))
            after = self._moved(point, n, ("record", day, revision, lease, len(log), aside))
            announced = f", rows {list(left)} are left in quarantine" if left else ""
            yield (
                f"write {day}: the job of revision {revision} ends, the output ends at {len(log)}{announced}",
                after._replace(log=log, wrote=wrote),
            )

    def _outcomes(self, point: Point, lease: int) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
        """What a write job may publish and leave, whichever of the rows that it takes up pass."""
        if not self.quarantines:
            return {((), ())}
        batches = {str(b.id): b for b in self.ledgers.batches[point.ledger]}
        replays = next(b.plan.replays for b in batches.values() if b.require_lease == lease)
        taken = BOTH
        if replays is not None:
            link = batches[replays.batch].require_lease
            taken = frozenset(next(left for other, _, left in point.wrote if other == link))
        found = set()
        for passing in (frozenset[int](), frozenset((0,)), frozenset((1,)), BOTH):
            published, left = self.rules.routed(taken, passing & taken, self.results)
            found.add((tuple(sorted(published)), tuple(sorted(left))))
        return found

    def _to_revise(self, latest: Batch, day: int) -> tuple[Any, ...]:
        """What a write step is at that finds that the batch must be revised: it gives a publication up first."""
        if latest.state is not State.PUBLISHING:
            return ("revise", day, latest.revision, latest.state)
        return self._to_give_up(latest, day, "revise")

    def _to_give_up(self, latest: Batch, day: int, word: str) -> tuple[Any, ...]:
        publication = latest.publication
        assert publication is not None
        if not self.rules.close:
            return self._after_closing(word, day, latest.revision, publication.require_lease, 0)
        lane, tasks = publication.lane, publication.tasks
        return ("closing", day, latest.revision, publication.require_lease, lane, tasks, (), word)

    @staticmethod
    def _after_closing(word: str, day: int, revision: int, lease: int, seen: int) -> tuple[Any, ...]:
        if word == "revise":
            return ("revise", day, revision, State.PUBLISHING, lease, seen)
        return (word, day, lease, seen)

    def _begin_copy(self, point: Point, n: int, day: int, latest: Batch) -> Iterator[tuple[str, Point | Fault]]:
        """An advance step that finds its batch being published."""
        publication = latest.publication
        if "advance" not in self.operations or not self.parts:
            return
        if latest.state is State.PUBLISHING and publication is not None:
            lane, lease, tasks = publication.lane, publication.require_lease, publication.tasks
        elif not self.rules.decide_before_copy and has_passed(latest):
            lane, lease, tasks = 0, latest.require_lease, self.parts
        else:
            return
        begun = ("copying", day, latest.revision, latest.require_lease, lease, lane, tasks, (), 0)
        yield f"advance {day}: starts to copy revision {latest.revision}", self._moved(point, n, begun)

    def _copy(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        """The copy's next task-partition: init, which fences whoever is at it, and what the mark says; then its commit."""
        _, day, revision, plan, lease, lane, tasks, rows, has_read = point.processes[n]
        announced = f"advance {day}: the copy of revision {revision}, part {len(rows)},"
        here: tuple[Any, ...] = ("copying", day, revision, plan, lease, lane, tasks)
        batch = next(b for b in self.ledgers.batches[point.ledger] if b.require_lease == plan)
        if has_read and point.refusing == 1:
            yield f"{announced} is refused", self._moved(point, n, ("refuse", day, revision, lease))
            return
        if has_read:
            if batch.state not in (State.PUBLISHING, State.PUBLISHED):
                yield (
                    f"{announced} commits",
                    Fault("unjudged", f"{batch.id} is {batch.state}, and a reader sees records of it"),
                )
                return
            marks = self._marked(point, lane, len(rows), (lease, 1))
            point = point._replace(shown=(*point.shown, (plan, len(rows))), marks=marks)
            yield f"{announced} commits", self._moved(point, n, self._next_part(here, (*rows, 1), point))
            return
        after = self._ousted(point, n, lane, len(rows))
        at = after.processes.index(point.processes[n])
        stands, mark = self._stands(point, lane, len(rows), lease)
        if stands is MarkState.LOST:
            if (
                batch.state is not State.PUBLISHING
                or batch.publication is None
                or batch.publication.require_lease != lease
            ):
                yield f"{announced} finds no mark, and its publication over, and stops", self._moved(after, at, IDLE)
            elif (stopped := obstacle(batch, self._found(batch, point))) is not None and stopped.lasting:
                yield f"{announced} cannot go on, and stops", self._moved(after, at, IDLE)
            else:
                marks = self._restored(after, batch, lane, len(rows), lease)
                yield (
                    f"{announced} writes its mark again",
                    self._moved(after._replace(marks=marks), at, (*here, rows, 0)),
                )
        elif stands is MarkState.SUPERSEDED:
            yield f"{announced} finds a later lease's mark and stops", self._moved(after, at, IDLE)
        elif stands is not MarkState.WRITE:
            yield f"{announced} is there", self._moved(after, at, self._next_part(here, (*rows, mark[1]), point))
        elif self._is_gone(batch, point):
            yield f"{announced} finds no staged records and stops", self._moved(after, at, IDLE)
        else:
            yield f"{announced} reads its mark and the staged records", self._moved(after, at, (*here, rows, 1))

    def _restored(self, point: Point, batch: Batch, lane: int, part: int, lease: int) -> tuple[Any, ...]:
        """The marks with one that was gone, as the output tells what it stood for."""
        publication, view = batch.publication, self.views[point.ledger]
        assert publication is not None
        is_there = (
            self.rules.look and self.headers and (batch.require_lease, part) in point.shown[publication.begun.ends[0] :]
        )
        mark = (lease, 1) if is_there else (opening_marks(view, publication)[part].lease, 0)
        return self._marked(point, lane, part, mark)

    @staticmethod
    def _next_part(here: tuple[Any, ...], rows: tuple[int, ...], point: Point) -> tuple[Any, ...]:
        _, day, revision, _, lease, _, tasks = here
        return ("copied", day, revision, lease, rows, len(point.shown)) if len(rows) == tasks else (*here, rows, 0)

    def _ousted(self, point: Point, n: int, lane: int, part: int) -> Point:
        """After process n's init of a task-partition's id: whoever was about to commit under it is refused."""
        processes = tuple(
            IDLE if m != n and p and p[0] == "copying" and p[-1] and (p[5], len(p[7])) == (lane, part) else p
            for m, p in enumerate(point.processes)
        )
        return self._at(point, processes)

    def _close(self, point: Point, n: int) -> Iterator[tuple[str, Point | Fault]]:
        """Giving a publication up: the next task-partition ends with what it has."""
        _, day, revision, lease, lane, tasks, rows, word = point.processes[n]
        here, point = point.processes[n], self._ousted(point, n, lane, len(rows))
        n = point.processes.index(here)
        stands, mark = self._stands(point, lane, len(rows), lease)
        if stands is MarkState.LOST and self.headers:
            batch = self._revision(self.views[point.ledger], day, revision)
            if batch is None or not AbandonedPublication(lease, 0).is_of(batch):
                yield f"{word} {day}: finds the publication over, and stops", self._moved(point, n, IDLE)
                return
            point = point._replace(marks=self._restored(point, batch, lane, len(rows), lease))
            stands, mark = self._stands(point, lane, len(rows), lease)
        if stands in (MarkState.WRITE, MarkState.LOST):
            mark = (lease, 0)
            point = point._replace(marks=self._marked(point, lane, len(rows), mark))
        rows = (*rows, mark[1] if mark[0] == lease else 0)
        after: tuple[Any, ...] = ("closing", day, revision, lease, lane, tasks, rows, word)
        if len(rows) == tasks:
            after = IDLE if all(rows) else self._after_closing(word, day, revision, lease, sum(rows))
        yield (
            f"{word} {day}: closes part {len(rows) - 1} of the publication of revision {revision}",
            self._moved(point, n, after),
        )

    def _stands(self, point: Point, lane: int, part: int, lease: int) -> tuple[MarkState, tuple[int, int]]:
        mark = dict(point.marks).get((lane, part))
        return self.rules.standing(None if mark is None else mark[0], lease), mark or (-1, 0)

    @staticmethod
    def _marked(point: Point, lane: int, part: int, mark: tuple[int, int]) -> tuple[Any, ...]:
        return tuple(sorted((dict(point.marks) | {(lane, part): mark}).items()))

    def _open(self, point: Point, n: int, operation: tuple[Any, ...]) -> Iterator[tuple[str, Point | Fault]]:
        """init_transactions, read, decide. What changes nothing or is refused ends the step.

        Where facts are gathered apart, whoever needs some gathers them first, of the ledger as it is now.
        """
        if self.apart and operation[0] in GATHERS and self.decide(point.ledger, operation, point) is not None:
            gathered = ("apart", operation, point.ledger, self._now(point))
            yield f"{_told(operation)}: reads the ledger and gathers", self._moved(point, n, gathered)
            return
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
        elif self._is_remembered(operation):
            yield f"{_told(operation)}: nothing to do, or refused", self._moved(point, n, IDLE)

    def _behind(self, point: Point, operation: tuple[Any, ...]) -> bool:
        """Whether this step, that finds its batch done, still has group offsets to restore."""
        return _plain(operation)[0] in ADVANCES and self.groups(point.ledger) != (point.frontier, point.validated)

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
        key = (point.ledger, (base, *self._decided_by(operation, point)))
        if key not in self._applied:
            self._applied[key] = self.ledgers.after(point.ledger, records)
        ledger = self._applied[key]
        if all(b.adds_to is not None for b in records) and self.groups(point.ledger)[0] != self.groups(ledger)[0]:
            yield label, Fault("moved by an addition", f"the frontier was {self.groups(point.ledger)[0]}")
            return
        after = self._moved(point, n, IDLE)._replace(ledger=ledger)
        for b in records:
            if b.publication is not None and b.publication.lease is None:
                lane, opening = b.publication.lane, self.rules.opening(self.views[point.ledger], b.publication)
                marks = dict(after.marks) | {(lane, r.task): (r.lease, 0) for r in opening}
                after = after._replace(marks=tuple(sorted(marks.items())))
        if _plain(operation)[0] in ADVANCES:
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
        if (fault := self._unchecked(operation, records)) is not None:
            return fault
        operation = _plain(operation)
        latest = view.last(self.intervals[operation[1]])
        fresh = next((b for b in records if b.lease is None), None)
        if fresh is None or latest is None:
            return None
        pushed = next((b for b in records if b.state is State.SUPERSEDED and b.adds_to is None), None)
        if fresh.adds_to is not None and pushed is not None:
            return Fault("unasked", f"the addition {fresh.revision} pushes {pushed.id} aside")
        if operation[0] not in ("reprocess", "replay") and latest.state in PASSED:
            return Fault("unasked", f"{latest.id} is {latest.state}, and revision {fresh.revision} was never asked for")
        if operation[0] == "revise" and self._reason(latest, point) is None:
            return Fault("unasked", f"{latest.id} is {latest.state}, and no reason to revise it holds any more")
        return None

    def _unchecked(self, operation: tuple[Any, ...], records: tuple[Batch, ...]) -> Fault | None:
        """What is published without a check. Facts that were gathered apart are about the newest revision of then."""
        begun = next((b for b in records if b.state in (State.PUBLISHING, State.PUBLISHED)), None)
        if begun is None or operation[0] != "apart" or operation[1][0] not in ("advance", "publish"):
            return None
        checked = self.views[operation[2]].last(self.intervals[operation[1][1]])
        if checked is not None and checked.id == begun.id:
            return None
        return Fault("unchecked", f"{begun.id} is published, and {checked and checked.id} was checked for it")

    def _fenced(self, processes: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
        """After somebody's init: who had decided decides again, from what it remembers; or gives up, which is a crash."""
        if not self.rules.fenced_by_init:
            return processes
        return tuple((p[1] if self._is_remembered(p[1]) else IDLE) if p and p[0] == "decided" else p for p in processes)

    @staticmethod
    def _is_remembered(operation: tuple[Any, ...]) -> bool:
        """Whether it is more than a word and an interval: whoever is at it knows something that the ledger does not say."""
        return operation[0] in REMEMBERED or len(operation) > 2

    @staticmethod
    def _at(point: Point, processes: tuple[tuple[Any, ...], ...]) -> Point:
        return point._replace(processes=tuple(sorted(processes, key=_order)))

    def _moved(self, point: Point, n: int, to: tuple[Any, ...]) -> Point:
        return self._at(point, (*point.processes[:n], to, *point.processes[n + 1 :]))

    # Promises.

    def fault(self, point: Point) -> Fault | None:
        key = (point.ledger, point.frontier, point.validated, point.log, point.shown, point.wrote)
        if key not in self._faults:
            self._faults[key] = self._fault(point)
        return self._faults[key]

    def _fault(self, point: Point) -> Fault | None:
        view = self.views[point.ledger]
        held = [b.plan.lane for b in view.all() if b.state is State.PLANNED]
        if len(held) != len(set(held)):
            return Fault("lane shared", f"planned batches hold the lanes {held}")
        held = [b.publication.lane for b in view.all() if b.state is State.PUBLISHING and b.publication]
        if len(held) != len(set(held)):
            return Fault("lane shared", f"batches that are being published hold the lanes {held}")
        if (seen := self._seen_wrongly(point, view)) is not None:
            return seen
        planned = [b.adds_to is not None for b in view.all() if b.state is State.PLANNED]
        for day in range(len(self.intervals)) if planned and all(planned) else ():
            if self.intervals[day] not in view.revisions and self.decide(point.ledger, ("plan", day), point) is None:
                return Fault("held up", f"interval {day} cannot be planned, and only additions are under way")
        ends, known = dict(point.frontier), self._accounted(point.ledger)
        anchor = view.anchor
        gone = [r for b in view.all() if b.state is State.WITHDRAWN for r in b.plan.ranges]
        for when in view.kept_intervals:
            revisions = view.known(when).all
            up = [b for b in revisions if b.state is State.PUBLISHED]
            if len([b for b in up if b.adds_to is None]) > 1:
                return Fault("published wrongly", f"{[str(b.id) for b in up]} are published at once")
            if (wrong := self._replayed_wrongly(view, when, point)) is not None:
                return wrong
            for b in up:
                why = self._published_wrongly(b, point)
                if why:
                    return Fault("published wrongly", f"{b.id}: {why}")
            refusal = self._refused(point, self.intervals.index(when))
            if refusal is not None:
                return Fault("refused", f"a run of a finished interval fails: {refusal}")
            passed = any(b.state in PASSED for b in revisions)
            if passed or anchor is None or when.start < anchor.start:
                continue
            for r in revisions[-1].plan.ranges:
                # Where the frontier was counted from an interval that was withdrawn since, it stays.
                kept = max((g.start for g in gone if g.partition_id == r.partition_id), default=0)
                if r.length and ends.get(r.partition_id, 0) > max(r.start, kept):
                    return Fault(
                        "hole", f"the frontier is at {ends}, behind {revisions[-1].id}, which is {revisions[-1].state}"
                    )
        if any(end > known.get(p, -1) for p, end in ends.items()):  # a hole, which says more, has been looked for
            return Fault("ahead", f"the frontier is at {ends}, and the ledger accounts for {known}")
        return None

    def _replayed_wrongly(self, view: View, when: Interval, point: Point) -> Fault | None:
        """What became of the rows of the interval's record: each is in one batch, or left for the next replay."""
        up = [b for b in view.known(when).all if b.state is State.PUBLISHED]
        if not self.quarantines or not up:
            return None
        base = view.in_force(when)
        if any(b.adds_to is not None and (base is None or b.adds_to != base.revision) for b in up):
            return Fault("published wrongly", f"{[str(b.id) for b in up]}: an addition stands without its batch")
        published = {lease: rows for lease, rows, _ in point.wrote}
        link = newest_link(view, when)
        left = next((rows for lease, _, rows in point.wrote if link and lease == link.require_lease), ())
        for row in sorted(BOTH):
            passed = [b for b in up if row in published[b.require_lease]]
            added = [b for b in view.known(when).all if b.adds_to is not None and (b.require_lease, 0) in point.shown]
            seen = [b for b in added if row in published[b.require_lease]]
            announced = f"row {row} of {when} is in {[str(b.id) for b in passed]}, of quarantine {left} are left"
            if len(passed) > 1 or len(seen) > 1:
                return Fault("passed twice", f"{announced}; a reader sees it in {[str(b.id) for b in seen]}")
            if passed and row in left:
                return Fault("left though published", announced)
            if not passed and not (row in left and link and left_to_replay(link)):
                return Fault("lost from quarantine", announced)
        return None

    def _refused(self, point: Point, day: int) -> str | None:
        """What a run that only repeats a finished interval is refused for; its four steps should find nothing to do."""
        view, when = self.views[point.ledger], self.intervals[day]
        latest = view.last(when)
        if latest is None or latest.state not in PASSED:
            return None
        try:
            assert decide_plan(view, when, None, reprocess=False) == ()
            assert self._reason(latest, point) is None
            assert batch_to_judge(view, when) is latest
            assert publish_prepared(view, when, makers.NOW) == ()
        except FencepostError as refusal:
            return str(refusal)
        return None

    def _seen_wrongly(self, point: Point, view: View) -> Fault | None:
        """What a plain reader of a staged pipeline's output should not have seen."""
        batches = {b.require_lease: b for b in view.all()}
        for lease, part in point.shown:
            if point.shown.count((lease, part)) > 1:
                return Fault("doubled", f"a reader sees part {part} of {batches[lease].id} twice")
            batch = batches[lease]
            whole = {p for one, p in point.shown if one == lease} == set(range(self.parts))
            dropped = batch.state is State.SKIPPED and whole and self.headers  # a part of it may have been given up
            decided = batch.publication is not None and batch.state is not State.REJECTED and not dropped
            passed = batch.decision is not None or (batch.verdict and batch.verdict.outcome is Outcome.PASSED)
            if not (decided and passed):
                return Fault("unjudged", f"a reader sees records of {batch.id}, which is {batch.state}")
        return None

    def _published_wrongly(self, batch: Batch, point: Point) -> str:
        log = point.log
        if batch.written is None:
            return "it is not written"
        if batch.decision is None and (batch.verdict is None or batch.verdict.outcome is not Outcome.PASSED):
            return "neither a passed verdict nor an operator stands behind it"
        low, high = batch.plan.write_topic.ends[0], batch.written.output.ends[0]
        if batch.require_lease not in log[low:high]:
            return f"its output is not between {low} and {high}"
        for r in batch.published_ranges if self.parts else ():
            there = sorted(part for lease, part in point.shown[r.start : r.end] if lease == batch.require_lease)
            if there != list(range(self.parts)):
                return f"of its {self.parts} parts a reader sees {there} between {r.start} and {r.end}"
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
            latest = view.last(when)
            if latest is None:
                return False
            waits = latest.state is State.REJECTED or (
                latest.verdict is not None and latest.verdict.outcome is Outcome.UNDETERMINED
            )
            stopped = latest.publication is not None and latest.publication.refused
            waits = waits or (bool(stopped) and not self._way_out)
            waits = waits or (view.is_withdrawn(when) and latest.revision == self.revisions)
            too_often = latest.revision == self.revisions and self._reason(latest, point) is not None
            if latest.state not in PASSED and not waits and not too_often:
                return False
        return True

    @property
    def _way_out(self) -> bool:
        """Whether an operator sees to a publication that the output never takes."""
        return self.refusal and not self.fixing

    def ordinary(self, point: Point, label: str) -> bool:
        """What goes on by itself: retries, and what an operator has begun already. Operators, time and crashes may cease."""
        if label.endswith("commits") or GOES_ON.match(label):
            return True
        if self._way_out and label.startswith(("skip", "reprocess")):
            return True
        return not any(
            word in label
            for word in (
                "skip",
                "publish",
                "reprocess",
                "replay",
                "withdraw",
                "crashes",
                "settings",
                "time passes",
                "expire",
                "is set so",
                "is fixed",
            )
        )

    def show(self, point: Point) -> str:
        batches = ", ".join(
            f"{self.intervals.index(b.interval)}/{b.revision}:{b.state}"
            + (f"({b.verdict.outcome})" if b.verdict else "")
            for b in self.views[point.ledger].all()
        )
        at = "; ".join(_told(p[1]) + " decided" if p[0] == "decided" else _told(p) for p in point.processes if p)
        shown = f" shown {list(point.shown)} marks {dict(point.marks)}" if self.parts else ""
        groups = f"frontier {dict(point.frontier)} validated {dict(point.validated)}"
        return f"[{batches}] log {list(point.log)}{shown} {groups} | {at}"


def _plain(operation: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operation without the facts that were gathered for it."""
    return operation[1] if operation[0] == "apart" else operation


def _order(process: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, process))


def _told(operation: tuple[Any, ...]) -> str:
    if operation[0] in ("read", "apart"):
        return f"{_told(operation[1])} {'read' if operation[0] == 'read' else 'with its facts'}"
    return " ".join(str(part) for part in operation[:3])
