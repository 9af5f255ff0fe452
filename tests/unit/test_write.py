"""What a write says when it comes to record: what the ledger says then, whatever it did."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.config.source import Source
from fencepost.errors import Superseded
from fencepost.formats.framing import ExcludedKind, describe_excluded
from fencepost.kafka.cluster import Topic
from fencepost.ledger.ledger import Change, Recorded
from fencepost.ledger.ledger import recorded as recorded_in
from fencepost.model import Batch, Decision, SourceSummary, State
from fencepost.protocol.decisions import decide_skip, record_withdrawn
from fencepost.protocol.view import View
from fencepost.steps.source_counts import SourceCounts
from fencepost.steps.write import _record
from fencepost.steps.write_job import WriteResult
from makers import a_receipt, a_table, planned
from unit.pages.ledgers import batch

PLANNED = batch(1, State.PLANNED)
WRITTEN = batch(1, State.WRITTEN)
RECEIPTS = [a_receipt(t, PLANNED.require_lease, 100, "orders-out") for t in range(4)]
DECISION = Decision(action="withdraw", by="ann", reason="a typing error", decided_at=PLANNED.plan.planned_at)


class LedgerAt:
    """A ledger that says this when the write is to be recorded."""

    def __init__(self, *now: Batch) -> None:
        self.view = View.of(now)
        self.topic_id = ""

    def transact(self, decide: Callable[[View], Change]) -> Recorded:
        batches = decide(self.view).batches
        return recorded_in(self.view.updated(batches), Change(batches))


def recorded(*now: Batch, source: SourceCounts | None = None) -> Any:
    ids = {found.topic: found.topic_id for found in (*PLANNED.plan.inputs, PLANNED.plan.output)}
    cluster = SimpleNamespace(
        describe=lambda name: Topic(name, ids[name], 4), high_watermarks=lambda topic: [800] * topic.partitions
    )
    pipeline = SimpleNamespace(source_topics={"orders-in": Source(topic="orders-in", format="bytes")})
    deployment: Any = SimpleNamespace(pipeline=pipeline, cluster=cluster, ledger=LedgerAt(*now))
    found, mine = source or SourceCounts(SourceSummary(rows_in=400)), PLANNED if now[-1].revision == 1 else now[-1]
    return _record(deployment, mine, WriteResult([*RECEIPTS], {"orders-in": found}), time.monotonic())


@pytest.mark.parametrize(
    ("now", "changed", "message"),
    [
        (PLANNED, True, "wrote revision 1: 400 records in, 400 out"),
        (WRITTEN, False, "already written, revision 1"),
        (decide_skip(View.of([PLANNED]), PLANNED.interval, DECISION)[0], False, "already skipped, revision 1"),
    ],
)
def test_a_write_says_what_became_of_it(now: Batch, changed: bool, message: str) -> None:
    result = recorded(now)
    assert (result.changed, result.message) == (changed, message)


def test_a_write_says_how_many_records_its_source_excluded() -> None:
    source = SourceCounts(SourceSummary(rows_in=453, excluded={"other_types": 50, "truncations": 3, "messages": 1}))
    result = recorded(PLANNED, source=source)
    assert (
        result.message
        == "wrote revision 1: 453 records in, 400 out, 50 records of other types, 3 truncations, 1 logical message excluded"
    )
    assert result.details["excluded"] == {"other_types": 50, "truncations": 3, "messages": 1}


def test_a_new_revision_says_which_side_tables_have_changed_since_the_one_before() -> None:
    before = planned(batch(1), tables=(a_table(rows=16), a_table("planes", rows=5)))
    now = a_table(fingerprint="0" * 32, rows=17)
    result = recorded(
        before, planned(batch(1, State.PLANNED, 2, lease=PLANNED.lease), tables=(now, a_table("planes", rows=5)))
    )
    assert result.message == (
        "wrote revision 2: 400 records in, 400 out; side table airlines has changed since revision 1 (16 rows, now 17)"
    )
    assert result.details["tables"] == {"airlines": 17, "planes": 5}


def test_one_excluded_record_is_said_in_the_singular() -> None:
    assert describe_excluded({kind.value: 1 for kind in ExcludedKind}) == (
        "1 record of another type, 1 record of another table, 1 truncation, 1 logical message, 1 tombstone behind a deletion"
    )


def test_a_write_whose_interval_was_withdrawn_does_not_say_that_it_wrote() -> None:
    with pytest.raises(Superseded, match="was withdrawn"):
        recorded(record_withdrawn(PLANNED, DECISION))
