"""Ledgers made by hand: as many hourly batches as a test asks for, and some that went another way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from fencepost.model import Batch, HistoryEntry, Interval, Outcome, Replayed, SourceSummary, State, Tally
from fencepost.protocol.snapshot import Snapshot, snapshot_of
from fencepost.protocol.view import View
from makers import NOW as START
from makers import (
    a_batch,
    a_decision,
    a_plan,
    a_receipt,
    a_source,
    a_topic,
    a_verdict,
    a_written,
    an_output,
    counted,
    task_blocks,
)

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
    events = [HistoryEntry(state=State.PLANNED, at=planned)]
    if state is not State.PLANNED:
        events.append(HistoryEntry(state=State.WRITTEN, at=planned + timedelta(minutes=2), note=f"{rows} rows"))
    if state not in {State.PLANNED, State.WRITTEN}:
        events.append(HistoryEntry(state=state, at=done))
    values: dict[str, Any] = {
        "pipeline": "orders",
        "interval": interval,
        "revision": revision,
        "state": state,
        "lease": 5 * number + revision,
        "plan": a_plan(
            inputs=(a_source(*[(number * each, (number + 1) * each)] * PARTITIONS, topic="orders-in"),),
            output=an_output(*[number * each] * PARTITIONS, topic="orders-out"),
            software="fencepost 0.1.0",
            planned_at=planned,
        ),
        "written": None
        if state is State.PLANNED
        else a_written(
            *(a_receipt(t, 5 * number + revision, each, "orders-out") for t in range(PARTITIONS)),
            output=a_topic(*[(number + 1) * each] * PARTITIONS, topic="orders-out"),
            rows_in=rows,
            seconds=3.5,
            written_at=planned + timedelta(minutes=2),
        ),
        "verdict": None
        if verdict is None
        else a_verdict(
            verdict,
            reason="All 4 expectations hold." if verdict is Outcome.PASSED else "1 of 4 expectations failed: no_nulls.",
            expectations=4,
            failed_critical=() if verdict is Outcome.PASSED else ("no_nulls",),
            unexpected_rows=0 if verdict is Outcome.PASSED else 7,
            report=f"/nowhere/revision-{revision}-validation-1.html",
            seconds=1.5,
            judged_at=planned + timedelta(minutes=4),
        ),
        "decision": a_decision("skip", by="ann", reason="source was down", decided_at=done)
        if state is State.SKIPPED
        else None,
        "history": tuple(events),
    }
    return a_batch(**{**values, **changes})


def ledger(length: int, but: Mapping[int, State] | None = None, make: Callable[..., Batch] = batch) -> list[Batch]:
    """`length` published hours, except where `but` says another state."""
    return [make(n, (but or {}).get(n, State.PUBLISHED)) for n in range(length)]


def quarantining(made: Batch, malformed: int, topic: str = "bad", **rules: int) -> Batch:
    """The batch with malformed records in quarantine, and rows that fail rules of these names."""
    assert made.written is not None
    bad = a_topic(0, topic=topic)
    topics = {**made.written.topics, topic: Tally(rows=malformed + sum(rules.values()), fingerprint=1)}
    written = {"topics": topics, "quarantine": bad, "rules": rules}
    plan = made.plan.model_copy(update={"quarantine": bad, "tasks": task_blocks(PARTITIONS, PARTITIONS)})
    return made.model_copy(
        update={"written": counted(made.written, malformed=malformed).model_copy(update=written), "plan": plan}
    )


def replaying(base: Batch, revision: int, rows: int, left: int, state: State = State.PUBLISHED) -> Batch:
    """An addition to the batch: of all that it has in quarantine, so many rows passed and so many records failed again."""
    assert base.plan.quarantine is not None
    assert base.written is not None
    topic, taken = base.plan.quarantine.topic, base.written.quarantined_tally
    made = batch(round((base.interval.start - START) / HOUR), state, revision, rows)
    made = quarantining(made, left, topic) if made.written else made
    replays = Replayed(batch=str(base.id), tally=taken, attempt=base.plan.attempt + 1)
    plan = made.plan.model_copy(update={"inputs": (a_source((0, taken.rows), topic=topic),), "replays": replays})
    written = counted(made.written, rows_in=taken.rows) if made.written else None
    return made.model_copy(update={"adds_to": base.adds_to or base.revision, "plan": plan, "written": written})


def reading_payments(made: Batch, **counts: Any) -> Batch:
    """The batch with a second source: 40 records of topic `payments`, in partitions of numbers that `orders-in` has too."""
    payments = a_source((0, 30), (0, 10), topic="payments")
    written = made.written
    if written is not None:
        ((_, orders),) = written.sources.items()
        read = {"orders-in": orders, "payments": SourceSummary(**{"rows_in": 40, **counts})}
        written = written.model_copy(update={"sources": read})
    plan = made.plan.model_copy(update={"inputs": (*made.plan.inputs, payments)})
    return made.model_copy(update={"plan": plan, "written": written})


def taken(batches: Iterable[Batch]) -> Snapshot:
    """These batches as a person reads them."""
    return snapshot_of(View.of(batches))
