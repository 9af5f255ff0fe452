"""What may happen to a batch, decided by pure functions of the ledger; nothing here talks to Kafka.

```
 planned ──▶ written ──▶ published ──(new revision published)──▶ superseded
    │           ├──────▶ rejected ──▶ published (mended suite, or an operator) │ superseded │ skipped
    └───────────┴──(new revision)──▶ superseded
```

An operator may skip what is not published; a skipped batch, like a published one, counts until a new revision of it is
published. An operator may also withdraw an interval that has no offsets, or is not published: it is superseded, by nothing.

Every function answers with the records to write (none: the work is done already) or raises with the reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

from fencepost.errors import NoFreeLane, Overtaken, Superseded, TransitionRefused
from fencepost.model import Asked, Batch, Decision, Event, Interval, OffsetRange, Outcome, Plan, State, Verdict, Written

# What a newer revision pushes aside when it is planned; and what the frontier passes, which stays in force until the newer
# revision is published: it would move back otherwise.
REPLACEABLE = {State.PLANNED, State.WRITTEN, State.REJECTED}
PASSED = {State.PUBLISHED, State.SKIPPED}
WITHDRAW = "withdraw"  # the decision that leaves an interval without a revision in force


Order = tuple[int, datetime, int]  # when a batch was planned; see `View.order`
ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class View:
    """The ledger as read: the newest record of every revision of every interval.

    A view is asked many questions and never changes, so what is sorted once stays sorted.
    """

    batches: dict[Interval, tuple[Batch, ...]] = field(default_factory=dict)  # revisions in order

    @classmethod
    def of(cls, records: Iterable[Batch]) -> View:
        """Later records replace earlier ones of the same revision."""
        newest: dict[Interval, dict[int, Batch]] = defaultdict(dict)
        for batch in records:
            newest[batch.interval][batch.revision] = batch
        return cls({i: tuple(r[n] for n in sorted(r)) for i, r in newest.items()})

    def latest(self, interval: Interval) -> Batch | None:
        """The newest revision of an interval."""
        revisions = self.batches.get(interval)
        return revisions[-1] if revisions else None

    def effective(self, interval: Interval) -> Batch | None:
        """The revision of an interval that counts."""
        revisions = self.batches.get(interval)
        return effective(revisions) if revisions else None

    def updated(self, records: Iterable[Batch]) -> View:
        """The view when these records stand behind all others."""
        batches = dict(self.batches)
        for batch in records:
            others = [b for b in batches.get(batch.interval, ()) if b.revision != batch.revision]
            batches[batch.interval] = tuple(sorted((*others, batch), key=lambda b: b.revision))
        return View(batches)

    @cached_property
    def intervals(self) -> list[Interval]:
        """All planned intervals, in order of time, withdrawn ones too."""
        return sorted(self.batches, key=lambda i: i.start)

    def is_withdrawn(self, interval: Interval) -> bool:
        """Whether its newest revision gave way to none: an operator took the interval out of the order."""
        latest = self.latest(interval)
        return latest is not None and was_withdrawn(latest)

    @cached_property
    def standing(self) -> list[Interval]:
        """The planned intervals that have not been withdrawn, in order of time: those whose ranges touch."""
        return [i for i in self.intervals if not self.is_withdrawn(i)]

    def before(self, interval: Interval) -> Batch | None:
        """The planned interval that precedes this one."""
        for position in range(bisect_left(self.standing, interval.start, key=lambda i: i.start) - 1, -1, -1):
            if self.standing[position].end <= interval.start:
                return self.latest(self.standing[position])
        return None

    def after(self, interval: Interval) -> Batch | None:
        """The planned interval that follows this one."""
        position = bisect_left(self.standing, interval.end, key=lambda i: i.start)
        return self.latest(self.standing[position]) if position < len(self.standing) else None

    def starved_by(self, interval: Interval) -> Batch | None:
        """The later interval that was planned before this one, and left it no offset; None where it has some."""
        batch, after = self.latest(interval), self.after(interval)
        if batch is None or after is None or self.is_withdrawn(interval) or _has_had_offsets(batch):
            return None
        begins = {r.partition: r.start for r in (*after.plan.ranges, *reversed(after.plan.lost))}
        if any(r.end < begins.get(r.partition, 0) for r in batch.plan.ranges):
            return None  # there was room, and no record
        return after if self.planned_first(after.interval) < self.planned_first(interval) else None

    def planned_first(self, interval: Interval) -> Order:
        """When the interval's ranges were frozen: by its first revision, or the first since it was withdrawn."""
        revisions = self.batches[interval]
        since = max((n for n, b in enumerate(revisions) if was_withdrawn(b)), default=-1)
        return self.order(revisions[min(since + 1, len(revisions) - 1)])

    def order(self, batch: Batch) -> Order:
        """Sorts batches as they were planned.

        By lease in one ledger topic. A topic that was restored from a copy counts leases anew: what was planned in the one
        before comes first, by the clock, since a copied plan record has another offset.
        """
        number, copied = self._topics[batch.plan.ledger_topic_id]
        return number, batch.plan.planned_at if copied else ALWAYS, batch.known_lease

    @cached_property
    def _topics(self) -> dict[str, tuple[int, bool]]:
        """By the id of each ledger topic that batches were planned in: its number in order, and whether one came after it.

        Early plans name no topic, and were made in the first one.
        """
        begun: dict[str, datetime] = {}
        for batch in self._all:
            topic, at = batch.plan.ledger_topic_id, batch.plan.planned_at
            if topic not in begun or at < begun[topic]:
                begun[topic] = at
        order = sorted(begun, key=lambda topic: (topic != "", begun[topic]))
        return {topic: (n, topic not in {"", order[-1]}) for n, topic in enumerate(order)}

    def all(self) -> list[Batch]:
        """Every revision of every interval, in order of time and revision."""
        return list(self._all)

    @cached_property
    def _all(self) -> tuple[Batch, ...]:
        return tuple(b for i in self.intervals for b in self.batches[i])

    @cached_property
    def anchor(self) -> Interval | None:
        """The interval that was planned first of all that stand; the frontier is counted from it."""
        return min(self.standing, key=self.planned_first, default=None)


