"""Decodes Avro values: each is exactly one value of the schema it was written with, or malformed with the reason.

A `Reader` resolves a writer's schema with a reader's by the specification's rules, and gives values as pyarrow takes them for
Spark's type of the reader's schema. It refuses one logical type read as another, and a decimal with another scale: what
libraries make of these has other values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.formats.avro_columns import (
    Field,
    Read,
    Reads,
    items,
    nullable,
    one_by_one,
    plain,
    record,
    symbols,
)
from fencepost.formats.avro_schema import MISSING, NAMED, Avro, Incompatible, is_struct_of_members
from fencepost.formats.avro_values import Convert, default_of, logical, member_of
from fencepost.formats.framing import Malformed
from fencepost.formats.packed import Packed

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
MOST_EMPTY = 10_000  # items of a record's arrays that take no bytes, of which a few bytes could claim any number


class Reader:
    """Reads values of a writer's schema as those of a reader's: of a record, a tuple of the reader's fields.

    Raises:
        Incompatible: the reader's schema cannot read the writer's. The text names the field.
    """

    def __init__(self, writer: Avro, reader: Avro) -> None:
        self._empty = 0  # how many such items the record has had
        self._reads = self._match(writer, reader, "")

    def read(self, data: bytes, begin: int = 0) -> Any:
        """The value that makes up all of the bytes from `begin`.

        Raises:
            Malformed: they are not exactly one value.
        """
        self._empty = 0
        try:
            value, end = self._reads.read(data, begin)
        except (IndexError, struct.error):
            raise Malformed("the value is not complete") from None
        if end != len(data):
            raise Malformed(
                f"something follows the value, which ends after {end - begin:,} of {len(data) - begin:,} bytes"
            )
        return value

    def read_many(self, records: pa.Array, begin: int, kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
        """What `read` gives of each record, as a column of this type, and of which it is true.

        Of the others, which are malformed or unusual, the column says nothing. There are no nulls among the records, and each has
        so many bytes at least.
        """
        self._empty = 0
        packed, rows = Packed(records, begin), np.arange(len(records))
        found, ends = self._reads.column(packed, rows, packed.begin, kind)
        packed.mark(rows, ends != packed.ends)
        return found, ~packed.marked

    def _match(self, writer: Avro, reader: Avro, path: str) -> Reads:
        at = path or "the value"
        if writer.kind == "union":
            _check_one_unit(writer, reader, at)
            return _union(writer, [self._match(branch, reader, path) for branch in writer.branches], at)
        if reader.kind == "union":
            branch = _branch_for(writer, reader)
            if branch is None:
                raise Incompatible(f"{at}: written as {writer.says()}, read as {reader.says()}")
            found = self._match(writer, branch, path)
            if len(reader.others) > 1:
                read = _then(found.read, member_of(branch, reader))
                return Reads(read, one_by_one(read))
            return found
        if writer.kind != reader.kind and not _is_promoted(writer, reader):
            raise Incompatible(f"{at}: written as {writer.says()}, read as {reader.says()}")
        _check_logical(writer, reader, at)
        if reader.kind in NAMED and not _is_same(writer, reader):
            raise Incompatible(f"{at}: written as {writer.says()}, read as {reader.says()}, which has no such alias")
        if writer.kind == "record":
            return self._record(writer, reader, path)
        if writer.kind == "enum":
            return _enum(writer, reader, at)
        if writer.items is not None:
            assert reader.items is not None
            if writer.kind == "map":
                read = _map(self._match(writer.items, reader.items, f"{path}{{}}").read, at)
                return Reads(read, one_by_one(read))
            item, empty = self._match(writer.items, reader.items, f"{path}[]"), _takes_no_bytes(writer.items)
            return Reads(self._array(item.read, at, empty=empty), items(item.column, empty=empty))
        read = _plain(writer, reader, at)
        return Reads(read, plain(writer, reader, read))

    def _record(self, writer: Avro, reader: Avro, path: str) -> Reads:
        written = {one.name: one for one in writer.fields}
        places: dict[str, int] = {}  # by the name in the writer's schema
        row: list[Any] = []
        for place, wanted in enumerate(reader.fields):
            at = f"{path}.{wanted.name}" if path else wanted.name
            name = next((n for n in (wanted.name, *wanted.aliases) if n in written and n not in places), None)
            if name is not None:
                places[name] = place
            elif wanted.default is MISSING:
                raise Incompatible(f"{at}: not written, and it has no default")
            row.append(None if name is not None else default_of(wanted.default, wanted.type, at))
        found = []
        for one in writer.fields:
            into_row = places.get(one.name)  # None: it is read, and left out
            into = one if into_row is None else reader.fields[into_row]
            reads = self._match(one.type, into.type, f"{path}.{into.name}" if path else into.name)
            found.append(Field(reads, into_row))
        return record(found, row)

    def _array(self, item: Read, where: str, *, empty: bool) -> Read:
        def read(data: bytes, at: int) -> tuple[Any, int]:
            found: list[Any] = []
            while True:
                count, end, at = _block(data, at, where)
                if not count:
                    return found, at
                if empty:
                    self._empty += count
                    if self._empty > MOST_EMPTY:
                        raise Malformed(f"{where}: more than {MOST_EMPTY:,} items that take no bytes")
                elif count > len(data) - at:
                    raise Malformed(f"{where}: {count:,} items, and {len(data) - at:,} bytes are left")
                for _ in range(count):
                    value, at = item(data, at)
                    found.append(value)
                _check_block(end, at, where)

        return read


def _is_same(writer: Avro, reader: Avro) -> bool:
    named = writer.simple_name == reader.simple_name or writer.name in reader.aliases
    return writer.kind == reader.kind and (writer.kind not in NAMED or named)


def _is_promoted(writer: Avro, reader: Avro) -> bool:
    return reader.kind in PROMOTIONS.get(writer.kind, ())


def _branch_for(writer: Avro, reader: Avro) -> Avro | None:
    """Which of a union's types a value is read as."""
    return next((one for match in (_is_same, _is_promoted) for one in reader.branches if match(writer, one)), None)


