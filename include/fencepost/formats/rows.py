"""Turns records' values into columns, in executors. Whole Arrow batches are decoded with the decoder of one format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.formats.framing import Excluded, ExcludedKind, Malformed
from fencepost.garbage_collector import without_collector

# These bound what is in memory; Spark passes several times as many rows. Python objects take ten times the bytes of
# ordinary JSON.
ROWS_AT_ONCE = 10_000
BYTES_AT_ONCE = 8_000_000
OBJECTS_AT_ONCE = 1000  # rows of Python objects
# An array's item may be two bytes long, and takes a place in the column of each of its fields. The more fields, the
# fewer bytes are decoded at once.
USUAL_FIELDS = 4


# Why a record has no row: the text for a malformed record, the kind of an excluded record.
Reason = str | None


class Decoder:
    """Decodes records' values into rows of one schema. A format defines how one value is decoded, and how many values
    of the usual form are decoded together.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        fields = max((fields_of_items(f.type) for f in schema), default=0)
        self.bytes_at_once = BYTES_AT_ONCE * USUAL_FIELDS // max(USUAL_FIELDS, fields)

    def decode(self, value: bytes) -> Sequence[Any]:
        """Returns one record's fields, in the schema's order and as pyarrow takes them.

        Raises:
            Malformed: the record is not exactly a value of its types.
            Excluded: the record is none that the source reads.
        """
        raise NotImplementedError

    def decode_values(self, values: Collection[bytes | None]) -> tuple[list[pa.Array], list[Reason]]:
        """Returns the schema's columns, and for each record the reason why it has no row, or None. The reason is a text
        if the record is malformed, and an `ExcludedKind` if it is excluded.
        """
        nothing: Sequence[Any] = [None] * len(self._schema)
        rows, why = list[Sequence[Any]](), list[Reason]()
        for value in values:
            row, reason = nothing, None
            if value is not None:
                try:
                    row = self.decode(value)
                except Malformed as malformed:
                    reason = str(malformed)
                except Excluded as excluded:
                    reason = excluded.kind
            rows.append(row)
            why.append(reason)
        columns = zip(*rows, strict=True) if rows else [()] * len(self._schema)
        return [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)], why

    def read_usual(self, values: pa.Array) -> Iterator[tuple[np.ndarray, list[pa.Array], np.ndarray]]:
        """Yields results for some records at a time: row numbers, the schema's columns, and a mask of the rows for
        which they are valid. Row numbers ascend.
        """
        yield from ()

    def decode_array(self, values: pa.Array) -> tuple[list[pa.Array], list[Reason]]:
        """Returns the result of `decode_values` for an Arrow array. Values of the usual form are decoded together, and
        all others one by one.
        """
        found, places, why = list[list[pa.Array]](), list[np.ndarray](), list[Reason]([None] * len(values))
        left = np.ones(len(values), np.bool_)
        for rows, columns, sound in self.read_usual(values):
            if len(rows) == len(values) and sound.all():
                return columns, why
            found.append([column.filter(pa.array(sound)) for column in columns])
            places.append(rows[sound])
            left[rows[sound]] = False
        rest = np.flatnonzero(left)
        for first in range(0, len(rest), OBJECTS_AT_ONCE):
            rows = rest[first : first + OBJECTS_AT_ONCE]
            some = values.slice(first, len(rows)) if left.all() else values.take(pa.array(rows))
            columns, reasons = self.decode_values(some.to_pylist())
            found.append(columns)
            places.append(rows)
            for row, reason in zip(rows.tolist(), reasons, strict=True):
                why[row] = reason
        if len(found) <= 1:
            return found[0] if found else self.decode_values([])[0], why
        whole = [pa.concat_arrays(parts) for parts in zip(*found, strict=True)]
        if left.all():
            return whole, why
        order = pa.array(np.argsort(np.concatenate(places)))
        return [column.take(order) for column in whole], why


def without_tombstones(values: Collection[bytes | None], why: Sequence[Reason]) -> list[Reason]:
    """Returns the reasons why records have no row, with tombstones excluded. In a topic of envelopes a tombstone follows a
    deletion that is there already.
    """
    return [
        ExcludedKind.DELETION_TOMBSTONES if value is None else reason for value, reason in zip(values, why, strict=True)
    ]


def fields_of_items(kind: pa.DataType) -> int:
    """Returns the largest number of fields in the items of an array or map within this type."""
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    own = [] if pa.types.is_struct(kind) else map(fields_of, inner)
    return max([*own, *map(fields_of_items, inner)], default=0)


def fields_of(kind: pa.DataType) -> int:
    """Returns how many places in Arrow's columns a value of this type takes, even a null."""
    return sum(fields_of(f.type) for f in kind) if pa.types.is_struct(kind) else 1


def decode_first(
    make: Callable[[], Decoder], names: Sequence[str], *, keep: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function for `mapInArrow` that decodes the first column.

    The result begins with the decoder's columns, which are null if the value is null, malformed or excluded. Then come the
    encoded column if it is kept, the other columns unchanged, whether the value is null, the reason why it is malformed, or
    null, and the kind of an excluded value, or null. `names` are the names of all these columns.
    """

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = make()
        for batch in batches:
            for first, end in _pieces(batch.column(0), decoder.bytes_at_once):
                piece = batch.slice(first, end - first)
                with (
                    without_collector()
                ):  # the collector would walk over the piece's objects again and again, and find nothing
                    columns, why = decoder.decode_array(piece.column(0))
                others = piece.columns if keep else piece.columns[1:]
                added = [piece.column(0).is_null(), *_apart(why)]
                yield pa.RecordBatch.from_arrays([*columns, *others, *added], list(names))

    return decode


def _apart(why: Sequence[Reason]) -> tuple[pa.Array, pa.Array]:
    """Returns the reasons of malformed records, and the kinds of excluded records."""
    if ExcludedKind not in set(map(type, why)):
        return pa.array(why, pa.string()), pa.nulls(len(why), pa.string())
    kinds = [isinstance(reason, ExcludedKind) for reason in why]
    malformed = [None if excluded else reason for reason, excluded in zip(why, kinds, strict=True)]
    excluded = [reason.value if isinstance(reason, ExcludedKind) else None for reason in why]
    return pa.array(malformed, pa.string()), pa.array(excluded, pa.string())


def _pieces(values: pa.Array, most: int) -> Iterator[tuple[int, int]]:
    """Yields the begin and the end of each piece that is decoded at once. A record above the limit is a piece of its
    own.
    """
    ends = np.cumsum(pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64))
    first = held = 0
    while first < len(values):
        end = min(int(np.searchsorted(ends, held + most, side="right")), first + ROWS_AT_ONCE)
        end = max(end, first + 1)
        yield first, end
        first, held = end, int(ends[end - 1])
