"""The ledger as the decisions see it: every revision of every interval, and the one that counts.

A revision is the interval's batch, or an addition to one: records of its quarantine that passed in a replay. Additions are
numbered with the others and go through the same steps. But ranges, the frontier, and the revision that counts are those of
batches alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar, cast

from fencepost.model import Batch, Interval, Outcome, State

# A newer revision replaces these when it is planned. The frontier passes the others, which stay in force until the newer
# revision is published: otherwise the frontier would move back.
REPLACEABLE = {State.PLANNED, State.WRITTEN, State.REJECTED}
PASSED = {State.PUBLISHED, State.SKIPPED}
DECIDED = PASSED | {State.PUBLISHING}  # no verdict changes any more what becomes of it
WITHDRAW = "withdraw"  # the decision that leaves an interval without a revision in force


T = TypeVar("T")
Order = tuple[int, datetime, int]  # when a batch was planned; see `View.order`
ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class View:
    """The ledger as read: the newest record of every revision of every interval.

    A view never changes, so it sorts once, and what `once` computes from it is computed once.
    """

    batches: dict[Interval, tuple[Batch, ...]] = field(default_factory=dict)  # revisions in order
    _computed: dict[Callable[[View], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, records: Iterable[Batch]) -> View:
        """Later records replace earlier ones of the same revision."""
        newest: dict[Interval, dict[int, Batch]] = defaultdict(dict)
        for batch in records:
            newest[batch.interval][batch.revision] = batch
        return cls({i: tuple(r[n] for n in sorted(r)) for i, r in newest.items()})

    def latest(self, interval: Interval) -> Batch | None:
        """The newest revision of an interval, which may be an addition."""
        revisions = self.batches.get(interval)
        return revisions[-1] if revisions else None

    def newest(self, interval: Interval) -> Batch | None:
        """The newest revision of an interval that is not an addition."""
        revisions = self.batches.get(interval)
        return without_additions(revisions)[-1] if revisions else None

    def additions(self, interval: Interval) -> tuple[Batch, ...]:
        """The published additions to the revision that counts, in order."""
        base = self.effective(interval)
        if base is None or len(self.batches[interval]) == 1:
            return ()
        return additions_to(base, self.batches[interval])

    def effective(self, interval: Interval) -> Batch | None:
        """The revision of an interval that counts."""
        revisions = self.batches.get(interval)
        return revision_in_force(revisions) if revisions else None

    def updated(self, records: Iterable[Batch]) -> View:
        """The view with these records appended."""
        batches = dict(self.batches)
        for batch in records:
            others = [b for b in batches.get(batch.interval, ()) if b.revision != batch.revision]
            batches[batch.interval] = tuple(sorted((*others, batch), key=lambda b: b.revision))
        return View(batches)

    def once(self, compute: Callable[[View], T]) -> T:
        """What the function computes from this view. The function must not depend on anything else."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        return cast("T", self._computed[compute])

    @cached_property
    def _in_order(self) -> list[tuple[Interval, tuple[Batch, ...]]]:
        """All planned intervals with their revisions, in order of time. Looked up one by one, each would be hashed again."""
        return sorted(self.batches.items(), key=lambda item: item[0].start)

    @cached_property
    def _standing(self) -> list[tuple[Interval, tuple[Batch, ...]]]:
        return [(interval, revisions) for interval, revisions in self._in_order if not was_withdrawn(revisions[-1])]

    @cached_property
    def intervals(self) -> list[Interval]:
        """All planned intervals, in order of time, withdrawn ones too."""
        return [interval for interval, _ in self._in_order]

    def is_withdrawn(self, interval: Interval) -> bool:
        """Whether an operator took the interval out of the order: its newest revision is superseded by none."""
        latest = self.latest(interval)
        return latest is not None and was_withdrawn(latest)

    def standing_batch(self, interval: Interval) -> Batch | None:
        """The interval's newest revision, additions left out; None if none was planned, or if the interval was withdrawn."""
        return None if self.is_withdrawn(interval) else self.newest(interval)

    @cached_property
    def standing(self) -> list[Interval]:
        """The planned intervals that have not been withdrawn, in order of time: those whose ranges touch."""
        return [interval for interval, _ in self._standing]

    def before(self, interval: Interval) -> Batch | None:
        """The planned interval that precedes this one."""
        for position in range(bisect_left(self.standing, interval.start, key=lambda i: i.start) - 1, -1, -1):
            if self.standing[position].end <= interval.start:
                return self.newest(self.standing[position])
        return None

    def after(self, interval: Interval) -> Batch | None:
        """The planned interval that follows this one."""
        position = bisect_left(self.standing, interval.end, key=lambda i: i.start)
        return self.newest(self.standing[position]) if position < len(self.standing) else None

    def starved_by(self, interval: Interval) -> Batch | None:
        """The later interval that was planned first and left this one no offset; None if this one has some."""
        batch, after = self.newest(interval), self.after(interval)
        if batch is None or after is None or self.is_withdrawn(interval) or has_had_offsets(batch):
            return None
        begins = {r.partition: r.start for r in (*after.plan.source.ranges, *reversed(after.plan.source.lost))}
        if any(r.end < begins.get(r.partition, 0) for r in batch.plan.source.ranges):
            return None  # there was room, and no record
        return after if self.planned_first(after.interval) < self.planned_first(interval) else None

    def planned_first(self, interval: Interval) -> Order:
        """When the interval's ranges were frozen: by its first revision, or by the first one after a withdrawal."""
        return self._planned_first(self.batches[interval])

    def _planned_first(self, revisions: Sequence[Batch]) -> Order:
        if len(revisions) == 1:
            return self.order(revisions[0])
        since = max((n for n, b in enumerate(revisions) if was_withdrawn(b)), default=-1)
        return self.order(revisions[min(since + 1, len(revisions) - 1)])

    def order(self, batch: Batch) -> Order:
        """A key that sorts batches in the order they were planned.

        Within one ledger topic that is the order of leases. A topic that was restored from a copy starts its leases anew, and
        a copied plan record has another offset. So batches planned in an earlier topic come first, by the clock.
        """
        number, copied = self._topics[batch.plan.ledger_topic_id]
        return number, batch.plan.planned_at if copied else ALWAYS, batch.known_lease

    @cached_property
    def _topics(self) -> dict[str, tuple[int, bool]]:
        """For each ledger topic id in which batches were planned: its number in order, and whether a topic came after it."""
        begun: dict[str, datetime] = {}
        for batch in self._all:
            topic, at = batch.plan.ledger_topic_id, batch.plan.planned_at
            if topic not in begun or at < begun[topic]:
                begun[topic] = at
        order = sorted(begun, key=lambda topic: begun[topic])
        return {topic: (n, topic != order[-1]) for n, topic in enumerate(order)}

    def all(self) -> list[Batch]:
        """Every revision of every interval, in order of time and revision."""
        return list(self._all)

    @cached_property
    def _all(self) -> tuple[Batch, ...]:
        return tuple(batch for _, revisions in self._in_order for batch in revisions)

    @cached_property
    def anchor(self) -> Interval | None:
        """The standing interval that was planned first; the frontier starts there."""
        first = min(self._standing, key=lambda item: self._planned_first(item[1]), default=None)
        return first[0] if first else None

    @cached_property
    def run(self) -> list[Batch]:
        """For every interval from the anchor on, the batch that counts."""
        anchor = self.anchor
        if anchor is None:
            return []
        return [revision_in_force(revisions) for i, revisions in self._standing if i.start >= anchor.start]


