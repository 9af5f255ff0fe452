"""What a write learns of the registry is recorded once, and every attempt takes what is recorded."""

from __future__ import annotations

import pytest

from fencepost.errors import Overtaken, Superseded
from fencepost.ledger.codec import parse, write_record
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas, State
from fencepost.protocol.decisions import record_schemas
from fencepost.protocol.view import View
from makers import a_batch, a_day, a_decision, a_plan, a_written, of_source, planned

ONE = RegisteredSchema(subject="in-value", id=1, version=1, text='"int"')
TWO = RegisteredSchema(subject="", id=2, text='"int"')
BEFORE = Schemas(sources=of_source(ReadSchemas(reader=ONE, writers=(ONE,))))
AFTER = Schemas(
    sources=of_source(ReadSchemas(reader=ONE, writers=(ONE, TWO), refused={7: "n: written as string, read as int"}))
)


def test_the_first_of_two_attempts_says_what_the_batch_is_decoded_with() -> None:
    batch = a_batch(plan=a_plan((0, 1), schemas=BEFORE))
    view = View().updated((batch,))
    (recorded,) = record_schemas(view, a_day(0), 1, BEFORE, AFTER)
    assert recorded == planned(batch, schemas=AFTER)
    other = Schemas(sources=of_source(ReadSchemas(reader=ONE, writers=(ONE,), refused={2: "gone"})))
    view = view.updated((recorded,))
    assert record_schemas(view, a_day(0), 1, BEFORE, other) == ()
    assert record_schemas(view, a_day(0), 1, AFTER, AFTER) == ()


def test_a_batch_that_is_written_skipped_or_superseded_keeps_its_schemas() -> None:
    """An attempt that goes on asking for others would ask for ever."""
    batch = a_batch(State.WRITTEN, plan=a_plan((0, 1), schemas=AFTER), written=a_written())
    view = View().updated((batch,))
    assert record_schemas(view, a_day(0), 1, BEFORE, AFTER) == (), "the faster attempt's"
    with pytest.raises(Overtaken, match="is written by now"):
        record_schemas(view, a_day(0), 1, AFTER, BEFORE)
    with pytest.raises(Superseded):
        record_schemas(view, a_day(0), 2, BEFORE, AFTER)
    skipped = a_batch(State.SKIPPED, plan=a_plan((0, 1), schemas=BEFORE), decision=a_decision("skip"))
    with pytest.raises(Overtaken, match="is skipped by now"):
        record_schemas(View().updated((skipped,)), a_day(0), 1, BEFORE, AFTER)


def test_the_ledger_gives_them_back() -> None:
    batch = a_batch(plan=a_plan((0, 1), schemas=AFTER))
    assert parse(write_record(batch), "here") == batch
    assert AFTER.descriptions == {"source": "subject in-value (version 1, id 1); records of ids 1, 2"}
