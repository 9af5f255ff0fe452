"""Compares a table's columns with those of a transform's result, and chooses the types of new columns.

A column has to hold each value of Spark's type exactly, or it is refused by name before the first row. The columns that
a table has, and the result lacks, stay null. A column is found by its exact name. Spark ignores the case of names, so no
two of a table's columns may differ only in case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from pyiceberg import types as i
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import types as t

from fencepost.formats.column_names import twins, without_case
from fencepost.formats.json import unsayable
from fencepost.formats.quoting import quoted
from fencepost.outputs.table.values import INTERVAL, RESERVED_COLUMNS, REVISION

Path = tuple[str, ...]
# By Spark's type: the types that hold its values exactly. A new column gets the first one.
TYPES: Mapping[type[t.DataType], tuple[i.PrimitiveType, ...]] = {
    t.ByteType: (i.IntegerType(), i.LongType()),
    t.ShortType: (i.IntegerType(), i.LongType()),
    t.IntegerType: (i.IntegerType(), i.LongType()),
    t.LongType: (i.LongType(),),
    t.FloatType: (i.FloatType(), i.DoubleType()),
    t.DoubleType: (i.DoubleType(),),
    t.BooleanType: (i.BooleanType(),),
    t.StringType: (i.StringType(),),
    t.BinaryType: (i.BinaryType(),),
    t.DateType: (i.DateType(),),
    t.TimestampType: (i.TimestamptzType(),),
    t.TimestampNTZType: (i.TimestampType(),),
}
OWN: Mapping[str, i.PrimitiveType] = {INTERVAL: i.TimestamptzType(), REVISION: i.IntegerType()}
# How Spark SQL names Iceberg's types where the names differ.
SQL_NAMES = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


def type_for(kind: t.DataType, ids: Iterator[int] | None = None) -> i.IcebergType | None:
    """Returns the Iceberg type of a new column for values of this Spark type, or None if there is none.

    Nested fields take their ids from `ids`. An update of a schema, and a new table, give them others.
    """
    ids = ids or count(1)
    if isinstance(kind, t.DecimalType):
        return i.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        element = type_for(kind.elementType, ids)
        return None if element is None else i.ListType(next(ids), element, element_required=False)
    if isinstance(kind, t.MapType):
        key, value = type_for(kind.keyType, ids), type_for(kind.valueType, ids)
        return (
            None if key is None or value is None else i.MapType(next(ids), key, next(ids), value, value_required=False)
        )
    if isinstance(kind, t.StructType):
        fields = [(field.name, type_for(field.dataType, ids)) for field in kind.fields]
        if any(found is None for _, found in fields):
            return None
        return i.StructType(*(i.NestedField(next(ids), name, found, required=False) for name, found in fields))
    return next((found[0] for base, found in TYPES.items() if isinstance(kind, base)), None)


def holds(column: i.IcebergType, kind: t.DataType) -> bool:
    """Returns whether a column of this Iceberg type stores each value of the Spark type exactly. Fields of a struct that
    the result lacks are null, so they may not be required.
    """
    if isinstance(kind, t.DecimalType):
        return (
            isinstance(column, i.DecimalType)
            and column.scale >= kind.scale
            and column.precision - column.scale >= kind.precision - kind.scale
        )
    if isinstance(kind, t.ArrayType):
        return isinstance(column, i.ListType) and holds(column.element_type, kind.elementType)
    if isinstance(kind, t.MapType):
        return (
            isinstance(column, i.MapType)
            and holds(column.key_type, kind.keyType)
            and holds(column.value_type, kind.valueType)
        )
    if isinstance(kind, t.StructType):
        if not isinstance(column, i.StructType):
            return False
        given = {field.name: field.dataType for field in kind.fields}
        there = {field.name: field.field_type for field in column.fields}
        return (
            all(name in there and holds(there[name], of) for name, of in given.items())
            and all(field.optional or field.name in given for field in column.fields)
            and twins([*given, *there]) is None
        )
    return any(isinstance(kind, base) and column in found for base, found in TYPES.items())


def unsupported_columns(schema: t.StructType) -> list[str]:
    """Returns why columns of a transform's result cannot be columns of any Iceberg table."""
    found = list[str]()
    for field in schema.fields:
        if without_case(field.name) in RESERVED_COLUMNS:
            found.append(f"column {field.name} has a name that Fencepost uses in every table; rename it")
        elif (bad := next(_bad_names([field]), None)) is not None:
            found.append(f"column {field.name!r} has the name {bad!r}, which Iceberg's files cannot have; rename it")
        elif type_for(field.dataType) is None:
            kind = field.dataType.simpleString()
            found.append(f"column {field.name} is of type {kind}, which has no counterpart in Iceberg; cast it")
        elif what := unsayable(field.dataType):
            found.append(f"column {field.name} has {what}, which JSON cannot express; rename or cast it")
    if (pair := next(_twins(schema), None)) is not None:
        found.append(f"columns {pair[0]} and {pair[1]} differ only in case, which Spark ignores; rename one")
    if not found:
        found += _ambiguous(schema)
    return found


