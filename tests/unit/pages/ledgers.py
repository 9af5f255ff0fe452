"""Ledgers made by hand: as many hourly batches as a test asks for, and some that went another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from fencepost.model import (
    Batch,
    Decision,
    Event,
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

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PARTITIONS = 4
EVIL = "<script>alert('x')</script>"


def hour(number: int) -> Interval:
    """The interval of hour `number`, 0 being the first of 2026."""
    return Interval.of(START + number * HOUR, START + (number + 1) * HOUR)


def batch(number: int, state: State = State.PUBLISHED, revision: int = 1, rows: int = 400, **changes: object) -> Batch:
    """A batch of `rows` records, planned a minute after its hour and in its state five minutes later."""
    interval, each = hour(number), rows // PARTITIONS
    planned = interval.end + timedelta(minutes=1)
    done = planned + timedelta(minutes=5)
    verdict = {State.PUBLISHED: Outcome.PASSED, State.REJECTED: Outcome.REJECTED, State.SKIPPED: Outcome.REJECTED}.get(
        state
    )
    events = [Event(state=State.PLANNED, at=planned)]
    if state is not State.PLANNED:
        events.append(Event(state=State.WRITTEN, at=planned + timedelta(minutes=2), note=f"{rows} rows"))
    if state not in {State.PLANNED, State.WRITTEN}:
        events.append(Event(state=state, at=done))
    values = {
        "pipeline": "orders",
        "interval": interval,
        "revision": revision,
        "state": state,
        "lease": 5 * number + revision,
        "plan": Plan(
            source_topic="orders-in",
            source_topic_id="a",
            ranges=tuple(
                OffsetRange(partition=p, start=number * each, end=(number + 1) * each) for p in range(PARTITIONS)
            ),
            output_topic="orders-out",
            output_topic_id="b",
            output_ends=(number * each,) * PARTITIONS,
            layout=Layout.SOURCE,
            writers=PARTITIONS,
            lane=0,
            fence_up_to=PARTITIONS,
            settings_digest="d" * 64,
            software="fencepost 0.1.0",
            planned_at=planned,
        ),
        "written": None
        if state is State.PLANNED
        else Written(
            receipts=tuple(
                Receipt(task=t, lease=5 * number + revision, rows=each, fingerprint=t + 1) for t in range(PARTITIONS)
            ),
            output_ends=((number + 1) * each,) * PARTITIONS,
            rows_in=rows,
            seconds=3.5,
            written_at=planned + timedelta(minutes=2),
        ),
        "verdict": None
        if verdict is None
        else Verdict(
            outcome=verdict,
            reason="All 4 expectations hold." if verdict is Outcome.PASSED else "1 of 4 expectations failed: no_nulls.",
            number=1,
            expectations=4,
            failed_critical=() if verdict is Outcome.PASSED else ("no_nulls",),
            unexpected_rows=0 if verdict is Outcome.PASSED else 7,
            suite_digest="e" * 64,
            report=f"/nowhere/revision-{revision}-validation-1.html",
            seconds=1.5,
            judged_at=planned + timedelta(minutes=4),
        ),
        "decision": Decision(action="skip", by="ann", reason="source was down", decided_at=done)
        if state is State.SKIPPED
        else None,
        "history": tuple(events),
    }
    return Batch.model_validate({**values, **changes})


def ledger(length: int, but: Mapping[int, State] | None = None, make: Callable[..., Batch] = batch) -> list[Batch]:
    """`length` published hours, except where `but` says another state."""
    return [make(n, (but or {}).get(n, State.PUBLISHED)) for n in range(length)]
