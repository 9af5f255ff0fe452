"""Decodes Avro values. The bytes are exactly one value of the schema that they were written with, or they are
malformed, with a reason.

An `AvroReader` resolves a writer's schema with a reader's by the rules of Avro's specification. An `AvroReader` gives
values in the form that pyarrow takes for Spark's type of the reader's schema. It refuses to read one logical type as
another, or a decimal with another scale, because libraries differ in the values that they read in these cases.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.counts import count_of
from fencepost.formats.avro_columns import (
    PlacedField,
    Read,
    Reads,
    items,
    nullable,
    one_by_one,
    plain,
    record,
    symbols,
)
from fencepost.formats.avro_connect import variable_decimal
from fencepost.formats.avro_plain import (
    MOST_EMPTY,
    check_block,
    more_than_left,
    read_block,
    reads_index,
    reads_plain,
    reads_text,
    takes_no_bytes,
    then,
)
from fencepost.formats.avro_schema import (
    ITSELF,
    MISSING,
    NAMED,
    AvroType,
    Incompatible,
    contains_itself,
    is_struct_of_members,
)
from fencepost.formats.avro_unread import SkippedValue
from fencepost.formats.avro_values import default_of, member_of
from fencepost.formats.framing import Excluded, ExcludedKind, Malformed
from fencepost.formats.packed import Packed

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class AvroReader:
    """Reads values of a writer's schema as values of a reader's schema. A record becomes a tuple of the reader's fields.
    `only` has the names of the records to read, and is empty if all are. Other types of the writer's union are excluded.

    Raises:
        Incompatible: the reader's schema cannot read the writer's. The text names the field.
    """

    def __init__(self, writer: AvroType, reader: AvroType, only: Collection[str] = ()) -> None:
        self._empty = 0  # how many items without bytes the current record has had
        if only and writer.kind == "union":
            self._reads = self._some(writer, reader, only)
        else:
            self._reads = self._match(writer, reader, "")

    def read(self, data: bytes, begin: int = 0) -> Any:
        """Reads one value, which takes all bytes from `begin` on.

        Raises:
            Malformed: the bytes are not exactly one value.
            Excluded: the value is a record of another type than those in `only`.
        """
        self._empty = 0
        try:
            value, end = self._reads.read(data, begin)
        except (IndexError, struct.error):
            raise Malformed("the value is not complete") from None
        if end != len(data):
            raise Malformed(
                f"something follows the value, which ends after {end - begin:,} of {count_of(len(data) - begin, 'byte')}"
            )
        return value

    def read_many(self, records: pa.Array, begin: int, kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
        """Returns a column of this type with the values that `read` gives, and a mask of the records for which it is
        valid.

        Other records are malformed or unusual, and the column's value for them is meaningless. No record may be null, and each
        has at least `begin` bytes.
        """
        self._empty = 0
        packed, rows = Packed(records, begin), np.arange(len(records))
        found, ends = self._reads.column(packed, rows, packed.begin, kind)
        packed.mark(rows, ends != packed.ends)
        return found, ~packed.marked

    def _some(self, writer: AvroType, reader: AvroType, only: Collection[str]) -> Reads:
        """Returns how to read the records in `only` of a union. Values of its other types are not looked into."""
        index = reads_index(len(writer.branches), "type", "the value", "a union of ")
        reads = {
            number: self._match(branch, reader, "").read
            for number, branch in enumerate(writer.branches)
            if branch.name in only
        }

        def read(data: bytes, at: int) -> tuple[Any, int]:
            number, at = index(data, at)
            if number not in reads:
                raise Excluded(ExcludedKind.OTHER_TYPES)
            return reads[number](data, at)

        return Reads(read, one_by_one(read))

    def _match(self, writer: AvroType, reader: AvroType | None, path: str) -> Reads:
        """Returns how to read one type as another. If `reader` is None, no field takes the value. Then the value is
        only checked against the writer's type, and Spark need not have that type.
        """
        at, writer = path or "the value", writer.whole
        if reader is not None and reader.kind == ITSELF:
            raise Incompatible(f"{at}: read as {reader.describe()}, which contains itself")
        if writer.kind == "union":
            if reader is not None:
                _check_one_unit(writer, reader, at)
            return _union(writer, [self._match(branch, reader, path) for branch in writer.branches], at)
        if reader is not None and reader.kind == "union":
            branch = _branch_for(writer, reader)
            if branch is None:
                raise Incompatible(f"{at}: written as {writer.describe()}, read as {reader.describe()}")
            found = self._match(writer, branch, path)
            if len(reader.others) > 1:
                read = then(found.read, member_of(branch, reader))
                return Reads(read, one_by_one(read))
            return found
        if reader is not None:
            _check_alike(writer, reader, at)
        if writer.kind == "record":
            found = self._record(writer, reader, path)
            if reader is None or reader.logical is None:
                return found
            read = then(found.read, variable_decimal(reader, at))
            return Reads(read, one_by_one(read))
        if writer.kind == "enum":
            return _enum(writer, reader or writer, at)
        if writer.items is not None:
            items_as = None if reader is None else reader.items
            if writer.kind == "map":
                read = _map(self._match(writer.items, items_as, f"{path}{{}}").read, at)
                return Reads(read, one_by_one(read))
            item, empty = self._match(writer.items, items_as, f"{path}[]"), takes_no_bytes(writer.items)
            return Reads(self._array(item.read, at, empty=empty), items(item.column, empty=empty))
        read = reads_plain(writer, reader, at)
        return Reads(read, plain(writer, reader, read))

    def _unread(self, kind: AvroType, path: str) -> Reads:
        if not contains_itself(kind):
            return self._match(kind, None, path)
        read = SkippedValue(kind, path, self._count_empty)
        return Reads(read, one_by_one(read))

    def _record(self, writer: AvroType, reader: AvroType | None, path: str) -> Reads:
        written = {one.name: one for one in writer.fields}
        places: dict[str, int] = {}  # matched by the name in the writer's schema
        row: list[Any] = []
        wanted_fields = () if reader is None else reader.fields
        for place, wanted in enumerate(wanted_fields):
            at = f"{path}.{wanted.name}" if path else wanted.name
            name = next((n for n in (wanted.name, *wanted.aliases) if n in written and n not in places), None)
            if name is not None:
                places[name] = place
            elif wanted.default is MISSING:
                raise Incompatible(f"{at}: not written, and it has no default")
            row.append(None if name is not None else default_of(wanted.default, wanted.type, at))
        found = []
        for one in writer.fields:
            row_place = places.get(one.name)
            if row_place is None:
                reads = self._unread(one.type, f"{path}.{one.name}" if path else one.name)
            else:
                into = wanted_fields[row_place]
                reads = self._match(one.type, into.type, f"{path}.{into.name}" if path else into.name)
            found.append(PlacedField(reads, row_place))
        return record(found, row)

    def _array(self, item: Read, where: str, *, empty: bool) -> Read:
        def read(data: bytes, at: int) -> tuple[Any, int]:
            found: list[Any] = []
            while True:
                count, end, at = read_block(data, at, where)
                if not count:
                    return found, at
                if empty:
                    self._count_empty(count, where)
                elif count > len(data) - at:
                    raise more_than_left(count, len(data) - at, where)
                for _ in range(count):
                    value, at = item(data, at)
                    found.append(value)
                check_block(end, at, where)

        return read

    def _count_empty(self, count: int, where: str) -> None:
        self._empty += count
        if self._empty > MOST_EMPTY:
            raise Malformed(f"{where}: more than {MOST_EMPTY:,} items that take no bytes")


def _is_same(writer: AvroType, reader: AvroType) -> bool:
    named = writer.simple_name == reader.simple_name or writer.name in reader.aliases
    return writer.kind == reader.kind and (writer.kind not in NAMED or named)


def _is_promoted(writer: AvroType, reader: AvroType) -> bool:
    return reader.kind in PROMOTIONS.get(writer.kind, ())


def _branch_for(writer: AvroType, reader: AvroType) -> AvroType | None:
    """Returns the type in the reader's union that a value is read as, or None if no type fits."""
    return next((one for match in (_is_same, _is_promoted) for one in reader.branches if match(writer, one)), None)


