"""The protocol that each format of records implements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from fencepost.formats.column_names import without_case
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
TAKEN = frozenset("_key _value _topic _partition _offset _timestamp _headers _record _tombstone _malformed".split())
OURS = "_fencepost"  # prefix of Fencepost's other columns
LONGEST_NAME = (
    50_000  # bytes of a key in a map of JSON: Spark also writes longer keys, but cannot read them back to judge them
)
UNKNOWN_ID = "fencepost: a schema id that the plan does not know"


def taken_names(names: Iterable[str]) -> list[str]:
    """Returns those of the names that are taken already. Every transform's source has columns of these names, compared
    without case.
    """
    return sorted(name for name in set(map(without_case, names)) if name in TAKEN or name.startswith(OURS))


def check_written_names(names: Iterable[str]) -> None:
    """Checks that columns with these names can be written.

    Raises:
        BadSchema: names those that cannot.
    """
    if private := [name for name in names if name.startswith("_")]:
        raise BadSchema(
            f"{', '.join(private)}: columns whose names begin with _ are not written, so this would be lost"
        )


def framing_of(schemas: ReadSchemas) -> Framing:
    """Returns the header of records that are read with these schemas."""
    return Framing(frozenset(writer.id for writer in schemas.writers), dict(schemas.refused), UNKNOWN_ID)


def read_rows(raw: DataFrame, fields: StructType, kept: Sequence[str], make: Callable[[], Decoder]) -> DataFrame:
    """Returns the result of `Format.read`. `make` creates a decoder of these fields on the executors."""
    from pyspark.sql import functions as F

    read = raw.select("value", *(F.col(name).alias(f"_{name}") for name in kept if name != "value"))
    return decoded_first(read, fields, make, keep="_value" if "value" in kept else None)


def decoded_first(frame: DataFrame, fields: StructType, make: Callable[[], Decoder], keep: str | None) -> DataFrame:
    """Decodes the frame's first column.

    The result has the decoded fields, the encoded column as `keep` if that is given, the other columns, `_tombstone`
    (whether the value is null) and `_malformed` (the reason, or null). The fields of a tombstone and of a malformed
    record are null.
    """
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    from fencepost.formats.rows import decode_first

    whole, *others = frame.schema.fields
    kept = [] if keep is None else [StructField(keep, whole.dataType)]
    added = [StructField("_tombstone", BooleanType()), StructField("_malformed", StringType())]
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
class Declared:
    """What is declared about a source's values.

    The pipeline's settings give Spark SQL types by column and the columns that must not be null. For a format with a registry
    there are also the schemas that the plan froze.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[str] = ()
    schemas: ReadSchemas | None = None

    @property
    def frozen(self) -> ReadSchemas:
        """Returns the frozen schemas. Only a format with a registry has frozen schemas."""
        assert self.schemas is not None, "a plan of such a pipeline freezes its schemas"
        return self.schemas


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

    def check_columns(self, columns: Collection[str]) -> None:
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


class RegistryKeyFormat(KeyFormat, Protocol):
    """A format of keys with schemas in a registry."""

    def read_key(self, frame: DataFrame, raw: str, into: str, schemas: ReadSchemas) -> DataFrame:
        """Returns the frame with the column `into`, which has the decoded keys of the binary column `raw`. The column
        `<into>_malformed` has the reason why a key cannot be decoded.

        A null is no key and is not malformed. A key with an id that the schemas do not know fails the job, with
        `UNKNOWN_ID`. The frame must not have a column `_tombstone` or `_malformed`.
        """


class RegistryFormat(Format, Protocol):
    """A format whose schemas are in a registry. A plan freezes the schema texts that these methods return."""

    schema_type: str  # the registry's name for it

    def reader(
        self, text: str, references: Sequence[SchemaReference], declared: Collection[str], *, columns: bool
    ) -> str:
        """Returns the schema that records are read with. With `columns` its fields become a transform's columns. The
        fields in `declared` have their types from the pipeline's settings.

        Raises:
            BadSchema: Spark cannot hold its values.
        """

    def writer(self, text: str, references: Sequence[SchemaReference], reader: str) -> str:
        """Returns how records written with a schema become records of the reader's schema.

        Raises:
            ValueError: they cannot.
        """

    def written(self, text: str, references: Sequence[SchemaReference], *, columns: bool) -> str:
        """Returns the schema that records are written with. With `columns` its fields are a transform's columns.

        Raises:
            BadSchema: Spark cannot hold its values, or no row can be one.
        """

    def fields(self, schema: RegisteredSchema) -> list[str]:
        """Returns the names of the outermost fields of a reader's schema."""

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
