"""Debezium's envelope, in every format: a change's operation, which of its two rows it has, and where it comes from.

Pure. `json_envelope.py` and `avro_envelope.py` read envelopes, in executors.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fencepost.formats.declared import Envelope
from fencepost.formats.epochs import FIRST, LAST
from fencepost.formats.framing import Excluded, ExcludedKind, Malformed

# The operations that have a row, and the words for them in the column `_op`.
OPERATIONS = {"c": "create", "r": "read", "u": "update", "d": "delete"}
DELETE = "delete"
TRUNCATE, MESSAGE = "t", "m"
COLUMNS = ("_op", "_source")  # that a transform gets beside the row's
# The fields of an envelope's `source` that are read, with their types in Avro. No connector has all of them.
SOURCE_FIELDS = {
    "ts_us": "long",
    "ts_ms": "long",
    "lsn": "long",
    "file": "string",
    "pos": "long",
    "change_lsn": "string",
    "scn": "string",
    "db": "string",
    "schema": "string",
    "table": "string",
    "snapshot": "string",
}
FLATTENED = "A flattened topic (ExtractNewRecordState) is read without source.envelope"
NO_OP = f"no op: the value is not a Debezium envelope. {FLATTENED}"
NO_BEFORE = (
    "before: null in a delete, so its row is not known. Set REPLICA IDENTITY FULL for the table, or DEFAULT if it has a "
    "primary key"
)
A_TEXT = "a text, which MongoDB's connector writes, and not an object with the row's fields"
UNAVAILABLE = (
    "the connector's placeholder for a value that the database's log does not have (TOAST). Set REPLICA IDENTITY FULL for "
    "the table"
)

SourceRow = tuple[int | None, int | None, str | None, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change that has a row. `word` is the operation, `side` the field of the envelope that has the row, and `source`
    the fields of `_source` in their order, or None if the envelope has none.
    """

    word: str
    side: str
    source: SourceRow | None


def change_of(record: Mapping[str, Any], envelope: Envelope) -> RowChange:
    """Returns what an envelope says about its change. The row itself is not looked at.

    Raises:
        Malformed: the record is no envelope.
        Excluded: the record has no row of the wanted table.
    """
    op, source = record.get("op"), record.get("source")
    if op is None:
        raise Malformed(NO_OP)
    if op == MESSAGE:
        raise Excluded(ExcludedKind.MESSAGES)
    if source is not None and not isinstance(source, dict):
        raise Malformed("source: not an object")
    row = None if source is None else source_of(source)
    if envelope.captured_table is not None:
        if row is None or row[4] is None:
            raise Malformed("source.table: missing, so whether the record is of source.table is not known")
        if row[4] != envelope.captured_table:
            raise Excluded(ExcludedKind.OTHER_TABLES)
    if op == TRUNCATE:
        raise Excluded(ExcludedKind.TRUNCATIONS)
    word = OPERATIONS.get(op) if type(op) is str else None
    if word is None:
        raise Malformed(f"op: none of {', '.join((*OPERATIONS, TRUNCATE, MESSAGE))}")
    return RowChange(word, "before" if word == DELETE else "after", row)


def no_row(change: RowChange) -> Malformed:
    """Returns the error of a change whose row is null or missing."""
    return Malformed(NO_BEFORE if change.word == DELETE else f"after: null or missing, and op says {change.word}")


def source_of(source: Mapping[str, Any]) -> SourceRow:
    """Returns the fields of `_source` in their order. `ts` is in microseconds.

    Raises:
        Malformed: a field of `source` has another type than all connectors write.
    """
    micros = _whole(source, "ts_us")
    if micros is None:
        millis = _whole(source, "ts_ms")
        micros = None if millis is None else millis * 1000
    if micros is not None and not FIRST <= micros <= LAST:
        raise Malformed("source.ts_ms: not within the years 1 to 9999")
    snapshot = source.get("snapshot")
    if type(snapshot) is bool:
        snapshot = "true" if snapshot else "false"
    elif snapshot is not None and type(snapshot) is not str:
        raise Malformed("source.snapshot: not a text")
    db, table = _text(source, "db"), _text(source, "table")
    above = _text(source, "schema") or db
    if table is not None and above:
        table = f"{above}.{table}"
    return micros, _whole(source, "lsn"), _position(source), db, table, snapshot


def _position(source: Mapping[str, Any]) -> str | None:
    """Returns the position in the log of a database whose positions are not one number."""
    file = _text(source, "file")
    if file is None:
        return _text(source, "change_lsn") or _text(source, "scn")
    pos = _whole(source, "pos")
    return file if pos is None else f"{file}:{pos}"


def _whole(source: Mapping[str, Any], name: str) -> int | None:
    value = source.get(name)
    if value is None:
        return None
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    raise Malformed(f"source.{name}: not an integer of 64 bits")


def _text(source: Mapping[str, Any], name: str) -> str | None:
    value = source.get(name)
    if value is None or type(value) is str:
        return value
    raise Malformed(f"source.{name}: not a text")


# What stands for a value that the database's log does not have. The connector writes it in the form of the column's type:
# as a text, as bytes (Base64 or hex in JSON), as an array or map of it, or as an array with one item for each byte of it.
PLACEHOLDER = "__debezium_unavailable_value"
CODES = PLACEHOLDER.encode()
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"  # the version 3 UUID of the placeholder
BASE64 = binascii.b2a_base64(CODES, newline=False).decode()
TEXTS = (PLACEHOLDER, BASE64, CODES.hex(), f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}')
ITEMS = frozenset((*TEXTS, UUID, CODES))
NOT_TEXTS = (list, dict, bytes)  # types of other values that may be the placeholder


def unavailable(values: Sequence[Any]) -> list[int]:
    """Returns the positions of the values that are the placeholder. The values are one column's."""
    kinds = set(map(type, values))
    if not any(issubclass(kind, NOT_TEXTS) for kind in kinds) and not (
        str in kinds and any(text in values for text in TEXTS)
    ):
        return []
    return [number for number, value in enumerate(values) if is_unavailable(value)]


def is_unavailable(value: Any) -> bool:
    """Returns whether a value is the placeholder, in the form of any type."""
    if isinstance(value, str | bytes):
        return value in ITEMS and value != UUID
    if isinstance(value, dict):
        return value == {PLACEHOLDER: PLACEHOLDER}
    if not isinstance(value, list):
        return False
    if len(value) == 1:
        (item,) = value
        return (isinstance(item, str | bytes) and item in ITEMS) or item == (PLACEHOLDER, PLACEHOLDER)
    return len(value) == len(CODES) and all(map(_is_byte, value, CODES))


def _is_byte(item: Any, code: int) -> bool:
    """Returns whether an array's item is a byte of the placeholder, in the form of the item's type. A boolean says only
    that the byte is not 0.
    """
    if isinstance(item, dict):
        item = item.get("value")
    if isinstance(item, str):
        return item == binascii.b2a_base64(bytes((code,)), newline=False).decode()
    if isinstance(item, Decimal):
        return not item.is_signed() and int("".join(map(str, item.as_tuple().digits))) == code
    if item is True:
        return True
    try:
        return float(item) in (code, 1000 * code)  # of milliseconds, which are microseconds here
    except (TypeError, ValueError, OverflowError):
        return False
