"""A real ledger that Fencepost 0.1.0 wrote: it is read, goes on, and is then one that 0.1.0 says to upgrade for."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from fencepost.errors import NeedsOperator
from fencepost.ledger.codec import UPCASTS, record_key, write_record
from fencepost.ledger.reader import Record, Records
from fencepost.model import LEDGER_VERSION, Decision, State, utc_now
from fencepost.outputs.reading import _frame
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
    assert (frontier(view), validated_ends(view)) == (
        {("flights-in", 0): 9, ("flights-in", 1): 9},
        {("flights-out", p): 16 for p in range(3)},
    )
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
        output_topic_id=batch.plan.output.topic_id,
        ledger_topic_id="L",
    )
    assert "earlier Fencepost" in (reason_to_revise(batch, now) or "")


@pytest.mark.parametrize("version", [1, 2])
def test_records_that_do_not_name_their_batch_are_known_by_its_plan(version: int) -> None:
    """A setting of 0.1.0 left the header out. Its record may have been written again, as one of version 2."""
    offset, key, value = RECORDS[3]
    early = json.loads(value or b"")
    early["plan"]["batch_header"] = False
    record = early if version == 1 else UPCASTS[1](early)
    view = read([(offset, key, json.dumps(record).encode())])
    (batch,) = view.all()
    nothing: Any = None
    with pytest.raises(NeedsOperator, match=r"have no header.*--reprocess"):
        _frame(nothing, nothing, batch, StructType())


def test_a_record_that_goes_on_is_of_the_present_version() -> None:
    view = read(RECORDS)
    decision = Decision(action="skip", by="ann", reason="test", decided_at=utc_now())
    (after,) = decide_skip(view, view.intervals[-1], decision)
    record = write_record(after)
    assert json.loads(record)["version"] == LEDGER_VERSION
    found = read([*RECORDS, (99, record_key(after), record)]).latest(after.interval)
    assert found is not None
    assert found == after
