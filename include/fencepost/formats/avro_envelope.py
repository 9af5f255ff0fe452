"""Debezium's envelopes in Avro: the schema that they are read with. `avro_envelope_rows.py` decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from fencepost.formats.avro_declared import as_declared
from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_schema import AvroField, AvroType, Incompatible
from fencepost.formats.declared import Declared
from fencepost.formats.envelope import FLATTENED, SOURCE_FIELDS
from fencepost.formats.format import BadSchema

BEFORE, AFTER, SOURCE, OP = "before", "after", "source", "op"
NULL = AvroType("null")


def envelope_of(schema: AvroType) -> AvroType:
    """Returns the schema that envelopes of a schema are read with: only the fields that are read, and all but `op` with a
    default, since no two connectors write the same.

    Raises:
        BadSchema: it is no schema of an envelope.
    """
    fields = {one.name: one for one in schema.fields}
    if missing := [name for name in (OP, AFTER) if name not in fields]:
        raise BadSchema(f"it is not a Debezium envelope: it has no field {missing[0]}. {FLATTENED}")
    row = record_in(fields[AFTER].type)
    if row is None:
        raise BadSchema(
            f"after: of type {fields[AFTER].type.describe()}, and only a record has columns. MongoDB's connector writes "
            "rows as texts, which source.envelope does not read"
        )
    sides = [_optional(name, row) for name in (BEFORE, AFTER)]
    return replace(schema, fields=(*sides, *_origin_of(schema)))


def origin_of(schema: AvroType) -> AvroType:
    """Returns the schema that any envelope is read with for its operation and its table only."""
    return replace(schema, fields=tuple(_origin_of(schema)))


def names_table(schema: AvroType) -> bool:
    """Returns whether the records of a schema are envelopes that say of which table they are."""
    fields = {one.name: one.type for one in _origin_of(schema)} if schema.kind == "record" else {}
    source = record_in(fields[SOURCE]) if SOURCE in fields else None
    written = {one.name for one in schema.fields}
    return source is not None and OP in written and "table" in {one.name for one in source.fields}


def source_fields(envelope: AvroType) -> tuple[str, ...] | None:
    """Returns the names of the fields of `source` that are read, or None if an envelope has no `source`."""
    source = next((record_in(one.type) for one in envelope.fields if one.name == SOURCE), None)
    return None if source is None else tuple(one.name for one in source.fields)


def _origin_of(schema: AvroType) -> list[AvroField]:
    fields, found = {one.name: one for one in schema.fields}, list[AvroField]()
    if SOURCE in fields and (source := record_in(fields[SOURCE].type)) is not None:
        written = {one.name: one for one in source.fields}
        read = [
            _optional(name, AvroType(kind)) for name, kind in SOURCE_FIELDS.items() if _is_read(written, name, kind)
        ]
        found.append(_optional(SOURCE, replace(source, fields=tuple(read))))
    return [*found, AvroField(OP, AvroType("string"))]


def row_of(envelope: AvroType) -> AvroType:
    """Returns the record that is the row in the result of `envelope_of`."""
    row = next(record_in(one.type) for one in envelope.fields if one.name == AFTER)
    assert row is not None, "`envelope_of` refuses others"
    return row


def read_as(reader: AvroType, declared: Declared | None) -> AvroType:
    """Returns a frozen reader's schema with what the settings declare about the row's fields. Without declarations a value
    is read as a whole.
    """
    if declared is None:
        return reader
    if declared.envelope is None:
        return as_declared(reader, declared)
    row = as_declared(row_of(reader), declared)
    fields = (_optional(one.name, row) if one.name in (BEFORE, AFTER) else one for one in reader.fields)
    return replace(reader, fields=tuple(fields))


def record_in(kind: AvroType) -> AvroType | None:
    """Returns the record in a type that is a record, or null or a record."""
    records = [one for one in kind.others if one.kind == "record"]
    return records[0] if len(records) == len(kind.others) == 1 else None


def _optional(name: str, kind: AvroType) -> AvroField:
    return AvroField(name, AvroType("union", branches=(NULL, kind)), default=None)


def _is_read(written: Mapping[str, AvroField], name: str, kind: str) -> bool:
    with suppress(Incompatible):
        if name in written:
            AvroReader(written[name].type, _optional(name, AvroType(kind)).type)
            return True
    return False
