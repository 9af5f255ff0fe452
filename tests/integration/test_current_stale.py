"""A current table that may differ from its history is stale: publications leave it alone, until it is computed as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import types as t

from currents import CURRENT, Currents
from fencepost.errors import AnotherCluster, TableRefused
from fencepost.outputs.postgres.current_rebuild import rebuild
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.outputs.table.values import CurrentKeys
from rigs.postgres_server import PostgresServer

DEEP = pytest.mark.deep


@pytest.fixture
def currents(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Currents:
    return Currents(postgres, tmp_path / "customers", monkeypatch)


def rebuilt(currents: Currents) -> CurrentKeys:
    """What computing the current table as a whole changes."""
    output = currents.pipeline.output
    assert isinstance(output, PostgresSettings)
    assert output.current is not None
    return rebuild(currents.table, output.current)


def test_a_current_table_is_added_to_a_table_with_years_behind_it(currents: Currents) -> None:
    currents.configured(None)
    currents.publish(0, [(1, 10, False, "a"), (2, 11, False, "b")])
    currents.publish(1, [(1, 20, False, "newer"), (3, 21, True, "c")])
    currents.run("create index on changes (id, pos)")
    currents.configured(CURRENT)
    assert currents.publish(2, [(4, 30, False, "d")]) is None
    assert currents.there() == []
    assert currents.stale().startswith("it was not computed yet")
    keys = rebuilt(currents)
    assert (keys.deleted, keys.changed, keys.same) == (0, 3, 0)
    assert currents.there() == [(1, 20, "newer"), (2, 11, "b"), (4, 30, "d")] == currents.wanted()
    assert currents.stale() == ""
    assert currents.publish(1, []) is not None
    assert currents.there() == [(1, 10, "a"), (2, 11, "b"), (4, 30, "d")]


def test_a_rebuild_changes_only_what_differs(currents: Currents) -> None:
    currents.publish(0, [(n, n, n == 3, f"name {n}") for n in range(5)])
    currents.run(
        'update fencepost_tables set current = current || \'{"stale": "a test said so"}\' where current is not null'
    )
    currents.run("delete from customers where id = 1")
    currents.run("update customers set name = 'wrong' where id = 2")
    currents.run("insert into customers values (9, 9, 'nobody')")
    before = dict(currents.run("select id, xmin::text from customers"))
    keys = rebuilt(currents)
    assert (keys.deleted, keys.changed, keys.same) == (1, 2, 2)
    assert currents.there() == currents.wanted()
    after = dict(currents.run("select id, xmin::text from customers"))
    assert {n for n in after if before.get(n) == after[n]} == {0, 4}
    assert (rebuilt(currents).changed, currents.stale()) == (0, "")


def emptied(currents: Currents) -> str:
    currents.run("delete from changes where fencepost_interval < '2026-01-02Z'")
    return "table public.changes lacks rows of 1 published interval"


def partly_emptied(currents: Currents) -> str:
    """Rows of the very interval that is published next are gone: nobody would know that their keys are touched."""
    currents.run("delete from changes where fencepost_interval >= '2026-01-02Z' and id = 3")
    return "table public.changes lacks rows of 1 published interval"


def other_key(currents: Currents) -> str:
    currents.run("create unique index on customers (name)")
    currents.run("alter table customers drop constraint customers_pkey")
    currents.run("create index on changes (name, pos)")
    currents.configured(CURRENT | {"key": ["name"]})
    return "its columns, key, order_by or deleted have changed"


def not_deleted(currents: Currents) -> str:
    currents.configured({name: value for name, value in CURRENT.items() if name != "deleted"})
    currents.run("alter table customers add column gone boolean")
    return "its columns, key, order_by or deleted have changed"


def another_column(currents: Currents) -> str:
    for table in ("changes", "customers"):
        currents.run(f"alter table {table} add column note text default 'x'")
    return "its columns, key, order_by or deleted have changed"


def swapped(currents: Currents) -> str:
    currents.run("alter table customers rename to old; create table customers (like old including all)")
    return "it was replaced"


def history_swapped(currents: Currents) -> str:
    currents.run(
        "alter table changes rename to old; create table changes (like old including all); insert into changes select * from old"
    )
    return "table public.changes was replaced"


def without_it(currents: Currents) -> str:
    currents.configured(None)
    currents.publish(3, [(8, 8, False, "unseen")])
    currents.configured(CURRENT)
    return "a batch was published while output.current did not name it"


@pytest.mark.parametrize(
    "change",
    [
        emptied,
        partly_emptied,
        other_key,
        without_it,
        *(pytest.param(one, marks=DEEP) for one in (not_deleted, another_column, swapped, history_swapped)),
    ],
)
def test_what_may_make_it_differ_makes_it_stale_and_the_history_is_published_all_the_same(
    currents: Currents, change: Callable[[Currents], str]
) -> None:
    currents.publish(0, [(1, 10, False, "a"), (2, 11, False, "b")])
    currents.publish(1, [(1, 20, False, "newer"), (3, 21, False, "c")])
    why = change(currents)
    before = currents.there()
    assert currents.publish(1, [(5, 22, False, "e")]) is None
    assert currents.stale().startswith(why)
    assert currents.run("select id from changes where fencepost_interval = '2026-01-02Z'") == [(5,)], "it is published"
    assert currents.there() == before, "it is untouched"
    assert currents.publish(4, [(6, 30, False, "f")]) is None, "it stays stale"
    if change is emptied:
        with pytest.raises(
            TableRefused, match="does not have the rows that were published there: interval 20260101T000000Z"
        ):
            rebuilt(currents)
        currents.publish(0, [(1, 10, False, "a"), (2, 11, False, "b")])
    rebuilt(currents)
    assert currents.stale() == ""
    if change is not other_key:
        assert currents.run("select id from customers order by id") == currents.run(
            f"select id from (select distinct on (id) * from changes order by id, pos desc) as newest "
            f"where {'true' if change is not_deleted else 'gone is not true'} order by id"
        )
    assert currents.publish(5, [(7, 40, False, "g")]) is not None


def test_a_rebuild_names_what_has_no_order(currents: Currents) -> None:
    currents.configured(None)
    currents.publish(0, [(1, 10, False, "a"), (1, 10, False, "b"), (2, 1, False, "c"), (2, 1, False, "c")])
    currents.run("create index on changes (id, pos)")
    currents.configured(CURRENT)
    currents.publish(1, [])
    with pytest.raises(
        TableRefused, match="the output table has 1 row that a different row has the same id and the same pos as"
    ):
        rebuilt(currents)
    currents.run("update changes set id = null where name = 'b'")
    with pytest.raises(TableRefused, match="the output table has a null in column id"):
        rebuilt(currents)
    currents.run("update changes set id = 3 where name = 'b'")
    assert rebuilt(currents).changed == 3


def test_a_table_has_one_use_and_one_owner(currents: Currents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    currents.publish(0, [(1, 10, False, "a")])
    with monkeypatch.context() as patch:
        other = Currents(currents.server, tmp_path / "others", patch)
    other.store = currents.store
    other.configured(None, table="customers")
    with pytest.raises(
        TableRefused, match=r"public.customers is the current table of table public.changes. Name another"
    ):
        other.named("public.customers").prepare()
    other.configured({**CURRENT, "table": "customers"}, table="elsewhere")
    with pytest.raises(TableRefused, match=r"belongs to pipeline customers.*Name another output.current.table"):
        other.named("public.elsewhere").prepare()
    currents.configured(None, table="customers")
    with pytest.raises(
        TableRefused, match=r"public.customers is the current table of table public.changes. Name another"
    ):
        currents.named("public.customers").prepare()
    currents.configured({**CURRENT, "table": "changes"}, table="elsewhere")
    with pytest.raises(TableRefused, match=r"table public.changes is an output table of this pipeline"):
        currents.named("public.elsewhere").prepare()
    currents.run("update fencepost_tables set cluster = 'another' where name = 'public.customers'")
    currents.configured(CURRENT)
    with pytest.raises(AnotherCluster, match=r"name another output.current.table"):
        currents.named("public.changes").prepare()
    currents.named("public.changes").prepare(moved=True)
    assert currents.publish(1, [(1, 11, False, "b")]) is not None


def test_after_both_tables_were_emptied_for_a_new_start_it_is_not_stale(currents: Currents) -> None:
    currents.publish(0, [(1, 10, False, "a")])
    currents.run("drop table changes, customers; delete from fencepost_batches")
    currents.schema = {**currents.schema, "town": t.StringType()}
    assert currents.publish(0, [(1, 10, False, "a", "Rome")]) is not None
    assert currents.there() == [(1, 10, "a", "Rome")]
