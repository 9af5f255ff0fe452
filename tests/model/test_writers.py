"""The writers' protocol: no interleaving doubles or loses a row, and taking any rule out does.

Each mutation is searched beside the same bounds with all rules, which has to find nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from fencepost.protocol.marks import MarkState
from model.product import Lease, fence_up_to, standing_of
from model.search import DEEP, Search, cases, explore, without_way_out
from model.writers import Rules, Writers

BOUNDS: dict[str, dict[str, Any]] = {
    "a lane that three leases pass on, two attempts each": {"leases": 3, "places": 2},
    "two task-partitions, a lane that changes hands": {"leases": 2, "places": 1, "tasks": 2},
    "two task-partitions, two attempts each": {"leases": 1, "places": 2, "tasks": 2},
    "the layout changes, so the mark's key does": {"leases": 2, "places": 2, "keys": (0, 1)},
    "marks and ids expire": {"leases": 3, "places": 1, "expiry": True},
    "marks and ids expire, two attempts each": {"leases": 2, "places": 2, "expiry": True},
    "fenced attempts linger": {"leases": 2, "places": 2, "linger": True},
    "a batch without records fences nobody": {"leases": 3, "places": 1, "empty": (1,)},
    "a retry's rows lie elsewhere": {"leases": 1, "places": 2, "tasks": 2, "moves": True},
    "a second job for malformed records": {"leases": 2, "places": 1, "tasks": 2, "malformed": 1},
    "batches of a lane grow narrower": {"leases": 3, "places": 1, "tasks": 2, "widths": (2, 1, 1)},
    "a narrower batch behind one without records": {
        "leases": 3,
        "places": 1,
        "tasks": 2,
        "widths": (2, 2, 1),
        "empty": (1,),
    },
    "a source leaves": {"leases": 2, "places": 1, "tasks": 2, "uses": ((0, 1), (1,))},
    "a source comes": {"leases": 2, "places": 1, "tasks": 2, "uses": ((1,), (0, 1))},
    "the ledger is lost and created again": {"leases": 3, "places": 1, "ledger_lost": True, "stopped": True},
}
COSTLY = {
    "a lane that three leases pass on, two attempts each",
    "two task-partitions, a lane that changes hands",
    "marks and ids expire",
}
DEEPER: dict[str, dict[str, Any]] = {
    "the layout changes there and back": {"leases": 3, "places": 2, "keys": (0, 1, 0)},
    "three attempts each": {"leases": 2, "places": 3},
    "a retry's rows lie elsewhere, two leases": {"leases": 2, "places": 2, "tasks": 2, "moves": True},
    "the ledger is lost and created again, two attempts each": {
        "leases": 3,
        "places": 2,
        "ledger_lost": True,
        "stopped": True,
    },
    "four leases": {"leases": 4, "places": 1},
    "two task-partitions, marks and ids expire": {"leases": 2, "places": 1, "tasks": 2, "expiry": True},
    "marks and ids expire, three leases, two attempts each": {"leases": 3, "places": 2, "expiry": True},
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_every_row_is_committed_once_whatever_happens(bounds: str) -> None:
    found = _unbroken(bounds)
    assert found.fault is None, found
    assert found.complete


@pytest.mark.parametrize(
    "bounds",
    [
        "two task-partitions, two attempts each",
        pytest.param("marks and ids expire", marks=pytest.mark.deep),
        "fenced attempts linger",
        "a batch without records fences nobody",
        "a second job for malformed records",
        "the ledger is lost and created again",
    ],
)
def test_retries_alone_always_end_with_a_written_batch(bounds: str) -> None:
    found = without_way_out(Writers(**BOUNDS[bounds]))
    assert found.fault is None, found
    assert found.complete


def any_mark_is_ours(mark: Lease | None, lease: Lease) -> MarkState:
    """Mutation: the mark is read and its lease is not."""
    return MarkState.WRITE if mark is None else MarkState.DONE


def later_leases_are_not_seen(mark: Lease | None, lease: Lease) -> MarkState:
    """Mutation: one's own mark is known, and a later lease's is taken for an earlier one's."""
    return MarkState.DONE if mark == lease else MarkState.WRITE


def ledgers_are_not_told_apart(mark: Lease | None, lease: Lease) -> MarkState:
    """Mutation: leases are compared, whichever ledger's they are."""
    return standing_of(None if mark is None else (0, mark[1]), (0, lease[1]))


def nothing_is_fenced(before: tuple[tuple[int, bool, bool], ...]) -> int:
    """Mutation: ids that a batch does not use are left as they are."""
    return 0


def of_the_last_batch(before: tuple[tuple[int, bool, bool], ...]) -> int:
    """Mutation: a batch that fenced nothing hides what those before it have left."""
    return fence_up_to(before[-1:])


def records_or_not(before: tuple[tuple[int, bool, bool], ...]) -> int:
    """Mutation: a batch without records is taken for one that has written and fenced."""
    return fence_up_to(tuple((width, written, False) for width, written, _ in before))


def by_position(uses: tuple[int, ...], t: int) -> int:
    """Mutation: a batch numbers its ids, whatever topic and partition a mark belongs to."""
    return uses.index(t)