def was_withdrawn(batch: Batch) -> bool:
    """Whether an operator took it out of the order, rather than a newer revision its place."""
    return batch.state is State.SUPERSEDED and batch.decision is not None and batch.decision.action == WITHDRAW


def effective(revisions: Sequence[Batch]) -> Batch:
    """Of an interval's revisions in order, the one that counts: the published one; else one that was skipped; else the newest."""
    for state in (State.PUBLISHED, State.SKIPPED):
        for batch in reversed(revisions):
            if batch.state is state:
                return batch
    return revisions[-1]


def free_lane(view: View, lanes: int, but_for: Batch | None) -> int:
    """The lowest lane no planned batch holds; the batch about to be superseded gives its own back.

    Raises:
        NoFreeLane: naming the batches that hold lanes.
    """
    holders = {b.plan.lane: b for b in view.all() if b.state is State.PLANNED and b != but_for}
    for lane in range(lanes):
        if lane not in holders:
            return lane
    held = ", ".join(str(b.id) for _, b in sorted(holders.items()))
    raise NoFreeLane(
        f"all {lanes} lanes are held by batches that are planned and not yet written ({held}). Let them finish or run them "
        "again, or raise `lanes` in pipeline.yaml."
    )


def widest(view: View, lane: int) -> int:
    """The most writers any batch of the lane ever had: that many transactional ids exist."""
    return max((b.plan.writers for b in view.all() if b.plan.lane == lane), default=0)


