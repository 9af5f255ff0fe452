"""The protocol that each format of records implements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from fencepost.formats.framing import Framing
from fencepost.formats.names import without_case
from fencepost.model import ReadSchemas, RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from fencepost.formats.rows import Decoder


class Unfit(ValueError):
    """A transform's result cannot be written in this format; the text names the column and the fix."""


class BadSchema(ValueError):
    """A schema that is none of its format's, or that Spark cannot hold. The text names the place, for a person."""


# The columns of a transform's source beside a record's fields.
TAKEN = frozenset("_key _value _topic _partition _offset _timestamp _headers _record _tombstone _malformed".split())
OURS = "_fencepost"  # how our own other columns begin
LONGEST_NAME = (
    50_000  # bytes of a key in a map of JSON: Spark writes longer ones too, but cannot read them back to judge them
)
UNKNOWN_ID = "fencepost: a schema id that the plan does not know"


def taken_names(names: Iterable[str]) -> list[str]:
    """Those of the names, without case, that a column of every transform's source has already."""
    return sorted(name for name in set(map(without_case, names)) if name in TAKEN or name.startswith(OURS))


def check_written_names(names: Iterable[str]) -> None:
    """Check that a transform's columns may be fields of these names.

    Raises:
        BadSchema: names those that may not.
    """
    if private := [name for name in names if name.startswith("_")]:
        raise BadSchema(
            f"{', '.join(private)}: columns whose names begin with _ are not written, so this would be lost"
        )


def framing_of(schemas: ReadSchemas) -> Framing:
    """What is in front of the records that are read with these."""
    return Framing(frozenset(writer.id for writer in schemas.writers), dict(schemas.refused), UNKNOWN_ID)


def read_rows(raw: DataFrame, fields: StructType, kept: Sequence[str], make: Callable[[], Decoder]) -> DataFrame:
    """What `Format.read` gives, by a decoder of these fields that executors make."""
    from pyspark.sql import functions as F

    read = raw.select("value", *(F.col(name).alias(f"_{name}") for name in kept if name != "value"))
    return decoded_first(read, fields, make, keep="_value" if "value" in kept else None)


def decoded_first(frame: DataFrame, fields: StructType, make: Callable[[], Decoder], keep: str | None) -> DataFrame:
    """A frame whose first column is decoded: these fields, itself under the name `keep` if there is one, the other columns,
    `_tombstone` (it is null) and `_malformed` (why it is malformed, or null). The fields of either are null."""
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    from fencepost.formats.rows import decode_first

    whole, *others = frame.schema.fields
    kept = [] if keep is None else [StructField(keep, whole.dataType)]
    added = [StructField("_tombstone", BooleanType()), StructField("_malformed", StringType())]
    result = StructType([*fields.fields, *kept, *others, *added])
    return frame.mapInArrow(decode_first(make, result.fieldNames(), keep=keep is not None), result)


@dataclass(frozen=True)
class SchemaReference:
    """A schema that another one refers to, by a name that only that one knows it by; and those that it refers to itself."""

    name: str
    text: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True)
class Declared:
    """What is known of a source's values: Spark SQL types by column and the columns that must not be null, from the pipeline's
    settings; and, for a format with a registry, the schemas that the plan froze."""

    types: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[str] = ()
    schemas: ReadSchemas | None = None

    @property
    def frozen(self) -> ReadSchemas:
        """The schemas, for a format with a registry."""
        assert self.schemas is not None, "a plan of such a pipeline freezes its schemas"
        return self.schemas


@dataclass(frozen=True)
class Encoded:
    """Columns that hold bytes, and why a row has none: a text, or null for a row that fits.

    The bytes of a row that does not fit are null. `unfit` is None where every row fits.
    """

    data: Column
    unfit: Column | None = None


class Format(Protocol):
    """Reads, checks, writes and parses back a record's value.

    `schema` is the registered schema that the values are written with, for a format that `has_registry`; others get None.
    """

    has_registry: bool

    def check_columns(self, columns: Collection[str]) -> None:
        """Refuse columns that the format does not use, or missing columns that it needs.

        Raises:
            ValueError: says what is wrong, for a person.
        """

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        """The connector's rows as the source's columns, the `kept` ones (with `_` in front), `_tombstone` and `_malformed`.

        The record's own value may be kept too, as `_value`.

        `_malformed` is the reason why a record does not fit, as text, or null; the columns of such a record are null. A null
        value is a tombstone, not malformed, and its columns are null.
        """

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        """The value of these fields of a transform's result.

        Raises:
            Unfit: the format cannot express a column.
        """

    def said(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
        """The frame's columns that `parse` gets back from what `write` writes."""

    def parse(
        self,
        raw: DataFrame,
        fields: StructType,
        beside: Sequence[Column],
        schema: RegisteredSchema | None,
        why: str | None = None,
    ) -> DataFrame:
        """Values from `write` as fields again, with the columns `beside` them. A value that does not parse fails the job.

        With `why`, that column follows, with the reason why a value does not parse, or null; no such value fails the job then.
        Of a format with a registry each value has to begin with the schema's id, or be null.
        """


class KeyFormat(Protocol):
    """Writes a record's key: one column of a transform's result. `schema` as for a value."""

    def write_key(self, frame: DataFrame, name: str, schema: RegisteredSchema | None) -> Encoded:
        """The key that this column gives; null where it is null.

        Raises:
            Unfit: the format cannot express the column.
        """


class RegistryKeyFormat(KeyFormat, Protocol):
    """A format of keys that are more than bytes: their schemas are in a registry."""

    def read_key(self, frame: DataFrame, raw: str, into: str, schemas: ReadSchemas) -> DataFrame:
        """The frame with the keys in the binary column `raw` as the column `into`, and `<into>_malformed`: why there is none.

        A null is neither a key nor malformed. A key with an id that the schemas do not know fails the job, with `UNKNOWN_ID`.
        The frame has no column `_tombstone` or `_malformed`.
        """


class RegistryFormat(Format, Protocol):
    """A format whose schemas are in a registry. What it gives as a schema's text is what a plan freezes."""

    schema_type: str  # as the registry names it

    def reader(
        self, text: str, references: Sequence[SchemaReference], declared: Collection[str], *, columns: bool
    ) -> str:
        """The schema that records are read with; `columns`: its fields become a transform's. The fields `declared` have their
        types from the pipeline's settings.

        Raises:
            BadSchema: Spark cannot hold its values.
        """

    def writer(self, text: str, references: Sequence[SchemaReference], reader: str) -> str:
        """How records that were written with a schema become the reader's.

        Raises:
            ValueError: they cannot.
        """

    def written(self, text: str, references: Sequence[SchemaReference], *, columns: bool) -> str:
        """The schema that records are written with; `columns`: its fields are a transform's.

        Raises:
            BadSchema: Spark cannot hold its values, or no row can be one.
        """

    def fields(self, schema: RegisteredSchema) -> list[str]:
        """The names of the outermost fields of a reader's schema."""

    def check_fits(self, kind: DataType, schema: RegisteredSchema) -> None:
        """Check that a column of this type can be written with a schema, as far as types tell. Needs a Spark session.

        Raises:
            Unfit: names the field of the schema, or the column, and the fix.
        """

    def derive(self, kind: DataType, name: str, like: str | None) -> str:
        """A schema for a column of this type, to be registered. What fits `like`, an earlier schema, keeps its type there.

        Raises:
            Unfit: the format has no such type.
        """

    def difference(self, new: str, old: str) -> str:
        """What of two schemas may be incompatible, for a person; empty if it cannot say."""
