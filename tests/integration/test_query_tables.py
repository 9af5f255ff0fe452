"""Side tables that are queries, read from a real PostgreSQL: values, types, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import psycopg2
import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import (
    AccessDenied,
    FencepostError,
    LoginRefused,
    SideTableRefused,
    TableRefused,
    TableUnavailable,
)
from fencepost.model import State
from fencepost.side_tables import queries
from fencepost.side_tables.content import TableContent
from fencepost.side_tables.queries import read_query_table
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from kafka_tools import create_topic, produce, read_all
from rigs.postgres_server import PASSWORD, PostgresServer, query
from steps import latest, run
from waiting import await_true

Settings = dict[str, str]
Read = Callable[..., TableContent]


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Settings:
    return postgres.database()


@pytest.fixture
def read(make_pipeline: Callable[..., Pipeline], database: Settings) -> Read:
    """Read the side table `rates` with these settings."""

    def found(statement: str, **settings: Any) -> TableContent:
        table = {"query": statement, "key": "none", "postgres": database} | settings
        pipeline = make_pipeline("def transform(frame, rates):\n    return frame", tables={"rates": table})
        return read_query_table(pipeline, "rates", pipeline.tables["rates"])  # type: ignore[arg-type]

    return found


UTC = datetime.UTC
# PostgreSQL's expression, Spark's type, the values.
NATURAL: dict[str, tuple[str, str, Any]] = {
    "smallint": ("'-32768'::int2", "smallint", -32768),
    "integer": ("'-2147483648'::int4", "int", -(2**31)),
    "bigint": ("9223372036854775807::int8", "bigint", 2**63 - 1),
    "real": ("1.1::float4", "float", 1.10000002384185791015625),
    "double": ("'-Infinity'::float8", "double", float("-inf")),
    "numeric": ("'-0.10'::numeric(12, 2)", "decimal(12,2)", Decimal("-0.10")),
    "the largest numeric": (f"{'9' * 38}::numeric(38)", "decimal(38,0)", Decimal("9" * 38)),
    "the smallest numeric": (f"0.{'0' * 37}1::numeric(38, 38)", "decimal(38,38)", Decimal("1e-38")),
    "numeric of hundreds": ("1250::numeric(2, -2)", "decimal(4,0)", Decimal(1300)),
    "numeric of a small fraction": ("0.00012::numeric(2, 5)", "decimal(5,5)", Decimal("0.00012")),
    "a domain": ("7::amount", "decimal(10,2)", Decimal("7.00")),
    "boolean": ("false", "boolean", False),
    "text": ("'ü\n''\\'", "string", "ü\n'\\"),
    "varchar": ("'abc'::varchar(3)", "string", "abc"),
    "char": ("'x'::char(3)", "string", "x"),
    "name": ("current_database()", "string", None),
    "enum": ("'glad'::mood", "string", "glad"),
    "uuid": ("'C0FFEE00-0000-4000-8000-000000000001'::uuid", "string", "c0ffee00-0000-4000-8000-000000000001"),
    "json": ('\'{"b": 1,  "a":2}\'::json', "string", '{"b": 1,  "a":2}'),
    "jsonb": ('\'{"b": 1,  "a":2}\'::jsonb', "string", '{"a": 2, "b": 1}'),
    "bytea": ("'\\x00ff'::bytea", "binary", b"\x00\xff"),
    "date": ("'0001-01-01'::date", "date", datetime.date(1, 1, 1)),
    "the last date": ("'9999-12-31'::date", "date", datetime.date(9999, 12, 31)),
    "timestamp": (
        "'9999-12-31 23:59:59.999999'::timestamp",
        "timestamp_ntz",
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    ),
    "timestamptz": (
        "'2026-03-29 02:30+02'::timestamptz",
        "timestamp",
        datetime.datetime(2026, 3, 29, 0, 30, tzinfo=UTC),
    ),
    "array of integer": ("array[1, null, 3]", "array<int>", [1, None, 3]),
    "an empty array": ("'{}'::text[]", "array<string>", []),
    "array of enum": ("array['glad']::mood[]", "array<string>", ["glad"]),
    "array of timestamptz": (
        "array['2026-01-01 00:00Z'::timestamptz]",
        "array<timestamp>",
        [datetime.datetime(2026, 1, 1, tzinfo=UTC)],
    ),
}


def test_each_type_is_read_as_one_of_sparks_with_its_extreme_values_and_nulls(read: Read, database: Settings) -> None:
    query(database, "create type mood as enum ('glad', 'sad'); create domain amount as numeric(10, 2)")
    named = {name: f"c{number}" for number, name in enumerate(NATURAL)}
    values = ", ".join(f"{expression} AS {named[name]}" for name, (expression, _, _) in NATURAL.items())
    columns = ", ".join(named.values())
    found = read(
        f"select n, {columns} from generate_series(1, 2) as n left join (select {values}) as one on n = 1;",
        key="n",
    )
    kinds = {field.name: field.dataType.simpleString() for field in found.schema.fields}
    assert {name: kinds[column] for name, column in named.items()} == {
        name: kind for name, (_, kind, _) in NATURAL.items()
    }
    first, second = found.rows.to_pylist()
    expected = {name: value for name, (_, _, value) in NATURAL.items()} | {"name": database["dbname"]}
    assert {name: first[column] for name, column in named.items()} == expected
    assert {second[column] for column in named.values()} == {None}


# PostgreSQL's values, the declared type, and the values, or the row that is refused.
DECLARED: dict[str, tuple[str, str, Any]] = {
    "a narrower integer": ("('127'::int8), (null), ('-128')", "tinyint", [127, None, -128]),
    "an integer too large": ("(1::int8), (128)", "tinyint", 2),
    "a whole numeric": ("('12.000'::numeric), ('-9223372036854775808')", "bigint", [12, -(2**63)]),
    "a numeric with a fraction": ("(1::numeric), (2), (2.5)", "int", 3),
    "a numeric without digits declared": (
        "('-0.1'::numeric), (99.90)",
        "decimal(4, 2)",
        [Decimal("-0.10"), Decimal("99.90")],
    ),
    "a numeric with a long scale": (f"('1.5{'0' * 60}'::numeric)", "decimal(2, 1)", [Decimal("1.5")]),
    "a numeric with a digit too many": ("(1.25::numeric), (1.257)", "decimal(5, 2)", 2),
    "a numeric too large": ("(999.99::numeric), (1000)", "decimal(5, 2)", 2),
    "NaN": ("(1::numeric), ('NaN')", "decimal(5, 2)", 2),
    "infinity": ("('Infinity'::numeric)", "decimal(38, 0)", 1),
    "an integer as decimal": ("(7::int2)", "decimal(3, 1)", [Decimal("7.0")]),
    "a large integer as double": (f"({2**53}::int8), ({2**53 + 1})", "double", 2),
    "an array of numeric": ("(array[1.5, null]::numeric[])", "array<decimal(3, 2)>", [[Decimal("1.50"), None]]),
    "an array with a numeric too large": ("(array[1.5]::numeric[]), (array[1, 10])", "array<decimal(3, 2)>", 2),
    "an array of two dimensions": ("(array[1]), (array[[1, 2], [3, 4]])", "array<int>", 2),
    "an array of uuid": (
        "(array['c0ffee00-0000-4000-8000-000000000001'::uuid])",
        "array<string>",
        [["c0ffee00-0000-4000-8000-000000000001"]],
    ),
    "an infinite date": ("('2026-01-01'::date), ('infinity')", "date", 2),
    "a date before all dates": ("('-infinity'::date)", "date", 1),
    "a year too late": ("('10000-01-01'::date)", "date", 1),
    "a year before Christ": ("('0001-12-31 BC'::date)", "date", 1),
    "an infinite timestamp": ("('2026-01-01'::timestamp), ('infinity')", "timestamp_ntz", 2),
    "a timestamp before all others": ("('-infinity'::timestamptz)", "timestamp", 1),
    "the last microsecond": ("('294276-12-31 23:59:59.999999'::timestamp)", "timestamp_ntz", 1),
    "an array with infinity": ("(array['infinity'::date])", "array<date>", 1),
    "interval as its text": ("('1 day 02:00'::interval)", "string", ["1 day 02:00:00"]),
    "inet as its text": ("('::1'::inet)", "string", ["::1/128"]),
    "an array as its text": ("(array[1, 2])", "string", ["{1,2}"]),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_value_is_the_declared_type_exactly_or_its_row_is_named(read: Read, name: str) -> None:
    values, kind, expected = DECLARED[name]
    statement = f"select v from (values {values}) as t (v)"
    if isinstance(expected, int):
        with pytest.raises(SideTableRefused, match=rf"side table rates, a query .*: column v, row {expected}: "):
            read(statement, schema={"v": kind})
        return
    found = read(statement, schema={"v": kind})
    # Rows without a key are in an order of their own.
    assert sorted(found.rows["v"].to_pylist(), key=repr) == sorted(expected, key=repr)


NOT_READ = {
    "money": ("1::money", "column v is money, which is not read. Cast it in the query, for example to text: v::text."),
    "interval": ("'1 day'::interval", "column v is interval, which is not read"),
    "time": ("'10:00'::time", "column v is time, which is not read"),
    "oid": ("1::oid", "column v is oid, which is not read"),
    "an array of money": ("array[1::money]", "column v is money[], which is not read"),
    "a row": ("one", "column v is record, which is not read"),
    "numeric": ("1.5", "column v is numeric, and the query does not say with how many digits. Declare"),
    "an array of numeric": ("array[1.5]", "this one for example as array<decimal(18, 2)>"),
    "a wide numeric": ("1::numeric(40, 2)", "column v is numeric(40, 2), and a decimal of Spark has at most 38 digits"),
}


@pytest.mark.parametrize("name", NOT_READ)
def test_a_type_that_is_not_read_is_named_with_what_to_do(read: Read, name: str) -> None:
    expression, words = NOT_READ[name]
    with pytest.raises(SideTableRefused) as refused:
        read(f"select {expression} as v from (select 1) as one")
    assert words in str(refused.value)


OTHERS_DECLARED = {
    "text as int": ("'7'::text", "column v is text, which is not read as int. Declare another type, or cast"),
    "double as float": ("0.1::float8", "column v is float8, which is not read as float. Declare another type, or cast"),
    "a local time": ("now()::timestamp", "Declare timestamp_ntz, or write v AT TIME ZONE 'UTC' in the query"),
    "one as an array": ("1", "column v is int4, which is not read as array<int>."),
    "another name": ('1 as "V" -- ', "the query returns no column 'v', which schema declares. It returns V."),
    "a column more": ("1 as v, 2", "the query returns column '?column?', which schema does not declare"),
    "a column twice": ("1 as v, 2 as v --", "the query returns column 'v' more than once"),
}
DECLARED_AS = {
    "text as int": "int",
    "double as float": "float",
    "a local time": "timestamp",
    "one as an array": "array<int>",
}


@pytest.mark.parametrize("name", OTHERS_DECLARED)
def test_columns_that_do_not_fit_the_schema_are_refused_before_a_row_is_read(read: Read, name: str) -> None:
    expression, words = OTHERS_DECLARED[name]
    tail = "" if " as " in expression else " as v"
    with pytest.raises(SideTableRefused) as refused:
        read(
            f"select {expression}{tail}\n from (select pg_sleep(0)) as one where 1 / (select 0) = 1",
            schema={"v": DECLARED_AS.get(name, "int")},
        )
    assert words in str(refused.value)


def test_a_null_in_a_column_that_is_declared_not_null_is_refused(read: Read) -> None:
    with pytest.raises(
        SideTableRefused, match=r"column column1 is declared not null, and is null in 1 row\. Correct the"
    ):
        read("values (1), (null)", schema={"column1": "int not null"})


SECRET = "hunter2"
REFUSED: dict[str, tuple[str, type[FencepostError], str]] = {
    "an insert": ("insert into kept values (1) returning n", SideTableRefused, "or is not one SELECT (SQLSTATE 42601)"),
    "a delete within": (
        "with gone as (delete from kept returning n) select * from gone",
        SideTableRefused,
        "(SQLSTATE 0A000)",
    ),
    "a sequence": (
        "select nextval('counted') as v",
        SideTableRefused,
        "the query writes, and a side table is only read",
    ),
    "a function that writes": (
        "select writes() as v",
        SideTableRefused,
        "the query writes, and a side table is only read",
    ),
    "a lock": ("select n from kept for update", SideTableRefused, "the query writes, and a side table is only read"),
    "two statements": ("select 1 as v; delete from kept", SideTableRefused, "has a syntax error, or is not one SELECT"),
    "a way out of the parentheses": (
        "select 1) as a (v); commit; delete from kept; select (1",
        SideTableRefused,
        "(SQLSTATE 42601)",
    ),
    "show": ("show timezone", SideTableRefused, "has a syntax error, or is not one SELECT"),
    "a table of its own": (
        "create table made (n int)",
        SideTableRefused,
        "the query returns no columns. Give a SELECT",
    ),
    "no statement": ("-- select", SideTableRefused, "the query returns no columns. Give a SELECT"),
    "a parameter": (
        "select $1::int as v",
        SideTableRefused,
        "a parameter such as $1, which gets no value (SQLSTATE 42P02)",
    ),
    "wrong SQL": ("selec 1", SideTableRefused, "has a syntax error, or is not one SELECT (SQLSTATE 42601)"),
    "no such table": (
        "select * from nowhere",
        SideTableRefused,
        "a table that a statement names does not exist (SQLSTATE 42P01)",
    ),
    "no such column": ("select nothing from kept", SideTableRefused, "(SQLSTATE 42703). Correct the query"),
    "a wrong value": (
        f"select '{SECRET}'::text::int as v",
        SideTableRefused,
        "a value that it does not accept (SQLSTATE 22P02)",
    ),
    "a division in a late row": (
        "select 1 / (90000 - n) as v from generate_series(1, 100000) as n",
        SideTableRefused,
        "a division by zero (SQLSTATE 22012)",
    ),
    "an exception": (
        f"select raises('{SECRET}') as v",
        SideTableRefused,
        "a function raised an exception (SQLSTATE P0001)",
    ),
    "a table of others": (
        "select * from theirs",
        AccessDenied,
        "may not read something that the query reads (SQLSTATE 42501)",
    ),
    "a query that takes too long": (
        "select pg_sleep(60)::text as v",
        TableUnavailable,
        "the query took more than 1 s, or somebody",
    ),
    "no rows": ("select n from kept where n > 1", SideTableRefused, "it has no rows. Fill it, or set not_empty: false"),
    "too many bytes": (
        "select repeat('x', 1000) as v from (select generate_series(1, 100000000)) as n",
        SideTableRefused,
        "MB or more, and max_megabytes is 1. Each executor holds",
    ),
    "a doubled key": ("select 1 as v from generate_series(1, 2)", SideTableRefused, "the key (v) is not unique"),
}


@pytest.fixture(scope="module")
def kept(postgres: PostgresServer, database: Settings) -> Settings:
    """A database with things that a query could change, and a table of another user."""
    query(
        database,
        "create table kept (n int); insert into kept values (1); create sequence counted; "
        "create function writes() returns int language sql as 'insert into kept values (2) returning n'; "
        "create function raises(said text) returns int language plpgsql as $$ begin raise '%', said; end $$",
    )
    postgres.run("create table theirs (n int)", dbname=database["dbname"])
    return database


@pytest.mark.parametrize("name", REFUSED)
def test_a_query_that_fails_or_writes_changes_nothing_and_its_error_has_no_value(
    read: Read, kept: Settings, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    statement, kind, words = REFUSED[name]
    if "takes too long" in name:
        monkeypatch.setattr(queries, "QUERY_SECONDS", 1)
    settings: dict[str, Any] = {"key": "v"} if "key" in name else {}
    with pytest.raises(kind) as refused:
        read(statement, max_megabytes=1, **settings)
    assert words in str(refused.value)
    assert str(refused.value).startswith("pipeline ")
    assert "side table rates" in str(refused.value)
    assert SECRET not in str(refused.value)
    assert query(kept, "select (select array_agg(n) from kept), is_called, to_regclass('made') from counted") == [
        ([1], False, None)
    ]
    under_way = "select count(*) from pg_stat_activity where datname = %s and application_name = 'fencepost' and state = 'active'"
    await_true(lambda: postgres.run(under_way, values=(kept["dbname"],)) == [(0,)], "the end of the query", 30)


def test_a_lock_of_another_session_is_named_as_the_cause(
    read: Read, kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "LOCK_SECONDS", 0.2)
    with closing(psycopg2.connect(**kept)) as other, other.cursor() as cursor:
        cursor.execute("lock table kept")
        with pytest.raises(
            TableUnavailable, match=r"another session has locked a table that the query reads\. Run again"
        ):
            read("select * from kept")
    assert read("select * from kept").state.rows == 1


def test_a_server_that_is_not_there_or_refuses_the_login_is_named_without_the_password(
    read: Read, database: Settings
) -> None:
    nowhere = str(any_free_port())
    with pytest.raises(
        TableUnavailable, match=rf"side table rates: PostgreSQL at 127\.0\.0\.1:{nowhere}, database "
    ) as error:
        read("select 1 as v", postgres=database | {"port": nowhere})
    assert PASSWORD not in str(error.value)
    with pytest.raises(
        LoginRefused, match=r"password authentication failed .* Check tables\.rates\.postgres: in pipeline.yaml"
    ) as refused:
        read("select 1 as v", postgres=database | {"password": SECRET})
    assert SECRET not in str(refused.value)
    with pytest.raises(TableRefused, match=r"does not exist\. Check tables\.rates\.postgres: in pipeline.yaml"):
        read("select 1 as v", postgres=database | {"dbname": "nowhere"})


def test_a_server_that_only_reads_is_read_unless_the_settings_ask_for_another(
    read: Read, postgres: PostgresServer
) -> None:
    replica = postgres.database()
    query(replica, f"alter role {replica['user']} set default_transaction_read_only = on")
    assert read("select 1 as v", postgres=replica).rows.to_pylist() == [{"v": 1}]
    assert read("select 1 as v", postgres=replica | {"target_session_attrs": "read-only"}).state.rows == 1
    with pytest.raises(TableUnavailable, match="read-only"):
        read("select 1 as v", postgres=replica | {"target_session_attrs": "read-write"})


def test_a_policy_says_which_rows_the_user_sees(read: Read, database: Settings, postgres: PostgresServer) -> None:
    own = postgres.database()
    postgres.run(
        "create table shared (n int); insert into shared values (1), (2); alter table shared enable row level security; "
        f"grant select on shared to {own['user']}; create policy few on shared using (n = 2)",
        dbname=own["dbname"],
    )
    assert read("select n from shared", postgres=own).rows.to_pylist() == [{"n": 2}]


LOOKS_UP = """
def transform(frame, rates):
    return frame.join(rates, "name").selectExpr("n", "name", "cast(n * rate as string) as amount")
