"""The ledger in the form that decisions use: the revisions of every interval, and which of them count.

A revision is a batch or an addition. Batches and additions are numbered together and go through the same steps. An
addition has the records of a batch's quarantine that passed in a replay. Only batches decide the ranges and the
frontier, so additions are listed separately. Five names say which revision is meant:

    last         the batch or addition that was planned last; the next step is about it
    last_batch   the batch that was planned last, additions left out
    range_owner  the last batch of an interval that is not withdrawn; its ranges are the interval's
    in_force     the batch that counts: the published batch, else a skipped batch, else the last batch
    additions_in_force   the published additions to the batch in force
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar, cast

from fencepost.errors import DEFECT, NotRecorded
from fencepost.model import Batch, Interval, Outcome, State

# A batch in one of these states is superseded as soon as a newer revision is planned. A published or skipped batch stays in force
# until the newer revision is published: otherwise the frontier would move back.
REPLACEABLE = {State.PLANNED, State.WRITTEN, State.REJECTED}
PASSED = {State.PUBLISHED, State.SKIPPED}
DECIDED = PASSED | {State.PUBLISHING}  # a new verdict no longer changes the batch
OVER = {State.SUPERSEDED, State.WITHDRAWN}  # the batch no longer counts


T = TypeVar("T")
Order = tuple[int, datetime, int]  # when a batch was planned; see `View.order`
ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Revisions:
    """The revisions of one interval, in order. There is at least one batch. Additions are also listed separately."""

    batches: tuple[Batch, ...]
    additions: tuple[Batch, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Batch]) -> Revisions:
        """Returns the revisions in the records of one interval. A later record replaces an earlier record of the same
        revision.
        """
        known = {batch.revision: batch for batch in records}
        ordered = [known[number] for number in sorted(known)]
        batches = tuple(b for n, b in enumerate(ordered) if b.adds_to is None or not n)
        return cls(batches, tuple(b for b in ordered[1:] if b.adds_to is not None))

    @cached_property
    def all(self) -> tuple[Batch, ...]:
        """Returns batches and additions, by number."""
        return tuple(sorted((*self.batches, *self.additions), key=_number)) if self.additions else self.batches

    @property
    def last(self) -> Batch:
        """Returns the batch or addition that was planned last."""
        return self.all[-1]

    @property
    def last_batch(self) -> Batch:
        """Returns the batch that was planned last."""
        return self.batches[-1]

    @cached_property
    def in_force(self) -> Batch:
        """Returns the batch that counts. The published batch counts, otherwise a skipped batch, and otherwise the last
        batch.
        """
        for state in (State.PUBLISHED, State.SKIPPED):
            for batch in reversed(self.batches):
                if batch.state is state:
                    return batch
        return self.last_batch

    @property
    def additions_in_force(self) -> tuple[Batch, ...]:
        """Returns the published additions to the batch that counts."""
        base = self.in_force.revision
        return tuple(b for b in self.additions if b.adds_to == base and b.state is State.PUBLISHED)

    @property
    def link(self) -> Batch | None:
        """Returns the last published batch or addition. The quarantined records of this revision are the records that
        remain. Returns None if the interval is not published.
        """
        return (self.in_force, *self.additions_in_force)[-1] if self.in_force.state is State.PUBLISHED else None

    @property
    def is_withdrawn(self) -> bool:
        """Returns whether an operator withdrew the interval and it was not planned again."""
        return self.last.state is State.WITHDRAWN

    @cached_property
    def froze(self) -> Batch:
        """Returns the revision that froze the interval's ranges: the first one, or the first one after a withdrawal."""
        since = max((n for n, batch in enumerate(self.all) if batch.state is State.WITHDRAWN), default=-1)
        return self.all[min(since + 1, len(self.all) - 1)]

    @property
    def range_owner(self) -> Batch | None:
        """Returns the last batch, whose ranges are the interval's, or None if the interval is withdrawn."""
        return None if self.is_withdrawn else self.last_batch


def _number(batch: Batch) -> int:
    return batch.revision


