"""Compares a table's columns with those of a transform's result, and converts rows to the table's types.

The driver casts nothing, and may silently store wrong values if types differ. So a column of the table has to hold each
value of Spark's type exactly, or the server converts and checks the values (`casts.py`). Other columns are refused by
name before the first row. Rows are cast to the types of the COPY before the driver gets them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from fencepost.formats.column_names import without_case
from fencepost.formats.json import unsayable
from fencepost.formats.json_decoder import JsonDecoder
from fencepost.outputs.postgres.casts import Cast, cast_of
from fencepost.outputs.postgres.conversions import TableColumn, alteration
from fencepost.outputs.postgres.identifiers import LONGEST_IDENTIFIER, quoted
from fencepost.outputs.table.staged_rows import StagedMisfit
from fencepost.outputs.table.values import RESERVED_COLUMNS

INTERVAL, REVISION = RESERVED_COLUMNS
NESTED = (t.ArrayType, t.MapType, t.StructType)
ARRAY = "[]"
NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
# By Spark's type: the types that hold its values exactly. A new column gets the first one.
TYPES: Mapping[type[t.DataType], tuple[str, ...]] = {
    t.ByteType: ("smallint", "integer", "bigint"),
    t.ShortType: ("smallint", "integer", "bigint"),
    t.IntegerType: ("integer", "bigint"),
    t.LongType: ("bigint",),
    t.FloatType: ("real", "double precision"),
    t.DoubleType: ("double precision",),
    t.BooleanType: ("boolean",),
    t.StringType: ("text", "character varying"),
    t.BinaryType: ("bytea",),
    t.DateType: ("date",),
    t.TimestampType: ("timestamp with time zone",),
    t.TimestampNTZType: ("timestamp without time zone",),
}
ARROW = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "character varying": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    "timestamp without time zone": pa.timestamp("us"),
}
OWN = {INTERVAL: "timestamp with time zone", REVISION: "integer"}


def kind_for(kind: t.DataType) -> str | None:
    """Returns the PostgreSQL type of a new column for values of this Spark type, or None if there is none."""
    if isinstance(kind, t.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, NESTED):
        return "jsonb"
    return next((found[0] for base, found in TYPES.items() if isinstance(kind, base)), None)


def holds(column: str, kind: t.DataType) -> bool:
    """Returns whether a column of this PostgreSQL type stores each value of the Spark type exactly. A type that refuses
    some values, and stores the others exactly, counts too.
    """
    if isinstance(kind, t.DecimalType):
        declared = NUMERIC.fullmatch(column)  # a scale in excess would be rounded, a precision is refused by the server
        return column == "numeric" or (declared is not None and int(declared[2]) >= kind.scale)
    if isinstance(kind, NESTED):
        of = kind.elementType if isinstance(kind, t.ArrayType) and column.endswith(ARRAY) else kind
        return column == "jsonb" or (not isinstance(of, NESTED) and holds(column.removesuffix(ARRAY), of))
    return any(isinstance(kind, base) and column in found for base, found in TYPES.items())


def casts_of(schema: t.StructType, columns: Sequence[TableColumn]) -> list[Cast]:
    """Returns how values get into the columns that do not hold them exactly as they are."""
    there = {column.name: column for column in columns}
    found = [
        cast_of(field.name, there[field.name].below, field.dataType)
        for field in schema.fields
        if field.name in there and not holds(there[field.name].kind, field.dataType)
    ]
    return [cast for cast in found if cast is not None]


def unsupported_columns(schema: t.StructType) -> list[str]:
    """Returns why columns of a transform's result cannot be columns of any PostgreSQL table."""
    found = list[str]()
    for field in schema.fields:
        if without_case(field.name) in RESERVED_COLUMNS:
            found.append(f"column {field.name} has a name that Fencepost uses in every table; rename it")
        elif len(field.name.encode()) > LONGEST_IDENTIFIER:
            found.append(
                f"column {field.name} has a name of more than {LONGEST_IDENTIFIER} bytes, which PostgreSQL truncates"
            )
        elif '"' in field.name or "\0" in field.name or not field.name:
            found.append(f"column {field.name!r} has a name with a quotation mark; rename it")
        elif kind_for(field.dataType) is None:
            kind = field.dataType.simpleString()
            found.append(f"column {field.name} is of type {kind}, which has no counterpart in PostgreSQL; cast it")
        elif what := unsayable(field.dataType):
            found.append(f"column {field.name} has {what}, which JSON cannot express; rename or cast it")
    return found


def missing(schema: t.StructType, columns: Sequence[TableColumn]) -> dict[str, str]:
    """Returns the columns that the table lacks, with the type that each gets."""
    there = {column.name for column in columns}
    wanted: dict[str, str] = {field.name: kind_for(field.dataType) or "" for field in schema.fields} | OWN
    return {name: kind for name, kind in wanted.items() if name not in there}