def _bad_names(fields: Iterable[t.StructField]) -> Iterator[str]:
    """Yields the names, at any depth, that are empty or have a NUL."""
    for name, kind in _structs(fields):
        if not name or "\0" in name:
            yield name
        yield from _bad_names(kind)


def _structs(fields: Iterable[t.StructField]) -> Iterator[tuple[str, list[t.StructField]]]:
    """Yields the name of each field, and the fields of the structs in it."""
    for field in fields:
        yield field.name, _fields_in(field.dataType)


def _fields_in(kind: t.DataType) -> list[t.StructField]:
    if isinstance(kind, t.StructType):
        return list(kind.fields)
    if isinstance(kind, t.ArrayType):
        return _fields_in(kind.elementType)
    if isinstance(kind, t.MapType):
        return [*_fields_in(kind.keyType), *_fields_in(kind.valueType)]
    return []


def _twins(kind: t.DataType) -> Iterator[tuple[str, str]]:
    """Yields names of one struct, at any depth, that Spark takes as the same."""
    if isinstance(kind, t.StructType):
        if (pair := twins(kind.fieldNames())) is not None:
            yield pair
        for field in kind.fields:
            yield from _twins(field.dataType)
    elif isinstance(kind, t.ArrayType):
        yield from _twins(kind.elementType)
    elif isinstance(kind, t.MapType):
        yield from _twins(kind.valueType)


def _ambiguous(schema: t.StructType) -> list[str]:
    """Returns why a name with a dot is the path of another field too."""
    try:
        made = new_schema(schema)
        paths = parquet_path_to_id_mapping(made)
    except ValueError:
        return ["a column's name with a dot is also the path of a field in a struct; rename it"]
    leaves = [one for one in made.field_ids if made.find_type(one).is_primitive]
    return [] if len(paths) == len(leaves) else ["a column's name with a dot is also the path of a field; rename it"]


def missing_columns(schema: t.StructType, table: Schema) -> dict[Path, t.DataType]:
    """Returns the columns and fields that the table lacks, by their path, with the type of their values. A path leads
    through `element` of an array and `value` of a map.
    """
    found: dict[Path, t.DataType] = {}
    _collect_missing(schema, table.as_struct(), (), found)
    return found


def _collect_missing(kind: t.DataType, column: i.IcebergType, path: Path, found: dict[Path, t.DataType]) -> None:
    if isinstance(kind, t.StructType) and isinstance(column, i.StructType):
        there = {field.name: field.field_type for field in column.fields}
        for field in kind.fields:
            if field.name in there:
                _collect_missing(field.dataType, there[field.name], (*path, field.name), found)
            else:
                found[*path, field.name] = field.dataType
    elif isinstance(kind, t.ArrayType) and isinstance(column, i.ListType):
        _collect_missing(kind.elementType, column.element_type, (*path, "element"), found)
    elif isinstance(kind, t.MapType) and isinstance(column, i.MapType):
        _collect_missing(kind.valueType, column.value_type, (*path, "value"), found)


def add_missing(update: UpdateSchema, schema: t.StructType, table: Schema) -> None:
    """Adds the columns and fields that the table lacks to an update of its schema. They are optional.

    Only columns in which `column_differences` finds nothing can be added.
    """
    for path, kind in missing_columns(schema, table).items():
        found = type_for(kind)
        assert found is not None, f"column {path} has no type"
        update.add_column(path, found)