def planning(view: View, interval: Interval, reprocess: bool) -> Batch | None:
    """The batch that answers for the interval as it stands, or None when a revision has to be planned.

    `reprocess` asks for another revision of an interval that is finished; one that is under way already is kept, so
    that a retried request makes one revision and not two.

    Raises:
        TransitionRefused: the interval overlaps a planned one in part.
    """
    for other in view.standing:
        if other != interval and other.overlaps(interval):
            raise TransitionRefused(
                f"interval {interval} overlaps the planned interval {other} in part, so their records could not be told "
                "apart. Use the planned interval's own start and end, or one that lies outside of it."
            )
    latest = None if view.is_withdrawn(interval) else view.latest(interval)
    finished = {State.PUBLISHED, State.REJECTED, State.SKIPPED}
    if latest is None or (reprocess and latest.state in finished):
        return None
    return latest


@dataclass(frozen=True)
class Circumstances:
    """What a batch is measured against before it is written: what decides its output, clock, and topics as they are now."""

    digests: Mapping[str, str]
    software: str
    now: datetime
    marks_kept_for: timedelta
    output_topic_id: str
    ledger_topic_id: str = ""
    expired: tuple[OffsetRange, ...] = ()  # of the batch's ranges, what is gone from the source
    accept_loss: bool = False  # the pipeline says on_expired: skip


def may_be_revised(batch: Batch) -> bool:
    """Whether circumstances matter to it at all: what is published, skipped or superseded stays as it is."""
    return batch.state in {State.PLANNED, State.WRITTEN, State.REJECTED}


def revising(batch: Batch, found: Circumstances) -> str | None:
    """Why the batch has to be written as a new revision, or None when it can be written, or be left, as it is."""
    if not may_be_revised(batch):
        return None
    if batch.plan.digests != found.digests:
        return _what_changed(batch.plan.digests, found.digests)
    if batch.plan.output_topic_id != found.output_topic_id:
        return "its output topic was deleted and created again since it was planned"
    if batch.state is not State.PLANNED:
        return None
    if batch.plan.ledger_topic_id != found.ledger_topic_id:
        return "its ledger was made anew from a copy since it was planned, so its lease says nothing about its marks"
    # What is written in full has one meaning, whoever wrote it; of this batch some task-partitions may have committed.
    if batch.plan.software != found.software:
        return f"it was planned under {batch.plan.software}, and this is {found.software}"
    # A mark may be gone a little earlier than promised: brokers expire by their own clocks.
    if found.now - batch.plan.planned_at > found.marks_kept_for * 0.9:
        return f"it was planned more than {found.marks_kept_for * 0.9} ago, so its marks may have expired"
    if found.expired and found.accept_loss:
        return "records of its ranges expired, and the pipeline says on_expired: skip"
    return None


PARTS = {
    "source": "source settings",
    "output": "output settings",
    "spark": "Spark settings",
    "transform": "transform",
    "files": "files beside the transform",
}


def _what_changed(planned: Mapping[str, str], now: Mapping[str, str]) -> str:
    if not planned:
        return "it was planned by an earlier Fencepost, which did not record all that decides its output"
    parts = [PARTS.get(p, p) for p in (*PARTS, *sorted({*planned, *now} - {*PARTS})) if planned.get(p) != now.get(p)]
    return f"what decides its output changed since it was planned: {', '.join(parts)}"


def planned(
    view: View, interval: Interval, pipeline: str, plan: Plan, note: str, decision: Decision | None = None
) -> tuple[Batch, ...]:
    """The records of a new revision: itself, and the older one it pushes aside (one the frontier has passed stays)."""
    note = f"{decision.action} by {decision.by}: {decision.reason}" if decision else note
    latest = view.latest(interval)
    revision = latest.revision + 1 if latest else 1
    fresh = Batch(
        pipeline=pipeline, interval=interval, revision=revision, state=State.PLANNED, plan=plan, decision=decision
    )
    fresh = moved(fresh, State.PLANNED, plan.planned_at, note)
    if latest is None or latest.state not in REPLACEABLE:
        return (fresh,)
    return (fresh, moved(latest, State.SUPERSEDED, plan.planned_at, f"by revision {revision}"))


