"""Reads the rows of a published revision from an Iceberg table, for `read_validated`. The rows pass through this process.

It reads the data files of the announcement's snapshot, and finds their columns by field id. pyiceberg's own reader turns
lists that are null into empty ones.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as i
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from fencepost.counts import count_of
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.outputs.iceberg.catalog import catalog_of, load, translated
from fencepost.outputs.iceberg.files_in_base import FileInBase, files_of
from fencepost.outputs.rows_request import RowsRequest

FIELD_ID = b"PARQUET:field_id"


def read_rows(request: RowsRequest) -> DataFrame:
    """Returns the rows of a batch, with its columns, as they are in the snapshot that published it. If that has expired,
    as they are now.

    Raises:
        SettingsError: the reader has no login to the catalog.
        NeedsOperator: the table does not have all rows of the batch.
        TableUnavailable, AccessDenied: the catalog does not answer, or refuses the request.
    """
    spark, reader, one, columns = request.spark, request.reader, request.announcement, request.columns
    if not reader.iceberg:
        raise SettingsError(f"{reader.label}: batch {one.batch} is in table {one.output}. Give iceberg={{...}}.")
    if not one.rows:
        return spark.createDataFrame([], columns)
    with translated(reader):
        table = load(reader, catalog_of(reader), one.output)
        if table is None:
            raise NeedsOperator(f"batch {one.batch}: table {one.output} does not exist. Ask the pipeline's owner.")
        known = one.snapshot is not None and table.metadata.snapshot_by_id(one.snapshot) is not None
        at = one.snapshot if known else table.metadata.current_snapshot_id
        files = files_of(table, at, one.interval.start, one.revision)
        rows = sum(file.rows for file in files)
        if rows != one.rows or any(file.rows != file.file.record_count for file in files):
            raise NeedsOperator(
                f"batch {one.batch}: table {one.output} has {rows:,} of its {count_of(one.rows, 'row')}: a newer revision was "
                "published, or rows were deleted, or the table was rolled back. Ask the pipeline's owner to "
                "reprocess the interval."
            )
        schema = _schema_of(table.metadata, at, columns)
        if schema is None:
            raise NeedsOperator(
                f"batch {one.batch}: table {one.output} no longer has all of its columns. Ask the pipeline's owner to "
                "reprocess the interval."
            )
        found = pa.concat_tables(_read(table.io, schema, file, columns) for file in files)
    return spark.createDataFrame(found, columns)


def _schema_of(metadata: TableMetadata, snapshot: int | None, columns: t.StructType) -> Schema | None:
    """Returns the schema in which the batch's columns have their names: the snapshot's own, or the newest one that has them
    all. Columns may have been renamed since.
    """
    at = metadata.snapshot_by_id(snapshot) if snapshot is not None else None
    own = [one for one in metadata.schemas if at is not None and one.schema_id == at.schema_id]
    newest = sorted(metadata.schemas, key=lambda one: one.schema_id, reverse=True)
    names = set(columns.fieldNames())
    return next((one for one in [*own, *newest] if names <= {field.name for field in one.fields}), None)


def _read(io: FileIO, schema: Schema, file: FileInBase, columns: t.StructType) -> pa.Table:
    """Returns the file's rows in the types of the columns. A column that the file lacks is null."""
    with io.new_input(file.file.file_path).open() as stream:
        there = pq.read_table(stream).combine_chunks()
    rows = pa.StructArray.from_arrays([_one(column) for column in there.columns], fields=list(there.schema))
    wanted = to_arrow_schema(columns)
    made = _taken(rows, schema.as_struct(), pa.struct(list(wanted)))
    return pa.Table.from_arrays([made.field(n) for n in range(len(wanted))], schema=wanted)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _taken(array: pa.Array, kind: i.IcebergType, wanted: pa.DataType) -> pa.Array:
    """Returns an array as the wanted type. Fields of structs are found by their ids, at each level."""
    nulls = array.is_null()
    if isinstance(kind, i.StructType):
        places = {_id(array.type.field(n)): n for n in range(array.type.num_fields)}
        children = list[pa.Array]()
        for field in wanted:
            column = kind.field_by_name(field.name)
            place = places.get(column.field_id) if column is not None else None
            children.append(
                _taken(array.field(place), column.field_type, field.type)
                if column is not None and place is not None
                else pa.nulls(len(array), field.type)
            )
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=nulls)
    if isinstance(kind, i.ListType):
        values = _taken(array.values, kind.element_type, wanted.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=nulls)
    if isinstance(kind, i.MapType):
        keys = _taken(array.keys, kind.key_type, wanted.key_type)
        items = _taken(array.items, kind.value_type, wanted.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=nulls)
    return array.cast(wanted)


def _id(field: pa.Field) -> int:
    return int((field.metadata or {}).get(FIELD_ID, b"-1"))
