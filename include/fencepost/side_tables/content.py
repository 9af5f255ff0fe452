"""The content of a side table: its rows in one order, checked, with a fingerprint that the ledger records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import SideTableSettings
from fencepost.counts import count_of
from fencepost.errors import SideTableRefused
from fencepost.formats.column_names import twins
from fencepost.model import SideTableState, TopicEnds, utc_now
from fencepost.side_tables.canonical import fingerprint, order_of_values

MIB = 1024 * 1024
Refuse = Callable[[str], SideTableRefused]  # makes the error about one side table, of what is wrong with it
# Types whose values are equal in Arrow if and only if they are equal in a join of Spark.
OF_KEYS = (
    T.BinaryType,
    T.BooleanType,
    T.ByteType,
    T.DateType,
    T.DecimalType,
    T.IntegerType,
    T.LongType,
    T.ShortType,
    T.StringType,
    T.TimestampNTZType,
    T.TimestampType,
)


@dataclass(frozen=True)
class TableContent:
    """A side table as one attempt has read it. `rows` are in the order of the key, and have the types of `schema`."""

    state: SideTableState
    rows: pa.Table
    schema: T.StructType


def refused(pipeline: Pipeline, name: str, why: str) -> SideTableRefused:
    """Returns the error about a side table. `why` says what is wrong with it and what to do, as whole sentences."""
    return SideTableRefused(f"pipeline {pipeline.name}: side table {name}, {pipeline.tables[name].description}: {why}")


def check_size(pipeline: Pipeline, name: str, size: int) -> None:
    """Checks that a side table is not too large. `size` is the number of bytes that were read, or are in memory.

    Raises:
        SideTableRefused: the size is above `max_megabytes`.
    """
    table = pipeline.tables[name]
    if size > table.most_bytes:
        raise refused(
            pipeline,
            name,
            f"it has {size / MIB:,.1f} MB or more, and max_megabytes is {table.max_megabytes}. Each executor holds the whole "
            "table. Make the table smaller, raise max_megabytes, or read the rows as a source of another pipeline.",
        )


def check_names(names: Sequence[str], refuse: Refuse) -> None:
    """Checks that no two columns have the same name.

    Raises:
        SideTableRefused: names the columns.
    """
    for place, name in enumerate(names):
        if name in names[:place]:
            raise refuse(f"two columns have the name {name!r}. Rename one.")
    if both := twins(names):
        raise refuse(
            f"columns {both[0]!r} and {both[1]!r} have the same name to Spark, which ignores case. Rename one."
        )


def check_required(rows: pa.Table, required: Sequence[str], refuse: Refuse, source: str) -> None:
    """Checks that no column in `required` has a null. `source` is what a person may correct besides the schema.

    Raises:
        SideTableRefused: names the column.
    """
    for column in required:
        if nulls := rows[column].null_count:
            raise refuse(
                f"column {column} is declared not null, and is null in {count_of(nulls, 'row')}. Correct {source}, or the "
                "schema in pipeline.yaml."
            )


def content_of(
    pipeline: Pipeline, name: str, rows: pa.Table, schema: T.StructType, offsets: TopicEnds | None = None
) -> TableContent:
    """Returns the content of the side table `name` with these rows, in the order of its key.

    `rows` has a column of the Arrow type of each column of `schema`, in the same order.

    Raises:
        SideTableRefused: there are no rows, or too many bytes. Other causes are a key that is null, that is there twice,
            or that has no such column.
    """
    table, refuse = pipeline.tables[name], partial(refused, pipeline, name)
    _check_columns(table, schema, refuse)
    rows = rows.cast(to_arrow_schema(schema, timestamp_utc=True)).combine_chunks()
    size = rows.nbytes
    check_size(pipeline, name, size)
    if table.not_empty and not rows.num_rows:
        raise refuse("it has no rows. Fill it, or set not_empty: false if an empty table is as it should be.")
    rows = _by_key(table, rows, refuse)
    state = SideTableState(
        name=name,
        fingerprint=fingerprint(rows, schema),
        rows=rows.num_rows,
        bytes=size,
        value_schema=schema.json(),
        read_at=utc_now(),
        offsets=offsets,
    )
    return TableContent(state, rows, schema)


def _check_columns(table: SideTableSettings, schema: T.StructType, refuse: Refuse) -> None:
    if not schema.fields:
        raise refuse("it has no columns. Give it some.")
    check_names(schema.fieldNames(), refuse)
    for key in table.key:
        if key not in schema.fieldNames():
            raise refuse(
                f"key {key} is not among its columns: {', '.join(schema.fieldNames())}. Correct key in pipeline.yaml."
            )
        kind = schema[key].dataType
        if not isinstance(kind, OF_KEYS):
            raise refuse(
                f"key {key} has the type {kind.simpleString()}, whose values cannot be compared exactly. Declare another "
                "type, or name another key."
            )


def _by_key(table: SideTableSettings, rows: pa.Table, refuse: Refuse) -> pa.Table:
    """Returns the rows in the order of the key, or of all their values if there is no key."""
    if not table.key:
        return rows.take(order_of_values(rows))
    keys = rows.select(list(table.key))
    for key in table.key:
        if nulls := keys[key].null_count:
            raise refuse(f"key {key} is null in {count_of(nulls, 'row')}. Remove these rows, or name another key.")
    order = pc.sort_indices(keys, sort_keys=[(key, "ascending") for key in table.key])
    rows = rows.take(order).combine_chunks()
    keys = rows.select(list(table.key))
    if rows.num_rows > 1:
        same = None
        for key in table.key:
            column = keys[key].combine_chunks()
            equal = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
            same = equal if same is None else pc.and_(same, equal)
        if doubled := pc.sum(same).as_py():
            raise refuse(
                f"the key ({', '.join(table.key)}) is not unique: {count_of(doubled, 'row has', 'rows have')} the key of "
                "another row. A join would double rows of the source. Remove these rows, name all columns of the key, or set "
                "key: none."
            )
    return rows