def _check_one_unit(writer: AvroType, reader: AvroType, at: str) -> None:
    """Checks that values of a union are read with one unit. Otherwise a number could mean days in one record and
    milliseconds in another, and nothing would distinguish them.
    """
    units = dict[int, str | None]()
    for branch in writer.others:
        into = _branch_for(branch, reader) if is_struct_of_members(reader) else reader
        unit = None if branch.logical == "uuid" else branch.logical
        if into is not None and units.setdefault(id(into), unit) != unit:
            raise Incompatible(
                f"{at}: written as {writer.describe()}, read as {into.describe()}, which does not show which type a value had"
            )


def _check_alike(writer: AvroType, reader: AvroType, at: str) -> None:
    """Checks that a type which is not a union may be read as another type. The types within both are not compared."""
    if writer.kind != reader.kind and not _is_promoted(writer, reader):
        raise Incompatible(f"{at}: written as {writer.describe()}, read as {reader.describe()}")
    _check_logical(writer, reader, at)
    if reader.kind in NAMED and not _is_same(writer, reader):
        raise Incompatible(
            f"{at}: written as {writer.describe()}, read as {reader.describe()}, which has no such alias"
        )


def _check_logical(writer: AvroType, reader: AvroType, at: str) -> None:
    """Checks the logical types. Otherwise seconds would be read as milliseconds, and 1.23 as 12.3."""
    one, two = writer.logical, reader.logical
    alike = one == two or one is None or two is None
    if one == two == "decimal":
        alike = writer.scale == reader.scale and writer.precision <= reader.precision
    elif "decimal" in (one, two):
        alike = writer.kind == reader.kind
    if not alike or (writer.kind == "fixed" == reader.kind and writer.size != reader.size):
        raise Incompatible(f"{at}: written as {_sized(writer)}, read as {_sized(reader)}")


