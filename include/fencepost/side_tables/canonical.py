"""One form of rows that are equal, whatever their order and their memory in Arrow: an order, and a fingerprint.

The rows have the Arrow types that Spark has for its own. All NaN are equal, and -0.0 differs from 0.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType


def order_of_values(rows: pa.Table) -> pa.Array:
    """Returns the row numbers in an order that depends on the values alone. Only rows with the same values tie."""
    columns = {str(place): _sortable(column.combine_chunks()) for place, column in enumerate(rows.columns)}
    return pc.sort_indices(pa.Table.from_pydict(columns), sort_keys=[(name, "ascending") for name in columns])


def _sortable(values: pa.Array) -> pa.Array:
    """Returns values that Arrow sorts, and that are equal if and only if the given ones are."""
    if pa.types.is_floating(values.type):  # to Arrow -0.0 equals 0.0
        whole = pa.int64() if pa.types.is_float64(values.type) else pa.int32()
        return pa.array(_one_nan(values).view(whole.to_pandas_dtype()), mask=_nulls(values))
    if not pa.types.is_nested(values.type):
        return values
    return pa.array([repr(value) for value in values.cast(_without_times(values.type)).to_pylist()], pa.string())


def _without_times(kind: pa.DataType) -> pa.DataType:
    """Returns the type with numbers in place of days and times. Python does not have all years of theirs."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_map(kind):
        return pa.map_(_without_times(kind.key_type), _without_times(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _without_times(f.type)) for f in kind])
    return kind


def fingerprint(rows: pa.Table, schema: StructType) -> str:
    """Returns a hash, in 32 hex digits, of the rows in their order and of their types."""
    found = hashlib.sha256(schema.json().encode())
    found.update(str(rows.num_rows).encode())
    for column in rows.columns:
        for part in _canonical_bytes(column.combine_chunks()):
            found.update(len(part).to_bytes(8, "big"))
            found.update(part)
    return found.hexdigest()[:32]


def _canonical_bytes(values: pa.Array) -> Iterator[bytes | memoryview]:
    """Yields the bytes of a column. Equal columns have equal bytes, whatever is in the memory of null values."""
    kind = values.type
    yield np.packbits(_nulls(values)).tobytes()
    if pa.types.is_map(kind):
        values = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    if pa.types.is_struct(kind):
        for inner in values.flatten():
            yield from _canonical_bytes(inner)
    elif pa.types.is_nested(kind):
        yield pc.fill_null(pc.list_value_length(values), 0).to_numpy().tobytes()
        yield from _canonical_bytes(values.flatten())
    elif pa.types.is_decimal(kind):
        yield from _texts(values.cast(pa.string()))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield from _texts(values)
    elif pa.types.is_floating(kind):
        yield _one_nan(values).tobytes()
    elif pa.types.is_boolean(kind):
        yield np.packbits(pc.fill_null(values, False).to_numpy(zero_copy_only=False)).tobytes()
    else:
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
        yield pc.fill_null(values.cast(whole), 0).to_numpy().tobytes()


def _texts(values: pa.Array) -> Iterator[bytes | memoryview]:
    """Yields the lengths of texts, and then the texts as one."""
    packed = pc.fill_null(values.cast(pa.large_binary()), b"")
    yield pc.binary_length(packed).to_numpy().tobytes()
    _, ends, data = packed.buffers()
    if len(packed) and data is not None:
        places = np.frombuffer(ends, np.int64)[packed.offset : packed.offset + len(packed) + 1]
        yield memoryview(data)[places[0] : places[-1]]


def _one_nan(values: pa.Array) -> np.ndarray:
    """Returns floating-point numbers in which all NaN have the same bits. A null is 0.0."""
    numbers: np.ndarray = pc.fill_null(values, 0.0).to_numpy().copy()
    numbers[np.isnan(numbers)] = np.nan
    return numbers


def _nulls(values: pa.Array) -> np.ndarray:
    nulls: np.ndarray = values.is_null().to_numpy(zero_copy_only=False)
    return nulls
