"""The header of a record whose schema is in a registry, and the error of a malformed record. Executors use this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fencepost.counts import count_of

HEADER = 5  # bytes of the header: 0, and the id of the schema in four
# What other serializers write, for a person, with the next step.
EIGHT_BYTES = (
    "a schema id of 8 bytes, as serializers of Apicurio Registry may write it, and only Confluent's 4 bytes are read; let the "
    "producer write these (apicurio.registry.id-handler, or apicurio.registry.as-confluent=true before version 3)"
)
GUID = (
    "the first byte is 0x01, which a schema's GUID of 16 bytes follows, and only ids of 4 bytes are read; let the producer write "
    "these (schema.id.serializer)"
)
IN_A_HEADER = "; an id in a header of the record is not read"


class Malformed(ValueError):
    """A record is malformed. The text has the place and the reason, and never a value."""


class ExcludedKind(StrEnum):
    """Why a record that is not malformed is left out and counted."""

    OTHER_TYPES = "other_types"  # its type is not in `source.only`
    OTHER_TABLES = "other_tables"  # its table is not `source.table`
    TRUNCATIONS = "truncations"
    MESSAGES = "messages"  # logical messages of PostgreSQL
    DELETION_TOMBSTONES = "deletion_tombstones"  # the tombstone behind a deletion

    @property
    def words(self) -> str:
        """Returns what such records are."""
        return _IN_WORDS[self][1]

    def noun(self, records: int) -> str:
        """Returns what such records are, in words that follow their number."""
        return _IN_WORDS[self][records != 1]


_IN_WORDS: Mapping[ExcludedKind, tuple[str, str]] = {
    ExcludedKind.OTHER_TYPES: ("record of another type", "records of other types"),
    ExcludedKind.OTHER_TABLES: ("record of another table", "records of other tables"),
    ExcludedKind.TRUNCATIONS: ("truncation", "truncations"),
    ExcludedKind.MESSAGES: ("logical message", "logical messages"),
    ExcludedKind.DELETION_TOMBSTONES: ("tombstone behind a deletion", "tombstones behind deletions"),
}


def describe_excluded(excluded: Mapping[str, int]) -> str:
    """Returns the numbers of excluded records by kind in words, such as `50 records of other types, 2 truncations`.
    The text is empty if there are none.
    """
    return ", ".join(f"{records:,} {ExcludedKind(kind).noun(records)}" for kind, records in excluded.items())


class Excluded(Exception):
    """The source does not read a record of this kind. The record is not malformed."""

    def __init__(self, kind: ExcludedKind) -> None:
        super().__init__(kind.value)
        self.kind = kind


class UnknownId(Exception):
    """A record has a schema id that the framing does not know. The text is the framing's `unknown`."""


def header(schema_id: int) -> bytes:
    """Returns the header of a record whose schema has this id."""
    return b"\0" + schema_id.to_bytes(HEADER - 1)


def schema_id_of(value: bytes) -> int | None:
    """Returns the schema id in a record's header, or None if the header is not one that a registry's serializers write."""
    return int.from_bytes(value[1:HEADER]) if len(value) >= HEADER and not value[0] else None


def has_eight_bytes(value: bytes) -> bool:
    """Returns whether a record seems to begin with a schema id of eight bytes. No registry gives the id 0."""
    return len(value) > 8 and not any(value[:HEADER])


def has_guid(value: bytes) -> bool:
    """Returns whether a record seems to begin with a schema's GUID: 0x01, and 16 bytes of a UUID of RFC 9562."""
    return len(value) > 16 and value[0] == 1 and value[9] >> 6 == 2 and 1 <= value[7] >> 4 <= 8


@dataclass(frozen=True)
class Framing:
    """Removes the header of records. A schema id is `known`, or `refused` with a reason, or it is among the `others`, whose
    records are of other types than those that the source reads. Any other id fails the job with the text `unknown`.
    """

    known: frozenset[int]
    refused: Mapping[int, str] = field(default_factory=dict)
    unknown: str = "unknown schema id"
    others: frozenset[int] = frozenset()

    def split(self, value: bytes) -> tuple[int, bytes]:
        """Returns the schema id, and the bytes after the header.

        Raises:
            Malformed: the bytes have no schema id, or the id is refused.
            Excluded: the id is one of the others.
        """
        schema_id, rest = _split(value)
        if schema_id in self.others:
            raise Excluded(ExcludedKind.OTHER_TYPES)
        if schema_id in self.refused:
            raise Malformed(
                EIGHT_BYTES if has_eight_bytes(value) else f"schema id {schema_id}: {self.refused[schema_id]}"
            )
        if schema_id not in self.known:
            raise UnknownId(self.unknown)
        return schema_id, rest


class AnyId(Framing):
    """Removes the header of records, whatever their schema ids are."""

    def split(self, value: bytes) -> tuple[int, bytes]:
        """Returns the schema id, and the bytes after the header.

        Raises:
            Malformed: the bytes have no schema id.
        """
        return _split(value)


def _split(value: bytes) -> tuple[int, bytes]:
    if len(value) < HEADER:
        raise Malformed(f"{count_of(len(value), 'byte')}, and no schema id{IN_A_HEADER}")
    if has_guid(value):
        raise Malformed(GUID)
    if value[0]:
        more = "" if value.startswith((b"{", b"[")) else IN_A_HEADER
        raise Malformed(f"the first byte is 0x{value[0]:02X}, not 0: no schema id{more}")
    return int.from_bytes(value[1:HEADER]), value[HEADER:]
