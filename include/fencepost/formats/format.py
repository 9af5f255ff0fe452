"""The protocol that each format of records implements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fencepost.formats.column_names import without_case
from fencepost.formats.declared import Declared, Envelope
from fencepost.formats.envelope import COLUMNS
from fencepost.formats.framing import Framing
from fencepost.model import ReadSchemas, RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from fencepost.formats.rows import Decoder


class Unfit(ValueError):
    """A transform's result cannot be written in this format. The text names the column and the fix."""


class BadSchema(ValueError):
    """A schema is invalid in its format, or Spark cannot hold its values. The text names the place."""


# The columns of a transform's source beside the record's fields.
TAKEN = frozenset(
    "_key _value _topic _partition _offset _timestamp _headers _record _tombstone _malformed _excluded".split()
)
OURS = "_fencepost"  # prefix of Fencepost's other columns
OF_KEY = "_key_"  # prefix of the columns with the fields of keys
LONGEST_NAME = (
    50_000  # bytes of a key in a map of JSON: Spark also writes longer keys, but cannot read them back to judge them
)
UNKNOWN_ID = "fencepost: a schema id that the plan does not know"


def taken_names(names: Iterable[str], envelope: Envelope | None = None) -> list[str]:
    """Returns those of the names that are taken already. Every transform's source has columns of these names, compared
    without case. With `envelope` it has more.
    """
    taken = TAKEN if envelope is None else TAKEN.union(COLUMNS)
    return sorted(name for name in set(map(without_case, names)) if name in taken or name.startswith((OURS, OF_KEY)))


def check_written_names(names: Iterable[str]) -> None:
    """Checks that columns with these names can be written.

    Raises:
        BadSchema: names those that cannot.
    """
    if private := sorted(name for name in names if name.startswith("_")):
        raise BadSchema(
            f"{', '.join(private)}: columns whose names begin with _ are not written, so this would be lost. Write a column of "
            f"another name there: `output.fields: {{other_name: {private[0]}}}`"
        )


def enveloped(row: DataType) -> StructType:
    """Returns the columns of a row in Debezium's envelope: its own, and those of the envelope (`COLUMNS`). `envelope.py`
    gives the fields of `_source` in this order.
    """
    from pyspark.sql import types as T

    assert isinstance(row, T.StructType), "a row has columns"
    source = [T.StructField("ts", T.TimestampType()), T.StructField("lsn", T.LongType())]
    source += [T.StructField(name, T.StringType()) for name in ("position", "db", "table", "snapshot")]
    kinds = (T.StringType(), T.StructType(source))
    beside = [T.StructField(name, kind) for name, kind in zip(COLUMNS, kinds, strict=True)]
    return T.StructType([*row.fields, *beside])


def framing_of(schemas: ReadSchemas) -> Framing:
    """Returns the header of records that are read with these schemas."""
    known = frozenset(writer.id for writer in schemas.writers)
    return Framing(known, dict(schemas.refused), UNKNOWN_ID, frozenset(schemas.others))


def read_rows(raw: DataFrame, fields: StructType, kept: Sequence[str], make: Callable[[], Decoder]) -> DataFrame:
    """Returns the result of `Format.read`. `make` creates a decoder of these fields on the executors."""
    from pyspark.sql import functions as F

    read = raw.select("value", *(F.col(name).alias(f"_{name}") for name in kept if name != "value"))
    return decoded_first(read, fields, make, keep="_value" if "value" in kept else None)


def decoded_first(frame: DataFrame, fields: StructType, make: Callable[[], Decoder], keep: str | None) -> DataFrame:
    """Decodes the frame's first column.

    The result has the decoded fields, the encoded column as `keep` if that is given, the other columns, `_tombstone`
    (whether the value is null), `_malformed` (the reason, or null) and `_excluded` (the kind of a record that the source
    does not read, or null). The fields of a tombstone, a malformed and an excluded record are null.
    """
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    from fencepost.formats.rows import decode_first

    whole, *others = frame.schema.fields
    kept = [] if keep is None else [StructField(keep, whole.dataType)]
    added = [StructField("_tombstone", BooleanType()), StructField("_malformed", StringType())]
    added.append(StructField("_excluded", StringType()))
    result = StructType([*fields.fields, *kept, *others, *added])
    return frame.mapInArrow(decode_first(make, result.fieldNames(), keep=keep is not None), result)


@dataclass(frozen=True)
class SchemaReference:
    """A schema that another schema refers to, with the name that the other schema uses for it. The referred schema may
    have references too.
    """

    name: str
    text: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True)
class Encoded:
    """Columns that hold bytes, and a reason for each row that could not be encoded. The reason is a text, or null for a
    row that fits.

    The bytes of a row that does not fit are null. `unfit` is None if every row fits.
    """

    data: Column
    unfit: Column | None = None


