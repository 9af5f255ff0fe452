"""Selects the rows that a page shows: filtered by state, sorted, and cut into pages. This module checks every parameter
of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Generic, Literal, TypeVar

from fencepost.model import State
from fencepost.protocol.snapshot import Row, Snapshot

PAGE_SIZES = (25, 50, 100)
TRENDS = (30, 90, 365)  # batches in a trend
AWAITING: Final = "awaiting"  # a filter beside the states: intervals that await a person

T = TypeVar("T")

# The sort key of each column. A missing value comes last in either direction.
SORTS: dict[str, Callable[[Row], Any]] = {
    "interval": lambda row: row.interval.start,
    "revision": lambda row: row.batch.revision,
    "rows_in": lambda row: row.batch.written.rows_in if row.batch.written else None,
    "rows": lambda row: row.batch.written.rows if row.batch.written else None,
    "unexpected": lambda row: row.telling.verdict.unexpected_rows if row.telling.verdict else None,
    "seconds": lambda row: row.seconds,
}


@dataclass(frozen=True)
class ListQuery:
    """The query of a request. An unknown value becomes the default."""

    state: State | Literal["awaiting"] | None = None
    sort: str = "interval"
    descending: bool = True
    size: int = 50
    page: int = 1

    @classmethod
    def of(cls, state: str, sort: str, order: str, size: int, page: int) -> ListQuery:
        """Returns the query in a query string."""
        return cls(
            state=AWAITING if state == AWAITING else State(state) if state in set(State) else None,
            sort=sort if sort in SORTS else "interval",
            descending=order != "asc",
            size=size if size in PAGE_SIZES else 50,
            page=max(page, 1),
        )

    def query(self, **changes: Any) -> str:
        """Returns the query string of this query with the changes. Any change except a change of the page leads to page
        1.
        """
        asked = {
            "state": self.state or "",
            "sort": self.sort,
            "order": "desc" if self.descending else "asc",
            "size": self.size,
            "page": self.page if not changes else 1,
            **changes,
        }
        default = {"state": "", "sort": "interval", "order": "desc", "size": 50, "page": 1}
        return "?" + "&".join(f"{k}={v}" for k, v in asked.items() if v != default[k])


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of many. `number` counts from 1."""

    items: Sequence[T]
    number: int
    pages: int
    total: int
    first: int  # number of the first item, counted from 1

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1


def cut(items: Sequence[T], page: int, size: int) -> Page[T]:
    """Returns the page of that number, or the last page if there are fewer pages."""
    pages = max(1, ceil(len(items) / size))
    number = min(max(page, 1), pages)
    begin = (number - 1) * size
    return Page(items[begin : begin + size], number, pages, len(items), begin + 1)


def page_of(snapshot: Snapshot, wish: ListQuery, awaiting: Collection[str] = ()) -> Page[Row]:
    """Returns the rows that a query selects. `awaiting` has the keys of rows that await a person."""
    rows: Sequence[Row] = snapshot.rows
    if wish.state == AWAITING:
        rows = [r for r in rows if r.key in awaiting]
    elif wish.state is not None:
        rows = [r for r in rows if wish.state in r.states]
    if wish.sort == "interval":  # the rows are in this order already
        rows = rows[::-1] if wish.descending else rows
    else:
        value = SORTS[wish.sort]
        known = [r for r in rows if value(r) is not None]
        known.sort(key=value, reverse=wish.descending)
        rows = known + [r for r in rows if value(r) is None]
    return cut(rows, wish.page, wish.size)
