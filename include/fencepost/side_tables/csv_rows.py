"""Reads the rows of a CSV file: columns of declared types, or of types that the texts show without a doubt."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fencepost.counts import count_of
from fencepost.formats.framing import Malformed
from fencepost.formats.json_columns import DAY, JsonColumn, column_of
from fencepost.formats.json_encodings import text_column
from fencepost.side_tables.content import Refuse, check_names
from fencepost.side_tables.declared import declared_columns

PIECE = 10_000  # rows that are Python objects at once
# Fields in quotes, or texts that do not begin with one. Between them are commas and the ends of lines.
QUOTED = rb'"[^"]*+(?:""[^"]*+)*+"'
ROWS = re.compile(rb"(?:(?:" + QUOTED + rb'|[^",\r\n][^,\r\n]*+|)(?:,|\r\n?|\n|\Z))*+')
# The types of columns that are not declared, each with the form that all texts of the column have.
INFERRED = {
    "bigint": "(?:0|-?[1-9][0-9]{0,18})",
    "double": r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)",
    "boolean": "(?i:true|false)",
    "date": DAY,
}
DIGITS_OF_A_DOUBLE = 15
COUNTED = "The row of names and empty lines are not counted."


def read_csv(data: bytes, types: Mapping[str, str], refuse: Refuse) -> tuple[pa.Table, StructType]:
    """Returns the rows of a CSV file, and their schema.

    The file is UTF-8. Its first row has the names of the columns, and fields are separated by commas. A field without any
    character is null, and `""` is the empty text. Empty lines are skipped.

    A declared column has the type in `types`, and columns that are not declared are left out. A text has a value of the type
    exactly, in the form that JSON has for it, or the file is refused. `true` and `false` may have capitals.

    Without a declaration a column is bigint, double, boolean or date (2026-01-31) if all of its texts are. It is string
    otherwise. So leading zeros, a plus, spaces, an exponent, and more digits than the type holds make a column string.
    """
    names = _names(data, refuse)
    if missing := [name for name in types if name not in names]:
        raise refuse(
            f"it has no column {missing[0]}, which the schema declares. Its columns are {', '.join(names)}. Correct the file, or "
            "the schema in pipeline.yaml."
        )
    texts = _texts(data, names, list(types) or names, refuse)
    types = types or {name: _inferred(texts[name]) for name in names}
    schema = declared_columns(types)
    kinds = to_arrow_schema(schema, timestamp_utc=True)
    return pa.Table.from_arrays([_values(texts[f.name], f, refuse) for f in kinds], schema=kinds), schema


def _names(data: bytes, refuse: Refuse) -> list[str]:
    """Returns the names of the columns, and checks that the file is CSV."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for first in range(0, len(data), io.DEFAULT_BUFFER_SIZE * 128):
        piece = data[first : first + io.DEFAULT_BUFFER_SIZE * 128]
        try:
            decoder.decode(piece, final=first + len(piece) == len(data))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, first + error.start) + 1
            raise refuse(f"line {line:,} is not UTF-8. Save the file as UTF-8.") from None
    if b'"' in data:
        whole = ROWS.match(data)
        assert whole is not None
        if whole.end() < len(data):
            line = data.count(b"\n", 0, whole.end()) + 1
            raise refuse(
                f'in line {line:,} a field in quotes has no end, or text behind its end. Write a quote within a field as "".'
            )
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""))
    names = next((row for row in lines if row), None)
    if names is None:
        raise refuse("the file is empty. Its first row has the names of the columns.")
    for place, name in enumerate(names):
        if not name.strip():
            raise refuse(f"column {place + 1} has no name in the first row. Give each column a name.")
    check_names(names, refuse)
    return names


def _texts(data: bytes, names: list[str], wanted: list[str], refuse: Refuse) -> pa.Table:
    other: list[tuple[int, int]] = []

    def skip(row: arrow_csv.InvalidRow) -> str:
        other.append((row.number - 1, row.actual_columns))
        return "skip"

    found = arrow_csv.read_csv(
        pa.BufferReader(data if data.endswith((b"\n", b"\r")) else data + b"\n"),
        # In one piece, because a row may be as long as the file.
        arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1),
        arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    if other:
        row, fields = other[0]
        others = f" ({count_of(len(other) - 1, 'other row is', 'other rows are')} like it)" if other[1:] else ""
        raise refuse(
            f"row {row:,} has {count_of(fields, 'field')} for {count_of(len(names), 'name')}{others}. "
            f"{COUNTED} Correct the file: a field with a comma is in quotes."
        )
    return found.combine_chunks()


def _inferred(texts: pa.ChunkedArray) -> str:
    """Returns the type of a column, by its texts."""
    if texts.null_count == len(texts):
        return "string"
    for kind, form in INFERRED.items():
        if pc.all(pc.match_substring_regex(texts, f"^{form}$")).as_py() and _holds(kind, texts):
            return kind
    return "string"


def _holds(kind: str, texts: pa.ChunkedArray) -> bool:
    """Returns whether the type holds the numbers with all digits that the texts have."""
    if kind == "bigint":
        try:
            texts.cast(pa.int64())
        except pa.ArrowInvalid:
            return False
    if kind == "double":
        digits = pc.replace_substring_regex(texts, r"^-?[0.]*|[.]", "")
        return bool(pc.max(pc.utf8_length(digits)).as_py() <= DIGITS_OF_A_DOUBLE)
    return True


def _values(texts: pa.ChunkedArray, field: pa.Field, refuse: Refuse) -> pa.ChunkedArray:
    """Returns the values of the field's type that the texts of a column have."""
    if pa.types.is_string(field.type):
        return texts
    if pa.types.is_boolean(field.type):
        texts = pc.ascii_lower(texts)
    column, pieces = _column(field), list[pa.Array]()
    for first in range(0, len(texts), PIECE):
        values = texts.slice(first, PIECE).to_pylist()
        found = column.at_once(values)
        pieces.append(found if found is not None else _one_by_one(column, values, field, first, refuse))
    return pa.chunked_array(pieces, field.type)


def _column(field: pa.Field) -> JsonColumn:
    of_texts = pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)
    return column_of(field.type, field.name) if of_texts else text_column(field.type, field.name)


def _one_by_one(column: JsonColumn, values: list[str | None], field: pa.Field, first: int, refuse: Refuse) -> pa.Array:
    found = []
    for row, value in enumerate(values, first + 1):
        try:
            found.append(None if value is None else column.convert(value, lambda: True))
        except Malformed as malformed:
            raise refuse(
                f"row {row:,}: {malformed}. {COUNTED} Correct the file, or declare {field.name} as string."
            ) from None
    return pa.array(found, column.kind)
