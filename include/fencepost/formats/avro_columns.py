"""Reads many records' values of one Avro type at once, as a column: numpy finds where each value ends, pyarrow makes the column.

What is not usual, and whatever may be wrong, is only found here: its records are marked, and read one by one by
`avro_decoder.Reader`, which says what they are. So a column says nothing of a record that it marks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from fencepost.formats.avro_schema import Avro
from fencepost.formats.avro_values import logical
from fencepost.formats.framing import Malformed

# Where in a record's bytes a value begins, to the value and where it ends.
Read = Callable[[bytes, int], tuple[Any, int]]
# What the column is to be; None where it is only to be checked, and left out.
Kind: TypeAlias = pa.DataType | None
Found: TypeAlias = tuple[pa.Array, np.ndarray]
# Of these records of the batch (their numbers, ascending), with a value that begins there in each: the values, and their ends.
Column = Callable[["Batch", np.ndarray, np.ndarray, Kind], Found]

WORD = 8  # bytes that are looked at together
NUMBERS = {"int": np.int32, "long": np.int64, "float": np.float32, "double": np.float64}


@dataclass(frozen=True)
class Reads:
    """One type, read in both ways."""

    read: Read
    column: Column


class Batch:
    """Records of one writer's schema, without nulls, whose values begin after so many bytes, and which of them are marked."""

    def __init__(self, records: pa.Array, begin: int) -> None:
        self._records = records.cast(pa.binary())
        _, offsets, data = self._records.buffers()
        first, count = self._records.offset, len(records)
        ends = np.frombuffer(offsets, np.int32, first + count + 1)[first:].astype(np.int64)
        # Longer by what is read from the last record's end on, before that record is marked.
        self.data = np.zeros(ends[-1] - ends[0] + WORD + 2, np.uint8)
        self.data[: ends[-1] - ends[0]] = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
        ends -= ends[0]
        self.buffer = pa.py_buffer(self.data)
        self.starts, self.ends, self.begin = ends[:-1], ends[1:], ends[:-1] + begin
        self.marked = np.zeros(count, np.bool_)

    @cached_property
    def values(self) -> list[bytes]:
        values: list[bytes] = self._records.to_pylist()
        return values

    def mark(self, rows: np.ndarray, which: np.ndarray) -> None:
        self.marked[rows[which]] = True

    def within(self, rows: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The same places; where one is behind its record's end, the end, and the record is marked."""
        ends = self.ends[rows]
        self.mark(rows, at > ends)
        return cast("np.ndarray", np.minimum(at, ends))

    def words(self, at: np.ndarray) -> np.ndarray:
        """The eight bytes from each place on, as a number of which the first is the lowest."""
        return self.data[at[:, None] + np.arange(WORD)].view("<u8")[:, 0]

    def longs(self, rows: np.ndarray, at: np.ndarray, most: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Numbers, zigzag, in so many bytes at most."""
        low = self.data[at]
        if not (low > 127).any():
            return (low >> 1).astype(np.int64) ^ -(low & 1).astype(np.int64), self.within(rows, at + 1)
        words = self.words(at)
        last = ~words & np.uint64(0x8080808080808080)  # in each byte behind which none follows
        last &= ~last + np.uint64(1)  # in the first of them; none if it is not among the eight
        taken = last | last - np.uint64(1)
        sizes = np.bitwise_count(taken).astype(np.int64) >> 3
        # Seven bits of each byte, then fourteen of each two, then twenty-eight of each four.
        found = words & taken & np.uint64(0x7F7F7F7F7F7F7F7F)
        for width, mask in ((7, 0x007F007F007F007F), (14, 0x00003FFF00003FFF), (28, 0x000000000FFFFFFF)):
            upper = np.uint64(mask << (8 * width // 7))
            found = found & np.uint64(mask) | (found & upper) >> np.uint64(width // 7)
        if (longer := np.flatnonzero(last == 0)).size:
            ninth, tenth = (self.data[at[longer] + more].astype(np.uint64) for more in (WORD, WORD + 1))
            two = ninth > 127
            found[longer] |= (ninth & np.uint64(127)) << np.uint64(56) | two * (tenth << np.uint64(63))
            sizes[longer] = WORD + 1 + two
            self.mark(rows[longer], two & (tenth > 1))
        self.mark(rows, sizes > most)
        numbers = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
        return numbers, self.within(rows, at + sizes)

    def slices(self, rows: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """So many bytes from each place on."""
        self.mark(rows, sizes < 0)
        ends = self.within(rows, at + np.clip(sizes, 0, len(self.data)))
        around = np.full(2 * len(at) + 1, len(self.data), np.int32)  # each slice, and what is between it and the next
        around[:-1:2], around[1::2] = at, ends
        both = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(around), self.buffer])
        return both.take(pa.array(np.arange(0, 2 * len(at), 2))), ends


def one_by_one(read: Read) -> Column:
    """A column of values that are read by a call for each."""

    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        values, ends = list[Any](), at.copy()
        starts = batch.starts[rows].tolist()
        for number, (row, begin, start) in enumerate(zip(rows.tolist(), at.tolist(), starts, strict=True)):
            value = None
            if not batch.marked[row]:
                try:
                    value, end = read(batch.values[row], begin - start)
                    ends[number] = start + end
                except (Malformed, IndexError, struct.error):
                    batch.marked[row] = True
            values.append(value)
        return pa.nulls(len(rows)) if kind is None else pa.array(values, kind), ends

    return column


def plain(writer: Avro, reader: Avro, read: Read) -> Column:
    """The column of a type that holds no other."""
    kinds, as_written = (writer.kind, reader.kind), logical(writer, "") is None
    if reader.logical in ("timestamp-millis", "local-timestamp-millis") and writer.kind in ("int", "long"):
        return _numbers(writer.kind, "long", 1000)
    if not as_written or logical(reader, "") is not None:
        return one_by_one(read)
    if writer.kind in NUMBERS and reader.kind in NUMBERS:
        return _numbers(writer.kind, reader.kind)
    if kinds == ("boolean", "boolean"):
        return _booleans
    if set(kinds) <= {"string", "bytes"}:
        return _sized(text="string" in kinds)
    return _fixed(writer.size) if kinds == ("fixed", "fixed") else one_by_one(read)


def _numbers(written: str, wanted: str, times: int = 1) -> Column:
    bound = 2**63 // times

    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        if written in ("float", "double"):
            width = 4 if written == "float" else 8
            words = batch.words(at)
            found = words.view("<f8") if width == 8 else words.astype("<u4").view("<f4")
            ends = batch.within(rows, at + width)
        else:
            found, ends = batch.longs(rows, at, 5 if written == "int" else 10)
            if written == "int":
                batch.mark(rows, (found < -(2**31)) | (found >= 2**31))
            if times > 1:
                batch.mark(rows, (found < -bound) | (found >= bound))
                found = found * times
        array = pa.array(found.astype(NUMBERS[wanted]))
        return array if kind is None else array.cast(kind), ends

    return column


def _booleans(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
    found = batch.data[at]
    batch.mark(rows, found > 1)
    return pa.array(found == 1), batch.within(rows, at + 1)


def _sized(text: bool) -> Column:
    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        sizes, at = batch.longs(rows, at)
        found, ends = batch.slices(rows, at, sizes)
        if not text:
            return found, ends
        try:
            checked = found.cast(pa.string())
        except pa.ArrowInvalid:
            sound = np.array([_is_utf8(value) for value in found.to_pylist()], np.bool_)
            batch.mark(rows, ~sound)
            checked = pa.array(found.to_pylist(), pa.binary(), mask=~sound).cast(pa.string())
        return checked if kind is None else checked.cast(kind), ends

    return column


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fixed(size: int) -> Column:
    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        return batch.slices(rows, at, np.full(len(at), size))

    return column


def symbols(names: Sequence[str | None]) -> Column:
    """The column of an enum, of which these are read for the written ones."""

    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        found, ends = batch.longs(rows, at, 5)
        known = (found >= 0) & (found < len(names))
        batch.mark(rows, ~known)
        return pa.array(names, kind or pa.string()).take(pa.array(np.where(known, found, 0))), ends

    return column


def nullable(value: Column, null: int) -> Column:
    """The column of a union of null, which has this number, and one other type."""

    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        branch = batch.data[at]
        there = branch == 2 * (1 - null)
        after = batch.within(rows, at + 1)
        if there.all():
            return value(batch, rows, after, kind)
        batch.mark(rows, ~there & (branch != 2 * null))
        some = np.flatnonzero(there)
        found, after[some] = value(batch, rows[some], after[some], kind)
        index = np.zeros(len(rows), np.int64)
        index[some] = np.arange(len(some))
        return found.take(pa.array(index, mask=~there)), after

    return column


def items(item: Column, *, empty: bool) -> Column:
    """The column of an array, whose items take no bytes if `empty`. Usual is a single block as long as others."""

    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        counts, at = batch.longs(rows, at)
        usual = (counts >= 0) & (counts <= (0 if empty else batch.ends[rows] - at))
        batch.mark(rows, ~usual)
        counts = np.where(usual, counts, 0)
        starts = np.cumsum(counts) - counts
        found, places = list[pa.Array](), list[np.ndarray]()
        for number in range(counts.max(initial=0)):
            some = np.flatnonzero(counts > number)
            if len(some) < number:  # a round for each costs more than to read these by themselves
                break
            values, at[some] = item(batch, rows[some], at[some], None if kind is None else kind.value_type)
            found.append(values)
            places.append(starts[some] + number)
        batch.mark(rows, counts > len(found))
        counts, some = np.minimum(counts, len(found)), np.flatnonzero(counts)
        batch.mark(rows[some], batch.data[at[some]] != 0)  # another block
        at[some] = batch.within(rows[some], at[some] + 1)
        if kind is None:
            return pa.nulls(len(rows)), at
        values = pa.array([], kind.value_type)
        if found:
            values = pa.concat_arrays(found).take(pa.array(np.argsort(np.concatenate(places))))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=kind), at

    return column


@dataclass(frozen=True)
class Field:
    """A record's field, and its place in the row; None where it is left out."""

    reads: Reads
    place: int | None


def record(fields: Sequence[Field], row: Sequence[Any]) -> Reads:
    """Reads the fields, in this order, into a tuple like the row, which has all others."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = list(row)
        for one in fields:
            value, at = one.reads.read(data, at)
            if one.place is not None:
                values[one.place] = value
        return tuple(values), at

    def column(batch: Batch, rows: np.ndarray, at: np.ndarray, kind: Kind) -> Found:
        found = dict[int, pa.Array]()
        for one in fields:
            wanted = None if kind is None or one.place is None else kind.field(one.place).type
            values, at = one.reads.column(batch, rows, at, wanted)
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
