"""Converts staged values to rows of an Iceberg table.

A value is decoded in Spark's type, and then cast to the table's type. So a float in a
column of doubles stays the float that it was. The casts of Arrow keep null lists, empty lists and lists of null apart.
"""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as i
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from fencepost.formats.json_decoder import JsonDecoder
from fencepost.outputs.table.staged_rows import StagedMisfit
from fencepost.outputs.table.values import INTERVAL, REVISION


class NullRefused(Exception):
    """The table does not accept a row, because it has a null where the table requires a value. The message names the
    field.
    """


class IcebergRows:
    """Converts staged values to rows of a table with the schema `table`. `schema` has the rows' columns, which the table
    has to hold (`column_differences`).

    The rows have all columns of the table, in its order and types, with the ids of its fields.
    """

    def __init__(self, schema: t.StructType, table: Schema, interval: datetime, revision: int) -> None:
        self.schema = schema_to_pyarrow(table)
        own = {INTERVAL: interval, REVISION: revision}
        given = {field.name: field.dataType for field in schema.fields}
        self._decoded = [field.name for field in table.fields if field.name in given]
        self._constant = {
            name: pa.scalar(own.get(name), self.schema.field(name).type)
            for name in self.schema.names
            if name not in given
        }
        kinds = [
            (field.name, _decoded(given[field.name], field.field_type)) for field in table.fields if field.name in given
        ]
        self._decoder = JsonDecoder(pa.schema(kinds))

    def of(self, values: pa.Array) -> pa.RecordBatch:
        """Converts values to rows.

        Raises:
            StagedMisfit: a value cannot be read as the batch's columns.
            NullRefused: a value is null, and the table requires one.
        """
        if values.null_count:
            raise StagedMisfit("a tombstone, which a table cannot store")
        columns, why = self._decoder.decode_array(values)
        if (reason := next(filter(None, why), None)) is not None:
            raise StagedMisfit(reason)
        decoded = dict(zip(self._decoded, columns, strict=True))
        made = []
        for field in self.schema:
            if field.name in decoded:
                # The cast of a null to a field that is required would fail without a name.
                own = decoded[field.name]
                _check_required(own, pa.field(field.name, own.type, nullable=field.nullable), field.name)
                made.append(own.cast(field.type))
            else:
                made.append(pa.repeat(self._constant[field.name], len(values)))
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def _decoded(kind: t.DataType, column: i.IcebergType) -> pa.DataType:
    """Returns the Arrow type in which values of this Spark type are decoded for a column of this Iceberg type.

    Fields have the column's nullability, because Arrow casts no field that may be null to one that may not. The cast
    brings the fields of a struct into the table's order, and makes those that the Spark type lacks null.
    """
    if isinstance(kind, t.StructType) and isinstance(column, i.StructType):
        there = {field.name: field for field in column.fields}
        found = [(there[field.name], field.dataType) for field in kind.fields]
        return pa.struct([_field(own.name, of, own.field_type, required=own.required) for own, of in found])
    if isinstance(kind, t.ArrayType) and isinstance(column, i.ListType):
        return pa.list_(_field("element", kind.elementType, column.element_type, required=column.element_required))
    if isinstance(kind, t.MapType) and isinstance(column, i.MapType):
        key = _field("key", kind.keyType, column.key_type, required=True)
        return pa.map_(key, _field("value", kind.valueType, column.value_type, required=column.value_required))
    return to_arrow_type(kind)


def _field(name: str, kind: t.DataType, column: i.IcebergType, *, required: bool) -> pa.Field:
    return pa.field(name, _decoded(kind, column), nullable=not required)


def _check_required(values: pa.Array, field: pa.Field, at: str) -> None:
    """Checks that there is no null where the table requires a value.

    Raises:
        NullRefused: there is one.
    """
    if not field.nullable and values.null_count:
        raise NullRefused(f"column {at} is null, and the table requires a value")
    if not _has_required(field.type):
        return
    there = values.drop_null()  # nothing in a null is asked for
    if pa.types.is_struct(there.type):
        for number, inner in enumerate(there.type):
            _check_required(pc.struct_field(there, [number]), inner, f"{at}.{inner.name}")
    elif pa.types.is_map(there.type):
        first, end = there.offsets[0].as_py(), there.offsets[-1].as_py()
        _check_required(there.items.slice(first, end - first), there.type.item_field, f"{at}.value")
    else:
        _check_required(there.flatten(), there.type.value_field, f"{at}.element")


def _has_required(kind: pa.DataType) -> bool:
    """Returns whether a value of this type has fields that are required. The keys of a map are never null."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _has_required(kind.item_type)
    inner = [kind.field(number) for number in range(kind.num_fields)]
    return any(not field.nullable or _has_required(field.type) for field in inner)
