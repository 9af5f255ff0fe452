"""What others do with a table by Iceberg's own means, run by Spark as the documentation has it: they read what a batch has
changed, and cure a table of equality deletes and of a partition field that is void.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from conftest import day
from equality_deletes import add_deletes
from fencepost.errors import TableRefused
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.output import missing_of
from fencepost_stack.broker import Broker
from lakes import Lake
from steps import announced, run
from tables import ROWS, columns_of, fill

from .test_lake_tables import OWN, RESULT, Make, lake, make, numbers, of, refused, two_days

__all__ = ["lake", "make"]


def test_what_a_batch_changed_is_read_between_two_snapshots(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make()
    two_days(spark, broker, pipeline)
    (pipeline.folder / "transform.py").write_text(ROWS.replace("n >= 0", "n > 3"))
    before = announced(pipeline, day(2))["snapshot"]
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    after = announced(pipeline, day(1))["snapshot"]
    changed = lake.sql(
        f"call lake.system.create_changelog_view(table => '{pipeline.output.name}', options => "
        f"map('start-snapshot-id', '{before}', 'end-snapshot-id', '{after}'))",
        "select _change_type, n, doubled, fencepost_revision, _commit_snapshot_id from numbers_changes",
    )
    assert sorted(changed) == [
        *(("DELETE", n, 2 * n, 1, after) for n in range(6)),
        *(("INSERT", n, 2 * n, 2, after) for n in (4, 5)),
    ]


def delete_by_equality(lake: Lake, name: str, number: int) -> None:
    """Have the rows of the first day with this number deleted, as Flink does it."""
    table = lake.table(name)
    file = Path(table.location().removeprefix("file:")) / "data" / "deletes.parquet"
    column = table.schema().find_field("n")
    schema = pa.schema([pa.field("n", pa.int32(), metadata={"PARQUET:field_id": str(column.field_id)})])
    pq.write_table(pa.table({"n": pa.array([number], pa.int32())}, schema=schema), file)
    micros = int(day(1).start.timestamp()) * 1_000_000
    deletes = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=file.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(micros, 1),
        record_count=1,
        file_size_in_bytes=file.stat().st_size,
        equality_ids=[column.field_id],
    )
    deletes.spec_id = table.metadata.default_spec_id
    add_deletes(table, deletes)


def test_the_cure_of_equality_deletes_applies_them(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make()
    two_days(spark, broker, pipeline)
    delete_by_equality(lake, pipeline.output.name, 3)
    left = sorted([*((n, 1) for n in (0, 1, 2, 4, 5)), *of(1, range(10, 14))])
    assert numbers(lake, pipeline) == left, "Spark reads them as deletes"
    with pytest.raises(TableRefused, match="has equality deletes, so its rows cannot be counted") as raised:
        run(spark, pipeline, day(1), reprocess=True)
    cure = re.search(r"CALL system\.(rewrite_data_files\(.*\)\))\.", str(raised.value))
    assert cure is not None
    lake.sql(f"CALL system.{cure[1]}")
    assert numbers(lake, pipeline) == left
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert numbers(lake, pipeline) == sorted([*of(2, range(6)), *of(1, range(10, 14))])
    assert missing_of(Deployment.of(pipeline)) == ""


def test_a_void_partition_field_is_dropped_for_good_once_the_format_is_newer(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    """A table of format 1 keeps a dropped field, as void: it goes with the second of the statements alone."""
    pipeline = make()
    name = pipeline.output.name
    lake.sql(
        f"create table {name} (n int, doubled int, name string, ts timestamp, {OWN}) "
        "partitioned by (fencepost_interval, days(ts), fencepost_revision) tblproperties ('format-version' = '1')",
        f"alter table {name} drop partition field days(ts)",
    )
    said = refused(pipeline)
    assert "it is partitioned by void of ts, and Fencepost writes identities of columns only" in said
    statements = re.findall(r"ALTER TABLE [^;.]*\.numbers (?:SET|ADD|DROP)[^;.]*", said)
    assert statements == [
        f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '2')",
        f"ALTER TABLE {name} DROP PARTITION FIELD ts_day",
    ]
    lake.sql(*statements)
    assert columns_of(pipeline).would_take(None, RESULT) == ""
    fill(broker, pipeline)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert numbers(lake, pipeline) == of(1, range(6))
