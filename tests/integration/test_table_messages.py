"""What is said of a table that does not fit, or that refuses a row, on a real PostgreSQL: it is true, and its advice runs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest
from pyspark.sql import types as t

from fencepost.findings import Level
from fencepost.model import State
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.columns import column_differences
from fencepost.outputs.postgres.doctor import check_table
from fencepost.outputs.postgres.output import PostgresTable
from fencepost.outputs.postgres.refusals import Refusal, refusal_of
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.outputs.postgres.values import PostgresOutput, PostgresPublication
from fencepost.outputs.table.comparison import TableComparison
from fencepost.postgres.connection import StatementFailed, session
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_plan, a_receipt, a_topic, a_written
from rigs.postgres_server import PostgresServer
from tables import Database

DEEP = pytest.mark.deep
OWN = "fencepost_interval timestamptz, fencepost_revision integer"


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return Database(postgres)


def refused(database: Database, *statements: str, removing: bool = False, record: str = "") -> Refusal:
    """What the last of these statements is refused for, as a publication tells it."""
    failed = None
    with session(database.config) as tx:
        for statement in statements:
            try:
                tx.run(statement)
            except StatementFailed as error:
                failed = error
                break
    assert failed is not None
    with session(database.config) as tx:
        oid = Bookkeeping(tx, "public.orders").oid()
        assert oid is not None
        return refusal_of(tx, oid, failed, removing=removing, record=record)


def without_partition(database: Database, *days: int) -> list[int]:
    """The days of January whose intervals no partition takes."""
    with session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        oid = store.oid()
        assert oid is not None
        starts = [datetime(2026, 1, day, tzinfo=UTC) for day in days]
        return sorted(start.day for start in store.without_partition(oid, starts))


def test_a_row_without_a_partition_is_told_with_the_partitions_that_are_missing(database: Database) -> None:
    database.run(f"create table orders (id integer, land text, {OWN}) partition by list (land)")
    why = refused(database, "insert into orders values (1, 'secret')")
    assert why.why == (
        "no partition of table public.orders, which is partitioned by LIST (land), takes a row of the batch (SQLSTATE 23514): "
        "create the missing partition, or a DEFAULT one"
    )
    assert not why.of_rows
    database.run(
        "create table \"some Lands\" partition of orders for values in ('AT') partition by range (id); "
        'create table first partition of "some Lands" for values from (0) to (9)'
    )
    why = refused(
        database, "insert into orders values (77, 'AT')", record="the record in topic staging, partition 0, offset 7"
    )
    assert 'no partition of table public."some Lands", which is partitioned by RANGE (id), takes' in why.why
    assert (
        "(SQLSTATE 23514), of the record in topic staging, partition 0, offset 7: create the missing partition"
        in why.why
    )
    database.run('create table rest partition of "some Lands" default')
    database.run("insert into orders values (77, 'AT')")


def test_what_a_trigger_raises_is_not_told_as_a_missing_partition_where_none_can_be_missing(database: Database) -> None:
    database.run(
        f"create table orders (id integer, {OWN}) partition by list (id); create table rest partition of orders default;"
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '23514', "
        "schema = 'public', table = 'orders'; end $$;"
        "create trigger refuse before insert on orders for each statement execute function refuse()"
    )
    why = refused(database, "insert into orders values (1)")
    assert (why.why, why.of_rows) == ("a row that fails a check (SQLSTATE 23514)", True)


def test_a_table_that_is_a_partition_is_told_with_its_bounds(database: Database) -> None:
    database.run(
        f"create table everything (id integer, {OWN}) partition by range (id);"
        "create table orders partition of everything for values from (0) to (9)"
    )
    why = refused(database, "insert into orders values (77)")
    assert why.why == (
        "a row outside of table public.orders, a partition with the bounds FOR VALUES FROM (0) TO (9) (SQLSTATE 23514)"
    )
    assert why.of_rows


NOTES = "create table notes (order_id integer constraint refers references orders {})"
REMOVES = """create function replace() returns trigger language plpgsql as $$
begin delete from orders where id = new.id; return new; end $$;
create trigger replace before insert on orders for each row execute function replace()"""


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (
            "on delete restrict",
            "a trigger removes or changes a row that rows of table public.notes refer to by a foreign key",
        ),
        pytest.param("", "rows of table public.notes refer to a value that the table would not have", marks=DEEP),
    ],
)
def test_a_reference_that_a_trigger_breaks_is_not_told_as_a_value_that_the_batch_lacks(
    database: Database, rule: str, why: str
) -> None:
    database.run(f"create table orders (id integer primary key, {OWN}); {NOTES.format(rule)}")
    database.run(f"insert into orders values (1); insert into notes values (1); {REMOVES}")  # noqa: S608
    told = refused(database, "insert into orders values (1)")
    assert why in told.why
    assert "constraint refers" in told.why
    assert "batch does not have" not in told.why


def test_a_row_that_refers_to_another_of_its_own_table_lacks_the_value_itself(database: Database) -> None:
    database.run(
        f"create table orders (id integer primary key, {OWN}, parent integer constraint above references orders)"
    )
    told = refused(database, "insert into orders (id, parent) values (1, 7)")
    assert told.why == "a value that the referenced table does not have (SQLSTATE 23503, constraint above)"


@DEEP
def test_a_reference_is_told_by_its_own_table_where_two_have_a_key_of_the_same_name(database: Database) -> None:
    database.run(f"create table orders (id integer primary key, {OWN}); {NOTES.format('')}")
    database.run(NOTES.format("").replace("notes", "memos"))
    database.run("insert into orders values (1), (2); insert into notes values (1); insert into memos values (2)")
    for id_, table in ((1, "notes"), (2, "memos")):
        told = refused(database, f"delete from orders where id = {id_}", removing=True)  # noqa: S608
        assert told.why.startswith(f"rows of table public.{table} refer to rows that the batch replaces")
        assert f"ALTER TABLE public.{table} ALTER CONSTRAINT" in told.why


RANGE = "create table {} partition of {} for values from ('2026-01-{:02}Z') to ('2026-01-{:02}Z')"
BY_INTERVAL = "partition by range (fencepost_interval)"


@pytest.mark.parametrize(
    ("statements", "without"),
    [
        ([f"create table orders (id integer, {OWN}) {BY_INTERVAL}", RANGE.format("a", "orders", 2, 4)], [1, 4]),
        ([f"create table orders (id integer, {OWN}) {BY_INTERVAL}"], [1, 2, 3, 4]),
        ([f"create table orders (id integer, {OWN})"], []),
        ([f"create table orders (id integer, {OWN}) {BY_INTERVAL}", "create table a partition of orders default"], []),
        ([f"create table orders (id integer, {OWN}) partition by list (id)"], []),
        (  # divided further by another column: that decides of days which have a partition at all
            [
                f"create table orders (id integer, {OWN}) {BY_INTERVAL}",
                f"{RANGE.format('a', 'orders', 2, 4)} partition by list (id)",
            ],
            [1, 4],
        ),
        (
            [
                f"create table orders (id integer, {OWN}) {BY_INTERVAL}",
                f"{RANGE.format('a', 'orders', 2, 4)} {BY_INTERVAL}",
                RANGE.format("b", "a", 2, 3),
            ],
            [1, 3, 4],
        ),
        (  # itself a partition
            [f"create table all_orders (id integer, {OWN}) {BY_INTERVAL}", RANGE.format("orders", "all_orders", 2, 4)],
            [1, 4],
        ),
        (
            [
                f"create table all_orders (id integer, {OWN}) partition by list (id)",
                f"create table orders partition of all_orders for values in (1) {BY_INTERVAL}",
                RANGE.format("a", "orders", 2, 4),
            ],
            [],
        ),
    ],
)  # fmt: skip
def test_an_interval_has_no_partition_where_none_takes_its_rows_whatever_they_are(
    database: Database, statements: list[str], without: list[int]
) -> None:
    database.run("; ".join(statements))
    assert without_partition(database, 1, 2, 3, 4) == without


KINDS = """smallint integer bigint real|double precision|numeric numeric(4,1) boolean text varchar(2) char(2) bytea date
timestamp timestamp(3) timestamptz timestamptz(3) time interval json jsonb uuid inet xml money oid name bit(3) point "char"
text[] integer[] jsonb[] int4range tsvector regclass colour whole words pair"""
TYPES_THERE = [kind.strip() for line in KINDS.replace("double precision", "double_precision").split("\n")
               for kind in re.split(r"[ |]", line) if kind]  # fmt: skip
NESTED = t.ArrayType(t.StringType())
MADE = (
    "create type colour as enum ('red'); create domain whole as integer check (value > 0); create domain words as text[];"
    "create type pair as (a integer, b text);"
)
SPARK = [t.ShortType(), t.IntegerType(), t.LongType(), t.FloatType(), t.DoubleType(), t.DecimalType(9, 2), t.BooleanType(),
         t.StringType(), t.BinaryType(), t.DateType(), t.TimestampType(), t.TimestampNTZType(),
         t.ArrayType(t.StringType())]  # fmt: skip
DEFAULTS = {
    "boolean": "true",
    "colour": "'red'",
    "integer": "7",
    "text[]": "'{}'",
    "text": "'7'",
    "smallint": "0",
    "json": "'{}'",
}


def advised(database: Database, kind: t.DataType, columns: int = 1) -> list[str]:
    """What is said of the table for a transform's result with columns of this type: `c`, or `c0`, `c1` and so on."""
    with session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        oid = store.oid()
        assert oid is not None
        names = ["c"] if columns == 1 else [f"c{number}" for number in range(columns)]
        schema = t.StructType([t.StructField(name, kind) for name in names])
        return column_differences(store.altered(oid), schema, store.columns(oid), add=False)


