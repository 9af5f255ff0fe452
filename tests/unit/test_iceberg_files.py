"""The files that a table has at a snapshot: by interval and revision, or the reason why that cannot be told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from equality_deletes import add_deletes
from fencepost.errors import TableRefused
from fencepost.outputs.iceberg.files_in_base import all_files, files_of, has_rows, rows_by_revision
from fencepost.outputs.iceberg.types import new_partition_spec, new_schema
from spark_types import columns

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    schema = new_schema(columns(n="int"))
    return catalog.create_table("db.t", schema, partition_spec=new_partition_spec(schema))


def a_file(name: str, *partition: Any, rows: int = 10, spec_id: int = 0, **changes: Any) -> DataFile:
    values = {
        "content": DataFileContent.DATA,
        "file_path": f"file:///nowhere/{name}.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(*partition),
        "record_count": rows,
        "file_size_in_bytes": 100,
    }
    made = DataFile.from_args(**{**values, **changes})
    made.spec_id = spec_id
    return made


def micros(number: int) -> int:
    return int((START + number * DAY).timestamp()) * 1_000_000


def append(table: Table, *files: DataFile) -> Table:
    with table.transaction() as update, update.update_snapshot().fast_append() as snapshot:
        for file in files:
            snapshot.append_data_file(file)
    return table.refresh()


def found(table: Table, number: int, revision: int | None = None) -> list[tuple[str, int, int]]:
    """The names of files, with revision and rows."""
    files = files_of(table, table.metadata.current_snapshot_id, START + number * DAY, revision)
    return sorted((Path(one.file.file_path).stem, one.revision, one.rows) for one in files)


def test_files_are_found_by_interval_and_revision(table: Table) -> None:
    assert files_of(table, None, START) == all_files(table, None) == []
    assert not has_rows(table, None)
    append(table, a_file("a", micros(0), 1), a_file("b", micros(0), 2, rows=5), a_file("c", micros(1), 1))
    append(table, a_file("d", micros(0), 1, rows=3))
    assert found(table, 0) == [("a", 1, 10), ("b", 2, 5), ("d", 1, 3)]
    assert found(table, 0, 1) == [("a", 1, 10), ("d", 1, 3)]
    assert found(table, 1) == [("c", 1, 10)]
    assert found(table, 2) == []
    main = table.metadata.current_snapshot_id
    assert rows_by_revision(all_files(table, main)) == {START: {1: 13, 2: 5}, START + DAY: {1: 10}}
    assert has_rows(table, main)
    assert has_rows(table, table.metadata.snapshots[0].snapshot_id)
    first = files_of(table, table.metadata.snapshots[0].snapshot_id, START)
    assert [Path(one.file.file_path).stem for one in first] == ["a", "b"], "as the snapshot was"


def test_an_interval_without_a_plan_of_a_scan_needs_only_its_own_manifests(table: Table, monkeypatch: Any) -> None:
    """A commit reads no manifest whose summary says that it has other intervals."""
    for number in range(4):
        append(table, a_file(f"f{number}", micros(number), 1))
    read, fetch = list[str](), ManifestFile.fetch_manifest_entry

    def noted(self: ManifestFile, *given: Any, **more: Any) -> Any:
        read.append(self.manifest_path)
        return fetch(self, *given, **more)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", noted)
    assert found(table, 2) == [("f2", 1, 10)]
    assert len(read) == 1


def test_a_file_of_a_spec_without_the_interval_is_refused_where_it_may_have_wanted_rows(table: Table) -> None:
    append(table, a_file("a", micros(0), 1))
    with table.update_spec() as update:
        update.remove_field("fencepost_revision")
    spec_id = table.refresh().metadata.default_spec_id
    append(table, a_file("b", micros(1), spec_id=spec_id))
    assert found(table, 0) == [("a", 1, 10)]
    with pytest.raises(TableRefused, match=r"table db\.t has a data file whose rows may be of several intervals"):
        found(table, 1)
    with pytest.raises(TableRefused, match=r"CALL system\.rewrite_data_files\(table => 'db\.t'"):
        all_files(table, table.metadata.current_snapshot_id)


def test_a_file_of_an_older_spec_with_both_fields_elsewhere_is_fine(table: Table) -> None:
    append(table, a_file("a", micros(0), 1))
    with table.update_spec() as update:
        update.remove_field("fencepost_interval")
    with table.update_spec() as update:
        update.add_identity("fencepost_interval")
    spec = table.refresh().metadata.spec()
    names = [one.name for one in spec.fields]
    assert names == ["fencepost_revision", "fencepost_interval"] or names == [
        "fencepost_interval",
        "fencepost_revision",
    ]
    values = {"fencepost_revision": 2, "fencepost_interval": micros(0)}
    append(table, a_file("b", *(values[name] for name in names), spec_id=spec.spec_id))
    assert found(table, 0) == [("a", 1, 10), ("b", 2, 10)]


def test_a_file_without_an_interval_belongs_to_none(table: Table) -> None:
    """Fencepost's own tables have none: there the column is required."""
    with table.update_schema() as update:
        update.make_column_optional("fencepost_interval")
    table.refresh()
    append(table, a_file("a", micros(0), 1), a_file("b", None, 1))
    assert found(table, 0) == [("a", 1, 10)]
    with pytest.raises(TableRefused, match="may be of several intervals"):
        all_files(table, table.metadata.current_snapshot_id)


def test_equality_deletes_are_refused_by_name(table: Table) -> None:
    append(table, a_file("a", micros(0), 1))
    add_deletes(table, a_file("d", micros(0), 1, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1]))
    with pytest.raises(
        TableRefused, match=r"table db\.t has equality deletes.*'remove-dangling-deletes', 'true'\)\)\.$"
    ):
        found(table, 0)
    with pytest.raises(TableRefused, match="has equality deletes"):
        all_files(table, table.metadata.current_snapshot_id)
