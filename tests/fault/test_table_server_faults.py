"""A table's server fails under a publication: sessions are ended, connections cut, answers lost, disks full.

Afterwards the publication is run again, and the table equals the source row by row.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import CommitStateUnknown, TableUnavailable
from fencepost.model import State
from fencepost.outputs.postgres import commit
from fencepost.postgres import connection
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from rigs.postgres_server import PostgresServer
from rigs.small_disk import small_disk, text_of
from rigs.tcp_proxy import Proxy
from steps import latest, run
from tables import ask, judged, numbers_in, of_revision, store_of
from waiting import await_true

Make = Callable[..., Pipeline]

SLOW = pytest.mark.fault
PLACES = ("table.locked", "copying", "table.copied", "table.committed")


def rows_in(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """The table's rows, long texts as their digest."""
    return ask(pipeline, "select n, doubled, md5(name), fencepost_revision from numbers order by 1, 4")


def truth(numbers: range, name: str, revision: int = 1) -> list[tuple[Any, ...]]:
    """What the source says that the table has."""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return [(n, 2 * n, digest, revision) for n, _ in of_revision(revision, numbers)]


def strike(monkeypatch: pytest.MonkeyPatch, place: str, action: Callable[[], None]) -> list[str]:
    """Have the action happen once at a place of the publication; the places that it comes by."""
    seen, read = list[str](), commit.read_staged

    def reached(name: str, task: int | None = None) -> None:
        seen.append(name)
        if name == place and seen.count(name) == 1:
            action()

    def in_two_parts(*arguments: Any) -> Iterator[Any]:
        """Between them some rows are on their way, and others are not."""
        for batch in read(*arguments):
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            reached("copying")
            yield batch.slice(half)

    monkeypatch.setattr(commit, "reached", reached)
    monkeypatch.setattr(commit, "read_staged", in_two_parts)
    return seen


@pytest.fixture
def through_a_proxy(
    postgres: PostgresServer, make_table: Make, broker: Any, spark: Any
) -> Iterator[tuple[Pipeline, Proxy]]:
    """A pipeline that reaches the server through a proxy only, with a batch that has passed."""
    direct = postgres.database()
    with Proxy(any_free_port(), postgres.port) as proxy:
        yield judged(spark, broker, make_table(postgres=direct | {"port": str(proxy.port)})), proxy


@pytest.mark.parametrize("cut", ["by the network", "by the server"])
@pytest.mark.parametrize(
    "place",
    [pytest.param(p, marks=SLOW) if p != "copying" else pytest.param(p, marks=pytest.mark.deep) for p in PLACES],
)
def test_where_connections_are_cut_nothing_or_all_is_committed(
    spark: Any,
    through_a_proxy: tuple[Pipeline, Proxy],
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    cut: str,
) -> None:
    pipeline, proxy = through_a_proxy
    begin_batch(pipeline, day(1))

    def end_sessions() -> None:
        name = store_of(pipeline)["dbname"]
        assert postgres.run("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", values=(name,))

    seen = strike(monkeypatch, place, proxy.cut if cut == "by the network" else end_sessions)
    if place == "table.committed":
        assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    else:
        with pytest.raises(TableUnavailable):
            advance_batch(pipeline, day(1))
        assert rows_in(pipeline) == []
        assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    assert place in seen
    assert rows_in(pipeline) == truth(range(6), "ü")
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert rows_in(pipeline) == truth(range(6), "ü", 2)


