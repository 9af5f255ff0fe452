"""Which batches a list of asset events stands for, and with which columns."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from conftest import day
from fencepost.errors import NeedsOperator, SettingsError, Superseded
from fencepost.model import Batch, Decision, State
from fencepost.outputs.copying import PublishedTopic
from fencepost.outputs.reading import batches_told_of, check_types, schema_of
from fencepost.protocol.decisions import record_withdrawn
from fencepost.protocol.view import View
from makers import planned, reading
from unit.quality.reports import batch

PUBLISHED, SUPERSEDED, REJECTED = State.PUBLISHED, State.SUPERSEDED, State.REJECTED


def of(number: int, revision: int, state: State, schema: str = "") -> Batch:
    made = batch(revision=revision)
    assert made.written is not None
    written = made.written.model_copy(update={"value_schema": schema})
    return made.model_copy(update={"interval": day(number), "state": state, "written": written})


def fields(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


VIEW = View.of(
    [of(1, 1, SUPERSEDED), of(1, 2, PUBLISHED), of(1, 3, REJECTED), of(2, 1, PUBLISHED), of(3, 1, State.SKIPPED)]
)


def name(number: int, revision: int) -> str:
    return str(of(number, revision, PUBLISHED).id)


def told(*events: tuple[int, int]) -> list[str]:
    return [str(b.id) for b in batches_told_of(VIEW, {name(*event) for event in events})]


def test_a_superseded_event_is_dropped_where_the_revision_that_counts_is_told_of_too() -> None:
    for events in permutations([(1, 1), (1, 2), (2, 1), (1, 2)]):
        assert told(*events) == [name(1, 2), name(2, 1)], "each once, in order of time"
    assert told((1, 2)) == [name(1, 2)]
    assert told((2, 1), (1, 2)) == [name(1, 2), name(2, 1)]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([(1, 1)], "superseded"),
        ([(1, 1), (2, 1)], "superseded"),
        ([(1, 3)], "rejected"),
        ([(3, 1), (2, 1)], "skipped"),
        ([(2, 2)], "not in the ledger"),
        ([(2, 1), (2, 2)], "not in the ledger"),
        ([(4, 1)], "not in the ledger"),
    ],
)
def test_an_event_that_nothing_in_the_list_replaces_is_refused(events: list[tuple[int, int]], state: str) -> None:
    with pytest.raises(Superseded, match=f"is {state}"):
        told(*events)


def test_an_interval_without_records_that_was_withdrawn_fails_no_reader() -> None:
    """An interval by mistake was published, told of, and taken out of the order."""
    published = of(4, 1, PUBLISHED)
    decision = Decision(action="withdraw", by="ann", reason="a typing error", decided_at=published.plan.planned_at)
    withdrawn = record_withdrawn(reading(published, ()), decision)
    view = View.of([*VIEW.all(), withdrawn])
    assert [str(b.id) for b in batches_told_of(view, {name(2, 1), name(4, 1)})] == [name(2, 1), name(4, 1)]


def test_records_that_do_not_name_their_batch_are_refused_and_not_passed_over() -> None:
    """A setting left the header out; who looks for it finds none of them."""
    made = of(1, 1, PUBLISHED)
    bare = planned(made, output=made.plan.output.model_copy(update={"batch_header": False}))
    nothing: Any = None
    output = PublishedTopic(SimpleNamespace(pipeline=nothing, cluster=nothing), "out")
    with pytest.raises(NeedsOperator, match=r"have no header.*`fencepost run \S+ --start \S+ --end \S+ --reprocess`"):
        output.read_published(nothing, bare, fields())


def test_columns_of_one_name_have_one_type() -> None:
    one, other = fields(n=IntegerType(), name=StringType()), fields(m=IntegerType(), N=IntegerType())
    check_types({"a": one, "b": other})
    with pytest.raises(SettingsError, match="column n is int in batch a and bigint in batch c"):
        check_types({"a": one, "b": other, "c": fields(n=LongType())})


def test_a_batch_whose_transform_was_not_run_has_the_columns_of_the_newest_one_whose_was() -> None:
    first, second = fields(n=IntegerType()), fields(n=IntegerType(), name=StringType())
    none = of(3, 1, PUBLISHED)
    view = View.of([of(1, 1, PUBLISHED, first.json()), of(2, 1, PUBLISHED, second.json()), none])
    assert schema_of(none, view) == second
    assert schema_of(of(1, 1, PUBLISHED, first.json()), view) == first
    assert schema_of(none, View.of([none])) == StructType([])
