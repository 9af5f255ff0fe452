"""Reads the rows of a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from fencepost.formats.column_names import without_case
from fencepost.side_tables.content import Refuse, check_names
from fencepost.side_tables.declared import declared_columns

ROWS_AT_ONCE = 65_536
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
# Arrow's types, and the type of Spark's that holds each of their values exactly.
SAME: list[tuple[Callable[[pa.DataType], bool], Any]] = [
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_int8, pa.int8()),
    (pa.types.is_int16, pa.int16()),
    (pa.types.is_int32, pa.int32()),
    (pa.types.is_int64, pa.int64()),
    (pa.types.is_uint8, pa.int16()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.decimal128(20, 0)),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_float32, pa.float32()),
    (pa.types.is_float64, pa.float64()),
    (pa.types.is_string, pa.string()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_date, pa.date32()),
]


class NotOfSpark(Exception):
    """A type whose values no type of Spark's holds exactly."""


def read_parquet(
    data: bytes, types: Mapping[str, str], refuse: Refuse, check_size: Callable[[int], None]
) -> tuple[pa.Table, StructType]:
    """Returns the rows of a Parquet file, and their schema. Declared columns have the file's types.

    `check_size` is told the size of the rows that are read so far. A file may be much larger in memory than on disk.
    """
    # INT96 is what Spark writes for a timestamp by default. In nanoseconds it would not hold all years.
    try:
        file = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError):
        raise refuse("the file is not Parquet, or is not whole. Write it again.") from None
    check_names(names, refuse)
    wanted = list(types) or names
    if missing := [name for name in wanted if name not in names]:
        raise refuse(
            f"it has no column {missing[0]}, which the schema declares. Its columns are {', '.join(names)}. Correct the file, or "
            "the schema in pipeline.yaml."
        )
    instants = _columns_in_int96(file)
    fields = pa.schema([_field(file.schema_arrow.field(name), instants, refuse) for name in wanted])
    schema = from_arrow_schema(fields, prefer_timestamp_ntz=True)
    for field in declared_columns(types).fields:
        if (found := schema[field.name].dataType) != field.dataType:
            raise refuse(
                f"column {field.name} has the type {found.simpleString()}, and the schema in pipeline.yaml declares "
                f"{field.dataType.simpleString()}. Declare the file's type, and cast the column in the transform."
            )
    return _read(file, fields, refuse, check_size), schema


def _read(file: pq.ParquetFile, fields: pa.Schema, refuse: Refuse, check_size: Callable[[int], None]) -> pa.Table:
    batches, size = list[pa.RecordBatch](), 0
    try:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            batches.append(_exact(batch, fields, refuse))
            size += batches[-1].nbytes
            check_size(size)
    except (pa.ArrowException, OSError):
        raise refuse("the file is damaged. Write it again.") from None
    return pa.Table.from_batches(batches, fields)


def _exact(batch: pa.RecordBatch, fields: pa.Schema, refuse: Refuse) -> pa.RecordBatch:
    columns = []
    for field in fields:
        column = batch.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.type.equals(LOCAL) and field.type.equals(INSTANT):
            column = column.cast(pa.int64())
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid:
            raise refuse(
                f"column {field.name} has the type {batch.schema.field(field.name).type}, and a value that {field.type} does not "
                "hold. Write another type, for example microseconds in place of nanoseconds."
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _columns_in_int96(file: pq.ParquetFile) -> frozenset[str]:
    leaves = (file.schema.column(place) for place in range(len(file.schema)))
    return frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")


def _field(field: pa.Field, instants: Collection[str], refuse: Refuse) -> pa.Field:
    """Returns the field with a type that Spark has. Whether a value may be null belongs to the file, not to the values."""
    try:
        if field.name in instants:
            return pa.field(field.name, INSTANT)
        if any(path.startswith(f"{field.name}.") for path in instants):
            raise NotOfSpark("timestamps of 96 bits within its values")
        return pa.field(field.name, _type(field.type))
    except NotOfSpark as error:
        raise refuse(
            f"column {field.name} has {error}, which a side table cannot have. Write another type, or declare a schema without "
            "this column in pipeline.yaml."
        ) from None


def _type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of Spark's, as Arrow has it, that holds each value of a type of Arrow's."""
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return INSTANT if kind.tz else LOCAL
    if pa.types.is_map(kind):
        return pa.map_(_type(kind.key_type), _type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_type(kind.value_type))
    if pa.types.is_struct(kind):
        if len({without_case(f.name) for f in kind}) < kind.num_fields:
            raise NotOfSpark("a struct with a duplicate name")
        return pa.struct([pa.field(f.name, _type(f.type)) for f in kind])
    for is_it, same in SAME:
        if is_it(kind):
            return same
    raise NotOfSpark(f"the type {kind}")
