"""Turns the side tables of a test into the contents that a transform gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import NullType, StringType, StructField, StructType

from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable, TopicTable, WithColumns
from fencepost.config.sql_types import without_not_null
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS, REGISTRY_KEY_FORMATS
from fencepost.rows.decode import CONNECTOR, read_source
from fencepost.side_tables.content import TableContent, content_of
from fencepost.side_tables.declared import declared_columns
from fencepost.side_tables.files import read_file_table
from fencepost.side_tables.frames import frames_of
from fencepost.side_tables.topics import not_in_table
from fencepost.testing.input_rows import Wrong, of_types

TableRows = Mapping[str, Sequence[Mapping[str, Any]]]


def given_tables(spark: SparkSession, pipeline: Pipeline, given: TableRows) -> dict[str, DataFrame]:
    """Returns the pipeline's side tables as DataFrames, with the given rows by table. A file that is not given is read
    from the pipeline's folder.

    Raises:
        SettingsError: names the table, and what is wrong with what is given.
        SideTableRefused: the rows are none that the table may have, for example because two have the same key.
    """
    if unknown := [name for name in given if name not in pipeline.tables]:
        has = f"its side tables are {', '.join(pipeline.tables)}" if pipeline.tables else "it has no side tables"
        raise SettingsError(f"pipeline {pipeline.name}: tables: no side table {unknown[0]!r}; {has}.")
    contents = {
        name: _given(spark, pipeline, name, given[name]) if name in given else _in_folder(pipeline, name)
        for name in pipeline.tables
    }
    return frames_of(spark, pipeline, contents)


def _in_folder(pipeline: Pipeline, name: str) -> TableContent:
    table = pipeline.tables[name]
    if isinstance(table, FileTable):
        return read_file_table(pipeline, name, table)
    key = "".join(f'"{column}": ..., ' for column in table.key)
    raise SettingsError(
        f"pipeline {pipeline.name}: side table {name} is {table.description}, which a test does not read. Give its rows: "
        f'tables={{"{name}": [{{{key}...}}]}}.'
    )


def _given(spark: SparkSession, pipeline: Pipeline, name: str, rows: Sequence[Mapping[str, Any]]) -> TableContent:
    if wrong := [number for number, row in enumerate(rows) if not isinstance(row, Mapping)]:
        raise _refused(pipeline, name, f"row {wrong[0]} is no dict of its columns")
    schema, values = _typed(spark, pipeline, name, rows)
    table = pipeline.tables[name].model_copy(update={"not_empty": False})
    may_be_empty = pipeline.model_copy(update={"tables": {**pipeline.tables, name: table}})
    return content_of(may_be_empty, name, values, schema)


def _typed(
    spark: SparkSession, pipeline: Pipeline, name: str, rows: Sequence[Mapping[str, Any]]
) -> tuple[StructType, pa.Table]:
    """Returns the columns of the rows, and the rows. The types of columns that are not declared are those of the values."""
    declared, complete = _declared(spark, pipeline, name)
    columns = dict.fromkeys(column for row in rows for column in row)
    others = [column for column in columns if column not in declared.fieldNames()]
    if others and complete:
        has = ", ".join(declared.fieldNames())
        number = next(number for number, row in enumerate(rows) if others[0] in row)
        raise _refused(pipeline, name, f"row {number}: no column {others[0]!r}; it has {has}")
    if not declared.fields and not others:
        raise _refused(pipeline, name, "without a row its columns are not known. Give a row, or declare its schema")
    typed = []
    for number, row in enumerate(rows):
        try:
            typed.append(of_types(row, declared))
        except Wrong as error:
            raise _refused(pipeline, name, f"row {number}: {error}") from None
    known = pa.Table.from_pylist(typed, schema=to_arrow_schema(declared))
    inferred = [_inferred(pipeline, name, column, [row.get(column) for row in rows]) for column in others]
    schema = StructType([*declared.fields, *(field for field, _ in inferred)])
    return schema, pa.Table.from_arrays(
        [*known.columns, *(values for _, values in inferred)], names=schema.fieldNames()
    )


def _declared(spark: SparkSession, pipeline: Pipeline, name: str) -> tuple[StructType, bool]:
    """Returns the declared columns, and whether the table has no others."""
    table = pipeline.tables[name]
    if isinstance(table, WithColumns):
        return declared_columns(table.types), bool(table.columns)
    assert isinstance(table, TopicTable)
    source = table.source
    if not FORMATS[source.format].has_registry and source.key_format not in REGISTRY_KEY_FORMATS:
        read = read_source(spark.createDataFrame([], CONNECTOR), source).schema.fields
        return StructType([StructField(f.name, f.dataType) for f in read if f.name not in not_in_table(table)]), True
    types = {f"_key_{n}": column.type for n, column in table.key_columns.items()}
    types |= {n: column.type for n, column in table.columns.items()}
    return declared_columns({n: without_not_null(kind) for n, kind in types.items() if kind is not None}), False


def _inferred(pipeline: Pipeline, name: str, column: str, values: list[Any]) -> tuple[StructField, pa.Array]:
    """Returns a column with the type of its values. Without a value it is text, as in a file."""
    try:
        found = pa.array(values)
        kind = from_arrow_schema(pa.schema([(column, found.type)])).fields[0].dataType
    except (pa.ArrowException, PySparkTypeError, ValueError, TypeError, OverflowError):
        raise _refused(
            pipeline, name, f"column {column!r}: the values have no common type. Give values of one type"
        ) from None
    kind = StringType() if isinstance(kind, NullType) else kind
    return StructField(column, kind), found.cast(to_arrow_schema(StructType().add(column, kind)).field(0).type)


def _refused(pipeline: Pipeline, name: str, why: str) -> SettingsError:
    return SettingsError(f"pipeline {pipeline.name}: tables: {name}: {why}.")
