"""Decodes JSON records into columns of declared types. A column has exactly what the record says, or the record is
malformed, with a reason.

JSON that is written from a decoded row says the same as the record, in values of the declared types. This module runs
in executors, so it does not import Spark.

`json_alike.py` reads flat records that are written alike, many at a time and without a Python object for each.
pydantic's parser reads the others, and most columns are created from all their values at once. The parser loses some
details, so this module reads them from the record's text: the minus of a 0, the text of an array or object in a field
of type string, and numbers or nesting beyond the parser's limits. The parser reads a number with a fraction or an
exponent as the nearest double, which takes half the time, until a column needs the number's text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from jiter import LosslessFloat, from_json

from fencepost.formats.declared import Encoding, FieldOf, Only
from fencepost.formats.framing import Excluded, ExcludedKind, Framing, Malformed
from fencepost.formats.json_alike import AlikeReader
from fencepost.formats.json_alike_encodings import encoded_reader
from fencepost.formats.json_columns import Incomplete, JsonColumn, JsonWithText, levels_of, needs_digits
from fencepost.formats.json_encodings import encoded_column, takes_objects
from fencepost.formats.rows import Decoder, Reason

DEEPEST = 1000  # nested arrays and objects
# The parser accepts this many nested arrays and objects, and numbers of this many digits. Beyond, it may give one of
# these messages.
PART, DIGITS = 100, 1000
TOO_MUCH = ("recursion limit exceeded", "number out of range")
MINUS_ZERO = re.compile(rb"-0(?![.0-9eE])")
NOTHING: dict[str, Any] = {}
NO_NAME = '""'  # how reasons name the field with the empty name
PLAIN_FORM = Encoding()
NO_FIELDS: Mapping[str, FieldOf] = {}
Parse = Callable[[bytes], Any]

strict = partial(from_json, catch_duplicate_keys=True, allow_inf_nan=False, cache_mode="keys")
# Parses numbers with a fraction or an exponent as texts, or as doubles.
_parsed = partial(strict, float_mode="lossless-float")
_rounded = partial(strict, float_mode="float")


class JsonDecoder(Decoder):
    """Decodes JSON texts into columns of one schema. `required` columns must not be null. `framing` is the header of the
    records, or None. `fields` has the fields of the columns that are not named as their field. `only` has the types of the
    records to read by a field, or is None.
    """

    def __init__(
        self,
        schema: pa.Schema,
        required: Collection[str] = (),
        framing: Framing | None = None,
        fields: Mapping[str, FieldOf] = NO_FIELDS,
        only: Only | None = None,
    ) -> None:
        super().__init__(schema)
        self._framing, self._only = framing, only
        names = [fields[name].name if name in fields else name for name in schema.names]
        encodings = [(fields[name].encoding if name in fields else None) or PLAIN_FORM for name in schema.names]
        columns = [(f, f.name in required, encoding) for f, encoding in zip(schema, encodings, strict=True)]
        readers = [encoded_reader(f.type, how) for f, _, how in columns]
        self._alike = AlikeReader(schema, required, names, readers, only)
        self._fields = [
            (name, encoded_column(f.type, name or NO_NAME, how, required=needed), needed)
            for name, (f, needed, how) in zip(names, columns, strict=True)
        ]
        digits = any(needs_digits(f.type) for f, _, how in columns if not how.name)
        self._parse: Parse = _parsed if digits else _rounded
        # The levels of arrays and objects that a text is read to.
        self._levels = 1 + max((max(levels_of(f.type), takes_objects(how)) for f, _, how in columns), default=0)

    def read_usual(self, values: pa.Array) -> Iterator[tuple[np.ndarray, list[pa.Array], np.ndarray]]:
        if self._framing is None and (found := self._alike.read(values.drop_null())) is not None:
            yield np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)), *found

    def decode_values(self, values: Collection[bytes | None]) -> tuple[list[pa.Array], list[Reason]]:
        """Returns the columns, and for each record the reason why it has no row.

        1. Parse the records, and create columns from them. Of an excluded record only the type is looked at.
        2. Read the texts of records for which the parser loses a detail, and create columns from these. Later records may be
           like them, so from now on numbers are parsed as texts.
        3. Merge both, with nulls for malformed and excluded records.
        """
        ids, unframed = dict[int, int](), dict[int, str]()
        texts = list(values) if self._framing is None else _without(self._framing, values, ids, unframed)
        piece = Piece(texts)
        columns = self._columns(self._read(self._records(piece), piece), piece)  # 1
        again = [row for row in piece.incomplete if row not in piece.why]
        if again:
            self._parse = _parsed
        second = Piece([b""] * len(again))  # texts with sources lose no detail
        with_sources = [_with_sources(str(piece.texts[row] or b"", "utf-8"), self._levels) for row in again]
        more = self._columns(self._read(with_sources, second), second)  # 2
        piece.why |= {again[at]: reason for at, reason in second.why.items()}
        if again or piece.why:  # 3
            places: list[int | None] = list(range(len(texts)))
            for at, row in enumerate(again):
                places[row] = len(texts) + at
            for row in piece.why:
                places[row] = None
            taken = pa.array(places, pa.int64())
            columns = [pa.concat_arrays(both).take(taken) for both in zip(columns, more, strict=True)]
        why = unframed | {
            row: f"schema id {ids[row]}: {text}" if ids and not isinstance(text, ExcludedKind) else text
            for row, text in piece.why.items()
        }
        return columns, [why.get(row) for row in range(len(texts))]

    def _records(self, piece: Piece) -> list[dict[str, Any]]:
        """Returns the parsed records of a piece, as `Piece.records` does."""
        return piece.records(self._parse)

    def _read(self, records: list[dict[str, Any]], piece: Piece) -> list[dict[str, Any]]:
        """Returns the records with `NOTHING` in place of those that are not of a type to read."""
        if self._only is None or self._only.field is None:
            return records
        for row, record in enumerate(records):
            if record is not NOTHING and (reason := why_not_read(record, self._only.field, self._only.values)):
                records[row] = NOTHING
                piece.why[row] = reason
        return records

    def _columns(self, records: Sequence[dict[str, Any]], piece: Piece) -> list[pa.Array]:
        columns = []
        for name, column, required in self._fields:
            values = [record.get(name) for record in records]
            self._check(name, values, records, piece)
            if required and None in values:
                for row, record in enumerate(records):
                    if values[row] is None and record is not NOTHING and self._requires(name, record):
                        piece.why.setdefault(row, f"{name or NO_NAME}: null or missing, and declared not null")
            columns.append(piece.column(column, values))
        return columns

    def _check(self, name: str, values: list[Any], records: Sequence[dict[str, Any]], piece: Piece) -> None:
        """Finds the records that are malformed whatever the type of this field. Their values become null."""

    def _requires(self, name: str, record: dict[str, Any]) -> bool:
        """Returns whether a record must have a field that is declared `not null`."""
        return True


def why_not_read(record: Mapping[str, Any], name: str, types: Collection[str]) -> Reason:
    """Returns why a record is not read if only the `types` in the field `name` are. Returns None if it is read."""
    if (found := record.get(name)) in types:
        return None
    if isinstance(found, str):
        return ExcludedKind.OTHER_TYPES
    what = "null or missing" if found is None else "not a text"
    return f"{name}: {what}, and source.only reads the record's type there"


def _without(
    framing: Framing, values: Collection[bytes | None], ids: dict[int, int], why: dict[int, str]
) -> list[bytes | None]:
    """Returns the records without their headers. It adds the ids of their schemas to `ids`, and to `why` the reason why
    a record has no valid header, or the kind of an excluded record.
    """
    texts = list[bytes | None]()
    for row, value in enumerate(values):
        texts.append(None)
        if value is not None:
            try:
                ids[row], texts[row] = framing.split(value)
            except Malformed as malformed:
                why[row] = str(malformed)
            except Excluded as excluded:
                why[row] = excluded.kind
    return texts


@dataclass
class Piece:
    """Some records, with the reasons of the malformed and excluded records, and the rows of the records whose texts have
    to be read.
    """

    texts: Sequence[bytes | None]
    why: dict[int, str] = field(default_factory=dict)
    incomplete: dict[int, None] = field(default_factory=dict)
    signed: dict[int, bool] = field(
        default_factory=dict
    )  # whether the text of a row may have -0, for the rows that were asked about
    row: int = 0  # the row whose value is being converted

    def records(self, parse: Parse) -> list[dict[str, Any]]:
        """Returns the parsed records. `NOTHING` replaces a tombstone, a malformed record, and a record whose text has
        to be read.
        """
        records = [NOTHING] * len(self.texts)
        for row, text in enumerate(self.texts):
            if text is None:
                continue
            try:
                record = parse(text)
            except ValueError as error:
                too_much = str(error).startswith(TOO_MUCH)
                reason = _reason_in_parts(text) if too_much else _reason(error, text)
                if reason is None:
                    self.incomplete[row] = None
                else:
                    self.why[row] = reason
                continue
            if type(record) is dict:
                records[row] = record
            else:
                self.why[row] = "not a JSON object"
        return records

    def column(self, column: JsonColumn, values: Sequence[Any]) -> pa.Array:
        """Returns the column of these values. The column is null for a malformed record, and for a record whose text
        has to be read.
        """
        if (found := column.at_once(values)) is not None:
            return found
        converted = []
        for self.row, value in enumerate(values):
            no_more = value is None or self.row in self.incomplete
            converted.append(None if no_more else self._converted(column, value))
        return pa.array(converted, column.kind)

    def _converted(self, column: JsonColumn, value: Any) -> Any:
        try:
            return column.convert(value, self._has_minus_zero)
        except Malformed as malformed:
            self.why.setdefault(self.row, str(malformed))
        except Incomplete:
            self.incomplete[self.row] = None
        return None

    def _has_minus_zero(self) -> bool:
        """Returns whether the row's text may have -0. Each text is searched only once."""
        if self.row not in self.signed:
            self.signed[self.row] = MINUS_ZERO.search(self.texts[self.row] or b"") is not None
        return self.signed[self.row]


