"""The product's own decisions, asked with a model's small numbers.

Nothing is decided here: every function builds the values the product takes, calls it, and keeps the answer. What a model
explores is therefore `fencepost.protocol` and `fencepost.steps.plan` as they are shipped.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache

import makers
from fencepost.errors import FencepostError
from fencepost.model import Batch, Outcome, Plan, Receipt, State, Tally, Verdict, WriteSummary
from fencepost.outputs.topic.publication import TopicState
from fencepost.protocol.decisions import record_written, unfinished_ids
from fencepost.protocol.marks import MarkState, compare_mark, mark_metadata, read_mark, same_rows
from fencepost.protocol.revision import CurrentInputs, revision_reason
from fencepost.protocol.view import View
from fencepost.quality.report import ReceiptCheck
from makers import DAY, NOW

KEPT = 7 * DAY  # how long a mark lives
AGES = (timedelta(), 0.95 * KEPT, 1.1 * KEPT)  # young; too old to be trusted; its marks may be gone


def a_plan(writers: int = 1) -> Plan:
    """A plan of which only that matters."""
    return makers.a_plan(*[(0, 1)] * writers, digests={"transform": "0"}, software="model")


def a_batch(state: State = State.PLANNED, lease: int = 0, writers: int = 1, ledger: int = 0) -> Batch:
    """A batch of which only the named parts matter."""
    plan = a_plan(writers).model_copy(update={"ledger_topic_id": f"ledger-{ledger}"})
    return makers.a_batch(state, lease=lease, plan=plan)


def a_receipt(task: int, lease: int, rows: int = 1, ledger: int = 0, *, topic: str = "out") -> Receipt:
    """A receipt of the model's ledger of that number."""
    return makers.a_receipt(task, lease, rows, topic, ledger=f"ledger-{ledger}")


def a_written(receipts: tuple[Receipt, ...], ends: tuple[int, ...] = (0,), topic: str = "out") -> WriteSummary:
    """The end of a write."""
    return makers.a_written(*receipts, output=makers.a_topic(*ends, topic=topic))


def a_verdict(outcome: Outcome, before: Verdict | None) -> Verdict:
    """A verdict that nothing overtook: the next after `before`."""
    return makers.a_verdict(outcome, before.number + 1 if before else 1)


Lease = tuple[int, int]  # a ledger's number, and an offset in it


@cache
def standing_of(mark: Lease | None, lease: Lease) -> MarkState:
    """What an attempt of `lease` may do that finds a mark of lease `mark`, as it is read back from Kafka."""
    found = None
    if mark is not None:
        ledger, number = mark
        found = read_mark(mark_metadata(a_receipt(0, number, ledger=ledger)), "model")
    return compare_mark(found, lease[1], f"ledger-{lease[0]}")


@cache
def copy_standing_of(mark: int | None, lease: int) -> MarkState:
    """What an attempt at a copy under `lease` may do that finds the mark of that lease."""
    return compare_mark(None if mark is None else a_receipt(0, mark), lease, "ledger-0", opened=True)


@cache
def are_the_same(committed: int, seen: int) -> bool:
    """Whether an attempt whose rows are these, as bits, takes those of a mark for its own."""
    mark, ours = (
        makers.a_receipt(topics={"out": Tally(rows=rows.bit_count(), fingerprint=rows)}) for rows in (committed, seen)
    )
    return same_rows(mark, ours)


@cache
def may_be_written(age: int) -> bool:
    """Whether a driver goes on with a planned batch of that age (an index of AGES) instead of revising it."""
    plan = a_batch().plan
    return revision_reason(a_batch(), current_inputs("0", age, plan.output.topic_id, plan.ledger_topic_id)) is None


def current_inputs(digest: str, age: int, output_topic_id: str, ledger_topic_id: str = "ledger-0") -> CurrentInputs:
    """What a driver finds: the settings' digest, a batch of that age (an index of AGES), the output topic."""
    return CurrentInputs(
        digests={"transform": digest},
        software="model",
        now=NOW + AGES[age],
        marks_kept_for=KEPT,
        output=TopicState(output_topic_id),
        ledger_topic_id=ledger_topic_id,
    )


@cache
def recorded(lease: Lease, receipts: tuple[Lease, ...], writers: int, malformed: int = 0) -> str | None:
    """Why the ledger refuses `written` with receipts of these leases, by task-partition; None: it does not.

    The plan has so many writers, and behind them so many for malformed records, of which the source has one each.
    """
    batch = a_batch(lease=lease[1], writers=writers, ledger=lease[0])
    plan = batch.plan.model_copy(update={"tasks": makers.task_blocks(writers, malformed)})
    batch = batch.model_copy(update={"plan": plan})
    made = tuple(a_receipt(t, n, ledger=ledger) for t, (ledger, n) in enumerate(receipts))
    result = makers.counted(a_written(made), malformed=malformed)
    try:
        assert record_written(View.of([batch]), batch.interval, batch.revision, result, made)[0].state is State.WRITTEN
    except FencepostError as refusal:
        return str(refusal)
    return None


@cache
def fence_up_to(before: tuple[tuple[int, bool, bool], ...]) -> int:
    """How far a lane's next batch has to fence; each before it had so many ids, was written or not, was empty or not."""
    batches = (
        makers.a_batch(
            State.WRITTEN if written else State.SUPERSEDED,
            interval=makers.a_day(number),
            lease=number,
            plan=makers.a_plan((0, 0 if empty else 1), rows_tasks=width),
            written=makers.a_written() if written else None,
        )
        for number, (width, written, empty) in enumerate(before)
    )
    return unfinished_ids(View.of(batches), "0").get("in", 0)


@cache
def gate_agrees(promised: int, read: int) -> bool:
    """Whether validate takes what it read for what the receipts promise."""
    want, have = (a_written((a_receipt(0, 0, rows),)) for rows in (promised, read))
    return ReceiptCheck(
        rows_expected=want.rows,
        rows_read=have.rows,
        fingerprint_expected=want.fingerprint,
        fingerprint_read=have.fingerprint,
    ).agrees
