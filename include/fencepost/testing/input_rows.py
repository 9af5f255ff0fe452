"""Turns the rows of a test into the columns that a transform gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fencepost.config.pipeline import Pipeline
from fencepost.config.source import SOURCE, Source
from fencepost.errors import SettingsError
from fencepost.formats.envelope import OPERATIONS
from fencepost.rows.decode import CONNECTOR
from fencepost.rows.encode import PLACES
from fencepost.rows.path import EARLIER, OBSERVED, Decoded, RowPath
from fencepost.rows.transform import LOOKBACK
from fencepost.testing.schemas import VALUE, GivenRows, Row

METADATA = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", LOOKBACK, VALUE)
DECODERS = ("_record", "_tombstone", "_malformed", "_excluded")  # columns that only the decoder gives

CREATE = OPERATIONS["c"]

Place = tuple[str, int, int]  # topic, partition and offset of a source record


class Wrong(ValueError):
    """A row cannot be a record, or a value does not have its column's type. The text names the row or the column."""


@dataclass(frozen=True)
class GivenRecords:
    """The records that a test gives of the source with this name. `positions` has the position of the row that gives each
    record, among the rows of the source.
    """

    name: str
    source: Source
    decoded: Decoded
    positions: Mapping[Place, int]


def rows_by_source(pipeline: Pipeline, rows: GivenRows) -> dict[str, Sequence[Row]]:
    """Returns the rows of a test by the name of their source.

    Raises:
        SettingsError: rows are not given for exactly the sources of the pipeline.
    """
    about = f"pipeline {pipeline.name}: rows"
    if not pipeline.several:
        if isinstance(rows, Mapping):
            raise SettingsError(f"{about}: give a list, because pipeline.yaml has one source, without a name.")
        return {SOURCE: rows}
    names = pipeline.several
    if not isinstance(rows, Mapping):
        example = ", ".join(f'"{name}": [...]' for name in names)
        raise SettingsError(f"{about}: give them by the name of their source: {{{example}}}.")
    if unknown := [name for name in rows if name not in names]:
        raise SettingsError(f"{about}: no source {unknown[0]!r}; the sources are {', '.join(names)}.")
    if missing := [name for name in names if name not in rows]:
        raise SettingsError(f'{about}: none for source {missing[0]}. If it has no records, give "{missing[0]}": [].')
    return {name: rows[name] for name in names}


def describe_row(pipeline: Pipeline, name: str, number: int) -> str:
    """Returns a row of the source with this name in a message."""
    return f"source {name}, row {number}" if pipeline.several else f"row {number}"


def given_records(spark: SparkSession, path: RowPath, name: str, rows: Sequence[Row]) -> GivenRecords:
    """Returns the rows as records of the source with this name, in their order.

    Bytes are the value of a record, and None is a tombstone. A dict has fields, and missing fields are null. A dict may
    also have what Kafka stores with a record: `_key` and `_value` (bytes or text), `_timestamp`, `_partition`,
    `_offset`, `_topic` and `_headers` (a list of names and values). With `_value` it has no fields. The default of
    `_offset` is the position among the rows, and the default of `_timestamp` is the schedule's start. With `source.envelope`
    a dict is the row of a change, beside `_op` (by default `create`) and `_source` (a dict; by default null). With
    `_lookback: True` it is a record of an earlier interval, if the source looks back.

    All rows of a source are one local table, as a source is one topic. So Spark's plan shows what a transform does to its
    partitions.

    Raises:
        SettingsError: names the row, and what is wrong with it.
    """
    pipeline = path.pipeline
    try:
        table, columns = _records(spark, path, name, rows)
    except Wrong as error:
        of = f"source {name}, " if pipeline.several else ""
        raise SettingsError(f"{of}{error}.") from None
    positions: dict[Place, int] = {}
    for number, place in enumerate(zip(*(table.column(one).to_pylist() for one in PLACES), strict=True)):
        positions.setdefault(place, number)
    own, earlier = (
        spark.createDataFrame(table.take(pa.array(some, pa.int64())), schema=columns)
        for some in (
            [number for number, row in enumerate(rows) if not _is_earlier(row)],
            [number for number, row in enumerate(rows) if _is_earlier(row)],
        )
    )
    decoded = Decoded.of(f"{OBSERVED}{name}", own)
    if pipeline.sources[name].lookback is not None:
        decoded = replace(decoded, earlier=Decoded.of(f"{OBSERVED}{name}{EARLIER}", earlier))
    elif (wrong := next((n for n, row in enumerate(rows) if _is_earlier(row)), None)) is not None:
        raise SettingsError(
            f"{describe_row(pipeline, name, wrong)}: {LOOKBACK} is for a source that looks back, and "
            f"{pipeline.sources[name].setting}.lookback is not set."
        )
    return GivenRecords(name, pipeline.sources[name], decoded, positions)


