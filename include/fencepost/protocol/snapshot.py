"""The ledger in the form that a person reads: a row for each interval, the frontier, what awaits a person, and the next
step. Pure.

A snapshot is computed once for each view. `status`, `quarantine`, the pages and the doctor show its rows. Filtering,
sorting and paging use the rows too. So a page that shows fifty of ten thousand rows computes the details of fifty only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from fencepost.model import Batch, Interval, Outcome, PartitionId, State
from fencepost.protocol.advice import what_next
from fencepost.protocol.awaiting import Awaiting, awaiting_reason, in_force
from fencepost.protocol.frontier import frontier, holding_back
from fencepost.protocol.unread import Unread, unread
from fencepost.protocol.view import DECIDED, PASSED, Revisions, View


@dataclass(frozen=True)
class Row:
    """One interval. `batch` is the revision that counts. `newest` is a later revision if that is unfinished or failed."""

    revisions: Revisions
    holds_back: bool  # the frontier waits for this interval
    waits: bool  # it is published or skipped, and the frontier has not reached it
    passed_at: datetime | None  # when it was first published or skipped

    @property
    def batch(self) -> Batch:
        """Returns the revision that counts."""
        return self.revisions.in_force

    @property
    def newest(self) -> Batch:
        """Returns the batch or addition that was planned last."""
        return self.revisions.last

    @property
    def interval(self) -> Interval:
        """Returns the batch's interval."""
        return self.batch.interval

    @property
    def key(self) -> str:
        """Returns the interval's text, as in batch ids."""
        return str(self.batch.interval)

    @property
    def in_force(self) -> Batch | None:
        """Returns the older revision that counts while the newest has not passed."""
        return in_force(self.revisions)

    @property
    def additions(self) -> tuple[Batch, ...]:
        """Returns the published additions to the revision that counts."""
        return self.revisions.additions_in_force

    @property
    def newer(self) -> Batch | None:
        """Returns the newest revision, if it is unfinished or failed and another revision counts."""
        done = self.newest.adds_to is not None and self.newest.state in PASSED
        return None if done or self.newest.revision == self.batch.revision else self.newest

    @property
    def lines(self) -> tuple[Batch, ...]:
        """Returns the lines of a table. The lines are the revision that counts, its published additions, and the newest
        revision if it is another revision.
        """
        return tuple({b.revision: b for b in (self.batch, *self.additions, self.newest)}.values())

    @property
    def left_in_quarantine(self) -> Mapping[str, int]:
        """Returns the number of records that remain in quarantine, by rule. After a replay the remaining records are
        those that the last replay quarantined again.
        """
        last = self.revisions.link or self.batch
        return last.written.quarantined if last.written else {}

    @property
    def replayed(self) -> tuple[int, int] | None:
        """Returns the number of records that the published additions replayed, and the number of rows that they added.
        Returns None without an addition.
        """
        taken = [b.plan.replays.tally.rows for b in self.additions if b.plan.replays]
        return (sum(taken), sum(b.written.rows for b in self.additions if b.written)) if taken else None

    @property
    def next_step(self) -> str:
        """Returns what a person can do next about the newest revision, in a few sentences."""
        return what_next(self.newest, self.in_force)

    def awaiting(
        self, now: datetime | None = None, patience: timedelta | None = None, *, stopped: bool = False
    ) -> Awaiting | None:
        """Returns why the interval awaits a person, or None. `awaiting_reason` decides."""
        need = awaiting_reason(self.newest, now, patience, stopped=stopped)
        return None if need is None else Awaiting(self.newest, need, self.in_force)

    @property
    def telling(self) -> Batch:
        """Returns the revision whose verdict matters most now. The newest revision matters most if it needs a person,
        and otherwise the revision that counts.
        """
        return self.newest if awaiting_reason(self.newest) is not None else self.batch

    @property
    def states(self) -> set[State]:
        """Returns the states of the revision that counts, and of a newer revision if there is one."""
        return {self.batch.state, *((self.newer.state,) if self.newer else ())}

    @property
    def offsets(self) -> int:
        """Returns the number of source offsets in the frozen ranges."""
        return self.batch.plan.offsets

    @property
    def seconds(self) -> float | None:
        """Returns the seconds that writing took, plus the seconds of judging if there is a verdict. Returns None before
        the batch is written.
        """
        written, verdict = self.batch.written, self.batch.verdict
        return None if written is None else written.seconds + (verdict.seconds if verdict else 0.0)

    @property
    def pass_rate(self) -> float | None:
        """Returns the share of the expectations that held, in percent. Returns None if none was evaluated or the
        verdict is undetermined.
        """
        verdict = self.telling.verdict
        if verdict is None or not verdict.expectations or verdict.outcome is Outcome.UNDETERMINED:
            return None
        failed = len(verdict.failed_critical) + len(verdict.failed_warning)
        return 100.0 * (verdict.expectations - failed) / verdict.expectations


