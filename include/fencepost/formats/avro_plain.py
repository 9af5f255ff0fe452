"""Reads Avro values that contain no other values, and the counts and lengths in front of values that do. A value that
cannot be read exactly makes the record malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fencepost.counts import count_of
from fencepost.formats.avro_columns import Read
from fencepost.formats.avro_connect import Convert
from fencepost.formats.avro_schema import AvroType
from fencepost.formats.avro_values import checked, logical
from fencepost.formats.framing import Malformed

MOST_EMPTY = 10_000  # items without bytes in a record's arrays; a few bytes could claim any number of them


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Returns a zigzag integer of at most 64 bits, and the offset where it ends. It has at most ten bytes."""
    byte, shift = data[at], 7
    number, at = byte & 127, at + 1
    while byte > 127:
        byte = data[at]
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 70:
            raise Malformed("a number of more than ten bytes")
    if number >> 64:
        raise Malformed("a number of more than 64 bits")
    return number >> 1 ^ -(number & 1), at


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bool, int]:
        if (byte := data[at]) > 1:
            raise Malformed(f"{where}: the byte {byte:02X} is not a boolean")
        return byte == 1, at + 1

    return read


def reads_int(where: str) -> Read:
    """Returns a function that reads an integer of 32 bits, in at most five bytes."""

    def read(data: bytes, at: int) -> tuple[int, int]:
        if (byte := data[at]) < 128:
            return byte >> 1 ^ -(byte & 1), at + 1
        number, end = read_long(data, at)
        if not (-(2**31) <= number < 2**31 and end - at <= 5):
            raise Malformed(f"{where}: not an int of 32 bits")
        return number, end

    return read


def _floating(form: str) -> Callable[[str], Read]:
    unpack, size = struct.Struct(form).unpack_from, struct.calcsize(form)

    def read(data: bytes, at: int) -> tuple[float, int]:
        return unpack(data, at)[0], at + size

    return lambda _: read


def _bytes(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        size, at = read_long(data, at)
        end = at + size
        if size < 0 or end > len(data):
            raise Malformed(f"{where}: a length of {count_of(size, 'byte')}, and {len(data) - at:,} are left")
        return data[at:end], end

    return read


def reads_text(where: str) -> Read:
    """Returns a function that reads a text in UTF-8."""
    sliced = _bytes(where)

    def read(data: bytes, at: int) -> tuple[str, int]:
        begin, size = at + 1, data[at]
        if (
            size < 128 and not size & 1 and (end := begin + (size >> 1)) <= len(data)
        ):  # in most records; this saves a call
            found = data[begin:end]
        else:
            found, end = sliced(data, at)
        try:
            return str(found, "utf-8"), end
        except UnicodeDecodeError:
            raise Malformed(f"{where}: text that is not UTF-8") from None

    return read


def _fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if (end := at + size) > len(data):
            raise IndexError
        return data[at:end], end

    return read


def reads_index(count: int, what: str, where: str, of: str = "") -> Read:
    """Returns a function that reads the number of a type in a union, or of a symbol in an enum. The number has to be
    below `count`.
    """
    index = reads_int(where)

    def read(data: bytes, at: int) -> tuple[int, int]:
        number, at = index(data, at)
        if not 0 <= number < count:
            raise Malformed(f"{where}: {what} {number:,} of {of}{count}")
        return number, at

    return read


PLAIN: dict[str, Callable[[str], Read]] = {
    "null": lambda _: _null,
    "boolean": _boolean,
    "int": reads_int,
    "long": lambda _: read_long,
    "float": _floating("<f"),
    "double": _floating("<d"),
    "bytes": _bytes,
    "string": reads_text,
}


def reads_plain(writer: AvroType, reader: AvroType | None, at: str) -> Read:
    """Returns a function that reads a value of a type without inner types as a value of the reader's type. Without a
    reader's type the value is only checked.
    """
    read = _fixed(writer.size) if writer.kind == "fixed" else PLAIN[writer.kind](at)
    if reader is None or reader.logical is None:
        read = then(read, _unchanged(checked(writer, at)))
    if reader is not None and reader.kind != writer.kind:
        read = then(read, _promoted(writer.kind, reader.kind, at))
    if reader is not None and reader.logical is not None:
        digits = min(writer.precision or reader.precision, reader.precision)
        read = then(read, logical(replace(reader, precision=digits), at))
    return read


def then(read: Read, convert: Convert | None) -> Read:
    """Returns a function that reads a value and converts it."""
    if convert is None:
        return read

    def converted(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return converted


def _unchanged(convert: Convert | None) -> Convert | None:
    """Returns a conversion that checks a value and returns it unchanged. It checks a logical type that the writer has
    and the reader does not.
    """
    return convert and (lambda value: (convert(value), value)[1])


def _promoted(writer: str, reader: str, at: str) -> Convert | None:
    if reader == "float":
        return _as_float
    if reader == "double":
        return float
    if reader == "bytes":
        return str.encode
    return _text(at) if reader == "string" else None


def _as_float(number: int) -> float:
    """Returns the float nearest to an integer. A double in between could round to another float, so the low bits are
    replaced by one bit, which is set if any of them was.
    """
    if abs(number) >> 53:
        number = (number >> 11 | bool(number & 0x7FF)) << 11
    found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return found


def _text(at: str) -> Convert:
    def convert(value: bytes) -> str:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"{at}: text that is not UTF-8") from None

    return convert


def read_block(data: bytes, at: int, where: str) -> tuple[int, int | None, int]:
    """Returns the number of the block's items, the offset where they end (None if the block does not have it), and the
    offset where they begin.
    """
    count, at = read_long(data, at)
    if count >= 0:
        return count, None, at
    size, at = read_long(data, at)
    return -count, at + size, at


def more_than_left(count: int, left: int, where: str, one: str = "item", more: str = "") -> Malformed:
    """Returns the error for a block with more items than remaining bytes. Each item takes at least one byte."""
    return Malformed(f"{where}: {count_of(count, one, more)}, and {count_of(left, 'byte is', 'bytes are')} left")


def check_block(end: int | None, at: int, where: str) -> None:
    """Checks that a block ends at the offset that its header gives."""
    if end is not None and end != at:  # some readers skip the block by its size, and would read different values
        raise Malformed(f"{where}: a block of items has another length than it declares")


def takes_no_bytes(kind: AvroType) -> bool:
    """Returns whether a value of this type takes no bytes, such as null."""
    if kind.kind == "record":
        return all(takes_no_bytes(one.type) for one in kind.fields)
    return kind.kind == "null" or (kind.kind == "fixed" and not kind.size)
