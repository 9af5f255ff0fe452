"""What a table has, beside what the ledger has published there, in words that hold for any store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.counts import count_of, first_of
from fencepost.model import Batch, Interval
from fencepost.outputs.table.pipeline_table import Owner, PipelineTable
from fencepost.outputs.table.revisions import Held, differing
from fencepost.protocol.view import View

SHOWN = 5  # intervals that a message names


@dataclass(frozen=True)
class TableComparison:
    """What a table lacks of what the ledger has published there, for a person; empty if nothing. `dropped` is of how many
    published intervals the table has no partition any more."""

    lacks: str
    dropped: int = 0


@dataclass(frozen=True)
class TableContents:
    """What a table has: its owner, the rows of its store, the intervals of which it has a row, by start.

    `differs` is as `differing` has it; `without_partition` are those of its intervals that the table has no partition for.
    """

    owner: Owner | None = None
    held: dict[datetime, Held] = field(default_factory=dict)
    filled: set[datetime] = field(default_factory=set)
    differs: tuple[Batch, ...] = ()
    without_partition: set[datetime] = field(default_factory=set)


@dataclass(frozen=True)
class Difference:
    """An interval in which the table has other rows than were published there: both by revision. `start` is None of rows that
    have none, or one that no interval has, `end` where nothing was ever published."""

    start: datetime | None
    end: datetime | None
    has: Mapping[str, int]
    published: Mapping[str, int]

    def __str__(self) -> str:
        when = "rows without an interval" if self.start is None else f"interval {self.start:%Y-%m-%dT%H:%M}"
        if self.start is not None and self.end is not None:
            when = f"interval {Interval.of(self.start, self.end)}"
        return f"{when}: it has {told_by_revision(self.has)}, and {told_by_revision(self.published)} were published"


def told_by_revision(rows: Mapping[Any, int]) -> str:
    """Numbers of rows by revision, for a person."""
    if not rows:
        return "no rows"
    return " and ".join(
        f"{count_of(count, 'row')} of revision {number}" for number, count in sorted(rows.items(), key=str)
    )


def listed(differs: Sequence[Difference]) -> str:
    """Some of them, for a person."""
    return first_of(list(map(str, differs)), SHOWN)


def compare(
    table: PipelineTable,
    read: Callable[[], View],
    contents: Callable[[View], TableContents],
    removal: Callable[[Sequence[datetime]], str],
) -> TableComparison:
    """What the table has, beside what the ledger has published there.

    The table is asked (`contents`) between two reads of the ledger: what both of them have published, it has to have. An interval
    without a partition is left out: somebody has dropped or detached that. `removal` is the statement that removes the rows of
    the intervals with these starts.
    """
    before = read()
    state, after = contents(before), read()
    if state.owner is not None and state.owner != table.owner:
        return TableComparison(f"table {table.name} belongs to {state.owner}, and this is {table.owner}")
    table.check_known(after, list(state.held.values()))
    two = differing(after, table.name, state.held, state.filled)
    both = {str(b.id): b for b in state.differs if b in two and b.interval.start not in state.without_partition}
    withdrawn = [batch for batch in both.values() if after.is_withdrawn(batch.interval)]
    others = [batch for batch in both.values() if batch not in withdrawn]
    told = list[str]()
    if others:
        told.append(
            f"table {table.name} does not have what the ledger has published there in "
            f"{count_of(len(others), 'interval')}: it was emptied or made anew, or it or the ledger was restored from an "
            f"older copy. These put that right: {_commands(others)}"
        )
    if withdrawn:
        told.append(
            f"table {table.name} has rows of "
            f"{count_of(len(withdrawn), 'interval that was withdrawn', 'intervals that were withdrawn')}, which nobody "
            f"publishes. This removes them: {removal([batch.interval.start for batch in withdrawn])}"
        )
    return TableComparison(". ".join(told), len(state.without_partition))


def told_differences(table: PipelineTable, view: View, differs: Sequence[Difference]) -> str:
    """Where rows of an interval are not those that were published there, with the commands that bring them back."""
    if not differs:
        return ""
    known = {interval.start: planned.in_force for interval, planned in view.in_order}
    batches = [known[one.start] for one in differs if one.start in known]
    told = (
        f"table {table.name} has other rows than were published there in {count_of(len(differs), 'interval')}: "
        f"{listed(differs)}. "
    )
    if batches:
        told += f"These put that right: {_commands(batches)}"
    if foreign := [one for one in differs if one.start not in known]:
        told += f"{'. ' if batches else ''}Rows of {count_of(len(foreign), 'interval')} are of nobody's batches: remove them"
    return told


def _commands(batches: Collection[Batch]) -> str:
    """What brings the intervals of these batches back."""
    return first_of([batch.command("run", "--reprocess") for batch in batches], SHOWN)
