"""The columns that a draft declares and selects, with the sample's values. The module also gives the fields that the
draft leaves out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fencepost.config.source import Source, SourceColumn
from fencepost.config.sql_types import without_not_null
from fencepost.drafting.decoders import decoder_of_json, with_columns
from fencepost.drafting.names import column_names, free, similar, why_not_read
from fencepost.drafting.types import Inferred, infer, refine
from fencepost.formats.column_names import without_case
from fencepost.formats.epochs import INFINITIES
from fencepost.formats.framing import ExcludedKind, Malformed
from fencepost.formats.json_decoder import parsed_record
from fencepost.formats.rows import Decoder

MOST_COLUMNS = 300
# Words in a field's name that say what its numbers are.
OF_TIME = frozenset(
    "ts time timestamp date datetime epoch at created updated modified deleted expires "
    "ms millis micros ns nanos".split()
)
SECONDS = (631_152_000, 4_102_444_800)  # the years 1990 to 2099: other numbers are unlikely to be times
INFINITE = frozenset[int]().union(*INFINITIES.values())
UNITS = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
YEARS = (-62_135_596_800, 253_402_300_799)  # seconds since 1970: the years 1 to 9999, which formats can express
# Debezium's mark of a deleted row in a flattened topic, which has no envelope.
DELETED, BOOLEAN_IN_TEXT = "__deleted", SourceColumn.model_validate({"type": "boolean", "from": "text"})


@dataclass(frozen=True)
class DraftColumn:
    """A column of the source. `declared` is what the draft declares about it, or None if the format or the registry's
    schema says it all. `type` is the type in Spark in both cases.

    `values` are the values in the sample's good records. `name` is the name in the source, `field` the field's name in
    the record, and `output` the name in the result. `unit` is the unit of epoch numbers. `time` is the name of the column
    that epoch numbers are converted to.
    """

    name: str
    declared: SourceColumn | None
    type: str
    values: Sequence[Any]
    note: str = ""
    output: str = ""
    unit: str = ""
    time: str = ""

    @property
    def field(self) -> str:
        """Returns the name of its field in the record."""
        return self.name if self.declared is None or self.declared.field is None else self.declared.field

    @property
    def sql(self) -> str | None:
        """Returns the type that the draft declares, or None."""
        return None if self.declared is None else self.declared.type

    @property
    def words(self) -> list[str]:
        """Returns the words of its field's name, in lower case."""
        return words_of(self.field)


@dataclass(frozen=True)
class KnownField:
    """What the schema in a topic's records says about a field: how to declare its column, and a note for a person."""

    declared: SourceColumn
    note: str = ""


@dataclass(frozen=True)
class Fields:
    """The fields of a topic, according to a sample: the columns, the fields that are left out with the reasons, and
    counts of the sample's records. `excluded` records are none that the source reads. `notes` are sentences for a person.
    """

    columns: tuple[DraftColumn, ...]
    left_out: Mapping[str, str]
    records: int
    tombstones: int
    malformed: Mapping[str, int]
    excluded: int = 0
    notes: tuple[str, ...] = ()

    @property
    def bad(self) -> int:
        """Returns the number of malformed records."""
        return sum(self.malformed.values())

    @property
    def good(self) -> int:
        """Returns the number of records that have a row."""
        return self.records - self.tombstones - self.bad - self.excluded


