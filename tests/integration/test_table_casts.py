"""Columns of types that the server converts to, on a real PostgreSQL: what is stored, what is refused, what is read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import TableRefused, TableRefusedData, TableUnavailable
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.output import missing_of
from fencepost.outputs.postgres import commit, table_checks
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.columns import Rows, casts_of
from fencepost.outputs.postgres.temporary import TemporaryTable, Unconvertible
from fencepost.postgres import connection
from fencepost.postgres.connection import StatementFailed, session
from fencepost.reading.validated import read_validated
from fencepost.steps.advance import advance_batch
from fencepost_stack.broker import Broker
from kafka_tools import read_all
from makers import a_decision
from rigs.postgres_server import PostgresServer
from steps import announced, kafka_of, latest, run
from tables import ROWS, Database, ask, fill, judged, numbers_in, of_revision, store_of
from waiting import await_true

Make = Callable[..., Pipeline]
OWN = "fencepost_interval timestamptz, fencepost_revision integer"
START = datetime(2026, 1, 1, tzinfo=UTC)
TEXT, TEXTS, MOMENT = t.StringType(), t.ArrayType(t.StringType()), t.TimestampType()
# Types of the tests' own: an enum, and domains over types that a text is converted to, and over each other.
MADE = """
create schema "My Types";
create type "My Types"."st'ate" as enum ('red', ' red', 'very "red', 'now', 'NULL');
create domain words as text check (value <> 'bad');
create domain short as varchar(3);
create domain shorter as short check (value ~ '^[a-zé ]*$');
create domain given as uuid not null;
create domain host as inet;
create domain docs as jsonb;
create domain tags as text[] check (cardinality(value) < 3);
create domain whole as integer;
create domain moment as timestamptz(3);
"""
STATE = '"My Types"."st\'ate"'
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    """One for the tests that change nothing but the table."""
    made = Database(postgres)
    made.run(MADE)
    return made


@pytest.fixture
def own_database(postgres: PostgresServer) -> Database:
    """One whose login a test changes."""
    made = Database(postgres)
    made.run(MADE)
    return made


def create(database: Database, kind: str) -> None:
    """The table `orders` with a column of this type."""
    database.run(f"drop table if exists orders; create table orders (c {kind}, {OWN})")


def insert(database: Database, field: t.DataType, values: Sequence[Any]) -> None:
    """As a publication inserts rows with these values, which their staged records hold as JSON."""
    schema = t.StructType([t.StructField("c", field)])
    staged = pa.array([json.dumps({"c": value}).encode() for value in values], pa.binary())
    with session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        oid = store.oid()
        assert oid is not None
        assert store.why_not_accepted(oid, schema, add=False) == []
        columns = store.columns(oid)
        temporary = TemporaryTable(tx, schema, columns) if casts_of(schema, columns) else None
        rows = Rows(schema, columns, START, 1, temporary.number if temporary else "")
        parts = [rows.of(part) for part in (staged[:2], staged[2:])]
        if temporary is not None:
            temporary.create()
        tx.copy(
            *(temporary.place if temporary else (store.schema, store.name)),
            pa.RecordBatchReader.from_batches(rows.schema, parts),
        )
        if temporary is not None:
            temporary.check()
            temporary.insert_into(store.quoted)
        tx.run("SET CONSTRAINTS ALL IMMEDIATE")
        tx.commit()


def stored(database: Database) -> list[Any]:
    """The values as the server prints them."""
    return [value for (value,) in database.run("select format('%s', c) from orders order by ctid")]


@pytest.mark.parametrize(
    ("kind", "values", "printed"),
    [
        ("uuid", [UUID, "{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}", UUID.replace("-", ""), None], [UUID] * 3 + [""]),
        (STATE, ["red", " red", 'very "red', "now", "NULL"], ["red", " red", 'very "red', "now", "NULL"]),
        (
            "inet",
            ["10.0.0.1", "10.0.0.1/8", "10.0.0.1/32", "::1", "FE80::1/64"],
            ["10.0.0.1", "10.0.0.1/8", "10.0.0.1", "::1", "fe80::1/64"],
        ),
        ("cidr", ["10.0.0.0/8", "10.0.0.1", "2001:DB8::/32"], ["10.0.0.0/8", "10.0.0.1/32", "2001:db8::/32"]),
        (
            "json",
            ['{"b": 1,  "a": -0, "a": 2}', '"\\u0000"', "null", '"now"'],
            ['{"b": 1,  "a": -0, "a": 2}', '"\\u0000"', "null", '"now"'],
        ),
        (
            "jsonb",
            ['{"b":1.50, "a":[1e2]}', '"-0"', '{"-0":"a\\\\\\"-0,"}', "-0.05", "[-0.01e-3]", '{"d":"2026-01-05"}', "1e400"],
            ['{"a": [100], "b": 1.50}', '"-0"', '{"-0": "a\\\\\\"-0,"}', "-0.05", "[-0.00001]", '{"d": "2026-01-05"}',
             "1" + 400 * "0"],
        ),
        ("varchar(3)", ["", "abc", "é☃😀", "a  "], ["", "abc", "é☃😀", "a  "]),
        ("words", ["", "'; drop table orders; --", "NULL"], ["", "'; drop table orders; --", "NULL"]),
        ("shorter", ["abé", "a  ", None], ["abé", "a  ", ""]),
        ("given", [UUID.upper()], [UUID]),
        ("host", ["10.0.0.1/8"], ["10.0.0.1/8"]),
        ("docs", ['{"a":1}'], ['{"a": 1}']),
    ],
)  # fmt: skip
def test_a_text_is_stored_as_the_value_that_it_says(
    database: Database, kind: str, values: list[Any], printed: list[str]
) -> None:
    create(database, kind)
    insert(database, TEXT, values)
    assert stored(database) == printed
    assert database.run("select distinct fencepost_interval, fencepost_revision from orders") == [(START, 1)]


ODD = ["NULL", None, "", 'a"b', "a\\b", "a,b", "{a}", " a ", "ü\n"]


@pytest.mark.parametrize(
    ("kind", "field", "values", "expected"),
    [
        ("text[]", TEXTS, [ODD, [], None, [None]], [ODD, [], None, [None]]),
        ("varchar[]", TEXTS, [ODD], [ODD]),
        ("tags", TEXTS, [ODD[:2], [], None, ['a"b', "{a}"]], [ODD[:2], [], None, ['a"b', "{a}"]]),
        ("words[]", TEXTS, [ODD, [], None], [ODD, [], None]),
        ("varchar(3)[]", TEXTS, [["a  ", "☃☃☃", None, "NUL"], []], [["a  ", "☃☃☃", None, "NUL"], []]),
        ("shorter[]", TEXTS, [["a  ", None]], [["a  ", None]]),
        ("uuid[]", TEXTS, [[UUID.upper(), None], [], None], [[UUID, None], [], None]),
        (f"{STATE}[]", TEXTS, [["NULL", None, ' red', 'very "red']], [["NULL", None, ' red', 'very "red']]),
        ("inet[]", TEXTS, [["10.0.0.1/8", "::1"]], [["10.0.0.1/8", "::1"]]),
        ("jsonb[]", TEXTS, [['{"b":1, "a":[]}', None, '"a\\"b"']], [['{"a": [], "b": 1}', None, '"a\\"b"']]),
        ("json[]", TEXTS, [['{"b":1, "a":-0}']], [['{"b":1, "a":-0}']]),
        ("boolean[]", t.ArrayType(t.BooleanType()), [[True, None, False], []], [["t", None, "f"], []]),
        ("smallint[]", t.ArrayType(t.ByteType()), [[-128, None]], [["-128", None]]),
        ("bigint[]", t.ArrayType(t.LongType()), [[2**63 - 1, None]], [["9223372036854775807", None]]),
        ("bigint[]", t.ArrayType(t.IntegerType()), [[7]], [["7"]]),
        ("real[]", t.ArrayType(t.FloatType()), [[0.1]], [["0.1"]]),
        ("float8[]", t.ArrayType(t.DoubleType()), [[0.1, 1e300]], [["0.1", "1e+300"]]),
        ("numeric(9,2)[]", t.ArrayType(t.DecimalType(9, 2)), [[1.5, None]], [["1.50", None]]),
        ("numeric[]", t.ArrayType(t.DecimalType(38, 0)), [[10**37]], [[str(10**37)]]),
        ("bytea[]", t.ArrayType(t.BinaryType()), [["AP8=", None]], [["\\x00ff", None]]),
        ("date[]", t.ArrayType(t.DateType()), [["0001-01-01", None]], [["0001-01-01", None]]),
        ("timestamp[]", t.ArrayType(t.TimestampNTZType()), [["2026-01-01T00:00:00.000001"]], [["2026-01-01 00:00:00.000001"]]),
        ("timestamptz[]", t.ArrayType(MOMENT), [["2026-01-01T00:00:00.000001Z"]], [["2026-01-01 00:00:00.000001+00"]]),
        ("timestamptz(3)[]", t.ArrayType(MOMENT), [["2026-01-01T00:00:00.001Z", None]], [["2026-01-01 00:00:00.001+00", None]]),
    ],
)  # fmt: skip
def test_an_array_is_stored_element_by_element(
    database: Database, kind: str, field: t.DataType, values: list[Any], expected: list[Any]
) -> None:
    create(database, kind)
    insert(database, field, values)
    found = database.run(
        "set timezone to 'UTC'; select case when c is not null then array(select case when e is not null then format('%s', e) "
        "end from unnest(c) with ordinality as u (e, n) order by n) end, array_ndims(c) from orders order by ctid"
    )
    assert found == [(one, 1 if one else None) for one in expected]


def test_a_time_is_stored_in_a_column_of_fewer_digits_where_no_digit_is_lost(database: Database) -> None:
    create(database, "timestamptz(3)")
    insert(database, MOMENT, ["2026-01-01T00:00:00.123Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", None])
    text = "select to_char(c at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') from orders order by ctid"
    assert [one for (one,) in database.run(text)] == [
        "2026-01-01 00:00:00.123000",
        "0001-01-01 00:00:00.000000",
        "9999-12-31 23:59:59.999000",
        None,
    ]


DOUBLED = "values in which an object has a name twice, of which jsonb would keep one"
MINUS_ZERO = "values with the number -0, which jsonb cannot hold"
LONG = "texts of more than 3 characters, blanks included"
DIGITS = "times with more than 3 digits of a second"


def misfits(what: str) -> str:
    return f"values that {what} does not accept"


@pytest.mark.parametrize(
    ("kind", "field", "good", "bad", "what"),
    [
        *(("uuid", TEXT, UUID, bad, misfits("uuid")) for bad in ("", f" {UUID}", UUID[:-1], "now", "NULL", UUID + "\n")),
        *((STATE, TEXT, "red", bad, misfits(f"type {STATE}")) for bad in ("Red", "red ", "", "today", "null")),
        *(("inet", TEXT, "::1", bad, misfits("inet")) for bad in ("10", " 10.0.0.1", "10.0.0.1 ", "256.0.0.1", "10.0.0.1/33")),
        *(("cidr", TEXT, "10.0.0.0/8", bad, misfits("cidr")) for bad in ("10.0.0.1/8", "10.0.0.0/8 ", "a")),
        *(("json", TEXT, "1", bad, misfits("json")) for bad in ("", "{", "'a'", "NaN", "now", '{"a":1}}')),
        *(("jsonb", TEXT, "1", bad, misfits("jsonb")) for bad in ("", '"\\u0000"', '"\\ud800"', "[1e-20000]", "01")),
        *(("jsonb", TEXT, '{"a":1}', bad, DOUBLED) for bad in ('{"a":1,"\\u0061":1}', '[{"b":{"a":1,"c":2,"a":1}}]')),
        *(("jsonb", TEXT, "0", bad, MINUS_ZERO)
          for bad in ("-0", " -0 ", "[-0.00]", '{"a":-0e5}', '{"a":[1, -0.0E-3\n]}', '{"-1":"\\"", "a":-0}')),
        *(("varchar(3)", TEXT, "abc", bad, LONG) for bad in ("abcd", "abc ", "    ", "é☃😀ü")),
        ("short", TEXT, "abc", "abc ", LONG),
        ("shorter", TEXT, "abc", "a   ", LONG),
        ("shorter", TEXT, "abc", "A", misfits("domain public.shorter")),
        ("words", TEXT, "good", "bad", misfits("domain public.words")),
        ("given", TEXT, UUID, "x", misfits("uuid")),
        ("given", TEXT, UUID, None, "nulls, which domain public.given does not accept"),
        ("docs", TEXT, "1", "-0", MINUS_ZERO),
        ("host", TEXT, "::1", "::1 ", misfits("inet")),
        ("timestamptz(3)", MOMENT, "2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.0015Z", DIGITS),
        ("timestamptz(0)", MOMENT, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", DIGITS.replace("3", "0")),
        *((kind, TEXTS, [good, None], [good, bad], f"arrays with {what}") for kind, good, bad, what in (
            ("uuid[]", UUID, "NULL", misfits("uuid")),
            (f"{STATE}[]", "NULL", "red ", misfits(f"type {STATE}")),
            ("varchar(3)[]", "abc", "abc ", LONG),
            ("shorter[]", "abc", "abc ", LONG),
            ("shorter[]", "abc", "A", misfits("domain public.shorter")),
            ("words[]", "good", "bad", misfits("domain public.words")),
            ("jsonb[]", "1", "-0", MINUS_ZERO),
            ("jsonb[]", "1", '{"a":1,"a":1}', DOUBLED),
        )),
        ("given[]", TEXTS, [UUID], [None], "arrays with nulls, which domain public.given does not accept"),
        ("tags", TEXTS, ["a", "b"], ["a", "NULL", None], misfits("domain public.tags")),
        ("timestamptz(3)[]", t.ArrayType(MOMENT), [None], ["2026-01-01T00:00:00.0001Z"], f"arrays with {DIGITS}"),
    ],
)  # fmt: skip
def test_a_value_that_the_column_cannot_hold_is_refused_by_column_and_row_without_the_value(
    database: Database, kind: str, field: t.DataType, good: Any, bad: Any, what: str
) -> None:
    create(database, kind)
    with pytest.raises(Unconvertible) as raised:
        insert(database, field, [good, good, good, bad, good, bad])
    assert (str(raised.value), raised.value.row) == (f"column c has {what}, in 2 rows", 4)
    assert stored(database) == []
    insert(database, field, [good])
    assert len(stored(database)) == 1


def test_a_text_with_a_nul_character_is_refused_by_the_copy_with_its_row(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(database, "varchar(3)")
    failed = list[StatementFailed]()
    monkeypatch.setattr(connection, "meaning", lambda error, _: failed.append(error) or TableRefused("refused"))
    with pytest.raises(TableRefused):
        insert(database, TEXT, ["a", "b", "\0"])
    assert [(one.sqlstate, one.row, one.column) for one in failed] == [("22021", 3, "c")]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        *((kind, TEXT) for kind in ("char(3)", "time", "interval", "date", "timestamp", "timestamptz", "timestamptz(3)",
                                    "integer", "numeric", "boolean", "bytea", "name", "xml", "bit(3)", "int4range", "whole",
                                    "moment", "text[]", "uuid[]", "tags", '"char"', "macaddr")),
        *((kind, TEXTS) for kind in ("uuid", "json", "char(3)[]", "integer[]", "date[]", "text", "whole[]", "oidvector")),
        *((kind, MOMENT) for kind in ("moment", "timestamp(3)", "date", "time", "timestamptz[]")),
        ("moment[]", t.ArrayType(MOMENT)),
        ("uuid", t.BinaryType()),
        ("json", t.StructType([t.StructField("a", TEXT)])),
        ("jsonb[]", t.ArrayType(t.StructType([t.StructField("a", TEXT)]))),
        ("text[]", t.ArrayType(TEXTS)),
        ("integer[]", t.ArrayType(t.LongType())),
        ("numeric(9,1)[]", t.ArrayType(t.DecimalType(9, 2))),
        ("real[]", t.ArrayType(t.DoubleType())),
    ],
)  # fmt: skip
def test_all_other_types_stay_refused(database: Database, kind: str, field: t.DataType) -> None:
    create(database, kind)
    schema = t.StructType([t.StructField("c", field)])
    with session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        oid = store.oid()
        assert oid is not None
        (why,) = store.why_not_accepted(oid, schema, add=False)
    assert why.startswith("column c is ")


def test_settings_and_functions_of_the_login_change_no_value(own_database: Database) -> None:
    """A login may have settings under which texts mean something else, and functions of its own by the server's names."""
    user = own_database.settings["user"]
    own_database.run(
        "create schema mine; create function mine.char_length(text) returns integer language sql as 'select 0';"
        "create function mine.pg_input_is_valid(text, text) returns boolean language sql as 'select true';"
        "create domain mine.uuid as text; create domain listed as text[] check (value[1] is null or value[1] <> 'NULL');"
        "create domain said as text check (date '2026-02-01'::text = value and interval '1 hour'::text = '01:00:00');"
        f"create table orders (short varchar(3), tags listed, said said, times timestamptz(3)[], {OWN});"
        f"alter role {user} set search_path = mine, pg_catalog, public; alter role {user} set array_nulls = off;"
        f"alter role {user} set datestyle = 'SQL, DMY'; alter role {user} set intervalstyle = 'iso_8601';"
        f"alter role {user} set standard_conforming_strings = off; alter role {user} set timezone = 'Asia/Tokyo'"
    )
    schema = t.StructType(
        [
            t.StructField("short", TEXT),
            t.StructField("tags", TEXTS),
            t.StructField("said", TEXT),
            t.StructField("times", t.ArrayType(MOMENT)),
        ]
    )

    def publish(**row: Any) -> None:
        with session(own_database.config) as tx:
            store = Bookkeeping(tx, "public.orders")
            columns = store.columns(store.oid() or 0)
            temporary = TemporaryTable(tx, schema, columns)
            rows = Rows(schema, columns, START, 1, temporary.number)
            temporary.create()
            made = rows.of(pa.array([json.dumps(row).encode()]))
            tx.copy(*temporary.place, pa.RecordBatchReader.from_batches(rows.schema, [made]))
            temporary.check()
            temporary.insert_into(store.quoted)
            tx.commit()

    publish(short="abc", tags=[None, "NULL"], said="2026-02-01", times=["2026-02-01T00:00:00.123Z"])
    assert own_database.run(
        "select short, tags[1] is null, tags[2], times[1] = '2026-02-01 00:00:00.123Z' from orders"
    ) == [("abc", True, "NULL", True)]
    with pytest.raises(Unconvertible, match="column short has"):
        publish(short="abc ", tags=[], said=None, times=[])


