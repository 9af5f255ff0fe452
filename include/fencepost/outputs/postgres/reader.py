"""Reads the rows of a published revision from a table, for `read_validated`. The rows pass through this process."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from fencepost.counts import count_of
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.formats.quoting import column_named
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.casts import BaseType
from fencepost.outputs.postgres.columns import NESTED
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.rows_request import RowsRequest
from fencepost.postgres.connection import session


def read_rows(request: RowsRequest) -> DataFrame:
    """Returns the rows of a batch, with its columns. If the request asks for it, returns the current table's rows
    instead, with those of these columns that the table has.

    Raises:
        SettingsError: the reader has no login to the database.
        NeedsOperator: the table does not have all rows of the batch.
        TableUnavailable, AccessDenied, TableRefused: the server does not answer, or refuses the request.
    """
    spark, reader, one, columns = request.spark, request.reader, request.announcement, request.columns
    if not reader.postgres:
        raise SettingsError(f"{reader.label}: batch {one.batch} is in table {one.output}. Give postgres={{...}}.")
    if request.current:
        return _current_rows(request, one.current_table or "")
    if not one.rows:
        return spark.createDataFrame([], columns)
    with session(reader) as tx:
        table = Bookkeeping(tx, one.output)
        there = _base_types(table)
        rows = table.read(one.interval.start, one.revision, _selected(columns, there))
    if rows.num_rows != one.rows:
        raise NeedsOperator(
            f"batch {one.batch}: table {one.output} has {rows.num_rows:,} of its {count_of(one.rows, 'row')}: a newer "
            "revision is being published, or the table was restored from an older copy, emptied or created again. Ask the "
            "pipeline's owner to reprocess the interval."
        )
    return _frame(spark, rows, columns, there)


def _current_rows(request: RowsRequest, name: str) -> DataFrame:
    with session(request.reader) as tx:
        table = Bookkeeping(tx, name)
        if not (there := _base_types(table)):
            raise NeedsOperator(
                f"batch {request.announcement.batch}: current table {name} does not exist. Ask the pipeline's owner."
            )
        columns = t.StructType([field for field in request.columns.fields if field.name in there])
        rows = tx.arrow_table(f"SELECT {_selected(columns, there)} FROM {table.quoted}")
    return _frame(request.spark, rows, columns, there)


def _base_types(table: Bookkeeping) -> Mapping[str, BaseType | None]:
    """Returns the types of the table's columns by name. There are none if the table does not exist."""
    oid = table.oid()
    return {} if oid is None else {column.name: column.below for column in table.columns(oid)}


def _frame(
    spark: SparkSession, rows: pa.Table, columns: t.StructType, there: Mapping[str, BaseType | None]
) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_schema

    texts = {f.name for f in columns.fields if isinstance(f.dataType, NESTED) and not _is_array(f, there.get(f.name))}
    flat = t.StructType(
        [t.StructField(f.name, t.StringType() if f.name in texts else f.dataType) for f in columns.fields]
    )
    wanted = to_arrow_schema(flat)
    cast = [column.cast(field.type) for column, field in zip(rows.columns, wanted, strict=True)]
    frame = spark.createDataFrame(pa.Table.from_arrays(cast, schema=wanted), flat)
    return frame.select(
        *(_parsed(field) if field.name in texts else column_named(field.name) for field in columns.fields)
    )


def _parsed(field: t.StructField) -> Column:
    # The type as JSON: in SQL, field names with other characters than letters and digits would need quotation.
    return F.from_json(column_named(field.name), field.dataType.json()).alias(field.name)


def _is_array(field: t.StructField, base: BaseType | None) -> bool:
    """Returns whether the table has the values of an array as an array of its own, not as JSON."""
    return isinstance(field.dataType, t.ArrayType) and base is not None and base.is_array


def _selected(columns: t.StructType, there: Mapping[str, BaseType | None]) -> str:
    """Returns the columns of a SELECT. `there` has the types of the table's columns by name."""
    return ", ".join(_selected_column(field, there.get(field.name)) for field in columns.fields)


def _selected_column(field: t.StructField, base: BaseType | None) -> str:
    name = quoted(field.name)
    if isinstance(field.dataType, t.ArrayType) and base is not None and base.is_array:
        element = _value("u.e", field.dataType.elementType, base)
        if element == "u.e":
            return name
        elements = f"ARRAY(SELECT {element} FROM unnest({name}) WITH ORDINALITY AS u (e, n) ORDER BY u.n)"
        return f"CASE WHEN {name} IS NOT NULL THEN {elements} END AS {name}"
    if isinstance(field.dataType, NESTED):
        return f"{name}::text AS {name}"
    return f"{_value(name, field.dataType, base)} AS {name}"


def _value(value: str, kind: t.DataType, base: BaseType | None) -> str:
    """Returns the expression that reads a value.

    The driver has no type for numeric and for types of texts, so they are read as text. Trailing zeros of a numeric are
    removed, because the table's column may have a larger scale. As text, an inet has the form in which the server prints
    it: without a mask if it is a host.
    """
    if isinstance(kind, t.DecimalType):
        return f"trim_scale({value})::text"
    if isinstance(kind, t.StringType):
        return f"abbrev({value}::inet)" if base is not None and base.kind == "inet" else f"{value}::text"
    return value