def statement_in(told: str) -> str:
    return "ALTER TABLE" + told.split(": ALTER TABLE", 1)[1]


def test_each_statement_that_is_advised_for_a_column_of_another_type_runs(database: Database) -> None:
    """Whatever type the column has, with a default or without; and then the table takes the rows."""
    database.run(MADE)
    kinds, run = [kind.replace("_", " ") for kind in TYPES_THERE], 0
    with_defaults = (
        f"c{n} {kind} {'default ' * (kind in DEFAULTS)}{DEFAULTS.get(kind, '')}" for n, kind in enumerate(kinds)
    )
    columns = ", ".join(with_defaults)
    for field in SPARK:
        database.run(f"drop table if exists orders; create table orders ({columns}, {OWN})")
        statements = [statement_in(told) for told in advised(database, field, len(kinds))]
        database.run("; ".join(statements))
        run += len(statements)
        assert advised(database, field, len(kinds)) == []
    assert run > 400


@pytest.mark.parametrize(
    ("kind", "value", "field", "text"),
    [
        ("text[]", "'{a,\"b c\"}'", t.ArrayType(NESTED), '["a", "b c"]'),
        ("smallint", "1", t.BooleanType(), "true"),
        ("numeric", "0.0", t.BooleanType(), "false"),
        ("boolean", "true", t.ShortType(), "1"),
        ("boolean", "false", t.DecimalType(9, 2), "0.00"),
        ("text", "'true'", t.BooleanType(), "true"),
        ("text", "'{\"a\": 1.50}'", t.StructType([t.StructField("a", t.StringType())]), '{"a": 1.50}'),
        ("text", "E'a\\\\b'", t.BinaryType(), "\\x615c62"),
        ("json", "'[1]'", t.ArrayType(t.IntegerType()), "[1]"),
        ("char(2)", "'a'", t.StringType(), "a"),
        ("colour", "'red'", t.BinaryType(), "\\x726564"),
        ("whole", "7", t.LongType(), "7"),
        ("whole", "1", t.BooleanType(), "true"),
        ("words", "'{a}'", t.ArrayType(NESTED), '["a"]'),
        ("money", "1.25", t.DecimalType(9, 2), "1.25"),
        ("timestamptz(3)", "'2026-01-01T23:30:00Z'", t.TimestampNTZType(), "2026-01-01 23:30:00"),
        ("timestamptz", "'2026-01-01T00:00:00Z'", t.DateType(), "2026-01-01"),
        ("timestamp", "'2026-01-01T00:00:00'", t.DateType(), "2026-01-01"),
        ("date", "'2026-01-01'", t.TimestampNTZType(), "2026-01-01 00:00:00"),
        ("numeric", "12.00", t.LongType(), "12"),
        ("double precision", "null", t.DecimalType(9, 2), None),
        ("double precision", "0.1", t.DecimalType(9, 2), "0.10"),
        ("double precision", "1e15", t.LongType(), "1000000000000000"),
        ("numeric", "0.1", t.DoubleType(), "0.1"),
        ("bigint", "9007199254740992", t.DoubleType(), "9.007199254740992e+15"),
        ("real", "0.5", t.DoubleType(), "0.5"),
        ("text", "'1.50'", t.DecimalType(9, 2), "1.50"),
        ("timestamptz", "'2026-01-01T23:30:00Z'", t.TimestampNTZType(), "2026-01-01 23:30:00"),
        ("timestamp", "'2026-01-01T23:30:00'", t.TimestampType(), "2026-01-01 23:30:00+00"),
        ("date", "'2026-01-01'", t.TimestampType(), "2026-01-01 00:00:00+00"),
        ("text", "'2026-01-01'", t.DateType(), "2026-01-01"),
    ],
)  # fmt: skip
def test_the_statement_keeps_what_a_value_says_wherever_the_person_who_runs_it_lives(
    database: Database, kind: str, value: str, field: t.DataType, text: str | None
) -> None:
    database.run(f"{MADE} create table orders (c {kind}, {OWN}); insert into orders values ({value})")  # noqa: S608
    (told,) = advised(database, field)
    database.run(f"set timezone to 'Asia/Tokyo'; {statement_in(told)}")
    assert database.run("set timezone to 'UTC'; select c::text from orders") == [(text,)]