class Format(Protocol):
    """Reads, checks, writes and parses back a record's value.

    `schema` is the registered schema that values are written with, for a format that `has_registry`. Other formats get
    None.
    """

    has_registry: bool

    def check_columns(self, declared: Declared) -> None:
        """Refuses columns that the format does not use, and the lack of columns that it needs.

        Raises:
            ValueError: says what is wrong, for a person.
        """

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        """Returns the connector's rows with the source's columns, the `kept` columns (with `_` in front of their
        names), `_tombstone` and `_malformed`.

        The record's encoded value may be kept too, as `_value`.

        `_malformed` is the reason why a record does not fit, as text, or null. The columns of such a record are null. A null
        value is a tombstone and not malformed, and its columns are null.
        """

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        """Returns the value of these fields of a transform's result.

        Raises:
            Unfit: the format cannot express a column.
        """

    def written_columns(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
        """Returns the frame's columns with the values that a reader gets: `write` encodes them and `parse` decodes
        them.
        """

    def parse(
        self,
        raw: DataFrame,
        fields: StructType,
        beside: Sequence[Column],
        schema: RegisteredSchema | None,
        why: str | None = None,
    ) -> DataFrame:
        """Returns the fields in the values that `write` encoded, with the columns `beside` them. A value that cannot be
        parsed fails the job.

        With `why`, such a value does not fail the job. A column of that name then has the reason, or null. In a format
        with a registry each value has to begin with the schema's id, or be null.
        """


class KeyFormat(Protocol):
    """Writes a record's key from one column of a transform's result. `schema` is as for a value."""

    def write_key(self, frame: DataFrame, name: str, schema: RegisteredSchema | None) -> Encoded:
        """Returns the key that this column gives, or null if it is null.

        Raises:
            Unfit: the format cannot express the column.
        """


def malformed_key(into: str) -> str:
    """Returns the column with the reasons of malformed keys. `into` is as for `ReadKeyFormat.read_key`."""
    return f"malformed_{into}"


class ReadKeyFormat(Protocol):
    """Reads the keys of records."""

    def read_key(self, frame: DataFrame, raw: str, into: str, declared: Declared) -> DataFrame:
        """Returns the frame with a column `<into>_<name>` for each declared field of the keys in the binary column `raw`. The
        column `malformed_key(into)` has the reason why a key cannot be decoded. A format with a registry adds the column
        `into`, which has the decoded keys.

        A null is no key and is not malformed. A key with an id that the schemas do not know fails the job, with
        `UNKNOWN_ID`. The frame must not have a column `_tombstone`, `_malformed` or `_excluded`.

        Raises:
            BadSchema: a field is declared with another type than the schema's.
        """


class RegistryKeyFormat(KeyFormat, ReadKeyFormat, Protocol):
    """A format of keys with schemas in a registry."""


class RegistryFormat(Format, Protocol):
    """A format whose schemas are in a registry. A plan freezes the schema texts that these methods return."""

    schema_type: str  # the registry's name for it

    def record_types(self, text: str) -> frozenset[str]:
        """Returns the names of the types of records that a schema is for. Its references, and the types of its fields, may
        be missing or unreadable.

        Raises:
            BadSchema: the schema does not say.
        """

    def reader(self, text: str, references: Sequence[SchemaReference], declared: Declared, *, columns: bool) -> str:
        """Returns the schema that records are read with. With `columns` its fields become a transform's columns, by
        what the pipeline's settings have declared about them.

        Raises:
            BadSchema: Spark cannot hold its values, it reads no record of a type in `declared.only`, or it is no schema of an
                envelope, and the declared records are.
        """

    def writer(self, text: str, references: Sequence[SchemaReference], reader: str, declared: Declared) -> str:
        """Returns how records written with a schema become records of the reader's schema. Records of other types than
        those in `declared.only`, or of other tables, need not become such records.

        Raises:
            ValueError: they cannot.
        """

    def written(
        self, text: str, references: Sequence[SchemaReference], *, columns: bool, mapped: Collection[str] = ()
    ) -> str:
        """Returns the schema that records are written with. With `columns` its fields are a transform's columns. The
        fields in `mapped` are written from columns of other names.

        Raises:
            BadSchema: Spark cannot hold its values, or no row can be one.
        """

    def fields(self, schema: RegisteredSchema, declared: Declared) -> list[str]:
        """Returns the names of the fields of a reader's schema that are columns."""

    def check_fits(self, kind: DataType, schema: RegisteredSchema) -> None:
        """Checks that a column of this type can be written with a schema, as far as types show. Needs a Spark session.

        Raises:
            Unfit: names the field of the schema, or the column, and the fix.
        """

    def derive(self, kind: DataType, name: str, like: str | None) -> str:
        """Returns a schema to register for a column of this type. `like` is an earlier schema. Where the column's type
        fits `like`, the result keeps the type of `like`.

        Raises:
            Unfit: the format has no such type.
        """

    def difference(self, new: str, old: str) -> str:
        """Describes what may be incompatible between two schemas. The text is empty if that is not known."""