def _is_earlier(row: Row) -> bool:
    """Returns whether a row is a record of an earlier interval."""
    return isinstance(row, Mapping) and bool(row.get(LOOKBACK))


def _records(spark: SparkSession, path: RowPath, name: str, rows: Sequence[Row]) -> tuple[pa.Table, T.StructType]:
    """Returns the decoded records of these rows, and their columns.

    Raises:
        Wrong: a row cannot be a record of the source.
    """
    raw = [one for one in enumerate(rows) if _is_raw(one[1])]
    typed = [one for one in enumerate(rows) if not _is_raw(one[1])]
    decoded = _decoded(spark, path, name, raw)
    columns = _nullable(decoded.schema)
    schema = to_arrow_schema(columns)
    known = decoded.toArrow().cast(schema) if raw else schema.empty_table()
    numbers = [number for number, _ in (*raw, *typed)]
    order = sorted(range(len(rows)), key=numbers.__getitem__)
    fields = _typed(path.pipeline, path.pipeline.sources[name], columns, typed)
    return pa.concat_tables([known, fields]).take(pa.array(order, pa.int64())), columns


def _is_raw(row: Row) -> bool:
    """Returns whether the row is a value for the decoder."""
    return not isinstance(row, Mapping) or VALUE in row


def _metadata(row: Row) -> Mapping[str, Any]:
    return {name: value for name, value in row.items() if name in METADATA} if isinstance(row, Mapping) else {}


def _record(pipeline: Pipeline, source: Source, number: int, row: Row) -> dict[str, Any]:
    """Returns a row in the form that the connector would give."""
    values: Mapping[str, Any] = row if isinstance(row, Mapping) else {VALUE: row}
    if VALUE in values and (others := [name for name in values if name not in METADATA]):
        raise Wrong(f"row {number}: _value is the whole value, so it cannot have {', '.join(others)} beside it")
    return {
        "key": _bytes(values.get("_key")),
        "value": _bytes(values.get(VALUE)),
        "topic": values.get("_topic", source.topic),
        "partition": values.get("_partition", 0),
        "offset": values.get("_offset", number),
        "timestamp": values.get("_timestamp", pipeline.schedule.start),
        "headers": [{"key": name, "value": _bytes(value)} for name, value in values.get("_headers") or ()] or None,
    }


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _decoded(spark: SparkSession, path: RowPath, name: str, rows: Sequence[tuple[int, Row]]) -> DataFrame:
    """Returns records decoded by the source's own decoder."""
    source = path.pipeline.sources[name]
    records = [_record(path.pipeline, source, number, row) for number, row in rows]
    table = _table(records, CONNECTOR, [number for number, _ in rows])
    return path.decode({name: spark.createDataFrame(table, schema=_nullable(CONNECTOR))})[name].frame


def _typed(pipeline: Pipeline, source: Source, schema: T.StructType, rows: Sequence[tuple[int, Row]]) -> pa.Table:
    """Returns rows of fields, with the schema that the decoder gives."""
    fields = {field.name: field.dataType for field in schema.fields}
    own = [name for name in fields if name not in (*METADATA, *DECODERS)]
    made = []
    for number, row in rows:
        assert isinstance(row, Mapping)
        known = _record(pipeline, source, number, _metadata(row))
        if unknown := [name for name in row if name not in own and name not in METADATA]:
            raise Wrong(
                f"row {number}: no field {', '.join(map(repr, unknown))} in the source; it has {', '.join(own)}. Metadata are "
                f"{', '.join(METADATA)}"
            )
        beside = {f"_{name}": value for name, value in known.items() if f"_{name}" in fields}
        if "_key" in fields and not isinstance(fields["_key"], T.BinaryType):
            beside["_key"] = row.get("_key")
        if "_headers" in fields:
            beside["_headers"] = known["headers"]
        if source.envelope is not None and row.get("_op", CREATE) not in OPERATIONS.values():
            raise Wrong(f"row {number}: _op is one of {', '.join(OPERATIONS.values())}")
        values = {
            **{name: row.get(name, CREATE if name == "_op" else None) for name in own},
            **beside,
            "_tombstone": False,
            "_malformed": None,
            "_excluded": None,
        }
        made.append({name: value for name, value in values.items() if name in fields})
    return _table(made, schema, [number for number, _ in rows])