def parsed_record(value: bytes) -> dict[str, Any]:
    """Returns the object in a record, with values in the form that columns take, at any depth.

    Raises:
        Malformed: the record is not an object.
    """
    try:
        record = _parsed(value)
    except ValueError as error:
        if not str(error).startswith(TOO_MUCH):
            raise Malformed(_reason(error, value)) from None
        if reason := _reason_in_parts(value):
            raise Malformed(reason) from None
        record = _with_sources(str(value, "utf-8"))
    if not isinstance(record, dict):
        raise Malformed("not a JSON object")
    return record


# What libraries write for numbers that JSON does not have. The parser says that it stopped at such a word or within it.
NO_NUMBER = re.compile(rb"(?<![\w.])[-+]?(?:(nan)|inf(?:inity)?)(?!\w)", re.IGNORECASE)
STOPPED = re.compile(r"(?:expected value|invalid number|expected ident) at line (\d+) column (\d+)").fullmatch
BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _reason(error: ValueError, text: bytes) -> str:
    """Returns why the parser refuses a text. The reason quotes no text of the record."""
    words = str(error)
    if words.startswith("Detected duplicate key"):
        return "a duplicate name in one object"
    if text.startswith(BYTE_ORDER_MARKS):
        return "begins with a byte order mark, which is not JSON"
    if stopped := STOPPED(words):
        line, column = map(int, stopped.groups())
        whole, at = text.split(b"\n", line)[line - 1], column - 1
        if number := NO_NUMBER.match(whole, max(at - 1, 0)) or NO_NUMBER.match(whole, at):
            return f"{'NaN' if number[1] else 'Infinity'} is not JSON at line {line} column {column}"
    return f"not JSON: {words}"


