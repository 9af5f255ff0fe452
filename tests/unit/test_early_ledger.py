"""A real ledger that Fencepost 0.1.0 wrote: it is read, goes on, and is then one that 0.1.0 says to upgrade for."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.ledger.codec import record_key, write_record
from fencepost.ledger.reader import Record, Records
from fencepost.model import LEDGER_VERSION, Decision, State, utc_now
from fencepost.protocol.decisions import check_receipts, decide_skip
from fencepost.protocol.frontier import frontier, validated_ends
from fencepost.protocol.revision import Circumstances, reason_to_revise
from fencepost.protocol.view import View

PIPELINE: Any = SimpleNamespace(name="flights", ledger_topic="fencepost.flights.ledger")
FILE = Path(__file__).with_name("early_ledger.json")
RECORDS: list[Record] = [(r["offset"], r["key"].encode(), r["value"].encode()) for r in json.loads(FILE.read_text())]


def read(*reads: list[Record]) -> View:
    """What one knows after these reads."""
    records = Records(PIPELINE)
    for one in reads:
        records.take(one)
    return View.of(records.batches.values())


def test_it_is_read_at_once_and_record_by_record() -> None:
    view = read(RECORDS)
    assert read(*([record] for record in RECORDS)) == view
    latest = [view.batches[i][-1].state for i in view.intervals]
    assert latest == [State.PUBLISHED, State.SKIPPED, *[State.PUBLISHED] * 2, State.WRITTEN, State.PLANNED]
    assert (frontier(view), validated_ends(view)) == ({0: 9, 1: 9}, dict.fromkeys(range(3), 16))
    for batch in view.all():
        if batch.written:
            check_receipts(batch, batch.written)


@pytest.mark.parametrize("state", [State.WRITTEN, State.PLANNED])
def test_what_was_under_way_is_written_anew(state: State) -> None:
    batch = next(b for b in read(RECORDS).all() if b.state is state)
    now = Circumstances(
        digests={"transform": "a"},
        software="fencepost 0.2.0",
        now=utc_now(),
        marks_kept_for=timedelta(days=7),
        output_topic_id=batch.plan.output_topic_id,
        ledger_topic_id="L",
    )
    assert "earlier Fencepost" in (reason_to_revise(batch, now) or "")


def test_a_record_that_goes_on_is_of_the_present_version() -> None:
    view = read(RECORDS)
    decision = Decision(action="skip", by="ann", reason="test", decided_at=utc_now())
    (after,) = decide_skip(view, view.intervals[-1], decision)
    record = write_record(after)
    assert json.loads(record)["version"] == LEDGER_VERSION > after.version == 1
    found = read([*RECORDS, (99, record_key(after), record)]).latest(after.interval)
    assert found is not None
    assert (found.state, found.lease, found.version) == (State.SKIPPED, after.lease, LEDGER_VERSION)
