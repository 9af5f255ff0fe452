"""Reads a record field by field, most fields without a call.

A call for each field, and for what is in it, takes as long as all else. So Python's source for the usual values of usual types
is put together, of our own words and numbers only: small numbers, short texts, and either of them or null. What is not usual
is left to the field's function, which knows all that may be wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.formats.avro_schema import Avro
from fencepost.formats.avro_values import logical

# Where in a record's bytes a value begins, to the value and where it ends.
Read = Callable[[bytes, int], tuple[Any, int]]


@dataclass(frozen=True)
class FieldRead:
    """A field as it was written, and as it is read: by what, and where in the row; None where it is left out."""

    writer: Avro
    reader: Avro
    read: Read
    place: int | None


def read_record(fields: Sequence[FieldRead], row: Sequence[Any]) -> Read:
    """A function that reads the fields, in this order, into a tuple like the row, which has all others."""
    places = {one.place: f"v{number}" for number, one in enumerate(fields)}
    values = "".join(f"{places.get(place, f'row[{place}]')}, " for place in range(len(row)))
    lines = [line for number, one in enumerate(fields) for line in _lines(number, one)]
    source = [
        "def read(data, at):",
        "    begin, size = at, len(data)",
        "    try:",
        *(f"        {line}" for line in lines or ["pass"]),
        "    except UnicodeDecodeError:",
        "        for one in fields:",  # one of them says which
        "            begin = one.read(data, begin)[1]",
        "        raise",
        f"    return ({values}), at",
    ]
    known = {f"f{number}": one.read for number, one in enumerate(fields)} | {"fields": fields, "row": row, **UNPACK}
    exec("\n".join(source), known)  # noqa: S102
    found: Read = known["read"]  # type: ignore[assignment]
    return found


UNPACK = {kind: struct.Struct(form).unpack_from for kind, form in (("float", "<f"), ("double", "<d"))}


def _lines(number: int, one: FieldRead) -> Iterator[str]:
    writer, rest = one.writer, f"v{number}, at = f{number}(data, at)"
    reader = one.reader.others[0] if len(one.reader.others) == 1 else one.reader
    if writer.kind != "union":
        yield from _usual(number, writer, reader, 0) or [rest]
        return
    usual = _usual(number, writer.others[0], reader, 1) if len(writer.branches) == 2 and writer.nullable else []
    if not usual:
        yield rest
        return
    null = 0 if writer.branches[0].kind == "null" else 2
    yield "byte = data[at]"
    yield f"if byte == {null}: v{number}, at = None, at + 1"
    yield f"elif byte == {2 - null}:"
    yield from (f"    {line}" for line in usual)
    yield f"else: {rest}"


def _usual(number: int, writer: Avro, reader: Avro, skip: int) -> list[str]:
    """For a value behind so many bytes that is the reader's as it is; none for a type that takes a function."""
    if writer.kind != reader.kind or logical(writer, "") or logical(reader, ""):
        return []
    rest = f"v{number}, at = f{number}(data, at)"
    if writer.kind in ("int", "long"):  # of one, two or three bytes
        return [
            f"n, end = data[at + {skip}], at + {skip + 1}",
            "if n > 127:",
            "    n, end = n & 127 | data[end] << 7, end + 1",
            "    if n > 16383: n, end = n & 16383 | data[end] << 14, end + 1",
            f"if n > 2097151: {rest}",
            f"else: v{number}, at = n >> 1 ^ -(n & 1), end",
        ]
    if writer.kind == "string":  # its length is even, in one byte
        return [
            f"n = data[at + {skip}]",
            f"end = at + {skip + 1} + (n >> 1)",
            f"if n & 129 or end > size: {rest}",
            f"else: v{number}, at = data[at + {skip + 1}:end].decode(), end",
        ]
    if writer.kind in UNPACK:
        width = 4 if writer.kind == "float" else 8
        return [f"v{number}, at = {writer.kind}(data, at + {skip})[0], at + {skip + width}"]
    return []