def test_a_table_whose_column_has_the_name_of_the_row_number_is_published_to(database: Database) -> None:
    database.run(f'drop table if exists orders; create table orders ("row" varchar(3), row_ text, {OWN})')
    schema = t.StructType([t.StructField("row", TEXT), t.StructField("row_", TEXT)])
    with session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        assert TemporaryTable(tx, schema, store.columns(store.oid() or 0)).number == "row__"


def test_names_that_need_quotation_are_quoted(database: Database) -> None:
    name = "we{i}rd %s $1 \\ 'x'"
    database.run(f'drop table if exists orders; create table orders ("{name}" uuid[], {OWN})')
    schema = t.StructType([t.StructField(name, TEXTS)])
    with session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        columns = store.columns(store.oid() or 0)
        temporary = TemporaryTable(tx, schema, columns)
        rows = Rows(schema, columns, START, 1, temporary.number)
        temporary.create()
        made = rows.of(pa.array([json.dumps({name: [UUID]}).encode()]))
        tx.copy(*temporary.place, pa.RecordBatchReader.from_batches(rows.schema, [made]))
        temporary.check()
        temporary.insert_into(store.quoted)
        assert tx.run("select count(*) from orders") == [(1,)]


def told(database: Database, field: t.DataType) -> list[str]:
    """What a run would say of the table."""
    with session(database.config) as tx:
        tx.run("SET TRANSACTION READ ONLY")
        store = Bookkeeping(tx, "public.orders")
        return store.why_not_accepted(store.oid() or 0, t.StructType([t.StructField("c", field)]), add=False)


