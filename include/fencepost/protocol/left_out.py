"""Intervals of a schedule that have no batch, though a later one has; pure.

Airflow schedules on from its latest run. So a backfill of later intervals, made while a DAG is paused, leaves the earlier ones
without a run for ever.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import islice

from fencepost.counts import count_of
from fencepost.model import Interval

MOST = 100  # intervals that are counted: each stretch takes milliseconds to find, and a page waits for them
LISTED = 3  # stretches in a text


@dataclass(frozen=True)
class LeftOut:
    """The intervals, in order, as far as they are counted. `more`: there are others behind them."""

    intervals: tuple[Interval, ...] = ()
    more: bool = False

    @classmethod
    def of(cls, found: Iterable[Interval]) -> LeftOut:
        """The first `MOST` of these."""
        first = tuple(islice(found, MOST + 1))
        return cls(first[:MOST], len(first) > MOST)

    def without(self, intervals: Container[Interval]) -> LeftOut:
        """Those that are none of these, which have a run."""
        return LeftOut(tuple(one for one in self.intervals if one not in intervals), self.more)

    @property
    def stretches(self) -> tuple[Interval, ...]:
        """The time that they cover, in order: neighbours are one stretch."""
        found: list[Interval] = []
        for one in self.intervals:
            if found and found[-1].end == one.start:
                found[-1] = Interval(start=found[-1].start, end=one.end)
            else:
                found.append(one)
        return tuple(found)

    @property
    def description(self) -> str:
        """How many there are, where, and why; empty if there are none."""
        if not self.intervals:
            return ""
        stretches = self.stretches
        listed = "; ".join(one.told for one in stretches[:LISTED])
        rest = f"; and {len(stretches) - LISTED:,} more stretches" if len(stretches) > LISTED else ""
        have = count_of(len(self.intervals), "interval of the schedule has", "intervals of the schedule have")
        return (
            f"{'More than ' if self.more else ''}{have} no batch, though a later one has: {listed}{rest}. Airflow makes runs "
            "behind its latest one only, and a backfill's counts for that too"
        )

    @property
    def advice(self) -> str:
        """What to do about them."""
        return (
            f"To have them processed, backfill from {self.intervals[0].start.isoformat()} to "
            f"{self.intervals[-1].start.isoformat()}, with Missing Runs; they get the records that are in no batch yet. If the "
            "first of them are not wanted, let schedule.start say so"
        )

    def command(self, pipeline: str) -> str:
        """Airflow's command for it."""
        first, last = self.intervals[0].start.isoformat(), self.intervals[-1].start.isoformat()
        return f"airflow backfill create --dag-id {pipeline} --from-date {first} --to-date {last}"