def _check_one_unit(writer: Avro, reader: Avro, at: str) -> None:
    """Otherwise a number would be a day of one record and a millisecond of another, and nothing would say which."""
    units = dict[int, str | None]()
    for branch in writer.others:
        into = _branch_for(branch, reader) if is_struct_of_members(reader) else reader
        unit = None if branch.logical == "uuid" else branch.logical
        if into is not None and units.setdefault(id(into), unit) != unit:
            raise Incompatible(
                f"{at}: written as {writer.says()}, read as {into.says()}, which does not say which of them a value is"
            )


def _check_logical(writer: Avro, reader: Avro, at: str) -> None:
    """Otherwise seconds would be read as milliseconds, and 1.23 as 12.3."""
    one, two = writer.logical, reader.logical
    alike = one == two or one is None or two is None
    if one == two == "decimal":
        alike = writer.scale == reader.scale and writer.precision <= reader.precision
    elif "decimal" in (one, two):
        alike = writer.kind == reader.kind
    if not alike or (writer.kind == "fixed" == reader.kind and writer.size != reader.size):
        raise Incompatible(f"{at}: written as {_sized(writer)}, read as {_sized(reader)}")


def _sized(kind: Avro) -> str:
    return f"{kind.size} bytes" if kind.kind == "fixed" and kind.logical is None else kind.says()


