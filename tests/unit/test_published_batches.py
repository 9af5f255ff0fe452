"""`examples/readers/published_batches.py` keeps each value in SQLite as the record says it; rows and position change together."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "examples" / "readers" / "published_batches.py"
# A type, a value as Spark writes it, and what SQLite has.
VALUES: dict[str, tuple[str, str, Any]] = {
    "bigint": ("bigint", "9007199254740993", 9007199254740993),
    "the last": ("bigint", "-9223372036854775808", -(2**63)),
    "2 to the 70th": ("decimal(38,0)", "1180591620717411303424", "1180591620717411303424"),
    "a long number of no decimal": ("string", "1180591620717411303424", "1180591620717411303424"),
    "money": ("decimal(20,2)", "123456789012345678.10", "123456789012345678.10"),
    "whole money": ("decimal(20,2)", "5.00", "5.00"),
    "double": ("double", "0.1", 0.1),
    "boolean": ("boolean", "true", 1),
    "text": ("string", '"a \\"b\\" \\u00e9"', 'a "b" é'),
    "text like a number": ("string", '"007"', "007"),
    "text like JSON": ("string", '"{\\"a\\": [1]}"', '{"a": [1]}'),
    "struct": (
        "struct<a:decimal(20,2),b:string>",
        '{"a":123456789012345678.10,"b":null}',
        '{"a":123456789012345678.10,"b":null}',
    ),
    "array": ("array<struct<a:int>>", '[{"a":1},null]', '[{"a":1},null]'),
    "map": ("map<string,int>", '{"x, y":1}', '{"x, y":1}'),
    "time": ("timestamp", '"2026-01-31T23:59:59.000000Z"', "2026-01-31T23:59:59.000000Z"),
}


@pytest.fixture
def reader() -> Any:
    spec = importlib.util.spec_from_file_location("published_batches", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as made:
        made.execute("CREATE TABLE position (last INTEGER, announcement TEXT)")
        yield made


class Topic:
    """A consumer of a topic that has the records of one batch, and one behind them."""

    def __init__(self, batch: str, values: list[bytes | None]) -> None:
        header = [("fencepost-batch", batch.encode())]
        self._records = [self._record(offset, value, header) for offset, value in enumerate([*values, None])]

    @staticmethod
    def _record(offset: int, value: bytes | None, headers: Any) -> Any:
        said = {
            "error": None,
            "partition": 0,
            "offset": offset,
            "key": b"k%d" % offset,
            "value": value,
            "headers": headers,
        }
        return SimpleNamespace(**{name: lambda one=one: one for name, one in said.items()})

    def assign(self, places: Any) -> None:
        """It is where it begins."""

    def consume(self, number: int, timeout: float) -> list[Any]:
        return self._records


def announced(values: list[bytes | None], columns: dict[str, str], **more: Any) -> dict[str, Any]:
    """What is announced of a batch."""
    usual = {
        "batch": "p/one/1",
        "state": "published",
        "adds_to": None,
        "interval": {"start": "2026-01-01T00:00:00Z"},
        "revision": 1,
        "kind": "topic",
        "output": "out",
        "format": "json",
        "header": "fencepost-batch",
        "ranges": {"0": [0, len(values)]},
        "rows": len(values),
        "columns": [{"name": name, "type": kind} for name, kind in columns.items()],
    }
    return usual | more


def take(
    reader: Any, database: sqlite3.Connection, values: list[bytes | None], columns: dict[str, str], **more: Any
) -> None:
    one = announced(values, columns, **more)
    reader.take(database, Topic(one["batch"], values), 7, one)


def test_each_value_is_kept_as_the_record_says_it(reader: Any, database: sqlite3.Connection) -> None:
    """Beside nulls, and beside a tombstone."""
    columns = {f'c{n} "quoted"': kind for n, (kind, _, _) in enumerate(VALUES.values())}
    texts = [text for _, text, _ in VALUES.values()]
    value = "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in zip(columns, texts, strict=True)) + "}"
    nulls = json.dumps(dict.fromkeys(columns))
    take(reader, database, [value.encode(), nulls.encode(), None], columns)
    found = database.execute("SELECT * FROM rows").fetchall()
    own = [(f"k{n}".encode(), n == 2, "2026-01-01T00:00:00Z", 1) for n in range(3)]
    wanted = [tuple(one for _, _, one in VALUES.values()), (None,) * len(columns), (None,) * len(columns)]
    assert found == [(*mine, *values) for mine, values in zip(own, wanted, strict=True)]
    assert [type(one) for one in found[0][4:]] == [type(one) for one in wanted[0]]


def test_a_later_batch_may_have_other_columns(reader: Any, database: sqlite3.Connection) -> None:
    """Also one whose name is SQLite's for a row's number."""
    take(reader, database, [b'{"n":1}'], {"n": "int"})
    take(
        reader,
        database,
        [b'{"N":2,"rowid":9}'],
        {"N": "int", "rowid": "int"},
        interval={"start": "2026-01-02T00:00:00Z"},
    )
    assert database.execute("SELECT n, rowid FROM rows").fetchall() == [(1, None), (2, 9)]
    assert database.execute("SELECT n, rowid FROM newest").fetchall() == [(2, 9)]


def test_rows_columns_and_position_change_together_or_not_at_all(reader: Any, database: sqlite3.Connection) -> None:
    """SQLite refuses a batch with too many columns: the first of all, and one behind the removal of another one's rows."""
    many = {f"c{n}": "int" for n in range(3000)}
    for values in ([], [b'{"n":1}']):
        if values:
            take(reader, database, values, {"n": "int"})
        before = "\n".join(database.iterdump())
        with pytest.raises(sqlite3.Error):
            take(reader, database, [b"{}"], many, revision=2)
        assert "\n".join(database.iterdump()) == before


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"format": "avro"}, "its values are of format avro, and this reader takes json"),
        ({"format": "bytes"}, "its values are of format bytes"),
        ({"header": None}, "its records do not name it"),
        (
            {"kind": "postgres", "output": "public.t", "format": None, "header": None},
            "its rows are not in a topic, but in public.t. Read them there.",
        ),
        ({"rows": 2}, "1 of its 2 records are there"),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_batchs_name(
    more: dict[str, Any], why: str, reader: Any, database: sqlite3.Connection
) -> None:
    with pytest.raises(reader.Unreadable, match=f"^p/one/1: {why}"):
        take(reader, database, [b'{"n":1}'], {"n": "int"}, **more)
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("position",)]


def test_a_command_that_cannot_begin_says_why_in_a_line(reader: Any, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("# a comment=1\nbootstrap.servers = 127.0.0.1:1\n")
    assert reader.main([]) == reader.main(["a", "b"]) == reader.USAGE
    assert reader.main([str(tmp_path / "none"), "p", ":memory:"]) == f"{tmp_path / 'none'}: No such file or directory"
    place = str(tmp_path / "none" / "database")
    assert reader.main([str(settings), "p", place]) == f"{place}: unable to open database file"
    settings.write_text("no.such=x\n")
    said = reader.main([str(settings), "p", ":memory:"])
    assert said.startswith(f'{settings}: No such configuration property: "no.such". Check the settings there')