def column_differences(table: str, schema: t.StructType, there: Schema, *, add: bool) -> list[str]:
    """Returns why the table does not accept rows with these columns. Each reason comes with the statement of Spark SQL
    that solves it, or with what to change in the transform.

    With `add`, missing columns are no reason, because the publication adds them.
    """
    alter = f"ALTER TABLE {table}"
    found = [*_own_differences(there)]
    if (pair := twins([*(field.name for field in there.fields), *schema.fieldNames()])) is not None:
        found.append(f"columns {pair[0]} and {pair[1]} differ only in case, which Spark ignores: rename one")
    lacking = missing_columns(schema, there)
    if not add:
        found += [
            f"it has no column {'.'.join(path)}: {alter} ADD COLUMN {quoted_path(path)} {kind.simpleString()}"
            for path, kind in lacking.items()
        ]
    for path, kind, column in _paired(schema, there.as_struct(), (), lacking):
        name = ".".join(path)
        if column is None:
            found.append(
                f"column {name} is required, and the transform does not give it: "
                f"{alter} ALTER COLUMN {quoted_path(path)} DROP NOT NULL"
            )
        elif kind is not None and not holds(column, kind):
            gives = f"column {name} is {sql_name(column)}, and the transform gives {kind.simpleString()}"
            wider = type_for(kind)
            if isinstance(wider, i.PrimitiveType) and _can_become(column, wider):
                found.append(f"{gives}: {alter} ALTER COLUMN {quoted_path(path)} TYPE {sql_name(wider)}")
            else:
                found.append(f"{gives}: cast it in the transform")
    return found


def _own_differences(there: Schema) -> Iterator[str]:
    columns = {field.name: field for field in there.fields}
    for name, kind in OWN.items():
        if name not in columns:
            yield f"it has no column {name}: create it again with {name} {sql_name(kind)}"
        elif columns[name].field_type != kind:
            yield f"column {name} is {sql_name(columns[name].field_type)}: create the table again with it as {sql_name(kind)}"


def _paired(
    kind: t.DataType, column: i.IcebergType, path: Path, lacking: Mapping[Path, t.DataType]
) -> Iterator[tuple[Path, t.DataType | None, i.IcebergType | None]]:
    """Yields the innermost pairs of a type of the result and one of the table. A required field that the result lacks
    comes without types.
    """
    if isinstance(kind, t.StructType) and isinstance(column, i.StructType):
        there = {field.name: field for field in column.fields}
        given = set(kind.fieldNames())
        if path and twins([*there, *given]) is not None:
            yield path, kind, column
        for field in kind.fields:
            at = (*path, field.name)
            if at not in lacking:
                yield from _paired(field.dataType, there[field.name].field_type, at, lacking)
        for name, own in there.items():
            if own.required and name not in given and not (not path and name in OWN):
                yield (*path, name), None, None
    elif isinstance(kind, t.ArrayType) and isinstance(column, i.ListType):
        yield from _paired(kind.elementType, column.element_type, (*path, "element"), lacking)
    elif isinstance(kind, t.MapType) and isinstance(column, i.MapType):
        yield from _paired(kind.keyType, column.key_type, (*path, "key"), lacking)
        yield from _paired(kind.valueType, column.value_type, (*path, "value"), lacking)
    else:
        yield path, kind, column


def _can_become(column: i.IcebergType, wider: i.PrimitiveType) -> bool:
    """Returns whether Iceberg can change a column to this type without rewriting its files."""
    if isinstance(column, i.DecimalType) and isinstance(wider, i.DecimalType):
        return column.scale == wider.scale and column.precision < wider.precision
    return (column, wider) in ((i.IntegerType(), i.LongType()), (i.FloatType(), i.DoubleType()))


def sql_name(kind: i.IcebergType) -> str:
    """Returns the name of an Iceberg type in Spark SQL. Of a nested type only its kind is named."""
    for base, name in ((i.StructType, "struct"), (i.ListType, "array"), (i.MapType, "map")):
        if isinstance(kind, base):
            return name
    return SQL_NAMES.get(str(kind), str(kind).replace(" ", ""))


def quoted_path(path: Path) -> str:
    """Returns the path of a column or field, quoted for a statement of Spark SQL."""
    return ".".join(map(quoted, path))


def new_schema(schema: t.StructType) -> Schema:
    """Returns the schema of a new table for these columns. Fencepost's own columns are the last, and are required."""
    ids = count(1)
    columns = [
        i.NestedField(next(ids), field.name, type_for(field.dataType, ids), required=False) for field in schema.fields
    ]
    own = [i.NestedField(next(ids), name, kind, required=True) for name, kind in OWN.items()]
    return Schema(*columns, *own)


def new_partition_spec(schema: Schema) -> PartitionSpec:
    """Returns the partition spec of a new table: the identity of interval and revision."""
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(name).field_id, PARTITION_FIELD_ID_START + number, IdentityTransform(), name
            )
            for number, name in enumerate(OWN)
        )
    )
