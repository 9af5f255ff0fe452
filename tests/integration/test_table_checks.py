"""Which tables may be published to, asked of a real PostgreSQL: each reason against one, and the statement that cures it."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg2
import pytest

from fencepost.errors import TableUnavailable
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.table_checks import why_not_owned
from fencepost.postgres.connection import session
from rigs.postgres_server import PostgresServer
from tables import MINE, Database

OWN = "fencepost_interval timestamptz, fencepost_revision integer"
TABLE = f"create table orders (id integer primary key, {OWN})"
KEYLESS = f"create table orders (id integer, {OWN})"
PARTED = (
    f"create table orders (id integer, {OWN}) partition by range (id);"
    "create table first partition of orders for values from (0) to (9);"
)


DEEP = pytest.mark.deep


def one_in_make_test(first: tuple[Any, ...], *others: tuple[Any, ...]) -> list[Any]:
    """The cases, of which all but the first are of `make test-all`."""
    return [first, *(pytest.param(*other, marks=DEEP) for other in others)]


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return Database(postgres)


@pytest.mark.parametrize(
    ("statements", "why"),
    one_in_make_test(
        ("create view orders as select 1 as n", "it is a view, and only ordinary or partitioned tables can be outputs"),
        ("create materialized view orders as select 1 as n with no data", "it is a materialized view"),
        ("create sequence orders", "it is a sequence"),
        (TABLE.replace("table", "unlogged table"), 'it is unlogged.*: ALTER TABLE public.orders SET LOGGED'),
        (PARTED + "alter table first set unlogged", "its part public.first is unlogged.*ALTER TABLE public.first SET LOGGED"),
        (
            f"create schema \"De'ep\"; {PARTED} create table \"De'ep\".second partition of orders for values from (10) to (19) "
            "partition by range (id); create unlogged table \"De'ep\".leaf partition of \"De'ep\".second default",
            "its part \"De'ep\".leaf is unlogged",
        ),
        (TABLE + "; create unlogged table child () inherits (orders)", "its part public.child is unlogged"),
    ),
)  # fmt: skip
def test_what_does_not_keep_rows_is_refused_by_name(database: Database, statements: str, why: str) -> None:
    database.run(statements)
    (found,) = database.why_not()
    assert re.search(why, found)
    if "SET LOGGED" in found:
        database.run(found.split(": ", 1)[1])
        assert database.why_not() == []


def test_a_foreign_table_is_refused_as_the_table_and_as_a_part(database: Database) -> None:
    database.as_superuser(
        "create foreign data wrapper elsewhere; create server there foreign data wrapper elsewhere;"
        f"{PARTED} create foreign table far partition of orders for values from (10) to (19) server there"
    )
    database.as_superuser(f"alter table orders owner to {database.settings['user']}")
    (why,) = database.why_not()
    assert why == "its part public.far is a foreign table, which commits by itself. Detach it"
    database.as_superuser("drop table orders; create foreign table orders (n int) server there")
    assert database.owned() == ["it is a foreign table, and only ordinary or partitioned tables can be outputs"]


@DEEP
def test_a_temporary_child_of_another_session_is_no_part(database: Database) -> None:
    database.run(TABLE)
    with psycopg2.connect(**database.settings) as other, other.cursor() as cursor:
        cursor.execute("create temporary table child () inherits (orders)")
        other.commit()
        assert database.why_not() == []


@pytest.mark.parametrize(
    ("statements", "theirs", "attach", "detach", "why"),
    one_in_make_test(
        (
            f"{PARTED}",
            "public.first",
            "",
            "alter table orders detach partition first",
            "table public.first is a part of it, and belongs to pipeline theirs",
        ),
        (
            f"create table parent (id integer, {OWN}) partition by range (id); create table orders (id integer, {OWN})",
            "public.parent",
            "alter table parent attach partition orders default",
            "alter table parent detach partition orders",
            "it is a part of table public.parent, and belongs to pipeline theirs",
        ),
        (
            f"{KEYLESS}; create schema other; create table other.child (id integer, {OWN})",
            "other.child",
            "alter table other.child inherit orders",
            "alter table other.child no inherit orders",
            "table other.child is a part of it, and belongs to pipeline theirs",
        ),
        (
            f"create table middle (id integer, {OWN}) partition by range (id); create table leaf (id integer, {OWN});"
            f"create table orders (id integer, {OWN}) partition by range (id);"
            "alter table orders attach partition middle default",
            "public.leaf",
            "alter table middle attach partition leaf default",
            "drop table leaf",
            "table public.leaf is a part of it, and belongs to pipeline theirs",
        ),
    ),
)
def test_a_table_and_a_part_of_it_have_one_owner_also_where_it_is_attached_later(
    database: Database, statements: str, theirs: str, attach: str, detach: str, why: str
) -> None:
    database.run(statements)
    database.prepare()
    database.prepare(theirs, "theirs")
    if attach:
        assert database.why_not() == []
        database.run(attach)
    (found,) = database.why_not()
    assert found.startswith(why)
    assert database.owned() == [found], "so it is refused before it is registered"
    database.run(detach)
    assert database.why_not() == []


def test_a_part_that_is_the_same_pipelines_on_another_cluster_is_refused(database: Database) -> None:
    database.run(PARTED)
    database.prepare()
    database.prepare("public.first", cluster="there")
    assert database.why_not()[0].startswith(
        "table public.first is a part of it, and belongs to pipeline mine on Kafka cluster there"
    )


@DEEP
def test_a_table_that_is_gone_by_now_is_looked_for_again(database: Database) -> None:
    with session(database.config) as tx, pytest.raises(TableUnavailable, match="created again meanwhile"):
        why_not_owned(tx, 1, MINE)


@DEEP
def test_a_table_of_fenceposts_own_that_a_crash_would_empty_is_named(database: Database) -> None:
    database.prepare()
    database.run("alter table fencepost_batches set unlogged")
    with session(database.config) as tx:
        why = Bookkeeping(tx, "public.orders").why_not_kept()
    assert why.startswith("table public.fencepost_batches: it is unlogged, and empty after a crash of the server: ")
    database.run(why.split(": ")[2])
    with session(database.config) as tx:
        assert Bookkeeping(tx, "public.orders").why_not_kept() == ""


def test_rows_at_times_that_no_interval_has_are_counted_as_rows_without_one(database: Database) -> None:
    """As somebody else may write them; Python has no such times."""
    database.run(TABLE)
    database.prepare()
    database.run(
        "insert into orders values (1, 'infinity', 1), (2, '-infinity', 1), (3, '10000-01-01Z', 1), (4, '0001-01-01 BC', 1), "
        "(5, null, 1), (6, '2026-01-01Z', 1)"
    )
    with session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        oid = store.oid()
        assert oid is not None
        assert [(one.start, one.has) for one in store.differences()] == [
            (datetime(2026, 1, 1, tzinfo=UTC), {"1": 1}),
            (None, {"1": 5}),
        ]
        assert store.filled(oid) == {datetime(2026, 1, 1, tzinfo=UTC)}
    database.run("create index on orders (fencepost_interval)")
    with session(database.config) as tx:
        assert Bookkeeping(tx, "public.orders").filled(oid) == {datetime(2026, 1, 1, tzinfo=UTC)}


@DEEP
def test_partitions_beside_each_other_may_have_different_owners(database: Database) -> None:
    database.run(
        f"create table parent (id integer, {OWN}) partition by range (id);"
        "create table orders partition of parent for values from (0) to (9);"
        "create table other partition of parent default"
    )
    database.prepare()
    database.prepare("public.other", "theirs")
    assert database.why_not() == []


@DEEP
def test_an_owner_in_a_schema_that_cannot_be_read_is_asked_for(database: Database) -> None:
    database.as_superuser(
        f"create schema hidden; create table hidden.fencepost_tables (name text, pipeline text); {KEYLESS};"
        f"create table hidden.child () inherits (orders); alter table orders owner to {database.settings['user']}"
    )
    (why,) = database.why_not()
    assert why.endswith('GRANT SELECT ON "hidden"."fencepost_tables"')


CASCADE = "on delete cascade"
NOTES = "create table notes (order_id integer default 7 constraint refers references orders {})"
CASCADES = "rows of table public.notes refer to its rows with ON DELETE CASCADE \\(constraint refers\\)"


@pytest.mark.parametrize(
    ("statements", "why"),
    one_in_make_test(
        (f"{TABLE}; {NOTES.format(CASCADE)}", CASCADES),
        (f"{TABLE}; {NOTES.format('on delete cascade deferrable initially deferred')}", CASCADES),
        (f"{TABLE}; {NOTES.format('on update cascade on delete set null')}", "ON DELETE SET NULL"),  # noqa: S608
        (f"{TABLE}; {NOTES.format('on delete set default')}", "ON DELETE SET DEFAULT"),
        (f"{TABLE}; {NOTES.format('match full on delete set null')}", "ON DELETE SET NULL"),
        (f"{TABLE}; {NOTES.format(CASCADE).replace('table notes (', 'table notes (id integer primary key, ')}", CASCADES),
        (f"{TABLE}; alter table orders add parent integer constraint refers references orders {CASCADE}", "public.orders"),
        (
            f"{PARTED.replace('id integer,', 'id integer primary key,')} {NOTES.format(CASCADE)} "
            "partition by list (order_id); create table some_notes partition of notes default",
            CASCADES,
        ),
        (
            f"{PARTED} alter table first add primary key (id); {NOTES.format(CASCADE).replace('orders', 'first')}",
            CASCADES,
        ),
        (
            f"create table parent (id integer primary key, {OWN}) partition by range (id);"
            f"create table orders partition of parent default; {NOTES.format(CASCADE).replace('orders', 'parent')}",
            CASCADES,
        ),
    ),
)  # fmt: skip
def test_rows_that_would_change_with_the_rows_that_are_removed_are_refused_unless_the_settings_allow_it(
    database: Database, statements: str, why: str
) -> None:
    database.run(statements)
    (found,) = database.why_not()
    assert re.search(why, found)
    assert database.why_not(allow=True) == []
    match = re.search(r"ALTER TABLE .* DEFERRABLE INITIALLY DEFERRED", found)
    assert match is not None
    database.run(match[0])
    assert database.why_not() == []
    assert database.doubts() == []


@pytest.mark.parametrize(
    "rule",
    ["", *(pytest.param(rule, marks=DEEP) for rule in ("on delete restrict", "deferrable", "on update cascade"))],
)
def test_rows_that_others_refer_to_are_a_doubt_with_the_statement_that_cures_it(database: Database, rule: str) -> None:
    database.run(f"{TABLE}; {NOTES.format(rule)}")
    database.run("insert into orders values (1); insert into notes values (1)")
    assert database.why_not() == []
    ((doubt, cure),) = database.doubts()
    assert "rows of table public.notes refer to its rows (constraint refers)" in doubt
    database.run(cure)
    assert database.doubts() == []
    database.run("delete from orders; insert into orders values (1)")
    assert database.run("select * from notes") == [(1,)]


@pytest.mark.parametrize(
    ("statements", "publication", "cures"),
    one_in_make_test(
        (KEYLESS, "for all tables", 1),
        (KEYLESS, "for table orders with (publish = 'delete')", 1),
        (KEYLESS, "for tables in schema public", 1),
        (f"{TABLE}; alter table orders replica identity nothing", "for all tables", 1),
        (TABLE.replace("key", "key deferrable"), "for all tables", 1),
        (PARTED, "for all tables", 1),
        (PARTED, "for table orders with (publish_via_partition_root)", 1),
        (PARTED + "create table second partition of orders default", "for table first", 1),
        (PARTED + "create table second partition of orders default", "for table orders", 2),
        (f"{KEYLESS}; create table child () inherits (orders)", "for table orders", 2),
        (TABLE, "for table orders where (fencepost_revision > 1)", 1),
    ),
)
def test_a_table_whose_removals_are_published_needs_an_identity_and_the_statement_is_named(
    database: Database, statements: str, publication: str, cures: int
) -> None:
    database.run(statements)
    assert database.why_not() == []
    database.as_superuser(f"create publication everything {publication}")
    (found,) = database.why_not()
    cure = re.findall(r"ALTER TABLE \S+ REPLICA IDENTITY FULL", found)
    assert len(cure) >= cures
    database.run("; ".join(cure))
    assert database.why_not() == []
    database.run("delete from orders")


@pytest.mark.parametrize(
    ("statements", "publication"),
    one_in_make_test(
        (TABLE, "for all tables"),
        (KEYLESS, "for all tables with (publish = 'insert')"),
        (KEYLESS, "for table orders with (publish = 'insert, update, truncate')"),
        (f"{KEYLESS}; create table other (n int)", "for table other"),
        (TABLE, "for table orders (id)"),
        (f"{KEYLESS}; alter table orders replica identity full", "for all tables"),
    ),
)
def test_a_table_that_is_published_needs_no_more_than_the_server_asks_for(
    database: Database, statements: str, publication: str
) -> None:
    database.run(statements)
    database.as_superuser(f"create publication everything {publication}")
    assert database.why_not() == []
    database.run("delete from orders")


BY_INTERVAL = (
    f"create table orders (id integer, {OWN}) partition by range (fencepost_interval);"
    "create table first partition of orders for values from ('2026-01-01Z') to ('2026-01-02Z');"
    "create table second partition of orders for values from ('2026-01-02Z') to ('2026-01-03Z');"
)


def test_a_publication_asks_for_and_waits_for_the_partition_of_its_interval_alone(database: Database) -> None:
    """A table may have more partitions than the server has locks, and one that is repaired or archived is locked for long."""
    database.run(BY_INTERVAL)
    database.as_superuser("create publication everything for all tables")
    database.run("alter table second replica identity full")
    first, second = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))
    assert "ALTER TABLE public.first REPLICA IDENTITY FULL" in database.why_not(start=first)[0]
    with closing(psycopg2.connect(**database.settings)) as other, other.cursor() as cursor:
        cursor.execute("lock table first in access exclusive mode")
        assert database.why_not(start=second) == []
        with session(database.config, wait=0.5) as tx:
            Bookkeeping(tx, "public.orders").lock_table()


@DEEP
def test_of_many_parts_without_an_identity_some_are_named_and_the_others_counted(database: Database) -> None:
    parts = (f"create table p{n} partition of orders for values from ({n}) to ({n + 1})" for n in range(10, 16))
    database.run(PARTED + ";".join(parts))
    database.as_superuser("create publication everything for all tables")
    assert database.why_not()[0].endswith("; and the same for 2 more of its parts")


@DEEP
def test_a_column_list_that_lacks_the_identity_is_named(database: Database) -> None:
    database.run(TABLE)
    database.as_superuser("create publication everything for table orders (fencepost_revision)")
    (found,) = database.why_not()
    assert "but not with all columns of the replica identity" in found
    assert "publish = 'insert'" in found


@DEEP
def test_a_table_of_fenceposts_own_that_lost_its_key_is_named(database: Database) -> None:
    database.run(TABLE)
    database.prepare()
    database.run("alter table fencepost_batches drop constraint fencepost_batches_pkey")
    database.as_superuser("create publication everything for all tables")
    (found,) = database.why_not()
    assert 'ALTER TABLE "public"."fencepost_batches" REPLICA IDENTITY FULL' in found


def test_a_table_that_is_made_is_published_to_whatever_publications_take_it(database: Database) -> None:
    database.as_superuser("create publication everything for all tables")
    database.prepare()
    with session(database.config) as tx:
        Bookkeeping(tx, "public.orders").create(f"n integer, {OWN}")
        tx.commit()
    assert database.why_not() == []
    database.run("insert into orders values (1); delete from orders")


@DEEP
def test_a_trigger_of_the_login_that_refuses_says_nothing_of_a_row(database: Database) -> None:
    database.as_superuser(
        "create function refuse() returns event_trigger language plpgsql as $$ begin if session_user <> 'postgres' then "
        "raise exception 'not for someone@example.com' using detail = 'someone@example.com'; end if; end $$;"
        "create event trigger refuse on login execute function refuse()"
    )
    with pytest.raises(TableUnavailable, match="a trigger of the server refused the session") as raised:
        database.why_not()
    assert "someone" not in str(raised.value)


@DEEP
def test_who_may_not_remove_rows_is_not_asked_what_the_server_would_refuse(database: Database) -> None:
    """Rights are a check of their own, and `fencepost try` may have a login that only reads."""
    database.as_superuser(f"{KEYLESS}; create publication everything for all tables")
    database.as_superuser(f"grant select on orders to {database.settings['user']}")
    assert database.why_not() == []
