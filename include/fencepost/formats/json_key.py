"""Reads keys that are JSON objects, with and without `{"schema": …, "payload": …}` around them, as Kafka Connect's
JsonConverter writes them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fencepost.formats.declared import Declared
from fencepost.formats.format import decoded_first, malformed_key
from fencepost.formats.framing import AnyId
from fencepost.formats.json import fields_of
from fencepost.formats.quoting import column_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class JsonKey:
    """Implements `ReadKeyFormat`. With `framed` a header is in front of the object. Its schema id may be any, because the
    declared types count.
    """

    def __init__(self, *, framed: bool) -> None:
        self._framed = framed

    def read_key(self, frame: DataFrame, raw: str, into: str, declared: Declared) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructField, StructType

        from fencepost.formats.json_key_decoder import JsonKeyDecoder

        types = fields_of(declared.types)
        framing = AnyId(frozenset()) if self._framed else None
        make = partial(JsonKeyDecoder, to_arrow_schema(types), declared.required, framing, declared.fields)
        columns = StructType([StructField(f"{into}_{f.name}", f.dataType) for f in types.fields])
        others = [column_named(name) for name in frame.columns if name != raw]
        found = decoded_first(frame.select(column_named(raw), *others), columns, make, keep=raw)
        wanted = [column_named(name) for name in (*frame.columns, *columns.fieldNames())]
        return found.select(*wanted, column_named("_malformed").alias(malformed_key(into)))
