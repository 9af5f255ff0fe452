"""Publications to one current table at the same time: they wait for one lock, in one order, and see what came before."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg2
import pytest

from currents import Currents
from fencepost.errors import TableUnavailable
from fencepost.outputs.postgres import current, lock
from fencepost.postgres import connection
from rigs.postgres_server import PostgresServer
from waiting import await_true

HELD = 15  # seconds that a test waits for a thread at most


@pytest.fixture
def currents(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Currents:
    found = Currents(postgres, tmp_path / "customers", monkeypatch)
    found.publish(0, [(1, 10, False, "a"), (2, 11, False, "b")])
    found.publish(1, [(1, 20, False, "newer")])
    return found


class Gate:
    """Stops the first session that reaches a place, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self._place, self._first = place, threading.Lock()
        monkeypatch.setattr(current, "reached", self._pass)

    def _pass(self, name: str, task: int | None = None) -> None:
        if name == self._place and self._first.acquire(blocking=False):
            self.reached.set()
            assert self.opened.wait(HELD)


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def is_waiting(currents: Currents) -> bool:
    """Whether a session waits for a lock on a row of `fencepost_tables`."""
    found = currents.run(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and query like '%fencepost_tables%FOR UPDATE%'"
    )
    return found != [(0,)]


def test_the_second_of_two_sees_what_the_first_has_committed(
    currents: Currents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both touch key 1. The one that waits has copied its rows before the other committed, and computes afterwards."""
    gate = Gate(monkeypatch, "current.locked")
    one, other = currents.batch(1, []), currents.batch(2, [(1, 15, False, "between"), (3, 30, False, "c")])
    with threads() as pool:
        first = pool.submit(currents.commit, one)
        assert gate.reached.wait(HELD)
        second = pool.submit(currents.commit, other)
        await_true(lambda: is_waiting(currents), "the second to wait for the lock", HELD)
        assert currents.there() == [(1, 20, "newer"), (2, 11, "b")], "nothing of either is seen"
        gate.opened.set()
        assert first.result(HELD) is not None
        assert second.result(HELD) is not None
    assert currents.there() == [(1, 15, "between"), (2, 11, "b"), (3, 30, "c")] == currents.wanted()


def test_one_that_began_later_may_commit_first(currents: Currents, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "nowhere")
    copied, go_on = threading.Event(), threading.Event()
    lock_it = current.lock_current

    def waits_before(*values: object) -> object:
        if not copied.is_set():
            copied.set()
            assert go_on.wait(HELD)
        return lock_it(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(current, "lock_current", waits_before)
    one, other = currents.batch(1, [(1, 21, True, "gone")]), currents.batch(2, [(1, 30, False, "latest")])
    with threads() as pool:
        first = pool.submit(currents.commit, one)
        assert copied.wait(HELD)
        currents.commit(other)
        assert currents.there() == [(1, 30, "latest"), (2, 11, "b")]
        go_on.set()
        keys = first.result(HELD)
    assert not gate.reached.is_set()
    assert keys is not None
    assert (keys.deleted, keys.changed, keys.same) == (0, 0, 1)
    assert currents.there() == [(1, 30, "latest"), (2, 11, "b")] == currents.wanted()


def test_many_at_once_never_deadlock_and_every_reader_sees_the_newest_rows(currents: Currents) -> None:
    """Each thread publishes its own intervals, and all of them touch the same few keys. A reader looks all the while."""
    chance = random.Random(7)
    batches = []
    for _ in range(6):
        for day in range(4):
            keys = [(chance.randrange(6), chance.randrange(100)) for _ in range(chance.randrange(7))]
            batches.append((day, currents.batch(day, [(k, p, p % 5 == 0, f"{k}:{p}") for k, p in keys])))
    before = deadlocks(currents)
    ended, wrong = threading.Event(), list[int]()

    def look() -> int:
        looks = 0
        while not ended.is_set():
            looks += 1
            if not currents.is_right():
                wrong.append(looks)
        return looks

    def publish(day: int) -> int:
        return sum(currents.commit(batch) is not None for number, batch in batches if number == day)

    with ThreadPoolExecutor(5) as pool:
        looks = pool.submit(look)
        done: list[Future[int]] = [pool.submit(publish, day) for day in range(4)]
        try:
            assert [one.result(240) for one in done] == [6] * 4
        finally:
            ended.set()
        assert looks.result(HELD) > 10
    assert wrong == []
    assert currents.there() == currents.wanted()
    assert deadlocks(currents) == before


def deadlocks(currents: Currents) -> int:
    currents.run("select pg_stat_clear_snapshot()")
    ((found,),) = currents.run("select deadlocks from pg_stat_database where datname = current_database()")
    return int(found)


def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "session", partial(connection.session, wait=1.0))


def test_whoever_waits_ends_an_idle_holder_of_another_interval(
    currents: Currents, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_waits(monkeypatch)
    gate = Gate(monkeypatch, "current.locked")
    stopped = currents.batch(1, [])
    with threads() as pool:
        first = pool.submit(currents.commit, stopped)
        assert gate.reached.wait(HELD)
        began = time.monotonic()
        assert currents.publish(2, [(3, 30, False, "c")]) is not None
        assert time.monotonic() - began < HELD
        gate.opened.set()
        with pytest.raises(TableUnavailable, match=r"session has ended|ended the session"):
            first.result(HELD)
    assert currents.there() == [(1, 20, "newer"), (2, 11, "b"), (3, 30, "c")] == currents.wanted()
    currents.commit(stopped)
    assert currents.there() == [(1, 10, "a"), (2, 11, "b"), (3, 30, "c")] == currents.wanted()


def test_a_holder_that_this_user_may_not_end_is_named(currents: Currents, monkeypatch: pytest.MonkeyPatch) -> None:
    short_waits(monkeypatch)
    name = lock.application_name(lock.current_name_of("public.changes"))
    with psycopg2.connect(**currents.server.superuser(currents.store["dbname"]), application_name=name) as other:
        with other.cursor() as cursor:
            cursor.execute("select 1 from fencepost_tables where name = 'public.customers' for update")
            with pytest.raises(
                TableUnavailable, match=rf"its current table: session {other.get_backend_pid()} of user"
            ):
                currents.publish(2, [(3, 30, False, "c")])
        other.rollback()
    assert currents.publish(2, [(3, 30, False, "c")]) is not None, "nothing was committed before"
    assert currents.there() == currents.wanted()


def test_a_rebuild_waits_for_a_publication_and_the_next_publication_for_it(
    currents: Currents, monkeypatch: pytest.MonkeyPatch
) -> None:
    from integration.test_current_stale import rebuilt

    currents.run(
        'update fencepost_tables set current = current || \'{"stale": "a test said so"}\' where current is not null'
    )
    gate = Gate(monkeypatch, "current.changed")
    with threads() as pool:
        rebuild = pool.submit(rebuilt, currents)
        assert gate.reached.wait(HELD)
        second = pool.submit(currents.commit, currents.batch(1, [(1, 5, False, "older")]))
        await_true(lambda: is_waiting(currents), "the publication to wait for the rebuild", HELD)
        gate.opened.set()
        rebuild.result(HELD)
        assert second.result(HELD) is not None, "it is not stale any more"
    assert currents.there() == [(1, 10, "a"), (2, 11, "b")] == currents.wanted()
