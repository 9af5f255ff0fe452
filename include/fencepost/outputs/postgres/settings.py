"""The section `output` of a pipeline whose output is a table of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from fencepost.config.client_config import ClientConfig
from fencepost.config.output_settings import OutputSettings, RecordSettings
from fencepost.config.sections import Lineage, Mark, Section
from fencepost.config.services.postgres import POSTGRES
from fencepost.outputs.postgres.identifiers import BOOKKEEPING_TABLES, LONGEST_IDENTIFIER
from fencepost.outputs.table.values import RESERVED_COLUMNS
from fencepost.postgres.lineage_name import lineage_name

TABLE_PART = r'[^."\x00-\x1f]+'
INTERVAL, REVISION = RESERVED_COLUMNS


class StagedForTable(RecordSettings):
    """The staged records of a table. A table cannot store a tombstone, and PostgreSQL's JSON cannot store -0."""

    takes_tombstones: ClassVar[bool] = False
    keeps_minus_zero: ClassVar[bool] = False


STAGED = StagedForTable()


def _table(name: str) -> str:
    if not re.fullmatch(rf"{TABLE_PART}(\.{TABLE_PART})?", name):
        raise ValueError("not the name of a table, such as delays or reporting.delays")
    parts = name.split(".")
    if any(len(part.encode()) > LONGEST_IDENTIFIER for part in parts):
        raise ValueError(f"longer than {LONGEST_IDENTIFIER} bytes, so PostgreSQL would truncate it")
    if parts[-1] in BOOKKEEPING_TABLES:
        raise ValueError("one of Fencepost's own tables; name another")
    return name


def _columns(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("names a column twice")
    return names


Columns = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_columns)]


class CurrentSettings(Section):
    """The current table: for each key the newest row of the output table. Newest is the row with the greatest `order_by`.

    A key whose newest row is true in column `deleted` has no row. All of these are columns of the transform's result, or
    `fencepost_interval`.
    """

    table: Annotated[str, AfterValidator(_table), Mark.FROM_ENVIRONMENT]
    key: Columns
    order_by: Columns
    deleted: str | None = None

    @model_validator(mode="after")
    def _each_column_has_one_use(self) -> Self:
        if both := sorted(set(self.key) & set(self.order_by)):
            raise ValueError(
                f"column {both[0]} is in key and in order_by; the rows of one key differ in order_by alone"
            )
        if self.deleted in {*self.key, *self.order_by}:
            raise ValueError(f"column {self.deleted} cannot say deleted and be in key or order_by")
        if REVISION in {*self.key, *self.order_by}:
            raise ValueError(
                f"{REVISION} orders nothing, because a replay writes an older row under a newer revision. Name a column of the "
                f"transform's result, or {INTERVAL}"
            )
        if self.deleted in RESERVED_COLUMNS:
            raise ValueError(f"deleted cannot be {self.deleted}; name a column of the transform's result")
        return self


class PostgresSettings(OutputSettings):
    """A PostgreSQL table as the output. Records are staged as JSON without a key."""

    kind: Literal["postgres"]
    table: Annotated[str, Mark.FROM_ENVIRONMENT]
    # the table with the newest row of each key, which each publication computes from the output table
    current: Annotated[CurrentSettings | None, Mark.DECIDES_NO_RECORD] = None
    # whether a publication adds columns that the table lacks
    add_columns: Annotated[bool, Mark.DECIDES_NO_RECORD] = False
    # whether removing rows may change rows of other tables that refer to them (ON DELETE CASCADE, …)
    allow_referential_actions: Annotated[bool, Mark.DECIDES_NO_RECORD] = False

    services: ClassVar[Mapping[str, str]] = {"postgres": "host, dbname and user of the database"}
    is_compared = True

    @field_validator("table")
    @classmethod
    def _is_table(cls, table: str) -> str:
        _table(table)
        return table if "." in table else f"public.{table}"

    @field_validator("current")
    @classmethod
    def _is_another_table_there(cls, current: CurrentSettings | None, info: ValidationInfo) -> CurrentSettings | None:
        table = info.data.get("table")
        if current is None or table is None:
            return current
        schema = table.split(".")[0]
        name = current.table if "." in current.table else f"{schema}.{current.table}"
        if name == table:
            raise ValueError("its table is the output table itself; name another")
        if name.split(".")[0] != schema:
            raise ValueError(f"its table is in another schema than the output table; name one in schema {schema}")
        return current.model_copy(update={"table": name})

    @property
    def name(self) -> str:
        """Returns the table's name, with its schema."""
        return self.table

    @property
    def description(self) -> str:
        """Returns `table NAME`, for messages."""
        return f"table {self.table}"

    @property
    def current_table(self) -> str | None:
        """Returns the current table's name, with its schema, or None if there is none."""
        return self.current.table if self.current is not None else None

    @property
    def records(self) -> RecordSettings:
        """Returns the settings of staged records. Staged records are JSON whose values the table stores exactly."""
        return STAGED

    def lineage_name(self, config: ClientConfig, lineage: Lineage) -> tuple[str, str]:
        """Returns OpenLineage's namespace of the server, and the table's name with its database."""
        return lineage_name(config.plain(POSTGRES), lineage, self.table)

    def current_lineage_name(self, config: ClientConfig, lineage: Lineage) -> tuple[str, str] | None:
        """Returns the same of the current table, or None if there is none."""
        return (
            lineage_name(config.plain(POSTGRES), lineage, self.current_table)
            if self.current_table is not None
            else None
        )

    def grants(self, config: ClientConfig, *, reader: bool) -> list[tuple[str, list[str]]]:
        """Returns the GRANT statements for the pipeline's role, or for a reader's."""
        from fencepost.outputs.postgres.rights import grants, grants_of_reader

        settings, current = config.plain(POSTGRES), self.current_table
        if reader:
            return [grants_of_reader(self.table, current)]
        return list(grants(self.table, settings["user"], settings["dbname"], current))


SETTINGS = PostgresSettings