def written(view: View, interval: Interval, revision: int, result: Written) -> tuple[Batch, ...]:
    """Record that all task-partitions of a planned batch have committed.

    Raises:
        Superseded: a newer revision took the batch's place while it was written, or its interval was withdrawn.
    """
    batch = _own(view, interval, revision)
    if batch.state is not State.PLANNED:
        return ()  # another attempt was faster; its receipts are the same marks as ours
    check_receipts(batch, result)
    done = moved(batch, State.WRITTEN, result.written_at, f"{result.rows} rows")
    return (done.model_copy(update={"written": result}),)


def check_receipts(batch: Batch, result: Written) -> None:
    """Receipts cover the plan: each task-partition once and to its end, each under the batch's own lease."""
    tasks = sorted(r.task for r in result.receipts if r.complete)
    own = (batch.plan.ledger_topic_id, batch.known_lease)
    foreign = [r.task for r in result.receipts if (r.ledger, r.lease) != own]
    if tasks != list(range(batch.plan.writers)) or foreign:
        missing = sorted(set(range(batch.plan.writers)) - set(tasks))
        raise TransitionRefused(
            f"batch {batch.id}: receipts do not cover the plan: {batch.plan.writers} task-partitions, missing {missing}, "
            f"under another lease {foreign}. Run the write step again."
        )


def judging(view: View, interval: Interval) -> Batch:
    """The batch a validate step is about: a written one, or one that was published or skipped and is left as it is."""
    batch = _standing(view, interval)
    if batch.written is None and batch.state not in PASSED:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}; only a written batch is judged. {go_on(batch)} writes and judges it."
        )
    return batch


def has_passed(batch: Batch, suite_digest: str | None = None) -> bool:
    """Whether a written batch has passed, under this very suite where one is given: it may be published as it is."""
    verdict = batch.verdict
    passed = verdict is not None and verdict.outcome is Outcome.PASSED
    same = verdict is not None and suite_digest in {None, verdict.suite_digest}
    return batch.state is State.WRITTEN and passed and same


def judged(view: View, interval: Interval, revision: int, verdict: Verdict) -> tuple[Batch, ...]:
    """Record a verdict on a written or rejected batch.

    Raises:
        Overtaken: another validation was recorded since this one began; it may know a newer suite.
    """
    batch = _own(view, interval, revision)
    if batch.verdict == verdict or batch.state in PASSED:
        return ()  # recorded, by a commit whose answer got lost; or published or skipped meanwhile, by a run beside this one
    if batch.state not in {State.WRITTEN, State.REJECTED}:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}; only a written batch is judged. {go_on(batch)} writes and judges it."
        )
    before = batch.verdict.number if batch.verdict else 0
    if verdict.number != before + 1:
        raise Overtaken(
            f"batch {batch.id}: validation {before} was recorded first and takes precedence. Run the validate step "
            "again to judge anew."
        )
    # An undetermined verdict decides nothing: a rejected batch stays rejected, a written one written.
    state = {Outcome.PASSED: State.WRITTEN, Outcome.REJECTED: State.REJECTED}.get(verdict.outcome, batch.state)
    after = moved(batch, state, verdict.judged_at, f"validation {verdict.number}: {verdict.outcome}")
    return (after.model_copy(update={"verdict": verdict}),)


def is_carried_out(view: View, interval: Interval, decision: Decision | None) -> bool:
    """Whether a decision that answers a question is recorded already, by a commit whose answer got lost.

    Raises:
        Overtaken: the batch is not any more as it was when the question was asked, so the answer is to something else.
    """
    if decision is None or decision.asked is None:
        return False
    asked, batch = decision.asked, view.latest(interval)
    if batch is not None and batch.decision == decision.model_copy(update={"asked": None}):
        return True
    if batch is not None and batch.state is State.REJECTED and asked == asked_about(batch):
        return False
    now = "nothing is planned"
    if batch is not None:
        judged_by = f", after validation {batch.verdict.number}" if batch.verdict else ""
        now = f"batch {batch.id} is {batch.state}{judged_by}"
    raise Overtaken(
        f"{decision.by} answered {decision.action!r} about batch {asked.batch}, rejected by validation {asked.validation}, and "
        f"now {now}. Nothing was decided. In Airflow the next attempt asks again, about what is there then: wait for it, or "
        "clear decide."
    )