PAIR = "fenced attempts linger"
MOVED = "a retry's rows lie elsewhere"
EXPIRY = "marks and ids expire, two attempts each"
NARROWER = "batches of a lane grow narrower"
SECOND = "a second job for malformed records"
LOST = "the ledger is lost and created again"


@pytest.mark.parametrize(
    ("bounds", "rules", "kind"),
    [
        pytest.param(PAIR, Rules(mark_in_transaction=False), "doubled", id="the mark is committed after the rows"),
        pytest.param(
            PAIR, Rules(mark_in_transaction=False, mark_first=True), "lost", id="the mark is committed before the rows"
        ),
        pytest.param(PAIR, Rules(init_first=False), "doubled", id="the mark is read before init"),
        pytest.param(PAIR, Rules(standing=later_leases_are_not_seen), "doubled", id="later leases are not seen"),
        pytest.param(
            PAIR, Rules(standing=any_mark_is_ours), "refused", id="any mark is ours: the receipts' leases tell"
        ),
        pytest.param(
            PAIR, Rules(standing=any_mark_is_ours, check_receipts=False), "lost", id="leases are compared nowhere"
        ),
        pytest.param(PAIR, Rules(stable_id=False), "doubled", id="a transactional id per attempt"),
        pytest.param(PAIR, Rules(end_is_high_watermark=False), "lost", id="the end is the last stable offset"),
        pytest.param(
            PAIR, Rules(wait_for_stable=False), "lost", id="validate does not wait for the last stable offset"
        ),
        pytest.param(
            "a source leaves", Rules(id_of=by_position), "doubled", id="ids are numbered, and a source leaves"
        ),
        pytest.param("a source comes", Rules(id_of=by_position), "doubled", id="ids are numbered, and a source comes"),
        pytest.param(MOVED, Rules(compares=False), "doubled", id="what is committed is not compared"),
        pytest.param(
            MOVED, Rules(marks_alone=True), "doubled", id="marks of all are enough, whichever jobs wrote them"
        ),
        pytest.param(MOVED, Rules(one_job=False), "doubled", id="answers of several jobs are taken together"),
        pytest.param(NARROWER, Rules(fence_up_to=nothing_is_fenced), "held", id="ids that are not used are not fenced"),
        pytest.param(
            NARROWER, Rules(fence_up_to=of_the_last_batch), "held", id="the last batch alone says what is open"
        ),
        pytest.param(
            "a narrower batch behind one without records",
            Rules(fence_up_to=records_or_not),
            "held",
            id="a batch without records settles ids",
        ),
        pytest.param(
            SECOND, Rules(malformed_receipts=False), "refused", id="the second job is not waited for: receipts tell"
        ),
        pytest.param(
            SECOND,
            Rules(malformed_receipts=False, check_receipts=False),
            "lost",
            id="nobody asks for the second job's receipts",
        ),
        pytest.param(
            LOST,
            Rules(standing=ledgers_are_not_told_apart),
            "refused",
            id="another ledger's mark counts: receipts tell",
        ),
        pytest.param(
            LOST,
            Rules(standing=ledgers_are_not_told_apart, check_receipts=False),
            "lost",
            id="ledgers are compared nowhere",
        ),
        pytest.param(
            EXPIRY, Rules(revise_old=False), "doubled", id="an old batch is retried on marks that may be gone"
        ),
    ],
)
def test_a_rule_taken_out_is_missed(bounds: str, rules: Rules, kind: str) -> None:
    assert _unbroken(bounds).fault is None
    found = explore(Writers(rules, **BOUNDS[bounds]))
    assert found.fault is not None, found
    assert found.fault.kind == kind, found
    assert len(found.trace) > 5, "a rule is missed only when several steps meet"


def test_a_lost_ledgers_run_that_goes_on_doubles_rows_and_the_gate_stops_them() -> None:
    """Why `LedgerLost` says to stop the runs: theirs is the same batch's name, and no lease says who is the later one."""
    lost: dict[str, Any] = {"leases": 2, "places": 1, "ledger_lost": True}
    found = explore(Writers(**lost))
    assert found.fault is not None
    assert found.fault.kind == "doubled", found
    stopped = explore(Writers(Rules(gate=True), **lost))
    assert stopped.fault is None, stopped
    assert stopped.complete


def test_a_job_that_outlives_its_marks_doubles_rows_and_the_gate_stops_them() -> None:
    """`revising` looks when a job starts. One that lasts longer than a tenth of the retention is left to validate."""
    outlived: dict[str, Any] = {"leases": 1, "places": 2, "expiry": True, "long_jobs": True}
    found = explore(Writers(**outlived))
    assert found.fault is not None
    assert found.fault.kind == "doubled", found
    stopped = explore(Writers(Rules(gate=True), **outlived))
    assert stopped.fault is None, stopped
    assert stopped.complete


def test_a_counterexample_is_told_step_by_step() -> None:
    found = explore(Writers(Rules(mark_in_transaction=False), leases=1))
    announced = str(found)
    assert "commit_transaction" in announced
    assert "row 0 of lease 0 is committed 2 times" in announced


@cache
def _unbroken(bounds: str) -> Search:
    found = explore(Writers(**{**BOUNDS, **DEEPER}[bounds]))
    print(f"writers, {bounds}: {found}")  # noqa: T201  # `make model` shows it
    return found
