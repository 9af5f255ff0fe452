"""A current table on a real PostgreSQL: after each commit it is `DISTINCT ON` over the history, whatever the commit brings.

Batches are published by the product's own commit, without Kafka (`currents.py`).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import types as t

from currents import CURRENT, Currents
from fencepost.errors import TableRefused
from fencepost.outputs.postgres.current import CurrentRefused, KeysRefused
from fencepost.outputs.postgres.refusals import refusal_of
from rigs.postgres_server import PostgresServer


@pytest.fixture
def currents(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Currents:
    return Currents(postgres, tmp_path / "customers", monkeypatch)


def test_the_newest_row_of_each_key_is_there(currents: Currents) -> None:
    keys = currents.publish(0, [(1, 10, False, "a"), (2, 11, False, "b"), (1, 12, False, "c")])
    assert currents.there() == [(1, 12, "c"), (2, 11, "b")]
    assert str(keys) == "current table public.customers: of 2 keys 0 deleted, 2 changed, 0 as before"
    keys = currents.publish(1, [(2, 20, True, "b"), (3, 21, False, "d"), (1, 5, False, "late")])
    assert currents.there() == [(1, 12, "c"), (3, 21, "d")]
    assert str(keys) == "current table public.customers: of 3 keys 1 deleted, 1 changed, 1 as before"
    assert currents.there() == currents.wanted()


def test_a_reprocess_brings_older_values_back_and_removes_keys_that_it_no_longer_has(currents: Currents) -> None:
    currents.publish(0, [(1, 10, False, "a"), (2, 11, False, "b")])
    currents.publish(1, [(1, 20, False, "newer"), (2, 21, True, "b"), (3, 22, False, "c")])
    assert currents.there() == [(1, 20, "newer"), (3, 22, "c")]
    keys = currents.publish(1, [(4, 23, False, "d")])
    assert currents.there() == [(1, 10, "a"), (2, 11, "b"), (4, 23, "d")]
    assert (keys.deleted, keys.changed, keys.same) == (1, 3, 0)  # type: ignore[union-attr]
    assert currents.publish(1, []).changed == 0  # type: ignore[union-attr]
    assert currents.there() == [(1, 10, "a"), (2, 11, "b")] == currents.wanted()


def test_a_reprocess_with_the_same_rows_changes_nothing(currents: Currents) -> None:
    rows = [(n, n, False, f"name {n}") for n in range(100)]
    currents.publish(0, rows)
    before = currents.run("select ctid::text, xmin::text, * from customers order by id")
    keys = currents.publish(0, rows)
    assert (keys.deleted, keys.changed, keys.same) == (0, 0, 100)  # type: ignore[union-attr]
    assert currents.run("select ctid::text, xmin::text, * from customers order by id") == before, "no row was written"


def test_a_replay_of_an_older_row_does_not_win_though_its_revision_is_newer(currents: Currents) -> None:
    currents.publish(0, [(1, 9, False, "newest"), (2, 3, True, "deleted")])
    currents.publish(0, [(1, 5, False, "replayed"), (2, 2, False, "before"), (3, 4, False, "new")], adds=True)
    assert currents.there() == [(1, 9, "newest"), (3, 4, "new")] == currents.wanted()
    currents.publish(0, [(1, 5, False, "replayed")])
    assert currents.there() == [(1, 5, "replayed")], "the revision has removed the batch and what was added to it"


def test_keys_of_several_columns_and_an_order_by_interval_and_position(currents: Currents) -> None:
    currents.configured(CURRENT | {"key": ["id", "name"], "order_by": ["fencepost_interval", "pos"], "deleted": None})
    currents.publish(1, [(1, 1, None, "x"), (1, 2, None, "y"), (2, 1, True, "x")])
    currents.publish(0, [(1, 100, None, "x"), (2, 100, None, "y")])
    columns = "id, name, pos, gone, extract(day from fencepost_interval at time zone 'UTC')::int"
    assert currents.run(f"select {columns} from customers order by 1, 2") == [
        (1, "x", 1, None, 2),
        (1, "y", 2, None, 2),
        (2, "x", 1, True, 2),
        (2, "y", 100, None, 1),
    ]


def test_rows_are_compared_by_image(currents: Currents) -> None:
    """A number of another scale, or -0 for 0, is another value, although `=` calls it the same."""
    currents.run(
        "create table changes (id int, pos bigint, amount numeric, share double precision, "
        "fencepost_interval timestamptz not null, fencepost_revision int not null)"
    )
    currents.schema = {
        "id": t.IntegerType(),
        "pos": t.LongType(),
        "amount": t.DecimalType(10, 2),
        "share": t.DoubleType(),
    }
    currents.configured(CURRENT | {"deleted": None})
    currents.publish(0, [(1, 5, 1, 0.0)])
    currents.run("update changes set amount = 1.00")
    assert currents.publish(1, [(1, 1, 7, 0.0)]).changed == 1  # type: ignore[union-attr]
    assert currents.run("select amount::text, share::text from customers") == [("1.00", "0")]
    assert currents.publish(1, [(1, 6, 1, -0.0)]).changed == 1  # type: ignore[union-attr]
    assert currents.run("select amount::text, share::text from customers") == [("1", "-0")]
    assert currents.publish(1, [(1, 6, 1, 0.0)]).changed == 1  # type: ignore[union-attr]
    assert currents.run("select amount::text, share::text from customers") == [("1", "0")]


def test_two_different_rows_of_one_key_and_one_order_refuse_the_batch(currents: Currents) -> None:
    currents.publish(0, [(1, 10, False, "a")])
    currents.publish(1, [(1, 10, False, "a"), (1, 10, False, "a")])  # the same row again is no other
    before = currents.run("select * from changes order by 1, 2, 3")
    for rows in ([(1, 10, False, "secret")], [(1, 10, True, "a")], [(2, 5, False, "secret"), (2, 5, False, "y")]):
        with pytest.raises(KeysRefused) as refused:
            currents.publish(2, rows)
        assert "that a different row has the same id and the same pos as" in str(refused.value)
        assert "secret" not in str(refused.value)
    assert currents.run("select * from changes order by 1, 2, 3") == before
    assert currents.there() == [(1, 10, "a")]
    currents.publish(0, [])
    currents.publish(1, [(1, 10, False, "b")])
    assert currents.there() == [(1, 10, "b")], "the other one is gone"


@pytest.mark.parametrize(("row", "column"), [((None, 1, False, "a"), "id"), ((1, None, False, "a"), "pos")])
def test_a_null_in_key_or_order_refuses_the_batch(currents: Currents, row: tuple[object, ...], column: str) -> None:
    with pytest.raises(KeysRefused, match=f"the batch has a null in column {column}, which is in key or order_by"):
        currents.publish(0, [(5, 5, False, "b"), row])
    assert currents.there() == []


def test_a_row_that_others_refer_to_stays_and_is_changed(currents: Currents) -> None:
    currents.publish(0, [(1, 1, False, "a"), (2, 2, False, "b")])
    currents.run("create table orders (id int primary key, customer int references customers)")
    currents.run("insert into orders values (7, 1)")
    currents.publish(1, [(1, 11, False, "changed"), (2, 12, True, "b")])
    assert currents.there() == [(1, 11, "changed")] == currents.wanted()
    with pytest.raises(CurrentRefused) as refused:
        currents.publish(2, [(1, 21, True, "changed")])
    with currents.session() as tx:
        said = refusal_of(tx, refused.value.oid, refused.value.failed, removing=refused.value.removing, is_current=True)
    assert said.why == (
        "rows of table public.orders refer to a key that the batch deletes, so it stays until they are removed (SQLSTATE 23503, "
        "constraint orders_customer_fkey)"
    )
    assert not said.of_rows, "it is the table's fault"
    assert currents.run("select count(*) from changes") == [(4,)], "nothing was committed"
    currents.run("delete from orders")
    currents.publish(2, [(1, 21, True, "changed")])
    assert currents.there() == []


def test_a_deferred_reference_to_a_deleted_key_is_refused_too(currents: Currents) -> None:
    currents.publish(0, [(1, 1, False, "a")])
    currents.run("create table orders (customer int references customers deferrable initially deferred)")
    currents.run("insert into orders values (1)")
    with pytest.raises(CurrentRefused):
        currents.publish(1, [(1, 11, True, "a")])
    assert currents.there() == [(1, 1, "a")]


@pytest.mark.parametrize(
    "body",
    [
        "before insert or update on customers for each row execute function act(); $$new.name := 'other'; return new;$$",
        "before update on customers for each row execute function act(); $$return null;$$",
        "before delete on customers for each row execute function act(); $$return null;$$",
    ],
)
def test_a_trigger_that_keeps_the_table_from_what_it_was_told_is_refused_by_name(currents: Currents, body: str) -> None:
    currents.publish(0, [(1, 1, False, "a"), (2, 2, False, "b")])
    when, _, does = body.partition("; ")
    currents.run(f"create function act() returns trigger language plpgsql as $f$begin {does.strip('$')} end$f$")
    currents.run(f"create trigger meddles {when}")
    with pytest.raises(
        TableRefused, match=r"current table public.customers has trigger meddles, and with them 1 key would"
    ):
        currents.publish(1, [(1, 11, False, "changed")] if "update" in body else [(1, 11, True, "a")])
    assert currents.there() == [(1, 1, "a"), (2, 2, "b")]


def test_new_columns_are_added_to_both_tables_and_the_current_table_is_not_stale(currents: Currents) -> None:
    currents.configured(CURRENT, add_columns=True)
    currents.publish(0, [(1, 1, False, "a"), (2, 2, False, "b")])
    currents.schema = {**currents.schema, "town": t.StringType()}
    currents.publish(1, [(2, 12, False, "b", "Rome")])
    assert currents.there() == [(1, 1, "a", None), (2, 12, "b", "Rome")]
    assert currents.stale() == ""
    currents.publish(2, [(1, 21, True, "a", None)])
    assert currents.there() == [(2, 12, "b", "Rome")]


def test_a_current_table_made_by_hand_may_have_columns_of_its_own(currents: Currents) -> None:
    currents.run(
        "create table customers (note text default 'mine', name text, id int primary key, pos bigint, "
        "length int generated always as (length(name)) stored, fencepost_revision int)"
    )
    currents.publish(0, [(1, 1, False, "abc")])
    currents.run("update customers set note = 'kept'")
    currents.publish(1, [(1, 2, False, "abcd"), (2, 3, False, "x")])
    assert currents.run("select * from customers order by id") == [
        ("kept", "abcd", 1, 2, 4, None),
        ("mine", "x", 2, 3, 1, None),
    ]


def test_a_publication_looks_its_keys_up_and_reads_no_whole_table(currents: Currents) -> None:
    """The server has no statistics of either table: it would rather join the keys with all of it."""
    currents.publish(0, [(0, 0, False, "first")])
    many = 200_000
    currents.run("insert into changes select n, n, false, 'x', '2025-12-01Z', 1 from generate_series(1, %s) as n", many)
    currents.run("insert into customers select n, n, 'x' from generate_series(1, %s) as n", many)
    before = rows_read(currents)
    keys = currents.publish(1, [(n * 40, many + n, n % 7 == 0, "changed") for n in range(1, 5_000)])
    assert (keys.deleted, keys.changed, keys.same) == (714, 4_285, 0)  # type: ignore[union-attr]
    assert rows_read(currents) - before < many / 2
    assert currents.is_right()


def rows_read(currents: Currents) -> int:
    """The rows of both tables that were read, by an index or without."""
    ((found,),) = currents.run(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables where relname in ('changes', 'customers')"
    )
    return int(found)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2))])
def test_after_each_of_many_random_commits_it_is_distinct_on_over_the_history(currents: Currents, seed: int) -> None:
    chance = random.Random(seed)
    published = set[int]()

    def row() -> tuple[object, ...]:
        position = chance.randrange(60)  # a key's rows of one position are the same
        key = chance.randrange(8)
        return (key, position, (key + position) % 4 == 0, f"{key}:{position}")

    for _ in range(25):
        day = chance.randrange(4)
        adds = day in published and chance.random() < 0.3
        currents.publish(day, [row() for _ in range(chance.randrange(9))], adds=adds)
        published.add(day)
        assert currents.there() == currents.wanted()
        assert currents.is_right()
    assert currents.stale() == ""