@dataclass(frozen=True)
class View:
    """The ledger as read: the newest record of every revision of every interval.

    A view never changes, so sorting and every computation through `once` happen once.
    """

    revisions: dict[Interval, Revisions] = field(default_factory=dict)
    _computed: dict[Callable[[View], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, records: Iterable[Batch]) -> View:
        """Returns the view of the ledger's records, which are in order. A later record replaces an earlier record of
        the same revision.
        """
        by_interval: dict[Interval, list[Batch]] = defaultdict(list)
        for batch in records:
            by_interval[batch.interval].append(batch)
        return cls({interval: Revisions.of(batches) for interval, batches in by_interval.items()})

    def known(self, interval: Interval) -> Revisions:
        """Returns the revisions of an interval that has to be in the ledger.

        Raises:
            NotRecorded: the ledger has none.
        """
        found = self.revisions.get(interval)
        if found is None:
            raise NotRecorded(f"the ledger has no batch of interval {interval}, although a step relies on it. {DEFECT}")
        return found

    def last(self, interval: Interval) -> Batch | None:
        """Returns the batch or addition that was planned last for the interval, or None if none was."""
        found = self.revisions.get(interval)
        return found.last if found else None

    def last_batch(self, interval: Interval) -> Batch | None:
        """Returns the batch that was planned last for the interval, or None if none was."""
        found = self.revisions.get(interval)
        return found.last_batch if found else None

    def range_owner(self, interval: Interval) -> Batch | None:
        """Returns the batch whose ranges are the interval's. Returns None if no batch was planned or the interval is
        withdrawn.
        """
        found = self.revisions.get(interval)
        return found.range_owner if found else None

    def in_force(self, interval: Interval) -> Batch | None:
        """Returns the batch of the interval that counts, or None if none was planned."""
        found = self.revisions.get(interval)
        return found.in_force if found else None

    def is_withdrawn(self, interval: Interval) -> bool:
        """Returns whether an operator withdrew the interval and it was not planned again."""
        found = self.revisions.get(interval)
        return found is not None and found.is_withdrawn

    def updated(self, records: Iterable[Batch]) -> View:
        """Returns the view with these records appended."""
        revisions = dict(self.revisions)
        for batch in records:
            known = revisions.get(batch.interval)
            revisions[batch.interval] = Revisions.of((*(known.all if known else ()), batch))
        return View(revisions)

    def once(self, compute: Callable[[View], T]) -> T:
        """Returns the function's result for this view, computed at most once. The function must depend on the view
        alone.
        """
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        return cast("T", self._computed[compute])

    @cached_property
    def in_order(self) -> list[tuple[Interval, Revisions]]:
        """Returns all planned intervals with their revisions, in order of time. The result is a list, because a lookup
        by interval would hash the interval.
        """
        return sorted(self.revisions.items(), key=lambda item: item[0].start)

    @cached_property
    def _kept_intervals(self) -> list[tuple[Interval, Revisions]]:
        return [(interval, revisions) for interval, revisions in self.in_order if not revisions.is_withdrawn]

    @cached_property
    def intervals(self) -> list[Interval]:
        """Returns all planned intervals, in order of time. Withdrawn intervals are included."""
        return [interval for interval, _ in self.in_order]

    @cached_property
    def kept_intervals(self) -> list[Interval]:
        """Returns the planned intervals that are not withdrawn, in order of time. Their ranges touch."""
        return [interval for interval, _ in self._kept_intervals]

    def before(self, interval: Interval, topic: str | None = None) -> Batch | None:
        """Returns the last batch of the planned interval that precedes this one. If a source topic is given, it is the
        nearest of the preceding planned intervals that read the topic.
        """
        for position in range(bisect_left(self.kept_intervals, interval.start, key=lambda i: i.start) - 1, -1, -1):
            batch = self.known(self.kept_intervals[position]).last_batch
            if batch.interval.end <= interval.start and (topic is None or topic in batch.plan.source_topics):
                return batch
        return None

    def after(self, interval: Interval) -> Batch | None:
        """Returns the last batch of the planned interval that follows this one."""
        position = bisect_left(self.kept_intervals, interval.end, key=lambda i: i.start)
        return self.last_batch(self.kept_intervals[position]) if position < len(self.kept_intervals) else None

    def starved_by(self, interval: Interval) -> Batch | None:
        """Returns a later interval that was planned earlier and left this interval no offsets. Returns None if this
        interval has offsets.
        """
        batch, after = self.range_owner(interval), self.after(interval)
        if batch is None or after is None or has_had_offsets(batch):
            return None
        begins = {r.partition_id: r.start for r in (*after.plan.ranges, *reversed(after.plan.lost))}
        if any(r.end < begins.get(r.partition_id, 0) for r in batch.plan.ranges):
            return None  # there was room for records, but none arrived
        return after if self.planned_first(after.interval) < self.planned_first(interval) else None

    def planned_first(self, interval: Interval) -> Order:
        """Returns when the interval's ranges were frozen. The interval's first revision froze the ranges, or its first
        revision after a withdrawal.
        """
        return self._planned_first(self.known(interval))

    def _planned_first(self, revisions: Revisions) -> Order:
        return self.order(revisions.froze)

    def order(self, batch: Batch) -> Order:
        """Returns a key that sorts batches in the order they were planned.

        Within one ledger topic the key is the order of leases. A topic that was restored from a copy starts its leases
        again, and copied plan records have other offsets. So batches planned in an earlier topic come first, in order
        of time.
        """
        number, copied = self._topics[batch.plan.ledger_topic_id]
        return number, batch.plan.planned_at if copied else ALWAYS, batch.require_lease

    @cached_property
    def _topics(self) -> dict[str, tuple[int, bool]]:
        """Returns, for each ledger topic id in which batches were planned, its number in order of time, and whether a
        later topic exists.
        """
        begun: dict[str, datetime] = {}
        for batch in self._all:
            topic, at = batch.plan.ledger_topic_id, batch.plan.planned_at
            if topic not in begun or at < begun[topic]:
                begun[topic] = at
        order = sorted(begun, key=lambda topic: begun[topic])
        return {topic: (n, topic != order[-1]) for n, topic in enumerate(order)}

    def all(self) -> list[Batch]:
        """Returns every revision of every interval, in order of time and revision."""
        return list(self._all)

    @cached_property
    def _all(self) -> tuple[Batch, ...]:
        return tuple(batch for _, revisions in self.in_order for batch in revisions.all)

    @cached_property
    def newest(self) -> Batch | None:
        """Returns the last batch of the newest planned interval. Withdrawn intervals do not count."""
        return self.last_batch(self.kept_intervals[-1]) if self.kept_intervals else None

    @cached_property
    def anchor(self) -> Interval | None:
        """Returns the interval that was planned first. Withdrawn intervals do not count. The frontier starts at this
        interval.
        """
        first = min(self._kept_intervals, key=lambda item: self._planned_first(item[1]), default=None)
        return first[0] if first else None

    @cached_property
    def anchors(self) -> dict[str, Interval]:
        """Returns the interval that was planned first of those that read a source topic, by topic. Withdrawn intervals do
        not count. The frontier of the topic starts at this interval.
        """
        found: dict[str, tuple[Order, Interval]] = {}
        for interval, revisions in self._kept_intervals:
            planned = self._planned_first(revisions)
            for topic in revisions.last_batch.plan.source_topics:
                if topic not in found or planned < found[topic][0]:
                    found[topic] = planned, interval
        return {topic: interval for topic, (_, interval) in found.items()}

    @cached_property
    def run(self) -> list[Batch]:
        """Returns the batch that counts of every interval, from the anchor on."""
        anchor = self.anchor
        if anchor is None:
            return []
        return [revisions.in_force for i, revisions in self._kept_intervals if i.start >= anchor.start]


def has_had_offsets(batch: Batch) -> bool:
    """Returns whether the batch's ranges have offsets, or had offsets that have expired."""
    return not batch.plan.is_empty or bool(batch.plan.lost)


def has_passed(batch: Batch, suite_digest: str | None = None) -> bool:
    """Returns whether a written batch has passed and may be published. If a digest is given, the batch has to have
    passed under the suite with this digest.
    """
    verdict = batch.verdict
    passed = verdict is not None and verdict.outcome is Outcome.PASSED
    same = verdict is not None and suite_digest in {None, verdict.suite_digest}
    return batch.state is State.WRITTEN and passed and same