@pytest.mark.parametrize(
    ("kind", "value", "field"),
    [
        ("numeric(10,2)", "12.50", t.LongType()),
        ("double precision", "12.5", t.IntegerType()),
        ("money", "12.50", t.LongType()),
        ("double precision", "1.239", t.DecimalType(9, 2)),
        ("text", "'1.239'", t.DecimalType(9, 2)),
        ("numeric", "12345678901234567.1", t.DoubleType()),
        ("bigint", "9007199254740993", t.DoubleType()),
        ("smallint", "2", t.BooleanType()),
        ("timestamptz", "'2026-01-01T23:30:00Z'", t.DateType()),
        ("timestamp", "'2026-01-01T23:30:00'", t.DateType()),
    ],
)
def test_the_server_refuses_the_statement_for_a_value_that_would_be_another(
    database: Database, kind: str, value: str, field: t.DataType
) -> None:
    database.run(f"create table orders (c {kind}, {OWN}); insert into orders values ({value})")  # noqa: S608
    (told,) = advised(database, field)
    before = database.run("select c::text from orders")
    with pytest.raises(psycopg2.DataError):
        database.run(statement_in(told))
    assert database.run("select c::text from orders") == before


@DEEP
@pytest.mark.parametrize(
    ("statements", "advises"),
    [
        ([f"create table orders (c bigint generated by default as identity, {OWN})"], "DROP IDENTITY"),
        (["create table orders (c text, fencepost_interval text default '2026-01-01', fencepost_revision text)"], "interval"),
        (["create table orders (c text)"], 'ADD COLUMN "fencepost_interval"'),
        (
            [
                "create table all_orders (c char(3), fencepost_interval timestamptz, more integer not null) partition by "
                "range (fencepost_interval)",
                "create table orders partition of all_orders default",
            ],
            'ALTER TABLE "public"."all_orders" ADD COLUMN',
        ),
    ],
)  # fmt: skip
def test_the_other_statements_that_are_advised_run_as_well(
    database: Database, statements: list[str], advises: str
) -> None:
    database.run("; ".join(statements))
    said = advised(database, t.StringType())
    assert advises in "; ".join(said)
    for told in said:
        database.run(statement_in(told))
    assert advised(database, t.StringType()) == []