def test_an_older_server_is_named_and_the_statement_that_helps_there_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_checks, "OLDEST_THAT_CONVERTS", 99)
    for kind, field, value in (
        ("uuid", TEXT, f"'{UUID}'"),
        ("timestamptz(3)", MOMENT, "now()"),
        ("tags", TEXTS, "'{a}'"),
    ):
        create(database, kind)
        database.run(f"insert into orders values ({value})")  # noqa: S608
        (why,) = told(database, field)
        assert why.startswith(
            "values of column c have to be converted, which takes PostgreSQL 99 or later, and the server is "
        )
        database.run(why.split("upgrade it; or ")[1])
        assert told(database, field) == []
    create(database, "text[]")
    assert told(database, TEXTS) == [], "an array of a plain type is copied as it is"


def test_a_user_without_the_right_to_temporary_tables_is_told_the_grant(own_database: Database) -> None:
    """Only for a table that takes one."""
    name = own_database.settings["dbname"]
    own_database.as_superuser(
        f"alter database {name} owner to postgres; revoke temporary on database {name} from public;"
        f"grant all on schema public to {name}"
    )
    create(own_database, "text")
    assert told(own_database, TEXT) == []
    create(own_database, "uuid")
    (why,) = told(own_database, TEXT)
    grant = f'GRANT TEMPORARY ON DATABASE "{name}" TO "{name}"'
    assert why == f"values of column c have to be converted, for which the user has to create temporary tables: {grant}"
    own_database.as_superuser(grant)
    assert told(own_database, TEXT) == []
    insert(own_database, TEXT, [UUID])


