"""Decodes Avro values: each is exactly one value of the schema it was written with, or malformed with the reason.

A `Reader` resolves a writer's schema with a reader's by the specification's rules, and gives values as pyarrow takes them for
Spark's type of the reader's schema. It refuses one logical type read as another, and a decimal with another scale: what
libraries make of these has other values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

from fencepost.formats.avro_schema import MISSING, NAMED, Avro, Incompatible, is_struct_of_members
from fencepost.formats.framing import Malformed

# Where in a record's bytes a value begins, to the value and where it ends.
Read = Callable[[bytes, int], tuple[Any, int]]
Convert = Callable[[Any], Any]

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
MOST_EMPTY = 10_000  # items of a record's arrays that take no bytes, of which a few bytes could claim any number
DAY = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
is_uuid = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


class Reader:
    """Reads values of a writer's schema as those of a reader's: of a record, a tuple of the reader's fields.

    Raises:
        Incompatible: the reader's schema cannot read the writer's. The text names the field.
    """

    def __init__(self, writer: Avro, reader: Avro) -> None:
        self._empty = 0  # how many such items the record has had
        self._read = self._match(writer, reader, "")

    def read(self, data: bytes, begin: int = 0) -> Any:
        """The value that makes up all of the bytes from `begin`.

        Raises:
            Malformed: they are not exactly one value.
        """
        self._empty = 0
        try:
            value, end = self._read(data, begin)
        except (IndexError, struct.error):
            raise Malformed("the value is not complete") from None
        if end != len(data):
            raise Malformed(
                f"something follows the value, which ends after {end - begin:,} of {len(data) - begin:,} bytes"
            )
        return value

    def _match(self, writer: Avro, reader: Avro, path: str) -> Read:
        at = path or "the value"
        if writer.kind == "union":
            return _union([self._match(branch, reader, path) for branch in writer.branches], at)
        if reader.kind == "union":
            branch = next(
                (one for match in (_is_same, _is_promoted) for one in reader.branches if match(writer, one)), None
            )
            if branch is None:
                raise Incompatible(f"{at}: written as {writer.says()}, read as {reader.says()}")
            return _then(self._match(writer, branch, path), _member(branch, reader))
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
                return _map(self._match(writer.items, reader.items, f"{path}{{}}"), at)
            item = self._match(writer.items, reader.items, f"{path}[]")
            return self._array(item, at, empty=_takes_no_bytes(writer.items))
        return _plain(writer, reader, at)

    def _record(self, writer: Avro, reader: Avro, path: str) -> Read:
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
            row.append(None if name is not None else _default(wanted.default, wanted.type, at))
        steps = []
        for one in writer.fields:
            place = places.get(one.name, len(row))  # behind the row: read, and left out
            into = reader.fields[place] if one.name in places else one
            steps.append((place, self._match(one.type, into.type, f"{path}.{into.name}" if path else into.name)))
        size = len(row)

        def read(data: bytes, at: int) -> tuple[Any, int]:
            found = [*row, None]
            for place, one in steps:
                found[place], at = one(data, at)
            return tuple(found[:size]), at

        return read

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


def logical(kind: Avro, at: str) -> Convert | None:
    """From a value without its annotation, to what pyarrow takes for it; None if that is the same.

    The function raises `Malformed` for what is none of the type's values.
    """
    if kind.logical == "decimal":
        return _decimal(kind, at)
    if kind.logical in ("timestamp-millis", "local-timestamp-millis"):
        return _millis(at)
    if kind.logical in DAY:
        return _time(DAY[kind.logical], at)
    return _uuid(at) if kind.logical == "uuid" and kind.kind == "string" else None


def _decimal(kind: Avro, at: str) -> Convert:
    bound, scale, context = 10**kind.precision, Decimal(-kind.scale), Context(prec=kind.precision)

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, signed=True)
        if not (value and -bound < number < bound):
            raise Malformed(f"{at}: not a decimal of {kind.precision} digits")
        return Decimal(number).scaleb(scale, context)

    return convert


def _millis(at: str) -> Convert:
    def convert(value: int) -> int:
        if not -(2**63) <= (micros := 1000 * value) < 2**63:
            raise Malformed(f"{at}: a time beyond Spark's, which has microseconds in 64 bits")
        return micros

    return convert


def _time(end: int, at: str) -> Convert:
    def convert(value: int) -> int:
        if not 0 <= value < end:
            raise Malformed(f"{at}: not a time of day")
        return value

    return convert


def _uuid(at: str) -> Convert:
    def convert(value: str) -> str:
        if not is_uuid(value):
            raise Malformed(f"{at}: not a UUID")
        return value

    return convert


def _enum(writer: Avro, reader: Avro, where: str) -> Read:
    lost = [s for s in writer.symbols if s not in reader.symbols]
    if lost and reader.enum_default is None:
        raise Incompatible(f"{where}: the symbols {', '.join(lost)} are not read, and {reader.says()} has no default")
    symbols = [s if s in reader.symbols else reader.enum_default for s in writer.symbols]
    index = _int(where)

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        number, at = index(data, at)
        if not 0 <= number < len(symbols):
            raise Malformed(f"{where}: symbol {number:,} of {len(symbols)}")
        return symbols[number], at

    return read


def _union(branches: Sequence[Read], where: str) -> Read:
    index = _int(where)
    near = {2 * number: branch for number, branch in enumerate(branches[:64])}  # by the one byte that says which

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if branch := near.get(data[at]):
            return branch(data, at + 1)
        number, at = index(data, at)
        if not 0 <= number < len(branches):
            raise Malformed(f"{where}: type {number:,} of a union of {len(branches)}")
        return branches[number](data, at)

    return read


def _member(branch: Avro, union: Avro) -> Convert | None:
    """From a value of a union's type to the union's, where Spark's type is a struct of all of them."""
    if branch.kind == "null" or not is_struct_of_members(union):
        return None
    place, several = union.others.index(branch), len(union.others)
    return lambda value: (*[None] * place, value, *[None] * (several - place - 1))


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


