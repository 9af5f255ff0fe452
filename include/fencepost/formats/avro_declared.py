"""What a pipeline's settings declare about the fields of an Avro source: columns of other names, and how values are read."""

from __future__ import annotations

import re
from dataclasses import replace

from fencepost.formats.avro_connect import is_variable_decimal, takes_options
from fencepost.formats.avro_schema import MISSING, AvroField, AvroType, Incompatible, parts
from fencepost.formats.avro_values import default_of
from fencepost.formats.declared import PLAIN, Declared, FieldOf
from fencepost.formats.format import BadSchema

DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)


def check_settings(declared: Declared) -> None:
    """Checks that the settings leave to the registry's schema what it says itself.

    Raises:
        ValueError: names the column and the setting.
    """
    for column, kind in declared.types.items():
        if not DECIMAL.fullmatch(kind.strip()):
            raise ValueError(
                f"column {column!r}: with format avro its type comes from the schema registry. Leave out type. Only a field of "
                "io.debezium.data.VariableScaleDecimal takes one, a decimal(precision, scale)"
            )
    for column in declared.required:
        raise ValueError(
            f"column {column!r}: with format avro the schema registry says what may be null. Leave out not null"
        )
    for column, field in declared.fields.items():
        if field.encoding is not None and field.encoding.name != PLAIN:
            raise ValueError(
                f"column {column!r}: with format avro the schema registry says how values are encoded. Leave out from"
            )


def columns_of(reader: AvroType, declared: Declared) -> list[str]:
    """Returns the names of a reader's columns, in the order of its fields."""
    names = {field: column for column, field in _fields(declared).items()}
    return [names.get(one.name, one.name) for one in reader.fields]


def as_declared(reader: AvroType, declared: Declared) -> AvroType:
    """Returns a reader's record with each declared field as its column is read.

    Raises:
        BadSchema: a column has no field, or the field's values cannot be read so.
    """
    columns, known = dict[str, str](), [one.name for one in reader.fields]
    for column, name in _fields(declared).items():
        if name not in known:
            raise BadSchema(f"column {column!r} of source.schema: the schema has no field {name!r}")
        if name in columns:
            raise BadSchema(
                f"columns {columns[name]!r} and {column!r} of source.schema are both of the field {name!r}. Declare one, and "
                "select it twice in the transform"
            )
        columns[name] = column
    fields = (_as_declared(one, columns[one.name], declared) if one.name in columns else one for one in reader.fields)
    return replace(reader, fields=tuple(fields))


def _fields(declared: Declared) -> dict[str, str]:
    """Returns the fields of the columns that the settings declare."""
    names = {**dict.fromkeys(declared.types), **dict.fromkeys(declared.fields)}
    return {column: declared.fields.get(column, FieldOf(column)).name for column in names}


def _as_declared(one: AvroField, column: str, declared: Declared) -> AvroField:
    kind, field = one.type, declared.fields.get(column)
    if column in declared.types:
        kind = _as_decimal(kind, declared.types[column], column)
    if field is not None and field.encoding is not None:
        truncates, infinity_is_null = field.encoding.truncates, field.encoding.infinity_is_null
        finer, infinite = _options(kind)
        for setting, is_set, has_values in (
            ("digits: truncate", truncates, finer),
            ("infinity: null", infinity_is_null, infinite),
        ):
            if is_set and not has_values:
                raise BadSchema(
                    f"column {column!r} of source.schema: {setting} means nothing for {kind.describe()}. Leave it out"
                )
        kind = _with_options(kind, truncates=truncates, infinity_is_null=infinity_is_null)
    if one.default is not MISSING:
        try:
            default_of(one.default, kind, one.name)
        except Incompatible as error:
            raise BadSchema(f"column {column!r} of source.schema: {error}") from None
    return replace(one, type=kind)


def _as_decimal(kind: AvroType, wanted: str, column: str) -> AvroType:
    """Returns the type as a decimal of the wanted precision and scale."""
    if kind.kind == "union" and len(kind.others) == 1:
        return replace(
            kind, branches=tuple(b if b.kind == "null" else _as_decimal(b, wanted, column) for b in kind.branches)
        )
    found = DECIMAL.fullmatch(wanted.strip())
    assert found is not None, "`check_settings` refuses others"
    if not is_variable_decimal(kind):
        raise BadSchema(
            f"column {column!r} of source.schema: its type is {kind.describe()}, by the registry. Leave out type: {wanted}"
        )
    return replace(kind, logical="decimal", precision=int(found[1]), scale=int(found[2] or 0))


def _options(kind: AvroType) -> tuple[bool, bool]:
    """Returns what `takes_options` says of a type or of one within it."""
    found = [takes_options(kind), *(_options(part) for _, part in parts(kind))]
    return any(finer for finer, _ in found), any(infinite for _, infinite in found)


def _with_options(kind: AvroType, *, truncates: bool, infinity_is_null: bool) -> AvroType:
    """Returns the type with these options, for all values within it that may need them."""

    def inner(part: AvroType) -> AvroType:
        return _with_options(part, truncates=truncates, infinity_is_null=infinity_is_null)

    return replace(
        kind,
        truncates=truncates,
        infinity_is_null=infinity_is_null,
        fields=tuple(replace(one, type=inner(one.type)) for one in kind.fields),
        items=None if kind.items is None else inner(kind.items),
        branches=tuple(map(inner, kind.branches)),
    )
