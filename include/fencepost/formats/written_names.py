"""The names that columns have in a record. `output.fields` gives some columns other names there.

A schema of a transform's result carries these names in its metadata, so that they are recorded with it: the records of a
batch are read back by the names that they were written with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fencepost.formats.quoting import column_named
from fencepost.model import WRITTEN_AS

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType


def with_written_names(fields: StructType, names: Mapping[str, str]) -> StructType:
    """Returns the columns with the names of their fields in a record, where these differ."""
    from pyspark.sql.types import StructField, StructType

    metadata = {column: {WRITTEN_AS: name} for column, name in names.items() if column != name}
    return StructType([StructField(f.name, f.dataType, f.nullable, metadata.get(f.name)) for f in fields.fields])


def written_name(field: StructField) -> str:
    """Returns the name of a column's field in a record."""
    name: str = field.metadata.get(WRITTEN_AS, field.name)
    return name


def as_written(kind: DataType) -> DataType:
    """Returns a type with its outermost fields as they are named in a record."""
    from pyspark.sql.types import StructType

    return fields_as_written(kind) if isinstance(kind, StructType) else kind


def fields_as_written(fields: StructType) -> StructType:
    """Returns the fields of a record that columns are written to."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(written_name(f), f.dataType, f.nullable) for f in fields.fields])


def packed_as_written(fields: StructType) -> Column:
    """Returns a frame's columns as one struct, under the names of their fields in a record."""
    from pyspark.sql import functions as F

    return F.struct(*(column_named(f.name).alias(written_name(f)) for f in fields.fields))