def asked_about(batch: Batch) -> Asked | None:
    """What identifies a judged batch as it stands; None where no verdict was recorded."""
    if batch.verdict is None:
        return None
    return Asked(batch=str(batch.id), lease=batch.known_lease, validation=batch.verdict.number)


def published(view: View, interval: Interval, now: datetime, decision: Decision | None = None) -> tuple[Batch, ...]:
    """Publish the newest revision and supersede the one published, or skipped, before.

    A passed verdict is asked for, or an operator's decision on a rejected batch. A skipped batch is left as it is, unless
    an operator asks for it: a run that an operator's skip overtook has nothing to do.
    """
    if is_carried_out(view, interval, decision):
        return ()
    batch = _standing(view, interval)
    if batch.state is State.PUBLISHED or (batch.state is State.SKIPPED and decision is None):
        return ()  # a run of a skipped interval has nothing to do either
    if batch.state is State.SKIPPED:
        raise TransitionRefused(
            f"batch {batch.id} is skipped: its output, if any, counts for nothing. {batch.command('run', '--reprocess')} writes "
            "and judges the same input as a new revision, and publishes what passes."
        )
    if batch.written is None or batch.state not in {State.WRITTEN, State.REJECTED}:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}, not written. {go_on(batch)} writes, judges and publishes it."
        )
    check_receipts(batch, batch.written)
    if not has_passed(batch) and not (decision and batch.state is State.REJECTED):
        raise TransitionRefused(f"batch {batch.id}: {_not_passed(batch)} {what_next(batch)}")
    note = f"{decision.action} by {decision.by}: {decision.reason}" if decision else ""
    records = [moved(batch, State.PUBLISHED, now, note).model_copy(update={"decision": decision or batch.decision})]
    for older in view.batches[interval]:
        if older.revision < batch.revision and older.state in PASSED:
            records.append(moved(older, State.SUPERSEDED, now, f"by revision {batch.revision}"))
    return tuple(records)


def skipped(view: View, interval: Interval, decision: Decision) -> tuple[Batch, ...]:
    """Let the frontier pass an interval without its output, by an operator's word."""
    if is_carried_out(view, interval, decision):
        return ()
    batch = _standing(view, interval)
    if batch.state is State.SKIPPED:
        return ()
    if batch.state not in {State.PLANNED, State.WRITTEN, State.REJECTED}:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}, and what is published stays; only an unpublished batch can be skipped. "
            f"{batch.command('run', '--reprocess')} replaces it by a new revision."
        )
    after = moved(batch, State.SKIPPED, decision.decided_at, f"{decision.action} by {decision.by}: {decision.reason}")
    return (after.model_copy(update={"decision": decision}),)


def withdrawn(view: View, interval: Interval, decision: Decision) -> tuple[Batch, ...]:
    """Take an interval out of the order of intervals, by an operator's word, as if it had not been planned.

    One that has no offsets may go in any state: nothing was read under it. One that has some may while it is not
    published or skipped and no later interval begins where it ends; they fall in the interval that is planned next. The
    interval can be planned again, from what is left then.

    Raises:
        TransitionRefused: its records would be in no interval any more, or in two.
    """
    _known(view, interval)
    if view.is_withdrawn(interval):
        return ()
    if refusal := why_it_stays(view, interval):
        raise TransitionRefused(refusal)
    standing = [b for b in view.batches[interval] if b.state is not State.SUPERSEDED]
    return tuple(taken_out(b, decision) for b in standing)


