"""Holds the bytes of many records in one array, so that whole columns are read at once.

A record that a column cannot read, or that may be malformed, is marked and then read separately. Values that are read
from a marked record are meaningless, but no access is ever outside the array.
"""

from __future__ import annotations

from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WORD = 8  # bytes that are read together


class Packed:
    """Records without nulls, and a mask of the marked records. The value of each record begins after `begin` bytes."""

    def __init__(self, records: pa.Array, begin: int) -> None:
        self._records = records.cast(pa.binary())
        _, offsets, data = self._records.buffers()
        first, count = self._records.offset, len(records)
        ends = np.frombuffer(offsets, np.int32, first + count + 1)[first:].astype(np.int64)
        # Two words longer, because a read may start at the end of the last record.
        self.data = np.zeros(ends[-1] - ends[0] + 2 * WORD, np.uint8)
        self.data[: ends[-1] - ends[0]] = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
        ends -= ends[0]
        self.buffer = pa.py_buffer(self.data)
        self._words = np.ndarray((len(self.data) - WORD + 1,), "<u8", self.data, strides=(1,))
        self.starts, self.ends, self.begin = ends[:-1], ends[1:], ends[:-1] + begin
        self.marked = np.zeros(count, np.bool_)

    @cached_property
    def values(self) -> list[bytes]:
        values: list[bytes] = self._records.to_pylist()
        return values

    def mark(self, rows: np.ndarray, which: np.ndarray) -> None:
        self.marked[rows[which]] = True

    def within(self, rows: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Returns the offsets, limited to the end of their records. A record whose offset was beyond its end is marked."""
        ends = self.ends[rows]
        self.mark(rows, at > ends)
        return cast("np.ndarray", np.minimum(at, ends))

    def words(self, at: np.ndarray) -> np.ndarray:
        """Returns the eight bytes at each offset as a little-endian number. For an offset beyond the last word the
        result is the last word.
        """
        return cast("np.ndarray", self._words[np.minimum(at, len(self._words) - 1)])

    def slices(self, rows: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Returns `sizes` bytes at each offset, and the offsets where they end."""
        self.mark(rows, sizes < 0)
        ends = self.within(rows, at + np.clip(sizes, 0, len(self.data)))
        around = np.full(2 * len(at) + 1, len(self.data), np.int32)  # each slice, and the gap before the next
        around[:-1:2], around[1::2] = at, ends
        both = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(around), self.buffer])
        return both.take(pa.array(np.arange(0, 2 * len(at), 2))), ends

    def texts(self, rows: np.ndarray, found: pa.Array) -> pa.Array:
        """Returns the slices as texts. A slice that is not UTF-8 becomes null, and its record is marked."""
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            plain = pc.fill_null(pc.string_is_ascii(found.view(pa.string())), True).to_numpy(zero_copy_only=False)
            others = np.flatnonzero(~plain)
            odd = others[[not _is_utf8(value) for value in found.take(pa.array(others)).to_pylist()]]
            self.mark(rows, odd)
            sound = np.ones(len(found), np.bool_)
            sound[odd] = False
            return pc.if_else(pa.array(sound), found, pa.scalar(None, found.type)).cast(pa.string())


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