def column_differences(table: str, schema: t.StructType, columns: Sequence[TableColumn], *, add: bool) -> list[str]:
    """Returns why the table does not accept rows with these columns. Each reason comes with the statement that solves
    it.

    With `add`, missing columns are no reason, because the publication adds them.
    """
    alter, found = f"ALTER TABLE {table}", list[str]()
    there = {column.name: column for column in columns}
    converted = {cast.name for cast in casts_of(schema, columns)}
    for name, kind in missing(schema, columns).items():
        if not add:
            found.append(f"it has no column {name}: {alter} ADD COLUMN {quoted(name)} {kind}")
    for name, kind in OWN.items():
        if name in there and there[name].kind != kind:
            found.append(f"column {name} is {there[name].kind}: {alteration(table, there[name], kind)}")
    for field in schema.fields:
        column = there.get(field.name)
        if column is not None and column.computed:
            found.append(f"column {field.name} is computed by the table: leave it out of the transform's result")
        elif column is not None and not holds(column.kind, field.dataType) and field.name not in converted:
            gives = f"column {field.name} is {column.kind}, and the transform gives {field.dataType.simpleString()}"
            found.append(f"{gives}: {alteration(table, column, kind_for(field.dataType) or '')}")
    given = {field.name for field in schema.fields} | OWN.keys()
    for column in columns:
        if column.name not in given and not column.filled:
            problem = f"column {column.name} may not be null and has no default, and the transform does not give it"
            if column.in_primary_key:
                found.append(f"{problem}: it is in the primary key, so add it to the transform's result")
            else:
                found.append(f"{problem}: {alter} ALTER COLUMN {quoted(column.name)} DROP NOT NULL")
    return found


def definition(schema: t.StructType) -> str:
    """Returns the column definitions of a new table."""
    own = [f"{quoted(name)} {kind} NOT NULL" for name, kind in OWN.items()]
    return ", ".join([*(f"{quoted(f.name)} {kind_for(f.dataType)}" for f in schema.fields), *own])


class Rows:
    """Converts staged values to rows of a table that has these `columns`. `schema` has the rows' columns.

    The rows are those of a COPY: the values of a column that the server converts are in the type in which they are
    copied. With `number`, a column of this name has the number of each row, from 1.
    """

    def __init__(
        self,
        schema: t.StructType,
        columns: Sequence[TableColumn],
        interval: datetime,
        revision: int,
        number: str = "",
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        kinds = copied_kinds(schema, columns)
        # An array or object in jsonb keeps the text that it has in the record, so nothing in it can change.
        flat = [
            t.StructField(f.name, t.StringType() if is_json(kinds[f.name], f.dataType) else f.dataType)
            for f in schema.fields
        ]
        self._decoder = JsonDecoder(to_arrow_schema(t.StructType(flat)))
        self._targets = [_arrow(kinds[f.name], f.dataType) for f in schema.fields]
        self._own = (pa.scalar(interval, ARROW[OWN[INTERVAL]]), pa.scalar(revision, ARROW[OWN[REVISION]]))
        self._numbered, self._before = bool(number), 0
        fields = [*zip(schema.fieldNames(), self._targets, strict=True)]
        fields += [(name, ARROW[kind]) for name, kind in OWN.items()]
        self.schema = pa.schema([*fields, *([(number, pa.int64())] if number else [])])

    def of(self, values: pa.Array) -> pa.RecordBatch:
        """Converts values to rows.

        Raises:
            StagedMisfit: a value cannot be read as the batch's columns.
        """
        if values.null_count:
            raise StagedMisfit("a tombstone, which a table cannot store")
        columns, why = self._decoder.decode_array(values)
        if (reason := next(filter(None, why), None)) is not None:
            raise StagedMisfit(reason)
        made = [_cast(column, target) for column, target in zip(columns, self._targets, strict=True)]
        made += [pa.repeat(value, len(values)) for value in self._own]
        if self._numbered:
            before, self._before = self._before, self._before + len(values)
            made.append(pa.array(np.arange(before + 1, self._before + 1)))
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def copied_kinds(schema: t.StructType, columns: Sequence[TableColumn]) -> dict[str, str]:
    """Returns the PostgreSQL type in which the values of each column are copied."""
    return {column.name: column.kind for column in columns} | {
        cast.name: cast.copied for cast in casts_of(schema, columns)
    }


def is_json(column: str, kind: t.DataType) -> bool:
    """Returns whether a column of this PostgreSQL type has values of this Spark type as JSON."""
    return isinstance(kind, NESTED) and not column.endswith(ARRAY)


def _arrow(column: str, kind: t.DataType) -> pa.DataType:
    if isinstance(kind, t.ArrayType) and column.endswith(ARRAY):
        return pa.list_(_arrow(column.removesuffix(ARRAY), kind.elementType))
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.json_(pa.string()) if column == "jsonb" else ARROW[column]


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Casts the column to the table's type. Raises an error if a value would change."""
    if isinstance(target, pa.JsonType):
        return pa.ExtensionArray.from_storage(target, column)
    return column if column.type == target else column.cast(target, safe=True)
