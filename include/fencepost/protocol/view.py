"""The ledger as the decisions see it: every revision of every interval, and which of them counts."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from fencepost.model import Batch, Interval, Outcome, State

# What a newer revision pushes aside when it is planned; and what the frontier passes, which stays in force until the newer
# revision is published: it would move back otherwise.
REPLACEABLE = {State.PLANNED, State.WRITTEN, State.REJECTED}
PASSED = {State.PUBLISHED, State.SKIPPED}
DECIDED = PASSED | {State.PUBLISHING}  # no verdict changes any more what becomes of it
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
        return revision_in_force(revisions) if revisions else None

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

    def standing_batch(self, interval: Interval) -> Batch | None:
        """The newest revision of an interval that stands; None where none was planned, or it was withdrawn."""
        return None if self.is_withdrawn(interval) else self.latest(interval)

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
        if batch is None or after is None or self.is_withdrawn(interval) or has_had_offsets(batch):
            return None
        begins = {r.partition: r.start for r in (*after.plan.source.ranges, *reversed(after.plan.source.lost))}
        if any(r.end < begins.get(r.partition, 0) for r in batch.plan.source.ranges):
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


def revision_in_force(revisions: Sequence[Batch]) -> Batch:
    """Of an interval's revisions in order, the one that counts: the published one; else one that was skipped; else the newest."""
    for state in (State.PUBLISHED, State.SKIPPED):
        for batch in reversed(revisions):
            if batch.state is state:
                return batch
    return revisions[-1]


def has_had_offsets(batch: Batch) -> bool:
    """Whether its ranges have offsets, or had some that expired."""
    return not batch.plan.is_empty or any(source.lost for source in batch.plan.sources)


def has_passed(batch: Batch, suite_digest: str | None = None) -> bool:
    """Whether a written batch has passed, under this very suite where one is given: it may be published as it is."""
    verdict = batch.verdict
    passed = verdict is not None and verdict.outcome is Outcome.PASSED
    same = verdict is not None and suite_digest in {None, verdict.suite_digest}
    return batch.state is State.WRITTEN and passed and same