def _table(rows: list[dict[str, Any]], schema: T.StructType, numbers: Sequence[int]) -> pa.Table:
    """Returns a table of dicts with Python values. `numbers` has the position of each row among all rows of the test.

    Raises:
        Wrong: a value does not have its column's type.
    """
    checked = []
    for number, row in zip(numbers, rows, strict=True):
        try:
            checked.append(of_types(row, schema))
        except Wrong as error:
            raise Wrong(f"row {number}: {error}") from None
    return pa.Table.from_pylist(checked, schema=to_arrow_schema(_nullable(schema)))


def of_types(row: Mapping[str, Any], schema: T.StructType) -> dict[str, Any]:
    """Returns the row's values in the form that Arrow accepts for these columns. A missing value is null.

    Raises:
        Wrong: a value does not have its column's type.
    """
    return {f.name: _of_type(row.get(f.name), f.dataType, f.name) for f in schema.fields}


def _nullable(schema: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(f.name, f.dataType, nullable=True) for f in schema.fields])


def _of_type(value: Any, kind: T.DataType, name: str) -> Any:
    """Returns the value in the form that Arrow accepts for this type. A text may stand for a number with all its
    digits, for a date, or for a time.

    Raises:
        Wrong: the value does not have the type.
    """
    if value is None:
        return None
    try:
        return _converted(value, kind, name)
    except Wrong:
        raise
    except (TypeError, ValueError, InvalidOperation, AttributeError):
        raise Wrong(f"{name}: {value!r} is no {kind.simpleString()}") from None


def _converted(value: Any, kind: T.DataType, name: str) -> Any:
    match kind:
        case T.StructType():
            if unknown := [key for key in value if key not in kind.fieldNames()]:
                raise Wrong(f"{name}: no field {', '.join(map(repr, unknown))}; it has {', '.join(kind.fieldNames())}")
            return {f.name: _of_type(value.get(f.name), f.dataType, f"{name}.{f.name}") for f in kind.fields}
        case T.ArrayType():
            if isinstance(value, str | bytes):
                raise TypeError
            return [_of_type(one, kind.elementType, f"{name}[{n}]") for n, one in enumerate(value)]
        case T.MapType():
            return [
                (_of_type(key, kind.keyType, f"{name} key"), _of_type(one, kind.valueType, f"{name}[{key!r}]"))
                for key, one in value.items()
            ]
        case T.TimestampType():
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        case T.TimestampNTZType():
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            if moment.tzinfo is not None:
                raise TypeError
            return moment
        case T.DateType():
            return date.fromisoformat(value) if isinstance(value, str) else _only(value, date, datetime)
        case T.DecimalType():
            return Decimal(str(_only(value, (int, str, Decimal, float), bool))).quantize(Decimal(1).scaleb(-kind.scale))
        case T.FloatType() | T.DoubleType():
            return float(_only(value, (int, float), bool))
        case T.BooleanType():
            return _only(value, bool)
        case T.IntegralType():
            number = _only(value, int, bool)
            if not -(2 ** (8 * _WIDTHS[type(kind)] - 1)) <= number < 2 ** (8 * _WIDTHS[type(kind)] - 1):
                raise Wrong(f"{name}: {number} is beyond a {kind.simpleString()}")
            return number
        case T.BinaryType():
            return bytes(_only(_bytes(value), (bytes, bytearray)))
        case T.StringType():
            return _only(value, str)
    return value


_WIDTHS: dict[type[T.DataType], int] = {T.ByteType: 1, T.ShortType: 2, T.IntegerType: 4, T.LongType: 8}


def _only(value: Any, kinds: type | tuple[type, ...], but: type | None = None) -> Any:
    """Returns the value if it has one of these types."""
    if not isinstance(value, kinds) or (but is not None and isinstance(value, but)):
        raise TypeError
    return value
