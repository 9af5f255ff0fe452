"""Decodes Debezium's envelopes in Avro into columns, in executors. A record is read with one of its two rows only, so what
is in the other row does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_envelope import AFTER, BEFORE, OP, SOURCE, source_fields
from fencepost.formats.avro_rows import AvroDecoder
from fencepost.formats.avro_schema import AvroType, Incompatible, parse
from fencepost.formats.declared import Declared
from fencepost.formats.envelope import (
    CODES,
    COLUMNS,
    DELETE,
    OPERATIONS,
    SOURCE_FIELDS,
    TEXTS,
    UNAVAILABLE,
    RowChange,
    SourceRow,
    change_of,
    is_unavailable,
    no_row,
    unavailable,
)
from fencepost.formats.framing import HEADER, Excluded, Framing, Malformed
from fencepost.formats.rows import Reason, without_tombstones

ARROW = {"long": pa.int64(), "string": pa.string()}


class OtherSchema(Malformed):
    """A value's schema is that of another table, or of none."""


class AvroEnvelopeDecoder(AvroDecoder):
    """Decodes envelopes into the columns of one schema, whose last columns are `_op` and `_source`. `reader` is the text of
    an `envelope_of`.
    """

    def __init__(
        self, schema: pa.Schema, framing: Framing, reader: str, writers: Mapping[int, str], declared: Declared | None
    ) -> None:
        super().__init__(schema, framing, reader, writers, declared)
        assert declared is not None
        assert declared.envelope is not None
        self._envelope, whole = declared.envelope, self._reader
        self._reader, self._with_before = (_without(whole, name) for name in (BEFORE, AFTER))
        self._origin = _without(self._reader, AFTER)
        self._deletions, self._others = dict[bytes, AvroReader](), dict[bytes, tuple[AvroReader, str]]()
        names = source_fields(whole)
        source = [] if names is None else [(SOURCE, pa.struct([(name, ARROW[SOURCE_FIELDS[name]]) for name in names]))]
        self._source_names = names or ()
        self._kind = pa.struct([(AFTER, pa.struct(list(schema)[: -len(COLUMNS)])), *source, (OP, pa.string())])

    def decode(self, value: bytes) -> Sequence[Any]:
        reader = None
        with suppress(OtherSchema):
            reader = self._reader_of(value)
        try:
            return self._of_other(value) if reader is None else self._row(value, reader)
        except Malformed as malformed:
            raise Malformed(f"schema id {int.from_bytes(value[1:HEADER])}: {malformed}") from None

    def decode_values(self, values: Collection[bytes | None]) -> tuple[list[pa.Array], list[Reason]]:
        columns, why = super().decode_values(values)
        return columns, without_tombstones(values, why)

    def _of_other(self, value: bytes) -> Never:
        """Reads a record whose schema the reader's cannot read.

        Raises:
            Excluded: the record is of another table.
            Malformed: it is not, or does not say.
        """
        reader, why = self._others[value[:HEADER]]
        self._change(reader.read(value, HEADER))
        raise Malformed(why)

    def _row(self, value: bytes, reader: AvroReader) -> Sequence[Any]:
        row, *origin = reader.read(value, HEADER)
        change = self._change(origin)
        if change.word == DELETE:
            row, *_ = self._deletions[value[:HEADER]].read(value, HEADER)
        if row is None:
            raise no_row(change)
        if lost := unavailable(row):
            raise Malformed(f"{self._schema.names[lost[0]]}: {UNAVAILABLE}")
        return [*row, change.word, change.source]

    def _change(self, origin: Sequence[Any]) -> RowChange:
        """Returns the change of an envelope. `origin` are its fields `source`, if it has that, and `op`."""
        *source, op = origin
        named = [None if one is None else dict(zip(self._source_names, one, strict=True)) for one in source]
        return change_of({OP: op, SOURCE: named[0] if named else None}, self._envelope)

    def _reader_of(self, value: bytes) -> AvroReader:
        """Returns the reader of a value that has its row in `after`.

        Raises:
            Malformed: the value has no known schema.
            OtherSchema: the value's schema is that of another table.
        """
        head = value[:HEADER]
        if head not in self._readers and head not in self._others:
            schema_id, _ = self._framing.split(value)
            writer = parse(self._writers[schema_id])
            try:
                self._deletions[head] = AvroReader(writer, self._with_before)
                self._readers[head] = AvroReader(writer, self._reader)
            except Incompatible as error:
                self._others[head] = (AvroReader(writer, replace(self._origin, name=writer.name)), str(error))
        if head in self._others:
            raise OtherSchema
        return self._readers[head]

    def _many(self, reader: AvroReader, values: pa.Array) -> tuple[list[pa.Array], np.ndarray]:
        """Returns the columns of the changes that have their row in `after`. Deletions and all else that is not usual are
        read one by one.
        """
        found, sound = reader.read_many(values, HEADER, self._kind)
        row, *source, op = found.flatten()
        number = pc.index_in(op, pa.array([one for one, word in OPERATIONS.items() if word != DELETE]))
        sound = sound & _true(number.is_valid()) & _true(row.is_valid())
        columns = row.flatten()
        for column in columns:
            sound &= ~_placeholders(column)
        words = pa.array(word for word in OPERATIONS.values() if word != DELETE).take(number)
        return [*columns, words, self._sources(op, source, sound)], sound

    def _sources(self, op: pa.Array, source: Sequence[pa.Array], sound: np.ndarray) -> pa.Array:
        """Returns the column `_source` of the records that are sound, and marks those as unsound that are not read."""
        found = list[SourceRow | None]([None] * len(op))
        ops, sources = op.to_pylist(), source[0].to_pylist() if source else [None] * len(op)
        for row in np.flatnonzero(sound).tolist():
            try:
                found[row] = change_of({OP: ops[row], SOURCE: sources[row]}, self._envelope).source
            except (Malformed, Excluded):
                sound[row] = False
        return pa.array(found, self._schema.field("_source").type)


def _without(envelope: AvroType, name: str) -> AvroType:
    return replace(envelope, fields=tuple(one for one in envelope.fields if one.name != name))


def _true(mask: pa.Array) -> np.ndarray:
    found: np.ndarray = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return found


def _placeholders(column: pa.Array) -> np.ndarray:
    """Returns which values of a column are the placeholder."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts = [text if pa.types.is_string(kind) else text.encode() for text in TEXTS]
        return _true(pc.is_in(column, pa.array(texts, kind)))
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy() if pa.types.is_list(kind) else _sizes(column)
        some = np.flatnonzero((sizes == 1) | (sizes == len(CODES)))
        values = column.take(pa.array(some))
        if pa.types.is_list(kind) and pa.types.is_temporal(kind.value_type):  # as the numbers that were written
            number = pa.int32() if pa.types.is_date32(kind.value_type) else pa.int64()
            values = values.cast(pa.list_(number))
        found[some] = [is_unavailable(value) for value in values.to_pylist()]
    return found


def _sizes(column: pa.Array) -> np.ndarray:
    return np.diff(column.offsets.to_numpy())