@dataclass(frozen=True)
class Snapshot:
    """All intervals of a pipeline, in order of time."""

    rows: tuple[Row, ...] = ()
    counts: Counter[State] = field(default_factory=Counter)  # intervals with that state, among `Row.states`
    unfinished: tuple[Row, ...] = ()  # rows whose newest revision is not published, skipped or withdrawn
    frontier: Mapping[PartitionId, int] = field(default_factory=dict)
    frontier_time: datetime | None = None  # the end of the last interval the frontier has passed
    first: int = 0  # position of the interval that was planned first; the frontier starts there
    passed: int = 0  # how many intervals the frontier has passed, counted from `first`
    hole: Row | None = None  # the row that holds the frontier back
    unread: Unread = field(default_factory=Unread)  # source offsets before the first range, by the ledger

    @cached_property
    def by_key(self) -> dict[str, Row]:
        """Returns the rows by the interval's text. Only intervals that a request names are looked up in it."""
        return {row.key: row for row in self.rows}

    @cached_property
    def last_judged(self) -> Batch | None:
        """Returns the revision with the latest verdict of all intervals."""
        judged = [(b.verdict.judged_at, b) for row in self.rows for b in row.revisions.all if b.verdict is not None]
        return max(judged, key=lambda each: each[0])[1] if judged else None

    @property
    def is_last_verdict_final(self) -> bool | None:
        """Returns whether the last verdict was passed, or a person has decided about its batch since then. Returns None
        before the first verdict.
        """
        batch = self.last_judged
        if batch is None or batch.verdict is None:
            return None
        if batch.state in {*DECIDED, State.WITHDRAWN}:
            return True
        refused = batch.state is State.REJECTED or (batch.publication is not None and bool(batch.publication.refused))
        return batch.verdict.outcome is Outcome.PASSED and not refused

    def find(self, interval: str, revision: int | None = None) -> Batch | None:
        """Returns the batch of that interval and revision. Without a revision the result is the batch that counts."""
        row = self.by_key.get(interval)
        if row is None or revision is None:
            return row.batch if row else None
        return next((b for b in row.revisions.all if b.revision == revision), None)

    def awaiting(
        self, now: datetime | None = None, patience: timedelta | None = None, stopped: Container[Interval] = ()
    ) -> tuple[Awaiting, ...]:
        """Returns the revisions that await a person, in order of time. `stopped` are intervals whose run has ended
        without success.
        """
        found = (row.awaiting(now, patience, stopped=row.interval in stopped) for row in self.unfinished)
        return tuple(one for one in found if one is not None)


def snapshot_of(view: View) -> Snapshot:
    """Returns the snapshot of a view, computed once."""
    return view.once(_snapshot_of)


def _snapshot_of(view: View) -> Snapshot:
    anchor, hole = view.anchor, holding_back(view)
    intervals, planned = view.intervals, [revisions for _, revisions in view.in_order]
    first = intervals.index(anchor) if anchor else 0
    passed = _unbroken([revisions.in_force for revisions in planned[first:]]) if anchor else 0
    rows = tuple(
        Row(
            revisions=revisions,
            holds_back=hole is not None and revisions.in_force.interval == hole.interval,
            waits=position >= first + passed and revisions.in_force.state in PASSED,
            passed_at=_passed_at(revisions),
        )
        for position, revisions in enumerate(planned)
    )
    return Snapshot(
        rows=rows,
        counts=Counter(state for row in rows for state in row.states),
        unfinished=tuple(r for r in rows if r.newest.state not in PASSED | {State.WITHDRAWN}),
        frontier=frontier(view),
        frontier_time=intervals[first + passed - 1].end if passed else anchor.start if anchor else None,
        first=first,
        passed=passed,
        hole=next((row for row in rows if row.holds_back), None),
        unread=unread(view),
    )


def _unbroken(run: Sequence[Batch]) -> int:
    """Returns how many whole intervals the frontier has passed. An empty batch does not stop the frontier, as in
    `protocol.frontier`.
    """
    passed = 0
    for position, batch in enumerate(run, start=1):
        if batch.state in PASSED:
            passed = position
        elif not batch.plan.is_empty and batch.state is not State.WITHDRAWN:
            break
    return passed


def _passed_at(revisions: Revisions) -> datetime | None:
    """Returns the moment from which the frontier could pass the interval."""
    return min((e.at for b in revisions.all for e in b.history if e.state in PASSED), default=None)
