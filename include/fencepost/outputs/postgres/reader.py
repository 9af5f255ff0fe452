"""Reads the rows of a published revision from a table, for `read_validated`. The rows pass through this process."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from fencepost.counts import count_of
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.formats.quoting import column_named
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.columns import NESTED
from fencepost.outputs.postgres.connection import session
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.rows_request import RowsRequest


def read_rows(request: RowsRequest) -> DataFrame:
    """Returns the rows of a batch, with its columns.

    Raises:
        SettingsError: the reader has no login to the database.
        NeedsOperator: the table does not have all rows of the batch.
        TableUnavailable, AccessDenied, TableRefused: the server does not answer, or refuses the request.
    """
    spark, reader, one, columns = request.spark, request.reader, request.announcement, request.columns
    if not reader.postgres:
        raise SettingsError(f"{reader.label}: batch {one.batch} is in table {one.output}. Give postgres={{...}}.")
    if not one.rows:
        return spark.createDataFrame([], columns)
    flat = t.StructType(
        [
            t.StructField(f.name, t.StringType() if isinstance(f.dataType, NESTED) else f.dataType)
            for f in columns.fields
        ]
    )
    with session(reader) as tx:
        rows = Bookkeeping(tx, one.output).read(one.interval.start, one.revision, _selected(columns))
    if rows.num_rows != one.rows:
        raise NeedsOperator(
            f"batch {one.batch}: table {one.output} has {rows.num_rows:,} of its {count_of(one.rows, 'row')}: a newer "
            "revision is being published, or the table was restored from an older copy, emptied or created again. Ask the "
            "pipeline's owner to reprocess the interval."
        )
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(flat)
    cast = [column.cast(field.type) for column, field in zip(rows.columns, wanted, strict=True)]
    frame = spark.createDataFrame(pa.Table.from_arrays(cast, schema=wanted), flat)
    return frame.select(*map(_parsed, columns.fields))


def _parsed(field: t.StructField) -> Column:
    column = column_named(field.name)
    if not isinstance(field.dataType, NESTED):
        return column
    # The type as JSON: in SQL, field names with other characters than letters and digits would need quotation.
    return F.from_json(column, field.dataType.json()).alias(field.name)


def _selected(columns: t.StructType) -> str:
    """Returns the columns of a SELECT. The driver has no type for numeric and JSON, so they are read as text. Trailing
    zeros of a numeric are removed, because the table's column may have a larger scale.
    """

    def selected(field: t.StructField) -> str:
        name = quoted(field.name)
        if isinstance(field.dataType, t.DecimalType):
            return f"trim_scale({name})::text AS {name}"
        return f"{name}::text AS {name}" if isinstance(field.dataType, NESTED) else name

    return ", ".join(map(selected, columns.fields))
