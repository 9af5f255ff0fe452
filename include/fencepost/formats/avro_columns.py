"""Reads the values of one Avro type in many records at once, as a column. numpy finds where each value ends, and
pyarrow creates the column.

This module only recognises unusual or possibly malformed records. The module marks such records, and
`avro_decoder.AvroReader` reads them one by one and gives the reasons. The column's value for a marked record is
meaningless.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from fencepost.formats.avro_connect import Epochs, epochs_of
from fencepost.formats.avro_schema import AvroType
from fencepost.formats.avro_values import checked, logical
from fencepost.formats.framing import Excluded, Malformed
from fencepost.formats.packed import Packed

# From a record's bytes and the offset of a value to the value and the offset of its end.
Read = Callable[[bytes, int], tuple[Any, int]]
# The type of the column; None for values that are only checked and then left out.
Kind: TypeAlias = pa.DataType | None
ReadColumn: TypeAlias = tuple[pa.Array, np.ndarray]
# For the records of these ascending numbers, and the offset of a value in each: the values, and the offset where each
# ends.
Column = Callable[[Packed, np.ndarray, np.ndarray, Kind], ReadColumn]

NUMBERS = {"int": np.int32, "long": np.int64, "float": np.float32, "double": np.float64}


@dataclass(frozen=True)
class Reads:
    """The two ways to read a type: `read` reads one value, and `column` reads many values."""

    read: Read
    column: Column


def one_by_one(read: Read) -> Column:
    """Returns a reader of columns that calls `read` for each value."""

    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        values, ends = list[Any](), at.copy()
        starts = packed.starts[rows].tolist()
        for number, (row, begin, start) in enumerate(zip(rows.tolist(), at.tolist(), starts, strict=True)):
            value = None
            if not packed.marked[row]:
                try:
                    value, end = read(packed.values[row], begin - start)
                    ends[number] = start + end
                except (Malformed, Excluded, IndexError, struct.error):
                    packed.marked[row] = True
            values.append(value)
        return pa.nulls(len(rows)) if kind is None else pa.array(values, kind), ends

    return column


def plain(writer: AvroType, reader: AvroType | None, read: Read) -> Column:
    """Returns the reader of columns for a type that contains no other type. Without a reader's type the values are only
    checked.
    """
    if reader is not None and (epochs := epochs_of(reader)) is not None and writer.kind in ("int", "long"):
        return _times(writer.kind, reader, epochs)
    if checked(writer, "") is not None or (reader is not None and logical(reader, "") is not None):
        return one_by_one(read)
    kinds = (writer.kind, (reader or writer).kind)
    if set(kinds) <= NUMBERS.keys():
        return _numbers(*kinds)
    if kinds == ("boolean", "boolean"):
        return _booleans
    if set(kinds) <= {"string", "bytes"}:
        return _sized(text="string" in kinds)
    return _fixed(writer.size) if kinds == ("fixed", "fixed") else one_by_one(read)


def _numbers(written: str, wanted: str) -> Column:
    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        if written in ("float", "double"):
            width = 4 if written == "float" else 8
            words = packed.words(at)
            found = words.view("<f8") if width == 8 else words.astype("<u4").view("<f4")
            ends = packed.within(rows, at + width)
        else:
            found, ends = _integers(packed, rows, at, written)
        array = pa.array(found.astype(NUMBERS[wanted]))
        return array if kind is None else array.cast(kind), ends

    return column


def _integers(packed: Packed, rows: np.ndarray, at: np.ndarray, written: str) -> tuple[np.ndarray, np.ndarray]:
    found, ends = _longs(packed, rows, at, 5 if written == "int" else 10)
    if written == "int":
        packed.mark(rows, (found < -(2**31)) | (found >= 2**31))
    return found, ends


def _times(written: str, reader: AvroType, epochs: Epochs) -> Column:
    """Returns the reader of columns for numbers that count from 1970. It marks a record whose number is no value."""
    infinities = np.array(sorted(epochs.infinities), np.int64)

    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        found, ends = _integers(packed, rows, at, written)
        whole = found if epochs.per == 1 else found // epochs.per
        unusual = (found < epochs.first) | (found > epochs.last)
        if epochs.per > 1 and not reader.truncates:
            unusual |= whole * epochs.per != found
        infinite = np.isin(found, infinities) if infinities.size else None
        if infinite is not None:
            unusual = unusual & ~infinite if reader.infinity_is_null else unusual | infinite
        packed.mark(rows, unusual)
        array = pa.array((whole * epochs.times).astype(NUMBERS[reader.kind]), mask=infinite)
        return array if kind is None else array.cast(kind), ends

    return column


def _longs(packed: Packed, rows: np.ndarray, at: np.ndarray, most: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Returns zigzag integers of at most `most` bytes, and the offset where each ends."""
    low = packed.data[at]
    if not (low > 127).any():
        return (low >> 1).astype(np.int64) ^ -(low & 1).astype(np.int64), packed.within(rows, at + 1)
    words = packed.words(at)
    last = ~words & np.uint64(0x8080808080808080)  # the high bit of each byte that ends a number
    last &= ~last + np.uint64(1)  # only the first of them; 0 if none of the eight bytes ends it
    taken = last | last - np.uint64(1)
    sizes = np.bitwise_count(taken).astype(np.int64) >> 3
    # Join seven bits of each byte, then fourteen of each two, then twenty-eight of each four.
    found = words & taken & np.uint64(0x7F7F7F7F7F7F7F7F)
    for width, mask in ((7, 0x007F007F007F007F), (14, 0x00003FFF00003FFF), (28, 0x000000000FFFFFFF)):
        upper = np.uint64(mask << (8 * width // 7))
        found = found & np.uint64(mask) | (found & upper) >> np.uint64(width // 7)
    if (longer := np.flatnonzero(last == 0)).size:
        ninth, tenth = (packed.data[at[longer] + more].astype(np.uint64) for more in (8, 9))
        two = ninth > 127
        found[longer] |= (ninth & np.uint64(127)) << np.uint64(56) | two * (tenth << np.uint64(63))
        sizes[longer] = 9 + two
        packed.mark(rows[longer], two & (tenth > 1))
    packed.mark(rows, sizes > most)
    numbers = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
    return numbers, packed.within(rows, at + sizes)


def _booleans(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
    found = packed.data[at]
    packed.mark(rows, found > 1)
    return pa.array(found == 1), packed.within(rows, at + 1)


def _sized(text: bool) -> Column:
    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        sizes, at = _longs(packed, rows, at)
        found, ends = packed.slices(rows, at, sizes)
        if not text:
            return found, ends
        checked = packed.texts(rows, found)
        return checked if kind is None else checked.cast(kind), ends

    return column


def _fixed(size: int) -> Column:
    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        return packed.slices(rows, at, np.full(len(at), size))

    return column


def symbols(names: Sequence[str | None]) -> Column:
    """Returns the reader of columns for an enum. `names` are the reader's symbols, in the order of the writer's
    symbols.
    """

    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        found, ends = _longs(packed, rows, at, 5)
        known = (found >= 0) & (found < len(names))
        packed.mark(rows, ~known)
        return pa.array(names, kind or pa.string()).take(pa.array(np.where(known, found, 0))), ends

    return column


def nullable(value: Column, null: int) -> Column:
    """Returns the reader of columns for a union of null and another type. `null` is the number of null in the union."""

    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        branch = packed.data[at]
        there = branch == 2 * (1 - null)
        after = packed.within(rows, at + 1)
        if there.all():
            return value(packed, rows, after, kind)
        packed.mark(rows, ~there & (branch != 2 * null))
        some = np.flatnonzero(there)
        found, after[some] = value(packed, rows[some], after[some], kind)
        index = np.zeros(len(rows), np.int64)
        index[some] = np.arange(len(some))
        return found.take(pa.array(index, mask=~there)), after

    return column


def items(item: Column, *, empty: bool) -> Column:
    """Returns the reader of columns for an array. `empty` says that its items take no bytes. The reader marks a record
    whose array has more than one block, or is much longer than the other arrays.
    """

    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        counts, at = _longs(packed, rows, at)
        usual = (counts >= 0) & (counts <= (0 if empty else packed.ends[rows] - at))
        packed.mark(rows, ~usual)
        counts = np.where(usual, counts, 0)
        starts = np.cumsum(counts) - counts
        found, places = list[pa.Array](), list[np.ndarray]()
        for number in range(counts.max(initial=0)):
            some = np.flatnonzero(counts > number)
            if len(some) < number:  # a round for few arrays costs more than to read them one by one
                break
            values, at[some] = item(packed, rows[some], at[some], None if kind is None else kind.value_type)
            found.append(values)
            places.append(starts[some] + number)
        packed.mark(rows, counts > len(found))
        counts, some = np.minimum(counts, len(found)), np.flatnonzero(counts)
        packed.mark(rows[some], packed.data[at[some]] != 0)  # the array has another block
        at[some] = packed.within(rows[some], at[some] + 1)
        if kind is None:
            return pa.nulls(len(rows)), at
        values = pa.array([], kind.value_type)
        if found:
            values = pa.concat_arrays(found).take(pa.array(np.argsort(np.concatenate(places))))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=kind), at

    return column


@dataclass(frozen=True)
class PlacedField:
    """A record's field and its position in the row. The position is None if the field is left out."""

    reads: Reads
    place: int | None


def record(fields: Sequence[PlacedField], row: Sequence[Any]) -> Reads:
    """Returns the reader of a record. It reads the fields in this order into a copy of `row`, which has the values of
    all other fields.
    """

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = list(row)
        for one in fields:
            value, at = one.reads.read(data, at)
            if one.place is not None:
                values[one.place] = value
        return tuple(values), at

    def column(packed: Packed, rows: np.ndarray, at: np.ndarray, kind: Kind) -> ReadColumn:
        found = dict[int, pa.Array]()
        for one in fields:
            wanted = None if kind is None or one.place is None else kind.field(one.place).type
            values, at = one.reads.column(packed, rows, at, wanted)
            if one.place is not None:
                found[one.place] = values
        if kind is None or not row:
            return pa.array([()] * len(rows), pa.struct([])), at
        arrays = [
            found[place] if place in found else pa.array([row[place]] * len(rows), of.type)
            for place, of in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(kind)), at

    return Reads(read, column)
