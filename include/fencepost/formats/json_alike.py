"""Reads many JSON records at once that are written alike. Records that are written alike have the same members in the
same order, with the same spaces between.

Most topics have one producer, whose records differ only in the values. So this module compares the text between the
values with the text in the first record, and reads the values column by column. The values are texts without escapes,
numbers without exponents, true, false and null. The module marks all other records, including malformed ones, and
`json_decoder.JsonDecoder` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.formats.declared import Only
from fencepost.formats.epochs import FIRST, LAST
from fencepost.formats.json_columns import BELOW_MICROSECOND, DAY, UNZONED, ZONED
from fencepost.formats.packed import Packed

SPACES = rb" *+"
NAME = rb'"([^"\\\x00-\x1f]*+)"'
MEMBER = rb"%b%b%b:%b(\"[^\"\\\x00-\x1f]*+\"|[-+.0-9A-Za-z]++)%b" % (SPACES, NAME, SPACES, SPACES, SPACES)
is_flat = re.compile(rb"%b\{%b(?:,%b)*+\}%b" % (SPACES, MEMBER, MEMBER, SPACES)).fullmatch
members_of = re.compile(MEMBER).finditer
LONGEST = 10_000  # bytes of a record that serves as the example
FEW = 500  # fewer records are faster to read one by one

U = np.uint64
QUOTE, BACKSLASH, SPACE, MINUS, ZERO = b'"\\ -0'
KEEP = np.array([(1 << 8 * size) - 1 for size in range(9)], U)  # masks of a word's first bytes
ZEROS = np.array([0x3030303030303030 >> 8 * size for size in range(9)], U)  # the digit in all other bytes
TENS = U(10) ** np.arange(20, dtype=U)
NULL, TRUE, FALSE = (U(int.from_bytes(word, "little")) for word in (b"null", b"true", b"false"))
# A double holds whole numbers of this many digits exactly, and powers of ten up to 22. Their quotient is the nearest
# double.
EXACT = 15


@dataclass(frozen=True)
class Values:
    """The values of one member in many records. The object has the offsets where each value begins and ends, without
    quotes, and says which values are texts or null.
    """

    packed: Packed
    rows: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    text: np.ndarray
    null: np.ndarray

    def mark(self, which: np.ndarray) -> None:
        self.packed.mark(self.rows, which)

    def mark_unless(self, right: np.ndarray) -> None:
        self.mark(~(right | self.null))

    def slices(self) -> pa.Array:
        found, _ = self.packed.slices(self.rows, self.begin, self.end - self.begin)
        return found.take(pa.array(np.arange(len(found)), mask=self.null)) if self.null.any() else found

    def signs(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns which values have a minus, and where their digits begin."""
        minus = self.packed.data[self.begin] == MINUS
        return minus, self.begin + minus

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns the parts of numbers, each as an array: whether there is a minus, all digits as a whole number (for
        at most 19 digits), the number of digits, and the number of digits in the fraction.
        """
        minus, begin = self.signs()
        size = self.end - begin
        dot = np.minimum(_first_dot(self.packed, begin), size)
        whole, right = self.digits(begin, dot)
        fraction = np.maximum(size - dot - 1, 0)
        after, right_after = _digits(self.packed, begin + dot + 1, fraction)
        with_dot = (dot < 16) & (fraction > 0)
        self.mark_unless(right & right_after & (with_dot | (dot == size)))
        return minus, whole * TENS[np.minimum(fraction, 19)] + after, dot + fraction, fraction

    def digits(self, begin: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns whole numbers of `size` digits, and whether each is valid in JSON."""
        number, right = _digits(self.packed, begin, size)
        leading = (size > 1) & (self.packed.data[begin] == ZERO)
        return number, right & (size > 0) & ~leading & ~self.text


Column = Callable[[Values], pa.Array]


def _first_dot(packed: Packed, at: np.ndarray) -> np.ndarray:
    """Returns the distance from each offset to the next dot, or 16 if none is nearer."""
    found = np.full(len(at), 16)
    for number in (1, 0):
        other = packed.words(at + 8 * number) ^ U(0x2E2E2E2E2E2E2E2E)
        zero = (other - U(0x0101010101010101)) & ~other & U(0x8080808080808080)
        place = np.bitwise_count((zero & (~zero + U(1))) - U(1)).astype(np.int64) >> 3
        found = np.where(zero != 0, place + 8 * number, found)
    return found


