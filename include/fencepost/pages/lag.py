"""How far a pipeline is behind right now: in records of its source, and in time of its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from croniter import croniter

from fencepost.config.pipeline import Schedule
from fencepost.pages.trend import Lag
from fencepost.protocol.frontier import Place
from fencepost.protocol.snapshot import Snapshot


def newest_due(schedule: Schedule, now: datetime) -> datetime | None:
    """The end of the newest interval that has ended; None before the first one has.

    `schedule.end` bounds an interval's start, so the last interval may end after it.
    """
    zone = ZoneInfo(schedule.timezone)
    end: datetime = _before(schedule, now.astimezone(zone), inclusive=True)
    if schedule.end is not None:
        last = _before(schedule, schedule.end.astimezone(zone), inclusive=False)
        end = min(end, croniter(schedule.cron, last).get_next(datetime))
    first = croniter(schedule.cron, _at_or_after(schedule, zone)).get_next(datetime)
    return end if end >= first else None


def lag_now(snapshot: Snapshot, schedule: Schedule, source_ends: Mapping[Place, int], now: datetime) -> Lag:
    """Offsets from the frontier to the source's high watermarks, and time from the frontier to the newest due interval.

    Partitions that the ledger does not know yet count from offset 0. If nothing was planned, the time counts from
    `schedule.start`.
    """
    due = newest_due(schedule, now)
    reached = snapshot.frontier_time or schedule.start
    seconds = max((due - reached).total_seconds(), 0.0) if due else 0.0
    records = sum(max(end - snapshot.frontier.get(place, 0), 0) for place, end in source_ends.items())
    return Lag(records, seconds)


def _before(schedule: Schedule, moment: datetime, *, inclusive: bool) -> datetime:
    """The last boundary before a moment, or at it."""
    if inclusive and croniter.match(schedule.cron, moment) and moment.second == moment.microsecond == 0:
        return moment
    found: datetime = croniter(schedule.cron, moment).get_prev(datetime)
    return found


def _at_or_after(schedule: Schedule, zone: ZoneInfo) -> datetime:
    start = schedule.start.astimezone(zone)
    if croniter.match(schedule.cron, start) and start.second == start.microsecond == 0:
        return start
    found: datetime = croniter(schedule.cron, start).get_next(datetime)
    return found
