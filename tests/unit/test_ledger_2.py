"""A real ledger of version 2: published, rejected, skipped, reprocessed, withdrawn, expired; it is read and goes on.

The version before ranges and receipts were kept by topic wrote it, with the marks of `marks_2.json`: a batch is written and
not judged, and another has committed and is not recorded.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import day
from fencepost.errors import LedgerUnreadable
from fencepost.ledger.codec import parse, record_key, write_record
from fencepost.ledger.reader import Record, Records
from fencepost.model import LEDGER_VERSION, Batch, OffsetRange, Outcome, SourceTopic, State, Tally, TopicOutput, utc_now
from fencepost.protocol.decisions import check_receipts, decide_publish, record_verdict, record_written
from fencepost.protocol.frontier import frontier, holding_back, validated_ends
from fencepost.protocol.marks import Standing, compare_mark, read_mark
from fencepost.protocol.view import View, was_withdrawn
from makers import a_verdict, a_written

PIPELINE: Any = SimpleNamespace(name="flights", ledger_topic="fencepost.flights.ledger")
HERE = Path(__file__)
RAW = json.loads(HERE.with_name("ledger_2.json").read_text())
RECORDS: list[Record] = [(r["offset"], r["key"].encode(), r["value"].encode()) for r in RAW]
MARKS = json.loads(HERE.with_name("marks_2.json").read_text())


def read(*reads: list[Record]) -> View:
    """What one knows after these reads."""
    records = Records(PIPELINE)
    for one in reads:
        records.take(one)
    return View.of(records.batches.values())


VIEW = read(RECORDS)


def newest(number: int, view: View = VIEW) -> Batch:
    batch = view.latest(day(number))
    assert batch is not None
    return batch


def test_it_is_read_at_once_and_record_by_record() -> None:
    assert read(*([record] for record in RECORDS)) == VIEW
    states = {n: [b.state for b in VIEW.batches[day(n)]] for n in (1, 2, 3, 4, 6, 7, 8)}
    assert states == {
        1: [State.SUPERSEDED, State.PUBLISHED],
        2: [State.PUBLISHED],
        3: [State.SKIPPED],
        4: [State.PUBLISHED],
        6: [State.PUBLISHED],
        7: [State.SUPERSEDED, State.WRITTEN],
        8: [State.PLANNED],
    }
    assert [str(b.id) for b in VIEW.all() if was_withdrawn(b)] == [str(VIEW.batches[day(7)][0].id)]
    assert newest(8).lease == RECORDS[-1][0], "its own offset, which its record does not have"
    assert {b.version for b in VIEW.all()} == {LEDGER_VERSION}


def test_what_it_says_is_found_under_its_topics() -> None:
    assert newest(6).plan.source == SourceTopic(
        topic="flights-in",
        topic_id="r/nbcT8IQlOm0svSLT8R6Q",
        ranges=(OffsetRange(partition=0, start=6, end=8), OffsetRange(partition=1, start=6, end=8)),
        lost=(OffsetRange(partition=0, start=5, end=6),),
    )
    first = VIEW.batches[day(1)][0]
    assert first.written is not None
    output = {"topic": "flights-out", "topic_id": "k4yr/XrUSKSPq5gKahGk5Q"}
    assert first.plan.output == TopicOutput(**output, ends=(0, 0, 0))
    assert first.written.output == TopicOutput(
        **output, ends=tuple(json.loads(RECORDS[1][2] or b"")["written"]["output_ends"])
    )
    for offset, _, value in RECORDS:
        stored, found = json.loads(value or b"").get("written"), parse(value, f"offset {offset}").written
        assert (stored is None) == (found is None)
        for was, now in zip(stored["receipts"] if stored else (), found.receipts if found else (), strict=True):
            tally = Tally(rows=was["rows"], fingerprint=was["fingerprint"], bytes=was["bytes"])
            assert (now.task, now.lease, now.topics) == (was["task"], was["lease"], {"flights-out": tally})
    assert (first.written.rows, sum(len(r.topics) for r in first.written.receipts)) == (6, 2)


def test_the_frontier_and_the_validated_ends_are_where_they_were() -> None:
    assert frontier(VIEW) == {("flights-in", 0): 8, ("flights-in", 1): 8}
    published = newest(6).written
    assert published is not None
    assert validated_ends(VIEW) == {("flights-out", p): end for p, end in enumerate(published.output.ends)}
    assert holding_back(VIEW) is None


def test_it_goes_on_and_what_it_gets_is_of_the_present_version() -> None:
    batch, records, view = newest(7), list(RECORDS), VIEW
    steps = [
        lambda: record_verdict(view, day(7), batch.revision, a_verdict(Outcome.PASSED)),
        lambda: decide_publish(view, day(7), utc_now()),
    ]
    for step in steps:
        (after,) = step()
        value = write_record(after)
        assert json.loads(value)["version"] == LEDGER_VERSION
        records.append((records[-1][0] + 2, record_key(after), value))
        view = read(records)
        assert view.latest(day(7)) == after
    assert newest(7, view).state is State.PUBLISHED
    assert frontier(view) == {("flights-in", 0): 9, ("flights-in", 1): 10}


def test_a_batch_whose_marks_an_earlier_fencepost_committed_is_recorded_with_them() -> None:
    batch = newest(8)
    receipts = [read_mark(text, batch.plan.output.topic, "here") for text in MARKS]
    assert [compare_mark(r, batch.known_lease, batch.plan.ledger_topic_id) for r in receipts] == [Standing.DONE] * 2
    result = a_written(*receipts, output=batch.plan.output)
    (after,) = record_written(VIEW, day(8), 1, result)
    check_receipts(after, result)
    assert (after.state, result.rows) == (State.WRITTEN, 2)


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda r: r["plan"].pop("ranges"), "plan"),
        (lambda r: r["plan"].update(ranges=[{"partition": 0, "start": 3, "end": 1}]), "plan"),
        (lambda r: r["plan"].update(secret=1), "plan"),
        (lambda r: r.update(plan="none"), "plan"),
        (lambda r: r["written"].pop("output_ends"), "written"),
        (lambda r: r["written"]["receipts"][0].pop("fingerprint"), "written"),
        (lambda r: r["written"].update(receipts=3), "written"),
        (lambda r: r.update(written=[]), "written"),
        (lambda r: r.update(state="none"), "state"),
    ],
)
def test_a_damaged_record_of_an_older_version_is_refused_and_not_shown(damage: Any, field: str) -> None:
    record = json.loads(RECORDS[1][2] or b"")
    damage(record)
    with pytest.raises(
        LedgerUnreadable, match=rf"^ledger, offset 2: damaged in .*{field}.*Restore the ledger"
    ) as raised:
        parse(json.dumps(record).encode(), "ledger, offset 2")
    assert "secret" not in str(raised.value)
