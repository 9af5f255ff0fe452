"""Decodes Debezium's envelopes in JSON, with and without `{"schema": …, "payload": …}` around them.

Without a schema the record is the envelope. With one, the parser would spend most of its time on the same long schema
again and again. So the text up to the payload is compared with that of earlier records, and only the payload is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.formats.connect_json import Problems
from fencepost.formats.declared import Envelope, FieldOf
from fencepost.formats.envelope import A_TEXT, COLUMNS, DELETE, UNAVAILABLE, SourceRow, change_of, no_row, unavailable
from fencepost.formats.framing import Excluded, Framing, Malformed
from fencepost.formats.json_decoder import (
    NO_FIELDS,
    NO_NAME,
    NOTHING,
    JsonDecoder,
    Piece,
    strict,
)
from fencepost.formats.rows import Reason, without_tombstones

AROUND = 2  # levels around a row: the object with the payload, and the envelope
SCHEMA_LEVELS = 8  # levels of a record down to the parameters of a column's schema
MOST_SCHEMAS = 20  # texts that are remembered: a topic may have several tables
BEGIN = re.compile(rb'\{"schema": ?').match
MIDDLE = re.compile(rb', ?"payload": ?').finditer
MOST_MIDDLES = 3  # a schema's text may have such a place too


class DeletedRow(dict[str, Any]):
    """The row of a deletion."""


class JsonEnvelopeDecoder(JsonDecoder):
    """Decodes envelopes into the columns of one schema, whose last columns are `_op` and `_source`. The others are those of
    a `JsonDecoder` for rows.
    """

    def __init__(
        self,
        schema: pa.Schema,
        required: Collection[str] = (),
        framing: Framing | None = None,
        fields: Mapping[str, FieldOf] = NO_FIELDS,
        envelope: Envelope = Envelope(),  # noqa: B008 (it is frozen)
    ) -> None:
        own = pa.schema(list(schema)[: -len(COLUMNS)])
        super().__init__(own, required, framing, fields)
        self._schema, self._envelope = schema, envelope
        self._levels = max(self._levels + AROUND, SCHEMA_LEVELS)
        self._problems = Problems(own, fields)
        self._schemas = KnownSchemas(self._problems)

    def read_usual(self, values: pa.Array) -> Iterator[tuple[np.ndarray, list[pa.Array], np.ndarray]]:
        yield from ()  # an envelope is not flat

    def decode_values(self, values: Collection[bytes | None]) -> tuple[list[pa.Array], list[Reason]]:
        columns, why = super().decode_values(values)
        return columns, without_tombstones(values, why)

    def _records(self, piece: Piece) -> list[dict[str, Any]]:
        """Returns the parsed records, or only their payloads.

        1. Cut the text around each payload whose schema is known, and parse.
        2. Parse those records as a whole whose payload alone is no envelope: something follows the payload, or the record is
           malformed.
        """
        wholes = piece.texts
        cut = {
            row: payload
            for row, text in enumerate(wholes)
            if text is not None and (payload := self._schemas.cut(text)) is not None
        }
        if not cut:
            return piece.records(self._parse)
        piece.texts = [cut.get(row, text) for row, text in enumerate(wholes)]  # 1
        records = piece.records(self._parse)
        again = [row for row in cut if "op" not in records[row]]
        if again:  # 2
            some = Piece([wholes[row] for row in again])
            texts = list(piece.texts)
            for row, record in zip(again, some.records(self._parse), strict=True):
                texts[row], records[row] = wholes[row], record
                piece.why.pop(row, None)
                piece.incomplete.pop(row, None)
            piece.texts = texts
            piece.why |= {again[at]: reason for at, reason in some.why.items()}
            piece.incomplete |= {again[at]: None for at in some.incomplete}
        return records

    def _columns(self, records: Sequence[dict[str, Any]], piece: Piece) -> list[pa.Array]:
        words, rows, sources = list[str | None](), list[dict[str, Any]](), list[SourceRow | None]()
        for number, record in enumerate(records):
            word, row, source = None, NOTHING, None
            if record is not NOTHING:
                try:
                    word, row, source = self._change(record)
                except Malformed as malformed:
                    piece.why.setdefault(number, str(malformed))
                except Excluded as excluded:
                    piece.why.setdefault(number, excluded.kind)
            words.append(word)
            rows.append(row)
            sources.append(source)
        return [*super()._columns(rows, piece), pa.array(words, pa.string()), self._source_column(sources)]

    def _change(self, record: dict[str, Any]) -> tuple[str, dict[str, Any], SourceRow | None]:
        """Returns the operation, the row and the fields of `_source`.

        Raises:
            Malformed, Excluded: the record has no row that is read.
        """
        payload = enveloped_in(record)
        change = change_of(payload, self._envelope)
        schema = None if payload is record else record.get("schema")
        if schema is not None and (problem := self._problems.of(schema)) is not None:
            raise Malformed(problem)
        row = payload.get(change.side)
        if row is None:
            raise no_row(change)
        if not isinstance(row, dict):
            raise not_an_object(change.side, row)
        return change.word, DeletedRow(row) if change.word == DELETE else row, change.source

    def _source_column(self, sources: Sequence[SourceRow | None]) -> pa.Array:
        kind = self._schema.field("_source").type
        columns = list(zip(*(row or (None,) * kind.num_fields for row in sources), strict=True))
        arrays = [pa.array(columns[n] if columns else [], kind.field(n).type) for n in range(kind.num_fields)]
        missing = pa.array([row is None for row in sources], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=missing)

    def _check(self, name: str, values: list[Any], records: Sequence[dict[str, Any]], piece: Piece) -> None:
        for row in unavailable(values):
            piece.why.setdefault(row, f"{name or NO_NAME}: {UNAVAILABLE}")
            values[row] = None

    def _requires(self, name: str, record: dict[str, Any]) -> bool:
        """Returns whether the row has the field whatever the table's REPLICA IDENTITY."""
        return not isinstance(record, DeletedRow) or name in self._envelope.key


