"""Says with which contents of its side tables a batch was made, and which contents another batch was made with. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Any

from fencepost.counts import count_of
from fencepost.model import Batch, Frozen, SideTableState
from fencepost.protocol.revision import differing_tables
from fencepost.protocol.view import Revisions

SHORT = 12  # digits of a fingerprint that a person compares
ENDS = 20  # partitions of a topic whose ends are shown


class TableChange(Frozen):
    """A side table whose content differs between two revisions. `before` and `after` are None if that revision was made
    without the table.
    """

    name: str
    revisions: tuple[int, int]
    before: SideTableState | None
    after: SideTableState | None

    @property
    def description(self) -> str:
        """Returns the numbers of rows before and after, such as `16 rows, now 17`."""
        if self.before is None or self.after is None:
            return "not there before" if self.before is None else "not there now"
        if self.before.rows == self.after.rows:
            return f"{count_of(self.before.rows, 'row')} as before, with another content"
        return f"{count_of(self.before.rows, 'row')}, now {self.after.rows:,}"


def table_changes(before: Batch, after: Batch) -> tuple[TableChange, ...]:
    """Returns the side tables whose contents differ, and those that only one of the batches was made with.

    A batch without records has no states, because its transform did not run. Then there is nothing to compare.
    """
    old, new = ({state.name: state for state in batch.plan.tables} for batch in (before, after))
    if not old or not new:
        return ()
    differing = {*differing_tables(old.values(), new.values()), *(old.keys() ^ new.keys())}
    return tuple(
        TableChange(name=name, revisions=(before.revision, after.revision), before=old.get(name), after=new.get(name))
        for name in {**old, **new}
        if name in differing
    )


def changes_since(revisions: Revisions, batch: Batch) -> tuple[TableChange, ...]:
    """Returns the side tables that have changed since the earlier batch that a person compares this batch with. For an
    addition it is the revision that it adds to. Otherwise it is the last revision before it that was written.
    """
    if batch.adds_to is not None:
        earlier = [one for one in revisions.batches if one.revision == batch.adds_to]
    else:
        earlier = [
            one for one in revisions.batches if one.revision < batch.revision and one.written and one.plan.tables
        ]
    return table_changes(earlier[-1], batch) if earlier else ()


def describe_changes(changes: Sequence[TableChange]) -> str:
    """Returns the changes in words, such as `side table airlines has changed since revision 1 (16 rows, now 17)`. The
    changes are all between the same revisions. The text is empty if there is none.
    """
    if not changes:
        return ""
    since = f"changed since revision {changes[0].revisions[0]}"
    if len(changes) == 1:
        return f"side table {changes[0].name} has {since} ({changes[0].description})"
    return f"side tables have {since}: " + ", ".join(f"{one.name} ({one.description})" for one in changes)


def size(state: SideTableState) -> str:
    """Returns the size of the content in memory, such as `1,312 bytes` or `3.4 MB`."""
    megabytes = state.bytes / (1024 * 1024)
    return f"{megabytes:,.1f} MB" if megabytes >= 0.1 else count_of(state.bytes, "byte")


def short_fingerprint(state: SideTableState) -> str:
    """Returns the first digits of the fingerprint."""
    return state.fingerprint[:SHORT]


def ends_of(state: SideTableState) -> str:
    """Returns up to where a topic was read, as `customers 0:120 1:98`. The text is empty for a file and a query."""
    if state.offsets is None:
        return ""
    ends = [f"{partition}:{end}" for partition, end in enumerate(state.offsets.ends)]
    more = [f"and {len(ends) - ENDS:,} more"] if len(ends) > ENDS else []
    return " ".join([state.offsets.topic, *ends[:ENDS], *more])


def read_at(state: SideTableState) -> str:
    """Returns when the table was read, such as `2026-01-01 00:00:00 UTC`."""
    return f"{state.read_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def describe_state(state: SideTableState) -> str:
    """Returns the state of a side table on one line, without its name."""
    parts = [
        count_of(state.rows, "row"),
        size(state),
        f"fingerprint {short_fingerprint(state)}",
        f"read {read_at(state)}",
    ]
    return ", ".join([*parts, *filter(None, [ends_of(state)])])


def states_for_programs(states: Iterable[SideTableState]) -> list[dict[str, Any]]:
    """Returns the states of side tables as JSON, without their columns."""
    return [state.model_dump(mode="json", exclude={"value_schema"}) for state in states]