def why_it_stays(view: View, interval: Interval) -> str | None:
    """Why a planned interval cannot be withdrawn, or None."""
    latest, after = _known(view, interval), view.after(interval)
    if not _has_had_offsets(latest):
        return None
    passed = next((b for b in view.batches[interval] if b.state in PASSED), None)
    if passed is not None:
        return (
            f"batch {passed.id} is {passed.state}, with offsets of topic {passed.plan.source_topic}: withdrawn, they would "
            "be read again by another interval. Only an interval without offsets, or one not published, can be withdrawn."
        )
    if after is not None:
        return (
            f"batch {latest.id} has offsets, and interval {after.interval} begins where it ends: withdrawn, they would be "
            f"in no interval. Withdraw {after.interval} first, or finish this one."
        )
    return None


def taken_out(batch: Batch, decision: Decision) -> Batch:
    """The batch as `was_withdrawn` knows it."""
    note = f"{decision.action} by {decision.by}: {decision.reason}"
    after = moved(batch, State.SUPERSEDED, decision.decided_at, note)
    return after.model_copy(update={"decision": decision})


def _has_had_offsets(batch: Batch) -> bool:
    """Whether its ranges have offsets, or had some that expired."""
    return not batch.plan.is_empty or bool(batch.plan.lost)


def frontier(view: View) -> dict[int, int]:
    """Per source partition, the end of the longest unbroken run of published (or skipped) batches.

    The run begins at the anchor, so planning an interval further back moves nothing; nor does withdrawing the interval
    that was the anchor once. A batch whose range of a partition is empty does not break that partition's run.
    """
    ends: dict[int, int] = {}
    broken: set[int] = set()
    for batch in _run(view):
        for part in batch.plan.ranges:
            if part.partition in broken:
                continue
            if batch.state in PASSED:
                ends[part.partition] = part.end
            elif part.length:
                broken.add(part.partition)
                ends.setdefault(part.partition, part.start)
    for batch in _former_anchors(view):
        for part in batch.plan.ranges:
            if part.partition in ends:
                ends[part.partition] = max(part.start, ends[part.partition])
    return ends


def accounted_for(view: View) -> dict[int, int]:
    """Per source partition, how far the ledger accounts for committed offsets: they never lie behind this honestly.

    It is the frontier; and in a partition that no standing batch has, where the frontier may have stood before one that had it
    was withdrawn.
    """
    ends: dict[int, int] = {}
    for batch in view.all():
        if was_withdrawn(batch):
            for part in batch.plan.ranges:
                ends[part.partition] = max(part.start, ends.get(part.partition, 0))
    return ends | frontier(view)


def _former_anchors(view: View) -> list[Batch]:
    """What was withdrawn and was planned before the anchor was: the frontier may have been counted from there."""
    anchor = view.anchor
    if anchor is None:
        return []
    return [b for b in view.all() if was_withdrawn(b) and view.order(b) < view.planned_first(anchor)]


def holding_back(view: View) -> Batch | None:
    """The batch that keeps the frontier from going on: the first one of the run with records and without a publication.

    None where every batch after it is unfinished too and nothing published waits behind.
    """
    run = _run(view)
    for position, batch in enumerate(run):
        if batch.state not in PASSED and not batch.plan.is_empty:
            return (
                batch if any(b.state in PASSED for b in run[position + 1 :]) or batch.state is State.REJECTED else None
            )
    return None


def validated_ends(view: View) -> dict[int, int]:
    """Per output partition, the end of the output of the unbroken run from the anchor on.

    Offsets in an output topic that was deleted since, or that the pipeline has left, mean nothing in the present one,
    which is that of the newest plan.
    """
    ends: dict[int, int] = {}
    newest = max(view.all(), key=view.order, default=None)
    for batch in _run(view):
        if batch.state not in PASSED and not batch.plan.is_empty:
            break
        here = newest is not None and batch.plan.output_topic_id == newest.plan.output_topic_id
        wrote = batch.written is not None and not batch.plan.is_empty  # which else may be withdrawn
        if batch.state is State.PUBLISHED and batch.written is not None and wrote and here:
            for partition, end in enumerate(batch.written.output_ends):
                ends[partition] = max(end, ends.get(partition, 0))
    return ends