@DEEP
@pytest.mark.parametrize(
    ("statement", "advises"),
    [
        (f"create table orders (id integer primary key, c text, {OWN})", "column id .* is in the primary key, so add it"),
        (
            "create table orders (c text, fencepost_interval date, fencepost_revision integer) partition by range "
            "(fencepost_interval)",
            "column fencepost_interval is date: it is part of .* partition key, .* with this column as timestamp with time zone",
        ),
    ],
)  # fmt: skip
def test_where_no_statement_would_do_something_else_is_advised(
    database: Database, statement: str, advises: str
) -> None:
    database.run(statement)
    (told,) = advised(database, t.StringType())
    assert re.search(advises, told)
    assert "ALTER TABLE" not in told


def published_days(database: Database, *numbers: int) -> tuple[PostgresTable, View]:
    """The output as a pipeline has it that has published a row for each of these days, and what its ledger says."""
    database.prepare()
    batches, output = [], PostgresOutput(table="public.orders")
    for number in numbers:
        publication = PostgresPublication(table="public.orders", ledger="ledger-1", lease=number, begun_at=NOW)
        written = a_written(a_receipt(rows=1, topic="staging"), output=a_topic(1, topic="staging"))
        changes = {"interval": a_day(number), "publication": publication, "written": written, "lease": number}
        plan = a_plan((0, 1), output=output, staging=a_topic(0, topic="staging"))
        batches.append(a_batch(State.PUBLISHED, plan=plan, **changes))
        committed = json.dumps({"1": {"rows": 1, "ledger": "ledger-1", "lease": number}})
        start, end = a_day(number).start.isoformat(), a_day(number).end.isoformat()
        database.run(
            "insert into fencepost_batches (table_name, interval_start, interval_end, ledger, lease, batch, revisions, rows) "  # noqa: S608
            f"values ('public.orders', '{start}', '{end}', 'ledger-1', {number}, '{batches[-1].id}', '{committed}', 1)"
        )
        database.run(f"insert into orders values ({number}, '{start}', 1)")  # noqa: S608
    config: Any = SimpleNamespace(
        **vars(database.config), plain=database.config.plain, output=SimpleNamespace(), ledger_topic="ledger"
    )
    cluster, ledger = SimpleNamespace(id="here"), SimpleNamespace(topic_id="ledger-1")
    deployment: Any = SimpleNamespace(pipeline=config, cluster=cluster, ledger=ledger)
    return PostgresTable(deployment, "public.orders"), View.of(batches)


