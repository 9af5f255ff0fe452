"""The section `tables` of `pipeline.yaml`: the side tables in which a transform looks something up.

This module does not import Spark, Airflow or Great Expectations, because Airflow's DAG processor loads it every few seconds.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fencepost.config.sections import (
    ColumnType,
    FormatName,
    Mark,
    Section,
    Subject,
    TopicName,
    Version,
)
from fencepost.config.source import JSON_KEYS, SOURCE, Source, SourceColumn, SourceKeyFormat
from fencepost.config.sql_types import SIMPLE, is_required, parse_sql_type, without_not_null
from fencepost.config.table_server import TableServer, server_of
from fencepost.formats.column_names import twins

TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
NO_KEY = "none"  # in YAML, of a table whose rows have no key
FILE_FORMATS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}  # by a file's ending
IN_TEXTS = SIMPLE - {"binary"} | {"decimal"}  # the types that a column of a CSV file may have
MOST_MEGABYTES = 1024  # of one table; a larger one does not belong into every executor's memory


def _key(value: object) -> object:
    """Returns the names of a key's columns. In YAML a text is one column, and `none` is no key."""
    if value is None:
        raise ValueError(f"left empty; give a column, a list of columns, or {NO_KEY}")
    if value == NO_KEY:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and not value:
        raise ValueError(f"an empty list; give a column, a list of columns, or {NO_KEY}")
    return value


