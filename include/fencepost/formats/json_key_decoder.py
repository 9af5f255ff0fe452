"""Decodes JSON keys, in executors.

Kafka Connect's JsonConverter writes `{"schema": …, "payload": …}` if `schemas.enable` is set, which is its default. Such
an object around a key is taken off, unless the key itself is declared to have a field of one of these names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fencepost.formats.connect_json import Problems
from fencepost.formats.declared import FieldOf
from fencepost.formats.framing import Framing
from fencepost.formats.json_decoder import NO_FIELDS, NOTHING, JsonDecoder, Piece

SCHEMA, PAYLOAD = "schema", "payload"
AROUND = {SCHEMA, PAYLOAD}


class JsonKeyDecoder(JsonDecoder):
    """Decodes keys into columns. The arguments are those of a `JsonDecoder`."""

    def __init__(
        self,
        schema: pa.Schema,
        required: Collection[str] = (),
        framing: Framing | None = None,
        fields: Mapping[str, FieldOf] = NO_FIELDS,
    ) -> None:
        super().__init__(schema, required, framing, fields)
        self._may_be_around = AROUND.isdisjoint(name for name, *_ in self._fields)
        self._levels += self._may_be_around
        self._required = next((name for name, _, is_required in self._fields if is_required), None)
        self._problems = Problems(schema, fields, "source.key")

    def _columns(self, records: Sequence[dict[str, Any]], piece: Piece) -> list[pa.Array]:
        if self._may_be_around:
            records = [self._payload(row, record, piece) for row, record in enumerate(records)]
        return super()._columns(records, piece)

    def _payload(self, row: int, record: dict[str, Any], piece: Piece) -> dict[str, Any]:
        """Returns the object in a key. `NOTHING` replaces a payload that is null or malformed."""
        if not is_around(record):
            return record
        payload, schema = record[PAYLOAD], record[SCHEMA]
        if isinstance(payload, dict):
            problem = self._problems.of_struct(schema)
        elif payload is None:
            problem = None if self._required is None else null_key(self._required)
        else:
            problem = "payload: not an object"
        if problem is not None:
            piece.why[row] = problem
        return payload if problem is None and payload is not None else NOTHING


def is_around(record: Mapping[str, Any]) -> bool:
    """Returns whether an object has a schema and a payload, and nothing else."""
    return record.keys() == AROUND and (
        isinstance(record[SCHEMA], dict) or (record[SCHEMA] is None and isinstance(record[PAYLOAD], dict))
    )


def null_key(field: str) -> str:
    """Returns why a null key is malformed if this field of it must not be null."""
    return f"null, and {field} is declared not null"
