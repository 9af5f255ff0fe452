"""Writes rows to data files of an Iceberg table, and describes these for a commit.

pyiceberg has its own writer, which replaces null lists by empty lists. Its description of a file has wrong bounds where
a value is so long that Parquet leaves it out of a row group's statistics: readers would then skip a file that has the
row they look for. So this module writes files with Arrow's writer alone, and gives a bound only where it holds.

Files have the table's own column names, because readers find columns by the ids of their fields.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, FloatType

from fencepost.errors import TableRefused
from fencepost.formats.quoting import quoted
from fencepost.outputs.table.values import RESERVED_COLUMNS

ROW_GROUP_BYTES = 64 * 1024 * 1024  # of rows in memory; a row group in a file is smaller
HELD_BYTES = 2 * ROW_GROUP_BYTES  # of the rows of all partitions together
OPEN_FILES = 20  # of different partitions at a time
MOST_PARTITIONS = 1000
LONGEST_FOLDER_NAME = 255  # bytes
MOST_BOUNDED_DIGITS = 18
# Arrow's names of Iceberg's codecs.
CODECS = {"uncompressed": "none"} | {name: name for name in ("brotli", "gzip", "lz4", "snappy", "zstd")}


def write_data_files(
    table: str, metadata: TableMetadata, io: FileIO, batches: Iterable[pa.RecordBatch], attempt: str
) -> list[DataFile]:
    """Writes the rows to new data files of a table, in its current schema and default spec. Returns their descriptions.

    `batches` have the columns of `IcebergRows`. `attempt` is a part of each file's name, and no other attempt may have it. A
    file has rows of one partition, and ends with the row group with which it has `write.target-file-size-bytes`. Rows are
    held until they are a row group.

    If it fails, its files are deleted.

    Raises:
        TableRefused: the spec or a property does not allow the files, or the rows have too many partitions.
        OSError: a file cannot be written.
    """
    writer = _Writer(table, metadata, io, attempt)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.end()
    except BaseException:
        writer.delete()
        raise


@dataclass
class _File:
    path: str
    stream: Any
    writer: pq.ParquetWriter
    nulls: dict[int, int]  # by the id of the column


@dataclass
class _Partition:
    """Rows of one partition that are not in a file yet, and the file that takes them, if one is open."""

    values: tuple[Any, ...]
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_bytes: int = 0
    held_rows: int = 0
    file: _File | None = None


class _Writer:
    def __init__(self, table: str, metadata: TableMetadata, io: FileIO, attempt: str) -> None:
        self._table, self._metadata, self._io, self._attempt = table, metadata, io, attempt
        self._names = partition_columns(table, metadata)
        self._schema = schema_to_pyarrow(metadata.schema())
        self._ids = {one.name: one.field_id for one in metadata.schema().fields}
        self._locations = load_location_provider(metadata.location, metadata.properties)
        self._target = self._number(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, 512 * 1024 * 1024)
        self._group_bytes = min(ROW_GROUP_BYTES, self._target)
        self._group_rows = self._number(TableProperties.PARQUET_ROW_GROUP_LIMIT, 1024 * 1024)
        self._parquet = self._parquet_options()
        self._partitions: dict[tuple[Any, ...], _Partition] = {}
        # The partition that has waited longest is the first.
        self._open: OrderedDict[tuple[Any, ...], _Partition] = OrderedDict()
        self._held_bytes = 0
        self._paths = list[str]()
        self._done = list[DataFile]()

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes rows, and writes the row groups that are full."""
        for values, rows in _by_partition(batch, self._names):
            partition = self._partition(values)
            for piece in _pieces(rows, self._group_bytes, self._group_rows):
                partition.held.append(piece)
                partition.held_bytes += piece.nbytes
                partition.held_rows += piece.num_rows
                self._held_bytes += piece.nbytes
                if partition.held_bytes >= self._group_bytes or partition.held_rows >= self._group_rows:
                    self._flush(partition)
        while self._held_bytes > HELD_BYTES:
            self._flush(max(self._partitions.values(), key=lambda one: one.held_bytes))

    def end(self) -> list[DataFile]:
        """Writes what is left, and returns the files."""
        for partition in self._partitions.values():
            if partition.held:
                self._flush(partition)
        for partition in [*self._open.values()]:
            self._close(partition)
        return self._done

    def delete(self) -> None:
        """Deletes all files. An error is not reported, because another one is."""
        for partition in self._open.values():
            assert partition.file is not None
            with suppress(Exception):
                partition.file.writer.close()
            with suppress(Exception):
                partition.file.stream.close()
        for path in self._paths:
            with suppress(Exception):
                self._io.delete(path)

    def _number(self, name: str, default: int | None) -> Any:
        text = self._metadata.properties.get(name)
        if text is None:
            return default
        if not text.isdecimal() or not int(text):
            raise TableRefused(f"table {self._table} has the property {name} = {text}, which is no positive number.")
        return int(text)

    def _parquet_options(self) -> dict[str, Any]:
        properties, name = self._metadata.properties, TableProperties.PARQUET_COMPRESSION
        codec = properties.get(name, TableProperties.PARQUET_COMPRESSION_DEFAULT).lower()
        if codec not in CODECS:
            raise TableRefused(
                f"table {self._table} has the property {name} = {codec}, which is none of {', '.join(CODECS)}."
            )
        # Spark looks for 0.0 in a column's dictionary, where it does not find -0.0, although the two are equal to it.
        schema = self._metadata.schema()
        paths = parquet_path_to_id_mapping(schema).items()
        return {
            "compression": CODECS[codec],
            "compression_level": self._number(TableProperties.PARQUET_COMPRESSION_LEVEL, None),
            "use_dictionary": [
                path for path, id_ in paths if not isinstance(schema.find_type(id_), (FloatType, DoubleType))
            ],
        }

    def _partition(self, values: tuple[Any, ...]) -> _Partition:
        if values not in self._partitions:
            if len(self._partitions) == MOST_PARTITIONS:
                names = [name for name in self._names if name not in RESERVED_COLUMNS]
                raise TableRefused(
                    f"table {self._table} is partitioned by {', '.join(names)} too, and the batch has more than "
                    f"{MOST_PARTITIONS:,} partitions, which would be as many files. Partition the table by a column with "
                    "fewer values, or sort by it instead."
                )
            self._partitions[values] = _Partition(values)
        return self._partitions[values]

    def _flush(self, partition: _Partition) -> None:
        """Writes the rows that are held as a row group, and ends the file once it is as large as files should be."""
        file = self._file_of(partition)
        rows = pa.Table.from_batches(partition.held, schema=self._schema)
        self._held_bytes -= partition.held_bytes
        partition.held, partition.held_bytes, partition.held_rows = [], 0, 0
        file.writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        for name, id_ in self._ids.items():
            file.nulls[id_] += rows.column(name).null_count
        if file.stream.tell() >= self._target:
            self._close(partition)

    def _file_of(self, partition: _Partition) -> _File:
        if partition.file is None:
            if len(self._open) == OPEN_FILES:
                self._close(next(iter(self._open.values())))
            path = self._new_path(partition)
            self._paths.append(path)
            stream = self._io.new_output(path).create(overwrite=False)
            try:
                writer = pq.ParquetWriter(
                    stream, self._schema, store_decimal_as_integer=True, store_schema=False, **self._parquet
                )
            except BaseException:
                stream.close()
                raise
            partition.file = _File(path, stream, writer, dict.fromkeys(self._ids.values(), 0))
            self._open[partition.values] = partition
        self._open.move_to_end(partition.values)
        return partition.file

    def _new_path(self, partition: _Partition) -> str:
        """Returns the path of a new file. It names the partition, unless a value is too long for a folder's name."""
        key: PartitionKey | None = self._key(partition)
        if key is not None and any(len(part) > LONGEST_FOLDER_NAME for part in key.to_path().split("/")):
            key = None
        return self._locations.new_data_location(f"{self._attempt}-{len(self._paths):05d}.parquet", key)

    def _key(self, partition: _Partition) -> PartitionKey:
        spec = self._metadata.spec()
        values = [PartitionFieldValue(*both) for both in zip(spec.fields, partition.values, strict=True)]
        return PartitionKey(values, spec, self._metadata.schema())

    def _close(self, partition: _Partition) -> None:
        file, partition.file = partition.file, None
        assert file is not None
        del self._open[partition.values]
        try:
            file.writer.close()
            size = file.stream.tell()
        finally:
            file.stream.close()
        statistics = statistics_of(file.writer.writer.metadata, self._metadata, file.nulls)
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*partition.values),
            file_size_in_bytes=size,
            sort_order_id=None,  # rows are in the order of the staging topic
            equality_ids=None,
            key_metadata=None,
            **statistics,
        )
        made.spec_id = self._metadata.default_spec_id
        self._done.append(made)


