"""What is recorded of side tables before the first write is recorded once, and other contents ask for a new revision."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from fencepost.errors import LedgerUnreadable, Overtaken, Superseded
from fencepost.ledger.codec import parse, write_record
from fencepost.model import SideTableState, State
from fencepost.outputs.topic.publication import TopicState
from fencepost.protocol.decisions import record_tables
from fencepost.protocol.revision import CurrentInputs, differing_tables, revision_reason
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_decision, a_plan, a_table, a_topic, a_written, planned

OLD, NEW = a_table("airlines", "old"), a_table("airlines", "new")
RATES = a_table("rates", "1", rows=7, offsets=a_topic(3, 4, topic="rates"))
SAME = CurrentInputs(
    digests={"transform": "now"}, software="1", now=NOW, marks_kept_for=timedelta(days=7), output=TopicState("out-1")
)


def test_the_first_to_record_says_with_which_contents_the_batch_is_made() -> None:
    batch = a_batch()
    view = View().updated((batch,))
    assert record_tables(view, a_day(0), 1, ()) == (), "a pipeline without side tables"
    (recorded,) = record_tables(view, a_day(0), 1, (OLD, RATES))
    assert recorded == planned(batch, tables=(OLD, RATES))
    view = view.updated((recorded,))
    for found in ((OLD, RATES), (NEW, RATES), (NEW,)):
        assert record_tables(view, a_day(0), 1, found) == ()


def test_contents_are_recorded_of_the_newest_revision_alone_and_while_it_is_planned() -> None:
    written = a_batch(State.WRITTEN, written=a_written())
    skipped = a_batch(State.SKIPPED, decision=a_decision("skip"))
    for batch in (written, skipped):
        with pytest.raises(Overtaken, match=rf"p/.*/1 is {batch.state} by now.*writes nothing more.*Run again"):
            record_tables(View().updated((batch,)), a_day(0), 1, (OLD,))
    old = a_batch(State.SUPERSEDED)
    with pytest.raises(Superseded):
        record_tables(View().updated((old, a_batch(revision=2, lease=1))), a_day(0), 1, (OLD,))


@pytest.mark.parametrize(
    ("recorded", "read", "differing"),
    [
        ((), (NEW, RATES), ()),
        ((OLD, RATES), (), ()),
        ((OLD, RATES), (OLD, RATES), ()),
        ((OLD, RATES), (RATES, OLD), ()),
        ((OLD, RATES), (NEW, RATES), ("airlines",)),
        ((RATES, OLD), (RATES, NEW), ("airlines",)),
        ((OLD, RATES), (NEW, a_table("rates", "2")), ("airlines", "rates")),
        # When and up to where it was read does not matter, nor how large it was in memory.
        ((OLD,), (a_table("airlines", "old", read_at=NOW + timedelta(1), bytes=9, offsets=a_topic(1)),), ()),
        # The settings have changed then, which is a reason of its own.
        ((OLD,), (NEW.model_copy(update={"name": "carriers"}),), ()),
    ],
)
def test_contents_differ_by_name_and_fingerprint(
    recorded: tuple[SideTableState, ...], read: tuple[SideTableState, ...], differing: tuple[str, ...]
) -> None:
    assert differing_tables(recorded, read) == differing


def test_other_contents_are_a_reason_until_the_batch_is_written_and_once_it_is_rejected() -> None:
    def reason(state: State, *read: SideTableState) -> str:
        written = None if state is State.PLANNED else a_written()
        batch = a_batch(state, plan=a_plan((0, 1), tables=(OLD, RATES)), written=written)
        return revision_reason(batch, replace(SAME, tables=read)) or ""

    assert reason(State.PLANNED, OLD, RATES) == reason(State.PLANNED) == ""
    assert reason(State.PLANNED, NEW, RATES).endswith("read it: airlines")
    assert (
        reason(State.PLANNED, NEW, a_table("rates", "2"))
        == "side tables changed since an earlier attempt read them: airlines, rates"
    )
    assert reason(State.REJECTED, NEW, RATES).endswith("read it: airlines"), "the cure may be in the table"
    for state in (State.WRITTEN, State.PUBLISHED, State.SKIPPED, State.SUPERSEDED):
        assert reason(state, NEW, RATES) == "", state


def test_the_ledger_gives_them_back_and_refuses_damaged_ones() -> None:
    batch = a_batch(plan=a_plan((0, 1), tables=(OLD, RATES)))
    assert parse(write_record(batch), "here") == batch
    whole = json.loads(write_record(batch))
    for damage in ({"fingerprint": ""}, {"rows": -1}, {"read_at": "2026-01-01T00:00:00"}, {"more": 1}, {"name": None}):
        damaged = json.loads(json.dumps(whole))
        damaged["plan"]["tables"][0].update(damage)
        with pytest.raises(LedgerUnreadable, match="ledger of p, offset 3: damaged in plan"):
            parse(json.dumps(damaged).encode(), "ledger of p, offset 3")
