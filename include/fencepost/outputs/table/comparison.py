"""Compares a table with what the ledger has published there, for any store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.counts import count_of, first_of
from fencepost.model import Batch, Interval
from fencepost.outputs.table.pipeline_table import Owner, PipelineTable
from fencepost.outputs.table.revisions import IntervalRow
from fencepost.protocol.view import View

SHOWN = 5  # intervals that a message names


@dataclass(frozen=True)
class TableComparison:
    """The result of a comparison. `lacks` says which published batches the table lacks, and is empty if it lacks none.
    `dropped` is the number of published intervals whose partition no longer exists.
    """

    missing_batches: str
    dropped: int = 0


@dataclass(frozen=True)
class TableContents:
    """A table's owner, and its interval rows in the store.

    `differs` returns the batches that count of the intervals in which the table differs from a view of the ledger.
    `without_partition` has the starts of the table's intervals that have no partition.
    """

    owner: Owner | None = None
    interval_rows: Mapping[datetime, IntervalRow] = field(default_factory=dict)
    differs: Callable[[View], Collection[Batch]] = lambda view: ()
    without_partition: set[datetime] = field(default_factory=set)


@dataclass(frozen=True)
class Difference:
    """An interval whose rows in the table differ from the published rows. The rows in the table and the published rows
    are counted by revision.

    `start` is None for rows without an interval, or with a time that cannot begin one. `end` is None if nothing was published.
    """

    start: datetime | None
    end: datetime | None
    has: Mapping[str, int]
    published: Mapping[str, int]

    def __str__(self) -> str:
        when = "rows without an interval" if self.start is None else f"interval {self.start:%Y-%m-%dT%H:%M}"
        if self.start is not None and self.end is not None:
            when = f"interval {Interval.of(self.start, self.end)}"
        return f"{when}: it has {describe_rows(self.has)}, and {describe_rows(self.published)} were published"


def describe_rows(rows: Mapping[Any, int]) -> str:
    """Describes rows, for example as `3 rows of revision 1 and 2 rows of revision 2`."""
    if not rows:
        return "no rows"
    return " and ".join(
        f"{count_of(count, 'row')} of revision {number}" for number, count in sorted(rows.items(), key=str)
    )


def listed(differs: Sequence[Difference]) -> str:
    """Returns the first `SHOWN` differences as text."""
    return first_of(list(map(str, differs)), SHOWN)


def compare(
    table: PipelineTable,
    read: Callable[[], View],
    contents: Callable[[View], TableContents],
    removal: Callable[[Sequence[datetime]], str],
) -> TableComparison:
    """Compares the table with what the ledger has published there.

    `contents` reads the table between two reads of the ledger. The table has to have what is published in both reads.
    An interval without a partition is left out, because its partition was dropped or detached. `removal` returns the
    statement that removes the rows of the intervals with these starts.
    """
    before = read()
    state, after = contents(before), read()
    if state.owner is not None and state.owner != table.owner:
        return TableComparison(f"table {table.name} belongs to {state.owner}, not to {table.owner}")
    table.check_known(after, list(state.interval_rows.values()))
    two = state.differs(after)
    both = {str(b.id): b for b in state.differs(before) if b in two and b.interval.start not in state.without_partition}
    withdrawn = [batch for batch in both.values() if after.is_withdrawn(batch.interval)]
    others = [batch for batch in both.values() if batch not in withdrawn]
    described = list[str]()
    if others:
        described.append(
            f"table {table.name} does not have what the ledger has published there in "
            f"{count_of(len(others), 'interval')}: the table was emptied or created again, or the table or the ledger was "
            f"restored from an older copy. These commands repair it: {_commands(others)}"
        )
    if withdrawn:
        described.append(
            f"table {table.name} has rows of "
            f"{count_of(len(withdrawn), 'withdrawn interval')}. "
            f"This removes them: {removal([batch.interval.start for batch in withdrawn])}"
        )
    return TableComparison(". ".join(described), len(state.without_partition))


def describe_differences(table: PipelineTable, view: View, differs: Sequence[Difference]) -> str:
    """Returns the differences as text, with the commands that repair them. The text is empty if there are none."""
    if not differs:
        return ""
    known = {interval.start: planned.in_force for interval, planned in view.in_order}
    batches = [known[one.start] for one in differs if one.start in known]
    described = (
        f"in {count_of(len(differs), 'interval')} the rows of table {table.name} differ from the published rows: "
        f"{listed(differs)}. "
    )
    if batches:
        described += f"These commands repair it: {_commands(batches)}"
    if foreign := [one for one in differs if one.start not in known]:
        described += (
            f"{'. ' if batches else ''}Rows of {count_of(len(foreign), 'interval')} belong to no batch: remove them"
        )
    return described


def _commands(batches: Collection[Batch]) -> str:
    """Returns the commands that write the intervals of these batches again."""
    return first_of([batch.command("run", "--reprocess") for batch in batches], SHOWN)
