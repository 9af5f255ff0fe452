"""Which tables can have, or be, a current table, asked of a real PostgreSQL; and the statement that cures each reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import types as t

from conftest import day
from currents import Currents
from fencepost.errors import AccessDenied, TableRefused
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.current import CurrentTable
from fencepost.outputs.postgres.current_checks import has_index, why_not_columns
from fencepost.outputs.postgres.settings import CurrentSettings
from rigs.postgres_server import PostgresServer

DEEP = pytest.mark.deep
OWN = "fencepost_interval timestamptz not null, fencepost_revision integer not null"
HISTORY = f"create table changes (id integer, pos bigint, gone boolean, name text, {OWN})"
TABLE = "create table customers (id integer primary key, pos bigint, name text)"
IN_C = TABLE.replace("name text", 'name text collate "C"')
SETTINGS = CurrentSettings(table="public.customers", key=("id",), order_by=("pos",), deleted="gone")


@pytest.fixture
def currents(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Currents:
    return Currents(postgres, tmp_path / "customers", monkeypatch)


def why_not(currents: Currents, *, add: bool = False) -> list[str]:
    """Asked in a transaction that cannot write, as `fencepost try` does."""
    with currents.session() as tx:
        tx.run("SET TRANSACTION READ ONLY")
        current = CurrentTable(Bookkeeping(tx, "public.changes"), SETTINGS, currents.table.owner)
        return current.why_not() or current.why_not_rows(currents.columns, adds=add)


REASONS = [
    (f"{HISTORY} partition by range (pos)", "output table public.changes has parts (partitions)", ""),
    (f"{HISTORY}; create table child () inherits (changes)", "output table public.changes has parts (public.child)", ""),
    (
        f"{HISTORY}; insert into changes values (1, 1, false, 'a', now(), 1)",
        "has rows and no index on key and order",
        'CREATE INDEX CONCURRENTLY ON "public"."changes" ("id", "pos")',
    ),
    (f"{HISTORY}; create view customers as select 1 as id", "it is a view, and only an ordinary table", ""),
    (f"{HISTORY}; {TABLE} partition by range (id)", "it is partitioned, and only an ordinary table", ""),
    (f"{HISTORY}; {TABLE}; create table child () inherits (customers)", "it is a table with parts (public.child)", ""),
    (
        f"{HISTORY}; create table all_customers (id integer primary key, pos bigint, name text) partition by range (id); "
        "create table customers partition of all_customers default",
        "it is a part of another table",
        "",
    ),
    (f"{HISTORY}; {TABLE.replace('table', 'unlogged table')}", "it is unlogged", "ALTER TABLE public.customers SET LOGGED"),
    (
        f"{HISTORY}; {TABLE.replace(' primary key', '')}",
        "it has no unique key on id",
        'ALTER TABLE "public"."customers" ADD PRIMARY KEY ("id")',
    ),
    (
        f"{HISTORY}; {TABLE}; create unique index by_name on customers (name)",
        "index by_name is unique on other columns than the key",
        'DROP INDEX "public"."by_name"',
    ),
    (
        f"{HISTORY}; {TABLE}; alter table customers add constraint apart exclude using btree (name with =)",
        "index apart is unique on other columns than the key",
        "alter table customers drop constraint apart",
    ),
    (
        f"{HISTORY}; {TABLE}; create unique index apart on customers (id) where name = 'x'; "
        "create unique index on customers (lower(name))",
        "index apart is unique on other columns than the key.*index customers_lower_idx is unique",
        "drop index apart, customers_lower_idx",
    ),
    (
        f"{HISTORY}; {TABLE}; create table towns (name text primary key); "
        "alter table customers add constraint of_town foreign key (name) references towns",
        "its constraint of_town refers to table public.towns",
        'ALTER TABLE "public"."customers" DROP CONSTRAINT "of_town"',
    ),
    (
        f"{HISTORY}; {TABLE}; create table orders (customer integer references customers on delete cascade)",
        "rows of table public.orders refer to its rows with ON DELETE CASCADE (constraint orders_customer_fkey)",
        'ALTER TABLE public.orders DROP CONSTRAINT "orders_customer_fkey", ADD CONSTRAINT "orders_customer_fkey" FOREIGN KEY '
        "(customer) REFERENCES customers(id) DEFERRABLE INITIALLY DEFERRED",
    ),
    (
        f"{HISTORY}; {TABLE}; create table orders (customer integer references customers on delete set null)",
        "ON DELETE SET NULL (constraint orders_customer_fkey)",
        "drop table orders",
    ),
    (
        f"{HISTORY}; {TABLE.replace(', name text', '')}",
        "it has no column name",
        'ALTER TABLE "public"."customers" ADD COLUMN "name" text',
    ),
    (
        f"{HISTORY}; {TABLE.replace('pos bigint', 'pos numeric')}",
        "column pos is numeric, and in table public.changes it is bigint",
        "alter table customers alter column pos type bigint using pos::bigint",
    ),
    (
        f"{HISTORY}; {IN_C}",
        "column name is text C, and in table public.changes it is text default",
        "alter table customers alter column name type text",
    ),
    (
        f"{HISTORY}; {TABLE.replace('name text', 'name text, town text not null')}",
        "column town may not be null and has no default",
        'ALTER TABLE "public"."customers" ALTER COLUMN "town" DROP NOT NULL',
    ),
    (
        f"{HISTORY.replace('pos bigint', 'pos text')}",
        "column pos of output.current.order_by is text in table public.changes",
        "alter table changes alter column pos type bigint using pos::bigint",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("statements", "why", "cure"), [*REASONS[:4], *(pytest.param(*one, marks=DEEP) for one in REASONS[4:])]
)
def test_each_reason_is_named_with_its_cure(currents: Currents, statements: str, why: str, cure: str) -> None:
    currents.run(statements)
    said = "; ".join(why_not(currents))
    assert re.search(why if ".*" in why else re.escape(why), said)
    if cure:
        if cure[0].isupper():
            assert cure in said
        for statement in cure.split("; "):
            currents.run(statement)
        assert why_not(currents) == []


def test_a_table_that_hides_rows_is_refused(currents: Currents) -> None:
    currents.run(f"{HISTORY}; {TABLE}; alter table customers enable row level security, force row level security")
    assert "row level security of" in why_not(currents)[0]


def test_a_table_whose_updates_are_replicated_without_an_identity_is_refused(currents: Currents) -> None:
    currents.run(f"{HISTORY}; create table customers (id integer not null, pos bigint, name text, unique (id))")
    currents.server.run("create publication everything for table customers", dbname=currents.store["dbname"])
    (why,) = why_not(currents)
    cure = "ALTER TABLE public.customers REPLICA IDENTITY FULL"
    assert why.startswith('the DELETEs of "public"."customers" are published by logical replication')
    assert why.endswith(cure)
    currents.run(cure)
    assert why_not(currents) == []


@pytest.mark.parametrize(
    ("index", "found"),
    [
        ("(id, pos)", True),
        ("(id desc, pos desc)", True),
        ("(id, pos, name)", True),
        ("(id, pos) include (name)", True),
        ("(id, pos desc nulls last)", False),
        ("(id, pos nulls first)", False),
        ("(id, name, pos)", False),
        ("(pos, id)", False),
        ("(id)", False),
        ("(id) include (pos)", False),
        ("(id, pos) where not gone", False),
        ("((id + 1), pos)", False),
        ("using brin (id, pos)", False),
    ],
)
def test_only_an_index_that_gives_the_newest_row_of_a_key_counts(currents: Currents, index: str, found: bool) -> None:
    currents.run(HISTORY)
    method, _, columns = index.rpartition(" (") if index.startswith("using") else ("", "", index)
    currents.run(f"create index on changes {method} {'(' + columns if method else columns}")
    with currents.session() as tx:
        oid = Bookkeeping(tx, "public.changes").oid()
        assert oid is not None
        assert has_index(tx, oid, SETTINGS) is found


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"id": t.IntegerType(), "pos": t.LongType()}, "output.current.deleted names column gone, which the transform does not"),
        ({"pos": t.LongType(), "gone": t.BooleanType()}, "output.current.key names column id"),
        ({"id": t.DoubleType(), "pos": t.LongType(), "gone": t.BooleanType()}, "key column id is of type double, whose values"),
        ({"id": t.ArrayType(t.StringType()), "pos": t.LongType(), "gone": t.BooleanType()}, "key column id is of type array"),
        ({"id": t.StringType(), "pos": t.StringType(), "gone": t.BooleanType()}, "column pos of output.current.order_by is"),
        ({"id": t.StringType(), "pos": t.FloatType(), "gone": t.BooleanType()}, "column pos of output.current.order_by is"),
        ({"id": t.StringType(), "pos": t.DecimalType(38, 0), "gone": t.StringType()}, "column gone of output.current.deleted is"),
        ({"id": t.StringType(), "pos": t.TimestampType(), "gone": t.BooleanType()}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_result_has_the_columns_of_key_and_order_with_types_that_order(
    columns: dict[str, t.DataType], why: str
) -> None:
    found = why_not_columns(SETTINGS, t.StructType([t.StructField(name, kind) for name, kind in columns.items()]))
    assert len(found) == bool(why)
    assert why in "; ".join(found)


def test_plan_try_write_and_publication_refuse_in_the_same_words(currents: Currents) -> None:
    currents.run(f"{HISTORY}; {TABLE}; create unique index by_name on customers (name)")
    shape, why = (
        currents.shape,
        r"pipeline customers: current table public.customers cannot be kept: index by_name is unique",
    )
    with pytest.raises(TableRefused, match=why):
        shape.prepare()
    with pytest.raises(TableRefused, match=why):
        shape.would_take(day(1), currents.columns)
    with pytest.raises(TableRefused, match=why):
        shape.check_result(day(1), currents.columns)
    currents.run("drop index by_name")
    batch = currents.batch(0, [(1, 1, False, "a")])
    currents.publish(1, [])
    currents.run("create unique index by_name on customers (name)")
    with pytest.raises(TableRefused, match=why):
        currents.commit(batch)
    currents.run("drop index by_name")
    currents.commit(batch)
    assert currents.there() == [(1, 1, "a")]


def test_the_index_of_an_empty_history_is_made(currents: Currents) -> None:
    currents.run(HISTORY)
    assert currents.publish(0, [(1, 1, False, "a")]) is not None
    made = currents.run("select indexdef from pg_indexes where tablename = 'changes'")
    assert made == [("CREATE INDEX changes_id_pos_idx ON public.changes USING btree (id, pos)",)]


def test_a_user_without_temporary_tables_is_told_which_right_is_missing(currents: Currents) -> None:
    name = currents.store["dbname"]
    currents.publish(0, [(1, 1, False, "a")])
    currents.server.run(f"revoke temporary on database {name} from public, {name}")
    with pytest.raises(AccessDenied, match="fencepost acls"):
        currents.publish(1, [(1, 2, False, "b")])
    (needed, *_) = currents.pipeline.output.grants(currents.pipeline, reader=False)
    granted = [one for one in needed[1] if "DATABASE" in one or "customers" in one]
    assert granted == [
        f'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "public"."customers" TO "{name}";',
        f'GRANT TEMPORARY ON DATABASE "{name}" TO "{name}";',
    ]
    currents.server.run(granted[1])
    assert currents.publish(1, [(1, 2, False, "b")]) is not None