def _sized(kind: AvroType) -> str:
    return f"{kind.size} bytes" if kind.kind == "fixed" and kind.logical is None else kind.describe()


def _enum(writer: AvroType, reader: AvroType, where: str) -> Reads:
    lost = [s for s in writer.symbols if s not in reader.symbols]
    if lost and reader.enum_default is None:
        raise Incompatible(f"{where}: {reader.describe()} has neither the symbols {', '.join(lost)} nor a default")
    names = [s if s in reader.symbols else reader.enum_default for s in writer.symbols]
    index = reads_index(len(names), "symbol", where)

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        number, at = index(data, at)
        return names[number], at

    return Reads(read, symbols(names))


def _union(writer: AvroType, matched: Sequence[Reads], where: str) -> Reads:
    index, branches = reads_index(len(matched), "type", where, "a union of "), [one.read for one in matched]
    near = {
        2 * number: branch for number, branch in enumerate(branches[:64])
    }  # by the byte that holds the type's number

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if branch := near.get(data[at]):
            return branch(data, at + 1)
        number, at = index(data, at)
        return branches[number](data, at)

    if len(matched) == 2 and writer.nullable:
        null = 0 if writer.branches[0].kind == "null" else 1
        return Reads(read, nullable(matched[1 - null].column, null))
    return Reads(read, one_by_one(read))


def _map(item: Read, where: str) -> Read:
    key = reads_text(where)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        found: dict[str, Any] = {}
        while True:
            count, end, at = read_block(data, at, where)
            if not count:
                return list(found.items()), at
            if count > len(data) - at:
                raise more_than_left(count, len(data) - at, where, "entry", "entries")
            for _ in range(count):
                name, at = key(data, at)
                if name in found:
                    raise Malformed(f"{where}: two entries of one name")
                found[name], at = item(data, at)
            check_block(end, at, where)

    return read
