"""What the base of a commit means to a publication, and the properties that rows are kept in; pure, with fixed values."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost.errors import TableRefused
from fencepost.model import Batch, Outcome, State
from fencepost.outputs.iceberg.properties import name_of, owner_in, owner_property, row_property, rows_in
from fencepost.outputs.iceberg.table_base import (
    Base,
    SnapshotRow,
    differing_in,
    ended_rows,
    lacking_for,
    recorded_publication,
    snapshots_in_force,
    standing_row,
    unknown_in,
)
from fencepost.outputs.iceberg.values import IcebergOutput, IcebergPublication
from fencepost.outputs.table.pipeline_table import Owner
from fencepost.outputs.table.revisions import Committed
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_plan, a_receipt, a_topic, a_verdict, a_written

TABLE, LEDGER, UUID = "db.t", "ledger-1", "uuid-1"
ROW = SnapshotRow(
    start=a_day(0).start,
    end=a_day(0).end,
    ledger=LEDGER,
    lease=7,
    revisions={1: Committed(3, LEDGER, 7)},
    snapshot=20,
    batch="p/2026-01-01T00:00Z--2026-01-02T00:00Z/1",
)
ROW_TEXT = (
    '{"batch":"p/2026-01-01T00:00Z--2026-01-02T00:00Z/1","closed":false,"end":"2026-01-02T00:00:00+00:00",'
    '"lease":7,"ledger":"ledger-1","refused":"","revisions":{"1":[3,"ledger-1",7]},"snapshot":20}'
)


def of_lake(
    state: State, rows: int = 3, lease: int = 7, snapshot: int | None = None, number: int = 0, **changes: Any
) -> Batch:
    """A batch for the table in that state, with so many rows, published as that snapshot."""
    into = changes.pop("into", {})
    plan = a_plan(
        (0, 9), output=IcebergOutput(table=TABLE), staging=a_topic(0, topic="staging"), ledger_topic_id=LEDGER
    )
    written = a_written(a_receipt(rows=rows, topic="staging"), output=a_topic(rows, topic="staging"))
    made = a_batch(
        state, interval=a_day(number), plan=plan, written=written, verdict=a_verdict(Outcome.PASSED), lease=5
    )
    if state in {State.PUBLISHING, State.PUBLISHED}:
        values = {"table": TABLE, "ledger": LEDGER, "lease": lease, "begun_at": NOW, "uuid": UUID, "snapshot": snapshot}
        made = made.model_copy(update={"publication": IcebergPublication(**{**values, **into})})
    return made.model_copy(update=changes)


def never() -> dict[int, int]:
    raise AssertionError("the rows need not be counted")


def base(**changes: Any) -> Base:
    return Base(**{"uuid": UUID, "main": 30, "ancestors": frozenset({10, 20, 30}), "rows": {ROW.start: ROW}, **changes})


def test_a_publication_is_committed_if_main_has_its_snapshot() -> None:
    batch = of_lake(State.PUBLISHING)
    assert standing_row(base(), batch, never) == ROW


def test_a_publication_that_a_rollback_took_is_open_again() -> None:
    batch = of_lake(State.PUBLISHING)
    rolled_back = base(main=10, ancestors=frozenset({10}))
    assert standing_row(rolled_back, batch, dict) == SnapshotRow(ROW.start)
    assert standing_row(replace(rolled_back, rows={}), batch, never) == SnapshotRow(ROW.start)


@pytest.mark.parametrize(
    ("rows", "adds_to", "counted", "stands"),
    [
        (3, None, {1: 3}, True),
        (3, None, {}, False),
        (3, None, {4: 3}, False),
        (0, None, {}, True),
        (0, None, {4: 3}, False),
        (0, 4, {4: 3}, True),
    ],
)
def test_where_the_history_is_cut_the_rows_decide(
    rows: int, adds_to: int | None, counted: dict[int, int], stands: bool
) -> None:
    """A batch without rows has removed those of older revisions, unless it is an addition."""
    cut = base(main=40, ancestors=frozenset({40, 39}))
    found = standing_row(cut, of_lake(State.PUBLISHING, rows, adds_to=adds_to), lambda: counted)
    assert found == (ROW if stands else SnapshotRow(ROW.start))


@pytest.mark.parametrize("row", [replace(ROW, closed=True), replace(ROW, lease=8), replace(ROW, ledger="other")])
def test_a_row_that_is_not_of_this_commit_counts_after_a_rollback_too(row: SnapshotRow) -> None:
    """A closed publication stays closed, and a later one stays later."""
    rolled_back = base(main=10, ancestors=frozenset({10}), rows={row.start: row})
    assert standing_row(rolled_back, of_lake(State.PUBLISHING), never) == row


def test_a_commit_removes_the_rows_whose_end_the_ledger_has() -> None:
    under_way, other = replace(ROW, start=a_day(1).start, lease=9), replace(ROW, start=a_day(2).start, ledger="other")
    older = replace(ROW, start=a_day(3).start, lease=4)
    rows = {row.start: row for row in (ROW, under_way, other, older)}
    view = View.of(
        [
            of_lake(State.PUBLISHED),
            of_lake(State.PUBLISHING, lease=9, number=1),
            of_lake(State.PUBLISHING, lease=11, number=3),
        ]
    )
    assert ended_rows(view, base(rows=rows), LEDGER) == (ROW.start, older.start)


def test_the_last_end_is_kept_until_the_ledger_has_it() -> None:
    assert ended_rows(View.of([of_lake(State.PUBLISHING)]), base(), LEDGER) == ()
    assert ended_rows(View.of([of_lake(State.REJECTED)]), base(), LEDGER) == (ROW.start,)


def test_an_addition_needs_the_revisions_that_it_adds_to() -> None:
    addition = of_lake(State.PUBLISHING, rows=2, revision=3, adds_to=1, lease=9)
    empty = of_lake(State.PUBLISHED, rows=0, revision=2, adds_to=1)
    view = View.of([of_lake(State.PUBLISHED), empty, addition])
    assert lacking_for(view, addition, {1: 3}) == ()
    assert lacking_for(view, addition, {1: 2}) == (1,)
    assert lacking_for(view, addition, {}) == (1,)
    assert lacking_for(view, of_lake(State.PUBLISHING, revision=2), {}) == (), "a revision replaces them"


@pytest.mark.parametrize(
    ("counted", "differs"),
    [
        ({1: 3}, False),
        ({1: 2}, True),
        ({}, True),
        ({1: 3, 2: 1}, True),
    ],
)
def test_an_interval_differs_if_its_rows_are_not_those_that_were_published(
    counted: dict[int, int], differs: bool
) -> None:
    batch = of_lake(State.PUBLISHED, snapshot=20)
    found = differing_in(View.of([batch]), TABLE, base(), {a_day(0).start: counted} if counted else {})
    assert found == ((batch,) if differs else ())


def test_an_interval_under_way_or_of_another_output_does_not_differ() -> None:
    view = View.of([of_lake(State.PUBLISHED), of_lake(State.PUBLISHING, revision=2)])
    assert differing_in(view, TABLE, base(), {}) == ()
    elsewhere = of_lake(State.PUBLISHED, into={"table": "db.other", "uuid": "uuid-0"})
    assert differing_in(View.of([elsewhere]), TABLE, base(), {}) == ()
    renamed = of_lake(State.PUBLISHED, into={"table": "db.other"})
    assert differing_in(View.of([renamed]), TABLE, base(), {}) == (renamed,), "the table keeps its uuid"


def test_rows_of_no_batch_are_named() -> None:
    view, start = View.of([of_lake(State.PUBLISHED)]), a_day(0).start
    assert unknown_in(view, "p", {start: {1: 3}}) == []
    assert unknown_in(view, "p", {start: {1: 3, 2: 1}}) == ["p, interval from 2026-01-01T00:00:00+00:00, revision 2"]


def test_the_snapshots_in_force_are_those_of_every_interval() -> None:
    """After a rollback and one more publication, main has the last of them, and lacks others."""
    view = View.of(
        [
            of_lake(State.SUPERSEDED, into={"snapshot": 10}),
            of_lake(State.PUBLISHED, revision=2, snapshot=20),
            of_lake(State.PUBLISHED, revision=3, adds_to=2, snapshot=25),
            of_lake(State.PUBLISHED, number=1, snapshot=30),
            of_lake(State.PUBLISHING, number=2),
        ]
    )
    assert snapshots_in_force(view, TABLE, UUID) == {20, 25, 30}
    earlier = of_lake(State.PUBLISHED, snapshot=10, into={"uuid": "uuid-0"})
    assert snapshots_in_force(View.of([earlier]), TABLE, UUID) == {None}, "the table has none of an earlier table's"
    assert snapshots_in_force(View.of([earlier]), "db.other", UUID) == frozenset()


def test_a_row_is_a_property_of_fixed_text() -> None:
    assert row_property(ROW) == {"fencepost.interval.2026-01-01T00:00:00+00:00": ROW_TEXT}
    assert rows_in(row_property(ROW) | {"owner": "somebody"}, TABLE) == {ROW.start: ROW}


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, closed=True, refused="column n is null", revisions={}),
        replace(ROW, start=datetime(2026, 1, 1, 12, 30, 0, 250_000, tzinfo=UTC), lease=0),
        replace(ROW, revisions={1: Committed(0, "a", 1), 12: Committed(2**40, "b", 2)}, snapshot=2**62),
    ],
)
def test_rows_come_back_as_they_were(row: SnapshotRow) -> None:
    assert rows_in(row_property(row), TABLE) == {row.start: row}


def test_an_interval_has_one_property_whatever_its_zone() -> None:
    there = datetime.fromisoformat("2026-01-01T02:00:00+02:00")
    assert name_of(there) == name_of(ROW.start) == "fencepost.interval.2026-01-01T00:00:00+00:00"


def test_the_owner_is_a_property_of_fixed_text() -> None:
    owner = Owner("p", "cluster-1")
    assert owner_property(owner) == {"fencepost.owner": '{"cluster":"cluster-1","pipeline":"p"}'}
    assert owner_in(owner_property(owner), TABLE) == owner
    assert owner_in({}, TABLE) is None


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '"p"', '{"pipeline":"p"}', '{"pipeline":"p","cluster":"c","more":1}']
)
def test_an_owner_that_was_changed_is_refused_by_name(text: str) -> None:
    with pytest.raises(TableRefused, match=r"table db\.t: its property fencepost\.owner was changed"):
        owner_in({"fencepost.owner": text}, TABLE)


@pytest.mark.parametrize(
    "change",
    [
        {"lease": "seven"},
        {"lease": None},
        {"closed": "false"},
        {"end": 5},
        {"end": "2026-01-02"},
        {"revisions": []},
        {"revisions": {"one": [3, "l", 7]}},
        {"revisions": {"1": [3, "l"]}},
        {"revisions": {"1": ["3", "l", "7"]}},
        {"snapshot": "x"},
        {"batch": None},
        {"ledger": None},
    ],
)
def test_a_row_that_was_changed_is_refused_by_name(change: dict[str, Any]) -> None:
    text = json.dumps(json.loads(ROW_TEXT) | change)
    with pytest.raises(TableRefused, match=r"its property fencepost\.interval\.2026-01-01T00:00:00\+00:00 was changed"):
        rows_in({name_of(ROW.start): text}, TABLE)


@pytest.mark.parametrize("text", ["", "null", "[]", "5", "{}"])
def test_a_row_that_is_no_row_is_refused_by_name(text: str) -> None:
    with pytest.raises(TableRefused, match="was changed"):
        rows_in({name_of(ROW.start): text}, TABLE)


@pytest.mark.parametrize("name", ["", "monday", "2026-01-01T00:00:00", "2026-01-01T02:00:00+02:00"])
def test_a_name_that_is_no_start_is_refused(name: str) -> None:
    """A second name of the same start would have a second row."""
    with pytest.raises(TableRefused, match="was changed"):
        rows_in({f"fencepost.interval.{name}": ROW_TEXT}, TABLE)


def test_a_publication_names_its_snapshot_once_it_is_known() -> None:
    assert of_lake(State.PUBLISHING).require_publication.method == "as one snapshot of table db.t"
    assert of_lake(State.PUBLISHED, snapshot=20).require_publication.method == "as snapshot 20 of table db.t"


@pytest.mark.parametrize(
    ("ledger", "snapshot"),
    [
        (of_lake(State.PUBLISHED, snapshot=20), 20),
        (of_lake(State.PUBLISHED, snapshot=20, lease=8), None),
        (of_lake(State.PUBLISHED, snapshot=20, into={"uuid": "uuid-2"}), None),
        (of_lake(State.PUBLISHED, snapshot=20, into={"ledger": "ledger-2"}), None),
        (of_lake(State.PUBLISHED, snapshot=20, revision=2), None),
        (of_lake(State.PUBLISHING), None),
        (of_lake(State.REJECTED), None),
    ],
)
def test_an_end_that_the_ledger_has_is_this_publications_own(ledger: Batch, snapshot: int | None) -> None:
    assert recorded_publication(View.of([ledger]), of_lake(State.PUBLISHING)) == snapshot


def test_a_ledger_without_the_interval_has_no_end() -> None:
    assert recorded_publication(View.of([]), of_lake(State.PUBLISHING)) is None
