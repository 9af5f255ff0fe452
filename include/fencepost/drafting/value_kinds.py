"""Counts what a sample's values are: JSON objects, values with a schema registry's header of five bytes, or others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.formats.framing import Malformed, schema_id_of
from fencepost.formats.json_decoder import parsed_record

# Beginnings of other values, and a name for each, for a person.
KNOWN = (
    (b"Obj\x01", "files of Avro, each with its own schema"),
    (b"\x03\x00", "frames of AWS Glue's schema registry"),
    (b"\x03\x05", "frames of AWS Glue's schema registry, compressed"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PAR1", "Parquet"),
    (b"[", "JSON arrays; a record has to be an object"),
)


@dataclass(frozen=True)
class ValueKinds:
    """Counts of a sample's values: how many are JSON objects, how many have each schema id, and what the others are."""

    values: int
    objects: int
    ids: Counter[int]
    others: Counter[str]

    @property
    def framed(self) -> int:
        """Returns the number of values that begin with a registry's header."""
        return sum(self.ids.values())


def value_kinds(values: Sequence[bytes | None]) -> ValueKinds:
    """Returns the kinds of these values. Nulls are left out."""
    known = [value for value in values if value is not None]
    objects, ids, others = 0, Counter[int](), Counter[str]()
    for value in known:
        if (schema_id := schema_id_of(value)) is not None:
            ids[schema_id] += 1
        elif is_object(value):
            objects += 1
        else:
            others[_named(value)] += 1
    return ValueKinds(len(known), objects, ids, others)


def is_object(value: bytes) -> bool:
    """Returns whether a value is a JSON object."""
    try:
        parsed_record(value)
    except Malformed:
        return False
    return True


def _named(value: bytes) -> str:
    """Returns the name of the format that a value seems to have. The name has nothing of the value's content."""
    for begin, name in KNOWN:
        if value.startswith(begin):
            return name
    if not value:
        return "empty"
    text = value.lstrip(b" \t\r\n")
    if text.startswith(b"{"):
        return "broken JSON"
    try:
        value.decode()
    except UnicodeDecodeError:
        return "binary"
    return "text that is not a JSON object"