class SideTableSettings(Section):
    """The settings that every side table has.

    No two rows have the same values in the columns `key`, and none of the values is null. If `key` is empty, the table
    has no key, and `none` is in the YAML. `max_megabytes` limits the content as it is read and as it is in memory, in
    units of 1024 * 1024 bytes.
    """

    kind: ClassVar[str]  # the setting that makes a table one of this kind

    key: Annotated[tuple[str, ...], BeforeValidator(_key)]
    not_empty: Annotated[bool, Mark.DECIDES_NO_RECORD] = True
    max_megabytes: Annotated[int, Mark.DECIDES_NO_RECORD] = Field(default=64, ge=1, le=MOST_MEGABYTES)

    @field_validator("key")
    @classmethod
    def _no_column_twice(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if both := twins(key):
            raise ValueError(f"{both[0]} and {both[1]} are the same column")
        return key

    @property
    def most_bytes(self) -> int:
        """Returns the limit in bytes."""
        return self.max_megabytes * 1024 * 1024

    @property
    def description(self) -> str:
        """Returns where the table is, for a person, for example `file airlines.csv`."""
        raise NotImplementedError


class WithColumns(SideTableSettings):
    """A side table whose columns may be declared by Spark SQL type. Without a declaration, the types are inferred."""

    columns: dict[str, ColumnType] = Field(default_factory=dict, alias="schema")

    @field_validator("columns")
    @classmethod
    def _distinct(cls, columns: dict[str, str]) -> dict[str, str]:
        if both := twins(columns):
            raise ValueError(f"columns {both[0]!r} and {both[1]!r} differ only in case: to Spark they are the same")
        return columns

    @model_validator(mode="after")
    def _key_is_declared(self) -> Self:
        if self.columns and (missing := [name for name in self.key if name not in self.columns]):
            raise ValueError(f"key: {missing[0]} is not in schema; the columns are {', '.join(self.columns)}")
        return self

    @property
    def types(self) -> dict[str, str]:
        """Returns the Spark SQL types of the declared columns."""
        return {name: without_not_null(kind) for name, kind in self.columns.items()}

    @property
    def required(self) -> tuple[str, ...]:
        """Returns the columns that are declared `not null`."""
        return tuple(name for name, kind in self.columns.items() if is_required(kind))


class FileTable(WithColumns):
    """A file in the pipeline's folder. Its ending says whether it is CSV, JSON lines or Parquet."""

    kind: ClassVar[str] = "file"

    file: str

    @field_validator("file")
    @classmethod
    def _in_the_folder(cls, file: str) -> str:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\0" in file or not path.parts:
            raise ValueError("give the path of a file in the pipeline's folder, without ..")
        if path.suffix not in FILE_FORMATS:
            raise ValueError(f"the name ends with {', '.join(FILE_FORMATS)}, which says how the file is read")
        return file

    @model_validator(mode="after")
    def _schema_suits_the_format(self) -> Self:
        if self.format == "json" and not self.columns:
            raise ValueError("a file of JSON lines needs a schema: a mapping of field name to Spark SQL type")
        if self.format == "csv":
            for name, kind in self.types.items():
                if parse_sql_type(kind).name not in IN_TEXTS:
                    raise ValueError(
                        f"schema: column {name} is {kind}, and a CSV file has texts; declare string, or give a JSON lines or "
                        "Parquet file"
                    )
        return self

    @property
    def format(self) -> str:
        """Returns csv, json or parquet."""
        return FILE_FORMATS[PurePosixPath(self.file).suffix]

    @property
    def description(self) -> str:
        return f"file {self.file}"

    def path(self, folder: Path) -> Path:
        """Returns the path of the file in this folder of a pipeline."""
        return folder / self.file


class TopicTable(SideTableSettings):
    """A topic whose newest record for each Kafka key is a row. A tombstone removes the row of its key.

    The settings of records have the names of a source's. Only the fields of the record's key are `key_schema`, because
    `key` has the columns of the table's key.
    """

    kind: ClassVar[str] = "topic"

    topic: Annotated[TopicName, Mark.FROM_ENVIRONMENT]
    format: FormatName = "json"
    subject: Subject | None = None
    version: Version | None = None
    envelope: Literal["debezium"] | None = None
    captured_table: str | None = Field(default=None, alias="table")
    key_format: SourceKeyFormat = "bytes"
    key_subject: Subject | None = None
    key_version: Version | None = None
    key_columns: dict[str, SourceColumn] = Field(default_factory=dict, alias="key_schema")
    columns: dict[str, SourceColumn] = Field(default_factory=dict, alias="schema")

    @model_validator(mode="after")
    def _suits_a_source(self) -> Self:
        if self.key_columns and self.key_format == "bytes":
            raise ValueError(f"key_schema needs key_format: {', '.join(JSON_KEYS)} or avro")
        if not self.key_columns and self.key_format in JSON_KEYS:
            raise ValueError(
                f"key_format: {self.key_format} needs key_schema: a mapping of field name to Spark SQL type"
            )
        _ = self.source  # which checks itself
        return self

    @property
    def source(self) -> Source:
        """Returns how the topic's records are decoded."""
        return Source(
            topic=self.topic,
            format=self.format,
            subject=self.subject,
            version=self.version,
            envelope=self.envelope,
            captured_table=self.captured_table,
            key_format=self.key_format,
            key_subject=self.key_subject,
            key_version=self.key_version,
            key=self.key_columns,
            columns=self.columns,
            tombstones="drop",
        )

    @property
    def description(self) -> str:
        return f"topic {self.topic}"


class QueryTable(WithColumns):
    """The rows of a query in PostgreSQL. Without `postgres` the query goes to the pipeline's own server."""

    kind: ClassVar[str] = "query"

    query: str
    server: Annotated[TableServer | None, BeforeValidator(server_of), Mark.DECIDES_NO_RECORD] = Field(
        default=None, alias="postgres"
    )

    @field_validator("query")
    @classmethod
    def _has_a_statement(cls, query: str) -> str:
        if not query.strip() or "\0" in query:
            raise ValueError("give a SELECT statement")
        return query

    @property
    def description(self) -> str:
        return "a query in PostgreSQL"


KINDS: Mapping[str, type[SideTableSettings]] = {one.kind: one for one in (FileTable, TopicTable, QueryTable)}


def kind_of(table: Any) -> str | None:
    """Returns the kind of a side table, or None if its settings are of no kind, or of several."""
    if isinstance(table, SideTableSettings):
        return table.kind
    found = _kinds_in(table)
    return found[0] if len(found) == 1 else None


def _kinds_in(table: object) -> list[str]:
    return [kind for kind in KINDS if kind in table] if isinstance(table, Mapping) else []


def _of_its_kind(table: object) -> object:
    if not isinstance(table, Mapping | SideTableSettings):
        raise PydanticCustomError("side_table", "not a section")
    kind = kind_of(table)
    if kind is None:
        found = _kinds_in(table)
        raise PydanticCustomError(
            "side_table_kind",
            "give one of {kinds}; it has {found}",
            {"kinds": ", ".join(KINDS), "found": " and ".join(found) or "none of them"},
        )
    return KINDS[kind].model_validate(table, by_alias=True, by_name=False)


SideTable = Annotated[SerializeAsAny[SideTableSettings], BeforeValidator(_of_its_kind)]


def check_names(named: Mapping[str, object], what: str) -> None:
    """Checks the names of side tables or of sources, which are names of arguments and of views. `what` is one of them, for
    a message.

    Raises:
        ValueError: names the table or source.
    """
    for name in named:
        if not TABLE_NAME.fullmatch(name) or keyword.iskeyword(name):
            raise ValueError(
                f"{name!r}: the name of a {what} has at most 63 of a-z, 0-9 and _, begins with a letter, and is no keyword "
                "of Python: it is the name of an argument or of a view"
            )
        if name == SOURCE:
            raise ValueError(f"{SOURCE} is the name of the section for an only source; give the {what} another name")
