"""The rig of the lakehouse does what its tests rely on: real commits, tricks of the network, and readers that agree."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, RESTError
from pyiceberg.table import Table
from requests.exceptions import ConnectionError as NoConnection

from fencepost_stack.ports import any_free_port
from lakes import Lake, make_old
from rigs.http_proxy import Hold, HttpProxy, answering, doing, lost_answer, lost_request, repeated
from rigs.iceberg_catalog import RestCatalog

numbers = count(1)


@pytest.fixture
def proxy(rest_lake: Lake) -> Iterator[HttpProxy]:
    """A proxy in front of the REST catalog."""
    with HttpProxy(any_free_port(), rest_lake.of.port) as running:
        yield running


@pytest.fixture
def table(rest_lake: Lake, proxy: HttpProxy) -> Table:
    """A table with one snapshot, reached through the proxy."""
    return made(load_catalog("any", type="rest", uri=f"http://127.0.0.1:{proxy.port}"))


def made(catalog: Catalog) -> Table:
    name = f"rig{next(numbers)}.t"
    catalog.create_namespace(name.split(".")[0])
    table = catalog.create_table(name, schema=pa.schema([("n", pa.int64()), ("amount", pa.decimal128(9, 2))]))
    append(table, 1)
    return table


def append(table: Table, n: int) -> None:
    """One commit of the table as it was read, without a retry."""
    tx = table.transaction()
    tx.append(pa.table({"n": [n], "amount": pa.array([Decimal("1.50")], pa.decimal128(9, 2))}))
    table.catalog.commit_table(table, tx._requirements, tx._updates)
    table.refresh()


def seen(lake: Lake, table: Table) -> list[int]:
    return sorted(n for n, _ in lake.by_duckdb(".".join(table.name())))


@pytest.mark.parametrize(
    ("trick", "error", "lands"),
    [
        (lost_answer, NoConnection, True),
        (lost_request, NoConnection, False),
        (repeated, CommitFailedException, True),
        (answering(409, landed=True), CommitFailedException, True),
        *((answering(status, landed=True), CommitStateUnknownException, True) for status in (500, 502, 504)),
        *((answering(status, landed=True), RESTError, True) for status in (429, 503)),
        (answering(503, landed=False), RESTError, False),
    ],
)
def test_a_trick_is_played_on_the_next_commit_alone(
    rest_lake: Lake, proxy: HttpProxy, table: Table, trick: Any, error: type[Exception], lands: bool
) -> None:
    armed = proxy.arm(trick)
    table.refresh()
    assert not armed.struck(), "no commit"
    with pytest.raises(error):
        append(table, 2)
    assert armed.struck()
    assert armed.answers == ([200, 409] if trick is repeated else [200] if lands else [])
    assert seen(rest_lake, table) == ([1, 2] if lands else [1])
    table.refresh()
    append(table, 3)
    assert seen(rest_lake, table) == ([1, 2, 3] if lands else [1, 3])


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_is_held_until_it_is_released(rest_lake: Lake, proxy: HttpProxy, table: Table, landed: bool) -> None:
    hold = Hold(landed=landed)
    proxy.arm(hold)
    commit = Thread(target=append, args=(table, 2))
    commit.start()
    try:
        hold.await_held()
        assert seen(rest_lake, table) == ([1, 2] if landed else [1])
        assert commit.is_alive()
    finally:
        hold.release()
        commit.join()
    assert seen(rest_lake, table) == [1, 2]


def test_a_catalog_that_is_killed_in_the_middle_comes_again_at_its_port(
    tmp_path: Path, postgres: Any, rest_lake: Lake
) -> None:
    with RestCatalog(tmp_path, postgres) as catalog, HttpProxy(any_free_port(), catalog.port) as proxy:
        lake = Lake(catalog, rest_lake.spark)
        table = made(load_catalog("any", type="rest", uri=f"http://127.0.0.1:{proxy.port}"))
        for n, landed in ((2, True), (3, False)):
            proxy.arm(doing(catalog.kill, landed=landed))
            with pytest.raises(NoConnection):
                append(table, n)
            with pytest.raises(NoConnection):
                table.refresh()
            catalog.start()
            table.refresh()
        assert seen(lake, table) == [1, 2]


@pytest.mark.parametrize("kind", ["rest", "sql"])
def test_both_readers_see_the_same_in_each_snapshot(request: pytest.FixtureRequest, kind: str) -> None:
    lake: Lake = request.getfixturevalue(f"{kind}_lake")
    table = made(lake.catalog)
    name = ".".join(table.name())
    append(table, 2)
    append(table, 3)
    lake.delete_by_position(name, "n = 1")
    one, two, three, main = ([(n, Decimal("1.50")) for n in numbers] for numbers in ([1], [1, 2], [1, 2, 3], [2, 3]))
    snapshots = lake.history(name)
    for reader in (lake.by_spark, lake.by_duckdb):
        assert [sorted(reader(name, snapshot)) for snapshot in snapshots] == [one, two, three, main]
        assert sorted(reader(name)) == main
    assert lake.contents(name, "n") == [[(1,)], [(1,), (2,)], [(1,), (2,), (3,)], [(2,), (3,)]]


def test_maintainers_leave_the_rows_as_they_are(rest_lake: Lake) -> None:
    lake, table = rest_lake, made(rest_lake.catalog)
    name = ".".join(table.name())
    append(table, 2)
    before = lake.history(name)[-1]
    append(table, 3)
    orphan = next(file for file in lake.files(name) if file.suffix == ".parquet").with_name("orphan.parquet")
    young = orphan.with_name("young.parquet")
    for file in (orphan, young):
        file.write_bytes(b"of nobody")
    make_old(orphan)

    def rows() -> list[int]:
        return sorted(n for (n,) in lake.by_spark(name, columns="n"))

    lake.compact(name)
    assert (len(lake.table(name).inspect.files()), rows()) == (1, [1, 2, 3])
    lake.rewrite_manifests(name)
    assert rows() == [1, 2, 3]
    lake.roll_back(name, before)
    assert rows() == [1, 2]
    lake.expire(name)
    assert (lake.history(name), rows()) == ([before], [1, 2])
    removed = lake.remove_orphans(name)
    assert [Path(path).name for path in removed] == ["orphan.parquet"]
    assert (orphan.exists(), young.exists()) == (False, True)
    assert rows() == [1, 2]