"""


def test_a_run_publishes_what_the_query_gave_and_a_reprocess_what_it_gives_then(
    spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], postgres: PostgresServer
) -> None:
    own = postgres.database()
    query(
        own,
        "create table rates (name text, rate numeric(6, 3)); insert into rates values ('EUR', 1.085), ('GBP', 1.27)",
    )
    pipeline = make_pipeline(
        LOOKS_UP,
        tables={"rates": {"query": "select name, rate from rates", "key": "name"}},
        output={"key": "name"},
        postgres=own,
    )
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    rows = [(1, "EUR"), (3, "GBP"), (5, "EUR"), (7, "none")]
    records = [(b"", {"n": n, "name": name}, n % 2, at(1) + n) for n, name in rows]
    produce(broker.bootstrap, pipeline.source.topic, records)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert amounts(broker, pipeline) == [("EUR", "1.085"), ("EUR", "5.425"), ("GBP", "3.810")]
    batch = latest(pipeline, day(1))
    assert [(table.name, table.rows) for table in batch.plan.tables] == [("rates", 2)]
    query(own, "update rates set rate = 2 where name = 'GBP'")
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    assert amounts(broker, pipeline)[3:] == [("EUR", "1.085"), ("EUR", "5.425"), ("GBP", "6.000")]
    assert latest(pipeline, day(1)).plan.tables[0].fingerprint != batch.plan.tables[0].fingerprint


def amounts(broker: Broker, pipeline: Pipeline) -> list[tuple[str, str]]:
    """What is in the output, batch by batch."""
    found = read_all(broker.bootstrap, pipeline.output.name)
    batches = list(dict.fromkeys(record.batch for record in found))
    return [
        one for name in batches for one in sorted((r.json["name"], r.json["amount"]) for r in found if r.batch == name)
    ]