@pytest.mark.parametrize("commits", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_after_a_lost_answer_to_the_commit_the_row_says_what_happened(
    through_a_proxy: tuple[Pipeline, Proxy], monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    pipeline, proxy = through_a_proxy
    real = connection.Session.commit
    lost = list[bool]()

    def commit(session: connection.Session) -> None:
        if lost or not session.run("SELECT 1 FROM fencepost_batches WHERE lease >= 0"):
            return real(session)  # a commit of another transaction
        lost.append(True)
        if commits:  # the server commits, and its answer is swallowed
            proxy.swallowing = True
            with ThreadPoolExecutor(1) as aside:
                answer = aside.submit(real, session)
                await_true(lambda: proxy.swallowed > 0, "the answer to be swallowed")
                proxy.swallowing = False
                proxy.cut()
                return answer.result(60)
        proxy.cut()  # the commit does not arrive
        return real(session)

    monkeypatch.setattr(connection.Session, "commit", commit)
    if commits:
        assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    else:
        with pytest.raises(TableUnavailable):
            advance_batch(pipeline, day(1))
        assert numbers_in(pipeline) == []
        assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    assert lost
    assert numbers_in(pipeline) == of_revision(1, range(6))


@pytest.mark.deep
def test_where_nobody_can_be_asked_after_a_lost_answer_the_next_attempt_asks(
    through_a_proxy: tuple[Pipeline, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, proxy = through_a_proxy

    def lost(session: connection.Session) -> None:
        session._connection.commit()
        proxy.refusing = True
        proxy.cut()
        raise CommitStateUnknown("no answer came.")

    with monkeypatch.context() as patch:
        begin_batch(pipeline, day(1))
        patch.setattr(connection.Session, "commit", lost)
        with pytest.raises(TableUnavailable):
            advance_batch(pipeline, day(1))
    proxy.refusing = False
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
    assert numbers_in(pipeline) == of_revision(1, range(6))


@SLOW
def test_a_full_disk_under_the_table_commits_nothing_and_a_larger_one_all(
    spark: Any, broker: Broker, make_table: Make, postgres: PostgresServer, tmp_path: Path
) -> None:
    store, numbers, name = postgres.database(), range(100), text_of(50_000)
    disk = tmp_path / "disk"
    with small_disk(disk, "2m") as resize:
        postgres.own(disk / "tables")
        postgres.run(f"create tablespace small location '{disk / 'tables'}'")
        postgres.run(f"grant create on tablespace small to {store['user']}")
        postgres.run(f"alter role {store['user']} set default_tablespace = small")
        pipeline = make_table(postgres=store)
        try:
            begin_batch(judged(spark, broker, pipeline, numbers, name), day(1))
            with pytest.raises(
                TableUnavailable, match=r"No space left on device \(SQLSTATE 53100\).*Nothing was committed"
            ):
                advance_batch(pipeline, day(1))
            assert rows_in(pipeline) == []
            resize("64m")
            assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
            assert rows_in(pipeline) == truth(numbers, name)
        finally:
            postgres.run(f"drop database {store['dbname']} with (force)")
            postgres.run(f"alter role {store['user']} reset default_tablespace")
            postgres.run(f"revoke create on tablespace small from {store['user']}")
            postgres.run("drop tablespace small")


@SLOW
def test_a_full_disk_under_the_servers_log_ends_it_and_what_was_committed_stays(
    spark: Any, broker: Broker, make_table: Make, tmp_path: Path
) -> None:
    """PostgreSQL ends itself where it cannot write its log. It starts again once there is room."""
    numbers, name, disk = range(800), text_of(50_000), tmp_path / "disk"
    with small_disk(disk, "400m") as resize, PostgresServer(disk / "pg") as server:
        (tmp_path / "tables").mkdir()
        server.own(tmp_path / "tables" / "large")
        server.run(f"create tablespace large location '{tmp_path / 'tables' / 'large'}'")
        store = server.database()
        server.run(f"grant create on tablespace large to {store['user']}")
        server.run(f"alter role {store['user']} set default_tablespace = large")
        pipeline = make_table(postgres=store)
        begin_batch(judged(spark, broker, pipeline, numbers, name), day(1))
        used = os.statvfs(disk)
        resize(str((used.f_blocks - used.f_bfree) * used.f_frsize + 2**20))
        with pytest.raises(TableUnavailable):
            advance_batch(pipeline, day(1))
        resize("400m")
        assert re.search(r"PANIC: .*pg_wal.*No space left on device", server.said())
        server.kill()  # unless it has ended by itself
        assert rows_in(pipeline) == []
        assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
        assert rows_in(pipeline) == truth(numbers, name)
        server.kill()
        assert rows_in(pipeline) == truth(numbers, name)
