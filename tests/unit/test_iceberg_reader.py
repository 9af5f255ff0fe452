"""A reader gets the rows of a batch whatever has become of the table since, or an error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

from fencepost.config.reader import Reader
from fencepost.errors import NeedsOperator
from fencepost.outputs.iceberg import reader as module
from fencepost.outputs.iceberg.data_files import write_data_files
from fencepost.outputs.iceberg.reader import read_rows
from fencepost.outputs.iceberg.rows import IcebergRows
from fencepost.outputs.iceberg.types import new_partition_spec, new_schema
from spark_types import columns

START = datetime(2026, 1, 31, tzinfo=UTC)
RESULT = columns(n="int", s="struct<x:int,y:string>", l="array<struct<z:int>>", m="map<string,struct<w:int>>")
ROWS = [
    {"n": 1, "s": {"x": 2, "y": None}, "l": [{"z": 3}, None], "m": [("k", {"w": 4}), ("v", None)]},
    {"n": None, "s": None, "l": None, "m": None},
    {"n": 5, "s": {"x": None, "y": "y"}, "l": [], "m": []},
]
STAGED = (
    '{"n": 1, "s": {"x": 2}, "l": [{"z": 3}, null], "m": {"k": {"w": 4}, "v": null}}',
    '{"n": null}',
    '{"n": 5, "s": {"y": "y"}, "l": [], "m": {}}',
)
Read = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with one batch."""
    catalog = SqlCatalog("lake", uri="sqlite:///:memory:", warehouse=tmp_path.as_uri())
    catalog.create_namespace("weather")
    schema = new_schema(RESULT)
    made = catalog.create_table("weather.observations", schema, partition_spec=new_partition_spec(schema))
    append(made, START)
    return made


def append(table: Table, start: datetime) -> None:
    staged = pa.array([text.encode() for text in STAGED], pa.large_binary())
    rows = IcebergRows(RESULT, table.schema(), start, 0).of(staged)
    files = write_data_files("weather.observations", table.metadata, table.io, iter([rows]), uuid4().hex)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        for file in files:
            update.append_data_file(file)


@pytest.fixture
def read(table: Table, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads the batch as of its snapshot, or as of another one."""
    monkeypatch.setattr(module, "catalog_of", lambda config: None)
    monkeypatch.setattr(module, "load", lambda config, catalog, name: table.refresh())
    published = table.metadata.current_snapshot_id

    def rows(snapshot: int | None = published) -> list[dict[str, Any]]:
        announcement = SimpleNamespace(
            batch="b",
            output="weather.observations",
            rows=3,
            snapshot=snapshot,
            interval=SimpleNamespace(start=START),
            revision=0,
        )
        request: Any = SimpleNamespace(
            spark=SimpleNamespace(createDataFrame=lambda found, kind: found.to_pylist()),
            reader=Reader.model_validate({"name": "p", "iceberg": {"type": "rest", "uri": "http://catalog"}}),
            announcement=announcement,
            columns=RESULT,
            current=False,
        )
        return cast("list[dict[str, Any]]", read_rows(request))

    return rows


def test_the_rows_are_those_of_the_batch_with_nulls_at_each_level(read: Read) -> None:
    assert read() == ROWS


def test_another_interval_is_left_out(read: Read, table: Table) -> None:
    append(table, datetime(2026, 2, 1, tzinfo=UTC))
    assert read(None) == ROWS


@pytest.mark.parametrize("expired", [False, True])
def test_a_renamed_column_and_a_renamed_field_still_have_their_values(read: Read, table: Table, expired: bool) -> None:
    with table.update_schema() as update:
        update.rename_column("n", "number")
        update.rename_column("s.x", "first")
    assert read(*([0] if expired else [])) == ROWS


def test_an_added_column_is_left_out(read: Read, table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("extra", IntegerType())
    append(table, datetime(2026, 2, 1, tzinfo=UTC))
    assert read(None) == ROWS


def test_rows_that_were_deleted_later_are_read_as_of_their_snapshot_and_missed_after_it_expired(
    read: Read, table: Table
) -> None:
    table.delete("n = 5")
    assert read() == ROWS
    with pytest.raises(NeedsOperator, match="has 2 of its 3 rows"):
        read(0)


def test_a_table_that_is_gone_is_named(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load", lambda *_: None)
    with pytest.raises(NeedsOperator, match=r"table weather\.observations does not exist"):
        read()