# This also matches an unterminated string as a whole, because searching within it for another beginning would take
# quadratic time. The same holds for searching for many digits within a number.
STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
LARGE = re.compile(rf"{STRING}|([\[{{])|([\]}}])|(?<![0-9])[0-9]{{{DIGITS}}}([0-9]+)", re.DOTALL)
TOKEN = re.compile(rf'({STRING}|[^\[\]{{}}:,"\s]+)|([\[{{])|[\]}}]', re.DOTALL)
OPENS = 2


def _reason_in_parts(value: bytes) -> str | None:
    """Returns why a record that exceeds the parser's limits is malformed, or None.

    The parser reads the record in pieces. Each array or object whose level is a multiple of `PART` is a piece. The
    piece around it has a 0 in its place. Digits of long numbers are left out.
    """
    try:
        text = str(value, "utf-8")
    except UnicodeDecodeError:
        return "not UTF-8"
    if not text.lstrip(" \t\r\n").startswith("{"):
        return "not a JSON object"
    depth, begin, part = 0, 0, b""
    parts: list[list[str]] = [[]]  # the open parts, in pieces
    try:
        for found in LARGE.finditer(text):
            opens, closes, digits = found.groups()
            if opens:
                depth += 1
                if depth > DEEPEST:
                    return f"more than {DEEPEST} nested arrays and objects"
                if depth % PART == 0:
                    parts[-1] += text[begin : found.start()], " 0 "
                    parts.append([])
                    begin = found.start()
            elif closes:
                if depth % PART == 0 and len(parts) > 1:
                    part = "".join([*parts.pop(), text[begin : found.end()]]).encode()
                    _parsed(part)
                    begin = found.end()
                depth -= 1
            elif digits:
                parts[-1].append(text[begin : found.start(3)])
                begin = found.end()
        part = "".join([*parts.pop(), text[begin:]]).encode()
        _parsed(part)
    except ValueError as error:
        return _reason(error, part).partition(" at line ")[0]  # the text of the part
    return None


class _Object(JsonWithText, dict[str, Any]):
    __slots__ = ("name", "place", "record")

    def __init__(self) -> None:
        self.name: str | None = None  # the last name read, until its value follows

    def put(self, value: Any) -> None:
        if self.name is None:
            self.name = value
        else:
            self[self.name] = value
            self.name = None


class _Array(JsonWithText, list[Any]):
    __slots__ = ("place", "record")

    put = list.append


def _with_sources(text: str, levels: int = DEEPEST) -> dict[str, Any]:
    """Returns the object in a JSON text. Arrays and objects know their own text, and -0 and long numbers are texts.

    Values that are nested deeper than `levels` are left out, because their text is enough.
    """
    within: list[tuple[_Object | _Array, int]] = []
    value: Any = None
    for found in TOKEN.finditer(text):
        if found.lastindex == OPENS:
            within.append((_Object() if found[OPENS] == "{" else _Array(), found.start()))
            continue
        if found.lastindex is None:  # the array or object ends
            value, start = within.pop()
            value.record, value.place = text, slice(start, found.end())
        elif len(within) <= levels:
            value = _scalar(found[0])
        if 0 < len(within) <= levels:
            within[-1][0].put(value)
    assert isinstance(value, dict)
    return value


def _scalar(text: str) -> Any:
    if text[0] == '"' and "\\" not in text:
        return text[1:-1]
    if text == "-0" or (text[0] != '"' and len(text) > DIGITS):
        return LosslessFloat(text.encode())
    return _parsed(text.encode())
