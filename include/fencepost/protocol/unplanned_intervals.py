"""Finds the intervals of a schedule that have no batch although a later interval has one. Pure.

Airflow continues its schedule after its latest run. So if a DAG is paused and later intervals are backfilled, the intervals
before them never get a run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import islice

from fencepost.counts import count_of
from fencepost.model import Interval

MOST = 100  # counted intervals: finding each period takes milliseconds, and a page waits for them
LISTED = 3  # periods in a text


@dataclass(frozen=True)
class UnplannedIntervals:
    """The first `MOST` of the intervals, in order. `more` says that others follow."""

    intervals: tuple[Interval, ...] = ()
    more: bool = False

    @classmethod
    def of(cls, found: Iterable[Interval]) -> UnplannedIntervals:
        """Takes the first `MOST` of these intervals."""
        first = tuple(islice(found, MOST + 1))
        return cls(first[:MOST], len(first) > MOST)

    def without(self, intervals: Container[Interval]) -> UnplannedIntervals:
        """Returns the intervals without those in `intervals`, which have a run."""
        return UnplannedIntervals(tuple(one for one in self.intervals if one not in intervals), self.more)

    @property
    def stretches(self) -> tuple[Interval, ...]:
        """Returns the time that the intervals cover, in order. Intervals that touch become one period."""
        found: list[Interval] = []
        for one in self.intervals:
            if found and found[-1].end == one.start:
                found[-1] = Interval(start=found[-1].start, end=one.end)
            else:
                found.append(one)
        return tuple(found)

    @property
    def description(self) -> str:
        """Returns how many intervals are left out, which intervals, and why. The text is empty if there are none."""
        if not self.intervals:
            return ""
        stretches = self.stretches
        listed = "; ".join(one.description for one in stretches[:LISTED])
        rest = f"; and {len(stretches) - LISTED:,} more periods" if len(stretches) > LISTED else ""
        have = count_of(len(self.intervals), "interval of the schedule has", "intervals of the schedule have")
        return (
            f"{'More than ' if self.more else ''}{have} no batch, although a later interval has one: {listed}{rest}. "
            "Airflow makes runs only for intervals after its latest run, and a backfill's run counts as the latest too"
        )

    @property
    def advice(self) -> str:
        """Returns how to process the intervals, or to leave them out for good."""
        return (
            f"To process them, backfill from {self.intervals[0].start.isoformat()} to "
            f"{self.intervals[-1].start.isoformat()}, with Missing Runs. They get the records that are in no batch yet. To "
            "leave out the earliest intervals, set schedule.start to the end of the last interval that you do not want"
        )

    def command(self, pipeline: str) -> str:
        """Returns Airflow's command that backfills them."""
        first, last = self.intervals[0].start.isoformat(), self.intervals[-1].start.isoformat()
        return f"airflow backfill create --dag-id {pipeline} --from-date {first} --to-date {last}"
