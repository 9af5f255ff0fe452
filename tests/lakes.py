"""Tables of Iceberg, for tests: what each snapshot has by Spark and by DuckDB, and what maintainers do to it by Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import duckdb_ext
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from rigs.iceberg_catalog import NAME, RestCatalog, SqlCatalog
from rigs.postgres_server import query
from rigs.spark_lake import SparkLake

numbers = count(1)


@dataclass(frozen=True)
class Lake:
    """A catalog as its readers and maintainers see it. Names of tables are `namespace.table`."""

    of: RestCatalog | SqlCatalog
    spark: SparkLake

    @property
    def catalog(self) -> Catalog:
        """The catalog by pyiceberg."""
        return load_catalog(NAME, **self.of.properties)

    def table(self, name: str) -> Table:
        """The table as it is now, by pyiceberg."""
        return self.catalog.load_table(name)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """The last statement's rows, by Spark."""
        return self.spark.sql(self.of.spark, NAME, *statements)

    def by_spark(self, name: str, snapshot: int | None = None, columns: str = "*") -> list[tuple[Any, ...]]:
        """The rows of a snapshot, or of main, in no order."""
        at = f" version as of {snapshot}" if snapshot is not None else ""
        return self.sql(f"select {columns} from {name}{at}")

    def by_duckdb(self, name: str, snapshot: int | None = None, columns: str = "*") -> list[tuple[Any, ...]]:
        """The same by DuckDB, from the metadata file that the catalog names."""
        at = f", snapshot_from_id => {snapshot}" if snapshot is not None else ""
        with duck() as session:
            return session.sql(
                f"select {columns} from iceberg_scan('{self.table(name).metadata_location}'{at})"
            ).fetchall()

    def contents(self, name: str, columns: str) -> list[list[tuple[Any, ...]]]:
        """What main has had, by Spark: the sorted rows of each snapshot that changed them, the oldest first."""
        history = self.history(name)
        each = (f"select {n} as at, {columns} from {name} version as of {one}" for n, one in enumerate(history))
        rows = self.sql(" union all ".join(each)) if history else []
        found = [sorted(row[1:] for row in rows if row[0] == n) for n in range(len(history))]
        return [now for n, now in enumerate(found) if n == 0 or now != found[n - 1]]

    def history(self, name: str) -> list[int]:
        """The snapshots of main that have not expired, the oldest first."""
        metadata = self.table(name).metadata
        found, at = list[int](), metadata.current_snapshot_id
        while at is not None and (snapshot := metadata.snapshot_by_id(at)) is not None:
            found.append(at)
            at = snapshot.parent_snapshot_id
        return found[::-1]

    def compact(self, name: str, spec: int | None = None) -> None:
        """Write all data files anew, also into another partition spec."""
        into = f", 'output-spec-id', '{spec}'" if spec is not None else ""
        self._call("rewrite_data_files", name, f"options => map('rewrite-all', 'true'{into})")

    def rewrite_manifests(self, name: str) -> None:
        """Write the manifests anew."""
        self._call("rewrite_manifests", name)

    def expire(self, name: str) -> None:
        """Expire all snapshots but those that main and the tags have now, with their files."""
        self._call("expire_snapshots", name, f"older_than => {_timestamp(datetime.now(UTC))}", "retain_last => 1")

    def roll_back(self, name: str, snapshot: int) -> None:
        """Have main be an ancestor of what it is."""
        self._call("rollback_to_snapshot", name, f"snapshot_id => {snapshot}")

    def remove_orphans(self, name: str) -> list[str]:
        """Remove the files that no metadata names and that are older than a day: Spark refuses less. Their paths."""
        day_ago = datetime.now(UTC) - timedelta(hours=24, minutes=1)
        return [row[0] for row in self._call("remove_orphan_files", name, f"older_than => {_timestamp(day_ago)}")]

    def files(self, name: str) -> list[Path]:
        """All files under the table's location."""
        folder = Path(unquote(urlsplit(self.table(name).location()).path))
        return sorted(file for file in folder.rglob("*") if file.is_file())

    def delete_by_position(self, name: str, where: str) -> None:
        """Delete rows by a position delete file; the data files stay."""
        self.sql(
            f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')",
            f"delete from {name} where {where}",
        )

    def _call(self, procedure: str, name: str, *arguments: str) -> list[tuple[Any, ...]]:
        given = ", ".join([f"table => '{name}'", *arguments])
        return self.sql(f"call {NAME}.system.{procedure}({given})")


def scanned(database: dict[str, str], name: str, order: str) -> list[dict[str, Any]]:
    """The rows of a table by DuckDB, from the metadata file that the SQL catalog in a database names."""
    named = "select metadata_location from iceberg_tables where table_namespace || '.' || table_name = %s"
    [(place,)] = query(database, named, [name])
    with duck() as session:
        found = session.sql(f"select * from iceberg_scan('{place}') order by {order}")
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def into(lake: Lake, uri: str = "") -> dict[str, Any]:
    """The changes to pipeline.yaml that make a table of a namespace of its own the output. `uri`: another way to the catalog."""
    namespace = f"lake{next(numbers)}"
    lake.catalog.create_namespace(namespace)
    settings = lake.of.settings | ({"uri": uri} if uri else {})
    return {"output": {"kind": "iceberg", "table": f"{namespace}.numbers", "partitions": 2}, "iceberg": settings}


def make_old(file: Path) -> None:
    """Have a file as if it had been written two days ago."""
    then = time.time() - timedelta(hours=48).total_seconds()
    os.utime(file, (then, then))


@contextmanager
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """A session of DuckDB that reads Iceberg's tables. Its extensions are packages: nothing is downloaded."""
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as session:
        for name in ("icu", "avro", "iceberg"):
            session.load_extension(str(extension(name)))
        session.execute("set timezone = 'UTC'")
        yield session


def extension(name: str) -> Path:
    """The file of an extension of DuckDB."""
    (file,) = Path(next(iter(duckdb_ext.__path__))).rglob(f"{name}.duckdb_extension")
    return file


def _timestamp(at: datetime) -> str:
    return f"timestamp '{at:%Y-%m-%d %H:%M:%S.%f}+00:00'"