def _takes_no_bytes(kind: Avro) -> bool:
    if kind.kind == "record":
        return all(_takes_no_bytes(one.type) for one in kind.fields)
    return kind.kind == "null" or (kind.kind == "fixed" and not kind.size)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A number of 64 bits at most, zigzag, in ten bytes at most."""
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
            raise Malformed(f"{where}: the byte {byte:02X} is no boolean")
        return byte == 1, at + 1

    return read


def _int(where: str) -> Read:
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
            raise Malformed(f"{where}: a length of {size:,} bytes, and {len(data) - at:,} are left")
        return data[at:end], end

    return read


def _string(where: str) -> Read:
    sliced = _bytes(where)

    def read(data: bytes, at: int) -> tuple[str, int]:
        begin, size = at + 1, data[at]
        if size < 128 and not size & 1 and (end := begin + (size >> 1)) <= len(data):  # most: this saves a call
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


PLAIN: dict[str, Callable[[str], Read]] = {
    "null": lambda _: _null,
    "boolean": _boolean,
    "int": _int,
    "long": lambda _: read_long,
    "float": _floating("<f"),
    "double": _floating("<d"),
    "bytes": _bytes,
    "string": _string,
}


def _plain(writer: Avro, reader: Avro, at: str) -> Read:
    read = _fixed(writer.size) if writer.kind == "fixed" else PLAIN[writer.kind](at)
    steps = [] if writer.kind == reader.kind else [_promoted(writer.kind, reader.kind, at)]
    if writer.logical is not None and reader.logical is None:
        steps = [_checked(logical(writer, at)), *steps]
    elif reader.logical is not None:
        digits = min(writer.precision or reader.precision, reader.precision)
        steps.append(logical(replace(reader, precision=digits), at))
    for one in steps:
        read = _then(read, one)
    return read


def _then(read: Read, convert: Convert | None) -> Read:
    if convert is None:
        return read

    def converted(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return converted


def _checked(convert: Convert | None) -> Convert | None:
    """What the value says by an annotation that the reader does not have."""
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
    """The nearest float. By way of the nearest double it could be another, so the last bits become one that says so."""
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


def _enum(writer: Avro, reader: Avro, where: str) -> Reads:
    lost = [s for s in writer.symbols if s not in reader.symbols]
    if lost and reader.enum_default is None:
        raise Incompatible(f"{where}: the symbols {', '.join(lost)} are not read, and {reader.says()} has no default")
    names = [s if s in reader.symbols else reader.enum_default for s in writer.symbols]
    index = _int(where)

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        number, at = index(data, at)
        if not 0 <= number < len(names):
            raise Malformed(f"{where}: symbol {number:,} of {len(names)}")
        return names[number], at

    return Reads(read, symbols(names))


def _union(writer: Avro, matched: Sequence[Reads], where: str) -> Reads:
    index, branches = _int(where), [one.read for one in matched]
    near = {2 * number: branch for number, branch in enumerate(branches[:64])}  # by the one byte that says which

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if branch := near.get(data[at]):
            return branch(data, at + 1)
        number, at = index(data, at)
        if not 0 <= number < len(branches):
            raise Malformed(f"{where}: type {number:,} of a union of {len(branches)}")
        return branches[number](data, at)

    if len(matched) == 2 and writer.nullable:
        null = 0 if writer.branches[0].kind == "null" else 1
        return Reads(read, nullable(matched[1 - null].column, null))
    return Reads(read, one_by_one(read))


def _block(data: bytes, at: int, where: str) -> tuple[int, int | None, int]:
    """How many items follow, where they end if that is said, and where they begin."""
    count, at = read_long(data, at)
    if count >= 0:
        return count, None, at
    size, at = read_long(data, at)
    return -count, at + size, at


def _check_block(end: int | None, at: int, where: str) -> None:
    if end is not None and end != at:  # some readers skip by it, and would read other values
        raise Malformed(f"{where}: a block of items does not end where it says")


def _map(item: Read, where: str) -> Read:
    key = _string(where)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        found: dict[str, Any] = {}
        while True:
            count, end, at = _block(data, at, where)
            if not count:
                return list(found.items()), at
            if count > len(data) - at:
                raise Malformed(f"{where}: {count:,} entries, and {len(data) - at:,} bytes are left")
            for _ in range(count):
                name, at = key(data, at)
                if name in found:
                    raise Malformed(f"{where}: two entries of one name")
                found[name], at = item(data, at)
            _check_block(end, at, where)

    return read
