"""With which contents of its side tables a batch was made, in words, and what has changed since an earlier batch."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from fencepost.model import Batch, SideTableState, State
from fencepost.preview.diff import _table_changes
from fencepost.preview.past import PastRevision
from fencepost.protocol.table_states import changes_since, describe_changes, describe_state, states_for_programs
from fencepost.protocol.view import Revisions
from makers import a_batch, a_table, a_topic, a_written, planned

OLD = a_table(fingerprint="a" * 32, rows=16)
NEW = a_table(fingerprint="b" * 32, rows=17)
SAME_ROWS = a_table(fingerprint="c" * 32, rows=16)
PLANES = a_table("planes", "d" * 32, rows=1)
MORE_PLANES = a_table("planes", "e" * 32, rows=3322)


def made(revision: int, *tables: SideTableState, state: State = State.PUBLISHED, adds_to: int | None = None) -> Batch:
    """A revision that was made with these states, and was written unless it is superseded."""
    written = None if state is State.SUPERSEDED else a_written()
    batch = a_batch(state, revision=revision, adds_to=adds_to, written=written)
    return planned(batch, tables=tables)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([made(1, NEW)], ""),
        ([made(1, OLD), made(2, OLD)], ""),
        ([made(1, OLD), made(2, NEW)], "side table airlines has changed since revision 1 (16 rows, now 17)"),
        (
            [made(1, OLD), made(2, SAME_ROWS)],
            "side table airlines has changed since revision 1 (16 rows as before, with another content)",
        ),
        (
            [made(1, OLD, PLANES), made(2, NEW, MORE_PLANES)],
            "side tables have changed since revision 1: airlines (16 rows, now 17), planes (1 row, now 3,322)",
        ),
        (
            [made(1, OLD), made(2, OLD, PLANES)],
            "side table planes has changed since revision 1 (not there before)",
        ),
        ([made(1, OLD, PLANES), made(2, OLD)], "side table planes has changed since revision 1 (not there now)"),
        # Nobody saw rows of a revision that was never written, and an empty batch was made with no table.
        ([made(1, OLD), made(2, NEW, state=State.SUPERSEDED), made(3, OLD)], ""),
        ([made(1, OLD), made(2), made(3, NEW)], "side table airlines has changed since revision 1 (16 rows, now 17)"),
        ([made(1), made(2, NEW)], ""),
        # An addition is compared with its own revision, and a revision not with an addition.
        (
            [made(1, OLD), made(2, NEW), made(3, OLD, adds_to=2)],
            "side table airlines has changed since revision 2 (17 rows, now 16)",
        ),
        ([made(1, OLD), made(2, NEW, adds_to=1), made(3, OLD)], ""),
    ],
)
def test_what_changed_is_said_since_the_revision_that_a_person_compares_with(batches: list[Batch], words: str) -> None:
    assert describe_changes(changes_since(Revisions.of(batches), batches[-1])) == words


def test_a_comparison_has_the_tables_of_additions_too() -> None:
    first = PastRevision(made(1, OLD, PLANES), (made(2, OLD, MORE_PLANES, adds_to=1),))
    changes = _table_changes(first, PastRevision(made(3, NEW, PLANES)))
    assert [(one.name, one.revisions, one.before, one.after) for one in changes] == [
        ("airlines", (1, 3), OLD, NEW),
        ("planes", (1, 2), PLANES, MORE_PLANES),
    ]


def test_a_state_is_told_with_rows_size_fingerprint_and_the_moment_in_utc() -> None:
    local = datetime(2026, 3, 1, 0, 30, 5, tzinfo=timezone(timedelta(hours=1)))
    state = a_table(fingerprint="0123456789abcdef" * 2, rows=1234, bytes=3_500_000, read_at=local)
    assert describe_state(state) == "1,234 rows, 3.3 MB, fingerprint 0123456789ab, read 2026-02-28 23:30:05 UTC"
    assert describe_state(a_table()).startswith(
        "1 row, 8 bytes, fingerprint ffffffffffff, read 2026-01-01 00:00:00 UTC"
    )


def test_a_topic_is_told_with_the_ends_up_to_which_it_was_read() -> None:
    assert describe_state(a_table(offsets=a_topic(120, 0, 98, topic="customers"))).endswith(
        "UTC, customers 0:120 1:0 2:98"
    )
    many = describe_state(a_table(offsets=a_topic(*range(100, 1100), topic="customers")))
    assert many.endswith(" 18:118 19:119 and 980 more")


def test_programs_get_a_state_whole_but_for_its_columns() -> None:
    (told,) = states_for_programs([a_table(offsets=a_topic(7, topic="customers"))])
    assert told == {
        "name": "airlines",
        "fingerprint": "f" * 32,
        "rows": 1,
        "bytes": 8,
        "read_at": "2026-01-01T00:00:00Z",
        "offsets": {"topic": "customers", "topic_id": "customers-1", "ends": [7]},
    }
