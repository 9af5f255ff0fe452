"""What only asks a table, on a real PostgreSQL: by which index, beside whose locks, for how long; and whose session is ended."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest
from pydantic import SecretStr

from conftest import day
from fencepost.config.client_config import ClientConfig
from fencepost.errors import TableUnavailable
from fencepost.findings import Level
from fencepost.outputs.postgres import lock
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.doctor import _of_the_table
from fencepost.outputs.postgres.lock import name_of, publishers_of
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.postgres import connection
from fencepost.postgres.connection import asking, session
from fencepost.protocol.view import View
from fencepost_stack.postgres import SUPERUSER
from rigs.postgres_server import PASSWORD, PostgresServer, query

Settings = dict[str, str]
STARTS = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(20)]
TABLE = "public.numbers"
OUTPUT = PostgresSettings(kind="postgres", table=TABLE)


class Login(ClientConfig):
    """Who asks."""

    @property
    def label(self) -> str:
        return "a test"

    @property
    def written_in(self) -> str:
        return "a test"


def login(settings: Settings, **changes: str) -> Login:
    return Login(name="p", postgres={k: SecretStr(v) for k, v in (settings | changes).items()})


@pytest.fixture
def database(postgres: PostgresServer) -> Settings:
    return postgres.database()


PLAIN = "create table numbers (n integer, fencepost_interval timestamptz, fencepost_revision integer)"
BY_RANGE = f"{PLAIN} partition by range (fencepost_interval)"
PARTITIONS = (
    "create table early partition of numbers for values from (minvalue) to ('2026-01-11T00:00:00Z')",
    "create table late partition of numbers for values from ('2026-01-11T00:00:00Z') to (maxvalue)",
)
BY = "(fencepost_interval)"
DEFINITIONS: dict[str, tuple[list[str], bool]] = {
    "a B-tree": ([PLAIN, f"create index on numbers {BY}"], True),
    "its other direction": ([PLAIN, "create index on numbers (fencepost_interval desc nulls last, n)"], True),
    "nulls first": ([PLAIN, "create index on numbers (fencepost_interval nulls first) include (n)"], True),
    "no index": ([PLAIN], False),
    "the second key": ([PLAIN, "create index on numbers (n, fencepost_interval)"], False),
    "included": ([PLAIN, "create index on numbers (n) include (fencepost_interval)"], False),
    "BRIN": ([PLAIN, f"create index on numbers using brin {BY}"], False),
    "hash": ([PLAIN, f"create index on numbers using hash {BY}"], False),
    "some rows": ([PLAIN, f"create index on numbers {BY} where n > 3"], False),
    "an expression": ([PLAIN, "create index on numbers ((fencepost_interval at time zone 'UTC'))"], False),
    "an invalid one": ([PLAIN, "UNIQUE"], False),
    "an invalid one beside a valid one": ([PLAIN, "UNIQUE", f"create index on numbers {BY}"], True),
    "a partitioned table": ([BY_RANGE, *PARTITIONS, f"create index on numbers {BY}"], True),
    "each partition": ([BY_RANGE, *PARTITIONS, f"create index on early {BY}", f"create index on late {BY}"], True),
    "one partition": ([BY_RANGE, *PARTITIONS, "create index on numbers (n)", f"create index on late {BY}"], False),
    "no partition": ([BY_RANGE, *PARTITIONS, f"create index on only numbers {BY}"], False),
    "a child without": ([PLAIN, f"create index on numbers {BY}", "create table child () inherits (numbers)"], False),
}


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_only_an_index_that_finds_each_interval_is_gone_through_and_without_one_the_table_is_read_once(
    database: Settings, definition: str
) -> None:
    statements, expected = DEFINITIONS[definition]
    rows = "insert into numbers select i, unnest(%s::timestamptz[]) from generate_series(1, 3) as i"
    for statement in statements:
        if statement == "UNIQUE":
            query(database, rows, [STARTS])
            with pytest.raises(psycopg2.errors.UniqueViolation):
                query(database, f"create unique index concurrently failed on numbers {BY}")
        else:
            query(database, statement)
    if "UNIQUE" not in statements:
        query(database, rows, [STARTS])
    with asking(login(database)) as tx:
        store = Bookkeeping(tx, TABLE)
        oid = store.oid()
        assert oid is not None
        assert (store.unindexed(oid) == []) is expected
        assert store.filled(oid) == set(STARTS)
        reads = tx.run("SELECT max(seq_scan) FROM pg_stat_xact_user_tables WHERE schemaname = 'public'")
        assert expected or reads == [(1,)]
        look: Any = SimpleNamespace(
            pipeline=SimpleNamespace(name="p", output=OUTPUT),
            view=View(),
            deployment=SimpleNamespace(cluster=SimpleNamespace(id="here")),
        )
        found = list(_of_the_table(look, store, oid))
    assert [one.level for one in found] == [Level.OK if expected else Level.WARNING]
    if not expected:
        query(database, found[0].command)
        with asking(login(database)) as tx:
            assert Bookkeeping(tx, TABLE).unindexed(oid) == [], "what the doctor says is enough"


@contextmanager
def locked(settings: Settings) -> Iterator[int]:
    """Somebody else's session that locks what is asked; its number."""
    with closing(psycopg2.connect(**settings)) as other, other.cursor() as cursor:
        cursor.execute("lock table fencepost_batches in access exclusive mode")
        yield other.info.backend_pid


