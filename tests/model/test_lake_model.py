"""A publication to an Iceberg table: whatever crashes, comes late or twice, main has what a publication in force says.

Each mutation is searched within bounds in which all rules together find nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pytest

from fencepost.model import Batch
from fencepost.outputs.iceberg.table_base import Base, SnapshotRow, differing_in
from fencepost.outputs.iceberg.values import IcebergPublication
from fencepost.outputs.table.revisions import TableStanding, standing_of
from fencepost.outputs.table.values import TablePublication
from fencepost.protocol.view import View
from model.lake import Rules, of
from model.search import DEEP, cases, explore, without_way_out

BOUNDS: dict[str, dict[str, Any]] = {
    "a late request": {"rows": ((1,),), "late": 1},
    "two revisions": {},
    "a revision without rows": {"rows": ((1, 0),)},
    "main is rolled back": {"rows": ((1,),), "events": ("rolled back",), "late": 1},
    "main is rolled back, and its history expires": {
        "rows": ((1, 1),),
        "events": ("rolled back", "expired"),
        "places": 1,
    },
    "main is rolled back, and a revision without rows": {
        "rows": ((1, 0),),
        "events": ("rolled back", "expired"),
        "places": 1,
    },
    "a maintainer, and the history expires": {"rows": ((1,),), "events": ("expired", "maintained")},
    "the table is made anew": {"rows": ((1,),), "events": ("made anew",), "late": 1},
    "data are refused": {"rows": ((1,),), "events": ("refuses",), "late": 1},
    "two intervals": {"rows": ((1,), (1,))},
    "two intervals, main is rolled back": {"rows": ((1,), (1,)), "events": ("rolled back",), "places": 1},
    "two intervals, the table is made anew": {"rows": ((1,), (1,)), "events": ("made anew",)},
    "two intervals, a maintainer, and the history expires": {
        "rows": ((1,), (1,)),
        "events": ("expired", "maintained"),
        "places": 1,
    },
    "two revisions, a maintainer, a late request": {"events": ("maintained",), "places": 1, "late": 1},
    "additions": {"rows": ((1, 1),), "additions": True, "events": ("rolled back",), "places": 1},
}
COSTLY = {"data are refused", "two intervals", "two intervals, the table is made anew"}
DEEPER: dict[str, dict[str, Any]] = {
    "three revisions, main is set to any snapshot": {
        "rows": ((1, 0, 1),),
        "events": ("set", "expired"),
        "places": 1,
    },
    "a revision, main is rolled back, set to any snapshot and maintained": {
        "rows": ((1,),),
        "events": ("rolled back", "set", "expired", "maintained"),
        "places": 1,
        "late": 1,
    },
    "two revisions, two attempts, main is rolled back": {"events": ("rolled back",)},
    "data are refused, main is rolled back": {"rows": ((1,),), "events": ("refuses", "rolled back"), "places": 1},
    "additions, main is rolled back, and its history expires": {
        "rows": ((1, 1, 1),),
        "additions": True,
        "events": ("rolled back", "expired"),
        "places": 1,
    },
}


@pytest.mark.parametrize("bounds", [*cases(BOUNDS, COSTLY), *(DEEPER if DEEP else ())])
def test_main_has_what_the_ledger_says_or_that_is_noticed(bounds: str) -> None:
    found = without_way_out(of({**BOUNDS, **DEEPER}[bounds]))
    print(f"\n{bounds}: {found}")  # noqa: T201
    assert found.complete
    assert found.fault is None, str(found)


Count = Callable[[], Mapping[int, int]]


def believed_by_the_row(base: Base, batch: Batch, count: Count) -> SnapshotRow:
    return base.row(batch.interval.start)


def _by_history(base: Base, batch: Batch, has: bool) -> SnapshotRow:
    row = base.row(batch.interval.start)
    if standing_of(row, batch.publication_as(TablePublication)) is not TableStanding.DONE:
        return row
    return row if row.snapshot in base.ancestors or has else SnapshotRow(row.start)


def open_if_history_is_cut(base: Base, batch: Batch, count: Count) -> SnapshotRow:
    return _by_history(base, batch, has=False)


def done_without_rows(base: Base, batch: Batch, count: Count) -> SnapshotRow:
    return _by_history(base, batch, has=not batch.require_written.rows or batch.revision in count())


def never_closed(base: Base, batch: Batch, count: Count) -> SnapshotRow:
    row = base.row(batch.interval.start)
    return SnapshotRow(row.start) if row.closed else row


def all_others(view: View, base: Base, ledger_topic_id: str) -> tuple[datetime, ...]:
    return tuple(base.rows)


def by_the_newest_snapshot(
    view: View, table: str, base: Base, counted: Mapping[datetime, Mapping[int, int]]
) -> tuple[Batch, ...]:
    """As if main had all if it has the snapshot that was published last."""
    ended = [
        (into.require_lease, into.snapshot)
        for batch in view.all()
        if isinstance(into := batch.publication, IcebergPublication) and into.snapshot is not None
    ]
    has_newest = ended and max(ended)[1] in base.ancestors
    return () if has_newest else differing_in(view, table, base, counted)


MUTATIONS: dict[str, tuple[Rules, str]] = {
    "the ledger is asked before the base is read": (Rules(base_first=False), "two intervals"),
    "the ledger is not asked": (Rules(reads_ledger=False), "two intervals"),
    "the row is in the snapshot's summary alone": (
        Rules(rows_are_properties=False),
        "two intervals, a maintainer, and the history expires",
    ),
    "main has no snapshot at first": (
        Rules(claims_with_snapshot=False, compares_uuid=False),
        "the table is made anew",
    ),
    "the uuid is not compared": (Rules(knows_its_table=False), "two intervals, the table is made anew"),
    "a refused request has not landed": (Rules(refused_is_unknown=False), "a late request"),
    "main is not compared": (
        Rules(compares_main=False),
        "two intervals, a maintainer, and the history expires",
    ),
    "the tag is not compared": (Rules(compares_tag=False), "main is rolled back"),
    "rows are removed while their publications are under way": (Rules(ended=all_others), "two intervals"),
    "what was rolled back is done": (Rules(standing_row=believed_by_the_row), "main is rolled back"),
    "any snapshot of the table is an ancestor": (Rules(asks_ancestors=False), "main is rolled back"),
    "giving up writes nothing": (Rules(closes=False), "a late request"),
    "a closed publication may commit": (Rules(standing_row=never_closed), "a late request"),
    "without its history nothing is done": (
        Rules(standing_row=open_if_history_is_cut),
        "two intervals, a maintainer, and the history expires",
    ),
    "without its history a batch without rows is done": (
        Rules(standing_row=done_without_rows),
        "main is rolled back, and a revision without rows",
    ),
    "a refusal counts though another attempt has committed": (Rules(closes_open=False), "data are refused"),
    "a revision replaces nothing": (Rules(replaces=False), "two revisions"),
    "an addition needs nothing": (Rules(lacking=lambda *_: ()), "additions"),
    "main has all if it has the newest snapshot": (
        Rules(differs=by_the_newest_snapshot),
        "two intervals, main is rolled back",
    ),
    "where the two differ is not looked for": (Rules(differs=lambda *_: ()), "main is rolled back"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_rule_taken_out_is_found(mutation: str) -> None:
    rules, bounds = MUTATIONS[mutation]
    found = explore(of(BOUNDS[bounds], rules))
    if found.fault is None:
        found = without_way_out(of(BOUNDS[bounds], rules))
    assert found.fault is not None, f"{mutation}: nothing was found in {found}"
