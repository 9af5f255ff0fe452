"""Decodes Avro records into rows, in executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fencepost.formats.avro_decoder import Reader
from fencepost.formats.avro_schema import parse
from fencepost.formats.framing import Framing, Malformed
from fencepost.formats.rows import Decoder


class AvroDecoder(Decoder):
    """Decodes framed values; of records, with `whole` false, the fields. Schemas are texts: executors make their own of them."""

    def __init__(
        self, schema: pa.Schema, framing: Framing, reader: str, writers: Mapping[int, str], *, whole: bool
    ) -> None:
        super().__init__(schema)
        self._framing, self._writers, self._whole = framing, writers, whole
        self._reader, self._readers = parse(reader), dict[int, Reader]()

    def decode(self, value: bytes) -> Sequence[Any]:
        schema_id, payload = self._framing.split(value)
        if schema_id not in self._readers:
            self._readers[schema_id] = Reader(parse(self._writers[schema_id]), self._reader)
        try:
            found = self._readers[schema_id].read(payload)
        except Malformed as malformed:
            raise Malformed(f"schema id {schema_id}: {malformed}") from None
        return [found] if self._whole else found
