"""Reads Avro records by themselves and in columns, and compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from fencepost.formats.avro import to_spark
from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_schema import AvroType
from fencepost.formats.framing import Malformed


def check_column(reader: AvroReader, kind: pa.DataType, records: Sequence[bytes]) -> np.ndarray:
    """Of many records at once, each is left or what it is when it is read by itself. Those that are not left."""
    column, sound = reader.read_many(pa.array([b"head" + one for one in records], pa.binary()), 4, kind)
    assert len(column) == len(sound) == len(records)
    for number in np.flatnonzero(sound).tolist():
        try:
            wanted, found = pa.array([reader.read(records[number])], kind), column.slice(number, 1)
        except Malformed as malformed:
            raise AssertionError(f"{records[number]!r} is malformed") from malformed
        assert found.equals(wanted) or repr(found.to_pylist()) == repr(wanted.to_pylist()), records[number]
    return sound


class BothWays(AvroReader):
    """Reads a record by itself, and checks that it is so in a column."""

    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        super().__init__(writer, reader)
        self.one_way, self.kind = AvroReader(writer, reader), to_arrow_type(to_spark(reader))

    def read(self, data: bytes, begin: int = 0) -> Any:
        check_column(self.one_way, self.kind, [data, data + b"\0", data[:-1], b"", data])
        return super().read(data)


def varint(number: int) -> bytes:
    """Without a bound, as fastavro writes it."""
    number, out = (number << 1) ^ (number >> max(number.bit_length(), 1)), bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
