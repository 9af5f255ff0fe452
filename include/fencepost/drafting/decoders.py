"""Makes the decoder that a source's records are read with. It is the decoder of the write job, and needs no Spark session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from fencepost.config.source import Source, SourceColumn
from fencepost.drafting.types import arrow_of
from fencepost.formats import Declared
from fencepost.formats.format import enveloped
from fencepost.formats.json import json_decoder
from fencepost.formats.rows import Decoder


def arrow_schema(types: Mapping[str, str]) -> pa.Schema:
    """Returns the Arrow schema of columns with these Spark SQL types."""
    return pa.schema([(name, arrow_of(sql)) for name, sql in types.items()])


def decoder_of_json(source: Source, names: Sequence[str] | None = None) -> Decoder:
    """Returns the decoder of a source of JSON records. `names` are the columns to read, by default all that the source
    declares. With an envelope the columns of the envelope follow.
    """
    declared = source.declared.of(names)
    return json_decoder(enveloped_schema(arrow_schema(declared.types), declared), declared.required, declared)()


def enveloped_schema(columns: pa.Schema, declared: Declared) -> pa.Schema:
    """Returns the columns that a decoder gives: these, and with an envelope those of the envelope."""
    if declared.envelope is None:
        return columns
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return pa.schema([*columns, *to_arrow_schema(enveloped(StructType([])))])


def with_columns(source: Source, columns: Mapping[str, SourceColumn]) -> Source:
    """Returns the source with these columns."""
    return source.model_copy(update={"columns": dict(columns)})
