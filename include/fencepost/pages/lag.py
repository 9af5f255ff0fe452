"""How far a pipeline is behind now: in records of its source, and in time of its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fencepost.config.intervals import newest_ended
from fencepost.config.sections import Schedule
from fencepost.model import PartitionId
from fencepost.pages.trend import Lag
from fencepost.protocol.snapshot import Snapshot


def newest_due(schedule: Schedule, now: datetime) -> datetime | None:
    """The end of the newest interval that has ended; None before the first one has."""
    return next((interval.end for interval in newest_ended(schedule, now)), None)


def lag_now(snapshot: Snapshot, schedule: Schedule, source_ends: Mapping[PartitionId, int], now: datetime) -> Lag:
    """Offsets from the frontier to the source's high watermarks, and time from the frontier to the newest due interval.

    Partitions that the ledger does not know yet count from offset 0. If no batch was planned, the time counts from
    `schedule.start`.
    """
    due = newest_due(schedule, now)
    reached = snapshot.frontier_time or schedule.start
    seconds = max((due - reached).total_seconds(), 0.0) if due else 0.0
    records = sum(max(end - snapshot.frontier.get(place, 0), 0) for place, end in source_ends.items())
    return Lag(records, seconds)
