"""The columns that a draft declares and selects, with the sample's values. The module also gives the names that the
draft leaves out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fencepost.drafting.types import LONGEST_NAME, Inferred, infer, refine
from fencepost.formats.column_names import without_case
from fencepost.formats.framing import Malformed
from fencepost.formats.json_decoder import JsonDecoder, parsed_record
from fencepost.formats.rows import Decoder

MOST_COLUMNS = 300
# Words in a field's name that say what its numbers are.
OF_TIME = frozenset(
    "ts time timestamp date datetime epoch at created updated modified deleted expires "
    "ms millis micros ns nanos".split()
)
SECONDS = (631_152_000, 4_102_444_800)  # the years 1990 to 2099: other numbers are unlikely to be times
UNITS = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
YEARS = (-62_135_596_800, 253_402_300_799)  # seconds since 1970: the years 1 to 9999, which formats can express


@dataclass(frozen=True)
class DraftColumn:
    """A field of the source's records. `sql` is the type that the draft declares, or None if the type comes from the
    format or the registry's schema. `type` is the type in Spark in both cases.

    `values` are the values in the sample's good records. `name` is the name in the source, and `output` the name in the
    result. `unit` is the unit of epoch numbers. `time` is the name of the column that epoch numbers are converted to.
    """

    name: str
    sql: str | None
    type: str
    values: Sequence[Any]
    note: str = ""
    output: str = ""
    unit: str = ""
    time: str = ""

    @property
    def words(self) -> list[str]:
        """Returns the words of its name, in lower case."""
        return words_of(self.name)


@dataclass(frozen=True)
class Fields:
    """The fields of a topic, according to a sample: the columns, the names that are left out with the reasons, and
    counts of the sample's records.
    """

    columns: tuple[DraftColumn, ...]
    left_out: Mapping[str, str]
    records: int
    tombstones: int
    malformed: Mapping[str, int]

    @property
    def bad(self) -> int:
        """Returns the number of malformed records."""
        return sum(self.malformed.values())


def words_of(name: str) -> list[str]:
    """Returns the words of a name such as `created_at`, `createdAt` or `created-at`."""
    return [word for word in re.split(r"[\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()) if word]


def json_fields(values: Sequence[bytes | None]) -> Fields:
    """Returns the fields of JSON records. With the types that the draft declares, every record that is an object is
    good.
    """
    objects = [_object(value) for value in values]
    seen = Counter(name for one in objects if one is not None for name in one)
    left_out = undeclarable(seen)
    names = [name for name in seen if name not in left_out]
    most = set(sorted(names, key=lambda name: -seen[name])[:MOST_COLUMNS])
    left_out |= {name: f"beyond {MOST_COLUMNS} columns" for name in names if name not in most}
    types = {name: infer(one.get(name) for one in objects if one is not None) for name in names if name in most}
    sound = [value for value, one in zip(values, objects, strict=True) if one is not None]

    def misfits(tried: Mapping[str, Inferred]) -> Iterator[str]:
        for name, kind in tried.items():
            if any(JsonDecoder(pa.schema([(name, kind.arrow)])).decode_values(sound)[1]):
                yield name

    if any(_decoder(types).decode_values(sound)[1]):
        types = refine(types, misfits)
    declared = {name: (kind.sql, kind.note) for name, kind in types.items()}
    return fields_of(_decoder(types), declared, values, left_out)


def _decoder(types: Mapping[str, Inferred]) -> JsonDecoder:
    return JsonDecoder(pa.schema([(name, kind.arrow) for name, kind in types.items()]))


def _object(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return parsed_record(value)
    except Malformed:
        return None


def fields_of(
    decoder: Decoder,
    declared: Mapping[str, tuple[str | None, str]],
    values: Sequence[bytes | None],
    left_out: Mapping[str, str],
) -> Fields:
    """Returns the columns of the decoder for these records. `declared` has its columns in order, each with a note, and
    with the type to declare if there is one.
    """
    arrays, why = decoder.decode_values(values)
    good = [row for row, reason in enumerate(why) if reason is None and values[row] is not None]
    columns = [
        DraftColumn(name, sql, sql or spark_type(array.type), [array[row].as_py() for row in good], note)
        for array, (name, (sql, note)) in zip(arrays, declared.items(), strict=True)
    ]
    malformed = Counter(reason for reason in why if reason is not None)
    return Fields(named(columns), left_out, len(values), sum(value is None for value in values), malformed)


def spark_type(kind: pa.DataType) -> str:
    """Returns an Arrow type in Spark SQL. It starts no Spark."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()


def undeclarable(names: Mapping[str, int]) -> dict[str, str]:
    """Returns the names that cannot be declared as columns, with the reasons. `names` has the number of records of each
    name. If names differ only in case, the draft declares one of them.
    """
    found, kept = dict[str, str](), dict[str, str]()
    for name in names:
        if why := why_no_column(name):
            found[name] = why
        elif (other := kept.get(without_case(name))) is None:
            kept[without_case(name)] = name
        else:
            rarer = min(other, name, key=lambda one: names[one])
            kept[without_case(name)] = name if rarer == other else other
            found[rarer] = SAME_TO_SPARK
    return found


SAME_TO_SPARK = "to Spark it is the same as another name that differs only in case"


def why_no_column(name: str) -> str | None:
    """Returns the reason why no column can have this name, or None."""
    if name.startswith("_"):
        return "it begins with _"
    if not re.fullmatch(r"\w+", name):
        return "a column's name may have letters, digits and _ only"
    return f"it is longer than {LONGEST_NAME} bytes" if len(name.encode()) > LONGEST_NAME else None


def named(columns: Collection[DraftColumn]) -> tuple[DraftColumn, ...]:
    """Returns the columns with their names in the result, and with the names of the columns that their epoch numbers
    are converted to.
    """
    taken = {without_case(column.name) for column in columns}
    found = []
    for column in columns:
        output, unit, time = column.name, unit_of(column), ""
        if output.startswith("_"):  # a column with this name would not be written
            output = free(output.lstrip("_") or "column", taken)
        if unit:
            time = free(f"{output}_time", taken)
        found.append(replace(column, output=output, unit=unit, time=time))
    return tuple(found)


def free(name: str, taken: set[str]) -> str:
    """Returns the name, or the first similar name that is not taken, and adds it to `taken`."""
    number, found = 1, name
    while without_case(found) in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(without_case(found))
    return found


def unit_of(column: DraftColumn) -> str:
    """Returns the unit of the epoch numbers in a column. The unit is empty unless the column's name suggests times and
    all its numbers fall into a plausible range of years.
    """
    numbers = [value for value in column.values if value is not None and value != 0]
    if not numbers or any(isinstance(value, bool) or not isinstance(value, int) for value in numbers):
        return ""
    if not OF_TIME.intersection(column.words):
        return ""
    first, last = SECONDS
    return next((u for u, n in UNITS.items() if all(first * n <= value <= last * n for value in numbers)), "")