def _run(view: View) -> list[Batch]:
    """The batch that counts of every interval from the anchor on."""
    anchor = view.anchor
    if anchor is None:
        return []
    effective = [view.effective(i) for i in view.standing if i.start >= anchor.start]
    return [b for b in effective if b is not None]


def moved(batch: Batch, state: State, at: datetime, note: str) -> Batch:
    """The batch in another state, with a line of history."""
    return batch.model_copy(update={"state": state, "history": (*batch.history, Event(state=state, at=at, note=note))})


REASON = '--reason "..."'


def next_task(batch: Batch) -> str:
    """The DAG's task that an interval's newest revision needs next; a superseded one needs a new plan."""
    match batch.state:
        case State.PLANNED:
            return "write"
        case State.WRITTEN if has_passed(batch):
            return "advance"
        case State.WRITTEN | State.REJECTED:
            return "validate"
        case _:
            return "plan"


def go_on(batch: Batch) -> str:
    """How to have the steps done that are still to do."""
    return f"{batch.command('run')} (in Airflow: clear {next_task(batch)})"


def _not_passed(batch: Batch) -> str:
    if batch.verdict is None:
        return "it has not been judged, and only a passed batch advances."
    if batch.verdict.outcome is Outcome.REJECTED:
        return "its verdict is rejected, and only a passed batch advances."
    return f"it could not be judged (verdict {batch.verdict.outcome}), and only a passed or rejected batch can be published."


def what_next(batch: Batch, older: Batch | None = None) -> str:
    """What a person can do about a batch that is not published: commands that exist, and help in its state.

    `older` is the revision that counts until this one is published, if there is one.
    """
    run, publish = go_on(batch), batch.command("publish", REASON)
    instead = f"puts it in the place of revision {older.revision}" if older else "publishes it"
    without = f"leaves revision {older.revision} {older.state}" if older else "lets the frontier pass without it"
    skip = f"{batch.command('skip', REASON)} {without}"
    undetermined = batch.verdict is not None and batch.verdict.outcome is Outcome.UNDETERMINED
    match batch.state:
        case State.PLANNED:
            return f"{run} writes, judges and publishes it; {skip}."
        case State.WRITTEN if batch.verdict is None:
            return f"{run} judges and publishes it; {skip}."
        case State.WRITTEN if undetermined:
            return (
                f"See its report and mend what it names, most often the suite. Then {run} judges it again. Or {skip}."
            )
        case State.WRITTEN:
            return f"It has passed. {run} publishes it; {skip}."
        case State.REJECTED:
            return (
                f"See its report. If the suite is wrong, mend it; then {run} judges it again. If "
                "the transform is wrong, mend it; then the same command (in Airflow: clear write) writes a new revision. As it "
                f"is, {publish} {instead}, and {skip}."
            )
        case _:
            return f"{batch.command('run', '--reprocess')} writes the same input as a new revision."


def _known(view: View, interval: Interval) -> Batch:
    batch = view.latest(interval)
    if batch is None:
        begin = "`fencepost run` begins with that (in Airflow: the task plan)."
        raise TransitionRefused(f"interval {interval} was never planned. {begin}")
    return batch


def _standing(view: View, interval: Interval) -> Batch:
    batch = _known(view, interval)
    if was_withdrawn(batch):
        raise TransitionRefused(
            f"batch {batch.id} was withdrawn ({batch.history[-1].note}): its interval is as if it had not been planned. "
            f"{batch.command('run')} plans it again."
        )
    return batch


def _own(view: View, interval: Interval, revision: int) -> Batch:
    batch = _known(view, interval)
    if batch.revision != revision:
        raise Superseded(f"revision {revision} of {interval} was superseded by revision {batch.revision} meanwhile.")
    if was_withdrawn(batch):
        raise Superseded(
            f"batch {batch.id} was withdrawn meanwhile ({batch.history[-1].note}): its output counts for nothing. "
            f"{batch.command('run')} plans the interval again."
        )
    return batch
