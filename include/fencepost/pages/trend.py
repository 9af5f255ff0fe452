"""Computes a pipeline's present lag, and its trend: a point for each of its last batches. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate

from fencepost.config.intervals import newest_ended
from fencepost.config.sections import Schedule
from fencepost.model import PartitionId
from fencepost.protocol.frontier import offsets_behind, total_of_topic
from fencepost.protocol.snapshot import Row, Snapshot

NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Lag:
    """The distance of the frontier from the ends of the sources, in source offsets and in seconds between the ends of two
    intervals.
    """

    records: int
    seconds: float


@dataclass(frozen=True)
class TrendPoint:
    """One batch of a trend. `lag` is the distance from the frontier to the newest planned interval at the time when the
    batch was settled.
    """

    row: Row
    lag: Lag | None


def trend(snapshot: Snapshot, length: int) -> list[TrendPoint]:
    """Returns the last `length` intervals, oldest first."""
    begin = max(len(snapshot.rows) - length, 0)
    run = snapshot.rows[snapshot.first :]
    lags = lags_of(run, max(begin - snapshot.first, 0))
    before: list[Lag | None] = [None] * max(snapshot.first - begin, 0)  # intervals before the anchor have no lag
    return [TrendPoint(row, lag) for row, lag in zip(snapshot.rows[begin:], [*before, *lags], strict=True)]


def lags_of(run: Sequence[Row], begin: int = 0) -> list[Lag]:
    """Returns the lag at the time when each interval was settled, for the intervals of the run from position `begin`
    on.

    An interval is settled when it is first published or skipped, or otherwise at its last change. At that time the
    frontier was before the first interval that had not passed, and the newest planned interval was the last interval
    with a frozen plan. So a hole shows as a lag that grows until the hole is closed.
    """
    if not run:
        return []
    ends = list(accumulate(row.offsets for row in run))
    passing = list(accumulate((_passes(row) for row in run), max))  # when the frontier went past each interval
    by_plan = sorted((row.revisions.all[0].plan.planned_at, position) for position, row in enumerate(run))
    planned = [moment for moment, _ in by_plan]
    newest = list(accumulate((position for _, position in by_plan), max))
    lags = []
    for row in run[begin:]:
        moment = row.passed_at or row.newest.changed_at
        last = newest[max(bisect_right(planned, moment) - 1, 0)]
        behind = min(bisect_right(passing, moment), last + 1)
        reached = run[behind - 1].interval.end if behind else run[0].interval.start
        records = ends[last] - (ends[behind - 1] if behind else 0)
        lags.append(Lag(records, (run[last].interval.end - reached).total_seconds()))
    return lags


def _passes(row: Row) -> datetime:
    if row.passed_at is None and row.batch.plan.is_empty:
        return datetime.min.replace(tzinfo=UTC)  # an empty interval holds nothing back
    return row.passed_at or NEVER


def newest_due(schedule: Schedule, now: datetime) -> datetime | None:
    """Returns the end of the newest interval that has ended, or None before the first interval has ended."""
    return next((interval.end for interval in newest_ended(schedule, now)), None)


def lag_now(snapshot: Snapshot, schedule: Schedule, source_ends: Mapping[PartitionId, int], now: datetime) -> Lag:
    """Returns the offsets from the frontier to the high watermarks of the sources (`offsets_behind`), and the time from the
    frontier to the newest due interval. If no batch was planned, the time counts from `schedule.start`.
    """
    due = newest_due(schedule, now)
    reached = snapshot.frontier_time or schedule.start
    seconds = max((due - reached).total_seconds(), 0.0) if due else 0.0
    return Lag(sum(topic_lags(snapshot, source_ends).values()), seconds)


def topic_lags(snapshot: Snapshot, source_ends: Mapping[PartitionId, int]) -> dict[str, int]:
    """Returns the offsets from the frontier to the high watermarks of each source topic."""
    return total_of_topic(offsets_behind(snapshot.frontier, source_ends))
