"""Files of a table: one partition each, rolled by their bytes, few open at a time, and none left by a failure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform

from fencepost.errors import TableRefused
from fencepost.outputs.iceberg import data_files
from fencepost.outputs.iceberg.data_files import write_data_files
from fencepost.outputs.iceberg.rows import IcebergRows
from fencepost.outputs.iceberg.types import new_partition_spec, new_schema
from spark_types import columns

RESULT = columns(n="int", city="string")


class CountingIO(PyArrowFileIO):
    """Counts the streams that are open, and fails after some files."""

    def __init__(self, fails_after: int = 10**6) -> None:
        super().__init__()
        self.open, self.most, self.made, self._fails_after = 0, 0, 0, fails_after

    def new_output(self, location: str) -> Any:
        output, counting = super().new_output(location), self

        class Output:
            def create(self, overwrite: bool = False) -> Any:
                if counting.made == counting._fails_after:
                    raise OSError("no space left on device")
                counting.made += 1
                counting.open += 1
                counting.most = max(counting.most, counting.open)
                return Stream(output.create(overwrite=overwrite))

        class Stream:
            def __init__(self, stream: Any) -> None:
                self._stream = stream

            def __getattr__(self, name: str) -> Any:
                return getattr(self._stream, name)

            def close(self) -> None:
                counting.open -= not self._stream.closed
                self._stream.close()

        return Output()


def table(folder: Path, by: Transform[Any, Any] | None = None, **properties: str) -> TableMetadata:
    """A table's metadata, partitioned by the city too if `by` says how."""
    schema = new_schema(RESULT)
    more = [PartitionField(schema.find_field("city").field_id, 1002, by, "town")] if by is not None else []
    spec = PartitionSpec(*new_partition_spec(schema).fields, *more)
    return new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, folder.as_uri(), properties)


def rows(table_schema: Schema, cities: list[str], first: int = 0) -> pa.RecordBatch:
    made = IcebergRows(RESULT, table_schema, datetime(2026, 1, 31, tzinfo=UTC), 0)
    texts = [f'{{"n": {first + n}, "city": "{city}"}}'.encode() for n, city in enumerate(cities)]
    return made.of(pa.array(texts, pa.large_binary()))


def files_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def numbers_in(path: str) -> list[int]:
    found: list[int] = pq.ParquetFile(path.removeprefix("file://")).read(["n"])["n"].to_pylist()
    return found


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    assert write_data_files("n.t", table(tmp_path), PyArrowFileIO(), iter([]), "a") == []
    assert files_in(tmp_path) == []


def test_two_attempts_share_no_path_and_the_order_of_rows_stays(tmp_path: Path) -> None:
    metadata = table(tmp_path)
    batches = [rows(metadata.schema(), ["x"] * 3), rows(metadata.schema(), ["y"] * 2, 3)]
    (one,) = write_data_files("n.t", metadata, PyArrowFileIO(), batches, "a")
    (two,) = write_data_files("n.t", metadata, PyArrowFileIO(), batches, "b")
    assert one.file_path != two.file_path
    assert numbers_in(one.file_path) == numbers_in(two.file_path) == [0, 1, 2, 3, 4]
    assert one.file_path.endswith(
        "/data/fencepost_interval=2026-01-31T00%3A00%3A00%2B00%3A00/fencepost_revision=0/a-00000.parquet"
    )
    assert (one.sort_order_id, one.spec_id, one.record_count) == (None, 0, 5)
    assert one.file_size_in_bytes == Path(one.file_path.removeprefix("file://")).stat().st_size


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    """Whether the rows fail, the file system, or the process is interrupted."""
    metadata = table(tmp_path, IdentityTransform(), **{"write.parquet.row-group-limit": "1"})

    def failing(error: BaseException) -> Iterator[pa.RecordBatch]:
        yield rows(metadata.schema(), ["x", "y"])
        assert len(files_in(tmp_path)) == 2
        raise error

    for error in (ValueError("rows"), KeyboardInterrupt()):
        io = CountingIO()
        with pytest.raises(type(error)):
            write_data_files("n.t", metadata, io, failing(error), "a")
        assert (files_in(tmp_path), io.open) == ([], 0)
    io = CountingIO(fails_after=2)
    with pytest.raises(OSError, match="no space left"):
        write_data_files("n.t", metadata, io, [rows(metadata.schema(), ["x", "y", "z"])], "a")
    assert (files_in(tmp_path), io.open) == ([], 0)


