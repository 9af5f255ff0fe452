"""What is declared about a source's values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from fencepost.model import ReadSchemas

# The encodings of a field's value, and the types of column that each gives.
TIMES = ("timestamp", "timestamp_ntz")
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
ENCODINGS: Mapping[str, Collection[str]] = {
    "epoch_seconds": TIMES,
    "epoch_millis": TIMES,
    "epoch_micros": TIMES,
    "epoch_nanos": TIMES,
    "epoch_days": ("date",),
    "base64": ("decimal",),
    "text": (*NUMBERS, "boolean"),
}
PLAIN = ""  # no encoding: the value has the usual form of its type
WITH_INFINITIES = (*TIMES, "date", "float", "double")
FINER = ("epoch_nanos", PLAIN)  # encodings of times that may have digits below the microsecond


@dataclass(frozen=True)
class Encoding:
    """How a field has the value of a column. `name` is one of `ENCODINGS`, or `PLAIN`.

    With `truncates`, digits below the microsecond are cut off, towards the past. Without it a value with such digits is
    malformed. With `infinity_is_null` an infinity is read as null. Without it an infinity is malformed.
    """

    name: str = PLAIN
    truncates: bool = False
    infinity_is_null: bool = False

    def check(self, kind: str) -> None:
        """Checks that a column of this type can have the encoding. The type is one of Spark SQL's names, without
        arguments.

        Raises:
            ValueError: says what does not suit the type.
        """
        if self.name and kind not in ENCODINGS[self.name]:
            suited = " or ".join(name for name, kinds in ENCODINGS.items() if kind in kinds)
            raise ValueError(
                f"from: {self.name} gives {' or '.join(ENCODINGS[self.name])}, and the type is {kind}"
                + (f", which takes {suited}" if suited else "")
            )
        if self.truncates and not (kind in TIMES and self.name in FINER):
            raise ValueError(
                "digits: truncate is for a time that may have digits below the microsecond: a timestamp or timestamp_ntz as "
                "a text, or from epoch_nanos"
            )
        infinite = kind in WITH_INFINITIES or (kind == "decimal" and self.name == "text")
        if self.infinity_is_null and not infinite:
            raise ValueError(
                f"infinity: null is for {', '.join(WITH_INFINITIES)}, and for a decimal from text: {kind} has none"
            )


@dataclass(frozen=True)
class FieldOf:
    """The field of a record that a column is read from. `encoding` is how the field has the value, or None if it has
    the usual form of the column's type.
    """

    name: str
    encoding: Encoding | None = None


@dataclass(frozen=True)
class Envelope:
    """Says that each value is a Debezium envelope.

    `captured_table` is the only table whose changes are read, as in Debezium's `table.include.list`, or None for all. `key` has
    the names of the fields that the record's key has, which are all that a deletion is sure to have.
    """

    captured_table: str | None = None
    key: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Only:
    """The types of the records that a source reads: the values of a field, or the names of schemas if `field` is None."""

    field: str | None
    values: tuple[str, ...]


@dataclass(frozen=True)
class Declared:
    """What is declared about a source's values.

    The pipeline's settings give Spark SQL types by column, the columns that must not be null, and the fields of those
    columns that are not named as their field or have an encoding. A column in `fields` alone has the type that the
    registry's schema gives its field. `only` has the types of the records that are read, or None if all are. Without
    `envelope` a value is a row. For a format with a registry there are also the schemas that the plan froze.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[str] = ()
    fields: Mapping[str, FieldOf] = field(default_factory=dict)
    only: Only | None = None
    envelope: Envelope | None = None
    schemas: ReadSchemas | None = None

    def field_of(self, column: str) -> str:
        """Returns the name of the field that a column is read from."""
        return self.fields[column].name if column in self.fields else column

    def with_registered_types(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Returns the columns whose types the registry's schema gives, each with its field. `names` are the schema's
        fields. A field that the settings name is read in their columns alone, and any other in a column of its name.
        """
        typed = {self.field_of(column) for column in self.types}
        columns = dict[str, list[str]]()
        for column, one in self.fields.items():
            if column not in self.types:
                columns.setdefault(one.name, []).append(column)
        found = list[tuple[str, str]]()
        for name in names:
            found += [(column, name) for column in columns.get(name, () if name in typed else (name,))]
        return found

    @property
    def frozen(self) -> ReadSchemas:
        """Returns the frozen schemas. Only a format with a registry has frozen schemas."""
        assert self.schemas is not None, "a plan of such a pipeline freezes its schemas"
        return self.schemas

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the schemas in `only`. There are none for a format without a registry, or if all records
        are read.
        """
        return () if self.only is None or self.only.field is not None else self.only.values

    def under(self, schemas: ReadSchemas | None) -> Self:
        """Returns the same with these frozen schemas."""
        return replace(self, schemas=schemas)

    def of(self, names: Collection[str] | None) -> Self:
        """Returns the same with these columns only, or with all of them for None."""
        if names is None:
            return self
        types = {name: kind for name, kind in self.types.items() if name in names}
        return replace(self, types=types, required=[name for name in self.required if name in names])


NOTHING_DECLARED = Declared()