def _default(value: Any, kind: Avro, at: str) -> Any:
    """A default in JSON, as pyarrow takes it.

    Raises:
        Incompatible: it is none of the type's values.
    """
    try:
        return _of_json(value, kind, at)
    except Malformed:
        raise Incompatible(f"{at}: not written, and its default is not a value of {kind.says()}") from None


def _of_json(value: Any, kind: Avro, at: str) -> Any:
    if kind.kind == "union":
        for branch in kind.branches:  # it may be any type's, as for today's Java
            with suppress(Malformed):
                found = _of_json(value, branch, at)
                member = None if found is None else _member(branch, kind)
                return found if member is None else member(found)
        raise Malformed(at)
    if not _is_default(value, kind):
        raise Malformed(at)
    if kind.kind == "record":
        return tuple(_of_json(value.get(one.name, one.default), one.type, at) for one in kind.fields)
    if kind.kind == "array" and kind.items:
        return [_of_json(one, kind.items, at) for one in value]
    if kind.kind == "map" and kind.items:
        return [(name, _of_json(one, kind.items, at)) for name, one in value.items()]
    if kind.kind in ("bytes", "fixed"):
        value = value.encode("latin-1")
    convert = logical(kind, at)
    return value if convert is None else convert(value)


def _is_default(value: Any, kind: Avro) -> bool:
    """Whether a default in JSON may be a value of the type, as far as the type itself tells."""
    if kind.kind in ("record", "map"):
        return isinstance(value, dict) and all(map(_is_text, value))
    if kind.kind == "enum":
        return value in kind.symbols
    if kind.kind in ("bytes", "fixed"):
        fits = isinstance(value, str) and all(ord(c) < 256 for c in value)
        return fits and (kind.kind == "bytes" or len(value) == kind.size)
    if kind.kind in ("int", "long"):
        bits = 31 if kind.kind == "int" else 63
        return type(value) is int and -(2**bits) <= value < 2**bits
    if kind.kind in ("float", "double"):
        return type(value) in (int, float)
    if kind.kind == "string":
        return isinstance(value, str) and _is_text(value)
    return type(value) is {"null": type(None), "boolean": bool, "array": list}[kind.kind]


def _is_text(value: str) -> bool:
    """JSON may hold half a surrogate pair."""
    return not any("\ud800" <= c <= "\udfff" for c in value)
