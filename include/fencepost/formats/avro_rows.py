"""Decodes Avro records into rows, in executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fencepost.formats.avro_decoder import Reader
from fencepost.formats.avro_schema import parse
from fencepost.formats.format import HEADER
from fencepost.formats.framing import Framing, Malformed
from fencepost.formats.rows import Decoder


class AvroDecoder(Decoder):
    """Decodes framed values; of records, with `whole` false, the fields. Schemas are texts: executors make their own of them."""

    def __init__(
        self, schema: pa.Schema, framing: Framing, reader: str, writers: Mapping[int, str], *, whole: bool
    ) -> None:
        super().__init__(schema)
        self._framing, self._writers, self._whole = framing, writers, whole
        self._reader, self._readers = parse(reader), dict[bytes, Reader]()

    def decode(self, value: bytes) -> Sequence[Any]:
        reader = self._readers.get(value[:HEADER]) or self._made(value)
        try:
            found = reader.read(value, HEADER)
        except Malformed as malformed:
            raise Malformed(f"schema id {int.from_bytes(value[1:HEADER])}: {malformed}") from None
        return [found] if self._whole else found

    def _made(self, value: bytes) -> Reader:
        schema_id, _ = self._framing.split(value)
        made = self._readers[value[:HEADER]] = Reader(parse(self._writers[schema_id]), self._reader)
        return made