def partition_columns(table: str, metadata: TableMetadata) -> list[str]:
    """Returns the columns of the default spec's fields, in its order.

    Raises:
        TableRefused: a field is no identity of a column, or one of floats.
    """
    columns = {one.field_id: one for one in metadata.schema().fields}
    found = list[str]()
    for one in metadata.spec().fields:
        cure = f"ALTER TABLE {table} DROP PARTITION FIELD {quoted(one.name)}."
        if one.source_id not in columns or not isinstance(one.transform, IdentityTransform):
            of = metadata.schema().find_column_name(one.source_id)
            raise TableRefused(
                f"table {table} is partitioned by {one.transform} of {of}. Fencepost writes identities of columns only: {cure}"
            )
        if isinstance(columns[one.source_id].field_type, (FloatType, DoubleType)):
            raise TableRefused(
                f"table {table} is partitioned by {columns[one.source_id].name}, a {columns[one.source_id].field_type}. "
                f"Spark would not find -0.0 there when it looks for 0.0: {cure}"
            )
        found.append(columns[one.source_id].name)
    return found


def _by_partition(batch: pa.RecordBatch, names: list[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yields the rows of each partition, in their order, with the values of its columns as Iceberg stores them."""
    columns = [batch.column(name) for name in names]
    codes: npt.NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
    for name, column in zip(names, columns, strict=True):
        if name not in RESERVED_COLUMNS:  # a batch has one value of these
            found = column.dictionary_encode(null_encoding="encode")
            codes = np.unique(codes * len(found.dictionary) + found.indices.to_numpy(), return_inverse=True)[1]
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    order, start = np.argsort(codes, kind="stable"), 0
    for row, rows in zip(first.tolist(), counts.tolist(), strict=True):
        # A copy, because a slice that is held would keep the whole batch in memory.
        own = batch if len(first) == 1 else batch.take(pa.array(order[start : start + rows]))
        yield tuple(_stored(column[row]) for column in columns), own
        start += rows


def _stored(value: pa.Scalar) -> Any:
    """Returns a partition's value as Iceberg stores it: days since 1970 of a date, microseconds of a timestamp."""
    kind = value.type
    is_number = pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind)
    return value.value if is_number else value.as_py()


def _pieces(rows: pa.RecordBatch, most_bytes: int, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows in slices that are about as large as a row group at most."""
    at_once = min(max(rows.num_rows * most_bytes // max(rows.nbytes, 1), 1), most_rows)
    for start in range(0, rows.num_rows, at_once):
        yield rows.slice(start, at_once)


def statistics_of(parquet: pq.FileMetaData, metadata: TableMetadata, nulls: dict[int, int]) -> dict[str, Any]:
    """Returns the statistics of a file's columns, by field id, as `DataFile` has them.

    A column has no bound where Parquet has none for one of its row groups, or where no text is above the longest. A
    decimal of more than 18 digits has none either, because DuckDB takes a bound of few bytes for another number, and
    skips files that have the rows it looks for.

    `nulls` has the numbers of nulls in all columns. Parquet does not count them in structs, arrays and maps, and a table
    may not want them for others, but DuckDB would take a column without a number for one without values or without nulls.
    """
    paths = parquet_path_to_id_mapping(metadata.schema())
    found: DataFileStatistics = data_file_statistics_from_parquet_metadata(
        parquet, compute_statistics_plan(metadata.schema(), metadata.properties), paths
    )
    unbounded = set(_unbounded(parquet, paths))
    bounded = {
        id_: one
        for id_, one in found.column_aggregates.items()
        if id_ not in unbounded
        and not (isinstance(one.primitive_type, DecimalType) and one.primitive_type.precision > MOST_BOUNDED_DIGITS)
    }
    lower = {id_: one.min_as_bytes() for id_, one in bounded.items()}
    upper = {id_: _upper(one) for id_, one in bounded.items()}
    return {
        "record_count": found.record_count,
        "column_sizes": found.column_sizes,
        "value_counts": found.value_counts | dict.fromkeys(nulls, found.record_count),
        "null_value_counts": found.null_value_counts | nulls,
        "nan_value_counts": found.nan_value_counts,
        "lower_bounds": {id_: bound for id_, bound in lower.items() if bound is not None},
        "upper_bounds": {id_: bound for id_, bound in upper.items() if bound is not None},
        "split_offsets": found.split_offsets,
    }


def _unbounded(parquet: pq.FileMetaData, paths: dict[str, int]) -> Iterator[int]:
    """Yields the columns that have values in a row group without bounds. Values of more than 4,096 bytes have none."""
    for number in range(parquet.num_row_groups):
        group = parquet.row_group(number)
        for position in range(parquet.num_columns):
            column = group.column(position)
            statistics = column.statistics
            if statistics is None or (not statistics.has_min_max and statistics.null_count < column.num_values):
                yield paths[column.path_in_schema]


def _upper(aggregate: StatsAggregator) -> bytes | None:
    """Returns the upper bound. A text is cut, and its last character becomes the next one, which may be no character."""
    try:
        found: bytes | None = aggregate.max_as_bytes()
    except UnicodeEncodeError:
        return None
    return found
