"""Decodes Avro records into columns, in executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_envelope import read_as
from fencepost.formats.avro_schema import parse
from fencepost.formats.declared import Declared
from fencepost.formats.framing import HEADER, Excluded, Framing, Malformed
from fencepost.formats.rows import Decoder


class AvroDecoder(Decoder):
    """Decodes values with a header. Records become their fields, as they are declared. If `declared` is None, a value is one
    column. The schemas are texts, because each executor parses its own.
    """

    def __init__(
        self, schema: pa.Schema, framing: Framing, reader: str, writers: Mapping[int, str], declared: Declared | None
    ) -> None:
        super().__init__(schema)
        self._framing, self._writers, self._whole = framing, writers, declared is None
        self._only = () if declared is None else declared.names
        self._reader, self._readers = read_as(parse(reader), declared), dict[bytes, AvroReader]()

    def decode(self, value: bytes) -> Sequence[Any]:
        reader = self._reader_of(value)
        try:
            found = reader.read(value, HEADER)
        except Malformed as malformed:
            raise Malformed(f"schema id {int.from_bytes(value[1:HEADER])}: {malformed}") from None
        return [found] if self._whole else found

    def read_usual(self, values: pa.Array) -> Iterator[tuple[np.ndarray, list[pa.Array], np.ndarray]]:
        for rows, reader in self._by_schema(values):
            yield rows, *self._many(reader, values.take(pa.array(rows)))

    def _many(self, reader: AvroReader, values: pa.Array) -> tuple[list[pa.Array], np.ndarray]:
        if self._whole:
            found, sound = reader.read_many(values, HEADER, self._schema.field(0).type)
            return [found], sound
        found, sound = reader.read_many(values, HEADER, pa.struct(list(self._schema)))
        return found.flatten(), sound

    def _by_schema(self, values: pa.Array) -> Iterator[tuple[np.ndarray, AvroReader]]:
        """Yields, for each known schema, the row numbers of the values that have it, and the schema's reader. Values
        with other headers are read one by one, because that gives the reasons.
        """
        heads = pc.binary_slice(values, 0, HEADER).dictionary_encode()
        numbers = pc.fill_null(heads.indices, -1).to_numpy()
        for number, head in enumerate(heads.dictionary.to_pylist()):
            try:
                reader = self._reader_of(head)
            except (Malformed, Excluded):
                continue
            yield np.flatnonzero(numbers == number), reader

    def _reader_of(self, value: bytes) -> AvroReader:
        head = value[:HEADER]
        if head not in self._readers:
            schema_id, _ = self._framing.split(value)
            self._readers[head] = AvroReader(parse(self._writers[schema_id]), self._reader, self._only)
        return self._readers[head]