def was_withdrawn(batch: Batch) -> bool:
    """Whether an operator withdrew the batch, rather than a newer revision superseding it."""
    return batch.state is State.SUPERSEDED and batch.decision is not None and batch.decision.action == WITHDRAW


def without_additions(revisions: Sequence[Batch]) -> Sequence[Batch]:
    """An interval's revisions that are not additions; the first one never is."""
    return revisions if len(revisions) == 1 else [batch for batch in revisions if batch.adds_to is None]


def additions_to(base: Batch, revisions: Sequence[Batch]) -> tuple[Batch, ...]:
    """The published additions to a batch, among its interval's revisions in order."""
    return tuple(b for b in revisions if b.adds_to == base.revision and b.state is State.PUBLISHED)


def revision_in_force(revisions: Sequence[Batch]) -> Batch:
    """The revision that counts, of an interval's revisions in order: the published one, else a skipped one, else the newest.

    An addition is never it.
    """
    revisions = without_additions(revisions)
    for state in (State.PUBLISHED, State.SKIPPED):
        for batch in reversed(revisions):
            if batch.state is state:
                return batch
    return revisions[-1]


def has_had_offsets(batch: Batch) -> bool:
    """Whether its ranges have offsets, or had offsets that expired."""
    return not batch.plan.is_empty or any(source.lost for source in batch.plan.sources)


def has_passed(batch: Batch, suite_digest: str | None = None) -> bool:
    """Whether a written batch has passed and may be published; with a digest, whether it has passed that suite."""
    verdict = batch.verdict
    passed = verdict is not None and verdict.outcome is Outcome.PASSED
    same = verdict is not None and suite_digest in {None, verdict.suite_digest}
    return batch.state is State.WRITTEN and passed and same
