"""What is in front of a record whose schema is in a registry, and what is malformed. Executors use this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.counts import count_of

HEADER = 5  # bytes in front of a record: 0, and the id of its schema in four


class Malformed(ValueError):
    """A record is malformed. The text has place and reason, never a value."""


class UnknownId(Exception):
    """A record's schema has an id of which nobody said what to do. The text is the framing's."""


def header(schema_id: int) -> bytes:
    """What is in front of a record whose schema has this id."""
    return b"\0" + schema_id.to_bytes(HEADER - 1)


def schema_id_of(value: bytes) -> int | None:
    """The id in front of a record; None if it does not begin as a registry's serializers write it."""
    return int.from_bytes(value[1:HEADER]) if len(value) >= HEADER and not value[0] else None


@dataclass(frozen=True)
class Framing:
    """Takes the header off records. A record of an id that is neither `known` nor `refused`, for the reason there, fails the job
    with the text `unknown`."""

    known: frozenset[int]
    refused: Mapping[int, str] = field(default_factory=dict)
    unknown: str = "unknown schema id"

    def split(self, value: bytes) -> tuple[int, bytes]:
        """The id, and the record.

        Raises:
            Malformed: there is no id, or it is refused.
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