def _digits(packed: Packed, at: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns whole numbers of `size` digits (at most 19), and whether each consists of digits only. A number without
    digits is 0.
    """
    found, right = _eight_digits(packed, at, np.clip(size, 0, 8))
    for first in (8, 16):
        if (size > first).any():
            part = np.clip(size - first, 0, 8)
            more, sound = _eight_digits(packed, at + first, part)
            found, right = found * TENS[part] + more, right & sound
    return found, right & (size <= 19)


def _eight_digits(packed: Packed, at: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    word = (packed.words(at) & KEEP[size]) << ((8 - size) % 8 * 8).astype(U) | ZEROS[size]  # leading zeros
    high, low = U(0xF0F0F0F0F0F0F0F0), U(0x0606060606060606)
    right = (word & high) | (((word + low) & high) >> U(4))
    word = word - U(0x3030303030303030)
    word = word * U(10) + (word >> U(8))
    pairs = U(0x000000FF000000FF)
    both = (word & pairs) * U(0x000F424000000064) + ((word >> U(16)) & pairs) * U(0x0000271000000001)
    return both >> U(32), right == U(0x3333333333333333)


def integers_of(values: Values, bits: int) -> pa.Array:
    minus, begin = values.signs()
    number, right = values.digits(begin, values.end - begin)
    values.mark_unless(right & (number <= U(2 ** (bits - 1) - 1) + minus.astype(U)))
    return pa.array(signed_of(minus, number).astype(f"i{bits // 8}"), mask=values.null)


def signed_of(minus: np.ndarray, number: np.ndarray) -> np.ndarray:
    found = number.view(np.int64)
    return np.where(minus, -found, found)


def doubles_of(values: Values) -> pa.Array:
    minus, number, digits, fraction = values.parts()
    found = number / 10.0 ** np.minimum(fraction, 22)
    found = np.where(minus, -found, found)
    if (more := np.flatnonzero((digits > EXACT) & ~values.null & ~values.packed.marked[values.rows])).size:
        begin, end = values.begin[more], values.end[more]
        texts, _ = values.packed.slices(values.rows[more], begin, end - begin)
        found[more] = texts.cast(pa.string()).cast(pa.float64()).to_numpy()
    return pa.array(found, mask=values.null)


def decimals_of(values: Values, kind: pa.DataType) -> pa.Array:
    minus, number, digits, fraction = values.parts()
    more = kind.scale - fraction
    number = number * TENS[np.clip(more, 0, 18)]
    values.mark_unless((more >= 0) & (digits + more <= 18) & (number < TENS[min(kind.precision, 18)]))
    return decimals_from(signed_of(minus, number), values.null, kind)


def decimals_from(found: np.ndarray, null: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Returns decimals of whole numbers of 64 bits, which count the decimal's last place."""
    both = np.stack([found, found >> 63], axis=1)  # Arrow's decimals have 128 bits
    valid = None if not null.any() else pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(kind, len(found), [valid, pa.py_buffer(both)])


def _are_booleans(values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Returns which values are true, and which are true or false."""
    size, word = values.end - values.begin, values.packed.words(values.begin)
    true = (word & KEEP[4] == TRUE) & (size == 4) & ~values.text
    return true, true | (word & KEEP[5] == FALSE) & (size == 5) & ~values.text


def booleans_of(values: Values) -> pa.Array:
    true, right = _are_booleans(values)
    values.mark_unless(right)
    return pa.array(true, mask=values.null)


def texts_of(values: Values) -> pa.Array:
    values.mark_unless(values.text)
    return values.packed.texts(values.rows, values.slices())


def times_of(values: Values, kind: pa.DataType, like: str, *, truncates: bool = False) -> pa.Array:
    """Returns times that all have the same form as `like`. Arrow accepts every text of that form. With `truncates` the
    digits below the microsecond are cut off before.
    """
    texts = texts_of(values)
    if truncates:
        texts = pc.replace_substring_regex(texts, BELOW_MICROSECOND.pattern, r"\1", max_replacements=1)
    right = pc.fill_null(pc.match_substring_regex(texts, f"^{like}$"), False)
    values.mark_unless(right.to_numpy(zero_copy_only=False))
    found = pc.if_else(right, texts, pa.scalar(None, pa.string())).cast(kind)
    micros = pc.fill_null(found.cast(pa.timestamp("us")).cast(pa.int64()), 0).to_numpy()
    values.mark((micros < FIRST) | (micros > LAST))
    return found


def _anything(values: Values) -> None:
    """Marks the records whose value of this member is not valid JSON. The member has no column."""
    _, booleans = _are_booleans(values)
    texts_of(replace(values, null=~values.text))
    doubles_of(replace(values, null=values.null | values.text | booleans))


def column_reader(kind: pa.DataType) -> Column | None:
    """Returns the function that reads a column of this type, or None if there is none."""
    if pa.types.is_integer(kind):
        return partial(integers_of, bits=kind.bit_width)
    if pa.types.is_float64(kind):
        return doubles_of
    if pa.types.is_decimal128(kind):
        return partial(decimals_of, kind=kind)
    if pa.types.is_boolean(kind):
        return booleans_of
    if pa.types.is_string(kind):
        return texts_of
    if pa.types.is_date32(kind):
        return partial(times_of, kind=kind, like=DAY)
    if pa.types.is_timestamp(kind):
        return partial(times_of, kind=kind, like=ZONED if kind.tz else UNZONED)
    return None


# The names of a flat record's members, the text before each value without its quote, and the text after the last one.
Shape = tuple[list[str], list[bytes]]


class AlikeReader:
    """Reads flat records into columns of one schema. `names` has the name of each column's field, and `readers` the
    function that reads its values, or None if there is none. `required` columns must not be null. `only` has the types of
    the records to read by a field, or is None.
    """

    def __init__(
        self,
        schema: pa.Schema,
        required: Collection[str],
        names: Sequence[str],
        readers: Sequence[Column | None],
        only: Only | None = None,
    ) -> None:
        columns = zip(names, readers, strict=True)
        self._columns = {name: column for name, column in columns if column is not None}
        self._fields = [(name, f.type) for name, f in zip(names, schema, strict=True)]
        self._required = {name for name, f in zip(names, schema, strict=True) if f.name in required}
        self._type = None if only is None else only.field
        self._types = pa.array([] if only is None else only.values, pa.string())
        self._needed = self._required | ({self._type} if self._type is not None else set())
        self._shape: Shape | None = None  # the shape of the last records
        self._is_worth_it = len(self._columns) == len(schema)  # each column has a field of its own

    def read(self, records: pa.Array) -> tuple[list[pa.Array], np.ndarray] | None:
        """Returns the columns of records without nulls, and a mask of the records for which they are valid. Returns
        None if there are few records, or if fewer than half would be valid.

        The records are compared with the shape of the previous records, and otherwise with the shape of one of
        themselves. Once fewer than half are alike, no further attempt is made.
        """
        if not self._is_worth_it or len(records) < FEW:
            return None
        others = (_shape_of(records[number].as_py()) for number in (0, len(records) // 2))
        for shape in chain([self._shape], others):
            if shape is not None and self._needed.issubset(shape[0]):
                columns, sound, other = self._read(records, shape)
                if sound.mean() >= 0.5:
                    self._shape = shape
                    return columns, sound & ~other
        self._is_worth_it = False
        return None

    def _read(self, records: pa.Array, shape: Shape) -> tuple[list[pa.Array], np.ndarray, np.ndarray]:
        """Returns the columns, a mask of the records for which they are valid, and a mask of those of other types."""
        packed, found = Packed(records, 0), dict[str, pa.Array]()
        other = np.zeros(len(records), np.bool_)
        for name, values in _members(packed, *shape):
            if name == self._type:
                types = texts_of(values)
                other = ~pc.is_in(types, self._types).to_numpy(zero_copy_only=False)
            if (column := self._columns.get(name)) is None:
                _anything(values)
                continue
            found[name] = column(values)
            if name in self._required:
                values.mark(values.null)
        found |= {name: pa.nulls(len(records), kind) for name, kind in self._fields if name not in found}
        return [found[name] for name, _ in self._fields], ~packed.marked, other


def _shape_of(record: bytes) -> Shape | None:
    """Returns the shape of a record, or None if the shape is of no use for other records."""
    if len(record) > LONGEST or not is_flat(record):
        return None
    names, between, end = list[str](), list[bytes](), 0
    for member in members_of(record):
        try:
            names.append(member[1].decode())
        except UnicodeDecodeError:
            return None
        between.append(record[end : member.start(2)])
        end = member.end(2)
    return (names, [*between, record[end:]]) if len(set(names)) == len(names) else None


def _members(packed: Packed, names: Sequence[str], between: Sequence[bytes]) -> Iterator[tuple[str, Values]]:
    """Yields each member's values. Records with escapes and control characters are marked first."""
    rows, count = np.arange(len(packed.starts)), int(packed.ends[-1])
    strange = np.flatnonzero((packed.data[:count] < SPACE) | (packed.data[:count] == BACKSLASH))
    packed.marked[np.searchsorted(packed.ends, strange, side="right")] = True
    quoted = packed.data == QUOTE
    quoted[count] = True  # so that every offset has a next one
    quotes = np.flatnonzero(quoted)
    number = np.searchsorted(quotes, packed.starts)  # offset of the next quote
    at = packed.starts
    for name, before, after in zip(names, between[:-1], between[1:], strict=True):
        at, number = _passed(packed, rows, at, before), number + 2  # the quote that ends the name
        text = packed.data[at] == QUOTE
        # A value ends at its closing quote, or before the text that precedes the next name, or before the text after
        # the last value.
        closing = quotes[np.minimum(number + text, len(quotes) - 1)]
        other = closing - after.index(QUOTE) if QUOTE in after else packed.ends - len(after)
        begin = packed.within(rows, at + text)
        end = packed.within(rows, np.maximum(np.where(text, closing, other), begin))
        null = ~text & (packed.words(begin) & KEEP[4] == NULL) & (end - begin == 4)
        yield name, Values(packed, rows, begin, end, text, null)
        at, number = packed.within(rows, end + text), number + 2 * text
    packed.mark(rows, _passed(packed, rows, at, between[-1]) != packed.ends)


def _passed(packed: Packed, rows: np.ndarray, at: np.ndarray, what: bytes) -> np.ndarray:
    """Returns the offsets after the text `what`. A record that has another text at its offset is marked."""
    for begin in (*range(0, len(what) - 8, 8), max(len(what) - 8, 0)):
        part = what[begin : begin + 8]
        word = packed.words(at + begin) & KEEP[len(part)]
        packed.mark(rows, word != U(int.from_bytes(part, "little")))
    return packed.within(rows, at + len(what))
