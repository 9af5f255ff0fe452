"""Batches and their parts made by hand: each a whole and valid value, of which a test names only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.model import (
    Batch,
    Decision,
    Interval,
    Layout,
    OffsetRange,
    Outcome,
    Plan,
    Receipt,
    State,
    Verdict,
    Written,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def a_day(number: int) -> Interval:
    """The day of that number, 0 being 1 January 2026."""
    return Interval(start=NOW + number * DAY, end=NOW + (number + 1) * DAY)


def a_plan(*ranges: tuple[int, int], **changes: Any) -> Plan:
    """A plan that reads these ranges, one per source partition: where each starts, and its end."""
    values: dict[str, Any] = {
        "source_topic": "in",
        "source_topic_id": "in-1",
        "ranges": tuple(OffsetRange(partition=p, start=s, end=e) for p, (s, e) in enumerate(ranges)),
        "output_topic": "out",
        "output_topic_id": "out-1",
        "output_ends": (0,),
        "layout": Layout.SOURCE,
        "lane": 0,
        "digests": {"transform": "now"},
        "software": "1",
        "planned_at": NOW,
        **changes,
    }
    values.setdefault("writers", max(1, len(values["ranges"])))
    values.setdefault("fence_up_to", values["writers"])
    return Plan(**values)


def a_receipt(task: int = 0, lease: int = 0, rows: int = 1, **changes: Any) -> Receipt:
    """A receipt; its fingerprint is made of what it counts."""
    return Receipt(**{"task": task, "lease": lease, "rows": rows, "fingerprint": rows * 7919, **changes})


def a_written(*receipts: Receipt, **changes: Any) -> Written:
    """The end of a write that brought these receipts, and read as many records as it wrote."""
    rows = sum(r.rows for r in receipts)
    values = {"receipts": receipts, "output_ends": (rows,), "rows_in": rows, "seconds": 0, "written_at": NOW}
    return Written(**{**values, **changes})


def a_verdict(outcome: Outcome, number: int = 1, **changes: Any) -> Verdict:
    """The verdict of that validation."""
    values = {"reason": "", "expectations": 1, "suite_digest": "", "report": "r", "seconds": 0, "judged_at": NOW}
    return Verdict(**{"outcome": outcome, "number": number, **values, **changes})


def a_decision(action: str, **changes: Any) -> Decision:
    """An operator's word."""
    return Decision(**{"action": action, "by": "operator", "reason": "looked at it", "decided_at": NOW, **changes})


def a_batch(state: State = State.PLANNED, **changes: Any) -> Batch:
    """Revision 1 of the first day in that state; what a batch in that state has beside its plan, the test gives."""
    values = {"pipeline": "p", "interval": a_day(0), "revision": 1, "state": state, "lease": 0, "plan": a_plan()}
    return Batch(**{**values, **changes})