def test_nothing_of_a_temporary_table_is_left_by_a_session_that_ends(database: Database) -> None:
    create(database, "uuid")
    schema = t.StructType([t.StructField("c", TEXT)])
    left = "select count(*) from pg_class where relname = 'fencepost_staged'"
    with closing(psycopg2.connect(**database.settings)) as other, session(database.config) as tx:
        store = Bookkeeping(tx, "public.orders")
        TemporaryTable(tx, schema, store.columns(store.oid() or 0)).create()
        assert tx.run("select to_regclass('pg_temp.fencepost_staged') is not null") == [(True,)]
        tx.commit()
        assert tx.run("select to_regclass('pg_temp.fencepost_staged') is null") == [(True,)]
        with other.cursor() as cursor:
            cursor.execute(left)
            assert cursor.fetchall() == [(0,)]


CONVERTED = """
def transform(frame):
    return frame.where("n >= 0").selectExpr(
        "n", "format_string('a0eebc99-9c0b-4ef8-bb6d-6bb9bd3800%02d', n) AS id", "name AS short",
        "concat('10.0.0.', n, '/8') AS host",
        "'10.0.0.7' AS one_host", "array('10.0.0.7', null, '::1/64') AS hosts", "'red' AS state",
        '''concat('{"b": 1.50,  "a": ', n, '}') AS doc''', '''concat('{"b": 1.50,  "a": ', n, '}') AS plain''',
        "array('NULL', null, name) AS tags", "array(n, null) AS list", "array(cast(n as decimal(9, 2))) AS amounts",
        "array(true) AS nested", "timestamp'2026-01-01 00:00:00.123' AS at", "array(timestamp'2026-01-01 00:00:00.5') AS times")
"""
COLUMNS = (
    f"n integer, id uuid primary key, short shorter, host inet, one_host inet, hosts host[], state {STATE}, doc jsonb, "
    "plain json, tags tags, list integer[], amounts numeric(12, 5)[], nested jsonb, at timestamptz(3), times timestamptz(1)[]"
)