def test_each_file_has_the_rows_of_one_value(tmp_path: Path) -> None:
    metadata = table(tmp_path, IdentityTransform())
    batches = [rows(metadata.schema(), ["x", "y", "x", "z"]), rows(metadata.schema(), ["z", "x"], 4)]
    files = write_data_files("n.t", metadata, PyArrowFileIO(), batches, "a")
    assert {file.partition[2]: numbers_in(file.file_path) for file in files} == {"x": [0, 2, 5], "y": [1], "z": [3, 4]}


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that comes again begins another file."""
    monkeypatch.setattr(data_files, "OPEN_FILES", 3)
    metadata, io = table(tmp_path, IdentityTransform(), **{"write.parquet.row-group-limit": "1"}), CountingIO()
    cities = ["a", "b", "c", "d", "e"]
    batches = [rows(metadata.schema(), cities), rows(metadata.schema(), cities, 5)]
    files = write_data_files("n.t", metadata, io, batches, "a")
    assert (io.most, io.open) == (3, 0)
    assert sorted(n for file in files for n in numbers_in(file.file_path)) == list(range(10))


def test_more_partitions_than_files_should_be_are_refused(tmp_path: Path) -> None:
    metadata = table(tmp_path, IdentityTransform())
    batch = rows(metadata.schema(), [str(n) for n in range(1001)])
    with pytest.raises(
        TableRefused, match=r"^table n\.t is partitioned by city too, and the batch has more than 1,000 "
    ):
        write_data_files("n.t", metadata, PyArrowFileIO(), [batch], "a")
    assert len(write_data_files("n.t", metadata, PyArrowFileIO(), [batch.slice(0, 1000)], "a")) == 1000


def test_another_transform_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        TableRefused, match=r"^table n\.t is partitioned by bucket\[4\] of city\. .* DROP PARTITION FIELD `town`\.$"
    ):
        write_data_files("n.t", table(tmp_path, BucketTransform(4)), PyArrowFileIO(), [], "a")


def test_a_partition_of_floats_is_refused_by_name(tmp_path: Path) -> None:
    """Iceberg tells -0.0 from 0.0 there, and Spark does not."""
    schema = new_schema(columns(x="double"))
    spec = PartitionSpec(*new_partition_spec(schema).fields, PartitionField(1, 1002, IdentityTransform(), "x"))
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, tmp_path.as_uri())
    with pytest.raises(
        TableRefused, match=r"^table n\.t is partitioned by x, a double\. .* DROP PARTITION FIELD `x`\.$"
    ):
        write_data_files("n.t", metadata, PyArrowFileIO(), [], "a")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.parquet.compression-codec", "lzo"),
        ("write.target-file-size-bytes", "0"),
        ("write.target-file-size-bytes", "512MB"),
        ("write.parquet.row-group-limit", "-1"),
        ("write.parquet.compression-level", "high"),
    ],
)
def test_a_property_that_says_nothing_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(TableRefused, match=f"^table n.t has the property {name} = {value}, which is no"):
        write_data_files("n.t", table(tmp_path, None, **{name: value}), PyArrowFileIO(), [], "a")


@pytest.mark.parametrize(("codec", "found"), [("ZSTD", "ZSTD"), ("snappy", "SNAPPY"), ("uncompressed", "UNCOMPRESSED")])
def test_the_table_says_how_files_are_compressed(tmp_path: Path, codec: str, found: str) -> None:
    metadata = table(tmp_path, None, **{"write.parquet.compression-codec": codec})
    (file,) = write_data_files("n.t", metadata, PyArrowFileIO(), [rows(metadata.schema(), ["x"])], "a")
    parquet = pq.read_metadata(file.file_path.removeprefix("file://"))
    assert parquet.row_group(0).column(0).compression == found


# Nearly all rows of a batch are of one partition; or each partition has less than a row group.
@pytest.mark.parametrize(
    "batch", [[*["x" * 200] * 1200, "y"], [f"{number:0200}" for number in range(40)] * 30], ids=["uneven", "even"]
)
def test_the_rows_in_memory_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: list[str]) -> None:
    """Of one partition a row group is held, of all together what `HELD_BYTES` allows. Held rows keep no other rows."""
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 600_000)
    monkeypatch.setattr(data_files, "HELD_BYTES", 1_200_000)
    monkeypatch.setattr(data_files, "OPEN_FILES", 2)  # each takes a megabyte, for its compression
    metadata = table(tmp_path, IdentityTransform())
    made = rows(metadata.schema(), batch)
    before, most = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(60):
            yield pa.concat_batches([made, made.slice(0, 0)])  # a copy
            most = max(most, pa.total_allocated_bytes() - before)

    files = write_data_files("n.t", metadata, PyArrowFileIO(), batches(), "a")
    assert sum(file.record_count for file in files) == 60 * len(batch)
    assert most < 8_000_000  # of about 18,000,000