def enveloped_in(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the envelope in a record, which may have a schema beside it."""
    payload = record.get("payload")
    return payload if "op" not in record and isinstance(payload, dict) else record


def not_an_object(side: str, row: Any) -> Malformed:
    """Returns the error of a row that is not an object."""
    return Malformed(f"{side}: {A_TEXT if isinstance(row, str) else 'not an object'}")


class KnownSchemas:
    """Finds the payload in `{"schema":…,"payload":…}` where the bytes up to the payload are known. What is left is the
    payload, if it is one JSON value. Only schemas without a problem are cut off.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._known: dict[
            bytes, bool
        ] = {}  # the text up to the payload, and whether to cut it; the last used is the last
        self._last = b""

    def cut(self, text: bytes) -> bytes | None:
        """Returns the payload's text, or None if the record has to be parsed as a whole."""
        if self._last and text.startswith(self._last):
            before: bytes | None = self._last
        else:
            before = next(filter(text.startswith, self._known), None) or self._learn(text)
            if before is None:
                return None
            self._last = before
            self._known[before] = self._known.pop(before)
        if not self._known[self._last] or not text.endswith(b"}"):
            return None
        return text[len(self._last) : -1]

    def _learn(self, text: bytes) -> bytes | None:
        """Returns the text up to the payload, if it is a whole schema. The text is known from now on."""
        if (begin := BEGIN(text)) is None:
            return None
        for middle in islice(MIDDLE(text, begin.end()), MOST_MIDDLES):
            try:
                schema = strict(text[begin.end() : middle.start()])
            except ValueError:
                continue
            before = text[: middle.end()]
            self._known[before] = self._problems.of(schema) is None
            if len(self._known) > MOST_SCHEMAS:
                del self._known[next(iter(self._known))]
            return before
        return None