def test_a_batch_is_published_to_somebody_elses_table_replaced_and_read_back(
    spark: Any, broker: Broker, make_table: Make, database: Database
) -> None:
    """What the reader gets is what the transform gave, in the server's spelling."""
    database.run(
        f"drop table if exists numbers; create table numbers ({COLUMNS.replace('tags tags', 'tags text[]')}, {OWN})"
    )
    pipeline = make_table(CONVERTED, postgres=database.settings)
    fill(broker, pipeline, name="é")
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert numbers_in(pipeline) == of_revision(2, range(6))
    assert missing_of(Deployment.of(pipeline)) == ""
    ((why, *_),) = ask(pipeline, "select count(*) from pg_class where relname = 'fencepost_staged'")
    assert why == 0
    row = ask(
        pipeline,
        "select id::text, short::text, host::text, format('%s', one_host), state::text, doc::text, plain::text, tags, list, "
        "amounts, at = '2026-01-01 00:00:00.123Z', times[1] = '2026-01-01 00:00:00.5Z' from numbers where n = 3",
    )
    uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380003"
    same = (
        uuid,
        "é",
        "10.0.0.3/8",
        "10.0.0.7",
        "red",
        '{"a": 3, "b": 1.50}',
        '{"b": 1.50,  "a": 3}',
        ["NULL", None, "é"],
        [3, None],
    )
    assert row == [(*same, [Decimal("3.00000")], True, True)]
    read = read_validated(spark, announced(pipeline, day(1)), kafka=kafka_of(pipeline), postgres=store_of(pipeline))
    assert read.count() == 6
    found = read.where("n = 3").first()
    assert found is not None
    named = ("id", "short", "host", "one_host", "state", "doc", "plain", "tags", "list")
    assert tuple(found[name] for name in named) == same
    assert (found.hosts, found.amounts, found.nested) == (["10.0.0.7", None, "::1/64"], [Decimal("3.00")], [True])
    epochs = read.where("n = 3").selectExpr("unix_micros(at)", "unix_micros(times[0])").first()
    assert epochs is not None
    assert tuple(epochs) == (1767225600123000, 1767225600500000)