def partition(number: int, of: str = "orders") -> str:
    """The statement that makes the partition of a day."""
    return (
        f"create table d{number} partition of {of} for values from ('{a_day(number).start}') to ('{a_day(number).end}')"
    )


@pytest.mark.parametrize("drops", ["drop table d0", "alter table orders detach partition d0"])
def test_an_interval_whose_partition_somebody_has_dropped_is_missed_by_nobody_and_counted_by_the_doctor(
    database: Database, drops: str
) -> None:
    parts = "; ".join(partition(number) for number in range(3))
    database.run(f"create table orders (id integer, {OWN}) {BY_INTERVAL}; {parts}")
    table, view = published_days(database, 0, 1, 2)
    assert table.compared(lambda: view) == TableComparison("", 0)
    database.run(drops)
    assert table.compared(lambda: view) == TableComparison("", 1)
    database.run("delete from d1")
    assert "1 interval: the table was emptied" in table.missing_batches(lambda: view), (
        "an emptied partition is another matter"
    )
    database.run(partition(3) + "; drop table if exists d0; " + partition(0))
    assert "in 2 intervals" in table.missing_batches(lambda: view), (
        "a partition that is made again takes its interval again"
    )


def test_rows_of_a_withdrawn_interval_are_told_with_the_statement_that_removes_them(database: Database) -> None:
    """A ledger that was restored from an older copy may have an interval that was published withdrawn."""
    database.run(f"create table orders (id integer, {OWN})")
    table, view = published_days(database, 0, 1)
    gone = View.of([view.all()[0], view.all()[1].model_copy(update={"state": State.WITHDRAWN, "publication": None})])
    told = table.missing_batches(lambda: gone)
    assert told.startswith("table public.orders has rows of 1 withdrawn interval. This removes")
    assert database.run(told.split("removes them: ")[1] + " returning id") == [(1,)]
    assert table.missing_batches(lambda: gone) == ""


@DEEP
def test_rows_that_are_gone_from_a_table_that_would_take_them_again_are_missed(database: Database) -> None:
    database.run(
        f"create table orders (id integer, {OWN}) {BY_INTERVAL}; {partition(0)}; create table r partition of orders default"
    )
    table, view = published_days(database, 0, 1)
    database.run("drop table d0")
    assert "in 1 interval:" in table.missing_batches(lambda: view)
    assert table.compared(lambda: view).dropped == 0


def test_the_doctor_counts_the_tables_without_an_index_that_it_does_not_name(database: Database) -> None:
    parts = "; ".join(partition(number) for number in range(7))
    database.run(f"create table orders (id integer, {OWN}) {BY_INTERVAL}; {parts}")
    database.prepare()
    settings = PostgresSettings(kind="postgres", table="orders")
    pipeline = SimpleNamespace(**vars(database.config), plain=database.config.plain, output=settings)
    deployment = SimpleNamespace(cluster=SimpleNamespace(id="here"))
    look: Any = SimpleNamespace(pipeline=pipeline, deployment=deployment, view=View())
    (found,) = check_table(look)
    assert "Table public.d0, public.d1, public.d2, public.d3, public.d4, and 2 more, has no index" in found.found
    database.run(found.command)
    (after,) = check_table(look)
    assert after.level is Level.OK