def test_who_asks_a_locked_table_gives_up_and_names_who_locks_it(
    database: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ASK_LOCK_SECONDS", 0.3)
    prepared(database)
    expected = r"another session held a lock for more than 0\.3 s\. .*: {pid} of user {user}\. .*pg_terminate_backend"
    with locked(database) as pid:
        named = expected.format(pid=pid, user=database["user"])
        with pytest.raises(TableUnavailable, match=named), asking(login(database)) as tx:
            Bookkeeping(tx, TABLE).named()
    with asking(login(database)) as tx:
        assert list(Bookkeeping(tx, TABLE).named()) == []


def test_who_asks_waits_for_no_statement_and_no_silent_server_for_ever(
    database: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ASK_SECONDS", 2.0)
    with pytest.raises(TableUnavailable, match="a query took more than 2 s"), asking(login(database)) as tx:
        tx.run("SELECT pg_sleep(60)")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # its backlog accepts, and nobody answers
        nowhere = login(database, port=str(silent.getsockname()[1]), connect_timeout="0")
        with pytest.raises(TableUnavailable, match=r"timeout expired"), asking(nowhere) as tx:
            tx.run("SELECT 1")


def test_who_asks_cannot_write(database: Settings) -> None:
    with pytest.raises(TableUnavailable, match="SQLSTATE 25006"), asking(login(database)) as tx:
        tx.run("CREATE TABLE t (n integer)")


@pytest.fixture
def roles(postgres: PostgresServer) -> Iterator[Callable[..., Settings]]:
    """Make logins of a database; what is made is dropped."""
    made: list[Settings] = []

    def make(owner: Settings, name: str, *statements: str) -> Settings:
        user = f"{owner['user']}_{name}"
        postgres.run(f"create role {user} login password '{PASSWORD}'")
        made.append(owner | {"user": user})
        for statement in statements:
            postgres.run(statement.format(user=user, owner=owner["user"]), dbname=owner["dbname"])
        return made[-1]

    yield make
    for one in made:
        postgres.run(f"drop owned by {one['user']} cascade", dbname=one["dbname"])
        postgres.run(f"drop role {one['user']}")


def pipeline_of(settings: Settings) -> Any:
    """A pipeline, as far as its login is asked for."""
    return login(settings)


def locking(settings: Settings) -> AbstractContextManager[Any]:
    """A transaction of this login that has locked the interval's row."""
    return lock.locked(pipeline_of(settings), TABLE, day(1))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter gives up soon."""
    monkeypatch.setattr(lock, "session", partial(connection.session, wait=0.3))


@contextmanager
def holding(settings: Settings) -> Iterator[Any]:
    """A publisher that has locked the interval's row and does nothing any more."""
    with ExitStack() as stack:
        tx = stack.enter_context(session(login(settings), name_of(TABLE, day(1))))
        store = Bookkeeping(tx, TABLE)
        store.lock_row(day(1).start)
        yield tx


def prepared(settings: Settings) -> None:
    with session(login(settings)) as tx:
        Bookkeeping(tx, TABLE).prepare()
        tx.commit()


def is_alive(tx: Any) -> bool:
    try:
        return bool(tx.run("SELECT 1"))
    except TableUnavailable:
        return False


GROUP = ("grant {owner} to {user}", "alter role {user} set role = {owner}")
MEMBER = ("grant {owner} to {user}",)
SIGNAL = "grant pg_signal_backend, pg_read_all_stats to {user}"


@pytest.mark.parametrize(
    ("holder", "waiter"),
    [
        pytest.param((), (), id="one login"),
        pytest.param(GROUP, None, id="one login with SET role"),
        pytest.param((), GROUP, id="the owner, and a login that acts as it"),
        pytest.param((), MEMBER, id="the owner, and a member"),
        pytest.param(GROUP, (*GROUP, SIGNAL), id="two logins of a group, with the rights for it"),
    ],
)
def test_a_publisher_that_does_nothing_is_ended_by_who_may_end_it(
    database: Settings,
    roles: Callable[..., Settings],
    impatient: None,
    holder: tuple[str, ...],
    waiter: tuple[str, ...] | None,
) -> None:
    first = roles(database, "holder", *holder) if holder else database
    second = first if waiter is None else roles(database, "waiter", *waiter) if waiter else database
    prepared(database)
    with holding(first) as idle:
        with locking(second) as (_, _, held):
            assert held.start == day(1).start
        assert not is_alive(idle)


@pytest.mark.parametrize(
    "waiter",
    [pytest.param(GROUP, id="two logins of a group"), pytest.param(None, id="the owner, and a login that acts as it")],
)
def test_a_publisher_that_may_not_be_ended_is_named_with_what_to_grant(
    database: Settings, roles: Callable[..., Settings], impatient: None, waiter: tuple[str, ...] | None
) -> None:
    first = roles(database, "holder", *GROUP)
    second = roles(database, "waiter", *waiter) if waiter else database
    prepared(database)
    with holding(first) as idle:
        ((pid,),) = idle.run("SELECT pg_backend_pid()")
        named = rf"session {pid} of user {first['user']} publishes it, and user {second['user']} may not end that session\. "
        with (
            pytest.raises(
                TableUnavailable,
                match=rf'{named}.*_backend\({pid}\).*GRANT pg_signal_backend, pg_read_all_stats TO "{second["user"]}"',
            ),
            locking(second),
        ):
            pass
        assert publishers_of(pipeline_of(second), TABLE, day(1)) == [f"session {pid} of user {first['user']}"]
        assert is_alive(idle)
    with locking(second):
        pass


def test_a_superusers_publisher_is_named_and_left_alone(
    database: Settings, postgres: PostgresServer, impatient: None, roles: Callable[..., Settings]
) -> None:
    """Nobody but a superuser may end it, whatever else is granted."""
    prepared(database)
    waiter = roles(database, "waiter", *MEMBER, SIGNAL)
    with holding(postgres.superuser(database["dbname"])) as idle:
        with (
            pytest.raises(TableUnavailable, match=f"of user {SUPERUSER} publishes it"),
            locking(waiter),
        ):
            pass
        assert is_alive(idle)