def test_a_batch_with_a_value_that_the_column_cannot_hold_is_rejected_by_column_and_record(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table(ROWS.replace('"name"', "\"if(n = 3, concat(name, ' '), name) AS name\""))
    ask(pipeline, f"create table numbers (n integer check (n <> 77), doubled integer, name varchar(3), {OWN})")
    judged(spark, broker, pipeline, name="ü☃!")
    with pytest.raises(
        TableRefusedData, match=r"column name has texts of more than 3 characters, blanks included, in 1 row"
    ) as raised:
        advance_batch(pipeline, day(1))
    assert "☃" not in str(raised.value)
    named = re.search(
        rf"the first is the record in topic {pipeline.staging_topic}, partition (\d), offset (\d+)\.", str(raised.value)
    )
    assert named is not None, raised.value
    staged = {(one.partition, one.offset): one.value for one in read_all(broker.bootstrap, pipeline.staging_topic)}
    assert json.loads(staged[int(named[1]), int(named[2])] or b"")["n"] == 3
    batch = latest(pipeline, day(1))
    assert (batch.state, numbers_in(pipeline)) == (State.REJECTED, [])
    ask(pipeline, "alter table numbers alter name type varchar(4), add check (doubled < 10)")
    with pytest.raises(
        TableRefusedData, match=r"a row that fails a check \(SQLSTATE 23514, constraint numbers_doubled_check\)"
    ):
        advance_batch(pipeline, day(1), a_decision("publish"))
    ask(pipeline, "alter table numbers drop constraint numbers_doubled_check")
    assert advance_batch(pipeline, day(1), a_decision("publish")).state is State.PUBLISHED
    assert ask(pipeline, "select name from numbers where n = 3") == [("ü☃! ",)]


def test_a_session_that_ends_between_the_temporary_table_and_the_commit_leaves_nothing(
    spark: Any, broker: Broker, make_table: Make, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_table()
    ask(pipeline, f"create table numbers (n integer, doubled integer, name varchar(9), {OWN})")
    judged(spark, broker, pipeline)
    name, at_place = store_of(pipeline)["dbname"], commit.reached
    left = "select count(*) from pg_class where relname = 'fencepost_staged'"
    for place in ("table.staged", "table.copied"):

        def end_sessions(reached: str, task: int | None = None, place: str = place) -> None:
            if reached == place:
                end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
                assert postgres.run(end, values=(name,))

        monkeypatch.setattr(commit, "reached", end_sessions)
        with pytest.raises(TableUnavailable):
            advance_batch(pipeline, day(1))
        assert numbers_in(pipeline) == []
        await_true(lambda: ask(pipeline, left) == [(0,)], "the ended session to drop its table", 60)
    monkeypatch.setattr(commit, "reached", at_place)
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    assert numbers_in(pipeline) == of_revision(1, range(6))
