"""The header of a record whose schema is in a registry, and the error of a malformed record. Executors use this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.counts import count_of

HEADER = 5  # bytes of the header: 0, and the id of the schema in four


class Malformed(ValueError):
    """A record is malformed. The text has the place and the reason, and never a value."""


class UnknownId(Exception):
    """A record has a schema id that the framing does not know. The text is the framing's `unknown`."""


def header(schema_id: int) -> bytes:
    """Returns the header of a record whose schema has this id."""
    return b"\0" + schema_id.to_bytes(HEADER - 1)


def schema_id_of(value: bytes) -> int | None:
    """Returns the schema id in a record's header, or None if the header is not one that a registry's serializers write."""
    return int.from_bytes(value[1:HEADER]) if len(value) >= HEADER and not value[0] else None


@dataclass(frozen=True)
class Framing:
    """Removes the header of records. A schema id is `known`, or `refused` with a reason. Any other id fails the job
    with the text `unknown`.
    """

    known: frozenset[int]
    refused: Mapping[int, str] = field(default_factory=dict)
    unknown: str = "unknown schema id"

    def split(self, value: bytes) -> tuple[int, bytes]:
        """Returns the schema id, and the bytes after the header.

        Raises:
            Malformed: the bytes have no schema id, or the id is refused.
        """
        if len(value) < HEADER:
            raise Malformed(f"{count_of(len(value), 'byte')}, and no schema id")
        if value[0]:
            raise Malformed(f"the first byte is 0x{value[0]:02X}, not 0: no schema id")
        schema_id = int.from_bytes(value[1:HEADER])
        if schema_id in self.refused:
            raise Malformed(f"schema id {schema_id}: {self.refused[schema_id]}")
        if schema_id not in self.known:
            raise UnknownId(self.unknown)
        return schema_id, value[HEADER:]
