"""Filter, order and page are the server's, over ten thousand batches as over ten."""

from __future__ import annotations

import pytest

from fencepost.model import State
from fencepost.pages.listing import ListQuery, cut, page_of
from fencepost.protocol.snapshot import Snapshot

from .ledgers import batch, hour, ledger, taken

MANY = 10_000
REJECTED = dict.fromkeys(range(5, MANY, 500), State.REJECTED)


@pytest.fixture(scope="module")
def many() -> Snapshot:
    return taken(ledger(MANY, REJECTED))


def test_the_newest_intervals_come_first(many: Snapshot) -> None:
    page = page_of(many, ListQuery())
    assert [row.key for row in page.items[:2]] == [str(hour(MANY - 1)), str(hour(MANY - 2))]
    assert (page.total, page.pages, page.first, page.last) == (MANY, 200, 1, 50)


def test_every_interval_is_on_exactly_one_page(many: Snapshot) -> None:
    seen = [row.key for n in range(1, 101) for row in page_of(many, ListQuery(size=100, page=n)).items]
    assert len(seen) == len(set(seen)) == MANY


def test_a_state_filters_all_pages(many: Snapshot) -> None:
    page = page_of(many, ListQuery(state=State.REJECTED))
    assert [row.key for row in page.items] == [str(hour(n)) for n in sorted(REJECTED, reverse=True)]


def test_a_page_beyond_the_last_is_the_last(many: Snapshot) -> None:
    assert page_of(many, ListQuery(page=9999)).number == 200
    assert cut([], 3, 50).total == 0


@pytest.mark.parametrize("descending", [True, False])
def test_a_missing_value_sorts_last_in_either_direction(descending: bool) -> None:
    snapshot = taken([batch(0, rows=40), batch(1, State.PLANNED), batch(2, rows=80)])
    rows = page_of(snapshot, ListQuery(sort="rows", descending=descending)).items
    assert [row.batch.written.rows if row.batch.written else None for row in rows] == (
        [80, 40, None] if descending else [40, 80, None]
    )


def test_an_unknown_wish_is_the_default_one() -> None:
    assert ListQuery.of("<b>", "__class__", "sideways", 7, -4) == ListQuery()


def test_another_filter_or_order_begins_at_the_first_page_and_keeps_the_rest() -> None:
    wish = ListQuery.of("rejected", "rows", "asc", 100, 7)
    assert wish.query(state="") == "?sort=rows&order=asc&size=100"
    assert wish.query(page=8) == "?state=rejected&sort=rows&order=asc&size=100&page=8"