def words_of(name: str) -> list[str]:
    """Returns the words of a name such as `created_at`, `createdAt` or `created-at`."""
    return [word for word in re.split(r"[\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()) if word]


def json_fields(values: Sequence[bytes | None]) -> Fields:
    """Returns the fields of JSON records. With the types that the draft declares, every record that is an object is
    good.
    """
    rows = [object_in(value) for value in values]
    said = {row[DELETED] for row in rows if row is not None and isinstance(row.get(DELETED), str)}
    known = {DELETED: KnownField(BOOLEAN_IN_TEXT)} if said and said <= {"true", "false"} else None
    return inferred_fields(values, rows, Source.model_construct(topic="", format="json"), known)


def inferred_fields(
    values: Sequence[bytes | None],
    rows: Sequence[Mapping[str, Any] | None],
    source: Source,
    known: Mapping[str, KnownField] | None = None,
) -> Fields:
    """Returns the columns of records with these rows. A row is the object with the columns' fields, or None for a record
    whose fields say nothing.

    `source` reads the records, once it has columns. `known` has the fields whose types need not be inferred, because the
    records' schema has them.
    """
    known = dict(known or {})
    seen = Counter(dict.fromkeys(known, 0))
    seen.update(name for row in rows if row is not None for name in row)
    left_out = {name: why for name in seen if (why := why_not_read(name)) is not None}
    names = [name for name in seen if name not in left_out]
    most = set(sorted(names, key=lambda name: -seen[name])[:MOST_COLUMNS])
    left_out |= {name: f"beyond {MOST_COLUMNS} columns" for name in names if name not in most}
    columns = column_names({name: seen[name] for name in names if name in most})
    types = {name: infer(row.get(name) for row in rows if row is not None) for name in columns if name not in known}
    sound = [value for value, row in zip(values, rows, strict=True) if row is not None]

    def decoder(tried: Mapping[str, Inferred]) -> Decoder:
        found = {name: SourceColumn(type=kind.sql) for name, kind in tried.items()}
        return decoder_of_json(with_columns(source, _columns(found, columns)))

    def misfits(tried: Mapping[str, Inferred]) -> Iterator[str]:
        for name, kind in tried.items():
            if any(decoder({name: kind}).decode_values(sound)[1]):
                yield name

    if any(decoder(types).decode_values(sound)[1]):
        types = refine(types, misfits)
    found = known | {name: KnownField(SourceColumn(type=kind.sql), kind.note) for name, kind in types.items()}
    drafted = _columns({name: found[name].declared for name in columns}, columns)
    declared = {columns[name]: (drafted[columns[name]], found[name].note) for name in columns}
    whole = decoder_of_json(with_columns(source, drafted))
    return fields_of(whole, declared, values, left_out, times=source.envelope is None)


def _columns(declared: Mapping[str, SourceColumn], columns: Mapping[str, str]) -> dict[str, SourceColumn]:
    """Returns the columns of these fields, each under its own name."""
    return {
        columns[field]: one if columns[field] == field else one.model_copy(update={"field": field})
        for field, one in declared.items()
    }


def object_in(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return parsed_record(value)
    except Malformed:
        return None


def fields_of(
    decoder: Decoder,
    declared: Mapping[str, tuple[SourceColumn | None, str]],
    values: Sequence[bytes | None],
    left_out: Mapping[str, str],
    *,
    times: bool = True,
) -> Fields:
    """Returns the columns of the decoder for these records. `declared` has its columns in order, each with what the draft
    declares about it, if anything, and a note.
    """
    arrays, why = decoder.decode_values(values)
    good = [row for row, reason in enumerate(why) if reason is None and values[row] is not None]
    columns = [
        DraftColumn(name, one, _type(one, array), [array[row].as_py() for row in good], note)
        for array, (name, (one, note)) in zip(arrays, declared.items(), strict=False)  # an envelope's columns follow
    ]
    excluded = sum(isinstance(reason, ExcludedKind) for reason in why)
    malformed = Counter(reason for reason in why if reason is not None and not isinstance(reason, ExcludedKind))
    tombstones = sum(value is None and reason is None for value, reason in zip(values, why, strict=True))
    return Fields(named(columns, times=times), left_out, len(values), tombstones, malformed, excluded)


def _type(declared: SourceColumn | None, array: pa.Array) -> str:
    return spark_type(array.type) if declared is None or declared.type is None else without_not_null(declared.type)


def spark_type(kind: pa.DataType) -> str:
    """Returns an Arrow type in Spark SQL. It starts no Spark."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()


def named(columns: Collection[DraftColumn], *, times: bool = True) -> tuple[DraftColumn, ...]:
    """Returns the columns with their names in the result. With `times` they also get the names of the columns that their
    epoch numbers are converted to.
    """
    taken = {without_case(column.name) for column in columns}
    found = []
    for column in columns:
        output, unit, time = column.name, unit_of(column) if times else "", ""
        if output.startswith("_"):  # a column with this name would not be written
            output = free(similar(output), taken)
        if unit:
            time = free(f"{output}_time", taken)
        found.append(replace(column, output=output, unit=unit, time=time))
    return tuple(found)


def unit_of(column: DraftColumn) -> str:
    """Returns the unit of the epoch numbers in a column. The unit is empty unless the column's name suggests times and
    all its numbers fall into a plausible range of years.
    """
    return unit_among(column.values) if OF_TIME.intersection(column.words) else ""


def unit_among(values: Sequence[Any]) -> str:
    """Returns the unit under which all these numbers are times of a plausible range of years. The unit is empty if there
    is none. A 0 does not count, and neither does a number that stands for an infinity.
    """
    given = [value for value in values if value is not None]
    if any(isinstance(value, bool) or not isinstance(value, int) for value in given):
        return ""
    numbers = [value for value in given if value != 0 and value not in INFINITE]
    if not numbers:
        return ""
    first, last = SECONDS
    return next((u for u, n in UNITS.items() if all(first * n <= value <= last * n for value in numbers)), "")
