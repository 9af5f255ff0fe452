"""A table's server fails under a publication: its sessions are ended, its connections are cut, its disks are full.

Afterwards the publication is run again, and the table equals the source row by row.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import StoreUnavailable
from fencepost.model import State
from fencepost.outputs.postgres import commit
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from rigs.postgres_server import PostgresServer
from rigs.tcp_proxy import Proxy
from steps import plan_and_write, run
from tables import ask, fill, of_revision

Make = Callable[..., Pipeline]

SLOW = pytest.mark.fault
PLACES = ("store.locked", "copying", "store.copied", "store.committed")


def rows_in(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """The table's rows, long texts as their digest."""
    return ask(pipeline, "select n, doubled, md5(name), fencepost_revision from numbers order by 1, 4")


def truth(numbers: range, name: str, revision: int = 1) -> list[tuple[Any, ...]]:
    """What the source says that the table has."""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return [(n, 2 * n, digest, revision) for n, _ in of_revision(revision, numbers)]


def passed(spark: Any, broker: Broker, pipeline: Pipeline, numbers: range = range(6), name: str = "ü") -> None:
    """Have a batch written and judged, whose publication has begun."""
    fill(broker, pipeline, numbers, name=name)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))


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


@pytest.mark.parametrize("cut", ["by the network", "by the server"])
@pytest.mark.parametrize(
    "place",
    [pytest.param(p, marks=SLOW) if p != "copying" else pytest.param(p, marks=pytest.mark.deep) for p in PLACES],
)
def test_where_connections_are_cut_nothing_or_all_is_committed(
    spark: Any,
    broker: Broker,
    make_table: Make,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    cut: str,
) -> None:
    direct = postgres.database()
    with Proxy(any_free_port(), postgres.port) as proxy:
        pipeline = make_table(postgres=direct | {"port": str(proxy.port)})
        passed(spark, broker, pipeline)

        def end_sessions() -> None:
            ended = postgres.run(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                values=(direct["dbname"],),
            )
            assert ended

        seen = strike(monkeypatch, place, proxy.cut if cut == "by the network" else end_sessions)
        if place == "store.committed":
            assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
        else:
            with pytest.raises(StoreUnavailable):
                advance_batch(pipeline, day(1))
            assert rows_in(pipeline) == []
            assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
        assert place in seen
        assert rows_in(pipeline) == truth(range(6), "ü")
        assert run(spark, pipeline, day(1), reprocess=True).revision == 2
        assert rows_in(pipeline) == truth(range(6), "ü", 2)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A disk of this size, mounted there, which everybody may write to; what is given sets another size."""
    assert os.geteuid() == 0, "only root may mount a disk: run this test as root"
    folder.mkdir(parents=True, exist_ok=True)

    def mount(*options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], check=True)

    mount(f"size={size}", "mode=777")
    try:
        yield lambda larger: mount("remount", f"size={larger}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def text_of(size: int) -> str:
    """A text that no compression makes much shorter."""
    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


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
            passed(spark, broker, pipeline, numbers, name)
            with pytest.raises(
                StoreUnavailable, match=r"No space left on device \(SQLSTATE 53100\).*Nothing was committed"
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
        passed(spark, broker, pipeline, numbers, name)
        used = os.statvfs(disk)
        resize(str((used.f_blocks - used.f_bfree) * used.f_frsize + 2**20))
        with pytest.raises(StoreUnavailable):
            advance_batch(pipeline, day(1))
        resize("400m")
        assert re.search(r"PANIC: .*pg_wal.*No space left on device", server.said())
        server.kill()  # unless it has ended by itself
        assert rows_in(pipeline) == []
        assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
        assert rows_in(pipeline) == truth(numbers, name)
        server.kill()
        assert rows_in(pipeline) == truth(numbers, name)
